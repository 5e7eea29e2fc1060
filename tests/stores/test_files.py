"""Which of a run's files count, and what is told where they cannot be used."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracker_health.api import check
from tracker_health.cli import cli
from tracker_health.errors import StoreRefused, StoreUnavailable
from tracker_health.evidence import Part, Request, RunRef
from tracker_health.roles import RolePlan
from tracker_health.run_files.reading import RunFile, read_files, relevant_files
from tracker_health.stores.folder.directory import DirectoryRun
from tracker_health.words.verdict import Verdict

RUN = RunRef(store="directory", id="a", name="a")

torch = pytest.importorskip("torch")

CHECKPOINT_PARTS = {
    Part.OPTIMIZER_STATE,
    Part.SECOND_MOMENTS,
    Part.OPTIMIZER_STEPS,
    Part.SAVED_LOSS_SCALE,
    Part.SAVED_SCHEDULE,
    Part.DLM_CHECKPOINT,
    Part.WEIGHTS,
    Part.WEIGHT_CHANGES,
}


def read(folder, *, checkpoint=None, parts=frozenset(Part)):
    request = Request(roles=RolePlan(), parts=frozenset(parts), checkpoint=checkpoint)
    return read_files(DirectoryRun(folder), request, settings=True)


def optimizer_state(steps):
    moments = {
        "step": torch.tensor(float(steps)),
        "exp_avg": torch.zeros(4),
        "exp_avg_sq": torch.full((4,), float(steps)),
    }
    return {"state": {0: moments}, "param_groups": [{"lr": 0.1, "params": [0]}]}


def save(path, steps=1, **beside):
    """An optimizer's state, alone or beside other values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = optimizer_state(steps)
    torch.save({"optimizer_state_dict": state, **beside} if beside else state, path)
    return path


def save_weights(path, *names):
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: torch.zeros(2) for name in names}, path)


def save_trainer_state(path, steps, losses=(3.0, 2.0, 1.0), **beside):
    path.parent.mkdir(parents=True, exist_ok=True)
    history = [{"step": step, "loss": loss} for step, loss in enumerate(losses[:steps], start=1)]
    path.write_text(json.dumps({"log_history": history, "global_step": steps, "max_steps": 100, **beside}))


