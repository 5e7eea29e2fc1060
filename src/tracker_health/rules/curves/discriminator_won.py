"""LOS015."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Curve, Evidence, Need
from tracker_health.report.result import Finding
from tracker_health.roles import OBJECTIVE_LOSS, adversary_of
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import contrast, short_name
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class DiscriminatorWon(Probe):
    """The discriminator of an adversarial pair is always right.

    What it finds:
        A discriminator's loss that was almost zero in the second half of the run.

    Why it matters:
        If the discriminator is sure about every sample, the generator gets almost no gradient, or one that leads
        nowhere. It stops learning, while both losses look calm.

    How it decides:
        Of a run that logs losses of the generator and of the discriminator, by their names (`loss_D`, `errD`,
        `d_loss`). A loss has vanished that is, in the second half and at the end, between 0 and `share` of
        its start, and `least`. Warn when all losses of the discriminator have, while no loss of the generator
        came down by half. It needs `min_points` points.

    Known limits:
        Needs `min_points` points. A generator that repeats one sample is not detected: its losses are those of a pair
        in balance. Critics are not judged: their losses have no bound, or are those of an agent's values.

    Worked example:
        objective_loss loss_D: 1.4 0.9 0.4 0.1 0.02 0.005 0.004 0.003 0.003 0.003 0.002 0.002 0.002 0.002 0.002 0.002
        objective_loss loss_G: 0.7 1.5 3 5 6 7 7 8 8 8 9 9 9 9 9 9
        gives: late_share 0.001739, start 1.15, late 0.002
        warn: 0.002 is less than a hundredth of 1.4 and than 0.01, while the generator's loss rose to 9.

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
    ] = 1e-2
    least: Annotated[float, Threshold("loss in the second half that is nothing", "nats", "design", gt=0)] = 0.01
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=8)] = 16

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=OBJECTIVE_LOSS, min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        found = [(one, Curve.of(one)) for one in evidence.all_of(OBJECTIVE_LOSS)]
        generator, discriminator = (
            [curve for one, curve in found if curve is not None and curve.points >= self.min_points
             and adversary_of(one.name) == side]
            for side in ("generator", "discriminator")
        )  # fmt: skip
        if not generator or not discriminator:
            return Finding.skipped("no adversarial pair's losses have enough points")
        said, start = discriminator[0], discriminator[0].start.value
        late = said.between(0.5, 1.0).value
        name = short_name(said.series.name)
        first, second = contrast(start, late)
        levels = f"{name} was {first} at first and {second} in the second half"
        measured = {"start": start, "late": late, "late_share": late / start if start else 0.0}
        stays = all(abs(one.between(0.5, 1.0).value) >= 0.5 * abs(one.start.value) for one in generator)
        if not (stays and all(map(self._vanished, discriminator))):
            return Finding.passed(levels, measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"{levels}: the discriminator is always right, and the generator gets no gradient of use",
            remedy="look at the sign of the generator's loss; weaken the discriminator (rate, steps, penalty)",
            measured=measured,
            steps=(int(said.steps[len(said.steps) // 2]),),
        )

    def _vanished(self, curve: Curve) -> bool:
        """Whether almost nothing is left of a loss, in the second half and at the end."""
        most, levels = min(self.share * curve.start.value, self.least), (curve.between(0.5, 1.0), curve.end)
        return curve.start.value > 0 and all(0.0 <= one.value < most for one in levels)
