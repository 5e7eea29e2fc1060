"""OPT012."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._run import descent
from tracker_health.probes._stats import median
from tracker_health.result import Finding
from tracker_health.text import number, printable
from tracker_health.verdict import Verdict

_CLIP = re.compile(
    r"(^|[./])(max_grad_norm|grad_clip(_norm)?|clip_grad(_norm)?|gradient_clip(ping)?(_val|_norm)?"
    r"|(grad|gradient|optim|optimizer)[./](clip|clip_norm|max_norm))$"
)
_DECAY = re.compile(r"(^|[./])weight_decay$")
_RATES = ("lr", "learning_rate")
_PRIVATE = re.compile(r"noise_multiplier|privacy|private|opacus|max_per_sample")
_ACTS = 0.9  # of the limit: what was logged after clipping lies there
_MOST_OF_IT = 0.6
_LEAST_DECAY = 1.0  # with the rate of 1 that some optimizers scale by themselves, a usual one has a large product


@dataclass(frozen=True, kw_only=True)
class SettingsOutOfRange(Probe):
    """A setting of the optimizer is orders of magnitude away from what trains.

    What it finds:
        Gradients that are clipped to next to nothing; a weight decay that takes the weights away within a hundred steps
        or so.

    Why it matters:
        Both are slips of a decimal or of an argument's place, and both look like a model that cannot do better: of
        clipped gradients plain SGD makes no steps, and Adam some that its epsilon rules.

    How it decides:
        By the run's params. Warn when the limit for the gradient norm (`max_grad_norm`, `grad_clip`, ...) is above 0
        and at most `least_clip`, unless the logged norms do not come near it, or the params speak of privacy, for which
        each sample's gradient is clipped and scaled up again; and when the weight decay is 1 or more and its product
        with the learning rate beside it, the share of the weights that one step takes, is `most_decay` or more, and the
        loss did not come down by 60 %.

    Known limits:
        Reads no code: what the params do not tell is not seen. A limit for single values of the gradient is judged as
        one for its norm.

    What to do:
        Clip at about the norm of most steps, often 1; take a weight decay of 0.1 or less.

    References:
        Pascanu et al. (2013); Loshchilov and Hutter (2019).
    """

    code = "OPT012"
    name = "settings-out-of-range"
    symptom = Symptom.UPDATE_SIZE

    least_clip: Annotated[float, Threshold("limit of the gradient norm that is too low", "norm", "design", gt=0)] = 5e-5
    most_decay: Annotated[
        float, Threshold("share of the weights that one step's decay takes", "fraction", "design", gt=0, le=1)
    ] = 5e-3

    @property
    def needs(self) -> tuple[Need, ...]:
        return tuple(Need(role=role, optional=True) for role in ("grad_norm", "train_loss"))

    def judge(self, evidence: Evidence) -> Finding:
        params = evidence.info.params
        clip, decay = (_setting(params, one) for one in (_CLIP, _DECAY))
        rate = _rate_beside(params, decay[0]) if decay is not None else None
        if clip is None and (decay is None or rate is None):
            return Finding(
                verdict=Verdict.SKIP, message="no param tells where gradients are clipped, or the weight decay"
            )
        if clip is not None and 0.0 < clip[1] <= self.least_clip and not _is_meant(evidence, clip[1]):
            return Finding(
                verdict=Verdict.WARN,
                message=f"gradients are clipped to a norm of {number(clip[1])} ({printable(clip[0], 60)})",
                remedy="clip at about the norm that most steps have, often 1, or not at all",
                measured={"clip": clip[1]},
            )
        share = decay[1] * rate if decay is not None and rate is not None and decay[1] >= _LEAST_DECAY else 0.0
        if decay is not None and share >= self.most_decay and not _learns(evidence):
            return Finding(
                verdict=Verdict.WARN,
                message=f"a weight decay of {number(decay[1])} ({printable(decay[0], 60)}) takes {share:.1%} of the "
                "weights per step",
                remedy="take a weight decay of 0.1 or less",
                measured={"decay_per_step": share},
            )
        return Finding(verdict=Verdict.PASS, message="clipping and weight decay are in the usual range")


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
    if any(_PRIVATE.search(name.lower()) for name in evidence.info.params):
        return True
    norms = evidence.find("grad_norm")
    values = norms.finite().values if norms is not None else ()
    return len(values) > 0 and median(values) < _ACTS * limit


def _learns(evidence: Evidence) -> bool:
    """Whether the training loss came down by most of itself, whatever was set."""
    found = descent(evidence)
    return found is not None and found.sure and found.share >= _MOST_OF_IT
