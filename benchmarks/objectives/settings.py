"""What a run is made of: its settings, those that its log must not give away, and what the run counts as."""

from __future__ import annotations

from typing import Any

Params = dict[str, Any]
SECRETS = ("kind", "fault", "hard", "jump_at", "jump", "names", "per_step", "validated", "kl_logged", "cadence",
           "log_every", "evals", "metrics", "measured", "outcome", "iterations",
           "skill", "exact", "form", "constant")  # fmt: skip
"""Settings that no training script would write down."""


def outcome(run: Params, *, healthy: bool, sick: bool) -> str:
    """What a run counts as; "unclear" ones are left out."""
    if run["fault"]:
        return "sick" if sick else "unclear"
    return "healthy" if healthy else "unclear"
