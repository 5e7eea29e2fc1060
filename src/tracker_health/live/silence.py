"""Notices from a thread of its own that a training logs no more, while its process lives."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from weakref import WeakMethod

import numpy as np

from tracker_health.config import Config
from tracker_health.evidence import Evidence, RunInfo, RunRef, Series
from tracker_health.live.hang import Hang, HangJudge
from tracker_health.live.verdicts import LiveFinding

_MOST, _LONGEST, _EACH = 4096, 512, 8  # gaps that are kept; of more the longest stay, and each eighth of the others
_LOOKS = 20  # within the shortest silence that may be too long
_LEAST_SECONDS, _MOST_SECONDS = 0.05, 30.0


class Arrivals:
    """When something was logged, in bounded memory. Its time is monotonic, in seconds."""

    def __init__(self) -> None:
        self.last: float | None = None
        self._gaps: list[float] = []

    def add(self, now: float) -> None:
        """Something was logged."""
        if self.last is not None:
            self._gaps.append(now - self.last)
            if len(self._gaps) >= _MOST:
                ascending = sorted(self._gaps)
                self._gaps = [*ascending[:-_LONGEST:_EACH], *ascending[-_LONGEST:]]
        self.last = now

    def series(self, last_step: int) -> Series:
        """A history with such gaps, which ends at that step now."""
        gaps = np.array(list(self._gaps))  # a copy at once: another thread adds to them
        times = time.time() - float(gaps.sum()) + np.concatenate(([0.0], np.cumsum(gaps)))
        steps = last_step - np.arange(len(times), dtype=np.int64)[::-1]
        return Series(name="loss", role="train_loss", steps=steps, values=np.zeros(len(times)), times=times)


class SilenceTimer:
    """Looks from a daemon thread how long nothing was logged, and says so once for a silence.

    The thread ends with ``close``, with whoever hears of it, and with the process, which it never keeps. At a prompt
    and in a notebook there is none: there nothing is logged because nobody trains.
    """

    def __init__(self, config: Config, params: Mapping[str, str], hangs: Callable[[LiveFinding], object]) -> None:
        self._judge, self._hang_after = HangJudge(config), config.hang_after
        self._params, self._hangs = params, WeakMethod(hangs)
        self._arrivals, self._last_step = Arrivals(), -1
        self._ended, self._begun = threading.Event(), False
        self._said: float | None = None

    def logged(self, step: int) -> None:
        """Something was logged at a step."""
        self._arrivals.add(time.monotonic())
        self._last_step = step
        if not self._begun:
            self._begin()

    def close(self) -> None:
        """Look no more."""
        self._ended.set()

    def _begin(self) -> None:
        self._begun = True
        if self._judge.floor == inf or _is_interactive():
            return
        with suppress(RuntimeError):  # no more threads here, or Python is exiting
            threading.Thread(target=_look, args=(self, self._hangs), name="tracker-health", daemon=True).start()

    def pause(self) -> float:
        """How long to wait between two looks, in seconds."""
        return min(_MOST_SECONDS, max(_LEAST_SECONDS, self._judge.floor / _LOOKS))

    def wait(self, seconds: float) -> bool:
        """Wait; whether nobody wants to look any longer."""
        return self._ended.wait(seconds)

    def look(self, now: float, late: float) -> LiveFinding | None:
        """What is to be said now.

        Args:
            now: The time, monotonic, in seconds.
            late: For how long the whole process did not run: nothing could be logged meanwhile.

        Returns:
            The finding, once for a silence; None for nothing.
        """
        last = self._arrivals.last
        if last is None or last == self._said:
            return None
        if late:
            self._arrivals.last = last = last + late
        if now - last <= self._judge.floor:
            return None
        hang = self._hang(now - last)
        if hang is None or self._arrivals.last != last:
            return None
        self._said = last
        return hang.finding

    def _hang(self, silence: float) -> Hang | None:
        info = RunInfo(
            status="RUNNING", tracker="the training", at_work=True, params=self._params, global_step=self._last_step,
            quiet_for=silence, hang_after=self._hang_after,
        )  # fmt: skip
        ref = RunRef(store="live", id="", name="the training")
        return self._judge.look(Evidence(run=ref, info=info, series=(self._arrivals.series(self._last_step),)))[0]


def _look(timer: SilenceTimer, hangs: WeakMethod[Callable[[LiveFinding], object]]) -> None:
    before = time.monotonic()
    while not timer.wait(timer.pause()):
        owner = hangs()
        if owner is None:
            return
        now = time.monotonic()
        late = now - before - timer.pause()
        before = now
        with suppress(Exception):  # whatever is wrong in here, the training continues
            found = timer.look(now, late if late > timer.pause() else 0.0)
            if found is not None:
                owner(found)
        del owner


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules
