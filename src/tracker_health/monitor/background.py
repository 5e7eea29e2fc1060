"""Calls that may take long, in a thread of their own: a training waits for none, and at its end not for long."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Full, Queue

from tracker_health.errors import named
from tracker_health.monitor.measuring_errors import tell

_MOST_WAITING = 200
_SECONDS = 10.0


class Background:
    """Calls in the order in which they were given, one after the other, in a daemon thread.

    ``what``: what they do, for the one line that reports an error. A call that raises is reported once; when too many
    wait, the newest is left out. In a fork nothing is called: the thread is the parent's.
    """

    def __init__(self, what: str, *, seconds: float = _SECONDS) -> None:
        self._what, self._seconds = what, seconds
        self._calls: Queue[Callable[[], object] | None] = Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._told = self._closed = self._given_up = False
        self._ends = self._waited = False  # the thread is given no more calls; someone has waited for that

    @property
    def idle(self) -> bool:
        """Whether nothing waits."""
        return self._calls.empty()

    def put(self, call: Callable[[], object]) -> None:
        """Have it called. Never waits, never raises."""
        if self._closed or self._pid != os.getpid():
            return
        try:
            self._calls.put_nowait(call)
        except Full:
            self._tell_once("it is too slow, and something was left out")
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tracker-health", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no more threads here, or Python is exiting
                self._tell_once("no thread could be started")
                self._closed = True

    def end(self) -> None:
        """Nothing more comes: the thread ends when what was given is done, and nobody waits for that here."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        if self._thread is not None:
            with suppress(Full):  # then it waits for more until the process ends
                self._calls.put_nowait(None)
                self._ends = True

    def close(self) -> bool:
        """Wait for what was given, for a while; whether all of it was done."""
        if self._thread is None or self._pid != os.getpid() or self._waited:
            self._closed = True
            return True
        self._closed = self._waited = True
        end = time.monotonic() + self._seconds
        try:
            if not self._ends:
                self._calls.put(None, timeout=self._seconds)
        except Full:
            pass
        else:
            self._thread.join(max(0.0, end - time.monotonic()))
        if self._thread.is_alive():
            self._given_up = True
            tell(f"{self._what}: it was not done within {self._seconds:g} s, and was left")
            return False
        return True

    def _run(self) -> None:
        while not self._given_up:
            call = self._calls.get()
            if call is None or self._given_up:
                return
            try:
                call()
            except Exception as error:  # noqa: BLE001  whatever a tracker's client raises
                self._tell_once(named(error))

    def _tell_once(self, message: str) -> None:
        if not self._told:
            self._told = True
            tell(f"{self._what}: {message}")
