"""The rules on what really trained models leave: none of the healthy is objected to, each fault is seen."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import tracker_health  # noqa: E402
from tracker_health import watch  # noqa: E402

pytestmark = pytest.mark.slow

STEPS = 80


def classes(count=96):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(count, 16, generator=generator)
    return x, (x[:, :4] @ torch.randn(4, 5, generator=generator)).argmax(1)


def mlp(*middle, width=32):
    return nn.Sequential(nn.Linear(16, width), *middle, nn.Linear(width, 5))


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv1d(1, 8, 3, bias=False), nn.BatchNorm1d(8)
        self.head = nn.Linear(8 * 14, 5)

    def forward(self, x):
        return self.head(F.relu(self.norm(self.stem(x.unsqueeze(1)))).flatten(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(4, 16, batch_first=True), nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.rnn(x.unflatten(1, (4, 4)))[0][:, -1])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 16)
        self.layers = nn.Sequential(
            *(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True) for _ in range(3))
        )
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.layers(self.embed(x.unflatten(1, (4, 4)))).mean(1))


class Autoencoder(nn.Module):
    """Gives back what it is given."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4))
        self.outer = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 16), nn.Sigmoid())

    def forward(self, x):
        return self.outer(self.inner(x))


class Detached(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 5)

    def forward(self, x):
        return self.second(F.relu(self.first(x)).detach())


def codes(folder, model, optimizer, steps=STEPS):
    """Train, and give the rules on live statistics that object."""
    x, y = classes()
    with watch(model, optimizer, interval=5, folder=folder), (folder / "log.jsonl").open("w") as log:
        for step in range(1, steps + 1):
            wanted = torch.sigmoid(x)
            loss = F.mse_loss(model(wanted), wanted) if isinstance(model, Autoencoder) else F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            log.write(json.dumps({"step": step, "loss": loss.item()}) + "\n")
    report = tracker_health.check(str(folder))
    ran = {one.code for one in report.results if one.code.startswith("GAP")}
    assert {"GAP001", "GAP002", "GAP003", "GAP005", "GAP006"} <= ran, report.errors
    return {one.code for one in report.results if one.code in ran and one.verdict != "pass"}


@pytest.mark.parametrize(
    "build",
    [
        lambda: mlp(nn.ReLU(), nn.Linear(32, 32), nn.ReLU(inplace=True)),
        lambda: mlp(nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 32), nn.Tanh()),
        Convolutional,
        Recurrent,
        Transformer,
        Autoencoder,
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_healthy_trainings_pass(build, seed, tmp_path):
    torch.manual_seed(seed)
    model = build()
    assert codes(tmp_path, model, torch.optim.AdamW(model.parameters(), lr=3e-3)) == set()


def test_a_dead_rectifier(tmp_path):
    torch.manual_seed(0)
    model = mlp(nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
    nn.init.constant_(model[2].bias, -100.0)
    assert {"GAP002", "GAP006"} <= codes(tmp_path, model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def test_a_detached_block(tmp_path):
    torch.manual_seed(0)
    model = Detached()
    assert codes(tmp_path, model, torch.optim.AdamW(model.parameters(), lr=1e-3)) == {"GAP006"}


def test_a_frozen_block_is_no_detached_one(tmp_path):
    torch.manual_seed(0)
    model = Detached()
    model.first.requires_grad_(False)
    assert codes(tmp_path, model, torch.optim.AdamW(model.second.parameters(), lr=1e-3)) == set()


@pytest.mark.parametrize("function", [nn.Tanh, nn.Sigmoid])
def test_saturation(function, tmp_path):
    torch.manual_seed(0)
    model = mlp(function())
    with torch.no_grad():
        model[0].weight.mul_(300)
    assert "GAP003" in codes(tmp_path, model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def test_exploding_activations(tmp_path):
    torch.manual_seed(0)
    model = mlp(nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
    assert "GAP005" in codes(tmp_path, model, torch.optim.Adam(model.parameters(), lr=3.0))


def test_gradients_that_vanish_along_the_depth(tmp_path):
    torch.manual_seed(0)
    model = mlp(*(part for _ in range(8) for part in (nn.Sigmoid(), nn.Linear(32, 32))))
    assert "GAP004" in codes(tmp_path, model, torch.optim.SGD(model.parameters(), lr=0.01))
