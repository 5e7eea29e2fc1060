"""From metric names to the roles that rules ask for.

Names are compared in a normal form: lower case, with every run of other characters than letters and digits as one
``/``. So ``train/loss``, ``train_loss``, ``Train Loss`` and ``train-loss`` are one name. A pattern may hold ``*``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

OWN_PREFIXES = ("health/", "health.")
"""Names under which this tool writes; they are never read back as evidence."""

DEFAULT_PATTERNS: Mapping[str, tuple[str, ...]] = {
    "train_loss": (
        "loss", "train/loss", "training/loss", "loss/train", "loss/training", "losses/train",
        "train/loss/step", "train/loss/epoch", "train/loss/batch", "train/loss/avg", "train/loss/mean", "train/loss/total",
        "train/total/loss", "train/avg/loss", "train/mean/loss", "train/batch/loss", "train/step/loss", "train/epoch/loss",
        "train/ce/loss", "train/cross/entropy/loss", "train/ce", "train/nll", "train/loss/ce", "train/mse", "train/mse/loss",
        "step/loss", "batch/loss", "epoch/loss", "iter/loss", "running/loss", "avg/loss", "mean/loss", "total/loss", "loss/total",
        "ce/loss", "nll", "nll/loss", "lm/loss", "train/lm/loss", "loss/step", "loss/epoch",
        "metrics/train/loss", "global/avg/loss", "loss/metrics/global/avg/loss",
    ),
    "val_loss": tuple(
        form.replace("val", word)
        for word in ("val", "valid", "validation", "eval", "dev", "test")
        for form in ("val/loss", "loss/val", "losses/val", "val/loss/epoch", "val/loss/step", "val/avg/loss", "val/mean/loss",
                     "val/total/loss", "val/ce/loss", "val/ce", "val/nll", "val/lm/loss", "metrics/val/loss")
    ),
    "grad_norm": (
        "grad/norm", "gradient/norm", "gnorm", "train/grad/norm", "train/gradient/norm", "train/gnorm", "total/grad/norm",
        "grad/norm/total", "grad/2/0/norm/total", "grad/2/norm/total", "optim/total/grad/norm", "global/grad/norm",
        "grad/norm/step", "train/grad/norm/step",
    ),
    "learning_rate": (
        "lr", "learning/rate", "train/lr", "train/learning/rate", "lr/step", "lr/*", "optim/lr/group/0", "optim/learning/rate/group/0",
        "learning/rate/step", "optimizer/lr",
    ),
    "epoch": ("epoch", "train/epoch", "trainer/epoch"),
    "global_step": ("global/step", "train/global/step", "trainer/global/step"),
    "loss_scale": ("loss/scale", "grad/scale", "train/loss/scale", "amp/scale", "amp/loss/scale", "scaler/scale"),
    "kl": ("kl", "train/kl", "kl/div", "kl/divergence"),
}  # fmt: skip

# What trainers log whose loss is no training loss: reinforcement learning and adversarial pairs. `kl` and `entropy` are left out
# on purpose (regularised fine-tunes log them), and so is `rewards/chosen` of preference tuning, whose loss does descend.
_REINFORCEMENT = (
    "reward", "train/reward", "reward/mean", "mean/reward", "rewards/mean", "episode/reward", "episode/return", "mean/episode/reward",
    "rollout/ep/rew/mean", "ep/rew/mean", "objective/rlhf/reward", "objective/reward", "env/reward", "env/reward/mean", "critic/rewards/mean",
    "policy/loss", "train/policy/loss", "train/policy/gradient/loss", "loss/policy", "loss/policy/avg", "policy/gradient/loss", "actor/pg/loss",
    "actor/loss", "clip/ratio", "train/clip/ratio", "clip/ratio/region/mean", "clip/frac", "clipfrac", "train/clip/fraction", "policy/clipfrac/avg",
)  # fmt: skip
_ADVERSARIAL = (
    {"d/loss", "loss/d", "train/d/loss", "disc/loss", "loss/disc", "discriminator/loss", "loss/discriminator", "train/loss/d", "d/loss/train"},
    {"g/loss", "loss/g", "train/g/loss", "gen/loss", "loss/gen", "generator/loss", "loss/generator", "train/loss/g", "g/loss/train"},
)  # fmt: skip

OBJECTIVE_LOSS = "objective_loss"
"""Role of a loss that need not descend: only what is always sick (NaN, explosion) is judged on it."""


@lru_cache(maxsize=65536)
def normal_form(name: str) -> str:
    """The form in which names are compared."""
    return re.sub(r"[^a-z0-9*]+", "/", name[:500].lower()).strip("/")


def assign(names: Iterable[str], patterns: Mapping[str, tuple[str, ...]] = DEFAULT_PATTERNS) -> dict[str, str]:
    """The role of every name that has one.

    A loss becomes ``objective_loss`` when the run's other names show reinforcement learning or an adversarial pair.
    """
    known = [name for name in names if not name.startswith(OWN_PREFIXES)]
    forms = {name: normal_form(name) for name in known}
    seen = set(forms.values())
    descends = not (seen.intersection(_REINFORCEMENT) or all(seen & side for side in _ADVERSARIAL))
    roles = {}
    for name, form in forms.items():
        role = _role_of(form, patterns)
        if role in ("train_loss", "val_loss") and not descends:
            role = OBJECTIVE_LOSS
        if role is None and not descends and any(form in side for side in _ADVERSARIAL):
            role = OBJECTIVE_LOSS
        if role is not None:
            roles[name] = role
    return roles


def _role_of(form: str, patterns: Mapping[str, tuple[str, ...]]) -> str | None:
    for role, candidates in patterns.items():
        if form in candidates or any("*" in one and fnmatchcase(form, one) for one in candidates):
            return role
    return None
