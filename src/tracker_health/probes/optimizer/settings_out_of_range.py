"""OPT012."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any

import numpy as np

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.evidence.numerics import median
from tracker_health.facts.descent import descent
from tracker_health.facts.intent import optimizers_named
from tracker_health.facts.rates import learning_rates
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import count, number, short_name
from tracker_health.verdict import Verdict

_CLIP = re.compile(
    r"(^|[./])(max_grad_norm|grad_clip(_norm)?|clip_grad(_norm)?|gradient_clip(ping)?(_val|_norm)?"
    r"|(grad|gradient|optim|optimizer)[./](clip|clip_norm|max_norm))$"
)
_DECAY = re.compile(r"(^|[./])weight_decay$")
_RATES = ("lr", "learning_rate")
_DROPOUT = re.compile(
    r"^((model|net|network|config|hparams|args|encoder|decoder)[./_])*"
    r"(dropout(_?(rate|prob|p))?|p_?dropout|(hidden|attention|embd?|resid|classifier)_p?drop(out)?(_prob)?)$"
)
_OF_ADAM = re.compile(r"(^|[./_])([nr]?adamw?|rmsprop)([._]|$)")
_SCALES_BY_ITSELF = re.compile(r"d_?adapt|prodigy|sign|lars|normal|sophia")
_PROMPTS = re.compile(r"prompt|prefix|virtual_token|soft_?token")
_PLAIN = re.compile(r"(^|[^a-z])sgd([^a-z]|$)|^nesterov$|^momentum$")
_USUAL_MOMENTUM = 0.9
_FEWEST_NORMS, _FEWEST_STEPS = 5, 50
_PRIVATE = re.compile(r"noise_multiplier|privacy|private|opacus|max_per_sample")
_ACTS = 0.9  # of the limit: what was logged after clipping lies there
_MOST_OF_IT, _A_GOOD_DEAL = 0.6, 0.25
_MOST_OF_A_PARAM = 300
_CLIP_HIGHER = "clip at about the norm that most steps have, often 1, or not at all"
_LEAST_DECAY = 1.0  # with the rate of 1 that some optimizers scale by themselves, a usual one has a large product


@dataclass(frozen=True, kw_only=True)
class SettingsOutOfRange(Probe):
    """A setting of the optimizer is orders of magnitude away from what trains.

    What it finds:
        Gradients that are clipped to next to nothing; a weight decay that takes the weights away within a hundred steps
        or so; a learning rate that is usual for SGD, given to Adam; a dropout that leaves next to nothing; steps of SGD
        that lead nowhere, all together.

    Why it matters:
        Most are slips of a decimal or of an argument's place, and all look like a model that cannot do better: of
        clipped gradients plain SGD makes no steps, and Adam some that its epsilon rules.

    How it decides:
        By the run's params. Warn when the limit for the gradient norm (`max_grad_norm`, `grad_clip`, ...) is above 0
        and at most `least_clip`, unless the logged norms do not come near it, or the params speak of privacy, for which
        each sample's gradient is clipped and scaled up again. Warn when the weight decay is 1 or more and its product
        with the learning rate beside it, the share of the weights that one step takes, is `most_decay` or more, and the
        loss is not known to have come down by 60 %.

        Where the training loss is known not to have come down by 60 %, warn when the highest rate that was logged, or
        else the first one by the checkpoint or the params, is `most_rate` or more for Adam, AdamW, NAdam, RAdam or
        RMSprop, by the params or the checkpoint, which moves every weight by about as much in each step: in each group
        of parameters, and not for learnt prompts. Warn then, too, when a param sets a dropout to `most_dropout` or
        more, but less than 1.

        Warn, too, when plain SGD cannot have come farther than `least_way` from where it began, and the training loss
        is known not to have come down by a quarter: at most the limit, or the norm that was logged, in each step, times
        the learning rate (the mean of the logged ones, or the first one) and the number of optimizer steps, over 1 less
        the momentum (0.9 where it is not known). A layer that does not begin at 0 begins with a norm of 3 or so.

    Known limits:
        Reads no code: what the params do not tell is not seen. Nor is how far Adam came, or an SGD whose steps nothing
        counts. A limit for single values of the gradient is judged as one for its norm, and a gradient norm that was
        averaged over the parameters makes the way look shorter than it is.

    What to do:
        Clip at about the norm of most steps, often 1; take a weight decay of 0.1 or less, rates of 1e-4 to 1e-2 for
        Adam, a dropout of 0.1 to 0.5.

    References:
        Pascanu et al. (2013); Loshchilov and Hutter (2019).
    """

    code = "OPT012"
    name = "settings-out-of-range"
    symptom = Symptom.UPDATE_SIZE

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

    @property
    def needs(self) -> tuple[Need, ...]:
        roles = ("grad_norm", "train_loss", "learning_rate", Part.OPTIMIZER_STEPS, Part.OPTIMIZER_STATE)
        return tuple(Need(role=role, optional=True) for role in roles)

    def judge(self, evidence: Evidence) -> Finding:
        params = evidence.info.params
        clip, decay = (_setting(params, one) for one in (_CLIP, _DECAY))
        dropout = max(_settings(params, _DROPOUT), key=lambda one: one[1] * (one[1] < 1.0), default=None)
        way = _longest_way(evidence, clip[1] if clip is not None and clip[1] > 0.0 else None)
        rate, beside = _rate_of_adam(evidence), _rate_beside(params, decay[0]) if decay is not None else None
        if clip is None and dropout is None and way is None and rate is None and beside is None:
            return Finding(verdict=Verdict.SKIP, message="no param tells of clipping, weight decay, rate or dropout")
        if clip is not None and 0.0 < clip[1] <= self.least_clip and not _is_meant(evidence, clip[1]):
            said = f"gradients are clipped to a norm of {number(clip[1])} ({short_name(clip[0])})"
            return _odd(said, _CLIP_HIGHER, {"clip": clip[1]})
        loss = descent(evidence)
        learns = loss is not None and loss.sure and loss.share >= _MOST_OF_IT
        found = self._decayed(*decay, beside) if decay is not None and beside is not None and not learns else None
        if loss is not None and not learns:
            found = found or self._too_fast(rate) or self._dropped(dropout)
        if loss is not None and not loss.share >= _A_GOOD_DEAL:
            found = found or self._went_nowhere(way, evidence)
        measured = {} if way is None else {"way": way}
        return found or Finding(verdict=Verdict.PASS, message="the settings are in the usual range", measured=measured)

    def _decayed(self, name: str, decay: float, rate: float) -> Finding | None:
        share = decay * rate
        if decay < _LEAST_DECAY or share < self.most_decay:
            return None
        said = f"a weight decay of {number(decay)} ({short_name(name)}) takes {share:.1%} of the weights per step"
        return _odd(said, "take a weight decay of 0.1 or less", {"decay_per_step": share})

    def _too_fast(self, rate: float | None) -> Finding | None:
        if rate is None or rate < self.most_rate:
            return None
        said = f"a learning rate of {number(rate)} moves every weight by about as much in each step of Adam"
        return _odd(said, "1e-4 to 1e-2 are usual for Adam", {"rate": rate})

    def _dropped(self, dropout: tuple[str, float] | None) -> Finding | None:
        if dropout is None or not self.most_dropout <= dropout[1] < 1.0:
            return None
        said = f"a dropout of {number(dropout[1])} ({short_name(dropout[0])}) leaves little to learn from"
        return _odd(said, "0.1 to 0.5 are usual", {"dropout": dropout[1]})

    def _went_nowhere(self, way: float | None, evidence: Evidence) -> Finding | None:
        if way is None or way > self.least_way or _is_private(evidence):
            return None
        steps = count(evidence.optimizer_steps or 0, "step")
        said = f"in {steps} of plain SGD all weights together moved by {number(way)} at most"
        return _odd(said, f"raise the learning rate; {_CLIP_HIGHER}", {"way": way})


def _odd(said: str, remedy: str, measured: dict[str, float]) -> Finding:
    return Finding(verdict=Verdict.WARN, message=said, remedy=remedy, measured=measured)


def _rate_of_adam(evidence: Evidence) -> float | None:
    """The highest learning rate of an optimizer that moves each weight by about as much, of several groups that of the
    slowest; None of any other optimizer, and of learnt prompts, which are inputs.
    """
    params = evidence.info.params
    said = (text[:_MOST_OF_A_PARAM].lower() for param in params.items() for text in param)
    if not _uses(evidence, _OF_ADAM, "amsgrad") or any(map(_PROMPTS.search, said)):
        return None
    logged = [float(one.values.max()) for one in learning_rates(evidence)]
    return min(logged or _rates_set(evidence), default=None)


def _uses(evidence: Evidence, named: re.Pattern[str], key: str) -> bool:
    """Whether the params name such an optimizer, and no other, or the groups of the one that was saved have a key."""
    said = optimizers_named(evidence)
    if said:
        return len(said) == 1 and bool(named.search(said[0])) and not _SCALES_BY_ITSELF.search(said[0])
    return bool(_groups(evidence)) and all(key in group for group in _groups(evidence))


def _groups(evidence: Evidence) -> Sequence[Mapping[str, Any]]:
    return evidence.optimizer.groups if evidence.optimizer is not None else ()


def _rates_set(evidence: Evidence) -> list[float]:
    """The learning rates that the groups of the saved optimizer began with, or the param's."""
    began = [group.get("initial_lr") for group in _groups(evidence)]
    known = [float(one) for one in began if isinstance(one, (int, float)) and isfinite(one)]
    said = (_number(evidence.info.params.get(one, "")) for one in _RATES)
    return known or [one for one in said if one is not None][:1]