def save_lines(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def one_problem(found):
    (problem,) = found.problems
    assert problem.message.isprintable()
    assert problem.source.isprintable()
    return problem


def points(found, name):
    (series,) = [series for series in found.series if series.name == name]
    return list(zip(series.steps.tolist(), series.values.tolist(), strict=True))


# Which checkpoint


@pytest.mark.parametrize("name", ["optimizer.pt", "optimizer.bin", "training_state.pt"])
def test_of_a_series_of_checkpoints_the_newest_by_number(tmp_path, name):
    for steps in (2, 10, 9):
        save(tmp_path / f"checkpoint-{steps}" / name, steps)
    found = read(tmp_path)
    assert found.optimizer.source == f"checkpoint-10/{name}"
    assert found.optimizer.steps == 10
    assert (found.problems, found.missing) == ([], {})


def test_the_trainers_own_step_counts_more_than_the_number_in_the_path(tmp_path):
    for folder, steps in (("step-1", 20), ("step-2", 10)):
        save(tmp_path / folder / "optimizer.pt", steps)
        save_trainer_state(tmp_path / folder / "trainer_state.json", steps)
    assert read(tmp_path).optimizer.source == "step-1/optimizer.pt"


def test_the_step_of_the_last_one_is_read_though_it_has_no_number(tmp_path):
    for folder, steps in (
        ("checkpoint-100", 100),
        ("checkpoint-200", 200),
        ("checkpoint-300", 300),
        ("checkpoint-last", 400),
    ):
        save(tmp_path / folder / "optimizer.pt", steps)
        save_trainer_state(tmp_path / folder / "trainer_state.json", steps)
    assert read(tmp_path).optimizer.source == "checkpoint-last/optimizer.pt"


def test_the_modification_time_tells_where_the_numbers_do_not(tmp_path):
    older, newer = save(tmp_path / "step-1" / "optimizer.pt", 1), save(tmp_path / "step-01" / "optimizer.pt", 2)
    os.utime(older, (100, 100))
    os.utime(newer, (200, 200))
    assert read(tmp_path).optimizer.steps == 2


def test_the_step_comes_from_the_trainer_state_beside_it(tmp_path):
    save(tmp_path / "checkpoint-3" / "optimizer.pt", 3)
    save_trainer_state(tmp_path / "checkpoint-3" / "trainer_state.json", 3)
    assert read(tmp_path).optimizer.global_step == 3


def test_an_unreadable_trainer_state_beside_it_is_one_problem(tmp_path):
    save(tmp_path / "checkpoint-3" / "optimizer.pt", 3)
    (tmp_path / "checkpoint-3" / "trainer_state.json").write_text('{"log_history": [')
    found = read(tmp_path)
    assert one_problem(found).source == "checkpoint-3/trainer_state.json"
    assert (found.optimizer.steps, found.optimizer.global_step) == (3, None)


def test_unrelated_checkpoints_are_not_guessed_among(tmp_path):
    save(tmp_path / "first" / "checkpoint-2" / "optimizer.pt")
    save(tmp_path / "first" / "checkpoint-4" / "optimizer.pt")
    save(tmp_path / "second" / "checkpoint-4" / "optimizer.pt")
    found = read(tmp_path)
    assert found.optimizer is None
    assert set(found.missing) == CHECKPOINT_PARTS
    (reason,) = set(found.missing.values())
    assert "first/checkpoint-4/optimizer.pt, second/checkpoint-4/optimizer.pt" in reason
    assert "--checkpoint" in reason


# What one training leaves beside each other, the newest last.
OF_ONE_TRAINING = {
    "YOLO": ["weights/best.pt", "weights/last.pt"],
    "ImageNet example": ["model_best.pth.tar", "checkpoint.pth.tar"],
    "Lightning": [
        "checkpoints/epoch=3-step=100.ckpt",
        "checkpoints/epoch=7-val_loss=0.31.ckpt",
        "checkpoints/last.ckpt",
    ],
    "detectron2": ["model_0004999.pth", "model_final.pth"],
    "fairseq": ["checkpoint_best.pt", "checkpoint3.pt", "checkpoint_last.pt"],
    "folders": ["checkpoint-best/optimizer.pt", "checkpoint-20/optimizer.pt", "checkpoint-last/optimizer.pt"],
    "measured by": ["epoch=1-val_f1=0.50.ckpt", "epoch=2-val_auc=0.93.ckpt", "last.ckpt"],
    "best of two kinds": ["best_acc.pth", "best_val_loss.pth", "last.pth"],
    "a number of the model": ["resnet18_best.pt", "resnet18_epoch_2.pt", "resnet18_epoch_10.pt", "resnet18_last.pt"],
    "a number after the model": ["unet-best.pt", "unet-100.pt", "unet-last.pt"],
    "stages": ["stage1_epoch9.pt", "stage1_final.pt", "stage2_best.pt", "stage2_epoch3.pt"],
    "a last stage": ["stage1_final.pt", "stage2_final.pt", "final.pt"],
    "glued": ["net5.pt", "net10.pt"],
    "shards": ["model-00001-of-00003.pt", "model-00002-of-00003.pt", "model-00003-of-00003.pt"],
    "thousands": ["step_1k.pt", "step_2k.pt", "last.pt"],
}
OF_SEVERAL = {
    "two networks": ["generator_last.pt", "discriminator_last.pt"],
    "two folds": ["fold1/best.pt", "fold2/best.pt"],
    "two runs": ["run-1.pt", "run-2.pt"],
    "student and teacher": ["student/last.pt", "teacher/last.pt"],
    "after a dot": ["model.generator.pt", "model.discriminator.pt"],
    "best of two networks": ["best.actor.pth", "best.critic.pth"],
    "two optimizers": ["lr0.1_adam.pt", "lr0.1_sgd.pt"],
    "a mean of the weights": ["last.ema.pt", "last.pt"],
    "a head": ["model_v.pt", "model.pt"],
    "a model of scores": ["score_model.pt", "model.pt"],
    "two sizes": ["resnet18_last.pt", "resnet50_best.pt"],
    "two sizes, set apart": ["vit_16_epoch3.pt", "vit_32_epoch4.pt"],
    "two seeds": ["unet_seed1_last.pt", "unet_seed2_last.pt"],
    "two folders with numbers": ["1/last.pt", "2/last.pt"],
}


@pytest.mark.parametrize("names", OF_ONE_TRAINING.values(), ids=OF_ONE_TRAINING)
def test_the_best_and_the_last_checkpoint_belong_together(names, tmp_path):
    for steps, name in enumerate(names, 1):
        save(tmp_path / name, steps, epoch=1)
    for name in names:  # whichever was copied last
        os.utime(tmp_path / name, (1000 - len(name), 1000 - len(name)))
    found = read(tmp_path)
    assert (found.optimizer.source, found.optimizer.steps) == (names[-1], len(names))


@pytest.mark.parametrize("names", OF_SEVERAL.values(), ids=OF_SEVERAL)
def test_checkpoints_of_several_trainings_do_not(names, tmp_path):
    for name in names:
        save(tmp_path / name, 1, epoch=1)
    found = read(tmp_path)
    assert found.optimizer is None
    assert "several unrelated checkpoints" in found.missing[Part.OPTIMIZER_STATE]


@pytest.mark.parametrize("checkpoint", ["second/optimizer.pt", "second", "second/", "./second/optimizer.pt"])
def test_the_chosen_checkpoint_is_taken(tmp_path, checkpoint):
    save(tmp_path / "first" / "optimizer.pt", 1)
    save(tmp_path / "second" / "optimizer.pt", 2)
    found = read(tmp_path, checkpoint=checkpoint)
    assert found.optimizer.source == "second/optimizer.pt"
    assert found.missing == {}


def test_a_chosen_file_may_have_any_name(tmp_path):
    save(tmp_path / "odd.state", 7)
    assert read(tmp_path).optimizer is None
    assert read(tmp_path, checkpoint="odd.state").optimizer.steps == 7


@pytest.mark.parametrize(
    "checkpoint", ["third", "third/optimizer.pt", "../first/optimizer.pt", "/etc/passwd", "", ".."]
)
def test_a_chosen_checkpoint_that_is_not_there_is_told(tmp_path, checkpoint):
    save(tmp_path / "first" / "optimizer.txt", 1)
    found = read(tmp_path, checkpoint=checkpoint)
    assert found.optimizer is None
    assert "no such checkpoint" in one_problem(found).message
    assert Part.OPTIMIZER_STATE in one_problem(found).roles


def test_files_that_are_never_a_checkpoint_are_not_opened(tmp_path):
    for name in ("rng_state.pth", "rng_state_0.pth", "random_states_0.pkl", "training_args.bin", "scheduler.pt",
                 "scaler.pt", "consolidated.00.pth"):  # fmt: skip
        (tmp_path / name).write_bytes(b"nothing that can be read")
    found = read(tmp_path)
    assert (found.optimizer, found.problems) == (None, [])


@pytest.mark.parametrize("name", ["pytorch_model.bin", "adapter_model.bin", "model.safetensors"])
@pytest.mark.parametrize("content", [b"nothing that can be read", b"", b"version https://git-lfs.github.com/spec/v1\n"])
def test_weights_alone_that_cannot_be_read_are_an_error_where_they_are_all_there_is(name, content, tmp_path):
    """Nobody said that they are this run's."""
    (tmp_path / name).write_bytes(content)
    found = read(tmp_path)
    assert found.problems == []
    assert f"{name} cannot be read" in found.missing[Part.WEIGHTS]
    report = check(tmp_path)
    assert (report.verdict, [one.source for one in report.errors]) == (Verdict.ERROR, [name])
    assert "it cannot be read" in report.errors[0].message
    assert CliRunner().invoke(cli, ["tensors", str(tmp_path)]).exit_code == 3
    log = "".join(f'{{"step": {step}, "loss": {2 / (1 + step)}}}\n' for step in range(60))
    (tmp_path / "log.jsonl").write_text(log)
    report = check(tmp_path)
    assert (report.verdict, report.errors) == (Verdict.PASS, ())
    assert any(note.startswith(f"{name}: it cannot be read") for note in report.notes)
    assert CliRunner().invoke(cli, ["tensors", str(tmp_path)]).exit_code == 3


def test_files_of_other_names_count_if_they_hold_optimizer_state(tmp_path):
    for steps in (2, 10):
        save(tmp_path / f"epoch={steps}.ckpt", steps, epoch=steps)
    torch.save({"weight": torch.ones(2)}, tmp_path / "model.pt")
    (tmp_path / "broken.pth").write_bytes(b"PK")
    found = read(tmp_path)
    assert (found.optimizer.source, found.optimizer.steps) == ("epoch=10.ckpt", 10)
    assert found.problems == []


def test_a_known_name_counts_more_than_others(tmp_path):
    save(tmp_path / "last.ckpt", 9)
    save(tmp_path / "optimizer.pt", 3)
    assert read(tmp_path).optimizer.source == "optimizer.pt"


def test_a_lone_file_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "last.ckpt").write_bytes(b"version https://git-lfs")
    problem = one_problem(read(tmp_path))
    assert problem.source == "last.ckpt"
    assert problem.roles == frozenset(), "under this name it may as well hold weights"


