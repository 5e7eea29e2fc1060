"""What keeps a hook from hurting the training run that it is in."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class ProgramInterrupt(BaseException):
    """An exception that a signal handler of the program's raised while a hook was waiting: it is none of ours."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


@contextmanager
def from_outside(*expected: type[Exception]) -> Iterator[None]:
    """Let the exceptions of the program's own signal handlers pass through a hook: all that the waiting inside does not
    raise by itself.
    """
    try:
        yield
    except Exception as error:
        if type(error) in expected:
            raise
        raise ProgramInterrupt(error) from None


def is_on(text: str) -> bool:
    """Whether a switch in the environment is on."""
    return text.strip().lower() not in ("", "0", "false", "no", "off")


def is_disabled() -> bool:
    """Whether TRACKER_HEALTH_DISABLED switches every hook off."""
    return is_on(os.environ.get("TRACKER_HEALTH_DISABLED", ""))


def safely(call: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs) -> Result | None:
    """What the call gives, None where it failed: of that one line tells. Only what the program itself raised passes:
    Ctrl-C, and the exceptions of its own signal handlers.
    """
    try:
        return call(*arguments, **options)
    except ProgramInterrupt as error:
        raise error.error from None
    except Exception as error:  # noqa: BLE001  a hook never raises
        with suppress(Exception):
            say(f"the hook failed and left the run alone: {type(error).__name__}: {error}")
    return None


def say(message: str) -> None:
    """One line on standard error, if there is one of each."""
    from tracker_health.text import printable

    if not message:  # of a verdict that is only tried out
        return
    stream: Any = sys.stderr
    with suppress(Exception):  # closed, full, or somebody's own object
        stream.write(f"tracker-health: {printable(message, 1000)}\n")
        stream.flush()
