"""What else changed where steps began to take longer: more to do in each, data that is waited for, or something new."""

from __future__ import annotations

import numpy as np

from tracker_health.evidence import Evidence, Series
from tracker_health.evidence.numerics import median
from tracker_health.facts.pace import Pace, SlowDown
from tracker_health.facts.resumes import resumes_of
from tracker_health.text import number, printable, short_name

_MORE_WORK = ("workload", "response_length", "episode_length")
_EXPLAINS = 0.5
"""Of the slow-down, as a power: steps with so much more to do are not slow."""
_FEW, _CHANGED = 3, 1.1
_NEAR, _LATE = 0.03, 0.05
"""Shares of the run: how near to the slow-down something changed that may be why, and what is no beginning any more."""


def more_work(evidence: Evidence, pace: Pace, slow: SlowDown) -> str:
    """What a step has more to do, where that accounts for most of the slow-down: ``seq_len went from 512 to 1024``.

    Args:
        evidence: What was read of the run.
        pace: How long its steps took.
        slow: From where on they took longer.

    Returns:
        The words; empty where nothing logged says so.
    """
    step = pace.step(slow.at)
    for series in (one for role in _MORE_WORK for one in evidence.all_of(role)):
        before, after = _sides(series, step, at_end=not slow.is_step)
        if min(before, after) > 0 and np.log(after / before) >= _EXPLAINS * np.log(slow.times):
            return f"{short_name(series.name)} went from {number(before)} to {number(after)}"
    return ""


def waits_for_data(evidence: Evidence, pace: Pace, slow: SlowDown) -> float:
    """How much of the slow-down is time for data, where that was logged.

    Args:
        evidence: What was read of the run.
        pace: How long its steps took.
        slow: From where on they took longer.

    Returns:
        A share, from 0 to 1; 0 where nothing says so.
    """
    step, shares = pace.step(slow.at), [0.0]
    whole = next((one for one in evidence.all_of("step_time")), None)
    for series in evidence.all_of("data_time"):
        more = np.subtract(*_sides(series, step, at_end=not slow.is_step)[::-1])
        longer = np.subtract(*_sides(whole, step, at_end=not slow.is_step)[::-1]) if whole is not None else 0.0
        if longer > 0:
            shares.append(float(np.clip(more / longer, 0.0, 1.0)))
    return max(shares)


def _sides(series: Series, step: int, *, at_end: bool) -> tuple[float, float]:
    """The level before a step, and after it: at the end of what creeps. 0 for both of too few points."""
    finite = series.finite()
    at = int(np.searchsorted(finite.steps, step))
    before, after = finite.values[:at], finite.values[at:]
    if min(len(before), len(after)) < _FEW:
        return 0.0, 0.0
    return median(before[-len(before) // 2 :]), median(after[-max(_FEW, len(after) // 4) :] if at_end else after)


def what_changed(evidence: Evidence, pace: Pace, step: int) -> str:
    """What happened near a step that may be why: a resume, more to do in a step, a metric that was logged from there
    on.

    Args:
        evidence: What was read of the run.
        pace: How long its steps took.
        step: Where steps began to take longer.

    Returns:
        A clause; empty where nothing is known to have changed.
    """
    first, last = int(pace.series.steps[0]), int(pace.series.steps[-1])
    near, late = _NEAR * (last - first), first + _LATE * (last - first)
    for resume in resumes_of(evidence):
        if abs(resume.step - step) <= near:
            return f"the run was resumed at {pace.series.place(resume.step)}"
    for series in (one for role in _MORE_WORK for one in evidence.all_of(role)):
        before, after = _sides(series, step, at_end=False)
        if after > _CHANGED * before > 0.0:
            return f"{short_name(series.name)} went from {number(before)} to {number(after)}"
    for series in evidence.of_training:
        begins = int(series.steps.min()) if len(series) >= _FEW else first
        if begins > late and abs(begins - step) <= near:
            return f"{printable(short_name(series.name), 60)} is logged from {pace.series.place(begins)} on"
    return ""
