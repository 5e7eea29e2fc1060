"""LOS015."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._stats import median
from tracker_health.result import Finding
from tracker_health.roles import OBJECTIVE_LOSS, adversary_of
from tracker_health.text import number, printable
from tracker_health.verdict import Verdict

_FIRST = 3


@dataclass(frozen=True, kw_only=True)
class DiscriminatorWon(Probe):
    """The discriminator of an adversarial pair is always right.

    What it finds:
        A discriminator's loss that was next to nothing in the second half of the run.

    Why it matters:
        Where every sample is told from the real ones for sure, the generator gets hardly a gradient, or one that leads
        nowhere: it learns nothing any more, while both losses look calm.

    How it decides:
        Of a run that logs a loss of the generator and one of the discriminator, by their names (`loss_D`, `errD`,
        `d_loss`). Warn when the median and the last value of the discriminator's loss in the second half lie between 0
        and `share` of its first values, if these are above 0. Losses of critics, which have no bound, are below 0, or
        wander.

    Known limits:
        Needs `min_points` points. A generator that repeats one sample is not seen: its losses are those of a pair in
        balance.

    What to do:
        Look at the sign of the generator's loss and whether it is in its optimizer; give the discriminator a lower
        rate, fewer steps, a gradient penalty, or labels that are smoothed on one side.

    References:
        Goodfellow et al. (2014), Generative adversarial nets; Arjovsky and Bottou (2017).
    """

    code = "LOS015"
    name = "discriminator-won"
    symptom = Symptom.NOT_LEARNING
    headline = ("late_share",)

    share: Annotated[
        float, Threshold("loss in the second half, as a share of the first values", "fraction", "design", gt=0, le=1)
    ] = 1e-3
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=8)] = 16

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=OBJECTIVE_LOSS, min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        of = {name: adversary_of(name) for name in evidence.info.metric_names}
        if "generator" not in of.values():
            return Finding(verdict=Verdict.SKIP, message="no loss of a generator is logged")
        losses = [one.finite() for one in evidence.series if one.role == OBJECTIVE_LOSS]
        judged = [one for one in losses if len(one) >= self.min_points and adversary_of(one.name) == "discriminator"]
        if not judged:
            return Finding(verdict=Verdict.SKIP, message="no loss of a discriminator has enough points")
        found = [(median(one.values[:_FIRST]), median(one.values[len(one) // 2 :]), one) for one in judged]
        for first, late, one in found:
            if first > 0 and max(late, float(one.values[-1])) < self.share * first and min(late, one.values[-1]) >= 0:
                return Finding(
                    verdict=Verdict.WARN,
                    message=f"{printable(one.name, 60)} was {number(first)} at first and {number(late)} in the second "
                    "half: the discriminator is always right, and the generator gets no gradient that leads anywhere",
                    remedy="look at the sign of the generator's loss; weaken the discriminator (rate, steps, penalty)",
                    measured={"start": first, "late": late, "late_share": late / first},
                )
        first, late, one = found[0]
        return Finding(
            verdict=Verdict.PASS,
            message=f"{printable(one.name, 60)} is {number(late)} in the second half",
            measured={"start": first, "late": late} | ({"late_share": late / first} if first else {}),
        )