def test_nothing_is_opened_that_no_rule_needs(tmp_path):
    (tmp_path / "training_state.pt").write_bytes(b"broken")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train-1.jsonl").write_bytes(b"broken")
    found = read_files(DirectoryRun(tmp_path), Request(roles=RolePlan(), parts=frozenset()), logs=False)
    assert found.problems == []


class Remote:
    """A run whose files cannot be fetched."""

    def __init__(self, error, *paths):
        self.files = tuple(RunFile(path=path, size=1) for path in paths)
        self.error = error

    def local(self, file):
        raise self.error

    open = local


@pytest.mark.parametrize(
    "paths",
    [
        ["a.ckpt", "b.ckpt"],
        ["optimizer.pt"],
        ["checkpoint-1/optimizer.pt", "checkpoint-1/trainer_state.json", "checkpoint-2/optimizer.pt"],
        ["log.jsonl"],
        ["logs/train-1.jsonl"],
    ],
)
def test_files_that_cannot_be_fetched_are_problems(paths):
    request = Request(roles=RolePlan(), parts=frozenset(Part))
    found = read_files(Remote(StoreRefused("you may not see it"), *paths), request)
    assert found.problems
    assert {problem.message for problem in found.problems} == {"you may not see it"}
    with pytest.raises(StoreUnavailable, match="answered 503"):  # that says nothing of the files
        read_files(Remote(StoreUnavailable("the server answered 503"), *paths), request)


