"""First layers and embeddings that were forgotten, in real trainings, beside fine-tunes and random features."""

import copy

import pytest

from tracker_health import check

torch = pytest.importorskip("torch")
nn = torch.nn


class Tokens(nn.Module):
    """An embedding, a body and a head."""

    def __init__(self, body):
        super().__init__()
        self.embedding, self.head = nn.Embedding(60, 48), nn.Linear(48, 5)
        self.body = nn.GRU(48, 48, batch_first=True) if body == "gru" else None

    def forward(self, x):
        hidden = self.embedding(x)
        return self.head((self.body(hidden)[0] if self.body is not None else hidden).mean(1))


class Images(nn.Module):
    """A stem, a convolution and a head."""

    def __init__(self):
        super().__init__()
        self.stem, self.second = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 48, 3, stride=2)
        self.head = nn.Linear(48, 5)

    def forward(self, x):
        return self.head(self.second(self.stem(x).relu()).relu().mean((2, 3)))


class RandomFeatures(nn.Module):
    """A first layer that is to stay random."""

    def __init__(self):
        super().__init__()
        self.random_features, self.head = (
            nn.Linear(32, 256),
            nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 5)),
        )

    def forward(self, x):
        return self.head(self.random_features(x).cos())


def mlp():
    return nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 5))


KINDS = {"mlp": (mlp, "0."), "cnn": (Images, "stem"), "bag": (lambda: Tokens(""), "embedding"),
         "gru": (lambda: Tokens("gru"), "embedding"), "random": (RandomFeatures, "random_features")}  # fmt: skip
SHAPES = {"mlp": (32,), "random": (32,), "cnn": (3, 8, 8)}


def data(kind, generator):
    labels = torch.randint(0, 5, (512,), generator=generator)
    if kind in SHAPES:
        centres = torch.randn(5, *SHAPES[kind], generator=torch.Generator().manual_seed(0))
        return centres[labels] + torch.randn(512, *SHAPES[kind], generator=generator), labels
    words = torch.randint(0, 60, (512, 10), generator=generator)
    telling = torch.rand(512, 10, generator=generator) < 0.5
    return torch.where(telling, words % 12 + 12 * labels[:, None], words), labels


def train(folder, kind, model, front="", how="", steps=120):
    generator = torch.Generator().manual_seed(1)
    inputs, labels = data(kind, generator)
    named = dict(model.named_parameters())
    left_out = [name for name in named if front and name.startswith(front)]
    if how == "frozen":
        for name in left_out:
            named[name].requires_grad_(False)
    given = [one for name, one in named.items() if how in ("", "no gradient") or name not in left_out]
    optimizer, losses = torch.optim.Adam(given, 1e-3), []
    for _ in range(steps):
        chosen = torch.randint(0, 512, (64,), generator=generator)
        loss = nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        for name in left_out if how == "no gradient" else ():
            named[name].grad = None
        optimizer.step()
        losses.append(loss.item())
    folder.mkdir()
    rows = "".join(f"{step},{loss:.5f}\n" for step, loss in enumerate(losses))
    (folder / "metrics.csv").write_text(f"step,train_loss\n{rows}")
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": steps}
    torch.save(saved, folder / "checkpoint.pt")
    return model


def found(folder):
    return [one.message for one in check(folder).findings if one.code == "OPT004"]


@pytest.mark.parametrize("how", ["not given", "no gradient", "frozen"])
@pytest.mark.parametrize("kind", ["mlp", "cnn", "bag", "gru"])
def test_a_forgotten_front_is_never_trained(tmp_path, kind, how):
    make, front = KINDS[kind]
    torch.manual_seed(3)
    train(tmp_path / "run", kind, make(), front, how)
    (message,) = found(tmp_path / "run")
    assert "never trained" in message
    assert front.rstrip(".") in message


@pytest.mark.parametrize("kind", ["mlp", "cnn", "bag", "gru"])
def test_a_front_that_was_trained_before_is_frozen_on_purpose(tmp_path, kind):
    make, front = KINDS[kind]
    torch.manual_seed(3)
    before = train(tmp_path / "before", kind, make())
    assert found(tmp_path / "before") == []
    for how in ("not given", "frozen"):
        train(tmp_path / how, kind, copy.deepcopy(before), front, how)
        assert found(tmp_path / how) == []


def test_random_features_stay_random_on_purpose(tmp_path):
    torch.manual_seed(3)
    train(tmp_path / "run", "random", RandomFeatures(), "random_features", "frozen")
    assert found(tmp_path / "run") == []
