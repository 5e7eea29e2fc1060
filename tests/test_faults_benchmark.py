"""The fault-injection benchmark itself: what it trains, what the oracle says, and how it counts."""

import csv
import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
load_file = pytest.importorskip("safetensors.torch").load_file

FOLDER = Path(__file__).parent.parent / "benchmarks" / "faults"


@pytest.fixture(scope="module")
def benchmark():
    """The benchmark's modules, by name."""
    names = ("tasks", "recipes", "faults", "train", "leave", "oracle", "generate", "score")
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(FOLDER))
        for name in names:
            sys.modules.pop(name, None)


def trained(benchmark, task, fault, out, number=0):
    generate = benchmark["generate"]
    job = generate.Job(task, fault, generate._seed(task, fault, number))
    benchmark["generate"].train_one(job, str(out))
    truth = json.loads((out / "truth" / f"{job.id}.json").read_text())
    return job, truth, out / "runs" / job.id


@pytest.fixture
def out(tmp_path):
    (tmp_path / "truth").mkdir()
    return tmp_path


@pytest.mark.slow
def test_a_run_leaves_what_a_user_would_have_and_no_label(benchmark, out):
    job, truth, folder = trained(benchmark, "mlp-wine", "nan-midway", out)
    left = {path.name for path in folder.rglob("*") if path.is_file()}
    assert left == {"metrics.jsonl", "model.safetensors", "training_state.pt"}
    assert len(list(folder.glob("checkpoint-*"))) == (2 if truth["recipe"]["checkpoints"] else 0)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert truth["fault"] == "nan-midway"
    assert truth["structural"]
    for text in (job.id, json.dumps(rows[0]), *rows[1]):
        assert "nan-midway" not in text
        assert "wine" not in text
    answer = benchmark["score"].TOOLS["default"]([folder])[job.id]
    assert answer.flagged
    assert answer.symptoms[0] in truth["symptoms"]


@pytest.mark.slow
def test_the_same_job_gives_the_same_run(benchmark, out):
    _, once, folder = trained(benchmark, "mlp-wine", "none", out)
    log = (folder / "metrics.jsonl").read_bytes()
    _, again, folder = trained(benchmark, "mlp-wine", "none", out)
    assert once == again
    assert log == (folder / "metrics.jsonl").read_bytes()


def made(benchmark, task, fault=None, number=0, **settings):
    """A training of the task under a drawn recipe with some settings changed, not run yet."""
    chosen = next(one for one in benchmark["tasks"].TASKS if one.name == task)
    recipe = replace(benchmark["recipes"].draw(chosen, number), **settings)
    return benchmark["train"].Training(chosen, recipe, fault or benchmark["faults"].Fault())


def test_no_logged_value_is_made_of_the_oracles_held_out_samples(benchmark):
    training = made(benchmark, "mlp-wine", steps=48, planned=48, logs_validation=True)
    seen = []
    measure = training._measure
    training._measure = lambda model, x, y: seen.append(x) or measure(model, x, y)
    training._evaluate(1)
    training.log.append({})
    training._log_validation(1)
    _, oracle, logged = ({tuple(row) for row in x.tolist()} for x in seen)
    assert oracle
    assert logged
    assert not oracle & logged


def test_a_loss_scale_grows_and_backs_off(benchmark):
    scale = benchmark["train"].LossScale(3)
    seen = []
    for overflowed in (False, False, False, True, False, False, False):
        scale.after_step(overflowed=overflowed)
        seen.append(scale.scale / 65536)
    assert seen == [1, 1, 2, 1, 1, 1, 2]


def test_an_overflow_skips_the_step_and_costs_no_certificate(benchmark):
    training = made(benchmark, "mlp-wine", steps=8, planned=8, half=True, optimizer="sgd", digits=None)
    training.scaler.scale = 1e12
    before = [one.detach().clone() for one in training.trainable.values()]
    point = training._step()
    assert point["skipped"]
    assert point["grad"] == float("inf")
    assert all(torch.equal(one, then) for one, then in zip(training.trainable.values(), before, strict=True))
    training.log.append(point)
    assert benchmark["train"].truth_of(training)["gradients_finite"]


def test_a_tensor_that_cannot_matter_need_not_move(benchmark):
    training = made(benchmark, "bn-mlp-clusters", dropout=0.3, frozen=0, optimizer="sgd", weight_decay=0.0)
    moved = training.moved()
    assert {"0.bias", "4.bias"}.isdisjoint(moved)  # a normalisation follows them
    assert {"0.weight", "1.bias", "7.bias"} <= moved.keys()


@pytest.mark.parametrize("task", ["mlp-wine", "transformer-separate-code"])
def test_every_kind_of_parameter_group_holds_every_parameter_once(benchmark, task):
    for groups in benchmark["recipes"].GROUPS:
        for named in (True, False):
            training = made(benchmark, task, groups=groups, named=named, unused=False, frozen=0)
            held = [one for group in training.optimizer.param_groups for one in group["params"]]
            assert {id(one) for one in held} == {id(one) for one in training.model.parameters()}
            assert len(held) == len(training.trainable)
            assert len(training.shares) == len(training.optimizer.param_groups)


