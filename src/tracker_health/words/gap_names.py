"""What the statistics of gradients, activations and parameters (GAP) are called, and which layer they belong to."""

from __future__ import annotations

import re

KINDS = ("grads", "activations", "activation_grads", "params")
STATISTICS = ("max", "mean", "var")
GAP_FILE = "gap.jsonl"
GAP_SCHEMA = "tracker-health/gap/1"

SUMMARY_FILE = "health_summary.json"
SUMMARY_SCHEMA = "tracker-health/training/1"
"""What a training's callback leaves of its end: plan, optimizer state and weights, as statistics."""

LIVE_TAG = "health.live"
"""The tag of an MLflow run that goes wrong while it is running; the annotation of the ended run takes it off."""
LIVE_WORDS = frozenset({"warn", "fail"})
"""Its values: with another one it is the user's own."""
STOP_TAG, STOPPED_TAG = "health.stop", "health.stopped"
"""The tags of an MLflow run that ask its training to stop, and say why it did: ``stopped.Stop``."""
STOPPED_KEY = "health/stopped"
"""The same in the summary of a W&B run."""
STOP_WANDB_TAG = "health:stop"
LIVE_WANDB_TAGS = frozenset(f"health:live-{word}" for word in LIVE_WORDS) | {STOP_WANDB_TAG}
"""The tags of a W&B run that are about it while it is running."""
WANDB_ALERT_LEVELS = {"warn": "WARN", "fail": "ERROR"}
"""What W&B calls the level of an alert, by the verdict that it is about."""
WANDB_ALERT_TITLE = 63
"""Characters of an alert's title, at most."""

_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_NUMBERED = re.compile(r"(?:[^.]++(?<!\d)\.)*+[^.]*+(?<=\d)(?:\.\d++(?=\.|$))?")


def unwrapped(name: str) -> str:
    """A name of a module or parameter without what torch.compile, FSDP and activation checkpointing put into it."""
    return _WRAPPERS.sub("", f"{name}.").removesuffix(".")


def layer_of(name: str) -> str:
    """The layer of a name: up to its first number (``model.layers.3``, ``layer1.0``), else its first part."""
    found = _NUMBERED.match(name)
    return found.group() if found else name.partition(".")[0]


def metric(kind: str, name: str, statistic: str) -> str:
    """The name of a metric: ``gap/grads/layers.0.weight/max``."""
    return f"gap/{kind}/{name}/{statistic}"


def parsed(name: str) -> tuple[str, str, str] | None:
    """Kind, module or parameter, and statistic of a metric's name; None for another metric."""
    parts = name.removeprefix("train/").split("/")
    if len(parts) < 4 or parts[0] != "gap" or parts[1] not in KINDS or parts[-1] not in STATISTICS:
        return None
    return parts[1], "/".join(parts[2:-1]), parts[-1]
