"""What W&B logs: numbers given as text, nested names, media, counters of steps, and what of a run is ours."""

import math

import numpy as np
import pytest

from tracker_health.evidence import StepUnit
from tracker_health.stores.wandb import values
from tracker_health.stores.wandb.values import Histories, flattened, is_metric, number, params_of, tags_with
from tracker_health.words.verdict import Verdict


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, 1.0), (0.5, 0.5), ("Infinity", math.inf), ("-Infinity", -math.inf), (10**400, math.inf)],
)
def test_numbers(value, expected):
    assert number(value) == expected


def test_nan_is_given_as_text():
    assert math.isnan(number("NaN"))


@pytest.mark.parametrize("value", [None, True, "0.5", "high", [1.0], {"_type": "histogram"}, {}])
def test_what_is_no_number(value):
    assert number(value) is None


def test_nested_names_have_dots_and_media_are_left_out():
    row = {"loss": 1, "train": {"acc": {"top1": 0.5}}, "pic": {"_type": "image-file", "size": 3}, "a.b": 2}
    assert dict(flattened(row)) == {"loss": 1, "train.acc.top1": 0.5, "a.b": 2}


def test_a_row_nested_without_end_is_cut():
    row = {"loss": 1}
    for _ in range(900):
        row = {"a": row}
    assert list(flattened(row)) == []


def test_params_are_plain_values():
    config = {
        "lr": 0.1,
        "opt": {"name": "adam", "betas": [0.9, 0.99]},
        "_wandb": {"cli": 1},
        "fp16": True,
        "none": None,
    }
    assert params_of(config) == {"lr": "0.1", "opt.name": "adam", "fp16": "True"}


def test_nested_params_do_not_crowd_out_the_others():
    config = {"id2label": {str(number): f"class {number}" for number in range(3000)}, "max_steps": 500}
    params = params_of(config)
    assert len(params) == 1000
    assert params["max_steps"] == "500"


def test_whose_names_are_whose():
    assert is_metric("loss")
    assert not any(map(is_metric, ("_step", "_runtime", "health/verdict", "health.x")))


def histories_of(rows, **roles):
    found = Histories({name for row in rows for name in row}, roles, "here")
    for row in rows:
        found.add(row)
    return {one.name: one for one in found.series()}


def test_a_history_is_taken_by_step():
    rows = [{"_step": 2 * step, "_timestamp": 100.0 + step, "loss": value} for step, value in enumerate([3, "NaN", 1])]
    (loss,) = histories_of(rows, loss="train_loss").values()
    assert loss.steps.tolist() == [0, 2, 4]
    np.testing.assert_array_equal(loss.values, [3, math.nan, 1])
    assert loss.times.tolist() == [100, 101, 102]
    assert (loss.role, loss.step_unit, loss.source) == ("train_loss", StepUnit.LOG_CALL, "here")


def test_the_trainers_own_count_is_the_step_where_every_row_has_it():
    rows = [{"_step": step, "train/global_step": 10 * step, "loss": 1.0} for step in range(3)]
    (loss,) = histories_of(rows, loss="train_loss").values()
    assert loss.steps.tolist() == [0, 10, 20]
    assert loss.step_unit is StepUnit.OPTIMIZER_STEP
    del rows[1]["train/global_step"]
    (loss,) = histories_of(rows, loss="train_loss").values()
    assert loss.steps.tolist() == [0, 1, 2]
    assert loss.step_unit is StepUnit.LOG_CALL


def test_rows_without_a_needed_number_count_for_nothing():
    rows = [{"_step": 0, "loss": 1.0, "train/global_step": 5}, {"_step": 1, "other": 2.0}, {"_step": 2, "loss": "low"}]
    (loss,) = histories_of(rows, loss="train_loss").values()
    assert loss.steps.tolist() == [5]


def test_too_many_points_are_refused(monkeypatch):
    monkeypatch.setattr(values, "MAX_POINTS", 2)
    with pytest.raises(values.ReadError):
        histories_of([{"loss": 1.0}] * 3, loss="train_loss")


def test_of_our_tags_there_is_one():
    tags = ["mine", "health:pass", "health:good"]
    assert tags_with(tags, Verdict.FAIL) == ["mine", "health:good", "health:fail"]
    assert tags_with(tags, Verdict.SKIP) == tags_with(tags, None) == ["mine", "health:good"]
