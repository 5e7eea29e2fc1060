"""LOS015."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from tracker_health.evidence import Evidence, Need, Series
from tracker_health.evidence.numerics import median
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.roles import OBJECTIVE_LOSS, adversary_of
from tracker_health.text import number, printable
from tracker_health.verdict import Verdict

_FIRST = 3
_HALF = 0.5


@dataclass(frozen=True, kw_only=True)
class DiscriminatorWon(Probe):
    """The discriminator of an adversarial pair is always right.

    What it finds:
        A discriminator's loss that was next to nothing in the second half of the run.

    Why it matters:
        Where every sample is told from the real ones for sure, the generator gets hardly a gradient, or one that leads
        nowhere: it learns nothing any more, while both losses look calm.

    How it decides:
        Of a run that logs losses of the generator and of the discriminator, by their names (`loss_D`, `errD`,
        `d_loss`). Warn when of every loss of the discriminator the median and the last value in the second half lie
        between 0 and `share` of its first values, and `least`, while no loss of the generator came down by half.

    Known limits:
        Needs `min_points` points. A generator that repeats one sample is not seen: its losses are those of a pair in
        balance. Critics are left alone: their losses have no bound, or are those of an agent's values.

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
    least: Annotated[float, Threshold("loss in the second half that is nothing", "nats", "design", gt=0)] = 0.01
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=8)] = 16

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=OBJECTIVE_LOSS, min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        losses = [one.finite() for one in evidence.series if one.role == OBJECTIVE_LOSS]
        generator, discriminator = (
            [_Course.of(one) for one in losses if len(one) >= self.min_points and adversary_of(one.name) == side]
            for side in ("generator", "discriminator")
        )
        if not generator or not discriminator:
            return Finding(verdict=Verdict.SKIP, message="no adversarial pair's losses have enough points")
        said = discriminator[0]
        levels = (
            f"{printable(said.name, 60)} was {number(said.first)} at first and {number(said.late)} in the second half"
        )
        measured = {"start": said.first, "late": said.late, "late_share": said.late / said.first if said.first else 0.0}
        stays = all(abs(one.late) >= _HALF * abs(one.first) for one in generator)
        if not (stays and all(one.vanished(self.share, self.least) for one in discriminator)):
            return Finding(verdict=Verdict.PASS, message=levels, measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"{levels}: the discriminator is always right, and the generator gets no gradient of use",
            remedy="look at the sign of the generator's loss; weaken the discriminator (rate, steps, penalty)",
            measured=measured,
        )


class _Course(NamedTuple):
    """The level of a loss at first and in the second half, and where it ends."""

    name: str
    first: float
    late: float
    end: float

    @classmethod
    def of(cls, loss: Series) -> _Course:
        values = loss.values
        return cls(loss.name, median(values[:_FIRST]), median(values[len(values) // 2 :]), float(values[-1]))

    def vanished(self, share: float, least: float) -> bool:
        """Whether next to nothing is left of it, in the middle and at the end."""
        return (
            self.first > 0
            and min(self.late, self.end) >= 0
            and max(self.late, self.end) < min(share * self.first, least)
        )
