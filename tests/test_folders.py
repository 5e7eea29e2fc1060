"""Whole folders as people have them, judged through the public API: what belongs together, and what must not be mixed up."""

import json
import math
import os

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import tracker_health
from tracker_health.settings.sources import configured


def losses(n=200, start=2.3, end=0.1, noise=0.02, seed=0):
    return (
        end + (start - end) * np.exp(-np.arange(n) / (n / 5)) + noise * np.random.default_rng(seed).standard_normal(n)
    )


def write_log(path, values, first=1, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"step": first + i, "loss": float(value), **more}) for i, value in enumerate(values)]
    path.write_text("\n".join(rows) + "\n")


def write_trainer_state(folder, steps, max_steps=2000, save_steps=500, **more):
    folder.mkdir(parents=True, exist_ok=True)
    history = [
        {"step": step, "loss": float(value)} for step, value in zip(range(10, steps + 1, 10), losses(200), strict=False)
    ]
    state = {
        "log_history": history,
        "global_step": steps,
        "max_steps": max_steps,
        "save_steps": save_steps,
        "num_train_epochs": 3,
        **more,
    }
    (folder / "trainer_state.json").write_text(json.dumps(state))


def save_state(path, steps=500):
    path.parent.mkdir(parents=True, exist_ok=True)
    moments = {
        0: {"step": torch.tensor(float(steps)), "exp_avg": 0.1 * torch.rand(4, 4), "exp_avg_sq": 0.5 + torch.rand(4, 4)}
    }
    torch.save({"state": moments, "param_groups": [{"params": [0]}]}, path)


def codes(report):
    return [finding.code for finding in report.findings]


def test_weights_beside_a_log_are_no_error(tmp_path):
    write_log(tmp_path / "log.jsonl", losses())
    torch.save(torch.nn.Linear(4, 4).state_dict(), tmp_path / "model.pt")
    report = tracker_health.check(tmp_path)
    assert (report.verdict, report.errors) == ("pass", ())


@pytest.mark.parametrize("name", ["dataset.tar", "vocab.bin"])
def test_data_beside_a_log_are_no_error(tmp_path, name):
    write_log(tmp_path / "log.jsonl", losses())
    (tmp_path / name).write_bytes(os.urandom(2000))
    report = tracker_health.check(tmp_path)
    assert (report.verdict, report.errors) == ("pass", ())


@pytest.mark.parametrize(
    "names", [("run1/log.jsonl", "run2/log.jsonl"), ("a/log.jsonl", "b/log.jsonl"), ("run_1.jsonl", "run_2.jsonl")]
)
def test_two_runs_in_one_folder_are_told_and_not_mixed(tmp_path, names):
    bad = losses(seed=1)
    bad[100:] = math.nan
    write_log(tmp_path / names[0], bad)
    write_log(tmp_path / names[1], losses(300))
    report = tracker_health.check(tmp_path)
    assert report.verdict == "error"
    assert "several unrelated logs" in report.summary
    assert "give the folder of one run" in report.summary


def test_the_same_log_twice_is_one_run(tmp_path):
    write_log(tmp_path / "a" / "log.jsonl", losses())
    write_log(tmp_path / "b" / "log.jsonl", losses())
    assert tracker_health.check(tmp_path).verdict == "pass"


def test_two_logs_of_one_run_side_by_side_are_both_used(tmp_path):
    write_log(tmp_path / "steps.jsonl", losses(200))
    write_log(tmp_path / "epochs.jsonl", losses(5, seed=3))
    assert tracker_health.check(tmp_path).verdict == "pass"


def test_a_run_restarted_from_scratch_into_numbered_logs_is_judged_on_the_restart(tmp_path):
    exploded = np.concatenate([losses(50), np.full(250, 80.0)])
    write_log(tmp_path / "part-0001.jsonl", exploded)
    write_log(tmp_path / "part-0002.jsonl", losses(100))
    assert tracker_health.check(tmp_path).verdict == "pass"


def test_checkpoints_of_two_seeds_are_not_one_series(tmp_path):
    write_log(tmp_path / "log.jsonl", losses())
    save_state(tmp_path / "seed1" / "optimizer.pt")
    save_state(tmp_path / "seed2" / "optimizer.pt")
    report = tracker_health.check(tmp_path)
    (reason,) = {skipped.reason for skipped in report.skipped if skipped.code == "OPT002"}
    assert "several unrelated checkpoints: seed1/optimizer.pt, seed2/optimizer.pt" in reason
    assert "--checkpoint" in reason


def test_a_nan_in_the_shorter_of_two_losses_is_found(tmp_path):
    rows = [{"step": i, "loss": float(value)} for i, value in enumerate(losses(200))]
    for row in rows[50:]:
        row["training_loss"] = "NaN"
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    report = tracker_health.check(tmp_path)
    assert (report.verdict, codes(report)) == ("fail", ["LOS001"])
    assert "training_loss" in report.findings[0].message


@pytest.mark.parametrize(
    ("folder", "steps", "save_steps", "beside"),
    [
        ("checkpoint-500", 500, 500, ()),
        ("checkpoint-614", 614, 500, ()),
        ("best", 1000, 500, ()),
        ("best", 614, 500, ("optimizer.pt",)),
    ],
)
def test_a_checkpoint_of_the_middle_does_not_say_where_the_run_ended(tmp_path, folder, steps, save_steps, beside):
    write_trainer_state(tmp_path / folder, steps, save_steps=save_steps)
    for name in beside:
        save_state(tmp_path / folder / name, steps)
    for run in (tmp_path / folder, tmp_path):
        report = tracker_health.check(run)
        assert report.verdict == "pass", report.summary
        assert "RUN001" in [result.code for result in report.results]


