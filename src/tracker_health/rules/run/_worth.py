"""What each way of ending is worth, and what to do about it: one table for RUN003 and RUN004."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tracker_health.words.ending import Ended
from tracker_health.words.verdict import Verdict


class EndingVerdicts(NamedTuple):
    """What an end says of a run, in words, what to do, and its verdict by whether the plan was reached; None where that
    is not known. ``afterwards``: what it did to what came after training.
    """

    said: str
    afterwards: str
    remedy: str
    verdicts: Mapping[bool | None, Verdict]


_BAD = {True: Verdict.WARN, False: Verdict.FAIL, None: Verdict.FAIL}
_INTERRUPTED = {True: Verdict.PASS, False: Verdict.WARN, None: Verdict.WARN}
_SILENT = _INTERRUPTED  # that nobody closed it is no evidence of how it ended
_FINE = dict.fromkeys((True, False, None), Verdict.PASS)
_RESUME = "resume from the last checkpoint"
TABLE: Mapping[Ended, EndingVerdicts] = {
    Ended.FAILED: EndingVerdicts("the run failed", "failed", f"fix the error that ended it, and {_RESUME}", _BAD),
    Ended.OUT_OF_MEMORY: EndingVerdicts(
        "the run ran out of memory",
        "ran out of memory",
        f"use a smaller batch, shorter sequences or gradient checkpointing, and {_RESUME}",
        _BAD,
    ),
    Ended.KILLED: EndingVerdicts(
        "the run was killed",
        "was killed",
        f"look in the log of the scheduler or the kernel (dmesg) for the reason, and {_RESUME}",
        _BAD,
    ),
    Ended.INTERRUPTED: EndingVerdicts(
        "the run was interrupted", "was interrupted", f"{_RESUME} if it was meant to go on", _INTERRUPTED
    ),
    Ended.PREEMPTED: EndingVerdicts(
        "the run was preempted",
        "was preempted",
        f"{_RESUME}; save a checkpoint more often where jobs are preempted",
        _INTERRUPTED,
    ),
    Ended.SILENT: EndingVerdicts(
        "the run went silent",
        "",
        f"check whether its process is still there; if not, {_RESUME}",
        _SILENT,
    ),
    Ended.FINISHED: EndingVerdicts("the run finished", "", "", _FINE),
    Ended.PRUNED: EndingVerdicts("the run was stopped on purpose", "", "", _FINE),
}
REMEDIES = {
    "no space left on the disk": "free the disk or keep fewer checkpoints; the last one may be cut short",
    "a data loader worker died": "give the workers more shared memory, or use fewer of them",
    "a collective operation timed out": "look in the logs of the other ranks for the one that stopped first",
    "too few samples kept": "keep more samples: a larger limit of tokens, a milder filter, more prompts",
    "a prompt that is no prefix of its completion": "tokenize prompt and completion as one text, and cut at "
    "the offsets of characters: else the mask of the loss is off by a token",
    "its time was up": f"ask for more time, or {_RESUME}",
}
