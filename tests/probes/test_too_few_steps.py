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
    assert "40% of the plan" in result.message


@pytest.mark.parametrize(("planned", "verdict"), [(44, "warn"), (45, "fail"), (40, "warn")])
def test_boundary_of_the_plan(planned, verdict, make, judge):
    assert judge(CODE, make.evidence(info=info(40, max_steps=planned))).verdict == verdict


def test_a_checkpoint_of_mid_training_does_not_corroborate(make, judge):
    snapshot = RunInfo(global_step=40, params={"max_steps": "100"}, snapshot=True)
    assert judge(CODE, make.evidence(info=snapshot)).verdict == "warn"


def test_the_learning_rate_was_still_rising(make, judge):
    rising = make.series(np.linspace(0, 1e-4, 30), role="learning_rate")
    result = judge(CODE, make.evidence(levelled(), rising, info=info(30)))
    assert result.verdict == "fail"
    assert "still rising" in result.message


@pytest.mark.parametrize("rates", [[1e-4] * 30, [0, 1e-4, *[1e-4] * 28], [1e-5, 1e-4]])
def test_a_constant_learning_rate_is_not_rising(rates, make, judge):
    assert (
        judge(CODE, make.evidence(levelled(), make.series(rates, role="learning_rate"), info=info(30))).verdict
        == "warn"
    )


def test_the_loss_was_still_falling_steeply(make, judge):
    result = judge(CODE, make.evidence(np.linspace(4, 2, 30), info=info(30)))
    assert result.verdict == "fail"
    assert "falling steeply" in result.message


@pytest.mark.parametrize("losses", [np.full(30, 2.0), np.linspace(4, 2, 8), np.linspace(2, 4, 30), np.full(30, np.nan)])
def test_other_losses_are_not_falling_steeply(losses, make, judge):
    assert judge(CODE, make.evidence(losses, info=info(30))).verdict == "warn"


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


# What the batches of a log tell


def batches(make, n, per_epoch=20.0, *, every=1, base=1, whole=False, losses=None, unit=StepUnit.UNKNOWN, **more):
    """A log of every k-th batch, with its epoch."""
    steps = np.arange(1, n + 1) * every - (1 - base)
    epochs = steps / per_epoch if not whole else np.floor((steps - base) / per_epoch)
    return make.evidence(
        make.series(levelled(n) if losses is None else losses, steps, step_unit=unit),
        make.series(epochs, steps, role="epoch", step_unit=unit),
        *more.pop("others", ()),
        **more,
    )


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("n", "every", "base", "most"), [(30, 1, 1, 30), (30, 1, 0, 30), (49, 1, 1, 49), (9, 5, 1, 49), (8, 1, 1, 8)]
)
def test_no_more_optimizer_steps_than_batches(n, every, base, most, whole, make, judge):
    per_epoch = 20.0 if every == 1 else 25.0
    result = judge(CODE, batches(make, n, per_epoch, every=every, base=base, whole=whole))
    assert result.verdict == ("fail" if most < 10 else "warn")
    assert f"at most {most} optimizer steps" in result.message
    assert result.measured == {"optimizer_steps_at_most": most}


def test_few_batches_of_a_loss_that_still_falls(make, judge):
    result = judge(CODE, batches(make, 30, losses=np.linspace(4, 2, 30)))
    assert result.verdict == "fail"
    assert "falling steeply" in result.message


def test_one_epoch_and_its_validation(make, judge):
    """All that the log says of the epoch is its number; a row of the validation is at the last step."""
    held_out = make.series([1.2], [30], role="val_loss")
    evidence = batches(make, 30, 30.0, whole=True, others=[held_out])
    assert judge(CODE, evidence).verdict == "warn"


@pytest.mark.parametrize(("n", "every"), [(50, 1), (10, 5), (300, 1), (5, 10)])
def test_batches_enough_tell_nothing(n, every, make, judge):
    """They may be fewer optimizer steps: gradients may accumulate."""
    assert judge(CODE, batches(make, n, every=every)).verdict == "SkippedProbe"


@pytest.mark.parametrize("status", ["RUNNING", "SCHEDULED"])
def test_batches_of_a_run_that_goes_on_are_no_end(status, make, judge):
    assert judge(CODE, batches(make, 30, info=RunInfo(status=status))).verdict == "SkippedProbe"
    assert judge(CODE, batches(make, 30, info=RunInfo(snapshot=True))).verdict == "SkippedProbe"
    assert judge(CODE, batches(make, 30, info=RunInfo(status="FINISHED"))).verdict == "warn"


def test_an_exact_count_comes_first(make, judge):
    assert judge(CODE, batches(make, 30, info=info(600))).verdict == "pass"
    assert "only 12 optimizer steps" in judge(CODE, batches(make, 30, info=info(12))).message


@pytest.mark.parametrize("unit", [StepUnit.LOG_CALL, StepUnit.EPOCH])
def test_calls_of_a_logger_are_no_batches(unit, make, judge):
    assert judge(CODE, batches(make, 30, unit=unit)).verdict == "SkippedProbe"


def test_steps_that_are_no_batches(make, judge):
    def verdict(steps, epochs, *others):
        loss = make.series(levelled(len(steps)), steps)
        return judge(CODE, make.evidence(loss, make.series(epochs, steps, role="epoch"), *others)).verdict

    one = np.arange(1, 31)
    assert verdict(one, one / 20) == "warn"
    assert verdict(one, one) == "SkippedProbe"  # the step is the epoch
    assert verdict(one, one / 0.5) == "SkippedProbe"  # a row of every second epoch
    assert verdict(one, np.repeat(np.arange(15), 2)) == "SkippedProbe"  # training and validation of an epoch
    assert verdict(one, np.sqrt(one) + 0.5) == "SkippedProbe"  # no constant ratio
    assert verdict(one, np.repeat([0, 1, 2], [4, 20, 6])) == "SkippedProbe"
    assert verdict(one, np.repeat([0, 1, 3], 10)) == "SkippedProbe"
    assert verdict(one, np.full(30, 7)) == "SkippedProbe"  # a run that was resumed in its eighth epoch
    assert verdict(one + 15, (one + 15) / 20) == "SkippedProbe"  # the log begins late
    assert verdict(one, 3 + one / 20) == "SkippedProbe"  # so does the training
    assert verdict(one[:4], one[:4] / 20) == "SkippedProbe"  # too few rows to tell
    longer = make.series(levelled(100), np.arange(100), role="val_loss")
    assert verdict(one, one / 20, longer) == "SkippedProbe"  # another history goes further


@given(n=st.integers(5, 80), per_epoch=st.integers(2, 40), least=st.integers(1, 100))
def test_batches_against_plain_python(n, per_epoch, least, make, judge):
    evidence = batches(make, n, per_epoch)
    result = judge(CODE, evidence, min_steps=least, hopeless_steps=1)
    assert result.verdict == ("warn" if n < least else "SkippedProbe")


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
