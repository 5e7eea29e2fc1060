"""The checkpoint to go back to, in what real libraries leave: folders, MLflow's artifacts and models, W&B's files."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import tracker_health as th
from tracker_health.cli import cli
from tracker_health.errors import ReadError
from tracker_health.readers.files.random_access import LocalFile
from tracker_health.readers.tensors.weights import Budget
from tracker_health.report.resume_point import Counted, Saved
from tracker_health.run_files.all_checkpoints import SavedFiles, is_model_file
from tracker_health.run_files.naming import counted, saved_together
from tracker_health.run_files.tree import AboveLimit, RunFile
from tracker_health.stores.folder.directory import DirectoryRun

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402

NAN = float("nan")
DEEPSPEED = Path(__file__).parent.parent / "data" / "deepspeed"


# Names


@pytest.mark.parametrize(
    ("name", "step", "epoch", "number"),
    [
        ("epoch=3-step=900.ckpt", 900, 3, None),
        ("epoch=3-step=900-v1.ckpt", 900, 3, None),
        ("epoch=3-val_loss=0.52.ckpt", None, 3, None),
        ("step_2k.pt", 2000, None, None),
        ("iter_0005000", 5000, None, None),
        ("global_step120", 120, None, None),
        ("ep3-ba900-rank0.pt", 900, 3, None),
        ("model_epoch_12.pth.tar", None, 12, None),
        ("checkpoint-500", None, None, 500),
        ("model_000200.pt", None, None, 200),
        ("000200.pt", None, None, 200),
        ("checkpoint0009.pth", None, None, 9),
        ("checkpoint_1_500.pt", None, None, 500),
        ("unet-100.pt", None, None, 100),
        ("weights.05-0.12.h5", None, None, 5),
        ("resnet18.pth", None, None, None),
        ("last-v1.ckpt", None, None, None),
        ("rank_3.pt", None, None, None),
        ("val_loss_3.pt", None, None, None),
        ("tokens_5000.pt", None, None, None),
        ("model-00001-of-00002.safetensors", None, None, None),
        ("9" * 40 + ".pt", None, None, None),
        ("model-abc/v3/model.ckpt", None, None, None),
        ("checkpoint-5/optimizer.pt", None, None, 5),
    ],
)
def test_a_name_says_when_it_was_saved(name, step, epoch, number):
    assert counted(name) == Counted(step, epoch, number)


@pytest.mark.parametrize(
    ("path", "together"),
    [
        ("a/checkpoint-500/model.safetensors", "a/checkpoint-500"),
        ("checkpoint-500/global_step500/mp_rank_00_model_states.pt", "checkpoint-500"),
        ("iter_0005000/mp_rank_00/model_optim_rng.pt", "iter_0005000"),
        ("step-10/optimizer_0/__0_0.distcp", "step-10"),
        ("exp_epochs50/model_step100.pt", "exp_epochs50/model_step100.pt"),
        ("seed1/model_step100.pt", "seed1/model_step100.pt"),
        ("version_0/checkpoints/epoch=3-step=900.ckpt", "version_0/checkpoints/epoch=3-step=900.ckpt"),
        ("model.pt", "model.pt"),
    ],
)
def test_the_files_of_one_checkpoint_are_told_by_its_folder(path, together):
    assert saved_together(path, is_part=path.endswith((".distcp", ".safetensors"))) == together


def test_what_is_no_part_of_a_model_is_no_checkpoint():
    names = ("rng_state_0.pth", "training_args.bin", "scheduler.pt", "scaler.pt", "tokens.bin", "data.npz", "log.txt")
    assert not any(map(is_model_file, names))
    assert all(map(is_model_file, ("best.keras", "ckpt-5.index", "params_500.npz", "model.pth.tar", "__0_0.distcp")))


# Folders


def write_losses(folder, *, wrong_from=620, steps=1000, key="step", every=1, value=NAN):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    falling = 0.1 + 2.2 * 0.995 ** np.arange(steps + 1) + rng.normal(0, 0.01, steps + 1)
    rows = [{key: at, "loss": float(falling[at]) if at < wrong_from else value} for at in range(1, steps + 1, every)]
    (folder / "train_log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def net(*, nan=False):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    if nan:
        with torch.no_grad():
            model[2].weight[0, 3] = NAN
    return model


def state_of(step, *, nan=False, **more):
    model = net(nan=nan)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, **more}


def rewind(run, **more):
    return th.check(str(run), **more).rewind


def test_the_newest_file_from_before_without_nan_is_named(tmp_path):
    run = write_losses(tmp_path / "outputs")
    for step in range(50, 1001, 50):
        torch.save(state_of(step, nan=step == 600 or step > 620), run / f"model_{step:06d}.pt")
    found = rewind(run)
    assert found.said == (
        f"{run}/model_000550.pt (step 550, before loss became NaN or infinite at step 620; no NaN in 12 tensors; "
        f"{run}/model_000600.pt holds NaN)"
    )
    document = th.check(str(run)).to_json()["rewind"]
    assert (document["path"], document["step"]) == (f"{run}/model_000550.pt", 550)


def test_nan_in_the_optimizers_state_alone_counts(tmp_path):
    run = write_losses(tmp_path / "outputs")
    state = state_of(600)
    state["optimizer"]["state"][0]["exp_avg"][0, 0] = NAN
    torch.save(state, run / "model_000600.pt")
    torch.save(state_of(300), run / "model_000300.pt")
    assert rewind(run).step == 300


def test_a_mask_of_minus_infinity_and_a_best_score_of_infinity_are_in_order(tmp_path):
    run = write_losses(tmp_path / "outputs")
    state = state_of(500, callbacks={"EarlyStopping": {"best_score": torch.tensor(float("inf"))}})
    state["model"]["mask"] = torch.triu(torch.full((4, 4), float("-inf")), 1)
    torch.save(state, run / "model_000500.pt")
    assert rewind(run).checked == "no NaN in 13 tensors"
    state["model"]["mask"][1, 0] = float("inf")
    torch.save(state, run / "model_000500.pt")
    assert not rewind(run).path


def save_hf(folder, step, *, nan=False):
    folder.mkdir(parents=True)
    save_file(net(nan=nan).state_dict(), folder / "model.safetensors")
    torch.save(state_of(step)["optimizer"], folder / "optimizer.pt")
    torch.save({"cuda": torch.tensor(NAN)}, folder / "rng_state.pth")
    history = [
        {"step": at, "loss": 2.0 * 0.995**at if at < 620 else None, "epoch": at / 100} for at in range(10, step + 1, 10)
    ]
    state = {"global_step": step, "max_steps": 2000, "epoch": step / 100, "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(state))


def test_folders_of_the_hugging_face_trainer(tmp_path):
    run = tmp_path / "outputs"
    for step in (200, 400, 600, 800):
        save_hf(run / f"checkpoint-{step}", step, nan=step >= 600)
    found = rewind(run)
    assert found.path == f"{run}/checkpoint-400"
    assert found.said.endswith(f"no NaN in 12 tensors; {run}/checkpoint-600 holds NaN)")


def test_of_one_checkpoint_that_was_named_nothing_is_said_of_the_others(tmp_path):
    for step in (400, 800):
        save_hf(tmp_path / f"checkpoint-{step}", step)
    report = th.check(str(tmp_path / "checkpoint-800"))
    assert report.verdict == "fail"
    assert report.rewind is None


def test_of_a_folder_its_trainer_state_knows_the_step(tmp_path):
    run = tmp_path / "outputs"
    for step in (200, 800):
        save_hf(run / f"checkpoint-{step}", step)
    save_hf(run / "best", 300)
    assert rewind(run).path == f"{run}/best"


def test_a_lightning_checkpoint_is_known_by_step_and_epoch(tmp_path):
    run = tmp_path / "version_0"
    rows = [
        "epoch,step,train_loss",
        *(f"{at // 100},{at},{2.0 * 0.99**at if at < 620 else 'nan'}" for at in range(1000)),
    ]
    (run / "checkpoints").mkdir(parents=True)
    (run / "metrics.csv").write_text("\n".join(rows) + "\n")
    for epoch in range(10):
        step = 100 * (epoch + 1)
        content = {"epoch": epoch, "global_step": step, "state_dict": net(nan=step > 620).state_dict()}
        torch.save(content, run / "checkpoints" / f"epoch={epoch}-step={step}.ckpt")
    torch.save({"global_step": 1000, "state_dict": net(nan=True).state_dict()}, run / "checkpoints" / "last.ckpt")
    found = rewind(run)
    assert (found.step, found.epoch) == (600, 5)
    assert "(step 600, before train_loss became NaN or infinite at step 620;" in found.said


def test_a_file_that_names_no_step_says_it_inside(tmp_path):
    run = write_losses(tmp_path / "outputs")
    torch.save(state_of(580), run / "best.pt")
    torch.save(state_of(1000, nan=True), run / "last.pt")
    assert rewind(run).path == f"{run}/best.pt"


def test_where_only_the_optimizer_counted_its_steps_they_count(tmp_path):
    run = write_losses(tmp_path / "outputs", wrong_from=5, steps=15)
    torch.save({"model": net().state_dict(), "optimizer": state_of(0)["optimizer"]}, run / "best.pt")
    assert rewind(run).said.startswith(f"{run}/best.pt (step 1, before")


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_distributed_checkpoint_is_read_in_pieces(tmp_path):
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    run = write_losses(tmp_path / "outputs")
    for step in (200, 400, 600, 800):
        state = {"model": net(nan=step >= 600).state_dict(), "optim": state_of(step)["optimizer"]["state"]}
        writer = dcp.FileSystemWriter(run / f"step-{step}", sync_files=False)
        dcp.save(state, storage_writer=writer)
    found = rewind(run)
    assert found.path == f"{run}/step-400"
    assert found.checked == "no NaN in 12 tensors"


def test_folders_of_deepspeed(tmp_path):
    run = write_losses(tmp_path / "outputs", wrong_from=20, steps=40)
    for step in (3, 30):
        shutil.copytree(DEEPSPEED / "zero2" / "global_step3", run / f"global_step{step}")
    found = rewind(run)
    assert found.path == f"{run}/global_step3"
    assert found.checked.startswith("no NaN in ")


def test_shards_are_one_checkpoint(tmp_path):
    run = write_losses(tmp_path / "outputs")
    for step, broken in ((300, False), (600, True)):
        folder = run / f"checkpoint-{step}"
        folder.mkdir()
        for shard in (1, 2):
            tensor = torch.full((4, 4), NAN if broken and shard == 2 else 1.0)
            save_file({f"l{shard}.weight": tensor}, folder / f"model-{shard:05d}-of-00002.safetensors")
    found = rewind(run)
    assert (found.path, found.checked) == (f"{run}/checkpoint-300", "no NaN in 2 tensors")


def test_files_by_epoch_beside_a_log_of_epochs(tmp_path):
    run = write_losses(tmp_path / "outputs", wrong_from=17, steps=30, key="epoch")
    for epoch in range(1, 31):
        torch.save(net().state_dict(), run / f"model_epoch_{epoch:02d}.pth")
    assert rewind(run).said.startswith(
        f"{run}/model_epoch_16.pth (epoch 16, before loss became NaN or infinite at epoch 17;"
    )


def test_the_best_validation_is_gone_back_to(tmp_path):
    run = tmp_path / "outputs"
    run.mkdir()
    steps = range(100, 3001, 100)
    rows = [{"step": at, "train_loss": 2.0 * 0.999**at, "val_loss": 1.0 + abs(at - 900) / 900} for at in steps]
    (run / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for step in range(500, 3001, 500):
        moved = {name: value + step / 1e5 for name, value in net().state_dict().items()}
        torch.save({"model": moved}, run / f"ckpt_step_{step}.pt")
    report = th.check(str(run))
    assert [one.code for one in report.findings if one.onset] == ["GEN001"]
    assert report.rewind.step == 500
    assert "not after the best validation loss at step 900" in report.rewind.said


def test_formats_that_are_not_read_are_named(tmp_path):
    run = write_losses(tmp_path / "outputs", wrong_from=17, steps=30, key="epoch")
    for epoch in range(1, 31):
        (run / f"model_epoch_{epoch:02d}.keras").write_bytes(b"PK")
    found = rewind(run)
    assert found.path == f"{run}/model_epoch_16.keras"
    assert found.checked == "not checked: no values are read from files of .keras"


def test_a_pickled_model_is_named_and_not_run(tmp_path):
    run = write_losses(tmp_path / "outputs")
    torch.save(net(), run / "model_000600.pt")
    assert "not checked: it is a pickled object (" in rewind(run).said


class Evil:
    def __reduce__(self):
        return os.system, (f"touch {os.environ['RAN']}",)


def test_what_a_pickle_asks_for_is_not_done(tmp_path, monkeypatch):
    monkeypatch.setenv("RAN", str(tmp_path / "ran"))
    run = write_losses(tmp_path / "outputs")
    torch.save(state_of(600, evil=Evil()), run / "model_000600.pt")
    assert rewind(run).checked == "no NaN in 12 tensors"
    assert not (tmp_path / "ran").exists()


def test_one_that_is_cut_short_gives_way(tmp_path):
    run = write_losses(tmp_path / "outputs")
    for step in (300, 600):
        torch.save(state_of(step), run / f"model_{step:06d}.pt")
    content = (run / "model_000600.pt").read_bytes()
    (run / "model_000600.pt").write_bytes(content[: len(content) // 2])
    found = rewind(run)
    assert found.step == 300
    assert found.passed_over == (f"{run}/model_000600.pt cannot be read",)


def test_data_in_tensors_is_no_checkpoint(tmp_path):
    run = write_losses(tmp_path / "outputs")
    for step in range(100, 1001, 100):
        torch.save({"x": torch.ones(3, 3)}, run / f"train_{step}.pt")
    assert rewind(run) is None or not rewind(run).path
    torch.save(state_of(400), run / "model_400.pt")


def test_two_trainings_side_by_side_say_nothing(tmp_path):
    run = write_losses(tmp_path / "outputs")
    for seed in (1, 2):
        (run / f"seed{seed}").mkdir()
        for step in (300, 600, 900):
            torch.save(state_of(step), run / f"seed{seed}" / f"model_{step}.pt")
    assert rewind(run) is None


def test_a_generator_and_its_discriminator_are_of_one_training(tmp_path):
    run = write_losses(tmp_path / "outputs")
    for step in range(100, 1001, 100):
        torch.save({"model": torch.nn.Linear(64, 64).state_dict()}, run / f"G_{step}.pth")
        torch.save({"model": torch.nn.Linear(8, 8).state_dict()}, run / f"D_{step}.pth")
    assert rewind(run).path == f"{run}/G_600.pth"


def test_dumped_gradients_are_no_checkpoints(tmp_path):
    run = write_losses(tmp_path / "outputs")
    folder = run / "gradients" / "step300" / "sampled_gradients"
    folder.mkdir(parents=True)
    save_file({"l.weight": torch.ones(2, 2)}, folder / "l.weight.safetensors")
    assert rewind(run) is None


def test_that_none_is_left_is_said(tmp_path):
    run = write_losses(tmp_path / "outputs")
    for step in (700, 800, 900, 1000):
        torch.save(state_of(step, nan=True), run / f"model_{step}.pt")
    assert rewind(run).said == "no checkpoint from before step 620 is left; save them more often"


def test_a_run_that_passed_looks_at_no_checkpoint(tmp_path, monkeypatch):
    run = write_losses(tmp_path / "outputs", wrong_from=10**9)
    torch.save(state_of(500), run / "model_500.pt")
    monkeypatch.setattr(DirectoryRun, "saved", lambda *_: pytest.fail("it was asked for checkpoints"))
    assert rewind(run) is None


def test_the_verdict_stays_where_looking_breaks(tmp_path, monkeypatch):
    run = write_losses(tmp_path / "outputs")
    monkeypatch.setattr(DirectoryRun, "saved", lambda *_: 1 / 0)
    report = th.check(str(run))
    assert (report.verdict, report.rewind) == ("fail", None)
    assert any("no checkpoint to go back to was looked for" in note for note in report.notes)


# Hostile


@pytest.mark.slow
def test_thousands_of_checkpoints_are_listed_and_three_read(tmp_path, monkeypatch):
    run = write_losses(tmp_path / "outputs", steps=6000, wrong_from=5491, every=10)
    torch.save(net().state_dict(), run / "model_1.pt")
    for step in range(2, 6001):
        os.link(run / "model_1.pt", run / f"model_{step}.pt")
    opened = []
    monkeypatch.setattr(
        DirectoryRun, "open", lambda self, file: (opened.append(file.path), LocalFile(self.local(file)))[1]
    )
    shelf, started = DirectoryRun(run).saved(None), time.process_time()
    assert len(shelf.listed) == 6000
    assert time.process_time() - started < 20
    opened.clear()
    found = rewind(run)
    assert (found.path, found.step) == (f"{run}/model_5490.pt", 5490)
    assert len(set(opened)) < 60, "most of them by those who choose what is judged"


def test_names_cannot_break_out_of_what_is_shown(tmp_path):
    run = write_losses(tmp_path / "outputs")
    name = "a\n\x1b[31m<script>alert(1)</script>`|step_600.pt".replace("/", "-")
    torch.save(state_of(600), run / name)
    report = th.check(str(run))
    assert report.rewind.step == 600
    shown = CliRunner().invoke(cli, ["check", str(run)], color=False).output
    page = CliRunner().invoke(cli, ["report", str(run), "-o", str(tmp_path / "page.html")])
    assert page.exit_code == 0, page.output
    html = (tmp_path / "page.html").read_text()
    markdown = CliRunner().invoke(cli, ["check", str(run), "--format", "markdown"]).output
    assert "Go back to:" in html
    assert "<script>alert" not in html
    for text in (shown, html, markdown):
        assert "\x1b[31m" not in text
    line = next(one for one in markdown.splitlines() if one.startswith("**Go back to:**"))
    assert line.count("`") == 2


def test_links_in_circles_are_not_followed(tmp_path):
    run = write_losses(tmp_path / "outputs")
    (run / "checkpoint-600").symlink_to(run, target_is_directory=True)
    (run / "model_500.pt").symlink_to(run / "model_500.pt")
    torch.save(state_of(300), run / "model_300.pt")
    assert rewind(run).step == 300


def test_ten_gigabytes_of_holes_are_not_read(tmp_path):
    run = write_losses(tmp_path / "outputs")
    size = 10 * 2**30
    header = json.dumps(
        {"l.weight": {"dtype": "F32", "shape": [size // 4 // 1024, 1024], "data_offsets": [0, size]}}
    ).encode()
    with (run / "model_600.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + b"\x00\x00\x80\x3f" * 4096)
        file.truncate(8 + len(header) + size)
    started = time.process_time()
    found = rewind(run)
    assert found.path == f"{run}/model_600.safetensors"
    assert found.checked.startswith(("no NaN in 1 tensor, 1 of them in part", "not checked: "))
    assert time.process_time() - started < 20


def test_beyond_the_budget_the_beginning_of_each_tensor_is_read(tmp_path):
    state = {f"l{one}.weight": torch.ones(400, 400) for one in range(3)}
    torch.save(state, tmp_path / "model_5.pt")
    shelf = SavedFiles(DirectoryRun(tmp_path), str, Budget(400 * 400 * 4))
    look = shelf.look(shelf.listed[0])
    assert (look.tensors, look.in_part) == (3, 2)
    assert look.said == "no NaN in 3 tensors, 2 of them in part"
    state["l2.weight"][0, 0] = NAN
    torch.save(state, tmp_path / "model_5.pt")
    assert SavedFiles(DirectoryRun(tmp_path), str, Budget(0)).look(shelf.listed[0]).nonfinite


# Elsewhere


class Elsewhere:
    """A tree of files of which none may be fetched."""

    files = (RunFile(path="model_600.pt", size=3 * 10**9),)

    def local(self, file):
        raise AboveLimit(f"{file.path} has 3 GB: that is above the limit of 2 GB; raise it with --max-download")

    open = local


def test_one_above_the_limit_is_named_and_not_fetched():
    shelf = SavedFiles(Elsewhere(), lambda path: f"runs:/1/{path}")
    (saved,) = shelf.listed
    look = shelf.look(saved)
    assert saved.path == "runs:/1/model_600.pt"
    assert look.said.startswith("not checked: model_600.pt has 3 GB: that is above the limit of 2 GB")
    assert not look.is_broken


def test_a_file_of_another_machine_is_sampled(tmp_path, monkeypatch):
    torch.save({f"l{one}.weight": torch.ones(64, 64) for one in range(100)}, tmp_path / "model_5.pt")

    class Far:
        def __init__(self, path):
            self.file = LocalFile(path)
            self.size = self.file.size

        def __getattr__(self, name):
            return getattr(self.file, name)

    monkeypatch.setattr(DirectoryRun, "open", lambda self, file: Far(self.local(file)))
    shelf = DirectoryRun(tmp_path).saved(None)
    assert shelf.look(shelf.listed[0]).tensors == 32


@pytest.fixture
def mlflow_run(sqlite_uri):
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=sqlite_uri)
    experiment = client.get_experiment_by_name("local").experiment_id
    run = client.create_run(experiment).info.run_id
    metrics = [
        mlflow.entities.Metric("train_loss", 2.0 * 0.995**at if at < 620 else NAN, 1000 + at, at)
        for at in range(0, 1000, 5)
    ]
    client.log_batch(run, metrics=metrics)
    return SimpleNamespace(client=client, id=run, experiment=experiment, uri=sqlite_uri)


def test_artifacts_of_mlflow(mlflow_run, tmp_path):
    for step in (200, 400, 600, 800):
        torch.save(state_of(step, nan=step >= 600), tmp_path / f"step_{step}.pt")
        mlflow_run.client.log_artifact(mlflow_run.id, str(tmp_path / f"step_{step}.pt"), "checkpoints")
    mlflow_run.client.set_terminated(mlflow_run.id)
    found = rewind(mlflow_run.id, tracking_uri=mlflow_run.uri)
    assert found.path == f"runs:/{mlflow_run.id}/checkpoints/step_400.pt"
    assert found.checked == "no NaN in 12 tensors"


def test_models_that_mlflow_logged_count_by_their_step_however_many_came_later(mlflow_run, tmp_path):
    import mlflow

    outputs = []
    for step in range(50, 1000, 50):
        folder = tmp_path / str(step)
        folder.mkdir()
        save_file(net(nan=step >= 600).state_dict(), folder / "model.safetensors")
        model = mlflow_run.client.create_logged_model(mlflow_run.experiment, name="net", source_run_id=mlflow_run.id)
        mlflow_run.client.log_model_artifacts(model.model_id, str(folder))
        outputs.append(mlflow.entities.LoggedModelOutput(model.model_id, step))
    mlflow_run.client.log_outputs(mlflow_run.id, outputs)
    mlflow_run.client.set_terminated(mlflow_run.id)
    found = rewind(mlflow_run.id, tracking_uri=mlflow_run.uri)
    by_step = {one.step: one.model_id for one in outputs}
    assert found.path == f"models:/{by_step[550]}"
    assert found.said.endswith(f"no NaN in 4 tensors; models:/{by_step[600]} holds NaN)")


def test_a_model_that_mlflow_pickled_is_named(mlflow_run, tmp_path):
    import mlflow

    (tmp_path / "data").mkdir()
    (tmp_path / "MLmodel").write_text("flavors: {}")
    torch.save(net(), tmp_path / "data" / "model.pth")
    model = mlflow_run.client.create_logged_model(mlflow_run.experiment, name="net", source_run_id=mlflow_run.id)
    mlflow_run.client.log_model_artifacts(model.model_id, str(tmp_path))
    mlflow_run.client.log_outputs(mlflow_run.id, [mlflow.entities.LoggedModelOutput(model.model_id, 500)])
    mlflow_run.client.set_terminated(mlflow_run.id)
    found = rewind(mlflow_run.id, tracking_uri=mlflow_run.uri)
    assert found.path == f"models:/{model.model_id}"
    assert "is a pickled model" in found.checked


def test_artifacts_on_a_server_are_read_within_the_limit(server_uri, tmp_path):
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=server_uri)
    run = client.create_run(client.create_experiment("rewind")).info.run_id
    values = [mlflow.entities.Metric("train_loss", 2.0 if at < 620 else NAN, 1000 + at, at) for at in range(0, 1000, 5)]
    client.log_batch(run, metrics=values)
    torch.save({"model": {f"l{one}.weight": torch.ones(512, 512) for one in range(6)}}, tmp_path / "step_600.pt")
    client.log_artifact(run, str(tmp_path / "step_600.pt"))
    client.set_terminated(run)
    assert rewind(run, tracking_uri=server_uri).checked == "no NaN in 6 tensors"
    limited = rewind(run, tracking_uri=server_uri, config=th.Config(max_download=100_000))
    assert limited.path == f"runs:/{run}/step_600.pt"
    assert "above the limit of 100" in limited.checked


def test_files_of_a_local_wandb_run(tmp_path):
    pytest.importorskip("wandb")
    from . import wandb_logs

    folder = tmp_path / "offline-run-1-abc"
    rows = [
        wandb_logs.history(at, {"train/loss": 2.0 * 0.995**at if at < 620 else NAN, "train/global_step": at})
        for at in range(0, 1000, 5)
    ]
    wandb_logs.write_log(folder / "run-abc.wandb", [wandb_logs.run_record(), *rows, wandb_logs.exit_record()])
    (folder / "files").mkdir()
    for step in (200, 400, 600, 800):
        torch.save(state_of(step, nan=step >= 600), folder / "files" / f"step_{step}.pt")
    assert rewind(folder).path == str(folder / "files" / "step_400.pt")


@pytest.mark.exhaustive
def test_versions_of_an_artifact_of_wandb(wandb_server, tmp_path, monkeypatch):
    import subprocess
    import sys

    monkeypatch.chdir(tmp_path)
    for step in range(100, 1500, 100):
        torch.save(state_of(step, nan=step >= 600), tmp_path / f"{step}.ckpt")
    logging = """
