"""What ends a run in this process: the exception that leaves its block, or the one, or the exit code, that ends Python.

Seen without a hook on exceptions: Python keeps the last one that it prints, and ``sys.exc_info`` has the one that is on
its way. Only ``sys.exit`` and ``exit`` are wrapped, as nothing else keeps their code until Python's end.

A run that its program ends while an exception is on its way (``finally: mlflow.end_run()``) is in doubt: that may be
handled, and all is well, or end Python. The exception has a mark, so that its run is known when it does.

All that is needed is imported beforehand, where that is known. A module that compiles text (``dataclasses`` does) while
Python ends makes it forget that it was Ctrl-C that ended it, and leave with another exit code: see ``unchanged``.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from tracker_health.words.ending import Ending, ending_by_exception, exit_code_of

_MARK = "_tracker_health"
"""An attribute of exceptions: runs, and whether each ended (True) or began (False) while the exception was handled."""
_MOST_IN_A_CHAIN = 1000


class End(NamedTuple):
    """How this process ends. ``ending``: None where nothing out of the ordinary ends it; ``marks``: of the exceptions
    that do; ``unexplained``: it is an exit code, for which no exception gave the reason.
    """

    ending: Ending | None = None
    marks: Sequence[Mapping[str, bool]] = ()
    unexplained: bool = False

    def ended(self, run: str) -> bool:
        """Whether a run that is in doubt ended by it. An exit code without a reason (``sys.exit(main())``) is that of
        any run which ended during an exception.
        """
        return self.ending is not None and (self.unexplained or any(one.get(run) for one in self.marks))


class _Exit:
    """Lives as long as a ``SystemExit``: what Python ends with if nobody catches it.

    Of the exceptions themselves nothing is kept: they would keep their frames, and the tensors in these.
    """

    def __init__(self, error: SystemExit) -> None:
        self.code = exit_code_of(error.code)
        self.end = End() if self.code == 0 else end_of_process(error)

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """A plain number where the exception travels to a Python without us."""
        return int, (self.code,)


_exits: dict[int, weakref.ref[_Exit]] = {}
_last_exit = End()
"""Of the ``SystemExit`` that has reached Python's end."""


def note_exit(error: SystemExit) -> None:
    """Note what ``sys.exit`` or ``exit`` raises."""
    seen = _Exit(error)
    # No exception can be referred to weakly, but what depends on it can.
    error.__dict__[f"{_MARK}_exit"] = seen
    _exits[id(seen)] = weakref.ref(seen, _lost(id(seen), seen.end))


def _lost(key: int, end: End) -> Any:
    def lost(_: weakref.ref[_Exit]) -> None:
        """The exception is gone: caught by the program if there is a frame of it, else by Python, which now exits."""
        _exits.pop(key, None)
        is_main = threading.current_thread() is threading.main_thread() and not is_leaving()
        if is_main and sys._getframe().f_back is None:  # noqa: SLF001
            global _last_exit  # noqa: PLW0603  one per process
            _last_exit = end

    return lost


# Exceptions that are being handled


def begin(run: str) -> None:
    """Note that whatever is being handled now, as in the fallback of an import, came before this run."""
    error = sys.exc_info()[1]
    if error is not None:
        _marks_of(error).setdefault(run, False)


def on_its_way(run: str) -> BaseException | None:
    """The exception that is being handled where this run ends, and that came up while it ran; marked with it."""
    error = sys.exc_info()[1]
    return error if error is not None and _marks_of(error).setdefault(run, True) else None


def _marks_of(error: BaseException) -> dict[str, bool]:
    marks: dict[str, bool] = error.__dict__.setdefault(_MARK, {})
    return marks


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, what it was raised for or during, and what it is a group of."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left and len(seen) < _MOST_IN_A_CHAIN:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            left += [one.__cause__, one.__context__]
            left += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
            yield one


# Python's end


def is_leaving() -> bool:
    """Whether Python is at its end: the main thread is over, and what runs was registered for the exit."""
    return not threading.main_thread().is_alive()


@contextmanager
def unchanged() -> Iterator[None]:
    """Have Python end as it does without us, whatever is done in the block.

    After Ctrl-C that nobody caught, Python ends itself by SIGINT. It forgets that when text is compiled, which modules
    do that are imported in the block. Compiling text that raises the same again brings it back. There is no other way.
    """
    before = len(sys.modules)
    try:
        yield
    finally:
        if len(sys.modules) != before and is_leaving() and type(_uncaught()) is KeyboardInterrupt:
            with suppress(KeyboardInterrupt):
                exec("raise KeyboardInterrupt")  # noqa: S102  our own text


def end_of_process(error: BaseException | None = None) -> End:
    """How this process ends, as far as it sees. ``error``: what ends it, where someone else has caught that."""
    error = _uncaught() if error is None else error
    if error is None:
        return _last_exit
    marks = [_marks_of(one) for one in _chain(error)]
    return End(ending_by_exception(error), marks, isinstance(error, SystemExit) and len(marks) == 1)


def _uncaught() -> BaseException | None:
    """The exception that nobody caught in the program's main module, and that so ended Python; None for none.

    At a prompt the same is kept of each error, and nothing ends.
    """
    if _is_at_a_prompt():
        return None
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    trace = getattr(error, "__traceback__", None)
    if trace is None:
        return None
    top = trace.tb_frame
    is_program = top.f_code.co_name == "<module>" or top.f_globals.get("__name__") == "runpy"
    return error if is_program else None


def _is_at_a_prompt() -> bool:
    """Whether someone types what runs here. That IPython is imported, as by MLflow and W&B, does not say so."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return hasattr(sys, "ps1") or (shell is not None and shell() is not None)
