"""CMP001: against a baseline alone."""

from dataclasses import replace

import numpy as np
import pytest

from tracker_health.config import Config, preset
from tracker_health.evidence import SHARES, Baseline, Evidence, RunInfo, RunRef, Series
from tracker_health.judge.engine import diagnose, needs_of
from tracker_health.rules.curves.odd_one_out import OddOneOut
from tracker_health.words.verdict import Verdict

CODE = "CMP001"
LEVEL = 0.3


def history(end):
    steps = np.arange(1, 401)
    values = end + 2 * np.exp(-steps / 60) + 0.01 * np.sin(steps)
    series = Series(name="loss", role="train_loss", steps=steps, values=values)
    info = RunInfo(status="FINISHED", metric_names=("loss",))
    return Evidence(run=RunRef(store="directory", id="run", name="run"), info=info, series=(series,))


def usual(**changes):
    course = history(LEVEL).course
    made = Baseline(
        of="nets",
        metric="loss",
        shortest=400,
        longest=400,
        descent=2.0,
        low=course.levels,
        middle=course.levels,
        high=course.levels,
        end=(LEVEL, LEVEL, LEVEL),
        runs=tuple(f"run-{at}" for at in range(6)),
        frozen=True,
    )
    return replace(made, **changes)


def found(level, **changes):
    report = diagnose(replace(history(level), baseline=usual(**changes)), preset("default"))
    return next(one for one in report.results if one.code == CODE)


@pytest.mark.parametrize(("above", "verdict"), [(-0.2, "pass"), (0.0, "pass"), (0.38, "pass"), (0.42, "warn")])
def test_a_fifth_of_the_descent_above_the_band_is_too_much(above, verdict):
    result = found(LEVEL + above)
    assert (result.verdict, result.votes) == (verdict, True)
    assert result.measured["above"] == pytest.approx(above / 2, abs=0.01)


def test_a_band_that_is_wide_is_measured_by_its_ends():
    assert found(LEVEL + 0.42, end=(LEVEL, 2.0, 4.0)).verdict is Verdict.PASS


def test_most_levels_count_and_not_the_first_ones():
    high = np.array(history(LEVEL).course.levels)
    high[: SHARES // 2 + 1] = 9.0
    assert found(LEVEL + 1.0, high=tuple(high)).verdict is Verdict.PASS


def test_without_a_baseline_it_is_skipped_and_says_how_to_get_one():
    report = diagnose(history(9.0), preset("strict"))
    (skipped,) = [one for one in report.skipped if one.code == CODE]
    assert skipped.reason == "no baseline was named: --against compares a run with healthy ones"
    assert not [one for one in report.results if one.code == CODE]
    assert "baseline" in needs_of(preset("default")).parts


def test_a_baseline_of_too_few_runs_is_none():
    report = diagnose(replace(history(9.0), baseline=usual(runs=("a", "b"))), preset("default"))
    (skipped,) = [one for one in report.skipped if one.code == CODE]
    assert skipped.reason == "only 2 runs of baseline, 5 are needed"


@pytest.mark.parametrize("name", ["default", "strict"])
def test_it_is_stable_and_votes_where_the_baseline_is_frozen(name):
    assert OddOneOut.status == "stable"
    voted, advised = (
        diagnose(replace(history(LEVEL + 1), baseline=usual(frozen=frozen)), preset(name)) for frozen in (True, False)
    )
    assert (voted.verdict, advised.verdict) == (Verdict.WARN, Verdict.PASS)


def test_what_a_configuration_takes_the_vote_from_has_none_with_a_baseline_either():
    config = Config(measure_only=frozenset({CODE}))
    report = diagnose(replace(history(LEVEL + 1), baseline=usual()), config)
    assert report.verdict is Verdict.PASS


def test_thresholds_of_the_comparison_with_other_runs_are_still_understood():
    config = Config(thresholds={"odd-one-out": {"deviations": 3.0, "worse": 0.1, "above": 0.6}})
    assert [note.partition(" ")[0] for note in config.notes] == [
        "rules.odd-one-out.deviations",
        "rules.odd-one-out.worse",
    ]
    report = diagnose(replace(history(LEVEL + 1), baseline=usual()), config)
    assert next(one for one in report.results if one.code == CODE).verdict is Verdict.PASS
