"""Axes of a run's owner, from the real SDKs: ``define_metric`` of W&B, and metrics of MLflow by tokens and by epochs."""

from __future__ import annotations

from contextlib import closing

import mlflow
import numpy as np
import pytest
from mlflow.entities import Metric

from tracker_health.api import check
from tracker_health.evidence import Evidence, RunRef, Series
from tracker_health.judge.engine import diagnose
from tracker_health.render import picture
from tracker_health.render.attachments import attachments
from tracker_health.render.curves import main_plot
from tracker_health.render.plot import step_ticks
from tracker_health.runs.judging import judge_run
from tracker_health.runs.lookup import open_run
from tracker_health.runs.run_config import resolve_config
from tracker_health.stores.wandb.own_axes import StepMetrics
from tracker_health.stores.wandb.values import Histories
from tracker_health.testing.stores.contract import request_for

from . import wandb_runs

SCRIPT = """
import sys
import numpy as np
import wandb

kind, by = sys.argv[1:]
run = wandb.init(project="p", id=kind, settings=wandb.Settings(silent=True))
if kind == "stepwise":
    run.define_metric("samples")
    run.define_metric("train/*", step_metric="samples")
    run.define_metric("eval/*", step_metric="epoch")
else:
    run.define_metric("*", step_metric=by)
noise = np.random.default_rng(0)
counts = {"samples": lambda i: (i + 1) * 128, "epoch": lambda i: round((i + 1) / 30, 4), "whole": lambda i: i // 30}
held_out = lambda i: 2.3 * np.exp(-i / 40) + 0.3 + max(0, i - 120) * 0.008 + 0.01 * noise.normal()
for i in range(300):
    loss = 2.3 * np.exp(-i / 40) + 0.1 + 0.02 * noise.normal()
    if kind == "nan" and i >= 200:
        loss = float("nan")
    run.log({"train/loss": loss, by: counts[by](i)})
    if kind in ("overfit", "stepwise") and i % 10 == 9:
        epoch = {"epoch": (i + 1) // 10} if kind == "stepwise" else {by: counts[by](i)}
        run.log({"eval/loss": held_out(i), **epoch})
    if kind == "late" and i % 10 == 9 and i >= 50:
        run.log({"eval/loss": held_out(i - 50), "samples": (i - 49) * 128})
run.finish()
"""


@pytest.fixture
def logged(tmp_path):
    pytest.importorskip("wandb")

    def log(kind, by):
        import subprocess
        import sys

        command = [sys.executable, "-c", SCRIPT, kind, by]
        subprocess.run(
            command, cwd=tmp_path, env=wandb_runs.environment(), check=True, capture_output=True, timeout=120
        )
        (folder,) = (tmp_path / "wandb").glob(f"offline-run-*-{kind}")
        return folder

    return log


def messages(report, code):
    (found,) = [one for one in report.results if one.code == code]
    return found.message, found.remedy


def test_messages_are_by_samples_and_say_the_step_once(logged):
    report = check(logged("nan", "samples"))
    message, remedy = messages(report, "LOS001")
    assert message.endswith("first at samples 25728 (step 200), last at samples 38400")
    assert "samples 25600" in remedy
    assert "from samples 25728 on" in report.summary


def test_messages_are_by_epoch(logged):
    message, _ = messages(check(logged("overfit", "epoch")), "GEN001")
    assert "at epoch 4" in message
    assert "(step 1" in message


def test_an_axis_of_whole_epochs_keeps_every_row(logged):
    with closing(open_run(logged("overfit", "whole"))) as run:
        loss = run.read(request_for("train_loss", "val_loss")).find("train_loss")
    assert len(loss.clean()) == 300
    assert loss.place(int(loss.steps[-1])) == "whole 9"


