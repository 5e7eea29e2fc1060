"""AMP001."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.rules.gradients.loss_scale import LossScale
from tracker_health.text import number

CODE = "AMP001"
RULE = LossScale()
FEW = settings(max_examples=draws(120), deadline=None)


def evidence_of(make, scales, steps=None):
    return make.evidence(None, make.series(scales, steps, role="loss_scale"))


def scaler(overflows, n=1000, *, start=65536.0, growth=2000):
    """What torch's GradScaler does: halves at an overflow, doubles after that many steps without one."""
    scales, scale, calm = [], start, 0
    for step in range(n):
        if step in overflows:
            scale, calm = scale / 2, 0
        else:
            calm += 1
            if calm == growth:
                scale, calm = scale * 2, 0
        scales.append(scale)
    return np.array(scales)


@pytest.mark.parametrize(
    "overflows",
    [(), range(6), (3, 9, 20), (500,), range(0, 20_000, 500), (*range(6), 900, 950, 4000)],
    ids=["none", "calibration", "slow calibration", "single", "regular", "mixed"],
)
@pytest.mark.parametrize("stride", [1, 10, 50])
def test_healthy(overflows, stride, make, judge):
    scales = scaler(frozenset(overflows), 20_000, growth=400)[::stride]
    result = judge(CODE, evidence_of(make, scales, np.arange(len(scales)) * stride))
    assert result.verdict == "pass", result.message
    assert f"ends at {number(scales[-1])}" in result.message


@pytest.mark.parametrize("n", [20, 40, 60, 1000])
def test_the_first_calibration(n, make, judge):
    """65536 is halved six times in the first steps."""
    assert judge(CODE, evidence_of(make, scaler(range(6), n))).verdict == "pass"
    assert judge(CODE, evidence_of(make, scaler(range(1, 7), n))).verdict == "pass"


@pytest.mark.parametrize("value", [1.0, 128.0, 65536.0, 2.0**24])
def test_a_static_scale(value, make, judge):
    assert judge(CODE, evidence_of(make, np.full(50, value))).verdict == "pass"


def test_a_scale_that_collapses(make, judge):
    """Every step overflows from step 600 on."""
    scales = scaler(range(600, 640))
    result = judge(CODE, evidence_of(make, scales))
    assert result.verdict == "fail"
    assert f"fell from 65536 to {number(scales[-1])}; it was halved 40 times within 100 steps" in result.message
    assert 600 <= result.steps[0] < 700
    assert "bf16" in result.remedy


@pytest.mark.parametrize("stride", [1, 10, 100])
def test_halved_again_and_again(stride, make, judge):
    """Sparse logs show how far it fell; a fall to a 64th counts as six."""
    scales = scaler(range(601, 607))[::stride]
    result = judge(CODE, evidence_of(make, scales, np.arange(len(scales)) * stride))
    assert (result.verdict, result.measured["most_halvings"]) == ("fail", 6)


def test_a_slow_fall_below_one(make, judge):
    scales = 2.0 ** -np.arange(20.0)
    assert judge(CODE, evidence_of(make, 512 * scales, np.arange(20) * 1000)).verdict == "fail"
    assert judge(CODE, evidence_of(make, 2.0**19 * scales, np.arange(20) * 1000)).verdict == "pass"


def test_a_scale_that_underflowed_to_zero(make, judge):
    assert judge(CODE, evidence_of(make, [65536.0] * 10 + [0.0] * 90)).verdict == "fail"


@pytest.mark.parametrize(("end", "verdict"), [(1.0, "pass"), (0.999, "fail")])
def test_boundary_of_the_scale(end, verdict, make, judge):
    assert judge(CODE, evidence_of(make, [*[2.0] * 50, *[end] * 50])).verdict == verdict


@pytest.mark.parametrize(("amount", "verdict"), [(RULE.halvings - 1, "pass"), (RULE.halvings, "fail")])
def test_boundary_of_the_halvings(amount, verdict, make, judge):
    assert judge(CODE, evidence_of(make, scaler(range(500, 500 + amount)))).verdict == verdict


@pytest.mark.parametrize(("extra", "verdict"), [(-1, "fail"), (0, "pass")])
def test_boundary_of_the_window(extra, verdict, make, judge):
    """The first and the last of the halvings lie that far apart: the window holds as many steps as it says."""
    last = 500 + RULE.window + extra
    overflows = {500, *range(last - RULE.halvings + 2, last + 1)}
    assert len(overflows) == RULE.halvings
    assert judge(CODE, evidence_of(make, scaler(overflows))).verdict == verdict


@pytest.mark.parametrize(("first", "verdict"), [(99, "pass"), (100, "pass"), (101, "fail")])
def test_boundary_of_the_first_tenth(first, verdict, make, judge):
    """The fall to the point at which judging begins is over by then."""
    assert judge(CODE, evidence_of(make, scaler(range(first, first + RULE.halvings)))).verdict == verdict


