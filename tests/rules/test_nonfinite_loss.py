"""LOS001."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

CODE = "LOS001"
LOSSES = st.lists(st.sampled_from([1.0, 2.0, -3.0, math.nan, math.inf, -math.inf]), min_size=1, max_size=300)


def naive(losses, plain, max_share=0.01, tail_share=0.1):
    absent = plain.not_taken(losses)
    losses = [loss for place, loss in enumerate(losses) if place not in absent]
    bad = [index for index, loss in enumerate(losses) if math.isnan(loss) or math.isinf(loss)]
    tail = max(1, round(len(losses) * tail_share))
    if not bad:
        return "pass", 0
    after = losses[bad[-1] + 1 :]
    recovered = bool(after) and (len(bad) == 1 or (len(set(after)) > 1 and len(bad) / len(losses) <= 0.05))
    dead = not recovered and (len(bad) / len(losses) >= max_share or bad[-1] >= len(losses) - tail)
    return ("fail" if dead else "warn"), len(bad)


@given(losses=LOSSES)
def test_against_plain_python(losses, plain, make, judge):
    result = judge(CODE, make.evidence(losses))
    assert (result.verdict, result.measured["nonfinite"]) == naive(losses, plain)


@given(losses=LOSSES, max_share=st.floats(0.001, 1.0), tail_share=st.floats(0.001, 1.0))
def test_other_thresholds_against_plain_python(losses, max_share, tail_share, plain, make, judge):
    result = judge(CODE, make.evidence(losses), max_share=max_share, tail_share=tail_share)
    assert result.verdict == naive(losses, plain, max_share, tail_share)[0]


def test_worked_example(make, judge):
    """One of 200 points is NaN, less than one in a hundred, and none of the last twenty: a warning, at its step."""
    losses = np.full(200, 1.5)
    losses[120] = math.nan
    result = judge(CODE, make.evidence(losses))
    assert (result.verdict, result.steps, result.measured["share"]) == ("warn", (120,), 0.005)
    assert "finite again, 1.5 at the end" in result.message


def test_healthy(healthy_name, healthy, make, judge):
    result = judge(CODE, make.evidence(getattr(healthy, healthy_name)()))
    assert result.verdict == "pass"
    assert result.measured["nonfinite"] == 0


def test_nan_from_step_800_on(sick, make, judge):
    result = judge(CODE, make.evidence(sick.nan_at_800()))
    assert result.verdict == "fail"
    assert "200 of 1000 points" in result.message
    assert "step 800" in result.message
    assert "step 799" in result.remedy
    assert result.steps == (800, 999)


def test_one_nan_with_a_finite_tail_is_a_warning(healthy, make, judge):
    losses = healthy.descent(n=400)
    losses[120] = np.nan
    result = judge(CODE, make.evidence(losses))
    assert result.verdict == "warn"
    assert result.steps == (120,)
    assert "finite again" in result.message


@pytest.mark.parametrize(("bad", "verdict"), [(1, "warn"), (2, "fail"), (3, "fail")])
def test_boundary_of_the_share(bad, verdict, make, judge):
    losses = np.ones(200)
    losses[10 : 10 + bad] = np.inf
    assert judge(CODE, make.evidence(losses)).verdict == verdict


@pytest.mark.parametrize(("index", "verdict"), [(898, "warn"), (899, "fail"), (998, "fail")])
def test_boundary_of_the_tail(index, verdict, make, judge):
    losses = np.ones(1000)
    losses[[500, index + 1]] = np.nan
    assert judge(CODE, make.evidence(losses)).verdict == verdict


@pytest.mark.parametrize("role", ["train_loss", "val_loss"])
@pytest.mark.parametrize("place", [1, 17, 33])
def test_a_single_nan_before_finite_values_fails_no_run(place, role, make, judge):
    """It did not reach the weights, however few the points are; a last one may have."""
    losses = np.linspace(2.0, 1.0, 35)
    losses[place] = math.nan
    result = judge(CODE, make.evidence(make.series(losses, role=role)))
    assert (result.verdict, result.steps) == ("warn", (place,))
    losses[[place, 34]] = 1.5, math.nan
    assert judge(CODE, make.evidence(make.series(losses, role=role))).verdict == "fail"


@pytest.mark.parametrize("role", ["train_loss", "val_loss", "objective_loss"])
@pytest.mark.parametrize(
    ("bad", "end", "verdict", "where"),
    [
        ((5, 17), "falls", "warn", "at steps 5 and 17; finite again"),
        ((5, 37), "falls", "warn", "at steps 5 and 37; finite again"),
        ((5, 17), "one number", "fail", "last at step 17"),
        ((5, 38), "falls", "fail", "last at step 38"),
        ((5, 39), "falls", "fail", "last at step 39"),
        ((5, 11, 17), "falls", "fail", "last at step 17"),
    ],
)
def test_few_nans_from_each_of_which_the_loss_recovered(bad, end, verdict, where, role, make, judge):
    """One value after the last of several does not show yet that the weights live."""
    losses = np.linspace(2.0, 1.0, 40)
    if end == "one number":
        losses[bad[-1] :] = 2.3
    losses[list(bad)] = math.nan
    result = judge(CODE, make.evidence(make.series(losses, role=role)))
    assert (result.verdict, result.onset is None or bad[-1] == 39) == (verdict, True)
    assert where in result.message


def test_a_recovered_loss_may_not_be_as_good_as_infinite(make, judge):
    losses = np.linspace(2.0, 1.0, 40)
    losses[[5, 17]] = math.nan
    losses[30:] = np.linspace(1e31, 2e31, 10)
    assert judge(CODE, make.evidence(losses)).verdict == "fail"


def test_a_nan_that_a_resume_wrote_over_is_no_finding(make, judge):
    losses = [3.0, 2.5, np.nan, np.nan, 2.4, 2.2, 2.0]
    result = judge(CODE, make.evidence(losses, steps=[0, 1, 2, 3, 2, 3, 4]))
    assert result.verdict == "pass"
    assert result.measured["points"] == 5


def test_the_newest_value_by_time_counts_whatever_the_order(make, judge):
    steps, times = [0, 1, 2, 2], [10.0, 20.0, 40.0, 30.0]
    stale_nan = make.series([3.0, 2.0, 1.0, np.nan], steps, times=times)
    fresh_nan = make.series([3.0, 2.0, np.nan, 1.0], steps, times=times)
    assert judge(CODE, make.evidence(stale_nan)).verdict == "pass"
    assert judge(CODE, make.evidence(fresh_nan)).verdict == "fail"


def test_a_nan_hidden_behind_the_latest_value_is_found(make, judge):
    """A summary appended at step 0 after the run is the newest value of step 0 and of no other."""
    losses = [3.0, 2.0, np.nan, 1.0, 1.0, 1.36]
    assert judge(CODE, make.evidence(losses, steps=[0, 1, 2, 3, 4, 0])).verdict == "warn"


@pytest.mark.parametrize("role", ["val_loss", "objective_loss"])
def test_the_other_losses_are_judged_too_and_the_worst_is_told(role, make, judge):
    other = make.series([1.0, np.nan], role=role, name="the/other")
    result = judge(CODE, make.evidence([3.0, 2.0, 1.0], other))
    assert result.verdict == "fail"
    assert "the/other" in result.message


def test_an_empty_series_beside_a_good_one(make, judge):
    assert judge(CODE, make.evidence([1.0], make.series([], role="val_loss"))).verdict == "pass"


def test_one_point(make, judge):
    assert judge(CODE, make.evidence([1.0])).verdict == "pass"
    result = judge(CODE, make.evidence([np.nan]))
    assert result.verdict == "fail"
    assert "1 of 1 point " in result.message
    assert "very first value" in result.remedy


def with_validation(make, losses, held_out, steps=None):
    return make.evidence(losses, make.series(held_out, steps, role="val_loss"))


@pytest.mark.parametrize("first", [0, 4, 9])
def test_nan_stands_for_what_was_not_measured(first, healthy, make, judge):
    """As where every row has every column, and the validation loss is measured every tenth step."""
    held_out = np.full(400, np.nan)
    held_out[first::10] = 1.0
    assert judge(CODE, with_validation(make, healthy.descent(n=400), held_out)).verdict == "pass"
    held_out[300:] = np.nan
    assert judge(CODE, with_validation(make, healthy.descent(n=400), held_out)).verdict == "fail", "it came to an end"


def test_nan_in_the_rows_of_the_validation(healthy, make, judge):
    losses, steps = healthy.descent(n=400), [17, 90, 150, 260, 399]
    losses[steps] = np.nan
    assert judge(CODE, with_validation(make, losses, np.ones(5), steps)).verdict == "pass"
    losses[200] = np.nan
    assert judge(CODE, with_validation(make, losses, np.ones(5), steps)).verdict == "fail", "there was no validation"


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_stands_before_the_first_validation(value, healthy, make, judge):
    held_out = np.ones(21)
    held_out[:3] = value
    assert judge(CODE, with_validation(make, healthy.descent(n=21), held_out)).verdict == "pass"
    losses = healthy.descent(n=21)
    losses[0] = value
    assert judge(CODE, with_validation(make, losses, np.ones(21))).verdict == "warn", (
        "the training's own is no placeholder"
    )


def with_part(make, healthy, values):
    return make.evidence(healthy.descent(n=len(values)), make.series(values, role="loss_part", name="loss_seg"))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_part_of_the_loss_that_is_lost_for_good(bad, healthy, make, judge):
    result = judge(CODE, with_part(make, healthy, [0.5] * 60 + [bad] * 40))
    assert result.verdict == "warn"
    assert "loss_seg" in result.message
    assert result.steps == (60,)


PARTS = {
    "never measured": [math.nan] * 100,
    "not yet lost": [0.5] * 91 + [math.nan] * 9,
    "measured now and then": [0.5, math.nan, math.nan, math.nan] * 25 + [0.4],
    "measured in the second half": [math.nan] * 50 + [0.5] * 50,
    "finite": [0.5] * 100,
}


@pytest.mark.parametrize("values", PARTS.values(), ids=PARTS)
def test_a_part_of_the_loss_may_have_nothing_to_measure(values, healthy, make, judge):
    assert judge(CODE, with_part(make, healthy, values)).verdict == "pass"


def test_a_lost_part_does_not_hide_a_lost_loss(make, judge):
    lost = [0.5] * 60 + [math.nan] * 40
    evidence = make.evidence(lost, make.series(lost, role="loss_part", name="loss_seg"))
    assert judge(CODE, evidence).verdict == "fail"


@pytest.mark.parametrize(
    ("name", "values", "verdict"),
    [
        ("train/ppl", [np.inf] * 5 + [3e4, 900.0, 80.0] * 10, "pass"),
        ("train/ppl", [np.inf] * 5 + [3e4, 900.0, np.inf] * 10, "fail"),
        ("train/ppl", [np.inf] * 40, "fail"),
        ("train/ppl", [np.nan] * 5 + [3e4, 900.0, 80.0] * 10, "fail"),
        ("train/loss", [np.inf] * 5 + [10.3, 6.8, 4.4] * 10, "fail"),
    ],
)
def test_a_perplexity_may_begin_beyond_the_largest_number(name, values, verdict, make, judge):
    assert judge(CODE, make.evidence(make.series(values, name=name))).verdict == verdict


@pytest.mark.parametrize(("name", "end", "verdict"), [
    ("train_loss", 4e31, "fail"), ("train_loss", -4e31, "fail"), ("train_loss", 4e20, "pass"), ("perplexity", 4e31, "pass"),
])  # fmt: skip
def test_a_loss_that_is_as_good_as_infinite(name, end, verdict, make, judge):
    """Whatever it began with: a log of epochs may begin behind the explosion."""
    values = [2.0, *np.linspace(end / 2, end, 19)]
    series = make.series(values, name=name, role="train_loss")
    assert judge(CODE, make.evidence(series)).verdict == verdict
    assert judge(CODE, make.evidence(make.series([end, *[2.0] * 19], name=name, role="train_loss"))).verdict == "pass"


@pytest.mark.parametrize("last", [2e30, 8.98846567431158e307, 1.7976931348623157e308])
@pytest.mark.parametrize("points", [1, 2, 3, 4])
def test_an_end_beyond_1e30_is_as_good_as_infinite(last, points, make, judge):
    result = judge(CODE, make.evidence([*np.linspace(2.0, 1.0, 9 * points), *[last] * points]))
    assert result.verdict == "fail"
    assert "e+" in result.message
    assert judge(CODE, make.evidence([2.0] * 9 * points + [-last] * points)).verdict == "fail"