# Weights and the adapter trainer


def test_a_training_state_alone(tmp_path):
    save(tmp_path / "training_state.pt", 5, global_step=7, epoch=1)
    found = read(tmp_path)
    assert found.dlm_checkpoint.global_step == 7
    assert found.dlm_checkpoint.state is found.optimizer
    assert (found.dlm_checkpoint.weight_names, found.dlm_checkpoint.weights_reason) == (None, "weights file missing")
    assert (found.weights, found.problems) == (None, [])


def test_a_training_state_with_its_weights(tmp_path):
    folder = tmp_path / "adapter" / "versions" / "v0001"
    save(folder / "training_state.pt", 5, global_step=7)
    names = ("model.layers.0.q_proj.lora_A.weight", "model.layers.0.q_proj.lora_B.weight")
    save_weights(folder / "adapter_model.safetensors", *names)
    save_weights(folder / "a.safetensors", "other")
    save_weights(tmp_path / "elsewhere" / "adapter_model.safetensors", "other")
    found = read(tmp_path)
    assert set(found.dlm_checkpoint.weight_names) == set(names)
    assert found.weights.source == "adapter/versions/v0001/adapter_model.safetensors"
    assert found.weights.is_adapter


def test_the_newest_of_nested_adapter_versions(tmp_path):
    for version in (2, 10):
        save(tmp_path / "adapter" / "versions" / f"v{version:04d}" / "training_state.pt", version, global_step=version)
    assert read(tmp_path).dlm_checkpoint.global_step == 10