def test_two_checkpoints_of_a_frozen_layer(benchmark, tmp_path):
    fault = benchmark["faults"].FAULTS["frozen-layer"]()
    training = made(benchmark, "mlp-wine", fault, steps=20, planned=20, checkpoints=True, frozen=0, warmup=0)
    training.run()
    benchmark["leave"].leave(training, tmp_path / "run")
    earlier, last = (load_file(tmp_path / "run" / name / "model.safetensors") for name in ("checkpoint-16",
                                                                                           "checkpoint-20"))  # fmt: skip
    same = {name.rpartition(".")[0] for name, one in earlier.items() if torch.equal(one, last[name])}
    assert same == {fault.layer}


def test_nan_in_the_saved_weights_alone(benchmark, tmp_path):
    fault = benchmark["faults"].FAULTS["nan-weights"]()
    training = made(benchmark, "mlp-wine", fault, steps=10, planned=10, checkpoints=False)
    training.run()
    benchmark["leave"].leave(training, tmp_path / "run")
    saved = load_file(tmp_path / "run" / "model.safetensors")
    assert sum(bool(one.isnan().any()) for one in saved.values()) == 1
    assert not any(one.isnan().any() for one in training.model.state_dict().values())
    assert np.isfinite([point["loss"] for point in training.log]).all()


@pytest.mark.parametrize(("at", "alike"), [(0, 8), (20, 7)])
def test_an_evaluation_of_a_copy_that_nobody_updates(at, alike, benchmark):
    """Eight evaluations, the first at step 10: all of the copy, or all but this one."""
    fault = benchmark["faults"].FAULTS["stale-evaluation"]()
    settings = {"steps": 80, "planned": 80, "logs_validation": True, "validation_logged": "loss"}
    training = made(benchmark, "mlp-digits", fault, **settings)
    fault.at, fault.copy = at, None
    fault.model(training.model, training.rng)
    training.run()
    logged = [point["val"] for point in training.log if "val" in point]
    assert [logged.count(one) for one in dict.fromkeys(logged)] == [1] * (8 - alike) + [alike]
    assert fault.shows(training.recipe)
    assert training.truth[-1]["val"] < 0.8 * training.truth[0]["val"]


def test_half_of_a_hidden_layer_is_dead(benchmark):
    fault = benchmark["faults"].FAULTS["dead-rows"]()
    training = made(benchmark, "mlp-digits", fault, steps=10, planned=10, frozen=0)
    biases = benchmark["faults"]._before_relu(training.model)
    assert sorted(float((one < -10).float().mean()) for one in biases) == [0.0, 0.5]


def test_logged_values_are_rounded_as_the_recipe_says(benchmark):
    rounded = benchmark["leave"]._rounded
    assert rounded("loss", 1.23456, 2) == 1.23
    assert rounded("rate", 0.000123456, 2) == 0.0001235
    assert rounded("loss", 1.23456, None) == 1.23456
    assert rounded("step", 123456, 2) == 123456
    assert np.isnan(rounded("loss", float("nan"), 3))


@pytest.mark.exhaustive
def test_the_small_set_is_a_part_of_the_full_one(benchmark):
    small, full = (set(benchmark["generate"].jobs(size)) for size in ("small", "full"))
    assert small < full
    assert len({job.id for job in full}) == len(full)
    assert len(benchmark["faults"].FAULTS) >= 20
    splits = {task.name: task.split for task in benchmark["tasks"].TASKS}
    assert set(splits.values()) == {"tune", "validate"}
    assert benchmark["faults"].PRIMARY.keys() == benchmark["faults"].FAULTS.keys()
    for name, fault in benchmark["faults"].FAULTS.items():
        assert benchmark["faults"].PRIMARY[name] in fault.symptoms


def truth(ends, *, fault="none", start=2.0, steps=200, moved=1.0, task="t"):
    """A truth whose train and validation losses fall from ``start`` to ``ends`` within the first half."""
    points = np.linspace(0, 1, 25)
    curve = [start + (ends - start) * min(1.0, 2 * point) for point in points]
    return {
        "task": task, "split": "tune", "fault": fault, "structural": False, "symptoms": [], "steps": steps,
        "evaluations": [{"step": 0, "train": value, "val": value, "accuracy": 0.0} for value in curve],
        "losses": curve, "gradients_finite": True, "moved": {"w": moved},
        "recipe": {"cadence": "every step", "frozen": 0, "lists_frozen": False},
    }  # fmt: skip


