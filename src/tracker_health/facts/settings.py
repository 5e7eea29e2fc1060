"""The settings of a run that causes ask for: from its log, its saved optimizer and its params, whichever is there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

from tracker_health.evidence import Evidence, Series

_MOST_CHARACTERS = 200
_OPTIMIZER = re.compile(r"(^|[./_])opt(im(izer)?)?([./_](name|type|class|_target_))?$")
_ADAM = re.compile(r"(^|[^a-z])[nr]?adam|rmsprop")
_SGD = re.compile(r"(^|[^a-z])sgd([^a-z]|$)|nesterov|^momentum$")
_RATE = re.compile(r"(^|[./_])(base_|initial_|init_|max_|peak_)?(lr|learning_rate)$")
_CLIP = re.compile(
    r"(^|[./_])(max_grad_norm|grad_clip(_norm)?|clip_grad(_norm)?|gradient_clip(ping)?(_val|_norm)?|clipnorm)$"
)
_DECAY = re.compile(r"(^|[./_])weight_decay$")
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
_NO = frozenset(("false", "no", "none", "off", "0", ""))

ADAM, SGD = "adam", "sgd"
USUAL_RATE: Mapping[str, float] = {ADAM: 1e-3, SGD: 1e-2}
"""What trains most models from scratch."""

USUAL_FINE_TUNING = 1e-4
"""What fine-tunes most models with Adam."""

MOST_RATE: Mapping[str, float] = {ADAM: 0.1, SGD: 1.0}
"""From here on next to nothing trains."""

LEAST_RATE: Mapping[str, float] = {ADAM: 2e-5, SGD: 5e-5}
"""Below this training from scratch stands still."""

LEAST_FINE_TUNING = 1e-7


@dataclass(frozen=True, eq=False)
class Settings:
    """What is known of a run's settings; None or "" of what is not."""

    evidence: Evidence

    @property
    def _groups(self) -> tuple[Mapping[str, Any], ...]:
        return self.evidence.optimizer.groups if self.evidence.optimizer is not None else ()

    @cached_property
    def optimizer(self) -> str:
        """``adam`` for Adam and its relatives, ``sgd`` for plain SGD, "" for any other and where it is not known."""
        named = [text for name, text in _params(self.evidence) if _OPTIMIZER.search(name)]
        keys = {str(key) for group in self._groups for key in group}
        if any(map(_ADAM.search, named)) or "amsgrad" in keys:
            return ADAM
        if any(map(_SGD.search, named)) or "dampening" in keys:
            return SGD
        return ""

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
        return saved if known is None and saved >= USUAL_RATE.get(self.optimizer, 1.0) else known

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
    def momentum(self) -> float | None:
        return self._highest("momentum", _MOMENTUM)

    @cached_property
    def clip(self) -> float | None:
        """The limit of the gradient norm, above 0."""
        said = _numbers(text for name, text in _params(self.evidence) if _CLIP.search(name))
        return next((one for one in said if one > 0.0), None)

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

    def _said(self, named: re.Pattern[str]) -> float | None:
        return max(_numbers(text for name, text in _params(self.evidence) if named.search(name)), default=None)

    def _highest(self, key: str, named: re.Pattern[str]) -> float | None:
        saved = _numbers(group.get(key) for group in self._groups)
        said = _numbers(text for name, text in _params(self.evidence) if named.search(name))
        return max(saved or said, default=None)


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
