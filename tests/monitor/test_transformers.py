"""The callback for the Trainer of transformers, in a real training with accumulation and clipping."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")
from torch import nn  # noqa: E402

import tracker_health  # noqa: E402
from tracker_health import ConfigError  # noqa: E402
from tracker_health.monitor.callbacks import transformers_callback  # noqa: E402


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x, labels=None):
        out = self.layers(x)
        return {"loss": (out.squeeze(-1) - labels).square().mean(), "logits": out}


@pytest.mark.filterwarnings("ignore")
def test_a_training(tmp_path):
    torch.manual_seed(0)
    seen, model = {}, Model()
    data = [{"x": torch.randn(4), "labels": torch.tensor(1.0)} for _ in range(32)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=4, max_grad_norm=1e-6,
        report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    callback = transformers_callback(interval=2, log=lambda step, metrics: seen.update({step: metrics}))
    transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=[callback]).train()
    assert list(seen) == [1, 2, 4]
    assert seen[1]["gap/grads/layers.0/max"] > 1e-4  # before clipping
    assert "gap/activation_grads/layers.2/mean" in seen[4]
    assert (tmp_path / "gap.jsonl").exists()
    assert not any(one._forward_hooks for one in model.modules())


def trainer(folder, callback, model=None, **more):
    torch.manual_seed(0)
    data = [{"x": torch.randn(4), "labels": torch.tensor(1.0)} for _ in range(32)]
    arguments = transformers.TrainingArguments(
        **{"output_dir": str(folder), "per_device_train_batch_size": 4, "max_steps": 60, "report_to": [], "save_strategy": "no",
           "disable_tqdm": True, "use_cpu": True, "logging_steps": 1, **more},
    )  # fmt: skip
    return transformers.Trainer(model=model or Model(), args=arguments, train_dataset=data, callbacks=[callback])


@pytest.mark.filterwarnings("ignore")
def test_the_summary_stands_for_a_checkpoint(tmp_path):
    """What the rules measure by it is what they measure by the very checkpoint."""
    training = trainer(tmp_path / "run", transformers_callback(), max_steps=60)
    training.train()
    torch.save(training.optimizer.state_dict(), tmp_path / "run" / "optimizer.pt")
    from_checkpoint = {one.code: one for one in tracker_health.check(tmp_path / "run").results}
    (tmp_path / "run" / "optimizer.pt").unlink()
    from_summary = {one.code: one for one in tracker_health.check(tmp_path / "run").results}
    assert {"OPT001", "OPT002", "OPT003", "OPT004", "OPT005", "RUN001", "WGT001"} <= from_summary.keys()
    for code in ("OPT001", "OPT002", "OPT003", "OPT005"):
        one, other = from_checkpoint[code], from_summary[code]
        assert one.verdict == other.verdict, code
        assert one.measured.keys() == other.measured.keys(), code
        for name, value in one.measured.items():
            assert other.measured[name] == (pytest.approx(value, nan_ok=True) if isinstance(value, float) else value), (
                code
            )


@pytest.mark.filterwarnings("ignore")
def test_an_mlflow_run_has_all_that_is_needed_when_it_ends(tmp_path, monkeypatch, store):
    client, uri, experiment = store
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "watched")
    trainer(tmp_path / "run", transformers_callback(interval=5), report_to=["mlflow"], max_steps=60).train()
    (run,) = client.search_runs([experiment])
    assert run.info.status == "FINISHED"
    assert {"gap.jsonl", "health_summary.json"} <= {one.path for one in client.list_artifacts(run.info.run_id)}
    assert "gap/grads/layers.0/max" in run.data.metrics
    report = tracker_health.check(f"mlflow:{run.info.run_id}", tracking_uri=uri)
    assert {"GAP006", "OPT001", "OPT003", "RUN001"} <= {one.code for one in report.results}


class Cut(Model):
    def forward(self, x, labels=None):
        return {"loss": (self.layers[1:](self.layers[0](x).detach()).squeeze(-1) - labels).square().mean()}


@pytest.mark.filterwarnings("ignore")
def test_a_training_that_cannot_succeed_is_ended(tmp_path):
    training = trainer(
        tmp_path, transformers_callback(interval=1, stop_on="fail"), Cut(), max_steps=20_000, logging_steps=500
    )
    training.train()
    assert 8 <= training.state.global_step < 20_000


@pytest.mark.filterwarnings("ignore:(?!tracker-health)")
def test_what_goes_wrong_does_not_reach_the_training(tmp_path):
    (tmp_path / "gap.jsonl").write_text("mine")
    training = trainer(tmp_path, transformers_callback(), max_steps=3)
    with pytest.warns(RuntimeWarning, match="the training continues without live statistics: .* is there already"):
        training.train()
    assert training.state.global_step == 3
    assert (tmp_path / "gap.jsonl").read_text() == "mine"
    with pytest.raises(ConfigError, match="no such option: intervall"):
        transformers_callback(intervall=3)
