"""The fault-injection benchmark itself: what it trains, what the oracle says, and how it counts."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

FOLDER = Path(__file__).parent.parent / "benchmarks" / "faults"


@pytest.fixture(scope="module")
def benchmark():
    """The benchmark's modules, by name."""
    names = ("tasks", "recipes", "faults", "train", "oracle", "generate", "score")
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(FOLDER))
        for name in names:
            sys.modules.pop(name, None)


def trained(benchmark, task, fault, out, number=0):
    job = next(
        job
        for index, job in enumerate(
            job for job in benchmark["generate"].jobs("full") if (job.task, job.fault) == (task, fault)
        )
        if index == number
    )
    benchmark["generate"].train_one(job, str(out))
    truth = json.loads((out / "truth" / f"{job.id}.json").read_text())
    return job, truth, out / "runs" / job.id


@pytest.fixture
def out(tmp_path):
    (tmp_path / "truth").mkdir()
    return tmp_path


def test_a_run_leaves_what_a_user_would_have_and_no_label(benchmark, out):
    job, truth, folder = trained(benchmark, "mlp-wine", "nan-midway", out)
    assert sorted(path.name for path in folder.iterdir()) == ["metrics.jsonl", "model.safetensors", "training_state.pt"]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert truth["fault"] == "nan-midway"
    assert truth["structural"]
    for text in (job.id, json.dumps(rows[0]), *rows[1]):
        assert "nan-midway" not in text
        assert "wine" not in text
    answer = benchmark["score"].TOOLS["default"]([folder])[job.id]
    assert answer.flagged
    assert answer.symptoms[0] in truth["symptoms"]


def test_the_same_job_gives_the_same_run(benchmark, out):
    _, once, folder = trained(benchmark, "mlp-wine", "none", out)
    log = (folder / "metrics.jsonl").read_bytes()
    _, again, folder = trained(benchmark, "mlp-wine", "none", out)
    assert once == again
    assert log == (folder / "metrics.jsonl").read_bytes()


def test_the_small_set_is_a_part_of_the_full_one(benchmark):
    small, full = (set(benchmark["generate"].jobs(size)) for size in ("small", "full"))
    assert small < full
    assert len({job.id for job in full}) == len(full)
    assert len(benchmark["faults"].FAULTS) >= 20
    splits = {task.name: task.split for task in benchmark["tasks"].TASKS}
    assert set(splits.values()) == {"tune", "validate"}


def truth(ends, *, fault="none", start=2.0, steps=200, moved=1.0, task="t"):
    """A truth whose train and validation losses fall from ``start`` to ``ends`` within the first half."""
    points = np.linspace(0, 1, 25)
    curve = [start + (ends - start) * min(1.0, 2 * point) for point in points]
    return {
        "task": task, "split": "tune", "fault": fault, "structural": False, "symptoms": [], "steps": steps,
        "evaluations": [{"step": 0, "train": value, "val": value, "accuracy": 0.0} for value in curve],
        "losses": curve, "gradients_finite": True, "moved": {"w": moved}, "recipe": {"cadence": "every step"},
    }  # fmt: skip


def test_the_oracle(benchmark):
    late = truth(0.5)
    slope = [2.0 - 1.5 * max(0, index - 12) / 12 for index in range(25)]
    late["evaluations"] = [{"step": 0, "train": value, "val": value, "accuracy": 0.0} for value in slope]
    lost = truth(0.5)
    lost["evaluations"][-1] = {"step": 0, "train": 0.5, "val": 0.65, "accuracy": 0.0}
    truths = {f"sibling{index}": truth(0.5 + 0.01 * index) for index in range(9)} | {
        "short": truth(0.5, steps=20), "still": truth(0.5, moved=0.0), "poor": truth(1.5), "late": late, "lost": lost,
        "harmless": truth(0.55, fault="f"), "harmful": truth(1.2, fault="f"), "nan": truth(float("nan"), fault="f"),
    }  # fmt: skip
    labels = benchmark["oracle"].labels(truths)
    assert all(labels[f"sibling{index}"].certified for index in range(9))
    assert {name: labels[name].reason for name in ("short", "still", "poor", "late", "lost")} == {
        "short": "too short", "still": "a tensor did not move", "poor": "little descent (train)", "late": "still falling",
        "lost": "lost again (val)",
    }  # fmt: skip
    assert [labels[name].manifested for name in ("harmless", "harmful", "nan")] == [False, True, True]


def test_wilson_against_known_values(benchmark):
    # Newcombe (1998), table I: 15 of 148 and 0 of 20.
    assert benchmark["score"].wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-4)
    assert benchmark["score"].wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-4)
