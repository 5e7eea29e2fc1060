"""OPT001."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.evidence import RunInfo, StepUnit

CODE = "OPT001"


def info(step, **params):
    return RunInfo(global_step=step, params={name: str(value) for name, value in params.items()})


def levelled(n=30):
    """A short fine-tune that has levelled off."""
    return 1.0 + 2.0 * np.exp(-12 * np.arange(n) / n)


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [(0, "fail"), (1, "fail"), (9, "fail"), (10, "warn"), (47, "warn"), (49, "warn"), (50, "pass"), (10**6, "pass")],
)
def test_boundaries(steps, verdict, make, judge):
    result = judge(CODE, make.evidence(info=info(steps)))
    assert result.verdict == verdict
    assert result.measured["optimizer_steps"] == steps
    if verdict != "pass":
        assert f"only {steps} optimizer step" in result.message


@given(steps=st.integers(0, 200), least=st.integers(1, 100), hopeless=st.integers(1, 100))
def test_against_plain_python(steps, least, hopeless, make, judge):
    result = judge(CODE, make.evidence(info=info(steps)), min_steps=least, hopeless_steps=hopeless)
    assert result.verdict == ("pass" if steps >= least else "fail" if steps < hopeless else "warn")


def test_a_complete_short_fine_tune_is_only_a_warning(make, judge):
    """1,000 samples, 3 epochs, batch 64."""
    rate = make.series(np.linspace(1e-4, 0, 47), role="learning_rate")
    evidence = make.evidence(levelled(), rate, info=info(47, max_steps=47))
    assert judge(CODE, evidence).verdict == "warn"


def test_the_plan_was_not_reached(make, judge):
    result = judge(CODE, make.evidence(levelled(), info=info(40, max_steps=100)))
    assert result.verdict == "fail"
    assert "40 % of the plan" in result.message


@pytest.mark.parametrize(("planned", "verdict"), [(44, "warn"), (45, "fail"), (40, "warn")])
def test_boundary_of_the_plan(planned, verdict, make, judge):
    assert judge(CODE, make.evidence(info=info(40, max_steps=planned))).verdict == verdict


def test_a_checkpoint_of_mid_training_does_not_corroborate(make, judge):
    snapshot = RunInfo(global_step=40, params={"max_steps": "100"}, snapshot=True)
    assert judge(CODE, make.evidence(info=snapshot)).verdict == "warn"


def test_epochs_are_never_steps(make, judge):
    by_epoch = make.series(levelled(5), step_unit=StepUnit.EPOCH)
    assert judge(CODE, make.evidence(by_epoch)).verdict == "SkippedProbe"
    by_call = make.series(levelled(5), step_unit=StepUnit.LOG_CALL)
    assert judge(CODE, make.evidence(by_call)).verdict == "SkippedProbe"


def test_the_steps_come_from_whoever_saw_the_most(make, judge):
    state = make.state(make.tensor(0, step=12.0), make.tensor(1, step=60.0), global_step=3)
    assert judge(CODE, make.evidence(optimizer=state)).measured["optimizer_steps"] == 60
    by_step = make.series(levelled(30), np.arange(30) * 10, step_unit=StepUnit.OPTIMIZER_STEP)
    assert judge(CODE, make.evidence(by_step, info=info(3))).measured["optimizer_steps"] == 290
    counter = make.series([10.0, 20.0, np.nan], role="global_step")
    assert judge(CODE, make.evidence(counter)).measured["optimizer_steps"] == 20


def test_skipped_fp16_steps_are_no_loss(make, judge):
    """The scaler skipped 14 of 12,500 updates."""
    state = make.state(make.tensor(0, step=12486.0), global_step=12500)
    assert judge(CODE, make.evidence(optimizer=state, info=info(12500))).verdict == "pass"


@given(steps=st.integers(0, 200), one=st.integers(1, 200), other=st.integers(1, 200))
def test_asking_for_fewer_steps_never_finds_more(steps, one, other, make, judge):
    lower, higher = sorted([one, other])
    if judge(CODE, make.evidence(info=info(steps)), min_steps=higher).verdict == "pass":
        assert judge(CODE, make.evidence(info=info(steps)), min_steps=lower).verdict == "pass"


def test_nine_tenths_of_the_plan_are_enough(make, judge):
    assert judge(CODE, make.evidence(info=info(45, max_steps=50))).verdict == "warn"
    assert judge(CODE, make.evidence(info=info(44, max_steps=50))).verdict == "fail"


def test_a_step_that_may_be_the_epochs_number(make, judge):
    """SGD does not count; the log of 100 points goes to step 9,900, the checkpoint says 30."""
    steps = np.arange(100) * 100

    def state(**more):
        return make.state(make.tensor(0, None, step=more.pop("counted", None)), global_step=30, **more)

    losses = make.series(levelled(100), steps)
    doubtful = judge(CODE, make.evidence(losses, optimizer=state(extras={"step": 30})))
    assert doubtful.verdict == "SkippedProbe"
    assert "the log goes to step 9900" in doubtful.reason["reason"]
    assert judge(CODE, make.evidence(losses, optimizer=state(extras={"global_step": 30}))).verdict == "warn"
    assert judge(CODE, make.evidence(losses, optimizer=state(extras={"step": 30}, counted=30.0))).verdict == "warn"
    assert judge(CODE, make.evidence(losses, optimizer=state(), info=info(30))).verdict == "warn"
    near = make.series(levelled(30), np.arange(30))
    assert judge(CODE, make.evidence(near, optimizer=state(extras={"step": 30}))).verdict == "warn"


@pytest.mark.parametrize(("last", "every", "plan", "verdict"), [
    (15, 1, "15", "warn"), (14, 2, "15", "warn"), (45, 5, "45", "warn"),
    (300, 5, "300", "pass"),
    (14, 1, "25", "SkippedProbe"),  # of something else, or cut off
    (40, 1, "15", "SkippedProbe"),
])  # fmt: skip
def test_a_plan_to_whose_last_step_the_log_goes(last, every, plan, verdict, make, judge):
    """Of a log that does not say what its steps are."""
    steps = range(every, last + 1, every)
    values = 1.0 + 0.01 * np.sin(np.arange(len(steps)))
    loss = make.series(values, steps, role="train_loss")
    assert judge(CODE, make.evidence(loss, params={"max_steps": plan})).verdict == verdict
