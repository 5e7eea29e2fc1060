"""The callback that stops a training of transformers, in real trainings."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")
from torch import nn  # noqa: E402

from tracker_health import ConfigError  # noqa: E402
from tracker_health.live.trainers import transformers_health  # noqa: E402

from .processes import run_in_two_processes  # noqa: E402

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore:(?!tracker-health)")]
STEPS = 200


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x, labels=None):
        out = self.layers(x)
        return {"loss": (out.squeeze(-1) - labels).square().mean(), "logits": out}


def data(n=256):
    torch.manual_seed(0)
    inputs = torch.randn(n, 4)
    targets = inputs.sum(1) + 0.3 * torch.randn(n)
    return [{"x": one, "labels": target} for one, target in zip(inputs, targets, strict=True)]


class Diverges(transformers.TrainerCallback):
    """From step 100 on the learning rate is far too high."""

    def on_step_begin(self, args, state, control, **trainer):
        if state.global_step >= 100:
            for group in trainer["optimizer"].param_groups:
                group["lr"] = 1.0


def trainer(folder, *callbacks, **more):
    arguments = transformers.TrainingArguments(
        **{"output_dir": str(folder), "per_device_train_batch_size": 8, "max_steps": STEPS, "report_to": [],
           "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1, "log_level": "error", "optim": "sgd",
           "learning_rate": 0.02, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, **more},
    )  # fmt: skip
    samples = data()
    return transformers.Trainer(
        model=Model(), args=arguments, train_dataset=samples, eval_dataset=samples[:64], callbacks=list(callbacks)
    )


def train(folder, *callbacks, **more):
    training = trainer(folder, *callbacks, **more)
    training.train()
    return training


def test_a_healthy_training_goes_to_its_end(tmp_path):
    health = transformers_health(rest=0)
    assert train(tmp_path, health, eval_strategy="steps", eval_steps=10).state.global_step == STEPS
    assert health.health.findings == []
    assert {series.name for series in health.health.report.series} >= {
        "loss",
        "eval_loss",
        "grad_norm",
        "learning_rate",
    }
    assert health.health.share == 1.0


def test_a_training_that_diverges_is_stopped_and_says_why(tmp_path, caplog):
    health = transformers_health(rest=0)
    stopped = train(tmp_path, health, Diverges()).state.global_step
    assert 100 < stopped < 150
    assert health.health.stopped_by.step == stopped
    (line,) = (one.getMessage() for one in caplog.records if "tracker-health" in one.getMessage())
    assert line.startswith("tracker-health stops the training: FAIL at step ")


@pytest.mark.parametrize("saves", ["steps", "epoch"])
def test_no_good_checkpoint_makes_room_for_a_bad_one(tmp_path, saves):
    """At the very step at which it stops one would have been due."""
    options = {"save_strategy": saves, "save_steps": 1, "save_total_limit": 2, "eval_strategy": "no"}
    training = train(tmp_path, transformers_health(rest=0), Diverges(), **options)
    stopped = training.state.global_step
    kept = sorted(int(path.name.rpartition("-")[2]) for path in tmp_path.glob("checkpoint-*"))
    assert stopped < STEPS
    assert len(kept) == 2
    end = stopped // 32 * 32  # of the last epoch that was whole
    assert kept == ([stopped - 2, stopped - 1] if saves == "steps" else [end - 32, end])


def test_a_dry_run_goes_to_its_end(tmp_path, caplog):
    health = transformers_health(rest=0, dry_run=True)
    assert train(tmp_path, health, Diverges()).state.global_step == STEPS
    assert "would stop the training" in caplog.text


def test_a_training_that_goes_on_from_a_checkpoint(tmp_path):
    train(tmp_path, max_steps=60, save_strategy="steps", save_steps=60)
    health = transformers_health(rest=0)
    training = trainer(tmp_path, health)
    training.train(resume_from_checkpoint=str(tmp_path / "checkpoint-60"))
    assert training.state.global_step == STEPS
    assert health.health.findings == []


_WORKER = """
import os, sys
from pathlib import Path
rank, port, out = sys.argv[1:]
os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
from tests.live.test_transformers_health import Diverges, Model, train, transformers_health, transformers

class LogsAlone(transformers.TrainerCallback):
    # A log of one process alone, at which the others must not be waited for.
    def on_step_end(self, args, state, control, **_):
        if rank == "0" and state.global_step % 7 == 0:
            health.on_log(args, state, control, {"mine": 1.0})

health = transformers_health(rest=0)
training = train(out, LogsAlone(), health, Diverges(), per_device_train_batch_size=4)
assert training.args.world_size == 2
(Path(out) / f"stopped{rank}").write_text(f"{training.state.global_step} {health.health.stopped_by is not None}")
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
        assert train(tmp_path, transformers_health(rest=0), max_steps=20).state.global_step == 20
    monkeypatch.setattr("tracker_health.live.trainers._health", lambda *_: 1 / 0)
    with pytest.warns(RuntimeWarning, match="the training continues without being judged"):
        assert train(tmp_path, transformers_health(rest=0), max_steps=5).state.global_step == 5


@pytest.mark.parametrize("options", [{"intervall": 3}, {"stop_on": "error"}])
def test_options_that_make_no_sense(options):
    with pytest.raises(ConfigError):
        transformers_health(**options)
