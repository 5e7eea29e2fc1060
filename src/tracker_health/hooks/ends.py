"""What ends a run in this process: the exception that leaves its block, or the one, or the exit code, that ends Python.

Seen without a hook on exceptions: Python keeps the last one that it prints, and ``sys.exc_info`` has the one that is on
its way. Only ``sys.exit`` is wrapped, as nothing else keeps its code until Python's end.

All that is needed is imported beforehand: a module that compiles text (``dataclasses`` does) while Python ends makes it
forget that it was Ctrl-C that ended it, and leave with another exit code.
"""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any

from tracker_health.ending import Ending, ending_by_exception, ending_by_exit_code, exit_code_of

_exit = sys.exit
_code: list[int] = []
"""What Python exits with, once a ``SystemExit`` has reached its end."""


class _Mark:
    """Lives as long as a ``SystemExit`` that ``sys.exit`` raised."""

    def __init__(self, code: int) -> None:
        self.code = code


_marks: dict[int, weakref.ref[_Mark]] = {}


def watch() -> None:
    """See from now on with which code ``sys.exit`` ends Python. Idempotent."""
    if sys.exit is not _watched_exit:
        global _exit  # noqa: PLW0603  one per process
        _exit = sys.exit
        sys.exit = _watched_exit


def forget() -> None:
    """Leave ``sys.exit`` as it was, unless somebody else has wrapped ours."""
    if sys.exit is _watched_exit:
        sys.exit = _exit


def _watched_exit(*status: Any) -> Any:
    try:
        _exit(*status)
    except SystemExit as error:
        mark = _Mark(exit_code_of(error.code))
        # No exception can be referred to weakly, but what hangs on it can.
        error.__dict__["_tracker_health"] = mark
        _marks[id(mark)] = weakref.ref(mark, _lost(id(mark), mark.code))
        raise


def _lost(key: int, code: int) -> Any:
    def lost(_: weakref.ref[_Mark]) -> None:
        """The exception is gone: caught by the program if there is a frame of it, else by Python, which now exits."""
        _marks.pop(key, None)
        if sys._getframe().f_back is None and threading.current_thread() is threading.main_thread():  # noqa: SLF001
            _code.append(code)

    return lost


def ending_here(*, failed: bool) -> Ending | None:
    """How a run ends at this moment, as far as this process sees; None where nothing out of the ordinary does it.

    ``failed``: the tracker was told that it failed, or was killed.
    """
    error = sys.exc_info()[1] if failed else None
    if error is None and is_leaving():
        error = _last_printed()
        if error is None and _code and _code[-1]:
            return ending_by_exit_code(_code[-1])
    return None if error is None else ending_by_exception(error)


def is_leaving() -> bool:
    """Whether Python is at its end: the main thread is over, and what runs was registered for the exit."""
    return not threading.main_thread().is_alive()


def _last_printed() -> BaseException | None:
    """The exception that nobody caught in the program's main module, and that so ended Python; None for none.

    At a prompt the same is kept of each error, and nothing ends.
    """
    if hasattr(sys, "ps1") or "IPython" in sys.modules:
        return None
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    trace = getattr(error, "__traceback__", None)
    if trace is None:
        return None
    top = trace.tb_frame
    is_program = top.f_code.co_name == "<module>" or top.f_globals.get("__name__") == "runpy"
    return error if is_program else None
