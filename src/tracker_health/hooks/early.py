"""What must be there from Python's start on, whenever a tracker is imported: the process, its exit codes, and its end.

Each Python that is started pays for this module, whether it tracks anything or not: it imports almost nothing.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress

TYPE_CHECKING = False  # that of ``typing`` costs three milliseconds
if TYPE_CHECKING:
    from typing import Any

_ENDS, _FINISH = "tracker_health.hooks.ends", "tracker_health.hooks.finish"
"""They are imported with a tracker: where they are not, there is no run."""

_home = 0
_watched: list[tuple[Any, str, Any, Any]] = []
"""Where, under which name, what was there, and what of ours is there instead."""


def watch() -> None:
    """Note which process the hooks were switched on in, and see from now on with which code ``sys.exit`` and ``exit``
    end Python. Idempotent.
    """
    global _home  # noqa: PLW0603  one per process
    if not _home:
        _home = os.getpid()
        atexit.register(_leave)
    if _watched:
        return
    quitter = getattr(sys.modules.get("_sitebuiltins"), "Quitter", None)  # not there with python -S
    for owner, name in ((sys, "exit"), (quitter, "__call__")):
        if owner is not None:
            original = getattr(owner, name)
            ours = _watching(original)
            setattr(owner, name, ours)
            _watched.append((owner, name, original, ours))


def forget() -> None:
    """Leave them as they were, unless someone else has wrapped ours."""
    while _watched:
        owner, name, original, ours = _watched.pop()
        if getattr(owner, name) is ours:
            setattr(owner, name, original)


def home() -> int:
    """The id of the process that the hooks were switched on in, 0 for none. A fork of it has it as well."""
    return _home


def _watching(call: Any) -> Any:
    def watched(*arguments: Any, **options: Any) -> Any:
        if arguments and isinstance(arguments[0], tuple):
            # Once it is caught, Python takes a tuple apart, and then leaves with what is in it.
            return call(*arguments, **options)
        try:
            return call(*arguments, **options)
        except SystemExit as error:
            with suppress(Exception):  # someone's own class: whatever it is, it continues
                if _ENDS in sys.modules:
                    sys.modules[_ENDS].note_exit(error)
            raise

    return watched


def _leave() -> None:
    if _FINISH in sys.modules:
        sys.modules[_FINISH].leave()
