"""OPT012."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need, Part
from tracker_health.evidence.numerics import median
from tracker_health.facts.descent import descent
from tracker_health.facts.settings import ADAM, SGD, USUAL_MOMENTUM, ParamValue, Settings, usual_rate_of
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, number, short_name
from tracker_health.words.verdict import Verdict

_CLIP_HIGHER = "clip at about the norm that most steps have, often 1, or not at all"


@dataclass(frozen=True, kw_only=True)
class SettingsOutOfRange(Probe):
    """A setting of the optimizer is orders of magnitude away from what trains.

    What it finds:
        Gradients that are clipped to almost nothing. A weight decay that removes the weights within about a hundred
        steps. A learning rate that is usual for SGD, given to Adam. A dropout that leaves almost nothing. SGD steps
        that hardly move the weights, all together.

    Why it matters:
        Most are a misplaced decimal point or argument, and all look like a model that cannot do better. With such
        clipping, plain SGD makes no steps, and epsilon dominates those of Adam.

    How it decides:
        Warn when gradients are clipped to `least_clip` or less, and the logged norms reach half of that. What follows
        needs a loss that did not surely come down by `healthy_descent`. Warn of a weight decay of `least_decay` or more
        that takes `most_decay` of the weights per step. Warn of a rate of `most_rate` for Adam, in every group, and of
        a dropout of `most_dropout`. Warn when SGD's way is at most `least_way`, and the descent below `least_descent`:
        gradient norm, rate and steps, over 1 less the momentum.

    Known limits:
        It reads no code, only log, checkpoint and params. It does not judge how far Adam came, or an SGD whose steps
        nothing counts. A limit for single values of the gradient is judged as one for its norm. Where the params
        mention privacy, gradients are clipped for each sample and scaled up again: that passes. Learnt prompts have a
        high rate.

    What to do:
        Clip at about the norm of most steps, often 1; take a weight decay of 0.1 or less, rates of 1e-4 to 1e-2 for
        Adam, a dropout of 0.1 to 0.5.

    References:
        Pascanu et al. (2013); Loshchilov and Hutter (2019).
    """

    code = "OPT012"
    name = "settings-out-of-range"
    symptom = Symptom.UPDATE_SIZE
    kinds = ("clip", "weight-decay", "rate", "dropout", "way")

    least_clip: Annotated[float, Threshold("limit of the gradient norm that is too low", "norm", "design", gt=0)] = 5e-5
    most_rate: Annotated[float, Threshold("learning rate that is too high for Adam", "rate", "design", gt=0)] = 0.3
    most_dropout: Annotated[
        float, Threshold("share of the units left out that is too large", "fraction", "design", gt=0, le=1)
    ] = 0.9
    least_way: Annotated[
        float, Threshold("longest way of all weights that is too short", "norm", "calibration", gt=0)
    ] = 0.5
    most_decay: Annotated[
        float, Threshold("share of the weights that one step's decay takes", "fraction", "design", gt=0, le=1)
    ] = 5e-3
    least_decay: Annotated[
        float, Threshold("weight decay that is too large, whatever the rate's unit", "rate", "design", gt=0)
    ] = 1.0
    healthy_descent: Annotated[
        float, Threshold("fall of the loss that shows that a setting did no harm", "fraction", "design", gt=0)
    ] = 0.6
    least_descent: Annotated[
        float, Threshold("fall of the loss that shows that SGD came somewhere", "fraction", "design", gt=0)
    ] = 0.25
    min_steps: Annotated[int, Threshold("steps of SGD needed", "steps", "design", ge=1)] = 50

    @property
    def needs(self) -> tuple[Need, ...]:
        roles = ("grad_norm", "train_loss", "learning_rate", Part.OPTIMIZER_STEPS, Part.OPTIMIZER_STATE)
        return tuple(Need(role=role, optional=True) for role in roles)

    def judge(self, evidence: Evidence) -> Finding:
        settings, loss = Settings(evidence), descent(evidence)
        norms = evidence.find("grad_norm")
        sizes = norms.finite().values if norms is not None else np.empty(0)
        way = self._longest_way(settings, sizes, evidence.optimizer_steps or 0)
        adams = settings.optimizer == ADAM and not settings.learns_prompts
        rate, decay = settings.slowest_rate if adams else None, settings.decay_per_step
        if all(one is None for one in (settings.clip, settings.dropout, way, rate, decay)):
            return Finding(verdict=Verdict.SKIP, message="no param shows clipping, weight decay, rate or dropout")
        found = None
        if settings.clip_said is not None and not settings.is_private:
            found = self._clipped(settings.clip_said, sizes)
        if loss is not None and not (loss.sure and loss.share >= self.healthy_descent):
            found = found or self._decayed(settings.weight_decay or 0.0, decay or 0.0)
            found = found or self._too_fast(rate or 0.0) or self._dropped(settings.dropout)
        if loss is not None and not loss.share >= self.least_descent and not settings.is_private and way is not None:
            found = found or self._went_nowhere(way, evidence.optimizer_steps or 0)
        measured = {} if way is None else {"way": way}
        return found or Finding(verdict=Verdict.PASS, message="the settings are in the usual range", measured=measured)

    def _longest_way(self, settings: Settings, sizes: FloatArray, steps: int) -> float | None:
        """How far plain SGD can have come with gradients of such norms; None where its steps or those are not known."""
        rate, momentum, limit = settings.mean_rate or 0.0, settings.momentum, settings.clip or np.inf
        size = float(np.minimum(sizes, limit).mean()) if len(sizes) else limit
        if settings.optimizer != SGD or rate <= 0.0 or steps < self.min_steps or size == np.inf:
            return None
        kept = momentum if momentum is not None and 0.0 <= momentum < 1.0 else USUAL_MOMENTUM
        return size * rate * steps / (1.0 - kept)

    def _clipped(self, limit: ParamValue, sizes: FloatArray) -> Finding | None:
        if limit.value > self.least_clip or (len(sizes) and median(sizes) < 0.5 * limit.value):
            return None
        said = f"gradients are clipped to a norm of {number(limit.value)} ({short_name(limit.name)})"
        return _odd(said, _CLIP_HIGHER, "clip", {"clip": limit.value})

    def _decayed(self, decay: float, share: float) -> Finding | None:
        if decay < self.least_decay or share < self.most_decay:
            return None
        said = f"a weight decay of {number(decay)} takes {share:.1%} of the weights per step"
        return _odd(said, "take a weight decay of 0.1 or less", "weight-decay", {"decay_per_step": share})

    def _too_fast(self, rate: float) -> Finding | None:
        if rate < self.most_rate:
            return None
        said = f"a learning rate of {number(rate)} moves every weight by about as much in each step of Adam"
        return _odd(said, f"{usual_rate_of(ADAM).said} for Adam", "rate", {"rate": rate})

    def _dropped(self, dropout: ParamValue | None) -> Finding | None:
        if dropout is None or dropout.value < self.most_dropout:
            return None
        said = f"a dropout of {number(dropout.value)} ({short_name(dropout.name)}) leaves little to learn from"
        return _odd(said, "0.1 to 0.5 are usual", "dropout", {"dropout": dropout.value})

    def _went_nowhere(self, way: float, steps: int) -> Finding | None:
        if way > self.least_way:
            return None
        said = f"in {count(steps, 'step')} of plain SGD all weights together moved by {number(way)} at most"
        return _odd(said, f"raise the learning rate; {_CLIP_HIGHER}", "way", {"way": way})


def _odd(said: str, remedy: str, kind: str, measured: dict[str, float]) -> Finding:
    return Finding(verdict=Verdict.WARN, message=said, remedy=remedy, measured=measured, kind=kind)
