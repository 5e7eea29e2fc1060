"""LOS002."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

CODE = "LOS002"
NAN = float("nan")
SUDDEN = np.r_[np.full(20, 2.0), np.zeros(20)]
HINGE = np.r_[np.exp(-0.3 * np.arange(20)), np.zeros(20)]  # it comes down to 0.003, and is truly 0 from there on


def test_worked_example(make, judge):
    """The fourth mean is of two good values and eight zeros: the level before the zeros is the lowest of the first three."""
    result = judge(CODE, make.evidence([2.1, 2.0, 1.9, 0.2, 0.0, 0.0, 0.0], steps=np.arange(0, 70, 10)))
    assert (result.verdict, result.confidence, result.steps) == ("fail", "high", (40,))
    assert "exactly 0.0 for 3 points from step 40, after 1.9" in result.message
    assert "logging_nan_inf_filter=False" in result.remedy


def test_a_mean_of_good_values_and_zeros_hides_nothing(make, judge):
    """However few good values it is of, and although the validation loss is finite."""
    held_out = make.series(np.full(8, 1.9), np.arange(0, 400, 50), role="val_loss")
    for mean in (1.0, 0.1, 0.001):
        losses = [*np.full(19, 2.0), mean, *np.zeros(20)]
        result = judge(CODE, make.evidence(losses, held_out, steps=np.arange(0, 400, 10)))
        assert (result.verdict, result.confidence) == ("fail", "high")


def test_healthy(healthy_name, healthy, make, judge):
    assert judge(CODE, make.evidence(getattr(healthy, healthy_name)())).verdict == "pass"


def test_749_of_750_rows_are_zero(sick, make, judge):
    result = judge(CODE, make.evidence(sick.masked_zeros()))
    assert result.verdict == "fail"
    assert result.measured["longest_run"] == 749


def test_one_zero_beside_a_nan_gradient_is_enough(make, judge):
    gradient = make.series([1.0, NAN, 1.0], [10, 20, 30], role="grad_norm")
    result = judge(CODE, make.evidence([2.0, 0.0, 1.9], gradient, steps=[10, 20, 30]))
    assert (result.verdict, result.confidence, result.steps) == ("fail", "high", (20,))
    elsewhere = make.series([NAN, 1.0], [15, 20], role="grad_norm")
    assert judge(CODE, make.evidence([2.0, 0.0, 1.9], elsewhere, steps=[10, 20, 30])).verdict == "pass"


@pytest.mark.parametrize(("zeros", "verdict"), [(0, "pass"), (2, "pass"), (3, "fail")])
def test_boundary_of_the_run_of_zeros(zeros, verdict, make, judge):
    assert judge(CODE, make.evidence([2.0, 1.9, 1.9, *[0.0] * zeros])).verdict == verdict


def test_zeros_after_which_the_loss_goes_on_are_unsure(make, judge):
    result = judge(CODE, make.evidence([2.0, 1.9, 1.8, *[0.0] * 4, *[1.7] * 20]))
    assert (result.verdict, result.confidence) == ("warn", "low")


def test_what_the_log_rounds_away(sick, make, judge):
    """Unless the log shows its last digit, a loss that came down to nothing is unsure."""
    losses = sick.memorised()
    assert judge(CODE, make.evidence(losses)).verdict == "pass"
    assert (judge(CODE, make.evidence(losses * 0.7)).verdict) == "warn"


@pytest.mark.parametrize(
    ("losses", "beside", "verdict"),
    [
        (HINGE, {"grad_norm": np.r_[np.ones(20), np.full(20, 0.1)]}, "pass"),
        (HINGE, {"val_loss": np.linspace(1.0, 0.3, 40)}, "pass"),
        (HINGE, {"grad_norm": np.r_[np.ones(39), NAN]}, "fail"),
        (HINGE, {"val_loss": np.r_[np.ones(20), np.full(20, NAN)]}, "warn"),
        (HINGE, {"grad_norm": np.r_[np.ones(20), np.zeros(20)]}, "warn"),  # replaced, as the loss was
        (SUDDEN, {"grad_norm": np.ones(40)}, "fail"),
        (SUDDEN, {"val_loss": np.ones(40)}, "fail"),
    ],
)
def test_what_was_logged_beside_the_zeros_tells_whether_they_are_true(losses, beside, verdict, make, judge):
    series = [make.series(values, role=role) for role, values in ({"train_loss": losses} | beside).items()]
    assert judge(CODE, make.evidence(*series)).verdict == verdict


def test_always_zero_is_not_computed_except_of_a_policy(make, judge):
    found = judge(CODE, make.evidence(np.zeros(50)))
    assert (found.verdict, "exactly 0 at all 50 points" in found.message) == ("warn", True)
    reward = make.series(np.linspace(0.0, 1.0, 50), role="train_reward")
    assert judge(CODE, make.evidence(make.series(np.zeros(50)), reward)).verdict == "pass"


def test_zeros_that_a_resume_wrote_over_pass(make, judge):
    losses = [2.0, 0.0, 0.0, 0.0, 1.9, 1.8, 1.7]
    assert judge(CODE, make.evidence(losses, steps=[0, 1, 2, 3, 1, 2, 3])).verdict == "pass"


@given(
    losses=st.lists(st.sampled_from([0.0, -0.0, 1e-6, 0.5, 2.0, NAN]), min_size=2, max_size=40),
    power=st.integers(-20, 20),
)
def test_the_unit_changes_nothing(losses, power, make, judge):
    plain, scaled = (judge(CODE, make.evidence(np.array(losses) * 2.0**one)) for one in (0, power))
    assert plain.verdict in (scaled.verdict, "pass")  # but for what the log rounds
