"""Which signals came to the whole process group, as a terminal, a scheduler or systemd sends them.

The command has then got them as well: passed on they would come to it twice, and the second SIGTERM ends what the first
had it begin to save.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

_WAIT_SECONDS = 0.25
"""How long a signal takes at most to all of a group: systemd sends it to one process after the other."""

_ONE_EVENT_SECONDS = 1.0
"""``timeout`` sends a signal first to its child and then to the group: within this time it is the same one."""

# It shows each signal, and when it came. It ends when we do, as then its input ends. Nothing in its command line is
# the command's or ours: `pkill -f` would find it with one of us.
_PROGRAM = """
import os, signal, sys, time
numbers = [int(number) for number in sys.argv[1:]]
def tell(number, _):
    try:
        os.write(1, b"%d %.6f\\n" % (number, time.monotonic()))
    except OSError:
        pass
os.set_blocking(1, False)
for number in numbers:
    signal.signal(number, tell)
signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
os.read(0, 1)
"""


class SignalWitness:
    """A process in our group that does nothing but see signals.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, signals: Iterable[int]) -> None:
        numbers = [int(number) for number in signals]
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM, *map(str, numbers)]
        self._seen: dict[int, float] = {}
        self._told, told = os.pipe()
        os.set_blocking(self._told, False)
        # Until it is ready they wait for it.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        try:
            self._process = subprocess.Popen(  # noqa: S603  this interpreter
                command, stdin=subprocess.PIPE, stdout=told, stderr=subprocess.DEVNULL, cwd="/"
            )
        finally:
            os.close(told)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def saw(self, number: int) -> bool:
        """Whether a signal that has just come to us came to it as well."""
        now = time.monotonic()
        poller = select.poll()  # select has no numbers above 1023, and we may be given many open files
        poller.register(self._told, select.POLLIN)
        while not self._is_recent(number, now) and (left := now + _WAIT_SECONDS - time.monotonic()) > 0:
            if poller.poll(left * 1000):
                with suppress(BlockingIOError):  # read by another call, for a signal that came in the midst of this one
                    lines = os.read(self._told, 2**16).splitlines()  # each is written in one piece
                    if not lines:  # it is gone
                        break
                    self._seen |= {int(seen): float(when) for seen, when in map(bytes.split, lines)}
        return self._is_recent(number, now)

    def _is_recent(self, number: int, now: float) -> bool:
        return number in self._seen and now - self._seen[number] < _ONE_EVENT_SECONDS

    def leave(self) -> None:
        """End it."""
        with suppress(OSError):
            self._process.kill()
        self._process.communicate()
        os.close(self._told)