def test_nan_inf_and_few_points(make, judge):
    assert judge(CODE, evidence_of(make, [np.nan, 65536.0, np.inf, *[65536.0] * 9])).verdict == "pass"
    assert judge(CODE, evidence_of(make, [np.nan] * 20)).verdict == "SkippedProbe"
    assert judge(CODE, evidence_of(make, [1.0] * (RULE.min_points - 1))).verdict == "SkippedProbe"
    assert judge(CODE, evidence_of(make, [0.5] * (RULE.min_points - 1))).verdict == "SkippedProbe"
    assert judge(CODE, evidence_of(make, [0.0] * (RULE.min_points - 1))).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence([1.0] * 50)).verdict == "SkippedProbe"


# The scale that the scaler saved


def saved(make, scale, logged=None, steps=None):
    state = make.state(make.tensor(0), loss_scale=scale)
    more = [] if logged is None else [make.series(logged, steps, role="loss_scale")]
    return make.evidence([1.0] * 50, *more, optimizer=state)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 2.0**-16, 0.5])
def test_a_saved_scale_that_collapsed(scale, make, judge):
    """No log of it is needed."""
    result = judge(CODE, saved(make, scale))
    assert result.verdict == "fail"
    assert f"saved in training_state.pt is {number(scale)}, below 1" in result.message
    assert result.measured == {"end": scale}


@pytest.mark.parametrize("scale", [1.0, 128.0, 65536.0, 2.0**24])
def test_a_saved_scale_that_is_sound(scale, make, judge):
    result = judge(CODE, saved(make, scale))
    assert (result.verdict, result.measured["end"]) == ("pass", scale)


@pytest.mark.parametrize("scale", [None, -1.0])
def test_no_saved_scale(scale, make, judge):
    assert judge(CODE, saved(make, scale)).verdict == "SkippedProbe"


def test_a_saved_scale_beside_a_logged_one(make, judge):
    healthy, storm = np.full(50, 65536.0), scaler(range(600, 640))
    assert judge(CODE, saved(make, 65536.0, healthy)).message == "the loss scale ends at 65536"
    assert "saved in" in judge(CODE, saved(make, 2.0**-20, healthy)).message
    assert "halved 40 times" in judge(CODE, saved(make, 2.0**-20, storm)).message
    assert judge(CODE, saved(make, 65536.0, storm)).verdict == "fail"
    for few in ([65536.0] * 3, [0.0] * 50):
        assert judge(CODE, saved(make, 65536.0, few)).verdict == "pass"
        assert judge(CODE, saved(make, 0.0, few)).verdict == "fail"


@pytest.mark.parametrize("stride", [101, 1000])
def test_a_single_fall_in_a_sparse_log_was_no_storm(stride, make, judge):
    """Points each thousand steps: 65536 had all that time to come down to 1024."""
    scales = [65536.0] * 20 + [1024.0] * 20
    result = judge(CODE, evidence_of(make, scales, np.arange(1, 41) * stride))
    assert result.measured["most_halvings"] == pytest.approx(6 * 100 / stride)
    assert result.verdict == ("pass" if stride == 1000 else "fail")


def resumed(levels=9, after=7):
    """A run that finds its level, and a resume with a new scaler that has to find it again."""
    once = [2.0 ** (16 - min(step, levels)) for step in range(500)]
    return once + [2.0 ** (16 - min(step, after)) for step in range(500)]


def test_a_resume_that_resets_the_scaler(make, judge):
    assert judge(CODE, evidence_of(make, resumed())).verdict == "pass"
    assert judge(CODE, evidence_of(make, resumed(after=13))).verdict == "pass"
    assert judge(CODE, evidence_of(make, resumed(levels=7, after=12))).verdict == "fail"
    assert judge(CODE, evidence_of(make, resumed(after=40))).verdict == "fail"


def test_messages_say_what_happened(make, judge):
    slow = judge(CODE, evidence_of(make, 512 * 2.0 ** -np.arange(20.0), np.arange(20) * 1000))
    assert slow.message == "the loss scale fell from 512 to 0.000977"
    still = judge(CODE, evidence_of(make, [0.25] * 50))
    assert still.message == "the loss scale is 0.25, below 1, and never was higher"
    assert judge(CODE, evidence_of(make, [0.0] * 50)).verdict == "SkippedProbe"


def test_worked_example(make, judge):
    """From 2^16 to 2^11 within 5 of 1000 steps: five halvings, as many as `halvings`."""
    result = judge(CODE, evidence_of(make, scaler(range(500, 505))))
    assert (
        result.message
        == "the loss scale fell from 65536 to 2048; it was halved 5 times within 100 steps from step 500 on"
    )


@FEW
@given(scales=st.lists(st.floats(0.01, 1e6), min_size=4, max_size=40), data=st.data())
def test_stricter_thresholds_never_find_more(scales, data, make, judge):
    assume(all(math.isfinite(scale) for scale in scales))
    looser, stricter = {}, {}
    for name, values, sign in (
        ("min_scale", st.floats(0.01, 100), 1),
        ("halvings", st.integers(2, 30), -1),
        ("window", st.integers(1, 60), 1),
    ):
        stricter[name], looser[name] = sorted([data.draw(values), data.draw(values)], key=lambda one: sign * one)
    evidence = evidence_of(make, scales)
    if judge(CODE, evidence, **stricter).verdict == "fail":
        assert judge(CODE, evidence, **looser).verdict == "fail"
