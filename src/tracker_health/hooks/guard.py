"""What keeps a hook from hurting the training run that it is in, and from telling anybody the same twice."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # see ``early``
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, ParamSpec, TypeVar

    Arguments = ParamSpec("Arguments")
    Result = TypeVar("Result")

UNABLE = "runs are not judged when they end: "
"""Before the reason, where that is none of a single run."""

TREE = "_TRACKER_HEALTH_TREE"
"""Names the folder in which a process and those that it starts keep what they have said. There is none before.

No setting: of a name like theirs an older version, which the training may start, would say that it knows none.
"""

EXEC_LOG = "TRACKER_HEALTH_LEDGER"
"""Names the file by which ``exec`` hears of runs; it is not set where there is none."""


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
            say_once(f"the hook failed and left the run alone: {type(error).__name__}: {error}")
    return None


def say(message: str) -> None:
    """One line on standard error, if there is one of each. What keeps all runs from being judged is said once."""
    from tracker_health.text import printable

    # Nothing is said of a verdict that is only tried out.
    if not message or (message.startswith(UNABLE) and not _is_news(message)):
        return
    stream: Any = sys.stderr
    with suppress(Exception):  # closed, full, or someone's own object
        stream.write(f"tracker-health: {printable(message, 1000)}\n")
        stream.flush()


def say_once(message: str) -> None:
    """``say``, unless this process has said so, or one that it comes from or that it has started."""
    if message.startswith(UNABLE) or _is_news(message):
        say(message)


_said: set[str] = set()


def begin_tree() -> None:
    """Have this process and all that it will start say things once. Idempotent."""
    if TREE not in os.environ:
        place = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  its last part nobody can guess
        os.environ[TREE] = os.path.join(place, f"{_folder_of_this_process()}{os.urandom(8).hex()}")  # noqa: PTH118
        atexit.register(end_tree)


def _folder_of_this_process() -> str:
    return f"tracker-health-{os.getpid()}-"


def _is_news(message: str) -> bool:
    """Whether nobody in this tree of processes has said so. Where that cannot be known it is said again."""
    import hashlib

    if message in _said:
        return False
    _said.add(message)
    begin_tree()
    folder, name = os.environ[TREE], hashlib.sha256(message.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    with suppress(OSError):
        os.mkdir(folder, 0o700)  # noqa: PTH102
    try:
        open(os.path.join(folder, name), "x").close()  # noqa: PTH118, PTH123
    except FileExistsError:
        return False
    except OSError:
        pass
    return True


def end_tree() -> None:
    """Take the folder away, where this process has named it."""
    folder = os.environ.get(TREE, "")
    if os.path.basename(folder).startswith(_folder_of_this_process()):  # noqa: PTH119
        with suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208
                os.unlink(os.path.join(folder, name))  # noqa: PTH108, PTH118
            os.rmdir(folder)  # noqa: PTH106
