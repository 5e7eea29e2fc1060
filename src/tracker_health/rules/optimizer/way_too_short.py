"""OPT018."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.facts.descent import descent
from tracker_health.facts.settings import SGD, USUAL_MOMENTUM, Settings
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, number
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class WayTooShort(Probe):
    """The steps of plain SGD barely move the weights, all together.

    What it finds:
        Plain SGD whose learning rate is so small that all of its steps lead nowhere.

    Why it matters:
        Nothing is learnt, and the curve is that of a model that cannot do better.

    How it decides:
        The longest way is the mean gradient norm times the mean learning rate times the steps, over 1 less the
        momentum. A clipped norm counts as its limit, an unknown momentum as 0.9. Warn when it is `least_way` or
        less after `min_steps` steps, and the loss came down by less than `least_descent` of its start. Params
        that mention privacy pass.

    Known limits:
        It does not judge how far Adam came. Where the gradient norm was not logged, the limit that it is clipped to
        stands for it. An SGD whose steps nothing counts is not judged.

    Worked example:
        train_loss: 2.3 2.3 2.3 2.3 2.3 2.3 2.3 2.3 2.3 2.3 2.3 2.3
        grad_norm: 1 1 1 1 1 1 1 1 1 1 1 1
        param optimizer: sgd
        param momentum: 0
        param learning_rate: 0.0001
        optimizer fc 2x2: step=1000 momentum_buffer=0.1*4
        gives: way 0.1
        warn: a norm of 1, times a rate of 0.0001, times 1000 steps is 0.1, below `least_way`, and the loss stands.

    What to do:
        Raise the learning rate; clip at about the norm of most steps, or not at all.

    References:
        Robbins and Monro (1951): the sum of the steps has to be able to reach the solution.
    """

    code = "OPT018"
    name = "way-too-short"
    symptom = Symptom.UPDATE_SIZE
    since = "0.2.0"

    least_way: Annotated[
        float, Threshold("longest way of all weights that is too short", "norm", "calibration", gt=0)
    ] = 0.5
    least_descent: Annotated[
        float, Threshold("fall of the loss that shows that SGD came somewhere", "fraction", "design", gt=0)
    ] = 0.25
    min_steps: Annotated[int, Threshold("steps of SGD needed", "steps", "design", ge=1)] = 50

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss"),
            *Need.beside("grad_norm", "learning_rate", Part.OPTIMIZER_STEPS, Part.OPTIMIZER_STATE),
        )

    def judge(self, evidence: Evidence) -> Finding:
        settings, loss, steps = Settings(evidence), descent(evidence), evidence.optimizer_steps or 0
        way = self._longest_way(evidence, settings, steps)
        if loss is None or way is None or settings.is_private:
            return Finding.skipped("plain SGD's rate, its gradients, its steps or the loss are not known")
        said = f"in {count(steps, 'step')} of plain SGD all weights together moved by {number(way)} at most"
        if way > self.least_way or loss.share >= self.least_descent:
            return Finding.passed(said, {"way": way})
        remedy = "raise the learning rate; clip at about the norm that most steps have, often 1, or not at all"
        return Finding(verdict=Verdict.WARN, message=said, remedy=remedy, measured={"way": way})

    def _longest_way(self, evidence: Evidence, settings: Settings, steps: int) -> float | None:
        """How far plain SGD can have come with gradients of such norms; None where its steps or those are not known."""
        norms = evidence.find("grad_norm")
        sizes = norms.finite().values if norms is not None else ()
        rate, momentum, limit = settings.mean_rate or 0.0, settings.momentum, settings.clip or inf
        size = sum(min(float(one), limit) for one in sizes) / len(sizes) if len(sizes) else limit
        if settings.optimizer != SGD or rate <= 0.0 or steps < self.min_steps or size == inf:
            return None
        kept = momentum if momentum is not None and 0.0 <= momentum < 1.0 else USUAL_MOMENTUM
        return size * rate * steps / (1.0 - kept)