def test_the_oracle(benchmark):
    late = truth(0.5)
    slope = [2.0 - 1.5 * max(0, index - 12) / 12 for index in range(25)]
    late["evaluations"] = [{"step": 0, "train": value, "val": value, "accuracy": 0.0} for value in slope]
    lost = truth(0.5)
    lost["evaluations"][-1] = {"step": 0, "train": 0.5, "val": 0.65, "accuracy": 0.0}
    truths = {f"sibling{index}": truth(0.5 + 0.01 * index) for index in range(9)} | {
        "short": truth(0.5, steps=20), "still": truth(0.5, moved=0.0), "poor": truth(1.5), "late": late, "lost": lost,
        "harmless": truth(0.55, fault="f"), "slight": truth(0.9, fault="f"),
        "harmful": truth(1.2, fault="f"), "nan": truth(float("nan"), fault="f"),
    }  # fmt: skip
    labels = benchmark["oracle"].labels(truths)
    assert all(labels[f"sibling{index}"].certified for index in range(9))
    assert {name: labels[name].reason for name in ("short", "still", "poor", "late", "lost")} == {
        "short": "too short", "still": "a tensor did not move", "poor": "little descent (train)", "late": "still falling",
        "lost": "lost again (val)",
    }  # fmt: skip
    faulty = [labels[name] for name in ("harmless", "slight", "harmful", "nan")]
    assert [(one.manifested, one.slight) for one in faulty] == [
        (False, True),
        (True, True),
        (True, False),
        (True, False),
    ]


def test_wilson_against_known_values(benchmark):
    # Newcombe (1998), table I: 15 of 148 and 0 of 20.
    assert benchmark["score"].wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-4)
    assert benchmark["score"].wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-4)


def sample(benchmark, name, fault="none", symptoms=()):
    label = benchmark["oracle"].Label(certified=fault == "none", manifested=fault != "none", reason="")
    return benchmark["score"].Run(name, fault, "t", "every step", False, frozenset(symptoms), label)


def test_what_a_tool_says_nothing_of_is_no_pass(benchmark):
    score = benchmark["score"]
    runs = [sample(benchmark, name, "overfit", ("overfit",)) for name in "abc"]
    answers = {"a": score.Answer(True, ("overfit",)), "b": score.Answer(False, ()),
               "c": score.Answer(False, (), absent=True)}  # fmt: skip
    scores = score.Scores("tune", [], [], runs, {("default", "checkpoint"): answers})
    assert score._recall(answers, runs) == 0.5
    lines = score.table(scores)
    assert "| overfit | 3 | 0.50 |" in lines
    assert "| **no answer (not in the shares)** | 3 | 1 |" in lines


def test_runs_that_a_fault_hardly_harmed_are_left_out_of_a_line_of_their_own(benchmark):
    score = benchmark["score"]
    runs = [sample(benchmark, name, "overfit", ("overfit",)) for name in "ab"]
    runs[1] = replace(runs[1], label=replace(runs[1].label, slight=True))
    answers = {"a": score.Answer(True, ("overfit",)), "b": score.Answer(False, ())}
    lines = score.table(score.Scores("tune", [], [], runs, {("default", "checkpoint"): answers}))
    assert "| **all manifested, mean over faults** | 2 | 0.50 |" in lines
    assert "| **those that would not be certified as healthy, mean over faults** | 1 | 1.00 |" in lines


def test_the_strict_share_accepts_one_symptom(benchmark):
    score = benchmark["score"]
    runs = [sample(benchmark, name, "rate-too-high", ("diverged", "unstable")) for name in "ab"]
    answers = {"a": score.Answer(True, ("unstable", "diverged")), "b": score.Answer(True, ("diverged",))}
    assert score._named(answers, runs) == 1.0
    assert score._named(answers, runs, strict=True) == 0.5


def test_a_rule_is_counted_on_the_runs_that_it_judged(benchmark):
    score = benchmark["score"]
    healthy = [sample(benchmark, name) for name in "ab"]
    sick = [sample(benchmark, "c", "overfit", ("overfit",))]
    answers = {
        "a": score.Answer(True, ("overfit",), codes=("LOS001",), judged=("LOS001",)),
        "b": score.Answer(False, ()),
        "c": score.Answer(False, (), judged=("LOS001",)),
    }
    rules = score.by_rule(score.Scores("validate", healthy, [], sick, {("default", "checkpoint"): answers}))
    assert (rules["LOS001"]["judged"], rules["LOS001"]["false_alarms"]) == (1, 1)
    assert rules["GEN001"]["missed"] == {"overfit": 1}
    assert rules["LOS001"]["missed"] == {}


def test_every_fault_has_right_causes_that_there_are(benchmark):
    from tracker_health.diagnosis import CAUSES

    with (FOLDER / "causes.csv").open(newline="") as file:
        rows = {row["fault"]: row["right_causes_best_first"].split("|") for row in csv.DictReader(file)}
    assert set(rows) == set(benchmark["faults"].FAULTS) - {"none"}
    assert {cause for causes in rows.values() for cause in causes} <= {cause.name for cause in CAUSES}
