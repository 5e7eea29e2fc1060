"""How the time of something grows with its input, as a ratio: a machine that is slow or busy is slow for both."""

from __future__ import annotations

import time
from collections.abc import Callable

FACTOR = 8
"""How many times larger the large input is."""


def growth(work: Callable[[int], object], small: int) -> float:
    """Processor time for an input of ``8 * small`` compared with one of ``small``, the least of three times each.

    Some 8 for what is linear and 64 for what is quadratic. Each input's size is what ``work`` makes of the number it
    gets, and making it should be cheap next to the work on it.
    """

    def seconds(size: int) -> float:
        begin = time.process_time()
        work(size)
        return time.process_time() - begin

    return min(seconds(small * FACTOR) for _ in range(3)) / min(seconds(small) for _ in range(3))


def linear(work: Callable[[int], object], small: int) -> bool:
    """Whether the time grows as the input does, not as its square."""
    return growth(work, small) < 3 * FACTOR
