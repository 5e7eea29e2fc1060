"""Out of memory."""

from __future__ import annotations

from tracker_health.diagnosis._base import Sign
from tracker_health.diagnosis._ends import EndOfProcess, end_sign, ended
from tracker_health.words.diagnosis import Action
from tracker_health.words.ending import Ended


class OutOfMemory(EndOfProcess):
    """The process ran out of memory."""

    name = "out-of-memory"
    title = "The process ran out of memory"
    signs = (
        Sign(
            name="it ended for lack of memory",
            kind="finding",
            looks_at="RUN004",
            judged=7,
            seen=lambda facts: ended(facts, Ended.OUT_OF_MEMORY),
        ),
        end_sign(
            "its console ends with a lack of memory", ("out of memory", "memoryerror", "cannot allocate memory"), 3
        ),
    )
    test = "look in the kernel's log (dmesg) for the process"
    do = Action(
        text="use a smaller batch, shorter sequences or gradient checkpointing, and resume", setting="batch_size"
    )