def test_an_unreadable_weights_file_is_told_and_the_state_still_read(tmp_path):
    save(tmp_path / "training_state.pt", 5, global_step=7)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"broken")
    found = read(tmp_path)
    assert found.dlm_checkpoint.weights_reason == "weights file unreadable"
    assert one_problem(found).roles == {Part.WEIGHTS, Part.WEIGHT_CHANGES}


def test_weights_of_another_name_are_weights_but_not_the_adapters(tmp_path):
    save(tmp_path / "training_state.pt", 5, global_step=7)
    save_weights(tmp_path / "model.safetensors", "weight")
    found = read(tmp_path)
    assert found.weights.source == "model.safetensors"
    assert found.dlm_checkpoint.weights_reason == "weights file missing"


@pytest.mark.parametrize("step", ["7", None, 7.5, True])
def test_a_training_state_without_a_step_is_no_adapter_checkpoint(tmp_path, step):
    save(tmp_path / "training_state.pt", 5, global_step=step)
    found = read(tmp_path)
    assert found.dlm_checkpoint is None
    assert found.optimizer.steps == 5


def test_a_checkpoint_that_asks_for_a_call_is_told(tmp_path):
    class Call:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'canary'}",)

    save(tmp_path / "training_state.pt", 5, global_step=7, evil=Call())
    found = read(tmp_path)
    assert "system" in one_problem(found).message
    assert one_problem(found).roles == frozenset()
    assert found.optimizer.steps == 5
    assert not (tmp_path / "canary").exists()


# Logs


def test_a_log_of_held_out_data_is_kept_apart_by_a_prefix(tmp_path):
    save_lines(tmp_path / "train.jsonl", {"step": 1, "loss": 3.0})
    for name in ("eval.jsonl", "metrics_val.jsonl", "test-results.jsonl", "run.dev.jsonl"):
        save_lines(tmp_path / name, {"step": 1, "loss": 4.0})
    for name in ("evaluate.jsonl", "contest.jsonl", "device.jsonl"):
        save_lines(tmp_path / name, {"step": 1, "lr": 4.0})
    found = read(tmp_path)
    assert {(series.name, series.role) for series in found.series} == {
        ("loss", "train_loss"),
        ("eval/loss", "val_loss"),
        ("val/loss", "val_loss"),
        ("test/loss", "val_loss"),
        ("dev/loss", "val_loss"),
        ("lr", "learning_rate"),
    }