def _longest_way(evidence: Evidence, limit: float | None) -> float | None:
    """How far plain SGD can have come with gradients of such norms; None where its steps or those are not known."""
    norms, steps = evidence.find("grad_norm"), evidence.optimizer_steps
    sizes = norms.finite().values if norms is not None else np.empty(0)
    rates = [float(one.values.mean()) for one in learning_rates(evidence)] or _rates_set(evidence)
    if not _uses(evidence, _PLAIN, "dampening") or not rates or max(rates) <= 0.0 or steps is None:
        return None
    if steps < _FEWEST_STEPS:
        return None
    if len(sizes) < _FEWEST_NORMS and limit is None:
        return None
    size = float(np.minimum(sizes, np.inf if limit is None else limit).mean()) if len(sizes) else float(limit or 0.0)
    return size * max(rates) * steps / (1.0 - _momentum(evidence))


def _momentum(evidence: Evidence) -> float:
    said = _number(evidence.info.params.get("momentum", ""))
    saved = (group.get("momentum") for group in _groups(evidence))
    known = [float(one) for one in (said, *saved) if isinstance(one, (int, float)) and 0.0 <= one < 1.0]
    return max(known, default=_USUAL_MOMENTUM)


def _setting(params: Mapping[str, str], names: re.Pattern[str]) -> tuple[str, float] | None:
    """The first param of such a name that is a finite number, and its name."""
    return next(iter(_settings(params, names)), None)


