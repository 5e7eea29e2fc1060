"""Killed, reason unknown."""

from __future__ import annotations

from tracker_health.diagnosis._base import Sign
from tracker_health.diagnosis._ends import EndOfProcess, ended
from tracker_health.words.ending import Ended


class KilledReasonUnknown(EndOfProcess):
    """The process was killed, and nothing says why.

    A signal alone names no reason: a lack of memory, a scheduler, a person and a machine that goes down all send the
    same one. Out of memory is said where a message or a figure of memory says so.
    """

    name = "killed-reason-unknown"
    title = "The process was killed, and nothing says why"
    signs = (
        Sign(
            name="it was killed from outside",
            kind="finding",
            looks_at="RUN003",
            judged=2,
            seen=lambda facts: ended(facts, Ended.KILLED),
        ),
    )
    test = "look in the scheduler's log and in the kernel's (dmesg) for the process"
    do = "look in the scheduler's log and in the kernel's (dmesg) for who ended it, and resume from the last checkpoint"