def test_the_pieces_of_a_log_are_one_series_and_the_later_piece_is_newer(tmp_path):
    save_lines(tmp_path / "log-2.jsonl", {"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.9})
    save_lines(tmp_path / "log-10.jsonl", {"step": 2, "loss": 2.0}, {"step": 3, "loss": 1.0})
    found = read(tmp_path)
    (series,) = found.series
    assert points(found, "loss") == [(1, 3.0), (2, 2.0), (3, 1.0)], "a restart replaces what came after"
    assert series.clean().values.tolist() == [3.0, 2.0, 1.0]
    assert series.source == "log-2.jsonl and 1 more"


@pytest.mark.parametrize(
    "name", ["vis_data/scalars.json", "metrics.json", "log.txt", "result.json", "20200101_120000.log.json", "log.jsonl"]
)
def test_the_names_under_which_tools_leave_json_lines(name, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f'{{"iter": {step}, "loss": {9 - step}}}\n' for step in range(9)))
    found = read(tmp_path)
    assert [(one.name, len(one)) for one in found.series] == [("loss", 9)]
    assert not found.problems


def test_the_table_of_a_trainer_that_calls_it_a_summary(tmp_path):
    (tmp_path / "summary.csv").write_text(
        "epoch,train_loss,eval_loss\n" + "".join(f"{at},{9 - at},{9 - at}\n" for at in range(9))
    )
    assert {one.name: len(one) for one in read(tmp_path).series} == {"epoch": 9, "train_loss": 9, "eval_loss": 9}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metrics.json", '{\n "accuracy": 0.9,\n "loss": 0.1\n}\n'),
        ("metrics.json", '{"accuracy": 0.9}'),
        ("log.txt", "Chapter 1: the loss\n"),
        ("result.json", "[1, 2, 3]"),
        ("result.json", ""),
    ],
)
def test_something_else_under_such_a_name_is_nothing(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    found = read(tmp_path)
    assert (found.series, found.names, found.params, found.problems) == ([], [], {}, [])


def test_a_broken_line_takes_nothing_away_and_a_broken_file_does(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"step": 1, "loss": 3.0}\n{"st')
    assert one_problem(read(tmp_path)).roles == frozenset()
    (tmp_path / "a.jsonl").write_text('{"st')
    assert "train_loss" in one_problem(read(tmp_path)).roles


def test_metric_histories_can_come_from_elsewhere(tmp_path):
    save_lines(tmp_path / "a.jsonl", {"step": 1, "loss": 3.0})
    save_trainer_state(tmp_path / "trainer_state.json", 2)
    found = read_files(DirectoryRun(tmp_path), Request(roles=RolePlan(), parts=frozenset()), logs=False)
    assert found.series == []
    info = found.evidence(RUN, Request(roles=RolePlan(), parts=frozenset())).info
    assert (info.global_step, info.params["max_steps"]) == (2, "100.0")


# Trainer states


def test_the_trainer_states_of_one_run_repeat_each_other_and_the_longest_counts(tmp_path):
    for steps in (1, 2, 3):
        save_trainer_state(tmp_path / f"checkpoint-{steps}" / "trainer_state.json", steps)
    found = read(tmp_path)
    assert points(found, "loss") == [(1, 3.0), (2, 2.0), (3, 1.0)]
    assert found.trainer.source == "checkpoint-3/trainer_state.json"
    assert found.evidence(RUN, Request(roles=RolePlan(), parts=frozenset())).info.snapshot


def save_checkpoints_at(folder, written, *, planned=100):
    """Checkpoints of a trainer: the step of each, and how many seconds ago it was written."""
    for step, ago in written.items():
        state = folder / f"checkpoint-{step}" / "trainer_state.json"
        save_trainer_state(state, step, max_steps=planned)
        os.utime(state, (time.time() - ago,) * 2)


@pytest.mark.parametrize(
    ("written", "planned", "is_snapshot"),
    [
        pytest.param({20: 9000, 40: 7200}, 100, False, id="the next should have come long ago"),
        pytest.param({20: 5400, 40: 3600}, 100, True, id="the next may still come"),
        pytest.param({20: 200, 40: 100}, 100, True, id="written a moment ago"),
        pytest.param({20: 9000, 40: 9000}, 100, True, id="all of one time, as of a copy"),
        pytest.param({20: 9000, 40: 7200}, 59, True, id="no other was due before the end"),
        pytest.param({40: 7200}, 100, True, id="one alone does not say when the next is due"),
        pytest.param({20: 1000, 40: 9000, 60: 7200}, 100, True, id="an older one was written to since"),
    ],
)
def test_a_checkpoint_that_is_long_overdue_tells_where_the_run_ended(written, planned, is_snapshot, tmp_path):
    save_checkpoints_at(tmp_path, written, planned=planned)
    assert read(tmp_path).evidence(RUN, Request(roles=RolePlan(), parts=frozenset())).info.snapshot is is_snapshot


def test_a_single_checkpoint_of_such_a_run_is_still_of_its_middle(tmp_path):
    save_checkpoints_at(tmp_path, {20: 9000, 40: 7200})
    save(tmp_path / "checkpoint-40" / "optimizer.pt")
    assert read(tmp_path / "checkpoint-40").evidence(RUN, Request(roles=RolePlan(), parts=frozenset())).info.snapshot


def test_a_trainer_state_at_the_top_is_no_snapshot(tmp_path):
    save_trainer_state(tmp_path / "checkpoint-2" / "trainer_state.json", 2)
    save_trainer_state(tmp_path / "trainer_state.json", 3)
    assert not read(tmp_path).evidence(RUN, Request(roles=RolePlan(), parts=frozenset())).info.snapshot


def test_unrelated_trainer_states_are_one_problem_that_names_them(tmp_path):
    save_trainer_state(tmp_path / "first" / "trainer_state.json", 3)
    save_trainer_state(tmp_path / "second" / "trainer_state.json", 2, losses=(5.0, 4.0))
    found = read(tmp_path)
    assert found.series == []
    assert found.trainer is None
    problem = one_problem(found)
    assert "first/trainer_state.json, second/trainer_state.json" in problem.message
    assert "train_loss" in problem.roles


def test_a_history_of_nan_is_still_the_same_run(tmp_path):
    for steps in (2, 3):
        save_trainer_state(
            tmp_path / f"checkpoint-{steps}" / "trainer_state.json", steps, losses=(3.0, float("nan"), float("nan"))
        )
    found = read(tmp_path)
    assert found.problems == []
    assert len(points(found, "loss")) == 3


# The adapter trainer's logs


def test_the_outermost_logs_folder_is_the_stores(tmp_path):
    record = {"type": "step", "step": 1, "loss": 1.0}
    save_lines(tmp_path / "store" / "logs" / "train-1.jsonl", record, {**record, "step": 2})
    save_lines(tmp_path / "store" / "old" / "logs" / "train-1.jsonl", record)
    found = read(tmp_path)
    assert found.dlm_step_log.files == ("store/logs/train-1.jsonl",)
    assert len(found.dlm_step_log) == 2


def test_other_files_in_the_logs_folder_are_not_the_trainers(tmp_path):
    save_lines(tmp_path / "logs" / "eval-1.jsonl", {"type": "step", "step": 1, "loss": 1.0})
    assert read(tmp_path).dlm_step_log is None


def test_a_broken_log_of_the_trainer_takes_only_its_own_part_away(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train-1.jsonl").write_text('broken\n{"type": "step", "step": 1, "loss": 1.0}\n')
    found = read(tmp_path)
    assert found.dlm_step_log is None
    assert {problem.roles for problem in found.problems} == {frozenset(), frozenset({Part.DLM_STEP_LOG})}
    assert points(found, "loss") == [(1, 1.0)]


# Fingerprint


def test_a_newest_checkpoint_that_was_cut_short_is_told_and_the_one_before_it_read(tmp_path):
    for epoch in (8, 9, 10):
        save(tmp_path / f"epoch_{epoch}.pt", steps=epoch)
    save(tmp_path / "model_best.pt", steps=5)
    whole = (tmp_path / "epoch_10.pt").read_bytes()
    (tmp_path / "epoch_10.pt").write_bytes(whole[: len(whole) // 2])
    found = read(tmp_path)
    assert found.optimizer.source == "epoch_9.pt"
    assert [(one.source, one.roles) for one in found.problems] == [("epoch_10.pt", frozenset())]


def test_checkpoints_are_looked_for_among_many_files_of_data(tmp_path):
    for number in range(60):
        torch.save(torch.zeros(2), tmp_path / f"{chr(97 + number % 26)}{'x' * (number // 26)}.pt")
    save(tmp_path / "ckpt" / "epoch_10.pt")
    assert read(tmp_path).optimizer.source == "ckpt/epoch_10.pt"


def test_that_there_are_several_unrelated_checkpoints_is_noted(tmp_path):
    save(tmp_path / "generator.pt")
    save(tmp_path / "critic.pt")
    assert [note for note in read(tmp_path).notes if "several unrelated checkpoints: critic.pt, generator.pt" in note]


def write_settings(path, **settings):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))


def test_settings_beside_the_log_are_the_runs_params(tmp_path):
    write_settings(tmp_path / "config.json", epochs=20, lr=0.1)
    write_settings(tmp_path / "lightning_logs" / "version_0" / "hparams.yaml", epochs=30)
    write_settings(tmp_path / "data" / "config.json", seed=1)
    log = tmp_path / "lightning_logs" / "version_0" / "metrics.csv"
    log.write_text("epoch,step,train_loss\n" + "".join(f"{n},{n * 10},{2.0 - n / 10}\n" for n in range(10)))
    assert read(tmp_path).params == {"epochs": "30", "lr": "0.1"}


def test_settings_alone_are_no_run_and_count_beside_a_checkpoint(tmp_path):
    write_settings(tmp_path / "config.json", epochs=20)
    assert read(tmp_path).params == {}
    save(tmp_path / "last.pt")
    assert read(tmp_path).params == {"epochs": "20"}


def test_other_settings_are_another_state_of_a_folder(tmp_path):
    save(tmp_path / "last.pt")
    request = Request(roles=RolePlan(), parts=frozenset())
    before = DirectoryRun(tmp_path).fingerprint(request)
    write_settings(tmp_path / "config.json", epochs=20)
    assert DirectoryRun(tmp_path).fingerprint(request) != before


def test_what_a_log_says_of_itself_counts_before_the_settings(tmp_path):
    write_settings(tmp_path / "params.json", max_steps=7, lr=0.1)
    save_trainer_state(tmp_path / "trainer_state.json", 3, max_steps=3)
    assert read(tmp_path).params["max_steps"] == "3.0"
    assert read(tmp_path).params["lr"] == "0.1"


def test_settings_that_cannot_be_read_are_noted_and_are_no_error(tmp_path):
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "config.yaml").write_text("a: [1")
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps({"step": n, "loss": 1.0}) + "\n" for n in range(9)))
    found = read(tmp_path)
    assert len(found.series) == 1
    assert found.problems == []
    assert sorted(note.partition(" is not read: ")[0] for note in found.notes) == ["config.json", "config.yaml"]


def test_the_files_that_reading_may_open(tmp_path):
    names = [
        "a.jsonl",
        "b.ndjson",
        "trainer_state.json",
        "model.safetensors",
        "optimizer.pt",
        "x.ckpt",
        "x.tar",
        "scheduler.pt",
    ]
    others = ["README.md", "rng_state.pth", "config.json", "tokenizer.json"]
    for name in names + others:
        (tmp_path / name).touch()
    assert {file.name for file in relevant_files(DirectoryRun(tmp_path))} == set(names)


@pytest.mark.parametrize("path", ["a/b/c.pt", "c.pt"])
def test_a_files_name_and_folder(path):
    file = RunFile(path=path, size=1)
    assert (file.name, file.folder) == ("c.pt", str(Path(path).parent))
