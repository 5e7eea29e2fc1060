"""The rules on gradients that were written as files: faults are seen in them, and nothing else is."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import tracker_health  # noqa: E402
from tracker_health import GradientDumps, watch  # noqa: E402

pytestmark = pytest.mark.slow


class Model(nn.Module):
    """Its first eight words never come up, nor have its first two inputs values: corners of zeros."""

    def __init__(self, *, cut=False, function=torch.relu, depth=2):
        super().__init__()
        self.words, self.first = nn.Embedding(19, 24), nn.Linear(8, 24)
        self.layers = nn.ModuleList([nn.Linear(24, 24) for _ in range(depth)])
        self.head, self.cut, self.function = nn.Linear(24, 3), cut, function

    def forward(self, words, x):
        hidden = self.words(words).mean(1) + self.first(x)
        for index, layer in enumerate(self.layers):
            hidden = self.function(layer(hidden))
            if self.cut and index == 0:
                hidden = hidden.detach()
        return self.head(hidden)


def train(folder, model, n, steps=24, lr=0.05, poison=0):
    torch.manual_seed(0)
    words, x = torch.randint(8, 19, (32, 4)), torch.randn(32, 8)
    x[:, :2] = 0.0
    y = (x[:, 2] > 0).long()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    dumps = GradientDumps(folder=folder, start=2, step_interval=2, save_first_n=n)
    with watch(model, optimizer, kinds=(), dumps=dumps), (folder / "log.jsonl").open("w") as log:
        for step in range(1, steps + 1):
            loss = F.cross_entropy(model(words, x), y)
            sick = poison and step >= poison
            (loss * float("nan") if sick else loss).backward()
            before = {name: one.clone() for name, one in model.state_dict().items()}
            optimizer.step()
            if sick:
                model.load_state_dict(before)  # as after a step that a guard undid
            optimizer.zero_grad()
            log.write(json.dumps({"step": step, "loss": loss.item()}) + "\n")
    return found(folder)


def found(folder):
    report = tracker_health.check(folder)
    assert not report.errors
    return {one.code: one for one in report.results if one.code.startswith("GAP")}


@pytest.mark.parametrize("n", [2, None])
def test_a_healthy_training_passes(n, tmp_path):
    torch.manual_seed(0)
    results = train(tmp_path, Model(), n)
    assert {"GAP001", "GAP005", "GAP006"} <= results.keys()
    assert {one.verdict for one in results.values()} == {"pass"}


@pytest.mark.parametrize("n", [8, None])
def test_a_detached_block_is_seen(n, tmp_path):
    torch.manual_seed(0)
    result = train(tmp_path, Model(cut=True), n)["GAP006"]
    assert result.verdict == "fail"
    silent = set(result.details["silent"])
    assert {"layers.0.weight", "layers.0.bias", "first.weight", "first.bias"} <= silent
    assert not any(name.startswith(("layers.1", "head")) for name in silent)
    assert ("words.weight" in silent) is (n is None)  # a corner alone cannot tell


@pytest.mark.parametrize("n", [2, None])
def test_gradients_that_are_not_finite_are_seen(n, tmp_path):
    torch.manual_seed(0)
    result = train(tmp_path, Model(), n, poison=11)["GAP001"]
    assert (result.verdict, result.steps) == ("fail", (12,))


@pytest.mark.parametrize("n", [4, None])
def test_gradients_that_vanish_are_seen(n, tmp_path):
    torch.manual_seed(0)
    assert train(tmp_path, Model(function=torch.sigmoid, depth=9), n, lr=1e-3)["GAP004"].verdict == "warn"


def test_a_few_dead_units_are_no_dead_layer(tmp_path):
    torch.manual_seed(0)
    model = Model()
    with torch.no_grad():
        model.layers[1].bias[:2] = -100.0
    assert train(tmp_path, model, 2)["GAP006"].verdict == "pass"


def test_olmo_cores_layout_is_judged(tmp_path):
    for step in range(10, 60, 10):
        folder = tmp_path / "gradient_dumper" / f"step{step}" / "sampled_gradients"
        folder.mkdir(parents=True)
        for name in ("blocks.0.w", "blocks.0.v", "blocks.1.w", "blocks.1.v"):
            values = torch.zeros(8, 4) if "0" in name else torch.randn(8, 4)
            safetensors_torch.save_file({"gradient": values}, folder / f"{name}_first8.safetensors")
    result = found(tmp_path)["GAP006"]
    assert result.verdict == "fail"
    assert set(result.details["silent"]) == {"blocks.0.w", "blocks.0.v"}


def test_a_broken_dump_is_an_error_of_the_rules_that_need_it(tmp_path):
    folder = tmp_path / "gradients" / "step1" / "sampled_gradients"
    folder.mkdir(parents=True)
    (folder / "w.safetensors").write_bytes(b"\xff" * 64)
    report = tracker_health.check(tmp_path)
    assert any("w.safetensors" in one.source or "sampled_gradients" in one.source for one in report.errors)


@pytest.mark.exhaustive
def test_an_mlflow_run_keeps_them_as_artifacts(tmp_path, mlflow, store):
    _, uri, experiment = store
    torch.manual_seed(0)
    model = Model(cut=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with mlflow.start_run(experiment_id=experiment) as run:
        dumps = GradientDumps(folder=tmp_path / "here", start=1, save_first_n=8, log=True)
        with watch(model, optimizer, kinds=(), dumps=dumps):
            for step in range(6):
                loss = model(torch.randint(8, 19, (8, 4)), torch.randn(8, 8)).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                mlflow.log_metric("loss", loss.item(), step=step)
    report = tracker_health.check(f"mlflow:{run.info.run_id}", tracking_uri=uri)
    assert {one.code: one.verdict for one in report.results}["GAP006"] == "fail"
