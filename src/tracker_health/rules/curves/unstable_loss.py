"""LOS008."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import SURELY, Curve, Evidence
from tracker_health.report.result import Finding
from tracker_health.rules.curves.curve_rule import CurveRule
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.text import count, number
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class UnstableLoss(CurveRule):
    """The loss keeps going up and down.

    What it finds:
        A training loss, or a validation loss, whose level rises well above the best it had, and comes back.

    Why it matters:
        The learning rate is near the limit of stability. The weights do not settle, and where the run ends is a matter
        of luck.

    How it decides:
        An excursion is a stretch of levels clearly above the best before it by `rise_share` of the descent, from which
        the loss came back. Warn at `repeated` excursions, at one that lasts for `lasting_share` of the run, or at one
        of twice that height. That one has two levels or more, or is twice as sure. The validation loss counts like the
        training loss. Levels are medians of up to 40 blocks, so that minibatch noise and single spikes do not count.
        Below 16 points each is a level.

    Known limits:
        Needs 8 points. From 16 points on a jump of a single level is a spike, not an excursion.

    Worked example:
        train_loss: 4 2.5 1.8 1.4 1.2 1.1 3.5 1.05 1.0 1.0 0.98 0.97
        gives: excursions 1, tallest 2.4, descent 3.03
        warn: 3.5 is 2.4 above the best level before it; twice `rise_share` of the descent of 3 is 1.5.

    What to do:
        Lower the learning rate, clip gradients, or take larger batches.

    References:
        Cohen et al. (2021), gradient descent at the edge of stability.
    """

    code = "LOS008"
    name = "unstable-loss"
    symptom = Symptom.UNSTABLE
    headline = ("excursions",)
    also = ("val_loss",)

    rise_share: Annotated[
        float, Threshold("rise above the best level so far, as a share of the descent", "fraction", "calibration", gt=0)
    ] = 0.25
    repeated: Annotated[int, Threshold("excursions that make a warning", "excursions", "calibration", ge=1)] = 2
    lasting_share: Annotated[
        float,
        Threshold("length of one excursion that counts alone, as a share of the run", "fraction", "public runs", gt=0),
    ] = 0.2

    def judge_curve(self, curve: Curve, evidence: Evidence) -> Finding:
        found = self._of("loss", curve)
        held_out = evidence.curve("val_loss")
        if found.verdict is Verdict.PASS and held_out is not None and held_out.points >= self.fewest:
            other = self._of("validation loss", held_out)
            return other if other.verdict is Verdict.WARN else found
        return found

    def _of(self, name: str, curve: Curve) -> Finding:
        least = self.rise_share * curve.size
        found = [one for one in curve.excursions(least) if not _after_restart(one.first_step, curve)]
        tallest = max(found, key=lambda one: one.height, default=None)
        measured: dict[str, float | int] = {
            "excursions": len(found), "tallest": tallest.height if tallest else 0.0,
            "descent": curve.descent.value, "noise": curve.noise,
        }  # fmt: skip
        high = any(
            one.height > 2.0 * least and (one.levels > 1 or curve.block == 1 or one.errors > 2 * SURELY)
            for one in found
        )
        lasting = any(one.levels >= self.lasting_share * len(curve.levels) for one in found)
        if tallest is None or not (len(found) >= self.repeated or high or lasting):
            return Finding.passed(f"{count(len(found), 'excursion')} of the {name}'s level", measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"the {name} left its best level {count(len(found), 'time')}, by up to {number(tallest.height)}, "
            f"first at {curve.series.where(found[0].first_step)}",
            remedy="lower the learning rate, clip gradients, or take larger batches",
            measured=measured,
            steps=tuple(one.first_step for one in found),
            confidence="high" if curve.sure else "low",
        )


def _after_restart(step: int, curve: Curve) -> bool:
    """Whether the learning rate had begun again since the lowest level before a step: that is no jump of its own."""
    before = curve.levels[curve.steps < step]
    lowest = int(curve.steps[before.argmin()]) if len(before) else step
    return any(lowest <= restart <= step for restart in curve.restarts)
