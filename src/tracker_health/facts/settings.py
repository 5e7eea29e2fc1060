"""The settings of a run that rules and causes ask for: from its log, its saved optimizer and its params."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, NamedTuple

from tracker_health.evidence import Evidence, Series
from tracker_health.facts.intent import optimizers_named
from tracker_health.text import setting

_MOST_CHARACTERS = 200
_ADAM = re.compile(r"(^|[^a-z])[nr]?adam|rmsprop")
_SCALES_BY_ITSELF = re.compile(r"d_?adapt|prodigy|sign|lars|normal|sophia")
_SGD = re.compile(r"(^|[^a-z])sgd([^a-z]|$)|nesterov|^momentum$")
_RATE = re.compile(r"(^|[./_])(base_|initial_|init_|max_|peak_)?(lr|learning_rate)$")
_CLIP = re.compile(
    r"(^|[./_])(max_grad_norm|grad_clip(_norm)?|clip_grad(_norm)?|gradient_clip(ping)?(_val|_norm)?|clipnorm"
    r"|(grad|gradient|optim|optimizer)[./](clip|clip_norm|max_norm))$"
)
_DECAY = re.compile(r"(^|[./_])weight_decay$")
_DROPOUT = re.compile(
    r"^((model|net|network|config|hparams|args|encoder|decoder)[./_])*"
    r"(dropout(_?(rate|prob|p))?|p_?dropout|(hidden|attention|embd?|resid|classifier)_p?drop(out)?(_prob)?)$"
)
_PROMPTS = re.compile(r"prompt|prefix|virtual_token|soft_?token")
_PRIVATE = re.compile(r"noise_multiplier|privacy|private|opacus|max_per_sample")
_EPSILON = re.compile(r"(^|[./_])(adam_)?eps(ilon)?$")
_MOMENTUM = re.compile(r"(^|[./_])momentum$")
_HALF = re.compile(r"(^|[^a-z0-9])(fp16|float16|16-mixed|half)([^a-z0-9]|$)")
_TEMPERATURE = re.compile(r"(^|[./_])(train_|rollout_|sampling_)?temperature$")
_GENERATIONS = re.compile(r"(^|[./_])(num_generations|n_samples_per_prompt|rollout[./]n|num_generations_per_prompt)$")
_KL = re.compile(r"(^|[./_])(beta|kl_coef|kl_coeff|init_kl_coef|kl_loss_coef|kl_beta|reference_policy_kl_penalty)$")
_ENTROPY = re.compile(r"(^|[./_])(ent|entropy)_(coef|coeff|bonus)$")
_LIMIT = re.compile(
    r"(^|[./_])(max_completion_length|max_response_length|max_new_tokens|generate_max_len|response_length)$"
)
_WORKERS = re.compile(r"(^|[./_])(dataloader_|loader_)?(num_)?workers(_per_gpu)?$")
_NAMED = {
    "learning_rate": _RATE, "eps": _EPSILON, "weight_decay": _DECAY, "max_grad_norm": _CLIP, "momentum": _MOMENTUM,
    "beta": _KL, "temperature": _TEMPERATURE, "num_generations": _GENERATIONS, "max_completion_length": _LIMIT,
    "entropy_coef": _ENTROPY, "num_workers": _WORKERS,
}  # fmt: skip
"""What params may call the settings that actions name."""
_NO = frozenset(("false", "no", "none", "off", "0", ""))

ADAM, SGD = "adam", "sgd"


class UsualRate(NamedTuple):
    """The learning rates that trainings of a kind mostly take: ``lowest`` to ``highest``, and a ``typical`` one. Below
    ``least`` such a training stands still.
    """

    least: float
    lowest: float
    typical: float
    highest: float

    @property
    def far_above(self) -> float:
        """Ten times the highest."""
        return 10.0 * self.highest

    @property
    def said(self) -> str:
        """``0.0001 to 0.01 are usual``."""
        return f"{setting(self.lowest)} to {setting(self.highest)} are usual"

    def holds(self, rate: float) -> bool:
        """Whether a rate is one of them."""
        return self.lowest <= rate <= self.highest


_OF_SGD = UsualRate(5e-5, 1e-3, 1e-2, 0.1)
_FROM_SCRATCH = UsualRate(2e-5, 1e-4, 1e-3, 1e-2)
_FINE_TUNING = UsualRate(1e-7, 1e-6, 1e-4, 1e-3)
_OF_POLICIES = {
    "answers": UsualRate(1e-8, 1e-7, 1e-6, 1e-3),  # adapters and small models take the higher ones
    "control": UsualRate(1e-6, 1e-5, 3e-4, 1e-3),
}
"""Of policies that answer, and of those that act in an environment."""

MOST_RATE_OF_SGD = 1.0
"""From here on almost nothing trains with SGD; OPT016 declares that of Adam."""


def usual_rate_of(optimizer: str, *, fine_tunes: bool = False, policy: str = "") -> UsualRate:
    """The learning rates that are usual for an optimizer and an objective: Adam's of an optimizer that is not known.
    ``policy``: a key of ``_OF_POLICIES``, empty for other objectives.
    """
    if optimizer == SGD:
        return _OF_SGD
    return _OF_POLICIES[policy] if policy else _FINE_TUNING if fine_tunes else _FROM_SCRATCH


USUAL_MOMENTUM = 0.9
"""Of SGD, where it has one."""


class ParamValue(NamedTuple):
    """A number, and the param that says it."""

    name: str
    value: float


@dataclass(frozen=True, eq=False)
class Settings:
    """What is known of a run's settings; None or "" of what is not."""

    evidence: Evidence

    @property
    def _groups(self) -> tuple[Mapping[str, Any], ...]:
        return self.evidence.optimizer.groups if self.evidence.optimizer is not None else ()

    @cached_property
    def optimizer(self) -> str:
        """``adam`` for Adam and its relatives, ``sgd`` for plain SGD, "" for any other, for several of different kinds,
        and where it is not known.
        """
        named = {_kind(text) for text in optimizers_named(self.evidence)}
        if named:
            return named.pop() if len(named) == 1 else ""
        for key, kind in (("amsgrad", ADAM), ("dampening", SGD)):
            if self._groups and all(key in group for group in self._groups):
                return kind
        return ""

    @property
    def optimizer_is_unsaid(self) -> bool:
        """Whether neither the params nor a checkpoint say anything of the optimizer."""
        return not self._groups and not optimizers_named(self.evidence)

    @cached_property
    def logged_rates(self) -> list[Series]:
        """The logged learning rates, a series for each group of parameters."""
        rates = [one.finite() for one in self.evidence.all_of("learning_rate")]
        return [one for one in rates if len(one)]

    @cached_property
    def rate(self) -> float | None:
        """The highest learning rate: as logged, else as the params or the saved scheduler have it. What the optimizer
        was saved with may be the end of a schedule, and counts only where it is high for a beginning.
        """
        logged = [float(one.values.max()) for one in self.logged_rates]
        began = _numbers(group.get("initial_lr") for group in self._groups)
        said = _numbers(text for name, text in _params(self.evidence) if _RATE.search(name))
        known = max(logged or said or began, default=None)
        saved = max(_numbers(group.get("lr") for group in self._groups), default=0.0)
        return (
            saved
            if known is None and saved >= (usual_rate_of(self.optimizer).typical if self.optimizer else 1.0)
            else known
        )

    @property
    def groups(self) -> int:
        """How many groups of parameters the optimizer was saved with."""
        return len(self._groups)

    @cached_property
    def rate_said(self) -> float | None:
        """The highest learning rate that the params name."""
        return self._said(_RATE)

    @cached_property
    def slowest_rate(self) -> float | None:
        """The highest learning rate of the slowest group: as logged, or as the groups of the checkpoint began."""
        logged = [float(one.values.max()) for one in self.logged_rates]
        return min(logged or _numbers(group.get("initial_lr") for group in self._groups), default=self.rate)

    @cached_property
    def mean_rate(self) -> float | None:
        """The mean of the logged learning rates, of the fastest group, else the highest rate."""
        return max((float(one.values.mean()) for one in self.logged_rates), default=self.rate)

    @cached_property
    def last_rate(self) -> float | None:
        """The highest learning rate of a group as the checkpoint has it, else the last one that was logged."""
        saved = _numbers(group.get("lr") for group in self._groups)
        return max(saved or [float(one.values[-1]) for one in self.logged_rates], default=None)

    @cached_property
    def epsilon(self) -> float | None:
        return self._highest("eps", _EPSILON)

    @cached_property
    def weight_decay(self) -> float | None:
        return self._highest("weight_decay", _DECAY)

    @cached_property
    def decay_per_step(self) -> float | None:
        """The share of every weight that a step's decay takes: the weight decay times the learning rate of the param
        next to it, of a name with the same beginning, or the run's.
        """
        if self.weight_decay is None:
            return None
        params = dict(_params(self.evidence))
        places = [_DECAY.sub(r"\1", name) for name in params if _DECAY.search(name)]
        beside = _numbers(params.get(place + name) for place in places for name in ("lr", "learning_rate"))
        rate = beside[0] if beside else self.rate
        return None if rate is None else self.weight_decay * rate

    @cached_property
    def momentum(self) -> float | None:
        return self._highest("momentum", _MOMENTUM)

    @cached_property
    def clip_said(self) -> ParamValue | None:
        """The limit of the gradient norm, above 0, by the param that has it."""
        return next((one for one in self._settings(_CLIP) if one.value > 0.0), None)

    @property
    def clip(self) -> float | None:
        """The limit of the gradient norm, above 0."""
        return None if self.clip_said is None else self.clip_said.value

    @cached_property
    def dropout(self) -> ParamValue | None:
        """The largest dropout of the model below 1."""
        return max(
            (one for one in self._settings(_DROPOUT) if one.value < 1.0), key=lambda one: one.value, default=None
        )

    @cached_property
    def is_private(self) -> bool:
        """Whether the params speak of privacy, for which each sample's gradient is clipped and scaled up again."""
        return any(_PRIVATE.search(name) for name, _ in _params(self.evidence))

    @cached_property
    def learns_prompts(self) -> bool:
        """Whether the params speak of learnt prompts, which are inputs and take large steps."""
        return any(_PROMPTS.search(text) for param in _params(self.evidence) for text in param)

    @cached_property
    def temperature(self) -> float | None:
        """Of the sampling of answers."""
        return self._said(_TEMPERATURE)

    @cached_property
    def generations(self) -> float | None:
        """How many answers are made to each prompt."""
        return self._said(_GENERATIONS)

    @cached_property
    def kl_coefficient(self) -> float | None:
        """What holds a policy near its reference; of preference tuning, beta."""
        return self._said(_KL)

    @cached_property
    def entropy_bonus(self) -> float | None:
        """What a policy is paid for its entropy."""
        return self._said(_ENTROPY)

    @cached_property
    def length_limit(self) -> float | None:
        """Tokens that an answer may have."""
        return self._said(_LIMIT)

    @cached_property
    def loader_workers(self) -> float | None:
        """Processes that prepare batches; 0 where the training does it itself."""
        return self._said(_WORKERS)

    @cached_property
    def betas(self) -> tuple[float, float] | None:
        """Of Adam: how much of its first and of its second moment a step keeps."""
        for group in self._groups:
            known = group.get("betas")
            pair = _numbers(known) if isinstance(known, (list, tuple)) else []
            if len(pair) == 2:
                return pair[0], pair[1]
        return None

    @cached_property
    def half_precision(self) -> bool:
        """Whether the params speak of fp16."""
        return any(
            (_HALF.search(name) and text not in _NO) or _HALF.search(text) for name, text in _params(self.evidence)
        )

    def name_of(self, setting: str, value: object = None) -> str:
        """What the run's own params call a setting.

        Args:
            setting: As an action names it, such as ``learning_rate``.
            value: What it is set to, where that is known.

        Returns:
            The param's name; empty where none has it, or several that the value does not distinguish.
        """
        params = self.evidence.info.params
        if setting in params:
            return setting
        named = _NAMED.get(setting)
        if named is None:
            return ""
        found = [name for name in params if named.search(str(name)[-_MOST_CHARACTERS:].lower())]
        alike = [name for name in found if value is not None and value in _numbers([params[name]])]
        chosen = alike or found
        return chosen[0] if len(chosen) == 1 else ""

    def _settings(self, named: re.Pattern[str]) -> list[ParamValue]:
        """The params of such names that are finite numbers."""
        said = ((name, _numbers([text])) for name, text in _params(self.evidence) if named.search(name))
        return [ParamValue(name, value[0]) for name, value in said if value]

    def _said(self, named: re.Pattern[str]) -> float | None:
        return max((one.value for one in self._settings(named)), default=None)

    def _highest(self, key: str, named: re.Pattern[str]) -> float | None:
        saved = _numbers(group.get(key) for group in self._groups)
        return max(saved, default=self._said(named))


def _kind(optimizer: str) -> str:
    if _SCALES_BY_ITSELF.search(optimizer):
        return ""
    return ADAM if _ADAM.search(optimizer) else SGD if _SGD.search(optimizer) else ""


def _params(evidence: Evidence) -> Iterable[tuple[str, str]]:
    """Names and values of the params, in lower case and cut to a length that no pattern minds."""
    for name, text in evidence.info.params.items():
        yield str(name)[-_MOST_CHARACTERS:].lower(), str(text)[:_MOST_CHARACTERS].lower().strip()


def _numbers(values: Iterable[Any]) -> list[float]:
    """Those that are finite numbers, or text that says one."""
    found = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            continue
        try:
            one = float(value)
        except (ValueError, OverflowError):
            continue
        if isfinite(one):
            found.append(one)
    return found
