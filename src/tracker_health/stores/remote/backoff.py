"""How long to wait before a request that failed is made again."""

from __future__ import annotations

import math
import random
import time
from email.utils import parsedate_to_datetime

FIRST_SECONDS, MOST_SECONDS = 0.5, 8.0


def pause_before(retry: int, wanted: str | None = None) -> float:
    """Seconds before a retry (the first is 0): as the server wants it, else twice as long each time, up to a limit, and
    by chance: those who failed together should not come back together. ``wanted``: its ``Retry-After``.
    """
    told = seconds_of(wanted)
    longest = min(FIRST_SECONDS * 2.0**retry, MOST_SECONDS)
    return random.uniform(longest / 2, longest) if told is None else told  # noqa: S311  no secret


def seconds_of(wanted: str | None) -> float | None:
    """Of ``Retry-After``, in seconds or as a date; None where it says nothing."""
    try:
        seconds = float(wanted or "")
    except ValueError:
        try:
            seconds = parsedate_to_datetime(wanted or "").timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
