"""How a run ended, from what was seen of its process, what its tracker says, and what its console says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tracker_health.evidence.rhythm import is_of_the_machine
from tracker_health.evidence.run import RunInfo, TextLog, Trouble
from tracker_health.evidence.series import Series
from tracker_health.text import printable
from tracker_health.words.ending import Ended, Ending, ending_by_status, ending_by_wandb_code
from tracker_health.words.stopped import Stop

ANY_EXCEPTION, TIMED_OUT = "an exception", "a collective operation timed out"
LINES_AFTER = 200
"""How many lines may follow what ended a process: of its launcher, of other ranks, of an exit handler."""
LAST_WORD_LINES = 5
"""How many lines may follow an error that is the console's last word: the rest of a long message (CUDA's has three
lines more), what an exit handler says. What a launcher prints after it is an error of its own.
"""

_FEW_POINTS, _CLEARLY = 3, 0.1
_FIRST_TIME = 946_684_800.0  # 2000-01-01
_HOUR, _DAY = 3600.0, 86_400.0  # seconds
_BY_CAUSE: Mapping[str, Ended] = {
    "out of memory": Ended.OUT_OF_MEMORY,
    "SIGKILL": Ended.KILLED,
    "SIGTERM": Ended.INTERRUPTED,
    "its time was up": Ended.INTERRUPTED,
    "a preemption": Ended.PREEMPTED,
    "a cancelled job": Ended.INTERRUPTED,
    "interrupted": Ended.INTERRUPTED,
    "a search that stopped the trial": Ended.PRUNED,
}
"""What the causes of ``Trouble`` come to; all others are the program's own errors."""

_ENDS_A_RANK = frozenset(("out of memory", "no space left on the disk", "a data loader worker died"))
_OWN_ERRORS = frozenset({Ended.FAILED, Ended.OUT_OF_MEMORY})
_BROKE_AFTERWARDS = _OWN_ERRORS | {Ended.PREEMPTED, Ended.PRUNED}
"""What was seen of a process that says more than that its training was stopped."""
_MORE_THAN_A_STATE = frozenset({Ended.OUT_OF_MEMORY, Ended.PREEMPTED})
_AFTER = 10  # lines behind what ended a process, as a launcher prints them: it is still the end of its console


def ending_of(info: RunInfo, log: TextLog | None) -> Ending | None:
    """How the run ended; None where nothing says that.

    What was seen of its process comes before the tracker's word. What the console ends with is the cause, unless the
    process is still at work, left with exit code 0, or was stopped by a search: then it was caught.
    """
    outside, trouble = ending_outside_the_log(info), fatal_trouble(log)
    if log is None or trouble is None:
        done = log is not None and log.done is not None and outside is None
        return Ending(how=Ended.FINISHED, by="its console says that training was done") if done else outside
    last = trouble.line + _AFTER >= log.lines
    where = "ends with" if last else f"has, in line {trouble.line} of {log.lines},"
    by = f"{printable(log.source, 80)} {where} {trouble.cause}"
    inside = Ending(how=_BY_CAUSE.get(trouble.cause, Ended.FAILED), by=by)
    return inside if outside is None or _explains(inside, outside, info, log) else outside


def _explains(inside: Ending, outside: Ending, info: RunInfo, log: TextLog) -> bool:
    """Whether what the console ends with says why the run ended as it did."""
    match outside.how:
        case Ended.RUNNING:
            return not info.at_work
        case Ended.FINISHED:
            return info.seen is None and info.exit_code is None and _has_the_last_word(log)
        case Ended.PREEMPTED:
            return inside.how in _OWN_ERRORS and _has_the_last_word(log)
        case Ended.PRUNED | Ended.OUT_OF_MEMORY:
            return False
        case Ended.INTERRUPTED:
            return inside.how in _MORE_THAN_A_STATE
    return True


def _has_the_last_word(log: TextLog) -> bool:
    """Whether almost nothing follows the last error of a console: what was caught is followed by what comes next."""
    return log.lines - log.troubles[-1].line <= LAST_WORD_LINES


def ending_outside_the_log(info: RunInfo) -> Ending | None:
    """The same without the console log. A run whose training stopped for a finding was stopped on purpose, however its
    tracker calls what came of that.
    """
    found = _of_a_trial(_told_of(info), info)
    if info.stopped is None or (found is not None and found.how is Ended.RUNNING):
        return found
    broke = info.seen is not None and info.seen.how in _BROKE_AFTERWARDS
    return found if broke else info.stopped.ending


def _of_a_trial(told: Ending | None, info: RunInfo) -> Ending | None:
    """The end of a trial that its search stopped: by a signal, as agents do, or as the tracker's state says."""
    if told is None or not info.sweep or told.how is not Ended.INTERRUPTED:
        return told
    if "SIGTERM" not in told.by and (info.seen is not None or info.status != "KILLED"):
        return told
    return Ending(how=Ended.PRUNED, by=f"{told.by}, as sweeps stop trials")


def _told_of(info: RunInfo) -> Ending | None:
    if info.seen is not None:
        return info.seen
    if info.exit_code is not None:
        return ending_by_wandb_code(info.exit_code)
    told = ending_by_status(info.status, info.tracker or "the tracker")
    if told is not None and told.how is Ended.RUNNING and info.silent_for is not None:
        long = (
            f"{info.silent_for / _HOUR:.1f} hours"
            if info.silent_for < 2 * _DAY
            else f"{info.silent_for / _DAY:.0f} days"
        )
        return Ending(how=Ended.SILENT, by=f"{told.by}, and nothing has come from it for {long}")
    return told


def stood(stop: Stop, series: Iterable[Series]) -> bool:
    """Whether a run ended with that stop: its history did not go on clearly beyond it.

    Args:
        stop: What its training stopped for.
        series: What was read of its history.

    Returns:
        False where more than a tenth of the longest series came later, and more than a few points.
    """
    longest = max((one for one in series if not is_of_the_machine(one.name)), key=len, default=None)
    if longest is None:
        return True
    times = longest.times
    # Trackers count steps in their own ways, and times are of the machine that stopped. Some give none that can be.
    timed = times is not None and len(times) > 0 and float(times.min()) > _FIRST_TIME
    later = times > stop.when if times is not None and timed else longest.steps > stop.step
    after = int(later.sum())
    return after <= max(_FEW_POINTS, _CLEARLY * (len(longest) - after))


def fatal_trouble(log: TextLog | None) -> Trouble | None:
    """The error after which nothing came; of a chain of exceptions the one that names a cause. That a collective
    operation timed out may come of what ended one of the ranks, wherever that stands.
    """
    if log is None:
        return None
    fatal = [one for one in log.troubles if not one.rows_after and log.lines - one.line <= LINES_AFTER]
    named = [one for one in fatal if one.cause != ANY_EXCEPTION]
    if named and named[0].cause == TIMED_OUT:
        named = [one for one in named if one.cause in _ENDS_A_RANK] or named
    return next(iter(named), fatal[-1] if fatal else None)
