"""Downloads that take a while are reported, where someone looks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from pathlib import Path

Display = Callable[[str, int, Callable[[], int]], AbstractContextManager[None]]
"""Shows a name, a size in bytes, and how many of them are there, while the block runs."""

display: ContextVar[Display | None] = ContextVar("display", default=None)


def downloading(name: str, size: int, target: Path) -> AbstractContextManager[None]:
    """Around the download of a file of ``size`` bytes to ``target``."""
    show = display.get()
    return nullcontext() if show is None else show(name, size, lambda: _size(target))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
