"""Summaries of trainings: what is written is read, no file harms its reader, and a checkpoint comes first."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import tracker_health
from tracker_health.errors import ReadError
from tracker_health.evidence import Attribution, MomentStats, OptimizerState, TensorHeader, TensorState, Weights
from tracker_health.readers.training_summary import TrainingSummary, as_text, read_training_summary


def summary(*, mean=0.5, zeros=0):
    stats = MomentStats(count=6, mean=mean, rms=0.7, minimum=0.0, maximum=1.0, zeros=zeros, nonfinite=0, zero_rows=1)
    state = OptimizerState(
        source="s", attribution=Attribution.NAMED, groups=({"lr": 1e-3, "betas": [0.9, 0.999]},),
        stateless=("b",), frozen=("b",), listed=((0, 1),),
        global_step=120, tensors=(TensorState(id=0, name="w", shape=(2, 3), step=120.0, first_moment=stats, second_moment=stats,
                         moment_ratio=0.05, group=0, kind="adam"),),
    )  # fmt: skip
    weights = Weights(
        source="s", in_order=True, tensors=(TensorHeader(name="w", shape=(2, 3), dtype="F32", rms=0.7, stats=stats),)
    )
    return TrainingSummary(
        steps=120, params={"max_steps": "120"}, optimizer=state, weights=weights,
        scale_steps=np.array([1, 100]), scales=np.array([65536.0, math.inf]),
    )  # fmt: skip


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "health_summary.json"
    path.write_text(as_text(summary(mean=math.nan)))
    json.loads(path.read_text(), parse_constant=pytest.fail)
    found = read_training_summary(path, "s")
    assert (found.steps, found.params) == (120, {"max_steps": "120"})
    assert (found.scale_steps.tolist(), found.scales.tolist()) == ([1, 100], [65536.0, math.inf])
    assert found.weights is not None
    assert found.optimizer is not None
    assert math.isnan(found.optimizer.tensors[0].first_moment.mean)
    path.write_text(as_text(summary()))
    found = read_training_summary(path, "s")
    assert (found.optimizer, found.weights) == (summary().optimizer, summary().weights)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: [],
        lambda document: {},
        lambda document: document | {"schema": "other/1"},
        lambda document: document | {"steps": -1},
        lambda document: document | {"steps": "many"},
        lambda document: document | {"params": [1]},
        lambda document: document | {"loss_scale": {"steps": [1], "values": []}},
        lambda document: document | {"optimizer": {"tensors": [{}]}},
        lambda document: document | {"optimizer": []},
        lambda document: (
            document | {"weights": [{"name": "a" * 5000, "shape": [1], "dtype": "F32", "rms": 1, "stats": None}]}
        ),
        lambda document: document | {"weights": "abc"},
        lambda document: document | {"weights": [None] * 200_000},
    ],
)
def test_anything_else_is_refused(change, tmp_path):
    path = tmp_path / "health_summary.json"
    path.write_text(json.dumps(change(json.loads(as_text(summary())))))
    with pytest.raises(ReadError):
        read_training_summary(path, "s")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[" * 100_000, b'{"schema"', b"NaN"])
def test_broken_bytes_are_refused(content, tmp_path):
    path = tmp_path / "health_summary.json"
    path.write_bytes(content)
    with pytest.raises(ReadError):
        read_training_summary(path, "s")


def log(folder):
    lines = [json.dumps({"step": step, "loss": 2.0 / step}) for step in range(1, 121)]
    (folder / "log.jsonl").write_text("\n".join(lines))


def test_a_run_is_judged_by_it(tmp_path):
    log(tmp_path)
    (tmp_path / "health_summary.json").write_text(as_text(summary(zeros=6)))
    report = tracker_health.check(tmp_path)
    found = {one.code: one for one in report.results}
    assert {"OPT001", "OPT002", "OPT003", "RUN001"} <= found.keys()
    assert found["OPT001"].measured["optimizer_steps"] == 120
    assert found["OPT003"].verdict == "fail"
    assert not report.errors


def test_a_broken_one_is_told_and_takes_nothing_away(tmp_path):
    log(tmp_path)
    (tmp_path / "health_summary.json").write_text("{")
    report = tracker_health.check(tmp_path)
    assert report.verdict == "pass"
    assert "health_summary.json" in str(report.notes)


def test_of_several_none_is_read(tmp_path):
    log(tmp_path)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "health_summary.json").write_text(as_text(summary(zeros=6)))
    report = tracker_health.check(tmp_path)
    assert "OPT003" not in {one.code for one in report.results}
    assert any("several summaries" in note for note in report.notes)