def test_metrics_with_different_axes_are_compared_by_the_rows_they_share(logged):
    with closing(open_run(logged("stepwise", "samples"))) as run:
        evidence = run.read(request_for("train_loss", "val_loss"))
    train, held_out = evidence.find("train_loss"), evidence.find("val_loss")
    assert train.axis.name == "samples"
    assert held_out.where(int(held_out.steps[2])) == f"epoch 3 (step {held_out.steps[2]})"


def test_an_evaluation_in_the_background_is_put_where_it_counts(logged):
    with closing(open_run(logged("late", "samples"))) as run:
        evidence = run.read(request_for("train_loss", "val_loss"))
    train, held_out = evidence.find("train_loss"), evidence.find("val_loss")
    at_its_count = [train.steps[np.searchsorted(train.axis.values, (i - 49) * 128)] for i in range(59, 300, 10)]
    assert held_out.steps.tolist() == at_its_count
    message, _ = messages(check(run.ref.id), "GEN001")
    assert "samples 15360" in message or "samples 16640" in message


def test_the_page_and_the_picture_are_by_samples(logged):
    with closing(open_run(logged("nan", "samples"))) as run:
        report, evidence = judge_run(run, resolve_config("default"))
    page = attachments(evidence, report, "").files["report.html"].decode()
    assert "Training loss by samples" in page
    assert '"unit":"samples"' in page.replace(" ", "")
    assert '"span":[128,38400]' in page.replace(" ", "")


def test_what_a_configuration_of_a_server_defines():
    wandb = {
        "m": [
            {"1": "samples", "6": [3]},
            {"2": "*", "5": 1, "6": [1]},
            {"2": "eval/*", "5": 4},
            {"1": "epoch"},
            {"1": "eval/own", "4": "tokens"},
            {"1": "by_step", "4": "_step"},
            "no metric",
            {"1": "wrong", "5": 99},
            {"1": "defined", "6": [3]},
            {"1": "eval/own"},
        ]
    }
    metrics = StepMetrics.of_config(wandb)
    assert metrics.of("train/loss") == "samples"
    assert metrics.of("eval/loss") == "epoch", "the longest beginning"
    assert metrics.of("eval/own") == "tokens"
    assert metrics.of("samples") == ""
    assert metrics.of("by_step") == metrics.of("defined") == "", "a pattern is for what has no definition of its own"
    assert StepMetrics.of_config({"m": "x"}).of("loss") == StepMetrics.of_config(None).of("loss") == ""


def histories(rows, names=("train/loss", "eval/loss")):
    """The series of rows that are plotted by ``epoch``."""
    metrics = StepMetrics()
    metrics.define("", "*", "epoch")
    found = Histories([*names, "epoch"], dict(zip(names, ("train_loss", "val_loss"), strict=False)), "x", metrics)
    for step, row in enumerate(rows):
        found.add({"_step": step, **row})
    return {one.name: one for one in found.series()}


def test_an_evaluation_is_called_what_it_was_logged_with():
    """Training counts on only with the next row."""
    rows = []
    for epoch in range(4):
        rows += [{"train/loss": 1.0, "epoch": epoch + batch / 10} for batch in range(10)]
        rows.append({"eval/loss": 1.0, "epoch": epoch + 1})
    held_out = histories(rows)["eval/loss"]
    assert held_out.steps.tolist() == [10, 21, 32, 43]
    assert [held_out.place(step) for step in held_out.steps] == ["epoch 1", "epoch 2", "epoch 3", "epoch 4"]


def test_evaluations_that_would_lie_at_one_step_stay_at_their_rows():
    """The evaluation has another count of the same name, which does not rise."""
    rows = []
    for epoch in range(4):
        rows += [{"train/loss": 1.0, "epoch": epoch} for _ in range(10)]
        rows.append({"eval/loss": 1.0, "epoch": 0})
    assert histories(rows)["eval/loss"].steps.tolist() == [10, 21, 32, 43]


