import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.evidence import Evidence, Part, RunInfo, RunRef, Series, StepUnit

REF = RunRef(store="directory", id="x", name="x")


def series(points, times=None, **more):
    steps, values = zip(*points, strict=True) if points else ((), ())
    return Series(
        name=more.pop("name", "loss"),
        steps=np.array(steps, dtype=np.int64),
        values=np.array(values, dtype=np.float64),
        times=None if times is None else np.array(times, dtype=np.float64),
        **more,
    )


def pairs(one):
    return list(zip(one.steps.tolist(), one.values.tolist(), strict=True))


def naive_clean(points, times):
    """Slow and obvious: walk the points as they came, let a later one overwrite, leave out a tail at the first step."""
    order = sorted(range(len(points)), key=lambda i: times[i]) if times is not None else range(len(points))
    arrived = [points[i] for i in order]
    first = min((step for step, _ in points), default=0)
    tail = 0
    while tail < len(arrived) and arrived[-1 - tail][0] == first:
        tail += 1
    if tail < len(arrived):
        arrived = arrived[: len(arrived) - tail]
    return sorted(dict(arrived).items())


points_strategy = st.lists(st.tuples(st.integers(-2, 12), st.floats(allow_nan=False)), max_size=30)


@given(points_strategy)
def test_clean_agrees_with_the_naive_way(points):
    assert pairs(series(points).clean()) == naive_clean(points, None)


@given(
    points_strategy.flatmap(
        lambda points: st.tuples(
            st.just(points), st.lists(st.integers(0, 5), min_size=len(points), max_size=len(points))
        )
    )
)
def test_clean_goes_by_time_where_there_are_times(drawn):
    points, times = drawn
    assert pairs(series(points, times).clean()) == naive_clean(points, times)


@given(points_strategy)
def test_cleaning_twice_changes_nothing(points):
    once = series(points).clean()
    assert pairs(once.clean()) == pairs(once)
    assert len(set(once.steps.tolist())) == len(once)


def counted_from(*starts_and_ends):
    """A history whose step counter went back: values tell the passes apart."""
    return series(
        [(step, float(turn)) for turn, (start, end) in enumerate(starts_and_ends) for step in range(start, end)]
    )


def test_a_shorter_run_into_the_same_history_is_not_continued_by_the_one_before():
    one = counted_from((0, 100), (0, 40))
    assert (one.superseded, one.went_back) == (100, False)
    assert pairs(one.clean()) == [(step, 1.0) for step in range(40)]


def test_of_folds_in_one_history_the_last_is_left():
    one = counted_from((0, 100), (0, 100), (0, 90))
    assert one.superseded == 200
    assert {value for _, value in pairs(one.clean())} == {2.0}


@pytest.mark.parametrize(
    "passes",
    [
        [(0, 100), (0, 100)],  # written over
        [(0, 100), (0, 120)],
        [(0, 100), (60, 140)],  # a resume
        [(0, 100), (0, 5)],  # a few points in disorder
        [(0, 100)],
    ],
)
def test_histories_that_need_no_parting(passes):
    one = counted_from(*passes)
    assert (one.superseded, one.went_back) == (0, False)
    assert len(one.clean()) == max(end for _, end in passes)


def test_a_resume_that_ended_before_the_first_try_did_is_told():
    one = counted_from((0, 100), (60, 80))
    assert (one.superseded, one.went_back) == (0, True)
    assert [value for _, value in pairs(one.clean())] == [0.0] * 60 + [1.0] * 20 + [0.0] * 20


def test_a_resume_overwrites_and_goes_on():
    history = [(0, 5.0), (1, 4.0), (2, math.nan), (3, math.nan), (2, 3.0), (3, 2.0)]
    assert pairs(series(history).clean()) == [(0, 5.0), (1, 4.0), (2, 3.0), (3, 2.0)]


def test_a_summary_at_step_0_does_not_replace_the_first_loss():
    one = series([(0, 1.3), (1, 0.8), (2, 0.01), (0, 0.005)])
    assert one.summaries == 1
    assert pairs(one.clean()) == [(0, 1.3), (1, 0.8), (2, 0.01)]


def test_a_history_logged_without_steps_is_no_tail():
    assert series([(0, 3.0), (0, 2.0), (0, 1.0)]).summaries == 0


