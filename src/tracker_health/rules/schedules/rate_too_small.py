"""LRS003."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.facts.rates import learning_rates
from tracker_health.facts.settings import ADAM, usual_rate_of
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.schedules._schedules import is_adaptive
from tracker_health.text import number, printable
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class RateTooSmall(Probe):
    """A learning rate at which nothing moves.

    What it finds:
        A logged learning rate of an Adam-like optimizer that is so small, at its highest, that no weight moves.

    Why it matters:
        A step of such an optimizer is about as large as the rate, whatever the gradient is. A unit or an exponent has
        slipped, and the parameters of that group stay as they are.

    How it decides:
        Warn when the highest of `min_points` rates or more of any group is above 0 and below `least_rate`. The
        optimizer has to divide by the size of the gradients: its state, the params or the rate's name say so.

    Known limits:
        A rate of 0 is LRS001's. Of plain SGD a small rate may meet large gradients: OPT018 asks how far it came.

    Worked example:
        learning_rate lr-AdamW: 1e-9 1e-9 1e-9 1e-9 1e-9
        gives: peak 1e-9
        warn: 1e-9 is below `least_rate`, 5e-8.

    What to do:
        Look for a unit or an exponent that slipped.

    References:
        Kingma and Ba (2015): the size of a step is bounded by the rate.
    """

    code = "LRS003"
    name = "rate-too-small"
    symptom = Symptom.SCHEDULE
    since = "0.2.0"

    least_rate: Annotated[
        float, Threshold("highest rate at which an Adam-like optimizer moves nothing", "rate", "design", ge=0)
    ] = 5e-8
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=3)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="learning_rate", min_points=self.min_points), *Need.beside(Part.OPTIMIZER_STATE))

    def judge(self, evidence: Evidence) -> Finding:
        rates = [one.finite() for one in learning_rates(evidence)]
        peaks = [(float(one.values.max()), one) for one in rates if len(one) >= self.min_points]
        above = [(peak, one) for peak, one in peaks if peak > 0.0 and is_adaptive(evidence, one)]
        if not above:
            return Finding.skipped("no learning rate of an Adam-like optimizer is known")
        peak, series = min(above, key=lambda one: one[0])
        if peak >= self.least_rate:
            return Finding.passed(f"the lowest group's rate peaks at {number(peak)}", {"peak": peak})
        name = printable(series.name)
        return Finding(
            verdict=Verdict.WARN,
            message=f"{name} is {number(peak)} at most: no weight of its group moves by more than that in a step",
            remedy=f"look for a unit or an exponent that slipped; {usual_rate_of(ADAM).said} of Adam",
            measured={"peak": peak},
            steps=(int(series.steps[0]), int(series.steps[-1])),
        )