import wandb
run = wandb.init(project="proj", id="abc")
for step in range(0, 1500, 5):
    run.log({"train/loss": 2.0 * 0.995 ** step if step < 620 else float("nan"), "train/global_step": step})
for step in range(100, 1500, 100):
    artifact = wandb.Artifact("model-abc", type="model", metadata={"train/global_step": step})
    artifact.add_file(f"{step}.ckpt", "model.ckpt")
    run.log_artifact(artifact).wait()
run.finish()
"""
    environment = os.environ | wandb_server.environment(tmp_path) | {"XDG_RUNTIME_DIR": str(tmp_path / "runtime")}
    subprocess.run([sys.executable, "-c", logging], env=environment, check=True, capture_output=True, timeout=300)
    found = rewind("wandb:team/proj/abc")
    assert found.path == "wandb:team/proj/model-abc:v4"
    assert found.step == 500
    assert found.checked == "no NaN in 12 tensors"


def test_what_cannot_be_listed_is_a_reason_and_no_error(monkeypatch, tmp_path):
    run = write_losses(tmp_path / "outputs")

    class Broken:
        listed = (Saved(key="a", path="a", counted=Counted(step=500)),)

        def counted(self, saved):
            return Counted()

        def look(self, saved):
            raise ReadError("gone")

    monkeypatch.setattr(DirectoryRun, "saved", lambda *_: Broken())
    assert "was looked for: gone" in "".join(th.check(str(run)).notes)
