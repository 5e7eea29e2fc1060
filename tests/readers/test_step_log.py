"""Step logs in JSON lines."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.errors import ReadError
from tracker_health.evidence import StepUnit
from tracker_health.readers.files.json_lines import (
    MAX_FIELDS,
    MAX_JSON_PARTS,
    MAX_LINE_BYTES,
    MAX_LINES,
    BadLine,
    as_number,
    as_step,
    json_lines,
)
from tracker_health.readers.log_formats.step_log import StepLog
from tracker_health.readers.log_formats.table import MAX_POINTS
from tracker_health.roles import RolePlan

LAW = settings(deadline=None, max_examples=draws(150))


def write(path, *lines):
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines))
    return path


@pytest.fixture
def log(tmp_path):
    def read(*lines):
        return StepLog().read(write(tmp_path / "log.jsonl", *lines), "log.jsonl", RolePlan(every=True))

    return read


def points(log, name="loss"):
    (series,) = [series for series in log.series if series.name == name]
    return list(zip(series.steps.tolist(), series.values.tolist(), strict=True))


@pytest.mark.parametrize(
    ("field", "unit"),
    [
        ("step", StepUnit.UNKNOWN),
        ("global_step", StepUnit.OPTIMIZER_STEP),
        ("iteration", StepUnit.UNKNOWN),
        ("current_steps", StepUnit.OPTIMIZER_STEP),
    ],
)
def test_the_fields_that_a_step_is_found_in(log, field, unit):
    found = log({field: 10, "loss": 3.5}, {field: 20, "loss": 3.0})
    assert points(found) == [(10, 3.5), (20, 3.0)]
    (series,) = found.series
    assert (series.step_unit, series.source, series.role) == (unit, "log.jsonl", "train_loss")
    assert (series.steps.dtype, series.values.dtype) == (np.int64, np.float64)


def test_only_the_names_that_are_wanted_become_series(tmp_path):
    path = write(tmp_path / "a.jsonl", {"step": 1, "loss": 2, "lr": 3})
    found = StepLog().read(path, "a", RolePlan(wanted=frozenset({"learning_rate"})))
    assert [series.name for series in found.series] == ["lr"]
    assert found.names == ("loss", "lr")


def test_a_field_that_is_not_on_every_line(log):
    found = log({"step": 1, "loss": 2}, {"step": 2, "eval_loss": 5}, {"step": 3, "loss": 1})
    assert points(found) == [(1, 2.0), (3, 1.0)]
    assert points(found, "eval_loss") == [(2, 5.0)]


def test_order_and_repetition_are_kept(log):
    found = log({"step": 5, "loss": 2}, {"step": 5, "loss": 1}, {"step": 3, "loss": 4}, {"step": -1, "loss": 0})
    assert points(found) == [(5, 2.0), (5, 1.0), (3, 4.0), (-1, 0.0)]


def test_numbers_as_text(log):
    found = log({"step": "7", "loss": "0.5", "name": "x", "lr": "1e-4"}, {"step": 8.0, "loss": " 2 "})
    assert points(found) == [(7, 0.5), (8, 2.0)]
    assert points(found, "lr") == [(7, 1e-4)]
    assert found.names == ("loss", "lr")


def test_literals_that_are_not_finite(log):
    found = log(
        b'{"step": 1, "loss": NaN}',
        b'{"step": 2, "loss": Infinity}',
        b'{"step": 3, "loss": -Infinity}',
        {"step": 4, "loss": "nan"},
    )
    values = [value for _, value in points(found)]
    assert math.isnan(values[0])
    assert values[1:3] == [math.inf, -math.inf]
    assert math.isnan(values[3])
    assert found.problem == ""


def test_numbers_beyond_floating_point(log):
    found = log(
        b'{"step": 1, "loss": 1' + b"0" * 400 + b"}",
        b'{"step": 2, "loss": -1' + b"0" * 400 + b"}",
        b'{"step": 3, "loss": 1e999}',
    )
    assert [value for _, value in points(found)] == [math.inf, -math.inf, math.inf]


@pytest.mark.parametrize("step", [None, True, "x", 1.5, [1], {}, 10**400, -(10**400), 2**53, "1e400"])
def test_lines_whose_step_is_none_are_no_points(log, step):
    found = log({"step": step, "loss": 1.0}, {"step": 2, "loss": 2.0})
    assert points(found) == [(2, 2.0)]


@pytest.mark.parametrize("step", [b"NaN", b"Infinity", b"-Infinity"])
def test_literals_are_no_steps(log, step):
    assert points(log(b'{"step": ' + step + b', "loss": 1.0}', {"step": 2, "loss": 2.0})) == [(2, 2.0)]


def test_values_that_are_no_numbers_are_no_points(log):
    found = log({"step": 1, "loss": None, "a": True, "b": [1], "c": {"d": "x"}, "e": "text", "f": "9" * 100})
    assert found.series == ()


def test_objects_within_objects_are_metrics_by_their_whole_names(log):
    rows = [{"step": step, "train": {"loss": 3.0 / step, "by": {"head": 1}}, "config": {"lr": 1}} for step in (1, 2)]
    found = log(*rows)
    assert found.names == ("train/loss", "train/by/head")
    assert points(found, "train/loss") == [(1, 3.0), (2, 1.5)]


def test_of_a_summary_of_numbers_the_mean_counts(log):
    """As StyleGAN and EDM write all that they log, with thousands of pictures for steps."""
    rows = [
        {"Loss/loss": {"num": 9, "mean": 3.0 / at, "std": 0.1}, "Progress/kimg": {"num": 1, "mean": 4.0 * at, "std": 0}}
        for at in (1, 2, 3)
    ]
    assert points(log(*rows), "Loss/loss") == [(4, 3.0), (8, 1.5), (12, 1.0)]


def test_other_types_and_lines_without_a_step_are_params(log):
    found = log(
        {"type": "banner", "step": 7, "max_steps": 500, "model": "x", "flag": True, "nested": {"a": 1}, "none": None},
        {"lr": 0.1, "text": "y" * 10_000},
        {"type": "step", "step": 1, "loss": 2.0, "total_steps": 300},
        {"type": None, "step": 2, "loss": 1.0},
    )
    assert points(found) == [(1, 2.0)]
    assert found.params["max_steps"] == "500"
    assert (found.params["model"], found.params["flag"], found.params["lr"], found.params["total_steps"]) == (
        "x",
        "True",
        "0.1",
        "300",
    )
    assert len(found.params["text"]) == 500
    assert "nested" not in found.params


def test_an_integer_too_long_to_write_is_no_crash(log):
    """Python parses 4,300 digits and no more, and writes no more either; a float beyond that is fine."""
    found = log(b'{"a": 1' + b"0" * 4299 + b"}", {"step": 1, "loss": 1.0})
    assert len(found.params["a"]) == 500


def test_a_last_line_that_is_cut_off(log):
    found = log({"step": 1, "loss": 2.0}, b'{"step": 2, "lo')
    assert points(found) == [(1, 2.0)]
    assert found.problem == "line 2, its last, is cut off; the lines before it were read"


def test_broken_lines_in_the_middle_are_counted(log):
    found = log({"step": 1, "loss": 2.0}, b"{broken", b"\xff\xfe", {"step": 3, "loss": 1.0})
    assert points(found) == [(1, 2.0), (3, 1.0)]
    assert found.problem == "2 lines of 4 not JSON (the first is line 2); the others were read"


def test_blank_lines_and_other_values_are_passed_over(log):
    found = log(b"", b"  \t", b"null", b"[1, 2]", b'"text"', b"7", b"\r", {"step": 1, "loss": 2.0}, b"", b"")
    assert points(found) == [(1, 2.0)]
    assert found.problem == ""


def test_line_ends_of_windows_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"step": 1, "loss": 2}\r\n{"step": 2, "loss": 1}\r\n')
    assert points(StepLog().read(path, "a", RolePlan(every=True))) == [(1, 2.0), (2, 1.0)]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"{}", b"[]"])
def test_a_log_of_nothing(tmp_path, content):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    found = StepLog().read(path, "a", RolePlan(every=True))
    assert (found.series, found.names, found.problem) == ((), (), "")


def test_lone_surrogates_and_odd_names_are_only_names(log):
    names = ["\ud800", "\x1b[31m\n", "<script>", "\u202e", "", "a" * 900]
    found = log({"step": 1} | dict.fromkeys(names, 1.0))
    assert found.names == tuple(names)
    assert log({"step": 1, "x" * 10_000: 1.0, "loss": 2.0}).names == ("loss",)


def test_a_text_that_is_no_log_is_given_up_early(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"text": "a training sample", "label": 3}\n' * 10_000)
    assert StepLog().read(path, "a", RolePlan()).series == ()


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(OSError):
        StepLog().read(tmp_path / "missing.jsonl", "a", RolePlan(every=True))


# Which step, and of which data


def test_rows_of_epochs(log):
    found = log(*({"epoch": epoch, "train_loss": 3.0 - epoch, "val_loss": 4.0 - epoch} for epoch in (1, 2)))
    assert points(found, "train_loss") == [(1, 2.0), (2, 1.0)]
    assert points(found, "val_loss") == [(1, 3.0), (2, 2.0)]
    assert {series.step_unit for series in found.series} == {StepUnit.EPOCH}


def test_rows_of_epochs_among_those_of_steps_belong_to_the_last_step(log):
    """And they do not replace what was logged there: an epoch's average is no step's loss."""
    found = log(
        {"step": 100, "loss": 2.0},
        {"epoch": 1, "loss": 2.5, "val_loss": 3.0},
        {"step": 200, "loss": 1.0},
        {"epoch": 2, "val_loss": 2.5},
    )
    assert points(found) == [(100, 2.0), (200, 1.0)]
    assert points(found, "val_loss") == [(100, 3.0), (200, 2.5)]


@pytest.mark.parametrize("first", [0, 1])
def test_steps_that_begin_anew_with_each_epoch_are_counted_on(first, log):
    rows = [{"epoch": epoch, "step": first + 10 * step, "loss": 1.0} for epoch in range(3) for step in range(5)]
    assert [step for step, _ in points(log(*rows))] == [first + 10 * step for step in range(15)]


def test_steps_that_go_on_through_the_epochs_stay_as_they_are(log):
    rows = [{"epoch": step // 5, "step": step, "loss": 1.0} for step in range(15)]
    resumed = [{"epoch": step // 5, "step": step, "loss": 2.0} for step in range(7, 12)]
    assert [step for step, _ in points(log(*rows, *resumed))] == [*range(15), *range(7, 12)]


def test_a_resume_of_steps_that_begin_anew(log):
    rows = [{"epoch": epoch, "step": step, "loss": 1.0} for epoch in (0, 1, 1, 2) for step in range(5)]
    assert [step for step, _ in points(log(*rows))] == [*range(10), *range(5, 10), *range(10, 15)]


@pytest.mark.parametrize(
    "row", [{"type": "train"}, {"type": "training"}, {"split": "train"}, {"type": "step", "phase": "train"}]
)
def test_rows_of_the_training_data(row, log):
    assert points(log({**row, "step": 1, "loss": 2.0}, {**row, "step": 2, "loss": 1.0})) == [(1, 2.0), (2, 1.0)]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"split": "val"}, "val/loss"),
        ({"phase": "eval"}, "eval/loss"),
        ({"mode": "valid"}, "valid/loss"),
        ({"stage": "test"}, "test/loss"),
        ({"subset": "Validation"}, "validation/loss"),
        ({"type": "evaluation"}, "eval/loss"),
    ],
)
def test_rows_of_held_out_data_never_replace_the_trainings(row, name, log):
    found = log({"step": 10, "loss": 2.0, "lr": 0.1}, {**row, "step": 10, "loss": 5.0, "eval_accuracy": 0.5})
    assert points(found) == [(10, 2.0)]
    assert points(found, name) == [(10, 5.0)]
    assert points(found, "eval_accuracy") == [(10, 0.5)]


def test_a_phase_that_is_no_split_is_nothing(log):
    found = log({"step": 1, "phase": "warmup", "stage": "sft", "mode": 3, "loss": 2.0})
    assert points(found) == [(1, 2.0)]


def test_rows_that_name_their_metric(log):
    found = log({"step": 1, "name": "train/loss", "value": 2.0}, {"step": 1, "tag": "lr", "value": 0.1})
    assert found.names == ("train/loss", "lr")
    assert points(found, "train/loss") == [(1, 2.0)]


# A line or two of what tools write, with the points that must come of it.
LINES = {
    "LLaMA-Factory": (
        [{"current_steps": 10, "total_steps": 200, "loss": 1.5, "lr": 1e-4, "epoch": 0.1, "percentage": 5.0, "elapsed_time": "0:00:10"}],
        {"loss": [(10, 1.5)]},
    ),
    "nanoGPT": ([{"iter": 500, "train/loss": 3.0, "val/loss": 3.1}], {"train/loss": [(500, 3.0)], "val/loss": [(500, 3.1)]}),
    "MMEngine": (
        [{"lr": 0.01, "loss": 2.0, "epoch": 1, "iter": 50, "step": 50}, {"coco/bbox_mAP": 0.3, "step": 1}],
        {"loss": [(50, 2.0)], "coco/bbox_mAP": [(1, 0.3)]},
    ),
    "MMCV": (
        [
            {"env_info": "sys.platform: linux", "seed": None},
            {"mode": "train", "epoch": 1, "iter": 50, "loss": 2.0},
            {"mode": "train", "epoch": 1, "iter": 100, "loss": 1.8},
            {"mode": "val", "epoch": 1, "iter": 75, "bbox_mAP": 0.2},
            {"mode": "train", "epoch": 2, "iter": 50, "loss": 1.5},
        ],
        {"loss": [(50, 2.0), (100, 1.8), (150, 1.5)], "val/bbox_mAP": [(100, 0.2)]},
    ),
    "detectron2": ([{"iteration": 19, "total_loss": 2.0, "loss_cls": 1.0, "lr": 0.01}], {"total_loss": [(19, 2.0)]}),
    "DETR": ([{"epoch": 0, "train_loss": 9.0, "test_loss": 8.0, "n_parameters": 5}], {"train_loss": [(0, 9.0)], "test_loss": [(0, 8.0)]}),
    "fairseq": (
        [{"epoch": 1, "update": 0.5, "loss": "3.1", "num_updates": "100"}, {"epoch": 1, "valid_loss": "3.3", "valid_num_updates": "150"}],
        {"loss": [(100, 3.1)], "valid_loss": [(150, 3.3)]},
    ),
    "W&B": ([{"_step": 3, "_runtime": 1.0, "train/loss": 2.0, "train/global_step": 30}], {"train/loss": [(30, 2.0)]}),
    "Ray Tune": ([{"training_iteration": 1, "loss": 2.0, "config": {"lr": 1}}], {"loss": [(1, 2.0)]}),
    "Keras": ([{"epoch": 0, "loss": 2.0, "val_loss": 2.1, "accuracy": 0.2}], {"loss": [(0, 2.0)], "val_loss": [(0, 2.1)]}),
}  # fmt: skip


@pytest.mark.parametrize("tool", list(LINES))
def test_lines_that_tools_write(tool, log):
    lines, expected = LINES[tool]
    found = log(*lines)
    assert {name: points(found, name) for name in expected} == expected


# Null for NaN


def nan_steps(log, name="loss"):
    return [step for step, value in points(log, name) if math.isnan(value)]


def test_null_from_some_step_on_is_nan(log):
    found = log(*({"step": step, "loss": 2.0 if step < 180 else None, "lr": 0.1} for step in range(400)))
    assert nan_steps(found) == list(range(180, 400))
    assert len(points(found)) == 400


@pytest.mark.parametrize("at_the_end", [1, 2, 9])
def test_null_beside_null_is_nothing(at_the_end, log):
    """Rows at the end of an epoch, or of a finished training, that hold nothing."""
    rows = [{"step": step, "loss": 1.0, "lr": 0.1} for step in range(60)]
    for step in (19, 39, *range(60 - at_the_end, 60)):
        rows[step] = {"step": step, "loss": None, "lr": None}
    assert nan_steps(log(*rows)) == []


@pytest.mark.parametrize(("at_the_end", "bad"), [(1, []), (2, [9, 10])])
def test_null_at_the_end_of_all_that_was_logged(at_the_end, bad, log):
    rows = [{"step": step, "loss": 2.0 if step < 9 else None} for step in range(9 + at_the_end)]
    assert nan_steps(log(*rows)) == bad


def test_one_missing_evaluation_at_the_end_is_none(log):
    """A row that was written before the last evaluation came to an end."""
    rows = [{"epoch": epoch, "loss": 2.0, "val_loss": 2.0 if epoch < 9 else None} for epoch in range(10)]
    assert nan_steps(log(*rows), "val_loss") == []
    assert nan_steps(log(*rows, {"epoch": 10, "loss": 2.0, "val_loss": None}), "val_loss") == [9, 10]


def wide(step, **fields):
    return {"step": step, "loss": None, "val_loss": None, "lr": None, "test_accuracy": None, **fields}


NOT_LOGGED = {
    "every tenth step": [wide(step, lr=0.1, loss=2.0 if step % 10 == 0 else None) for step in range(99)],
    "evaluations in rows of their own": [
        row
        for step in range(200)
        for row in [wide(step, loss=2.0, lr=0.1), *([wide(step, val_loss=3.0)] if step % 10 == 9 else [])]
    ],
    "evaluations at half of the steps, and at the last": [
        row
        for step in range(24)
        for row in [wide(step, loss=2.0), *([wide(step, val_loss=3.0, test_accuracy=0.9)] if step % 2 else [])]
    ],
    "a last evaluation in a row of its own": [
        *({"epoch": step // 2, "step": step, "loss": 2.0, "lr": 0.1, "val_loss": 3.0} for step in range(9)),
        {"epoch": 5, "step": 9, "loss": None, "lr": None, "val_loss": 3.0},
    ],
    "a test at the end": [*(wide(step, loss=2.0, lr=0.1) for step in range(50)), wide(50, test_accuracy=0.9)],
    "every step, then every tenth": [
        wide(step, lr=0.1, loss=2.0 if step < 50 or step % 10 == 0 else None) for step in range(399)
    ],
    "a gap that closed": [wide(step, lr=0.1, loss=None if 50 <= step < 53 else 2.0) for step in range(100)],
    "a step that has a number as well": [*(wide(step, loss=2.0) for step in range(50)), wide(49)],
    "two numbers, and no habit": [wide(0, loss=2.0), wide(1, loss=2.0), wide(2), wide(3)],
}  # fmt: skip


@pytest.mark.parametrize("name", list(NOT_LOGGED))
def test_null_in_a_wide_log_is_what_was_not_logged(name, log):
    found = log(*NOT_LOGGED[name])
    assert {column: nan_steps(found, column) for column in found.names} == {column: [] for column in found.names}


def test_null_in_a_wide_log_can_still_be_nan(log):
    """Evaluations go on in rows of their own, and the loss is NaN."""
    rows = []
    for step in range(300):
        rows.append(wide(step, loss=2.0 if step < 200 else None, lr=0.1))
        if step % 10 == 9:
            rows.append(wide(step, val_loss=3.0))
    assert nan_steps(log(*rows)) == list(range(200, 300))


def test_one_null_beside_what_training_logs_is_nan(log):
    rows = [{"step": step, "loss": 2.0, "lr": 0.1, "val_loss": 3.0} for step in range(10)]
    assert nan_steps(log(*rows[:9], rows[9] | {"loss": None})) == [9]
    evaluations = [{"step": step, "loss": None, "lr": None, "val_loss": 3.0} for step in (10, 11)]
    assert nan_steps(log(*rows, *evaluations)) == [10, 11], "two are no last evaluation"


def test_a_metric_that_comes_with_the_trouble_excuses_no_null(log):
    rows = [
        row
        for step in range(12)
        for row in ({"step": step, "loss": 2.0}, {"step": step, "val_loss": 2.0, "val_acc": 0.5})
    ]
    bad = [{"step": step, "val_loss": None, "val_acc": 0.1, "val_ece": 0.3} for step in range(12, 40)]
    # Not from the first on: so long as the new one is rare, these may be rows of another kind.
    assert nan_steps(log(*rows, *bad), "val_loss")[-20:] == list(range(20, 40))


# Hostile lines

GOOD = b'{"step": 1, "loss": 2.0}\n'

HOSTILE = {
    "nested a million deep": b"[" * 10**6 + b"]" * 10**6,
    "objects nested a million deep": b'{"a":' * 10**6,
    "an integer of a million digits": b'{"step": 2, "loss": ' + b"9" * 10**6 + b"}",
    "a line of 100 MB": b'{"step": 2, "loss": "' + b"x" * 10**8 + b'"}',
    "100 MB without a value": b" " * 10**8,
    "small objects": b'{"step": 2, "a": [' + b'{"":1},' * (MAX_LINE_BYTES // 7 - 10) + b"1]}",
    "empty lists": b'{"step": 2, "a": [' + b"[]," * (MAX_LINE_BYTES // 3 - 20) + b"[]]}",
    "small objects as many as are read": b'{"step": 2, "a": [' + b'{"":1},' * (MAX_JSON_PARTS // 2 - 10) + b"1]}",
    "zeros": bytes(10**7),
    "a pickle": b"\x80\x04cposix\nsystem\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["steps", "dlm"])
@pytest.mark.parametrize("name", list(HOSTILE))
@pytest.mark.thinned(4)
def test_hostile_lines_cost_neither_time_nor_memory_nor_the_others(name, reader, tmp_path, measured):
    path = tmp_path / "a.jsonl"
    good = GOOD if reader == "steps" else b'{"type": "step", "step": 1, "loss": 2.0}\n'
    path.write_bytes(good + HOSTILE[name] + b"\n" + good)
    outcome = measured(reader, path)
    if reader == "dlm":
        assert outcome["value"] == 1 or "UTF-8" in outcome["message"]
    else:
        assert outcome["value"] == 2


@pytest.mark.slow
def test_a_line_without_end_is_given_up(tmp_path, measured):
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(GOOD)
        file.truncate(10**12)  # takes no room on the disk
    assert "larger than" in measured("steps", path)["message"]


def test_a_line_of_a_gigabyte_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("tracker_health.readers.files.json_lines._MAX_SKIPPED", 2)
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + b"x" * (4 * MAX_LINE_BYTES))
    with pytest.raises(ReadError, match="a line of more than a gigabyte"):
        StepLog().read(path, "a", RolePlan(every=True))


FULL = {
    "fields": lambda: b'{"step":1,' + b",".join(b'"%d":1' % index for index in range(MAX_FIELDS + 1)) + b"}",
    "fields over many lines": lambda: b"".join(b'{"step":1,"%d":1}\n' % index for index in range(MAX_FIELDS + 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(FULL))
def test_a_log_that_is_too_large_is_refused_and_not_cut_short(name, tmp_path, measured):
    path = tmp_path / "a.jsonl"
    path.write_bytes(FULL[name]())
    assert "more than" in measured("steps", path)["message"]


@pytest.mark.slow
def test_the_dlm_log_has_a_limit_of_lines(tmp_path, measured):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"type": "step", "step": 1, "loss": 2.0}\n' + b"\n" * (MAX_LINES + 1))
    assert "more than" in measured("dlm", path)["message"]


def test_of_too_many_points_those_that_nobody_needs_go_first(tmp_path, monkeypatch):
    monkeypatch.setattr("tracker_health.readers.log_formats.table.MAX_POINTS", 1000)
    path = write(tmp_path / "a", *({"step": step, "loss": step / 2, "x": 1.0, "y": 2} for step in range(900)))
    found = StepLog().read(path, "a", RolePlan(wanted=frozenset({"train_loss"})))
    assert points(found) == [(step, step / 2) for step in range(900)]
    assert (found.names, found.note) == (("loss", "x", "y"), "")


@pytest.mark.parametrize("rows", [1001, 5000, 5001, 12345])
def test_of_far_too_many_points_every_second_row_stays_and_what_is_not_finite(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("tracker_health.readers.log_formats.table.MAX_POINTS", 1000)
    odd = {7, 8, 4999, rows - 2}
    path = write(
        tmp_path / "a", *({"step": step, "loss": math.nan if step in odd else step / 2} for step in range(rows))
    )
    found = StepLog().read(path, "a", RolePlan(every=True))
    kept = points(found)
    stride = int(re.search(r"of every (\d+) rows one was kept", found.note).group(1))
    assert len(kept) <= 1000
    assert {step for step, _ in kept} == set(range(0, rows, stride)) | {one for one in odd if one < rows} | {rows - 1}
    assert [step for step, _ in kept] == sorted(step for step, _ in kept)
    assert all(math.isnan(value) if step in odd else value == step / 2 for step, value in kept)


@pytest.mark.exhaustive
def test_as_many_points_as_are_read_fit_in_memory(tmp_path, measured):
    fields = b",".join(b'"%04d":1.0' % index for index in range(10_000))
    path = tmp_path / "a.jsonl"
    path.write_bytes((b'{"step":1,' + fields + b"}\n") * (MAX_POINTS // 10_000))
    assert measured("steps", path)["message"] is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
RECORDS = st.dictionaries(
    st.sampled_from(["step", "type", "epoch", "split", "loss", "global_step", "max_steps", "name", "value", "\ud800"]),
    JSON,
    max_size=5,
)


@LAW
@given(st.lists(RECORDS.map(json.dumps).map(str.encode) | st.binary(max_size=20), max_size=8))
def test_any_lines_give_series_of_equal_lengths(tmp_path_factory, lines):
    path = tmp_path_factory.getbasetemp() / "random.jsonl"
    path.write_bytes(b"\n".join(lines))
    for series in StepLog().read(path, "a", RolePlan(every=True)).series:
        assert len(series.steps) == len(series.values) > 0


# Lines and numbers


def test_line_numbers_count_blank_and_broken_lines(tmp_path):
    path = write(tmp_path / "a", b"", b"{", b"1", b"\xff")
    assert list(json_lines(path)) == [(2, BadLine()), (3, 1), (4, BadLine(undecodable=True))]


def one_by_one(path):
    """What ``json_lines`` says, the plain way."""
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            if line.strip():
                yield number, json.loads(line)
        except UnicodeDecodeError:
            yield number, BadLine(undecodable=True)
        except ValueError:
            yield number, BadLine()


# Pieces that make other sense together than each in its own line.
PIECES = [
    '{"a": 1}',
    '{"a": 1},{"b": 2',
    '"c": 3}',
    '{"a": [{}',
    '{"c": 1}]}',
    '{"a": {}',
    "}",
    '{"a": "x',
    'y"}',
    "{}",
]
PIECES += [
    '{"a": 1}, {"b": 2}',
    "",
    " ",
    ",",
    "[",
    "]",
    '{"a": NaN}',
    '{"a": "\u2028"}',
    '{"a": 1}\r',
    " {}",
    "7",
    '{"a":',
]


@settings(LAW, max_examples=draws(1500))
@given(st.lists(st.sampled_from(PIECES).map(str.encode) | st.just(b'{"a": "\xff"}'), max_size=6), st.booleans())
def test_lines_are_read_together_as_they_are_one_by_one(tmp_path_factory, lines, ended):
    path = tmp_path_factory.getbasetemp() / "pieces.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n" * ended)
    assert repr(list(json_lines(path))) == repr(list(one_by_one(path)))


def test_lines_are_counted_through_the_blocks_that_are_read(tmp_path):
    rows = [{"step": step, "text": "x" * (step * 7919 % 500)} for step in range(2000)]
    path = write(tmp_path / "a", *rows[:900], b"{", *rows[900:])
    assert list(json_lines(path)) == [*enumerate(rows[:900], 1), (901, BadLine()), *enumerate(rows[900:], 902)]


def test_a_line_as_long_as_is_read(tmp_path):
    path = tmp_path / "a"
    for length, whole in ((MAX_LINE_BYTES - 1, True), (MAX_LINE_BYTES, True), (MAX_LINE_BYTES + 1, False)):
        path.write_bytes(b'"' + b"x" * (length - 3) + b'"\n7\n')
        (_, first), second = json_lines(path)
        assert isinstance(first, BadLine) != whole
        assert second == (2, 7)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        (2.5, 2.5),
        ("3", 3.0),
        ("1e-3", 1e-3),
        ("-inf", -math.inf),
        (10**400, math.inf),
        (-(10**400), -math.inf),
    ],
)
def test_numbers(value, number):
    assert as_number(value) == number


@pytest.mark.parametrize("value", [None, True, False, [], {}, "", "x", "1" * 65, b"1"])
def test_no_numbers(value):
    assert as_number(value) is None
    assert as_step(value) is None


@pytest.mark.parametrize(("value", "step"), [(0, 0), (-7, -7), (7.0, 7), ("7", 7), ("7.0", 7), (2**53 - 1, 2**53 - 1)])
def test_steps(value, step):
    assert as_step(value) == step
    assert type(as_step(value)) is int


@pytest.mark.parametrize("value", [0.5, math.nan, math.inf, "nan", 2**53, 10**400, 1e300, "0.5"])
def test_no_steps(value):
    assert as_step(value) is None


def test_limits_are_read_errors(tmp_path):
    path = write(tmp_path / "a", b"1\n" * 3)
    assert len(list(json_lines(path))) == 3
    path.write_bytes(b"\n" * (MAX_LINES + 1))
    with pytest.raises(ReadError, match="lines"):
        list(json_lines(path, MAX_LINES))