def _settings(params: Mapping[str, str], names: re.Pattern[str]) -> list[tuple[str, float]]:
    known = ((name, _number(value)) for name, value in params.items() if names.search(name.lower()))
    return [(name, value) for name, value in known if value is not None]


def _number(value: str) -> float | None:
    try:
        found = float(value)
    except ValueError:
        return None
    return found if isfinite(found) else None


def _rate_beside(params: Mapping[str, str], name: str) -> float | None:
    """The learning rate that belongs to a setting: of a name with the same beginning."""
    group = name[: len(name) - len("weight_decay")]
    known = (_number(params.get(group + one, "")) for one in _RATES)
    return next((one for one in known if one is not None), None)


def _is_meant(evidence: Evidence, limit: float) -> bool:
    """Whether gradients are clipped one by one, and scaled up again, for privacy's sake; or their logged norms lie
    below the limit by themselves.
    """
    if _is_private(evidence):
        return True
    norms = evidence.find("grad_norm")
    values = norms.finite().values if norms is not None else ()
    return len(values) > 0 and median(values) < _ACTS * limit


def _is_private(evidence: Evidence) -> bool:
    """Whether the params speak of privacy, for which gradients are clipped one by one."""
    return any(_PRIVATE.search(name.lower()) for name in evidence.info.params)
