"""What those who hand their metrics to ``LiveHealth`` have in common: its options, and a line on what stops."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from tracker_health.errors import ConfigError
from tracker_health.live.health import LiveHealth
from tracker_health.text import printable

_LINE_CHARACTERS = 1000
_log = logging.getLogger("tracker_health.live")


def check_options(taker: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse options that a class or function does not have.

    Raises:
        ConfigError: it names the unknown ones, and those that exist.
    """
    known = inspect.signature(taker).parameters
    if unknown := sorted(options.keys() - known.keys()):
        raise ConfigError(f"no such option: {', '.join(unknown)}", f"known: {', '.join(sorted(known))}")


def announce(health: LiveHealth, what: str) -> str:
    """Log in one line that something is stopped, or would be in a dry run, and why.

    Args:
        health: What stops it: its ``stopped_by`` is known.
        what: What is stopped: ``trial 3``.

    Returns:
        Why, in a sentence.
    """
    reason = printable(str(health.stopped_by), _LINE_CHARACTERS)
    verb = "stops" if health.should_stop else "would stop"
    _log.warning("tracker-health %s %s: %s", verb, printable(what), reason)
    return reason
