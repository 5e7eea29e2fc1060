"""A run has begun, or has ended: whose business that is, and what is said of it."""

from __future__ import annotations

import atexit
import os
from contextlib import suppress

from tracker_health.hooks import ends
from tracker_health.hooks.guard import is_disabled, safely, say
from tracker_health.hooks.ledger import VARIABLE, RunToJudge, note

_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")

_owners: dict[str, int] = {}
_going_on: set[str] = set()
_home = 0


def watch() -> None:
    """Note which process the hooks were switched on in. Idempotent."""
    global _home  # noqa: PLW0603  one per process
    if not _home:
        _home = os.getpid()
        atexit.register(_leave)
        note("ready")
    ends.watch()


def here() -> str:
    """The folder that this process works in; the root where somebody has deleted it."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return "/"


def begun(run: RunToJudge) -> None:
    """Note that this process has begun a run, and have its judge get ready."""
    if is_disabled():
        return
    from tracker_health.hooks import judge

    _owners[run.key] = os.getpid()
    _going_on.add(run.key)
    note("start", run)
    with suppress(OSError, RuntimeError):  # told when there is something to judge
        judge.of_this_process().prepare(run)


def resumed(run: RunToJudge) -> None:
    """Note that this process goes on with a run, unless that is known or another process's business."""
    if run.key not in _going_on and (_owners.get(run.key) == os.getpid() or _is_first_rank()):
        begun(run)


def ended(run: RunToJudge, *, wait: bool = True, failed: bool = False) -> None:
    """Have a run judged that this process has ended, if that is this process's business, and tell the verdict.

    ``wait``: for the verdict, for a moment. Under a launcher nobody waits here: it does, when the process is gone.
    ``failed``: the tracker was told that the run failed, or was killed.
    """
    if is_disabled() or not _is_ours(run):
        return
    from tracker_health.hooks import judge

    _going_on.discard(run.key)
    over = run.over(ends.ending_here(failed=failed), os.environ.get(VARIABLE) or None)
    note("end", over, leaving=ends.is_leaving())
    for line in judge.of_this_process().verdict(over, wait=wait):
        say(line)


def _is_ours(run: RunToJudge) -> bool:
    """Whether this process is the one to judge a run that it has ended.

    A fork inherits the hooks and the runs of its parent, and may come by the end of one that the parent goes on with;
    of several ranks that end a run that none of them has begun, one is enough.
    """
    owner = _owners.get(run.key)
    if owner is not None:
        return owner == os.getpid()
    return _home == os.getpid() and _is_first_rank()


def _is_first_rank() -> bool:
    ranks = [os.environ[name] for name in _RANKS if os.environ.get(name, "").isdecimal()]
    return all(int(rank) == 0 for rank in ranks)


def _leave() -> None:
    if os.getpid() == _home and not is_disabled():
        safely(note, "exit")
        safely(_tell_rest)


def _tell_rest() -> None:
    from tracker_health.hooks import judge

    for line in judge.of_this_process().rest():
        say(line)
