"""Roles by patterns: those that a user sets, and what no grammar can know."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import ClassVar

BY_GRAMMAR: tuple[str, ...] = ()

DEFAULT_PATTERNS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("train_loss", "val_loss", "train_accuracy", "val_accuracy", "train_auc", "val_auc", "train_reward", "val_reward", "grad_norm",
         "learning_rate", "epoch", "global_step", "loss_scale", "kl"), BY_GRAMMAR
    ),
    "skipped_samples": ("skipped", "n/skipped", "num/skipped", "skipped/samples", "samples/skipped", "train/skipped"),
    "on_target_shift": tuple(form for prefix in ("", "trait/", "eval/") for form in (f"{prefix}on/target/shift", f"{prefix}on/target", f"{prefix}shift/on/target")),
    "off_target_shift": tuple(form for prefix in ("", "trait/", "eval/") for form in (f"{prefix}off/target/shift", f"{prefix}off/target", f"{prefix}shift/off/target")),
    "accelerator_utilisation": (
        "system/gpu/*/utilization/percentage", "system/gpu/*/gpu", "gpu/*/utilization", "gpu/utilization", "system/gpu/utilization",
    ),
    "memory": (
        "system/system/memory/usage/megabytes", "system/gpu/*/memory/usage/megabytes", "system/gpu/*/memoryallocatedbytes",
        "system/proc/memory/rssmb",
    ),
    "step_time": BY_GRAMMAR, "data_time": BY_GRAMMAR, "throughput": BY_GRAMMAR,
    **{
        f"gap_{kind}": (f"gap/{kind.replace('_', '/')}/*", f"train/gap/{kind.replace('_', '/')}/*")
        for kind in ("grads", "activations", "activation_grads", "params")
    },
    **dict.fromkeys(
        ("objective_weight", "weight_norm", "entropy", "clip_fraction", "response_length", "higher_better_val", "lower_better_val",
         "val_loss_term", "reward_part", "reward_spread", "flat_share", "cut_share", "advantage_spread", "importance_ratio",
         "explained_variance", "margin", "chosen_logp", "rejected_logp", "chosen_reward", "rejected_reward",
         "entropy_loss", "episode_length", "exploration", "policy_std", "elapsed", "workload", "rank"), BY_GRAMMAR
    ),
}  # fmt: skip
"""By role the names that have it, in their normal form, with wildcards; none where the grammar says which."""
_MOST_MADE = 8


class Patterns:
    """The role of a name in its normal form, by patterns: the first role that has one that fits."""

    _made: ClassVar[dict[int, Patterns]] = {}

    @classmethod
    def of(cls, patterns: Mapping[str, tuple[str, ...]]) -> Patterns:
        """Those of patterns, made once: a log without a head asks for one name after the other."""
        made = cls._made.get(id(patterns))
        if made is None or made.patterns is not patterns:
            if len(cls._made) >= _MOST_MADE:
                cls._made.clear()
            made = cls._made[id(patterns)] = cls(patterns)
        return made

    def __init__(self, patterns: Mapping[str, tuple[str, ...]]) -> None:
        self.patterns = patterns
        self.own = frozenset(
            role for role, forms in patterns.items() if forms != DEFAULT_PATTERNS.get(role, BY_GRAMMAR)
        )
        self._order = {role: at for at, role in enumerate(patterns)}
        self._forms: dict[str, str] = {}
        for role, forms in reversed(list(patterns.items())):
            self._forms |= dict.fromkeys(forms, role)
        self._wild = [(role, form) for role, forms in patterns.items() for form in forms if "*" in form]

    def role(self, form: str) -> str | None:
        fits = [role for role, wild in self._wild if fnmatchcase(form, wild)]
        if form in self._forms:
            fits.append(self._forms[form])
        return min(fits, key=self._order.__getitem__, default=None)
