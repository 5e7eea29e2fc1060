"""The callback that stops a training of Lightning, in real trainings."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from tracker_health import ConfigError  # noqa: E402
from tracker_health.live.trainers import lightning_health  # noqa: E402

from .processes import run_in_two_processes  # noqa: E402

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore:(?!tracker-health)")]
STEPS = 256


class Module(lightning.LightningModule):
    """From step 100 on its learning rate is far too high, if it ``diverges``."""

    def __init__(self, *, diverges=False, logs=True, manual=False):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
        self.diverges, self.logs = diverges, logs
        self.automatic_optimization = not manual

    def loss(self, batch):
        return (self.net(batch[0]).squeeze(-1) - batch[1]).square().mean()

    def training_step(self, batch, index):
        if self.diverges and self.global_step >= 100:
            self.optimizers().param_groups[0]["lr"] = 1.0
        loss = self.loss(batch)
        if self.logs:
            self.log("train_loss", loss)
            self.log("train_epoch_loss", loss, on_step=False, on_epoch=True)
        if not self.automatic_optimization:
            self.optimizers().zero_grad()
            self.manual_backward(loss)
            self.optimizers().step()
            return None
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.02)


def fit(folder, model, *callbacks, **more):
    torch.manual_seed(0)
    inputs = torch.randn(256, 4)
    samples = TensorDataset(inputs, inputs.sum(1) + 0.3 * torch.randn(256))
    trainer = lightning.Trainer(
        **{"max_epochs": 8, "callbacks": list(callbacks), "logger": False, "accelerator": "cpu", "log_every_n_steps": 1,
           "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": folder,
           **more},
    )  # fmt: skip
    trainer.fit(model, DataLoader(samples, batch_size=8, shuffle=True), DataLoader(samples, batch_size=64))
    return trainer


def steps_of(health, name):
    return health.health._history._steps[name].tolist()


def test_a_healthy_training_goes_to_its_end(tmp_path):
    health = lightning_health(rest=0)
    assert fit(tmp_path, Module(), health).global_step == STEPS
    assert health.health.findings == []
    assert health.health.share == 1.0


def test_each_metric_is_taken_where_it_is_new(tmp_path):
    """A trainer holds the last value of each; a validation loss that is repeated at each step stands still."""
    health = lightning_health(every=2)
    fit(tmp_path, Module(), health)
    ends = [32 * epoch for epoch in range(1, 9)]
    for name in ("loss", "train_loss", "learning_rate"):
        assert steps_of(health, name) == list(range(2, STEPS + 1, 2))
    assert steps_of(health, "val_loss") == steps_of(health, "train_epoch_loss") == ends


def test_the_loss_of_accumulated_batches_is_that_of_one(tmp_path):
    health = lightning_health(rest=0)
    fit(tmp_path, Module(), health, accumulate_grad_batches=4)
    history = health.health._history._values
    assert history["loss"].tolist() == pytest.approx(history["train_loss"].tolist())
    assert len(history["loss"]) == STEPS // 4


@pytest.mark.parametrize("options", [{}, {"logs": False}, {"manual": True}])
def test_a_training_that_diverges_is_stopped_and_says_why(tmp_path, caplog, options):
    health = lightning_health(rest=0)
    stopped = fit(tmp_path, Module(diverges=True, **options), health).global_step
    assert 100 < stopped < 150
    assert health.health.stopped_by.step == stopped
    assert "tracker-health stops the training: FAIL at step " in caplog.text


def test_no_good_checkpoint_makes_room_for_a_bad_one(tmp_path):
    """A trainer's usual callback keeps the newest checkpoint alone, and writes one at the end of an epoch cut short."""
    checkpoints = lightning.callbacks.ModelCheckpoint(dirpath=tmp_path, save_last=True)
    model = Module(diverges=True)
    trainer = fit(tmp_path, model, lightning_health(rest=0), checkpoints, enable_checkpointing=True)
    assert trainer.global_step % 32
    (kept,) = (torch.load(path, weights_only=True) for path in tmp_path.glob("epoch*.ckpt"))
    assert kept["global_step"] == trainer.global_step // 32 * 32
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["global_step"] == kept["global_step"]
    assert (checkpoints.save_top_k, checkpoints.save_last) == (1, True)


def test_a_dry_run_goes_to_its_end(tmp_path, caplog):
    assert fit(tmp_path, Module(diverges=True), lightning_health(rest=0, dry_run=True)).global_step == STEPS
    assert "would stop the training" in caplog.text


_WORKER = """
import os, sys
from pathlib import Path
rank, port, out = sys.argv[1:]
os.environ |= {"LOCAL_RANK": rank, "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
from tests.live.test_lightning_health import Module, fit, lightning_health
health = lightning_health(rest=0)
trainer = fit(out, Module(diverges=True), health, strategy="ddp", devices=2, max_epochs=16)
assert trainer.world_size == 2
(Path(out) / f"stopped{rank}").write_text(f"{trainer.global_step} {health.health.stopped_by is not None}")
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.slow
def test_several_processes_stop_at_the_same_step(tmp_path):
    run_in_two_processes(_WORKER, tmp_path)
    (first, decides), (second, follows) = ((tmp_path / f"stopped{rank}").read_text().split() for rank in (0, 1))
    assert first == second
    assert 100 < int(first) < 150
    assert (decides, follows) == ("True", "False")


def test_what_goes_wrong_does_not_reach_the_training(tmp_path, monkeypatch):
    monkeypatch.setattr("tracker_health.live.LiveHealth._evidence", lambda _: 1 / 0)
    with pytest.warns(RuntimeWarning, match="the training continues without being judged"):
        assert fit(tmp_path, Module(), lightning_health(rest=0), max_epochs=1).global_step == 32
    monkeypatch.setattr("tracker_health.live.trainers._health", lambda *_: 1 / 0)
    with pytest.warns(RuntimeWarning, match="the training continues without being judged"):
        assert fit(tmp_path, Module(), lightning_health(rest=0), max_epochs=1).global_step == 32


@pytest.mark.parametrize("options", [{"intervall": 3}, {"stop_on": "error"}, {"every": 0}])
def test_options_that_make_no_sense(options):
    with pytest.raises(ConfigError):
        lightning_health(**options)
