"""How errors in the measuring are reported: a warning, which never becomes an exception in someone's training."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

from tracker_health.errors import ConfigError, named
from tracker_health.text import printable

_BETWEEN = frozenset(
    {
        "tracker_health",
        "torch",
        "contextlib",
        "pytorch_lightning",
        "lightning",
        "transformers",
        "accelerate",
        "keras",
        "optuna",
        "ray",
    }
)
"""Packages that call each other between the line of a training and a warning."""


def tell(message: str) -> None:
    """Warn in one line, at the line of the training that led to it. Where warnings are errors, or this thread may not
    warn, the line goes to standard error.
    """
    line = f"tracker-health: {printable(message, 1000)}"
    try:
        warnings.warn(line, RuntimeWarning, stacklevel=_level())
    except Exception:  # noqa: BLE001  python -W error
        with suppress(Exception):  # closed, full, or someone's own object
            sys.stderr.write(f"{line}\n")


def reported(consequence: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator for what others' trainers call: an exception is reported, and does not reach the training.

    ``consequence``: what the exception means for the training.
    """

    def decorate(call: Callable[..., None]) -> Callable[..., None]:
        @wraps(call)
        def safe(*arguments: Any, **options: Any) -> None:
            try:
                call(*arguments, **options)
            except Exception as error:  # noqa: BLE001
                text = f"{error.message} ({error.hint})" if isinstance(error, ConfigError) else named(error)
                tell(f"{consequence}: {text}")

        return safe

    return decorate


def _level() -> int:
    """How far up the training's own line is; in a thread of ours there is none."""
    frame, level = sys._getframe(1), 1  # noqa: SLF001
    while str(frame.f_globals.get("__name__")).partition(".")[0] in _BETWEEN:
        if frame.f_back is None:
            return 2
        frame, level = frame.f_back, level + 1
    return level