def test_the_final_state_of_a_run_that_stopped_early_is_told(tmp_path):
    write_trainer_state(tmp_path, 614)
    report = tracker_health.check(tmp_path)
    assert codes(report) == ["RUN001"]
    assert "614 of 2000 planned optimizer steps" in report.summary


def test_epochs_counted_from_0_are_complete(tmp_path):
    rows = [{"type": "config", "max_epochs": 5}]
    rows += [{"step": i, "loss": float(value), "epoch": i // 40} for i, value in enumerate(losses(200))]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert tracker_health.check(tmp_path).verdict == "pass"
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows[:121])))
    assert codes(tracker_health.check(tmp_path)) == ["RUN001"]


def test_a_rule_alone_finds_what_it_finds_among_all(tmp_path):
    write_log(
        tmp_path / "log.jsonl", np.full(100, 2.0) + 0.01 * np.random.default_rng(0).standard_normal(100), max_steps=100
    )
    save_state(tmp_path / "training_state.pt", 30)
    save_file({"model.layers.0.q.lora_A.weight": np.zeros((2, 2))}, tmp_path / "adapter_model.safetensors")
    together = {result.code: result for result in tracker_health.check(tmp_path).results}
    assert together["LOS005"].verdict == "warn", "an adapter is fine-tuned"
    for code, result in together.items():
        (alone,) = tracker_health.check(tmp_path, config=configured(select=[code])).results
        assert alone == result


def test_logs_of_held_out_data_are_no_training_loss(tmp_path):
    write_log(tmp_path / "eval" / "metrics.jsonl", losses(40))
    report = tracker_health.check(tmp_path)
    assert [use.role for use in report.series] == ["val_loss"]
    assert "LOS004" in [skipped.code for skipped in report.skipped]


def test_a_run_called_test_is_a_training_all_the_same(tmp_path):
    write_log(tmp_path / "test-run.jsonl", losses())
    assert [use.role for use in tracker_health.check(tmp_path).series] == ["train_loss"]


def test_eval_loss_in_an_eval_log_keeps_its_role(tmp_path):
    write_log(tmp_path / "train.jsonl", losses())
    rows = [{"step": i, "eval_loss": float(value)} for i, value in enumerate(losses(30))]
    (tmp_path / "eval.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert {use.name: use.role for use in tracker_health.check(tmp_path).series} == {
        "loss": "train_loss",
        "eval_loss": "val_loss",
    }


def test_a_jsonl_without_steps_is_no_log_beside_one(tmp_path):
    write_log(tmp_path / "log.jsonl", losses())
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "a"}\nnot json\n{"max_steps": 5}\n')
    report = tracker_health.check(tmp_path)
    assert (report.verdict, report.errors) == ("pass", ())


def test_a_trainer_state_cut_by_a_crash_leaves_the_one_before(tmp_path):
    write_trainer_state(tmp_path / "checkpoint-500", 500)
    write_trainer_state(tmp_path / "checkpoint-1000", 1000)
    newest = tmp_path / "checkpoint-1000" / "trainer_state.json"
    newest.write_text(newest.read_text()[:900])
    report = tracker_health.check(tmp_path)
    assert [use.points for use in report.series if use.role == "train_loss"] == [50]
    assert [error.source for error in report.errors] == ["checkpoint-1000/trainer_state.json"]
    assert report.verdict == "pass"


def test_a_checkpoint_that_was_not_saved_to_its_end_is_named(tmp_path):
    write_log(tmp_path / "log.jsonl", losses())
    (tmp_path / "dcp").mkdir()
    (tmp_path / "dcp" / "__0_0.distcp").write_bytes(b"x")
    (reason,) = {skipped.reason for skipped in tracker_health.check(tmp_path).skipped if skipped.code == "OPT002"}
    assert "without its .metadata: it was not saved to its end: dcp" in reason


def test_a_file_that_vanishes_while_the_folder_is_listed_is_passed_over(tmp_path, monkeypatch):
    write_log(tmp_path / "log.jsonl", losses())
    write_log(tmp_path / "gone.jsonl", losses(seed=1))
    listed = os.scandir

    class Vanishing:
        def __init__(self, folder):
            self.entries = list(listed(folder))

        def __enter__(self):
            (tmp_path / "gone.jsonl").unlink(missing_ok=True)
            return iter(self.entries)

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(os, "scandir", Vanishing)
    assert tracker_health.check(tmp_path).verdict == "pass"


def test_what_a_killed_first_annotation_leaves_does_not_stop_the_next(tmp_path):
    write_log(tmp_path / "log.jsonl", losses())
    (tmp_path / "health").mkdir()
    (tmp_path / "health" / ".tracker-health-0123456789abcdef.tmp").write_text("{")
    assert tracker_health.annotate(tmp_path).status == "written"


def test_many_checkpoints_take_linear_time(tmp_path, monkeypatch):
    from tracker_health.readers import trainer_state

    opened = []
    monkeypatch.setattr(
        trainer_state, "_load", lambda path, load=trainer_state._load: opened.append(path) or load(path)
    )
    for step in range(10, 610, 10):
        write_trainer_state(tmp_path / f"checkpoint-{step}", step)
        (tmp_path / f"checkpoint-{step}" / "optimizer.pt").write_bytes(b"")
    save_state(tmp_path / "checkpoint-600" / "optimizer.pt", 600)
    report = tracker_health.check(tmp_path)
    assert report.verdict == "pass", report.summary
    assert len(opened) < 10
