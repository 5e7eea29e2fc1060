"""A lower bound of the optimizer steps that a state has seen: what it rests on, and that it is never too high."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracker_health.config import Config
from tracker_health.evidence import (
    Evidence,
    MomentStats,
    OptimizerState,
    Part,
    RunInfo,
    RunRef,
    Series,
    StepUnit,
    TensorState,
    WeightChange,
    Weights,
)
from tracker_health.judge.engine import diagnose

REF = RunRef(store="directory", id="x", name="x")
ZERO = MomentStats(count=4, mean=0.0, rms=0.0, minimum=0.0, maximum=0.0, zeros=4, nonfinite=0)


def losses(steps, unit=StepUnit.UNKNOWN, **more):
    steps = np.asarray(list(steps), dtype=np.int64)
    return Series(
        name=more.pop("name", "loss"),
        role=more.pop("role", "train_loss"),
        steps=steps,
        values=np.asarray(more.pop("values", np.linspace(2, 1, len(steps))), dtype=np.float64),
        step_unit=unit,
    )


def epochs(values):
    return losses(range(len(values)), name="epoch", role="epoch", values=values)


def sgd(*, step=None, **more):
    tensors = (TensorState(id=0, shape=(2, 2), kind="momentum", step=step, first_moment=ZERO),)
    return OptimizerState(source="last.pt", tensors=tensors, groups=({"lr": 0.1, "momentum": 0.9},), **more)


def counted(*series, optimizer=None, params=None, **info):
    evidence = Evidence(run=REF, series=series, optimizer=optimizer, info=RunInfo(params=params or {}, **info))
    return evidence.steps_at_least


def test_the_optimizers_own_count_is_the_best():
    state = sgd(step=40.0, global_step=300, extras={"epoch": 200})
    assert counted(losses(range(900)), optimizer=state) == (40, "the optimizer itself")


def test_then_the_checkpoint_then_the_trainer_state():
    """A checkpoint from the middle of a run has not seen what was logged after it."""
    assert counted(losses(range(900)), optimizer=sgd(global_step=300)) == (300, "the checkpoint's step")
    assert counted(losses(range(900)), optimizer=sgd(), global_step=70) == (70, "the trainer state")


@pytest.mark.parametrize(
    ("extras", "expected"),
    [
        ({"epoch": 12}, (12, "the checkpoint's epoch")),
        ({"epoch": 12, "iter_num": 600}, (600, "the checkpoint's iter_num")),
        ({"epoch": 3.7}, (3, "the checkpoint's epoch")),
        ({"epoch": True}, (0, "")),
        ({"epoch": -1}, (0, "")),
        ({"epoch": float("nan")}, (0, "")),
        ({"epoch": float("inf")}, (0, "")),
        ({"epoch": "12"}, (0, "")),
        ({"epochs": 90}, (0, "")),
    ],
)
def test_an_epoch_is_a_step_at_least(extras, expected):
    assert counted(optimizer=sgd(extras=extras)) == expected


@pytest.mark.parametrize(
    ("series", "steps"),
    [
        (losses(range(100)), 100),
        (losses([0, 0, 1, 2]), 3),
        (losses(range(0, 1000, 10)), 990),
        (losses(range(0, 5000, 50)), 1000),
        (losses(range(0, 100 * 64, 64)), 100),
        (losses(range(0, 100 * 8, 8)), 792),
        (losses(range(100), StepUnit.EPOCH), 100),
        (losses(range(0, 1000, 10), StepUnit.LOG_CALL), 100),
        (losses([10**6], StepUnit.UNKNOWN), 10),
        (losses([]), 0),
    ],
    ids=[
        "batches",
        "repeated",
        "every tenth",
        "every fiftieth",
        "samples",
        "eighths",
        "epochs",
        "calls",
        "one",
        "none",
    ],
)
def test_what_a_log_bears_out(series, steps):
    """A row is a step; of a number that nobody explains no more than ten a row, and none of samples in batches."""
    assert counted(series, optimizer=sgd()).steps == steps


def test_a_log_of_optimizer_steps_is_taken_at_its_word():
    assert counted(losses(range(0, 5000, 500), StepUnit.OPTIMIZER_STEP), optimizer=sgd()).steps == 4500
    counter = losses(range(3), name="global_step", role="global_step", values=[10, 900, 2000])
    assert counted(counter, losses(range(3)), optimizer=sgd()).steps == 2000


@pytest.mark.parametrize(
    ("params", "steps"),
    [
        ({"gradient_accumulation_steps": "8"}, 12),
        ({"trainer/accumulate_grad_batches": "4"}, 25),
        ({"trainer.accumulate_grad_batches": "4"}, 25),
        ({"grad_accum": "none"}, 100),
        ({"grad_accum": "0"}, 100),
        ({"update_freq": "inf"}, 0),
    ],
)
def test_batches_over_which_gradients_accumulate(params, steps):
    assert counted(losses(range(100)), optimizer=sgd(), params=params).steps == steps
    assert counted(losses(range(100), StepUnit.EPOCH), optimizer=sgd(), params=params).steps == 100


@pytest.mark.parametrize(
    ("epoch", "share"), [(0, 0.05), (1, 0.1), (3, 0.3), (9, 0.9), (10, 1.0), (12, 1.0), (None, 1.0)]
)
def test_a_checkpoint_from_an_early_epoch_has_not_seen_the_whole_log(epoch, share):
    """Ten epochs of a hundred batches, told by the log or by the plan."""
    state = sgd(extras={} if epoch is None else {"epoch": epoch})
    expected = int(share * 1000)
    assert counted(losses(range(1000)), epochs(np.arange(1001) / 100), optimizer=state).steps == expected
    assert counted(losses(range(1000)), optimizer=state, params={"epochs": "10"}).steps == expected
    by_epoch = counted(losses(range(11), StepUnit.EPOCH), optimizer=state).steps
    assert by_epoch == max(int(share * 11), int(epoch or 0))


def test_the_only_epoch():
    state = sgd(extras={"epoch": 0})
    assert counted(losses(range(1000)), epochs(np.arange(1000) / 1000), optimizer=state).steps == 1000
    assert counted(losses(range(1000)), optimizer=state, params={"epochs": "1"}).steps == 500


def test_without_an_optimizer_the_log_counts():
    assert counted(losses(range(30))) == (30, "the log of loss")
    assert counted(epochs([0.5, 7.2])) == (7, "the number of epochs")
    assert counted() == (0, "")


@settings(deadline=None)
@given(
    rows=st.integers(1, 40),
    every=st.integers(1, 30),
    accumulate=st.integers(1, 16),
    told=st.booleans(),
    epoch=st.none() | st.integers(0, 3),
)
def test_never_more_than_were_done(rows, every, accumulate, told, epoch):
    """A loop over batches that logs every few of them and steps every few of them, if its params say so."""
    accumulate = accumulate if told else 1
    batches = [batch for batch in range(rows * every) if batch % every == 0]
    done = -(-(rows * every) // accumulate)
    extras = {} if epoch is None else {"epoch": epoch}
    found = counted(
        losses(batches),
        optimizer=sgd(extras=extras),
        params={"accumulation_steps": str(accumulate)},
    )
    assert found.steps <= max(done, epoch or 0)


def reason(rule, evidence):
    report = diagnose(evidence, Config(select=frozenset({rule}), measure_only=frozenset()))
    return report.skipped[0].reason


@pytest.mark.parametrize(
    ("rule", "told", "untold"),
    [
        ("OPT003", "no parameter has 50 optimizer steps: 3 are known, {}", "no parameter has 50 optimizer steps: none is known"),
        ("OPT004", "fewer than 5 optimizer steps are known: 3, {}", "fewer than 5 optimizer steps are known: none"),
        ("WGT002", "fewer than 10 optimizer steps are known: 3, {}", "fewer than 10 optimizer steps are known: none"),
    ],
)  # fmt: skip
def test_a_rule_that_is_skipped_says_what_was_counted(rule, told, untold):
    moved = (WeightChange(name="a.weight", rms=0.1, unchanged=False),)
    weights = Weights(source="last.pt", tensors=(), previous="first.pt", changes=moved)
    state = sgd(extras={"epoch": 3})
    by = "counted by the checkpoint's epoch"
    assert reason(rule, Evidence(run=REF, optimizer=state, weights=weights)).startswith(told.format(by))
    assert reason(rule, Evidence(run=REF, optimizer=sgd(), weights=weights)).startswith(untold)


def test_a_lower_bound_is_no_count():
    """Too few steps is never found by a bound: the run may have had more."""
    evidence = Evidence(run=REF, series=(losses(range(7), StepUnit.EPOCH),), optimizer=sgd(extras={"epoch": 7}))
    assert (evidence.optimizer_steps, evidence.amount(Part.OPTIMIZER_STEPS)) == (None, 0)
    assert evidence.amount(Part.OPTIMIZER_STATE) == 7
    assert "not known" in reason("OPT001", evidence)