def test_a_chart_has_one_unit_and_fills_its_width():
    """Less than an epoch, and marks of a metric that has another axis."""
    rows = [{"train/loss": 1.0 / (at + 1), "epoch": at / 5000} for at in range(100)]
    series = histories(rows, ("train/loss",))["train/loss"]
    steps = np.arange(9, 100, 10)
    by_step = Series(name="eval/loss", steps=steps, values=np.abs(steps - 49) / 50.0, role="val_loss", step_word="step")
    evidence = Evidence(run=RunRef(store="directory", id="x", name="x"), series=(series, by_step))
    plot = main_plot(evidence, diagnose(evidence, resolve_config("default")))
    assert plot.unit == "epoch"
    assert plot.span == (0.0, pytest.approx(99 / 5000))
    assert step_ticks(*plot.span) == pytest.approx([0.0, 0.005, 0.01, 0.015])
    assert step_ticks(0, 3) == [0, 1, 2, 3]
    assert plot.marks
    assert all("epoch 0.00" in one.label and "step" not in one.label for one in plot.marks if one.label)


def test_a_picture_by_parts_of_an_epoch_has_ticks_and_narrow_bands():
    """One value is NaN: not all from there on."""
    figure = pytest.importorskip("matplotlib.figure").Figure()
    values = np.where(np.arange(100) == 50, np.nan, 1.0 / (1 + np.arange(100)))
    rows = [{"train/loss": value, "epoch": at / 5000} for at, value in enumerate(values)]
    evidence = Evidence(
        run=RunRef(store="directory", id="x", name="x"), series=tuple(histories(rows, ("train/loss",)).values())
    )
    axes = figure.subplots()
    picture._draw(axes, main_plot(evidence, diagnose(evidence, resolve_config("default"))))
    (band,) = [one for one in axes.patches if one.get_width() > 0]
    assert band.get_width() < 0.001
    assert len([one for one in axes.get_xticks() if 0 < one < 0.02]) >= 3


# MLflow


