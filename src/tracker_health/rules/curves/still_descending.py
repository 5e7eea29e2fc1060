"""LOS007."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Curve, Evidence, Fall, Part
from tracker_health.facts.intent import is_fine_tuning
from tracker_health.facts.rates import learning_rates
from tracker_health.report.result import Finding
from tracker_health.rules.curves.curve_rule import CurveRule
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.text import contrast, percent
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class StillDescending(CurveRule):
    """The run ended while the loss was still falling.

    What it finds:
        A training loss whose last quarter brought a large share of the whole descent. Also one that came down by
        little, and was as fast at the end as on average.

    Why it matters:
        The run was too short, or its learning rate far too low: more of the same would have helped.

    How it decides:
        The last quarter must clearly bring something, and its second half, too. Warn when it brought `late_share` of
        the descent; not where the learning rate had come down to `rate_left` of its peak. Warn, too, when the descent
        is no more than `little` of the start and had not slowed down. Then the last quarter and the half before it
        brought `pace` of what a line would, by the sum of the learning rates. Fine-tunes may do that. The validation
        loss then counts as well.

    Known limits:
        A loss that learns late, after a long plateau, looks the same. So does a fine-tune that no param mentions.

    Worked example:
        train_loss: 2.30 2.28 2.26 2.24 2.22 2.20 2.18 2.16 2.14 2.12 2.10 2.08
        gives: late_share 0.2669, start 2.3, end 2.09
        warn: the descent of 0.2 is 9 % of the start, and each quarter brought a quarter of it.

    What to do:
        Train longer, or raise the learning rate.

    References:
        Standard error of a median. Smith (2017), on learning rates that are too small.
    """

    code = "LOS007"
    name = "still-descending"
    symptom = Symptom.UNDERTRAINED
    headline = ("late_share",)
    also = ("val_loss", Part.WEIGHTS)

    late_share: Annotated[
        float, Threshold("share of the descent in the last quarter", "fraction", "calibration", gt=0, le=1)
    ] = 0.3
    little: Annotated[
        float, Threshold("descent that is little, as a share of the start", "fraction", "calibration", gt=0, le=1)
    ] = 0.25
    pace: Annotated[
        float, Threshold("fall late in the run over that of a straight line", "ratio", "calibration", gt=0)
    ] = 0.8

    rate_left: Annotated[
        float, Threshold("learning rate at the end, over its peak, of an ended schedule", "ratio", "design", ge=0)
    ] = 0.2

    def judge_curve(self, curve: Curve, evidence: Evidence) -> Finding:
        rates = [one.values for one in learning_rates(evidence)]
        ended = any(one[-1] <= self.rate_left * one.max() for one in rates)
        by_steps, by_way = curve.fall, curve.fall_by_rate
        late = by_steps.late_share >= self.late_share and by_steps.sure and not ended
        little = by_way.share <= self.little and not is_fine_tuning(evidence)
        if late or (little and by_way.sure and by_way.pace >= self.pace):
            return _falling("loss", by_steps if late else by_way, curve)
        held_out = evidence.curve("val_loss")
        if little and held_out is not None and held_out.points >= self.fewest:
            fall = held_out.fall
            if fall.share <= self.little and fall.sure and fall.pace >= self.pace:
                return _falling("validation loss", fall, held_out)
        message = f"the last quarter brought {percent(max(by_steps.late_share, 0.0))} of the descent"
        return Finding.passed(message, _measured(by_steps))


def _measured(fall: Fall) -> dict[str, float | int]:
    return {"start": fall.start, "end": fall.end, "late_share": fall.late_share, "pace": fall.pace}


def _falling(name: str, fall: Fall, curve: Curve) -> Finding:
    start, end = contrast(fall.start, fall.end)
    return Finding(
        verdict=Verdict.WARN,
        message=f"the {name} was still falling when the run ended: the last quarter brought "
        f"{percent(fall.late_share)} of its descent from {start} to {end}",
        remedy="train longer, or raise the learning rate",
        measured=_measured(fall),
        confidence="high" if curve.sure else "low",
    )
