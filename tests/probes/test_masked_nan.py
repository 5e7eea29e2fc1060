"""LOS002."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

CODE = "LOS002"
LOSSES = st.lists(st.sampled_from([0.0, 0.0, -0.0, 1e-6, 0.5, 2.0, -1.0, float("nan")]), min_size=2, max_size=40)


def naive(losses, gradients=None, min_zeros=3, near_zero=0.01):
    if gradients is not None:
        for loss, gradient in zip(losses, gradients, strict=True):
            if loss == 0 and not abs(gradient) < float("inf"):
                return "fail"
    best_start, best_length, length = 0, 0, 0
    for index, loss in enumerate(losses):
        length = length + 1 if loss == 0 else 0
        if length > best_length:
            best_start, best_length = index - length + 1, length
    before = [loss for loss in losses[:best_start] if 0 < loss < float("inf")]
    if best_length < min_zeros or not before:
        return "pass"
    stretch = range(best_start, best_start + best_length)
    if (
        gradients is not None
        and min(before) < 0.1 * before[0]
        and all(abs(gradients[at]) < float("inf") for at in stretch)
    ):
        return "pass"
    last = max(index for index in range(best_start) if losses[index] > 0)
    amid = [loss for loss in losses[:last] if loss == 0]
    if len(amid) >= 3 and min(before) < 0.1 * before[0]:
        return "pass"
    later = [loss for loss in losses[best_start + best_length :] if 0 < loss < float("inf")]
    return "warn" if before[-1] <= near_zero * before[0] or len(later) >= best_length else "fail"


@given(losses=LOSSES)
def test_against_plain_python(losses, make, judge):
    assert judge(CODE, make.evidence(losses)).verdict == naive(losses)


@given(losses=LOSSES, data=st.data())
def test_with_gradients_against_plain_python(losses, data, make, judge):
    some = st.sampled_from([0.0, 1.0, float("nan"), float("inf")])
    gradients = data.draw(st.lists(some, min_size=len(losses), max_size=len(losses)))
    result = judge(CODE, make.evidence(losses, make.series(gradients, role="grad_norm")))
    assert result.verdict == naive(losses, gradients)


@pytest.mark.parametrize("seed", range(4))
def test_a_loss_that_is_truly_zero_for_easy_batches(seed, make, judge):
    """A hinge loss on data that can be separated: first now and then, then for longer and longer."""
    rng = np.random.default_rng(seed)
    losses = np.maximum(0.0, 0.5 * np.exp(-np.arange(600) / 80) + 0.01 * rng.standard_normal(600))
    losses[560:] = 0.0
    assert judge(CODE, make.evidence(losses)).verdict == "pass"


def test_skipped_batches_among_large_losses_are_no_such_zeros(make, judge):
    """Where a trainer writes 0.0 for NaN, now and then and then for good, the losses between are as large as ever."""
    losses = np.full(300, 2.0)
    losses[20:200:30] = 0.0
    losses[200:] = 0.0
    assert judge(CODE, make.evidence(losses)).verdict == "fail"


def test_zeros_after_which_the_loss_goes_on_are_unsure(make, judge):
    result = judge(CODE, make.evidence([2.0, 1.9, 1.8, *[0.0] * 4, *[1.7] * 20]))
    assert (result.verdict, result.confidence) == ("warn", "low")
    assert "positive again" in result.message


def test_healthy(healthy_name, healthy, make, judge):
    assert judge(CODE, make.evidence(getattr(healthy, healthy_name)())).verdict == "pass"


def test_749_of_750_rows_are_zero(sick, make, judge):
    result = judge(CODE, make.evidence(sick.masked_zeros()))
    assert result.verdict == "fail"
    assert "749 points from step 1" in result.message
    assert "logging_nan_inf_filter=False" in result.remedy
    assert result.measured["longest_run"] == 749


def test_a_loss_that_comes_down_to_zero_is_unsure(sick, make, judge):
    """Unless the log shows how it rounds: all that it has are whole units of its last decimal."""
    losses = sick.memorised()
    assert judge(CODE, make.evidence(losses)).verdict == "pass"
    result = judge(CODE, make.evidence(losses * 0.7))
    assert (result.verdict, result.confidence) == ("warn", "low")
    assert "rounding" in result.message


@pytest.mark.parametrize(("zeros", "verdict"), [(0, "pass"), (2, "pass"), (3, "fail")])
def test_boundary_of_the_run_of_zeros(zeros, verdict, make, judge):
    assert judge(CODE, make.evidence([2.0, 1.9, *[0.0] * zeros, 1.8, 0.0, 1.7])).verdict == verdict


@pytest.mark.parametrize(("level", "verdict"), [(0.02, "warn"), (0.020001, "fail")])
def test_boundary_of_near_zero(level, verdict, make, judge):
    assert judge(CODE, make.evidence([2.0, level, 0.0, 0.0, 0.0])).verdict == verdict


def test_one_zero_beside_a_nan_gradient_is_enough(make, judge):
    gradient = make.series([1.0, np.nan, 1.0], [10, 20, 30], role="grad_norm")
    result = judge(CODE, make.evidence([2.0, 0.0, 1.9], gradient, steps=[10, 20, 30]))
    assert (result.verdict, result.confidence, result.steps) == ("fail", "high", (20,))


def test_a_nan_gradient_at_another_step_is_none_of_its_business(make, judge):
    gradient = make.series([np.nan, 1.0], [15, 20], role="grad_norm")
    assert judge(CODE, make.evidence([2.0, 0.0, 1.9], gradient, steps=[10, 20, 30])).verdict == "pass"


def test_always_zero_is_left_to_no_progress(make, judge):
    assert judge(CODE, make.evidence(np.zeros(50))).verdict == "pass"


def test_single_zeros_of_a_hinge_loss_pass(make, judge):
    losses = np.abs(np.sin(np.arange(200) * 1.3)) * np.linspace(1, 0.1, 200)
    losses[50::7] = 0.0
    assert judge(CODE, make.evidence(losses)).verdict == "pass"


def test_zeros_that_a_resume_wrote_over_pass(make, judge):
    losses = [2.0, 0.0, 0.0, 0.0, 1.9, 1.8, 1.7]
    assert judge(CODE, make.evidence(losses, steps=[0, 1, 2, 3, 1, 2, 3])).verdict == "pass"


def test_a_single_point_is_skipped(make, judge):
    assert judge(CODE, make.evidence([0.0])).verdict == "SkippedProbe"


def hinge(points=40):
    """A ranking loss that comes down and is truly 0 from the middle on."""
    return np.where(np.arange(points) < points // 2, np.exp(-0.2 * np.arange(points)), 0.0)


@pytest.mark.parametrize(
    ("beside", "verdict"),
    [
        ({"grad_norm": [1.0] * 20 + [0.1] * 20}, "pass"),
        ({"grad_norm": [1.0] * 20 + [0.0] * 20}, "warn"),  # as where NaN is replaced before the backward pass
        ({"grad_norm": [1.0] * 20 + [0.0] * 19 + [np.nan]}, "fail"),
        ({"val_loss": np.linspace(1.0, 0.3, 40)}, "pass"),
        ({"val_loss": np.r_[np.linspace(1.0, 0.5, 20), np.full(20, np.nan)]}, "fail"),
        ({"val_loss": np.r_[np.linspace(1.0, 0.5, 20), np.full(20, 0.74)]}, "pass"),
        ({"val_loss": np.r_[np.linspace(1.0, 0.5, 20), np.full(20, 0.8)]}, "fail"),
        ({"val_loss": np.r_[np.linspace(1.0, 0.5, 20), np.zeros(20)]}, "fail"),
        ({}, "fail"),
    ],
)
def test_what_was_logged_beside_the_zeros_tells_whether_they_are_true(beside, verdict, make, judge):
    series = [make.series(values, role=role) for role, values in ({"train_loss": hinge()} | beside).items()]
    assert judge(CODE, make.evidence(*series)).verdict == verdict


def test_finite_gradients_do_not_excuse_zeros_that_come_out_of_nowhere(make, judge):
    loss = make.series(np.r_[np.full(20, 2.0), np.zeros(20)], role="train_loss")
    assert judge(CODE, make.evidence(loss, make.series(np.zeros(40), role="grad_norm"))).verdict == "fail"
