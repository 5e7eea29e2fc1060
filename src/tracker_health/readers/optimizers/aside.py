"""What is next to the evidence (settings, a scheduler's state) adds to a verdict, and never costs one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tracker_health.errors import StoreUnavailable, described
from tracker_health.text import printable

_Read = TypeVar("_Read")


def aside(what: str, read: Callable[[], _Read], notes: list[str]) -> _Read | None:
    """What is read; None, and a note, whatever goes wrong with it: it may hold anything at all."""
    try:
        return read()
    except StoreUnavailable:  # that says nothing of what it holds
        raise
    except Exception as error:  # noqa: BLE001 - see above
        notes.append(f"{printable(what)} is not read: {printable(described(error))}")
        return None