@pytest.fixture
def tracked(sqlite_uri):
    def log(*, by_tokens, tokens_logged=False, epochs=None):
        client = mlflow.MlflowClient(sqlite_uri)
        run_id = client.create_run("0").info.run_id
        noise = np.random.default_rng(0)
        if epochs:
            client.log_param(run_id, "epochs", epochs)
        for i in range(300):
            step, when = ((i + 1) * 4096 if by_tokens else i), 1_700_000_000_000 + 1000 * i
            client.log_metric(run_id, "train_loss", 2.3 * np.exp(-i / 40) + 0.1 + 0.02 * noise.normal(), when, step)
            if tokens_logged:
                client.log_metric(run_id, "tokens_seen", step, when, step)
            if i % 20 == 19:
                value = 2.3 * np.exp(-i / 40) + 0.3 + max(0, i - 120) * 0.008
                client.log_metric(run_id, "val_loss", value, when + 500, i // 20)
        client.set_terminated(run_id)
        return run_id

    return log


@pytest.mark.parametrize("by_tokens", [True, False])
def test_evaluations_by_epoch_lie_where_training_was_then(tracked, sqlite_uri, by_tokens):
    run_id = tracked(by_tokens=by_tokens, tokens_logged=by_tokens, epochs=15)
    with closing(open_run(run_id, tracking_uri=sqlite_uri)) as run:
        evidence = run.read(request_for("train_loss", "val_loss"))
    train, held_out = evidence.find("train_loss"), evidence.find("val_loss")
    assert held_out.steps.tolist() == [int(train.steps[i]) for i in range(19, 300, 20)]
    step = int(held_out.steps[6])
    assert held_out.where(step) == f"epoch 6 ({'tokens_seen' if by_tokens else 'step'} {step})"
    message, _ = messages(check(run_id, tracking_uri=sqlite_uri), "GEN001")
    assert "at epoch 6 (" in message or "at epoch 7 (" in message or "at epoch 5 (" in message


def test_a_count_that_is_logged_as_its_own_step_names_the_steps(tracked, sqlite_uri):
    run_id = tracked(by_tokens=True, tokens_logged=True)
    with closing(open_run(run_id, tracking_uri=sqlite_uri)) as run:
        loss = run.read(request_for("train_loss")).find("train_loss")
    assert loss.where(4096) == "tokens_seen 4096"


def test_evaluations_on_the_same_steps_stay_there(sqlite_uri):
    client = mlflow.MlflowClient(sqlite_uri)
    run_id = client.create_run("0").info.run_id
    for i in range(40):
        client.log_metric(run_id, "train_loss", 2.0 / (i + 1), 1_700_000_000_000 + 1000 * i, i)
        if i % 5 == 4:
            client.log_metric(run_id, "val_loss", 2.1 / (i + 1), 1_700_000_000_000 + 1000 * i + 500, i)
    with closing(open_run(run_id, tracking_uri=sqlite_uri)) as run:
        held_out = run.read(request_for("train_loss", "val_loss")).find("val_loss")
    assert held_out.steps.tolist() == list(range(4, 40, 5))
    assert held_out.axis is None


def written(uri, losses, others):
    """A run of points: name, value, second and step."""
    client = mlflow.MlflowClient(uri)
    run_id = client.create_run("0").info.run_id
    points = [("train_loss", 2.3 * np.exp(-i / 40) + 0.1, i, step) for i, step in enumerate(losses)] + others
    metrics = [Metric(name, value, 1_700_000_000_000 + int(1000 * when), step) for name, value, when, step in points]
    for at in range(0, len(metrics), 900):
        client.log_batch(run_id, metrics[at : at + 900])
    client.set_terminated(run_id)
    with closing(open_run(run_id, tracking_uri=uri)) as run:
        evidence = run.read(request_for("train_loss", "val_loss", "learning_rate"))
    return {one.name: one for one in evidence.series}


def test_evaluations_of_earlier_checkpoints_stay_at_their_steps(sqlite_uri):
    """As one makes them that began when training was nearly done."""
    others = [("val_loss", 1.0, 270 + i, 10 * i + 1) for i in range(1, 30)]
    held_out = written(sqlite_uri, range(1, 301), others)["val_loss"]
    assert held_out.steps.tolist() == [10 * i + 1 for i in range(1, 30)]
    others = [("val_loss", 1.0, 280 + 2 * i, 10 * i) for i in range(1, 10)]
    held_out = written(sqlite_uri, range(1, 301), others)["val_loss"]
    assert held_out.steps.tolist() == [10 * i for i in range(1, 10)], "of its first third"


def test_a_history_of_more_points_than_the_loss_keeps_them(sqlite_uri):
    losses = [("learning_rate", 1e-3, i / 20 + 0.005, i) for i in range(300)]
    rates = written(sqlite_uri, range(15), losses)["learning_rate"]
    assert rates.steps.tolist() == list(range(300))


def test_an_evaluation_before_training_does_not_hide_how_the_others_lie(sqlite_uri):
    others = [("val_loss", 1.0, 20 * i - 0.5, i) for i in range(16)]
    held_out = written(sqlite_uri, range(1, 301), others)["val_loss"]
    assert held_out.steps.tolist() == [1, *range(20, 301, 20)]


def test_only_what_counts_tokens_is_called_so(sqlite_uri):
    tokens = [("tokens_seen", 4096.0 * (i + 1), i, 4096 * (i + 1)) for i in range(100)]
    two = [("val_loss", 1.0, 50 * i, i) for i in (1, 2)]
    found = written(sqlite_uri, [4096 * (i + 1) for i in range(100)], tokens + two)
    assert found["train_loss"].place(4096) == "tokens_seen 4096"
    assert found["val_loss"].place(1) == "step 1"
    found = written(sqlite_uri, range(100), tokens)
    assert found["train_loss"].place(50) == "step 50", "the loss was logged by steps"
