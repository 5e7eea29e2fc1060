"""The runs that a training logs to while it is running: what is said on them, and what they ask."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from weakref import WeakMethod

from tracker_health.errors import named
from tracker_health.monitor.background import Background
from tracker_health.monitor.live_alerts import LiveAlerts
from tracker_health.monitor.measuring_errors import tell
from tracker_health.monitor.trackers import ActiveRun, active_runs
from tracker_health.words.stopped import asks

ASK_SECONDS = 30.0
"""How often a training that wants to obey looks for a request."""
_FIND_SECONDS = 1.0


class LiveRuns:
    """The runs to write onto: those that are given, else those that are active when something is first said, if they
    began at ``since`` (in seconds since 1970) or later.

    Nothing waits for a tracker but the end of the process, and that for ten seconds at most.
    """

    def __init__(self, given: Sequence[ActiveRun] | None, *, since: float = 0.0) -> None:
        self._given, self._since = None if given is None else list(given), since
        self._found: list[ActiveRun] = []
        self._next = 0.0
        self._kept = self._told = False
        self._alerts, self._behind = LiveAlerts(), Background("W&B's alert")

    def mark(self, word: str, reason: str = "") -> None:
        """Mark the runs while they are running: ``warn`` or ``fail``. With a ``reason`` W&B alerts people, where the
        settings ask for that: they are read in a thread of their own, as a policy may have to be fetched.
        """
        self._each(lambda run: run.mark(word))
        for run in self.there() if reason else ():
            self._behind.put(partial(self._alerts.send, run, word, reason))

    def stopped(self, text: str) -> None:
        """Say on the runs why their training stops. Nothing more is said on them after that."""
        self._each(lambda run: run.stopped(text))
        for run in self._found if self._given is None else ():
            run.end()

    def close(self) -> None:
        """Wait for what was said, for a while."""
        self._behind.close()
        for run in self.there() if self._kept else ():
            with suppress(Exception):
                run.close()
        atexit.unregister(self.close)

    def there(self) -> Sequence[ActiveRun]:
        """The runs; none as long as none is active."""
        if self._given is not None:
            return self._given
        if not self._found and time.monotonic() >= self._next:
            self._next = time.monotonic() + _FIND_SECONDS
            self._found = active_runs(since=self._since)
        return self._found

    def _each(self, say: Callable[[ActiveRun], object]) -> None:
        self._next = 0.0
        try:
            runs = self.there()
        except Exception as error:  # noqa: BLE001  whatever a tracker's client raises, the training continues
            self._tell(error)
            return
        if runs and not self._kept:
            self._kept = True
            atexit.register(self.close)
        for run in runs:
            try:
                say(run)
            except Exception as error:  # noqa: BLE001
                self._tell(error)

    def _tell(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            tell(f"why the training stops could not be put onto its run: {named(error)}")


class Requests:
    """Looks in a daemon thread whether one of the runs asks its training to stop.

    A request that was there at the first look is of an earlier attempt, and asks nobody. The thread ends with the
    first other one, with ``close``, and with whoever is called.
    """

    def __init__(self, asked: Callable[[str], object], *, seconds: float = ASK_SECONDS) -> None:
        self._asked, self._seconds = WeakMethod(asked), seconds
        self._ended = threading.Event()
        self._begun = False

    def begin(self, runs: Sequence[ActiveRun]) -> None:
        """Look from now on, once there are runs."""
        if self._begun or not runs:
            return
        self._begun = True
        arguments = (list(runs), self._asked, self._ended, self._seconds)
        with suppress(RuntimeError):  # no more threads here, or Python is exiting
            threading.Thread(target=_look, args=arguments, name="tracker-health", daemon=True).start()

    @property
    def begun(self) -> bool:
        """Whether the thread was started."""
        return self._begun

    def close(self) -> None:
        """Look no more."""
        self._ended.set()


def _look(
    runs: Sequence[ActiveRun],
    asked: WeakMethod[Callable[[str], object]],
    ended: threading.Event,
    seconds: float,
) -> None:
    known: list[str | None] = [None] * len(runs)
    told = False
    while asked() is not None and not ended.is_set():
        for place, run in enumerate(runs):
            try:
                text = run.asks_to_stop()
            except Exception as error:  # noqa: BLE001  whatever a tracker's client raises
                if not told:
                    tell(f"whether the run asks to stop could not be seen, and is tried again: {named(error)}")
                told = True
                continue
            is_new = known[place] is not None and text != known[place]
            known[place] = text
            if is_new and asks(text) and (call := asked()) is not None:
                call(text)
                return
        ended.wait(seconds)
