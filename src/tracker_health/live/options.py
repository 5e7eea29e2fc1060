"""Options of ``LiveHealth`` that are handed on to it, checked before a training begins."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tracker_health.errors import ConfigError


def check_options(taker: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse options that a class or function does not have.

    Raises:
        ConfigError: it names the unknown ones, and those that exist.
    """
    known = inspect.signature(taker).parameters
    if unknown := sorted(options.keys() - known.keys()):
        raise ConfigError(f"no such option: {', '.join(unknown)}", f"known: {', '.join(sorted(known))}")
