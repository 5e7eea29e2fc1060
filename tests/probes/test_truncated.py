"""RUN001."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.evidence import RunInfo, StepUnit

CODE = "RUN001"


def info(step=None, epoch=None, *, snapshot=False, **params):
    return RunInfo(
        global_step=step, epoch=epoch, snapshot=snapshot, params={name: str(one) for name, one in params.items()}
    )


@pytest.mark.parametrize(
    ("done", "verdict"), [(1, "warn"), (899, "warn"), (900, "pass"), (1000, "pass"), (1100, "pass")]
)
def test_boundaries(done, verdict, make, judge):
    result = judge(CODE, make.evidence(info=info(done, max_steps=1000)))
    assert result.verdict == verdict
    assert f"{done} of 1000 planned optimizer steps" in result.message
    assert result.measured["fraction"] == done / 1000


@given(done=st.integers(0, 2000), planned=st.integers(1, 2000), least=st.floats(0.01, 1.0))
def test_against_plain_python(done, planned, least, make, judge):
    result = judge(CODE, make.evidence(info=info(done, max_steps=planned)), min_fraction=least)
    assert result.verdict == ("pass" if done / planned >= least else "warn")


@pytest.mark.parametrize(("epoch", "verdict"), [(0.5, "warn"), (2.69, "warn"), (2.7, "pass"), (3.0, "pass")])
def test_by_epochs_where_no_steps_are_planned(epoch, verdict, make, judge):
    result = judge(CODE, make.evidence(info=info(500, epoch, num_train_epochs=3)))
    assert result.verdict == verdict
    assert "of 3 planned epochs" in result.message


def test_epochs_from_a_series(make, judge):
    epochs = make.series([0.5, 1.0, 1.5], role="epoch")
    assert judge(CODE, make.evidence([3.0, 2.0, 1.0], epochs, params={"epochs": "3"})).measured["done"] == 1.5


@pytest.mark.parametrize(
    ("logged", "verdict"),
    [
        (range(0, 300, 50), "pass"),
        (range(0, 300, 100), "pass"),
        (range(0, 200, 50), "warn"),
        (range(50, 300, 50), "pass"),  # the next one, 300, would have been logged
        (range(240), "warn"),
        ([0, 250], "warn"),  # two points have no rhythm
        ([0.0, 0.5, 1.0, 1.5, 200.0], "warn"),  # fractions are exact
    ],
)
def test_epochs_of_which_every_kth_is_logged(logged, verdict, make, judge):
    epochs = make.series(list(logged), role="epoch")
    losses = np.linspace(3, 1, len(epochs))
    assert judge(CODE, make.evidence(losses, epochs, params={"epochs": "300"})).verdict == verdict


def test_the_message_says_that_epochs_between_points_are_not_known(make, judge):
    epochs = make.series(range(0, 200, 50), role="epoch")
    result = judge(CODE, make.evidence(np.linspace(3, 1, 4), epochs, params={"epochs": "300"}))
    assert "151 of 300 planned epochs, logged every 50 (at most 67%)" in result.message


@pytest.mark.parametrize(
    ("steps", "verdict"), [((500, 2501, 500), "pass"), ((500, 2001, 500), "warn"), ((1, 2500, 1), "warn")]
)
def test_steps_of_which_every_kth_is_logged(steps, verdict, make, judge):
    counted = make.series(np.ones(len(range(*steps))), range(*steps), step_unit=StepUnit.OPTIMIZER_STEP)
    assert judge(CODE, make.evidence(counted, params={"max_steps": "2999"})).verdict == verdict


def test_steps_that_a_trainer_state_counts_are_exact(make, judge):
    counted = make.series(np.ones(5), range(500, 2501, 500), step_unit=StepUnit.OPTIMIZER_STEP)
    assert judge(CODE, make.evidence(counted, info=info(2500, max_steps=2999))).verdict == "warn"


def test_max_steps_of_minus_one_is_no_plan(make, judge):
    """Hugging Face writes max_steps = -1 when epochs decide."""
    assert judge(CODE, make.evidence(info=info(500, 3.0, max_steps=-1, num_train_epochs=3))).verdict == "pass"


@pytest.mark.parametrize("planned", ["", "none", "nan", "inf", "-5", "0", "1e999", "auto"])
def test_a_plan_that_is_no_number_is_skipped(planned, make, judge):
    assert judge(CODE, make.evidence(info=info(500, max_steps=planned))).verdict == "SkippedProbe"


def test_a_checkpoint_of_mid_training_passes(make, judge):
    result = judge(CODE, make.evidence(info=info(500, max_steps=1000, snapshot=True)))
    assert (result.verdict, result.confidence) == ("pass", "low")


@pytest.mark.parametrize(
    ("params", "verdict"),
    [
        ({"early_stopping": "True"}, "pass"),
        ({"early_stopping_patience": "3"}, "pass"),
        ({"patience": "10"}, "pass"),
        ({"early_stopping": "False"}, "warn"),
        ({"patience": "0"}, "warn"),
        ({"EarlyStop": "None"}, "warn"),
        ({"learning_rate": "1e-3"}, "warn"),
    ],
)
def test_early_stopping(params, verdict, make, judge):
    assert judge(CODE, make.evidence(info=info(500, max_steps=1000, **params))).verdict == verdict


def test_without_a_plan_or_without_steps_it_is_skipped(make, judge):
    assert judge(CODE, make.evidence(info=info(500))).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence(info=info(max_steps=500))).verdict == "SkippedProbe"


def test_the_status_of_the_tracker_is_no_evidence(make, judge):
    killed = RunInfo(status="FAILED", global_step=1000, params={"max_steps": "1000"})
    assert judge(CODE, make.evidence(info=killed)).verdict == "pass"


@given(done=st.integers(0, 2000), one=st.floats(0.01, 1.0), other=st.floats(0.01, 1.0))
def test_asking_for_less_never_finds_more(done, one, other, make, judge):
    lower, higher = sorted([one, other])
    evidence = make.evidence(info=info(done, max_steps=1000))
    if judge(CODE, evidence, min_fraction=higher).verdict == "pass":
        assert judge(CODE, evidence, min_fraction=lower).verdict == "pass"
