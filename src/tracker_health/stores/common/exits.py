"""What was seen of a process's end, kept on the run it left: nothing else there says it to whoever looks later."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import Protocol

from tracker_health.text import printable
from tracker_health.words.ending import Ended, Ending

_MAX_CHARACTERS = 5000


class _Run(Protocol):
    def exit(self) -> str: ...

    def is_in_state(self, state: str) -> bool: ...


def exit_value(ending: Ending, state: str) -> str:
    """How a run in this state ended, as text for ``ending_seen``."""
    by = printable(ending.by)
    content = {"ended": str(ending.how), "by": by, "state": state}
    return json.dumps({**content, "check": _check(ending.how, by, state)})


def ending_seen(run: _Run) -> Ending | None:
    """What the launcher or a hook saw of the end of a run; None where they saw none, or the run went on since."""
    found = _parsed(run.exit())
    return found[0] if found is not None and run.is_in_state(found[1]) else None


def is_exit_value(text: str) -> bool:
    """Whether a text is one of ours: what else is under that name is the owner's."""
    return _parsed(text) is not None


def _parsed(text: str) -> tuple[Ending, str] | None:
    """The ending and the state; None for a text that is none of ours or was changed by hand."""
    if not text or len(text) > _MAX_CHARACTERS:
        return None
    with suppress(ValueError, RecursionError, KeyError, TypeError):
        document = json.loads(text)
        how, by, state = Ended(document["ended"]), str(document["by"]), str(document["state"])
        if document["check"] == _check(how, by, state):
            return Ending(how=how, by=by), state
    return None


def _check(how: Ended, by: str, state: str) -> str:
    return hashlib.sha256(json.dumps([how, by, state]).encode("utf-8", "surrogatepass")).hexdigest()[:16]
