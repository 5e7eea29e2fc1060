"""REG004."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import contrast
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class OffTarget(Probe):
    """The fine-tune shifted what it should not touch more than what it aimed at.

    What it finds:
        An on-target shift that is smaller than the off-target one, in runs that log both.

    Why it matters:
        The model changed as a whole. The trained trait cannot be distinguished from side effects.

    How it decides:
        By the last finite value of both, without their signs. Warn when the on-target shift is less than `ratio` times
        the off-target one.

    Known limits:
        It trusts the run's own measures. Shifts on different scales cannot be compared.

    Worked example:
        on_target_shift: 0.1 0.2
        off_target_shift: 0.3 0.5
        gives: ratio 0.4
        warn: 0.2 / 0.5 is 0.4, below `ratio`.

    What to do:
        A stronger regulariser, fewer steps or a lower learning rate, or training data closer to the target.

    References:
        None: plain arithmetic.
    """

    code = "REG004"
    name = "off-target"
    symptom = Symptom.IDLE_REGULARISER
    headline = ("ratio",)

    ratio: Annotated[float, Threshold("smallest on-target shift, in off-target shifts", "", "design", gt=0)] = 1.0

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="on_target_shift"), Need(role="off_target_shift"))

    def judge(self, evidence: Evidence) -> Finding:
        on, off = (evidence.first(role).finite().values for role in ("on_target_shift", "off_target_shift"))
        if not len(on) or not len(off):
            return Finding.skipped("no finite value of both shifts")
        mine, other = abs(float(on[-1])), abs(float(off[-1]))
        measured = {"on_target": mine, "off_target": other} | ({"ratio": mine / other} if other > 0 else {})
        on_target, off_target = contrast(mine, other)
        said = f"the on-target shift is {on_target}, the off-target one {off_target}"
        if mine < self.ratio * other:
            remedy = "regularise more, train less, or take data closer to the target"
            return Finding(verdict=Verdict.WARN, message=f"{said}: not surgical", remedy=remedy, measured=measured)
        return Finding.passed(said, measured)
