"""OPT011."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import isclose
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.evidence.parameters.steps import betas_of_adam
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import number, percent, setting
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class BetasSwapped(Probe):
    """The betas of Adam are the wrong way round.

    What it finds:
        Parameters whose first moment remembers far more gradients than their second one, as with betas=(0.999, 0.9).

    Why it matters:
        The second moment should average the size of many gradients. If it follows only the last few, the first moment
        still holds much older ones. When gradients become small, old large ones are divided by new small ones. The step
        then has no bound that the learning rate sets. Its direction is that of gradients from up to a thousand steps
        before.

    How it decides:
        A moment remembers 1 / (1 - beta) gradients. Warn when the first one's beta is at least `least_first`, and it
        remembers `least_ratio` times as many as the second one, in any parameter group. The groups are those of Adam
        and what keeps the same two moments, value by value, and has two betas.

    Known limits:
        Needs the optimizer's groups next to its second moments. (0.95, 0.9) may be a slip as well, and does little
        harm. If the betas have a schedule, their values in the checkpoint count.

    Worked example:
        group: betas=0.999,0.9
        optimizer fc 2x2: step=100 exp_avg=0.01*4 exp_avg_sq=1e-3*4
        gives: memory_ratio 100
        warn: the moments remember 1 / 0.001 = 1000 and 1 / 0.1 = 10 gradients. That is 100 times as many, above
          `least_ratio`, and 0.999 is above `least_first`.

    What to do:
        Give them in the order (first, second): betas=(0.9, 0.999).

    References:
        Kingma and Ba (2015), algorithm 1. By the inequality of Cauchy and Schwarz a step is bounded where b1^2 < b2.
    """

    code = "OPT011"
    name = "betas-swapped"
    symptom = Symptom.UPDATE_SIZE
    headline = ("memory_ratio",)

    least_ratio: Annotated[
        float, Threshold("gradients that the first moment remembers over those of the second", "ratio", "design", ge=2)
    ] = 5.0
    least_first: Annotated[
        float, Threshold("beta of the first moment that remembers for long", "fraction", "design", ge=0, le=1)
    ] = 0.95

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.SECOND_MOMENTS),)

    def judge(self, evidence: Evidence) -> Finding:
        state, values = evidence.optimizer, Counter[tuple[float, float]]()
        for tensor in state.tensors if state is not None else ():
            betas = betas_of_adam(state, tensor) if state is not None else None
            if betas is not None:
                values[betas] += tensor.numel
        if not values:
            return Finding(verdict=Verdict.SKIP, message="no group of an Adam tells its two betas")
        # Of several groups the one that is found, and of those the furthest off.
        first, second = worst = max(values, key=lambda one: (self._swapped(one), _ratio(one)))
        measured = {"memory_ratio": _ratio(worst), "beta1": first, "beta2": second}
        seen = f"betas=({setting(first)}, {setting(second)})"
        if not self._swapped(worst):
            return Finding(verdict=Verdict.PASS, message=seen, measured=measured)
        share = values[worst] / max(1, values.total())
        of_some = f", of {percent(share)} of the values" if len(values) > 1 else ""
        return Finding(
            verdict=Verdict.WARN,
            message=f"{seen}{of_some}: the first moment remembers {number(_ratio(worst))} times as many gradients as "
            "the second, and nothing bounds a step",
            remedy="give the betas in the order (first, second), as in betas=(0.9, 0.999)",
            measured=measured,
        )

    def _swapped(self, betas: tuple[float, float]) -> bool:
        ratio = _ratio(betas)
        # 1 - 0.98 is not quite 0.02.
        return betas[0] >= self.least_first and (ratio >= self.least_ratio or isclose(ratio, self.least_ratio))


def _ratio(betas: tuple[float, float]) -> float:
    return (1.0 - betas[1]) / (1.0 - betas[0])
