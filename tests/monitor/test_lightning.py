"""The callback for Lightning, in a real training with accumulation and clipping."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import tracker_health  # noqa: E402
from tracker_health.monitor.callbacks import lightning_callback  # noqa: E402
from tracker_health.readers.log_formats import read_log  # noqa: E402
from tracker_health.readers.training_summary import read_training_summary  # noqa: E402
from tracker_health.roles import RolePlan  # noqa: E402


class Module(lightning.LightningModule):
    def __init__(self, *, breaks=False):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        self.breaks = breaks

    def training_step(self, batch, index):
        if self.breaks and index == 5:
            raise ZeroDivisionError
        return self.net(batch).square().mean()

    def validation_step(self, batch, index):
        self.net(100 * batch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def fit(model, tmp_path):
    seen = {}
    torch.manual_seed(0)
    data = DataLoader(torch.randn(64, 4), batch_size=8)
    callback = lightning_callback(interval=2, folder=tmp_path, log=lambda step, metrics: seen.update({step: metrics}))
    trainer = lightning.Trainer(
        max_epochs=2, accumulate_grad_batches=2, gradient_clip_val=1e-6, callbacks=[callback], logger=False, accelerator="cpu",
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(model, data, data)
    return seen


@pytest.mark.filterwarnings("ignore")
def test_a_training(tmp_path):
    model = Module()
    seen = fit(model, tmp_path)
    assert list(seen) == [1, 2, 4, 6, 8]
    assert seen[4]["gap/grads/net.0/max"] > 1e-4  # before clipping
    assert all(metrics["gap/activations/net.0/max"] < 50 for metrics in seen.values())  # without validation
    log, _ = read_log(tmp_path / "gap.jsonl", "gap.jsonl", RolePlan(every=True))
    assert {one.name for one in log.series} >= {"gap/grads/net.0.weight/max", "gap/activation_grads/net.2/var"}
    assert not any(one._forward_hooks for one in model.modules())


def trainer(folder, callback, **more):
    return lightning.Trainer(
        **{"max_epochs": 3, "callbacks": [callback], "logger": False, "accelerator": "cpu", "enable_checkpointing": False,
           "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": folder, **more},
    )  # fmt: skip


class Cut(Module):
    """Its first layer gets no gradient."""

    num_classes = 7

    def training_step(self, batch, index):
        return self.net[1:](self.net[0](batch).detach()).square().mean()


@pytest.mark.filterwarnings("ignore")
def test_the_summary_tells_plan_and_optimizer(tmp_path):
    torch.manual_seed(0)
    callback = lightning_callback(interval=1, folder=tmp_path)
    trainer(tmp_path, callback).fit(Cut(), DataLoader(torch.randn(64, 4), batch_size=8))
    summary = read_training_summary(tmp_path / "health_summary.json", "summary")
    assert (summary.steps, summary.params["max_epochs"], summary.params["num_classes"]) == (24, "3", "7")
    assert {one.name for one in summary.optimizer.tensors} == {"net.2.weight", "net.2.bias"}
    assert set(summary.optimizer.stateless) == {"net.0.weight", "net.0.bias"}
    found = {one.code: one for one in tracker_health.check(tmp_path).results}
    assert (found["GAP006"].verdict, found["OPT004"].verdict) == ("fail", "warn")


@pytest.mark.filterwarnings("ignore")
def test_a_training_that_cannot_succeed_is_ended(tmp_path):
    torch.manual_seed(0)
    training = trainer(tmp_path, lightning_callback(interval=1, folder=tmp_path, stop_on="fail"), max_epochs=3000)
    training.fit(Cut(), DataLoader(torch.randn(64, 4), batch_size=8))
    assert 8 <= training.global_step < 24_000


@pytest.mark.filterwarnings("ignore")
def test_the_loggers_get_summaries_and_the_mlflow_run_the_files(tmp_path, mlflow):
    from pytorch_lightning.loggers import CSVLogger, MLFlowLogger

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    tracker = MLFlowLogger(tracking_uri=uri, artifact_location=(tmp_path / "artifacts").as_uri())
    training = trainer(tmp_path, lightning_callback(interval=2), logger=[CSVLogger(tmp_path / "csv"), tracker])
    training.fit(Module(), DataLoader(torch.randn(64, 4), batch_size=8))
    run = mlflow.MlflowClient(uri).get_run(tracker.run_id)
    assert "gap/grads/net.0/max" in run.data.metrics
    files = {one.path for one in mlflow.MlflowClient(uri).list_artifacts(tracker.run_id)}
    assert {"gap.jsonl", "health_summary.json"} <= files
    (csv,) = (tmp_path / "csv").rglob("metrics.csv")
    assert "gap/grads/net.0/max" in csv.read_text().splitlines()[0]


@pytest.mark.filterwarnings("ignore:(?!tracker-health)")
def test_what_goes_wrong_does_not_reach_the_training(tmp_path):
    (tmp_path / "gap.jsonl").write_text("mine")
    training = trainer(tmp_path, lightning_callback(folder=tmp_path))
    with pytest.warns(RuntimeWarning, match="the training continues without live statistics"):
        training.fit(Module(), DataLoader(torch.randn(64, 4), batch_size=8))
    assert training.global_step == 24


@pytest.mark.filterwarnings("ignore")
def test_a_training_that_breaks_leaves_no_hooks(tmp_path):
    model = Module(breaks=True)
    with pytest.raises(ZeroDivisionError):
        fit(model, tmp_path)
    assert not any(one._forward_hooks for one in model.modules())
