"""How long a server may take over one request, and which servers have just taken too long.

The timeouts of HTTP libraries begin again with every byte that arrives: a server that drips would hold a
command without end.
"""

from __future__ import annotations

import contextvars
import math
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

REQUEST_SECONDS = 45
"""For the whole of a request, the retries of MLflow included: with the start of Python a command ends in a minute."""
BYTES_A_SECOND = 200_000
"""How slow a download may be, beyond that, at any time of it."""
TRUST_SECONDS = 60
"""How long a server that has answered is not asked again whether it is there, nor one that has not."""
AGAIN_SECONDS = 180
"""A server that was too slow twice in this time is no better than one that is not there."""

_ends: ContextVar[float] = ContextVar("when the call that this is part of is given up", default=math.inf)

_answered: dict[str, float] = {}
_slow: dict[str, float] = {}
_silent: dict[str, float] = {}
_said: dict[str, str] = {}


class _Pace:
    """How many requests a second leave this process, all threads together; None for as many as there are."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self) -> None:
        if self.rate is None:
            return
        with self._lock:
            self._next = max(self._next, time.monotonic()) + 1 / self.rate
            pause = self._next - 1 / self.rate - time.monotonic()
        if pause > 0:
            time.sleep(pause)


_pace = _Pace()


def at_most(rate: float | None) -> None:
    """Let no more than so many requests a second leave this process from now on; None: no limit."""
    _pace.rate = rate


def within(seconds: float, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What the call gives, if it does so in time.

    A call that is given up continues in its thread, for which nobody waits, not even the end of the process.

    Raises:
        TimeoutError: it did not end in time.
    """
    _pace.wait()
    results: list[Any] = []
    errors: list[BaseException] = []

    end = min(time.monotonic() + seconds, _ends.get())

    def work() -> None:
        _ends.set(end)
        try:
            results.append(call(*arguments, **options))
        except BaseException as error:  # noqa: BLE001  raised again below, in the thread that asked
            errors.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(work,), daemon=True, name="tracker-health request")
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"timed out after {seconds:.0f} seconds")
    return results[0]


def seconds_left() -> float:
    """Of the call that this is part of, ``within`` a time: infinity where it is part of none, below 0 where nobody
    waits for it any more.
    """
    return _ends.get() - time.monotonic()


def is_too_slow(begun: float, count: int) -> bool:
    """Whether a body that began to come at this time (``time.monotonic``) has brought too little by now. A file of many
    gigabytes has hours: one that drips is not waited for so long.
    """
    return time.monotonic() - begun > REQUEST_SECONDS + count / BYTES_A_SECOND


def most_silence(wanted: float | None) -> float:
    """Seconds between two pieces of an answer at most, where its library waits for ``wanted``; None: without end."""
    return REQUEST_SECONDS if wanted is None else min(wanted, REQUEST_SECONDS)


class Bounded:
    """An object of MLflow's, each of whose calls is given up after a time."""

    def __init__(self, inner: Any, seconds: float | None = None) -> None:
        self._inner = inner
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return partial(within, self._seconds or REQUEST_SECONDS, value) if callable(value) else value

    @property
    def inner(self) -> Any:
        """The object itself."""
        return self._inner

    def for_bytes(self, size: int) -> Bounded:
        """The same with time to transfer that much."""
        return Bounded(self._inner, REQUEST_SECONDS + size / BYTES_A_SECOND)


def trust(server: str) -> None:
    """Note that a server has answered."""
    _answered[server] = time.monotonic()
    _silent.pop(server, None)


def distrust(server: str, *, silent: bool = False, said: str = "did not answer in time") -> None:
    """Note that a request was not answered in time; ``silent``: the one whether the server is there at all; ``said``:
    what it did instead.

    Once may be the fault of what was asked for; whoever comes next asks whether the server is there.
    """
    _answered.pop(server, None)
    _said[server] = said
    if silent or _is_recent(_slow, server, AGAIN_SECONDS):
        _silent[server] = time.monotonic()
    _slow[server] = time.monotonic()


def is_trusted(server: str) -> bool:
    """Whether it has answered a moment ago."""
    return _is_recent(_answered, server, TRUST_SECONDS)


def is_silent(server: str) -> bool:
    """Whether it is of no use to ask it at this moment."""
    return _is_recent(_silent, server, TRUST_SECONDS)


def why_silent(server: str) -> str:
    """What a server did that is of no use to ask, in words with the verb in front."""
    return _said.get(server, "did not answer in time")


def _is_recent(times: dict[str, float], server: str, seconds: float) -> bool:
    return time.monotonic() - times.get(server, float("-inf")) < seconds
