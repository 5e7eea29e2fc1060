"""RUN007."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from tracker_health.evidence import RunInfo

CODE = "RUN007"
START = 1_764_000_000.0  # 24 Nov 2025, 16:00 UTC
STEPS = 620


def run(make, *, quiet=None, vital=None, status="RUNNING", at_work=False, hang_after=None, every=8.0, **info):
    """A run that logged every 8 s, and evaluated for a minute after each 100 steps."""
    gaps = np.where(np.arange(1, STEPS) % 100 == 0, 8 * every, every)
    times = START + np.concatenate(([0.0], np.cumsum(gaps)))
    losses = make.series(np.linspace(2.0, 1.0, STEPS), steps=np.arange(1, STEPS + 1), times=times)
    known = RunInfo(status=status, tracker="MLflow", quiet_for=quiet, vital_for=vital, at_work=at_work, **info)
    return make.evidence(losses, info=replace(known, hang_after=hang_after))


def test_a_silence_above_its_rhythm_is_named_with_what_is_usual(make, judge):
    result = judge(CODE, run(make, quiet=1260.0, vital=1240.0))
    assert (result.verdict, result.kind, result.steps) == ("warn", "standing", (STEPS,))
    assert result.message == (
        "nothing was logged for 21 min (step 620); usually every 8.0 s, never longer than 1 min 4 s, "
        "and its system metrics go on"
    )
    assert result.confidence == "high"


@pytest.mark.parametrize(
    ("more", "kind", "says"),
    [
        ({"vital": 30.0}, "silent", "it hangs, or was lost"),  # they ended with the points
        ({}, "silent", "it hangs, or was lost"),
        ({"at_work": True}, "alive", "its process is alive"),
    ],
)
def test_what_else_is_known_of_it_is_said(make, judge, more, kind, says):
    result = judge(CODE, run(make, quiet=1260.0, **more))
    assert (result.verdict, result.kind) == ("warn", kind)
    assert says in result.message


def test_near_misses(make, judge):
    assert judge(CODE, run(make, quiet=890.0, vital=890.0)).verdict == "pass"  # below the floor
    assert judge(CODE, run(make, quiet=-40.0)).verdict == "pass"  # the clock of its machine is ahead
    # Evaluations take 16 min, again and again: they are normal, and so is three times as long.
    assert judge(CODE, run(make, quiet=2700.0, every=120.0)).verdict == "pass"
    assert judge(CODE, run(make, quiet=3000.0, every=120.0)).verdict == "warn"
    done = run(make, quiet=1260.0, params={"max_steps": str(STEPS)}, global_step=STEPS)
    assert judge(CODE, done).verdict == "pass"  # it evaluates and saves


def test_a_run_of_which_too_little_is_known_is_skipped(make, judge):
    evidence = run(make, quiet=1260.0)
    (losses,) = evidence.series
    assert judge(CODE, replace(evidence, series=(losses.at(np.arange(5)),))).verdict == "SkippedProbe"
    assert judge(CODE, replace(evidence, series=(losses.at(np.arange(60)),))).verdict == "SkippedProbe"  # 8 min
    assert judge(CODE, replace(evidence, series=(replace(losses, times=None),))).verdict == "SkippedProbe"
    assert judge(CODE, run(make)).verdict == "SkippedProbe"


def test_a_limit_that_was_set_takes_the_place_of_its_rhythm(make, judge):
    assert judge(CODE, run(make, quiet=50.0, hang_after=40.0)).verdict == "warn"
    assert judge(CODE, run(make, quiet=50.0, hang_after=60.0)).verdict == "pass"
    assert judge(CODE, run(make, quiet=1e6, hang_after=inf)).verdict == "SkippedProbe"
    no_times = run(make, quiet=50.0, hang_after=40.0)
    no_times = replace(no_times, series=tuple(replace(one, times=None) for one in no_times.series))
    assert judge(CODE, no_times).message == "nothing was logged for 50 s (step 620); it hangs, or was lost"


def test_a_run_that_is_over_and_stood_still_before(make, judge):
    result = judge(CODE, run(make, vital=7560.0, status="FAILED"))
    assert (result.verdict, result.kind) == ("warn", "stood")
    assert result.message == (
        "points stop at step 620 at 24 Nov 17:28 UTC, while its system metrics go on to 24 Nov 19:34 UTC: "
        "it stood still for 2 h 6 min of 3 h 34 min"
    )
    assert judge(CODE, run(make, vital=2400.0, status="FINISHED")).verdict == "pass"  # a last evaluation
    long = run(make, vital=7560.0, status="FINISHED", every=120.0)
    assert judge(CODE, long).verdict == "pass"  # three of its limits are longer


@pytest.mark.parametrize("silent", [None, 30_000.0])
def test_a_run_that_is_silent_for_hours_is_left_to_the_rule_on_its_end(make, judge, silent):
    evidence = run(make, quiet=30_000.0)
    evidence = replace(evidence, info=replace(evidence.info, silent_for=silent))
    assert judge(CODE, evidence).verdict == ("warn" if silent is None else "SkippedProbe")
