"""OPT012."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._run import descent, learning_rates, optimizers_named
from tracker_health.probes._stats import median
from tracker_health.result import Finding
from tracker_health.text import count, number, printable
from tracker_health.verdict import Verdict

_CLIP = re.compile(
    r"(^|[./])(max_grad_norm|grad_clip(_norm)?|clip_grad(_norm)?|gradient_clip(ping)?(_val|_norm)?"
    r"|(grad|gradient|optim|optimizer)[./](clip|clip_norm|max_norm))$"
)
_DECAY = re.compile(r"(^|[./])weight_decay$")
_RATES = ("lr", "learning_rate")
_PLAIN = re.compile(r"(^|[^a-z])sgd([^a-z]|$)|^nesterov$|^momentum$")
_USUAL_MOMENTUM = 0.9
_FEWEST_NORMS = 5
_PRIVATE = re.compile(r"noise_multiplier|privacy|private|opacus|max_per_sample")
_ACTS = 0.9  # of the limit: what was logged after clipping lies there
_MOST_OF_IT = 0.6
_CLIP_HIGHER = "clip at about the norm that most steps have, often 1, or not at all"
_LEAST_DECAY = 1.0  # with the rate of 1 that some optimizers scale by themselves, a usual one has a large product


@dataclass(frozen=True, kw_only=True)
class SettingsOutOfRange(Probe):
    """A setting of the optimizer is orders of magnitude away from what trains.

    What it finds:
        Gradients that are clipped to next to nothing; a weight decay that takes the weights away within a hundred steps
        or so; steps of SGD that lead nowhere, all together.

    Why it matters:
        Both are slips of a decimal or of an argument's place, and both look like a model that cannot do better: of
        clipped gradients plain SGD makes no steps, and Adam some that its epsilon rules.

    How it decides:
        By the run's params. Warn when the limit for the gradient norm (`max_grad_norm`, `grad_clip`, ...) is above 0
        and at most `least_clip`, unless the logged norms do not come near it, or the params speak of privacy, for which
        each sample's gradient is clipped and scaled up again. Warn when the weight decay is 1 or more and its product
        with the learning rate beside it, the share of the weights that one step takes, is `most_decay` or more, and the
        loss did not come down by 60 %.

        Warn, too, when plain SGD cannot have come farther than `least_way` from where it began, and the loss did not
        come down by 60 %: at most the limit, or the norm that was logged, in each step, times the learning rate (the
        mean of the logged ones, or the param's) and the number of optimizer steps, over 1 less the momentum (0.9 where
        it is not known). A layer's weights begin with a norm of 3 and more.

    Known limits:
        Reads no code: what the params do not tell is not seen. Nor is how far Adam came, or an SGD whose steps nothing
        counts. A limit for single values of the gradient is judged as one for its norm.

    What to do:
        Clip at about the norm of most steps, often 1; take a weight decay of 0.1 or less.

    References:
        Pascanu et al. (2013); Loshchilov and Hutter (2019).
    """

    code = "OPT012"
    name = "settings-out-of-range"
    symptom = Symptom.UPDATE_SIZE

    least_clip: Annotated[float, Threshold("limit of the gradient norm that is too low", "norm", "design", gt=0)] = 5e-5
    least_way: Annotated[
        float, Threshold("longest way of all weights that is too short", "norm", "calibration", gt=0)
    ] = 0.5
    most_decay: Annotated[
        float, Threshold("share of the weights that one step's decay takes", "fraction", "design", gt=0, le=1)
    ] = 5e-3

    @property
    def needs(self) -> tuple[Need, ...]:
        roles = ("grad_norm", "train_loss", "learning_rate", Part.OPTIMIZER_STEPS)
        return tuple(Need(role=role, optional=True) for role in roles)

    def judge(self, evidence: Evidence) -> Finding:
        params = evidence.info.params
        clip, decay = (_setting(params, one) for one in (_CLIP, _DECAY))
        rate = _rate_beside(params, decay[0]) if decay is not None else None
        way = _longest_way(evidence, clip[1] if clip is not None and clip[1] > 0.0 else None)
        if clip is None and way is None and (decay is None or rate is None):
            message = "no param tells where gradients are clipped, or the weight decay"
            return Finding(verdict=Verdict.SKIP, message=message)
        if clip is not None and 0.0 < clip[1] <= self.least_clip and not _is_meant(evidence, clip[1]):
            return Finding(
                verdict=Verdict.WARN,
                message=f"gradients are clipped to a norm of {number(clip[1])} ({printable(clip[0], 60)})",
                remedy=_CLIP_HIGHER,
                measured={"clip": clip[1]},
            )
        found = self._decayed(*decay, rate) if decay is not None and rate is not None else None
        found = found or self._went_nowhere(way, clip, evidence)
        if found is not None and not _learns(evidence):
            return found
        measured = {} if way is None else {"way": way}
        return Finding(verdict=Verdict.PASS, message="the settings are in the usual range", measured=measured)

    def _decayed(self, name: str, decay: float, rate: float) -> Finding | None:
        share = decay * rate
        if decay < _LEAST_DECAY or share < self.most_decay:
            return None
        return Finding(
            verdict=Verdict.WARN,
            message=f"a weight decay of {number(decay)} ({printable(name, 60)}) takes {share:.1%} of the "
            "weights per step",
            remedy="take a weight decay of 0.1 or less",
            measured={"decay_per_step": share},
        )

    def _went_nowhere(self, way: float | None, clip: tuple[str, float] | None, evidence: Evidence) -> Finding | None:
        if way is None or way > self.least_way or _is_private(evidence):
            return None
        steps = count(evidence.optimizer_steps or 0, "step")
        limit = f" with gradients clipped to {number(clip[1])} ({printable(clip[0], 60)})" if clip is not None else ""
        return Finding(
            verdict=Verdict.WARN,
            message=f"in {steps} of plain SGD{limit} all weights together moved by {number(way)} at most",
            remedy=f"raise the learning rate; {_CLIP_HIGHER}",
            measured={"way": way},
        )


def _longest_way(evidence: Evidence, limit: float | None) -> float | None:
    """How far plain SGD can have come with gradients of such norms; None where its steps or those are not known."""
    named, params, norms = optimizers_named(evidence), evidence.info.params, evidence.find("grad_norm")
    sizes = norms.finite().values if norms is not None else np.empty(0)
    rates = [float(one.values.mean()) for one in learning_rates(evidence)] or [
        rate for one in _RATES if (rate := _number(params.get(one, ""))) is not None
    ]
    if len(named) != 1 or not _PLAIN.search(named[0]) or not rates or evidence.optimizer_steps is None:
        return None
    if len(sizes) < _FEWEST_NORMS and limit is None:
        return None
    size = float(np.minimum(sizes, np.inf if limit is None else limit).mean()) if len(sizes) else float(limit or 0.0)
    momentum = _number(params.get("momentum", ""))
    kept = momentum if momentum is not None and 0.0 <= momentum < 1.0 else _USUAL_MOMENTUM
    return size * max(rates) * evidence.optimizer_steps / (1.0 - kept)


def _setting(params: Mapping[str, str], names: re.Pattern[str]) -> tuple[str, float] | None:
    """The first param of such a name that is a finite number, and its name."""
    for name, value in params.items():
        found = _number(value) if names.search(name.lower()) else None
        if found is not None:
            return name, found
    return None


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


def _learns(evidence: Evidence) -> bool:
    """Whether the training loss came down by most of itself, whatever was set."""
    found = descent(evidence)
    return found is not None and found.sure and found.share >= _MOST_OF_IT
