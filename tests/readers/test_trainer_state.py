"""trainer_state.json of the Hugging Face Trainer."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.errors import ReadError
from tracker_health.evidence import StepUnit
from tracker_health.readers.files.json_lines import MAX_FIELDS, MAX_JSON_PARTS
from tracker_health.readers.trainer_state import MAX_BYTES, read_trainer_state
from tracker_health.roles import RolePlan

LAW = settings(deadline=None, max_examples=draws(150))


@pytest.fixture
def state(tmp_path):
    def read(value):
        path = tmp_path / "trainer_state.json"
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        return read_trainer_state(path, "trainer_state.json", RolePlan(every=True))

    return read


def points(state, name="loss"):
    (series,) = [series for series in state.series if series.name == name]
    return list(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def rows(*losses):
    return [{"step": step, "loss": loss, "epoch": step / 10} for step, loss in enumerate(losses, start=1)]


def test_every_numeric_field_is_a_series_over_optimizer_steps(state):
    history = [
        *rows(3.0, 2.5),
        {"step": 2, "eval_loss": 2.75, "text": "x"},
        {"step": 2, "train_loss": 2.7, "total_flos": 10**20},
    ]
    found = state({"log_history": history, "global_step": 2, "max_steps": 4, "epoch": 0.5, "num_train_epochs": 3})
    assert points(found) == [(1, 3.0), (2, 2.5)]
    assert points(found, "eval_loss") == [(2, 2.75)]
    assert {series.step_unit for series in found.series} == {StepUnit.OPTIMIZER_STEP}
    assert found.names == ("loss", "epoch", "eval_loss", "train_loss", "total_flos")
    assert (found.global_step, found.epoch, found.loss_by_step) == (2, 0.5, {1: 3.0, 2: 2.5})
    assert found.params == {"max_steps": "4.0", "num_train_epochs": "3.0"}
    assert not found.finished


@pytest.mark.parametrize("name", ["full_adafactor", "full_ft_12L", "full_sgd", "lora_qv_12L", "lora_plus"])
def test_samples_of_the_real_trainer(samples, name):
    path = samples / f"hf_{name}" / "checkpoint-4" / "trainer_state.json"
    found = read_trainer_state(path, "trainer_state.json", RolePlan(every=True))
    truth = json.loads(path.read_text())
    assert points(found) == [(row["step"], row["loss"]) for row in truth["log_history"] if "loss" in row]
    assert (found.global_step, found.finished) == (truth["global_step"], truth["global_step"] >= truth["max_steps"])


@pytest.mark.parametrize(
    ("beside", "finished"),
    [
        ({}, False),
        ({"global_step": 3, "max_steps": 4}, False),
        ({"global_step": 4, "max_steps": 4}, True),
        ({"global_step": 5, "max_steps": 4}, True),
        ({"global_step": 4, "max_steps": -1}, False),
        ({"global_step": 0, "max_steps": 0}, False),
        ({"global_step": "4", "max_steps": "4"}, True),
        (
            {
                "global_step": 1,
                "max_steps": 9,
                "stateful_callbacks": {"TrainerControl": {"args": {"should_training_stop": True}}},
            },
            True,
        ),
        (
            {
                "global_step": 1,
                "max_steps": 9,
                "stateful_callbacks": {"TrainerControl": {"args": {"should_training_stop": 1}}},
            },
            False,
        ),
        ({"global_step": 1, "max_steps": 9, "stateful_callbacks": [1]}, False),
        ({"stateful_callbacks": {"TrainerControl": {"args": []}}}, False),
    ],
)
def test_whether_it_was_written_at_the_end(state, beside, finished):
    assert state({"log_history": [], **beside}).finished is finished


def test_early_stopping_is_told(state):
    assert "early_stopping" in state({"log_history": [], "stateful_callbacks": {"EarlyStoppingCallback": {}}}).params
    assert state({"log_history": []}).params == {}


def test_literals_and_odd_rows(state):
    found = state(
        b'{"log_history": [{"step": 1, "loss": NaN}, {"step": 2, "loss": Infinity}, {"step": "3", "loss": "0.5"}, {"step": NaN, "loss": 1},'
        b' {"loss": 1}, {"step": 1.5, "loss": 1}, 7, null, "x", [1], {}, {"step": 4, "loss": null, "a": true, "b": [1]}], "global_step": NaN, "epoch": NaN}'
    )
    (first, *others, last) = points(found)
    assert math.isnan(first[1])
    assert others == [(2, math.inf), (3, 0.5)]
    assert last[0] == 4
    assert math.isnan(last[1])
    assert found.global_step is None
    assert math.isnan(found.epoch)


def test_numbers_beyond_floating_point(state):
    found = state(
        {
            "log_history": [{"step": 1, "loss": 10**400}, {"step": 10**400, "loss": 1}],
            "global_step": 10**400,
            "epoch": -(10**400),
            "max_steps": 10**400,
        }
    )
    assert points(found) == [(1, math.inf)]
    assert (found.global_step, found.epoch, found.finished) == (None, -math.inf, False)


REFUSED = {
    "empty": b"",
    "cut in the middle": b'{"log_history": [{"step": 1, "lo',
    "a list": b"[]",
    "no log history": b"{}",
    "a log history that is none": b'{"log_history": {"step": 1}}',
    "a log history that is null": b'{"log_history": null}',
    "not UTF-8": b'{"log_history": [], "a": "\xff"}',
    "nested a million deep": b'{"log_history": ' + b"[" * 10**6 + b"]" * 10**6 + b"}",
    "an integer of a million digits": b'{"log_history": [], "global_step": ' + b"9" * 10**6 + b"}",
    "a pickle": b"\x80\x02}q\x00.",
    "too many fields": b'{"log_history": [{"step": 1,'
    + b",".join(b'"%d":1' % index for index in range(MAX_FIELDS + 1))
    + b"}]}",
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_files_that_are_no_trainer_state(name, state, assert_one_line):
    with pytest.raises(ReadError) as error:
        state(REFUSED[name])
    assert_one_line(str(error.value))


def test_a_byte_order_mark_and_lone_surrogates(state):
    found = state(b'\xef\xbb\xbf{"log_history": [{"step": 1, "\\ud800": 1, "loss": 2}]}')
    assert found.names == ("\ud800", "loss")


HUGE = {
    "a line of 100 MB": lambda: b'{"log_history": [], "a": "' + b"x" * 10**8 + b'"}',
    "one text as long as is read": lambda: (
        b'{"log_history": [], "a": "' + b"x" * (MAX_BYTES - 100) + "\U0001f600".encode() + b'"}'
    ),
    "small objects": lambda: b'{"log_history": [' + b'{"":1},' * (MAX_BYTES // 7 - 10) + b"1]}",
    "small objects as many as are read": lambda: (
        b'{"log_history": [' + b'{"":1},' * (MAX_JSON_PARTS // 2 - 10) + b"1]}"
    ),
    "rows as many as are read": lambda: (
        b'{"log_history": [' + b'{"step":1000,"loss":0.12},' * (MAX_JSON_PARTS // 3 - 10) + b"1]}"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(HUGE))
@pytest.mark.one_cell
def test_huge_files_cost_neither_time_nor_memory(name, tmp_path, measured):
    path = tmp_path / "trainer_state.json"
    path.write_bytes(HUGE[name]())
    measured("trainer", path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["step", "loss", "args", "TrainerControl"]), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = ["global_step", "max_steps", "epoch", "num_train_epochs", "stateful_callbacks"]


@LAW
@given(
    st.lists(JSON | st.dictionaries(st.sampled_from(["step", "loss", "lr"]), JSON), max_size=5),
    st.dictionaries(st.sampled_from(FIELDS), JSON),
)
def test_any_values_are_read(tmp_path_factory, history, beside):
    path = tmp_path_factory.getbasetemp() / "trainer_state.json"
    path.write_text(json.dumps({"log_history": history, **beside}))
    for series in read_trainer_state(path, "a", RolePlan(every=True)).series:
        assert len(series.steps) == len(series.values) > 0


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(OSError):
        read_trainer_state(tmp_path / "trainer_state.json", "a", RolePlan(every=True))


def test_null_is_nan_in_fields_that_are_numbers_elsewhere_and_in_the_loss(state):
    rows = [
        {"step": 10, "loss": 2.0, "grad_norm": 1.0, "custom": None},
        {"step": 20, "loss": None, "grad_norm": None, "custom": None},
        {"step": 20, "eval_loss": 3.0},
    ]
    found = state(json.dumps({"log_history": rows}).encode())
    assert found.names == ("loss", "grad_norm", "eval_loss")
    assert points(found)[0] == (10, 2.0)
    assert math.isnan(points(found)[1][1])
    assert math.isnan(points(found, "grad_norm")[1][1])
    assert points(found, "eval_loss") == [(20, 3.0)]


def test_a_field_that_is_nan_in_every_row_is_kept(state):
    found = state(b'{"log_history": [{"step": 10, "eval_loss": NaN}]}')
    assert math.isnan(points(found, "eval_loss")[0][1])


def test_a_loss_that_was_null_from_the_first_row_on(state):
    found = state(json.dumps({"log_history": [{"step": 10, "loss": None}]}).encode())
    assert math.isnan(points(found)[0][1])