def test_nonfinite_values_are_kept_and_counted():
    one = series([(0, math.nan), (1, math.inf), (2, 1.0)])
    assert one.nonfinite == 2
    assert len(one.clean()) == 3
    assert pairs(one.finite()) == [(2, 1.0)]


def test_the_longest_history_of_a_role_is_taken():
    short = series([(0, 1.0)], name="a", role="train_loss")
    long = series([(0, 1.0), (1, 2.0)], name="b", role="train_loss")
    evidence = Evidence(run=REF, series=(short, long))
    assert evidence.first("train_loss") is long
    assert evidence.find("val_loss") is None
    with pytest.raises(LookupError, match="needs"):
        evidence.first("val_loss")


def test_epoch_numbered_series_do_not_count_optimizer_steps():
    epochs = series([(0, 1.0), (30, 0.5)], role="train_loss")
    steps = series([(0, 1.0), (900, 0.5)], role="train_loss", step_unit=StepUnit.OPTIMIZER_STEP)
    assert Evidence(run=REF, series=(epochs,)).optimizer_steps is None
    assert Evidence(run=REF, series=(steps,)).optimizer_steps == 900


def test_a_lone_row_is_no_count_of_steps_where_others_go_on():
    start = series([(0, 3e-4)], name="lr", role="learning_rate", step_unit=StepUnit.OPTIMIZER_STEP)
    rows = series([(step, 1.0) for step in range(40)], role="train_loss", step_unit=StepUnit.UNKNOWN)
    assert Evidence(run=REF, series=(start, rows)).optimizer_steps is None
    assert Evidence(run=REF, series=(start,)).optimizer_steps is None
    short = series([(3, 2.0)], role="train_loss", step_unit=StepUnit.OPTIMIZER_STEP)
    assert Evidence(run=REF, series=(short,)).optimizer_steps == 3


def test_a_global_step_metric_counts_optimizer_steps():
    counter = series([(0, 10.0), (1, 20.0)], name="train/global_step", role="global_step")
    assert Evidence(run=REF, series=(counter,)).optimizer_steps == 20


@pytest.mark.parametrize(
    ("params", "info", "expected"),
    [
        ({"max_steps": "100"}, {"global_step": 50}, (50, 100, "optimizer steps")),
        ({"max_steps": "-1", "num_train_epochs": "4"}, {"global_step": 50, "epoch": 3.0}, (3.0, 4, "epochs")),
        ({"max_steps": "not a number"}, {"global_step": 50}, None),
        ({"max_steps": "nan"}, {"global_step": 50}, None),
        ({}, {"global_step": 50}, None),
        ({"max_steps": "100"}, {}, None),
    ],
)
def test_progress_from_plan_and_steps(params, info, expected):
    progress = Evidence(run=REF, info=RunInfo(params=params, **info)).progress
    assert (progress and (progress.done, progress.planned, progress.unit)) == expected


@pytest.mark.parametrize(
    ("epochs", "done"),
    [
        ([0, 1, 2, 3, 4], 5),
        ([1, 2, 3, 4], 4),
        ([0.0, 0.5, 1.0, 4.8], 4.8),
        ([0.2, 3.0], 3.0),
        ([0], 1),
        ([math.nan], None),
    ],
)
def test_whole_epochs_counted_from_0_name_the_epoch_they_are_in(epochs, done):
    counter = series(list(enumerate(epochs)), name="epoch", role="epoch")
    progress = Evidence(run=REF, series=(counter,), info=RunInfo(params={"max_epochs": "5"})).progress
    assert (progress and progress.done) == done


@pytest.mark.parametrize(
    ("status", "snapshot"),
    [("RUNNING", True), ("SCHEDULED", True), ("FINISHED", False), ("FAILED", False), ("", False)],
)
def test_a_run_that_goes_on_has_not_ended_there(status, snapshot):
    info = RunInfo(params={"max_steps": "100"}, global_step=50, status=status)
    assert Evidence(run=REF, info=info).progress.snapshot is snapshot


def test_amounts_of_what_is_not_there_are_0():
    evidence = Evidence(run=REF)
    assert [evidence.amount(part) for part in Part] == [0] * len(Part)
    assert evidence.amount("train_loss") == 0
