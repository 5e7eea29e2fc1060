"""A run has begun, or has ended: whose business that is, and what is said of it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from tracker_health.hooks import early, ends
from tracker_health.hooks.exec_log import RunToJudge, note
from tracker_health.hooks.guard import EXEC_LOG, is_disabled, safely, say
from tracker_health.words.ending import Ended, Ending, ending_by_exception

_ATTEMPT = "TORCHELASTIC_RESTART_COUNT"
_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")

_JUDGE = "tracker_health.hooks.judge_client"

_owners: dict[str, int] = {}
_going_on: set[str] = set()
_in_doubt: dict[str, tuple[RunToJudge, Ending]] = {}
"""By key, the runs that were ended during an exception, with what that says: how they ended if it ends this process."""
_is_ready = False
_child = 0


def watch() -> None:
    """Note which process the hooks were switched on in, and tell the launcher. Idempotent."""
    global _is_ready  # noqa: PLW0603  one per process
    early.watch()
    if not _is_ready:
        _is_ready = True
        note("ready", rank=_rank(), attempt=os.environ.get(_ATTEMPT, ""))


def here() -> str:
    """The folder that this process works in; the root where someone has deleted it."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return "/"


def begun(run: RunToJudge) -> None:
    """Note that this process has begun a run, and have its judge get ready."""
    if is_disabled():
        return
    from tracker_health.hooks import judge_client

    _owners[run.key] = os.getpid()
    _going_on.add(run.key)
    _in_doubt.pop(run.key, None)
    ends.begin(run.key)
    _watch_child()
    note("start", run)
    with suppress(OSError, RuntimeError):  # told when there is something to judge
        judge_client.of_this_process().prepare(run)


def resumed(run: RunToJudge) -> None:
    """Note that this process continues with a run, unless that is known or another process's business."""
    if run.key not in _going_on and (_owners.get(run.key) == os.getpid() or _is_first_rank()):
        begun(run)


def ended(run: RunToJudge, *, wait: bool = True, failed: bool = False) -> None:
    """Have a run judged that this process has ended, if that is this process's business, and tell the verdict.

    ``wait``: for the verdict, for a moment. Under a launcher nobody waits here: it does, when the process is gone.
    ``failed``: the tracker was notified that the run failed, or was killed.
    """
    with ends.unchanged():
        _ended(run, wait=wait, failed=failed)


def _ended(run: RunToJudge, *, wait: bool, failed: bool) -> None:
    if is_disabled() or not _is_ours(run):
        return
    was_begun = run.key in _going_on
    _going_on.discard(run.key)
    leaving, doubt = ends.is_leaving(), None
    error = None if leaving else ends.on_its_way(run.key)
    if leaving:
        ending = ends.end_of_process().ending
    elif error is not None and failed:
        ending = ending_by_exception(error)
    elif error is not None:
        ending, doubt = None, ending_by_exception(error)
        _in_doubt[run.key] = run, doubt
    else:
        # Whatever its console shows by now was caught.
        ending = Ending(how=Ended.FINISHED, by="its program ended it") if was_begun and not failed else None
    _hand_over(run, ending, wait=wait, leaving=leaving, doubt=doubt)


def _hand_over(
    run: RunToJudge, ending: Ending | None, *, wait: bool = True, leaving: bool = False, doubt: Ending | None = None
) -> None:
    from tracker_health.hooks import judge_client

    over = run.over(ending, os.environ.get(EXEC_LOG) or None)
    note("end", over, leaving=leaving, doubt=doubt)
    for line in judge_client.of_this_process().verdict(over, wait=wait):
        say(line)


def _is_ours(run: RunToJudge) -> bool:
    """Whether this process is the one to judge a run that it has ended.

    A fork inherits the hooks and the runs of its parent, and may come by the end of one that the parent continues with;
    of several ranks that end a run that none of them has begun, one is enough.
    """
    owner = _owners.get(run.key)
    if owner is not None:
        return owner == os.getpid()
    return early.home() == os.getpid() and _is_first_rank()


def _is_first_rank() -> bool:
    ranks = [os.environ[name] for name in _RANKS if os.environ.get(name, "").isdecimal()]
    return all(int(rank) == 0 for rank in ranks)


def _rank() -> int | None:
    """Which of several processes that train together this one is; None where it is none of several."""
    ranks = [os.environ[name] for name in _RANKS if os.environ.get(name, "").isdecimal()]
    return int(ranks[0]) if ranks else None


def _watch_child() -> None:
    """Have ``multiprocessing`` tell us of the end of this process, where it is a fork of its own: Python does not."""
    global _child  # noqa: PLW0603  one per process
    processes = sys.modules.get("multiprocessing.util")
    if os.getpid() not in (early.home(), _child) and processes is not None:
        _child = os.getpid()
        processes.Finalize(None, leave, exitpriority=0)


def leave() -> None:
    """Say how this process ends, and tell what verdicts there are by now."""
    with ends.unchanged():
        _leave_all()


def _leave_all() -> None:
    if os.getpid() in (early.home(), _child) and not is_disabled():
        end = ends.end_of_process(sys.exc_info()[1])
        for key, (run, ending) in list(_in_doubt.items()):
            if end.ended(key) and _is_ours(run):
                safely(_hand_over, run, ending)
        safely(note, "exit", ending=end.ending)
        safely(_tell_rest)


def _tell_rest() -> None:
    if _JUDGE not in sys.modules:  # no run has begun or ended here
        return
    from tracker_health.hooks import judge_client

    for line in judge_client.of_this_process().rest():
        say(line)
