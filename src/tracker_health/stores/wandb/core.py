"""Bounds for what W&B's core process does for us: all requests of the SDK go through it, and it reads answers whole.

How much of an answer it reads cannot be set. So its memory, and what it writes, is watched while it works for us. A
request that takes too much is cancelled. What it does for others in this process stays as it is.
"""

from __future__ import annotations

import inspect
import math
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Self

from tracker_health.stores.remote.answers import MOST_ANSWER_BYTES, ExcessiveAnswer, is_ours
from tracker_health.stores.remote.deadline import is_too_slow, seconds_left
from tracker_health.stores.remote.http_parts import Unanswered
from tracker_health.stores.remote.reasons import NOT_THE_ANSWER
from tracker_health.stores.remote.trail import note_answer, note_request
from tracker_health.text import size_of

MOST_CORE_BYTES = 2**27
"""By how much the memory of the core process may grow over one question: an answer of 20 MB takes 60 MB there, and the
body of a status of failure twice as much again.
"""
MOST_HISTORY_BYTES = 2**28
"""The same over a part of a history, and over a file, which core reads in ways of its own."""
LOOK_SECONDS = 0.01
"""How long it is not looked at between."""
_SPARE_BYTES = 2**20
_OPERATION = re.compile(r"\b(?:query|mutation)\s+(\w+)")
# What core says of the answers to a request that it made again and again: the last of them is the last.
_STATUS = re.compile(r"\bHTTP (\d{3})\b")

# ``data`` of an answer that is none, or lacks all that was selected.
_NO_DATA = ("", "null", "{}")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_installing = threading.Lock()
_written: ContextVar[tuple[Path, int] | None] = ContextVar("where core writes, and how much at most", default=None)


@contextmanager
def writing(folder: Path, size: int) -> Iterator[None]:
    """Within this, core writes a file of this size into a folder, and nothing else is written there."""
    token = _written.set((folder, size + _SPARE_BYTES))
    try:
        yield
    finally:
        _written.reset(token)


def bound_requests() -> None:
    """Have the requests that are ours given up and cancelled where they take too much; needs the SDK."""
    try:
        from wandb.sdk.lib.service.service_connection import ServiceConnection
    except ImportError:  # an SDK whose requests do not go through core
        return
    kind: Any = ServiceConnection
    theirs = getattr(kind, "api_request", None)
    if theirs is None or getattr(theirs, "is_bounded", False):
        return
    takes_timeout = "timeout" in inspect.signature(theirs).parameters

    def api_request(self: Any, request: Any, *arguments: Any, **options: Any) -> Any:
        if not is_ours():
            return theirs(self, request, *arguments, **options)
        if takes_timeout and not arguments:
            options["timeout"] = _shorter(options.get("timeout"))
        _note(request)
        most = MOST_CORE_BYTES if request.HasField("graphql_request") else MOST_HISTORY_BYTES
        with _Watch(self, most) as watch:
            try:
                response = theirs(watch, request, *arguments, **options)
            except Exception as error:
                watch.require_modest()
                note_answer(status_of(error))
                raise
        if response.ByteSize() > MOST_ANSWER_BYTES:
            raise ExcessiveAnswer("the W&B server", f"the answer is larger than {size_of(MOST_ANSWER_BYTES)}")
        if response.HasField("graphql_response") and response.graphql_response.data_json.strip() in _NO_DATA:
            raise Unanswered(NOT_THE_ANSWER)  # the SDK would say that there is no such run
        return response

    api_request.is_bounded = True  # type: ignore[attr-defined]
    with _installing:
        kind.api_request = api_request


def _note(request: Any) -> None:
    """Note what core is asked for."""
    if request.HasField("graphql_request"):
        found = _OPERATION.search(request.graphql_request.query)
        note_request("POST", "/graphql", found.group(1) if found else "")
    elif request.HasField("download_file_request"):
        note_request("GET", request.download_file_request.url)
    elif request.HasField("upload_file_request"):
        note_request("PUT", request.upload_file_request.url)
    else:  # the SDK's own questions, made of several requests
        note_request("POST", "/graphql", str(request.WhichOneof("request") or "").removesuffix("_request"))


def status_of(error: BaseException | None) -> int:
    """The HTTP status behind an error of the SDK's, 0 where none is known."""
    told = _STATUS.findall(str(error))
    for _ in range(5):
        for response in (getattr(error, "response", None), error):
            for name in ("http_status", "status_code", "code"):
                status = getattr(response, name, None)
                if isinstance(status, int) and status:
                    return status
        error = getattr(error, "exc", None) or getattr(error, "__cause__", None)
    return int(told[-1]) if told else 0


def _shorter(timeout: float | None) -> float:
    """The time for a request, which ends with the time for all that it is part of.

    Raises:
        TimeoutError: that has ended, and nobody waits any more.
    """
    left = seconds_left()
    if left <= 0:
        raise TimeoutError("nobody waits for this any more")
    return min(left, math.inf if timeout is None else timeout)


class _Watch:
    """A connection to core that looks at it while a request is under way, and cancels that where it must."""

    def __init__(self, connection: Any, most: int) -> None:
        self._connection = connection
        self._most = most
        self._asyncer = _Noting(connection._asyncer, self)  # noqa: SLF001 - what sends the SDK's requests
        self._written = _written.get()
        self._process = _process_of(connection)
        self._before = _memory_of(self._process)
        self._begun = time.monotonic()
        self._done = threading.Event()
        self._handles: list[Any] = []
        self._why = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def note(self, handle: Any) -> None:
        """A request was sent: it is looked after from now on."""
        self._handles.append(handle)
        if self._process is not None or self._written is not None:
            threading.Thread(target=self._look, args=(handle,), daemon=True, name="tracker-health watch").start()

    def require_modest(self) -> None:
        """Raises:
        ExcessiveAnswer: the request was cancelled.
        """
        if self._why:
            raise ExcessiveAnswer("the W&B server", self._why) from None

    def _look(self, handle: Any) -> None:
        while not self._done.wait(LOOK_SECONDS):
            if why := self._excess():
                self._why = why
                with suppress(Exception):  # best effort, as the SDK says of it
                    handle.cancel()
                return

    def _excess(self) -> str:
        grown = _memory_of(self._process) - self._before
        if grown > self._most:
            return f"an answer took more than {size_of(self._most)} of memory, and was not read further"
        if self._written is not None:
            folder, most = self._written
            size = _size_below(folder)
            if is_too_slow(self._begun, size):
                return "a file comes too slowly"
            if size > most:
                return (
                    f"a file is larger than the {size_of(most - _SPARE_BYTES)} that were said, and was not read further"
                )
        return ""


class _Noting:
    """What runs the SDK's requests, which tells a watch about each."""

    def __init__(self, inner: Any, watch: _Watch) -> None:
        self._inner = inner
        self.run = partial(self._run, watch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _run(self, watch: _Watch, work: Any) -> Any:
        handle = self._inner.run(work)
        if hasattr(handle, "cancel"):
            watch.note(handle)
        return handle


def _process_of(connection: Any) -> int | None:
    """The id of the core process; None where another process started it, or where there is no telling."""
    process = getattr(getattr(connection, "_proc", None), "_process", None)
    number = getattr(process, "pid", None)
    return number if isinstance(number, int) and Path("/proc/self/statm").exists() else None


def _memory_of(process: int | None) -> int:
    with suppress(OSError, ValueError, IndexError):
        if process is not None:
            return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE_BYTES
    return 0


def _size_below(folder: Path) -> int:
    with suppress(OSError):
        return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
    return 0
