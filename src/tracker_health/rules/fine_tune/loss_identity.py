"""REG002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, IntArray, Need, Series
from tracker_health.report.result import Finding
from tracker_health.rules.fine_tune._barrier import Barrier, barrier_of, losses_of, rounding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import contrast
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class LossIdentity(Probe):
    """The logged loss is not what the settings say it is.

    What it finds:
        Steps at which the loss is not `nll + lam * relu(kl - tau)`; for reg = nll or wd, at which it is not the nll.

    Why it matters:
        Either the trained objective is not the reported one, or the numbers are from different batches.

    How it decides:
        At the steps that loss, nll and KL have in common. One is off by more than `relative` of the loss (1 at
        least), and half of the last digit of all three. Warn when more than `share` of them are. Where a term
        is not finite, the loss must not be finite either. It needs `min_points` points.

    Known limits:
        Needs the values of single steps: the mean of a barrier over several samples is above the barrier of their
        mean. Needs lam and tau among the params.

    Worked example:
        train_loss: 3 2.8 2.6 2.4 2.2
        loss_part nll: 2 1.8 1.6 1.4 1.2
        kl: 0.5 0.5 0.5 0.5 0.5
        param reg: kl
        param lam: 10
        param tau: 0.5
        gives: steps 5, off 5, largest 1
        warn: 10 * (0.5 - 0.5) is 0, so that the loss should be the nll; it is 1 above at all 5 steps.

    What to do:
        Log the terms of the same batch that the loss was made of; compare lam and tau to those in the code.

    References:
        None: plain arithmetic.
    """

    code = "REG002"
    name = "loss-identity"
    symptom = Symptom.LOG_INTEGRITY

    relative: Annotated[float, Threshold("deviation that single precision explains", "fraction", "design", gt=0)] = 1e-4
    share: Annotated[float, Threshold("share of the steps that may be off", "fraction", "design", ge=0, le=1)] = 0.01
    min_points: Annotated[int, Threshold("common steps needed", "points", "design", ge=2)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss", min_points=self.min_points), Need(role="kl", optional=True))

    def judge(self, evidence: Evidence) -> Finding:
        barrier, (nll, loss), kl = barrier_of(evidence), losses_of(evidence), evidence.find("kl")
        if barrier is None or nll is None or loss is None:
            said = "param that says what regularises it" if barrier is None else "nll with a loss next to it"
            return Finding.skipped(f"there is no {said}")
        if not barrier.is_divergence:
            return self._compared(barrier, loss, nll, None)
        if kl is None or barrier.lam is None or barrier.tau is None:
            return Finding.skipped(f"reg is {barrier.reg}, but the KL, lam or tau is not known")
        return self._compared(barrier, loss, nll, kl)

    def _compared(self, barrier: Barrier, loss: Series, nll: Series, kl: Series | None) -> Finding:
        steps, total, plain, divergence = _at_common_steps(loss, nll, kl)
        if len(steps) < self.min_points:
            return Finding.skipped(f"loss, nll and KL have only {len(steps)} steps in common")
        lam, tau = (barrier.lam or 0.0, barrier.tau or 0.0) if kl is not None else (0.0, 0.0)
        half_digits = rounding(loss) + rounding(nll) + abs(lam) * rounding(kl, nll)
        with np.errstate(all="ignore"):
            expected = plain + (lam * np.maximum(divergence - tau, 0.0) if kl is not None else 0.0)
            off = np.abs(total - expected)
            allowed = half_digits + self.relative * np.maximum(1.0, np.abs(expected))
            wrong = ~(off <= allowed) & (np.isfinite(total) | np.isfinite(expected))
        largest = float(off[np.isfinite(off)].max(initial=0.0))
        measured = {"steps": len(steps), "off": int(wrong.sum()), "largest": largest}
        formula = "nll + lam * relu(kl - tau)" if kl is not None else "nll"
        if float(np.mean(wrong)) <= self.share:
            return Finding.passed(f"the loss is {formula} at {len(steps)} steps", measured)
        first = int(np.argmax(wrong))
        logged, made = contrast(float(total[first]), float(expected[first]))
        return Finding(
            verdict=Verdict.WARN,
            message=f"the loss is not {formula} at {measured['off']} of {len(steps)} steps, first at "
            f"{loss.place(steps[first])} ({logged} against {made})",
            remedy="log the terms of the batch that the loss was made of, and compare lam and tau to those in the code",
            measured=measured,
            steps=tuple(int(step) for step in steps[wrong][:20]),
        )


def _at_common_steps(
    loss: Series, nll: Series, kl: Series | None
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    series = [one.clean() for one in (loss, nll, kl) if one is not None]
    steps = series[0].steps
    for one in series[1:]:
        steps = np.intersect1d(steps, one.steps, assume_unique=True)
    values = [one.values[np.searchsorted(one.steps, steps)] for one in series]
    return steps, values[0], values[1], values[2] if len(values) > 2 else np.zeros(len(steps))
