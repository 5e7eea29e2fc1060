"""How many inputs a law is tried on: few by ``make test``, which everybody waits for, and many by ``make fuzz``."""

from __future__ import annotations

from hypothesis import settings

FEW = 12


def draws(many: int) -> int:
    """``many`` under the profile of ``make fuzz``, else few: what those find becomes an ``@example``."""
    return many if settings.get_current_profile_name() == "fuzz" else min(many, FEW)
