"""Small real trainings that leave a part of the model out: a dozen on purpose, a dozen by mistake.

Each is done with parameters' names in the optimizer and without, by Adam and by SGD with momentum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tracker_health.api import check

CODES = {"OPT003", "OPT004", "WGT002", "WGT003", "WGT005"}
"""The rules on what does not train."""
STEPS = 120
WORDS, WIDTH, CLASSES = 50, 24, 6


def draw(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Words, numbers, and classes that depend on both."""
    source = torch.Generator().manual_seed(seed)
    words = torch.randint(0, WORDS, (32, 8), generator=source)
    numbers = torch.randn(32, 20, generator=source)
    aims = (words[:, 0] % 3 + 3 * (numbers[:, 0] > 0).long()) % CLASSES
    return words, numbers, aims


@dataclass
class Setting:
    """A training: its model, what the optimizer gets, and what the forward pass cuts off."""

    model: nn.Module
    frozen: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    before_step: Callable[[nn.Module], None] = field(default=lambda model: None)
    after_optimizer: Callable[[nn.Module], None] = field(default=lambda model: None)


class Reader(nn.Module):
    """Words and numbers through an embedding, a body of layers, and a head."""

    def __init__(self, depth: int = 3, detach: str = "") -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.stem = nn.Linear(20, WIDTH)
        self.body = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(depth))
        self.norm = nn.LayerNorm(WIDTH)
        self.classify = nn.Linear(WIDTH, CLASSES)
        self.detach = detach

    def forward(self, words: Tensor, numbers: Tensor) -> Tensor:
        known = self.embedding(words).mean(1)
        x = (known.detach() if self.detach == "embedding" else known) + self.stem(numbers)
        for layer in self.body:
            x = x + functional.gelu(layer(x))
        return self.classify(self.norm(x.detach() if self.detach == "body" else x))


class Chain(nn.Module):
    """A chain of layers over numbers, by names that only say their kind."""

    def __init__(self, detach: bool = False) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(20, 40), nn.Linear(40, 32)
        self.three, self.four = nn.Linear(32, 32), nn.Linear(32, CLASSES)
        self.detach = detach

    def forward(self, words: Tensor, numbers: Tensor) -> Tensor:
        x = torch.relu(self.one(numbers))
        x = torch.relu(self.two(x.detach() if self.detach else x))
        return self.four(torch.relu(self.three(x)))


class Towers(nn.Module):
    """One tower for words, one for numbers."""

    def __init__(self, detach: bool = False) -> None:
        super().__init__()
        self.numbers = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, WIDTH))
        self.words = nn.Sequential(nn.Embedding(WORDS, 32), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, WIDTH))
        self.join = nn.Linear(2 * WIDTH, CLASSES)
        self.detach = detach

    def forward(self, words: Tensor, numbers: Tensor) -> Tensor:
        read = self.words(words).mean(1)
        return self.join(torch.cat([self.numbers(numbers), read.detach() if self.detach else read], 1))


class Adapted(nn.Module):
    """A layer with two thin factors beside it, as people write it by hand."""

    def __init__(self, base: nn.Linear, *, layers: bool) -> None:
        super().__init__()
        self.base = base
        if layers:
            self.down, self.up = nn.Linear(base.in_features, 4, bias=False), nn.Linear(4, base.out_features, bias=False)
            nn.init.zeros_(self.up.weight)
        else:
            self.A = nn.Parameter(0.1 * torch.randn(base.in_features, 4))
            self.B = nn.Parameter(torch.zeros(4, base.out_features))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + (self.up(self.down(x)) if hasattr(self, "up") else x @ self.A @ self.B)


class Tasks(nn.Module):
    """A body with a head for each of two tasks, of which this run has one."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head_colour, self.head_shape = nn.Linear(32, CLASSES), nn.Linear(32, CLASSES + 2)

    def forward(self, words: Tensor, numbers: Tensor) -> Tensor:
        return self.head_colour(self.body(numbers))


class Branches(nn.Module):
    """A decoder for another task beside the one that is used."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32))
        self.decoder_depth = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, CLASSES))
        self.decoder_normal = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, words: Tensor, numbers: Tensor) -> Tensor:
        return self.decoder_depth(self.encoder(numbers))


class Taught(nn.Module):
    """A student and its moving average."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = Chain(), Chain()
        self.teacher.load_state_dict(self.student.state_dict())
        self.teacher.requires_grad_(False)

    def forward(self, words: Tensor, numbers: Tensor) -> Tensor:
        return self.student(words, numbers)

    def follow(self) -> None:
        with torch.no_grad():
            for ours, theirs in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                ours.lerp_(theirs, 0.05)


class Tied(nn.Module):
    """An output that is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.out = nn.Linear(WIDTH, WORDS, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, words: Tensor, numbers: Tensor) -> Tensor:
        return self.out(self.body(self.embedding(words).mean(1)))


class Mixture(nn.Module):
    """Eight experts, of which a router that follows the first number asks six."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(20, WIDTH)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(8))
        self.classify = nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor, numbers: Tensor) -> Tensor:
        x = self.stem(numbers)
        chosen = (words[:, 0] % 6).tolist()
        rows = torch.stack([self.experts[at](row) for at, row in zip(chosen, x, strict=True)])
        return self.classify(torch.relu(rows))


@cache
def weights_trained_before(kind: type[nn.Module], steps: int = 250) -> dict[str, Tensor]:
    """Of a model that was really trained before, for something else."""
    torch.manual_seed(7)
    model = kind()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step in range(steps):
        words, numbers, aims = draw(10_000 + step)
        optimizer.zero_grad()
        functional.cross_entropy(model(words, numbers), (aims + 1) % CLASSES).backward()
        optimizer.step()
    return {name: one.clone() for name, one in model.state_dict().items()}


def pretrained(model: nn.Module) -> nn.Module:
    model.load_state_dict(weights_trained_before(type(model)))
    return model


def with_adapters(*, layers: bool, base: nn.Module | None = None) -> Setting:
    model = pretrained(Reader()) if base is None else base
    for at, layer in enumerate(model.body):
        model.body[at] = Adapted(layer, layers=layers)
    names = {name for name, _ in model.named_parameters()}
    ours = {name for name in names if name.rpartition(".")[2] in "AB" or ".down." in name or ".up." in name}
    return Setting(model, frozen=tuple(names - ours), unlisted=tuple(names - ours))


def with_new_head() -> Setting:
    def replace_head(model: nn.Module) -> None:
        model.classify = nn.Linear(WIDTH, CLASSES)

    return Setting(pretrained(Reader()), after_optimizer=replace_head)


def all_but(model: nn.Module, *kept: str) -> tuple[str, ...]:
    return tuple(name for name, _ in model.named_parameters() if not any(one in name for one in kept))


def only(model: nn.Module, *kept: str, listed: bool = False) -> Setting:
    gone = all_but(model, *kept)
    return Setting(model, frozen=gone, unlisted=() if listed else gone)


def of_vectors() -> Setting:
    model = pretrained(Reader())
    gone = tuple(name for name, one in model.named_parameters() if one.dim() > 1 and "classify" not in name)
    return Setting(model, frozen=gone, unlisted=gone)


MEANT: dict[str, Callable[[], Setting]] = {
    "first layers, pretrained": lambda: Setting(
        pretrained(Chain()), frozen=("one.", "two."), unlisted=("one.", "two.")
    ),
    "first layer, pretrained and given": lambda: Setting(pretrained(Chain()), frozen=("one.",)),
    "backbone, and given": lambda: only(pretrained(Reader()), "classify", listed=True),
    "backbone": lambda: only(pretrained(Reader()), "classify"),
    "adapters of two layers": lambda: with_adapters(layers=True),
    "adapters of two parameters": lambda: with_adapters(layers=False),
    "norms, biases and head": of_vectors,
    "embedding, pretrained": lambda: Setting(pretrained(Reader()), frozen=("embedding",), unlisted=("embedding",)),
    "head of another task": lambda: Setting(Tasks()),
    "branch of another task": lambda: Setting(Branches()),
    "teacher": lambda: Setting(Taught(), unlisted=("teacher.",), before_step=lambda model: model.follow()),
    "tower, pretrained": lambda: Setting(pretrained(Towers()), frozen=("words.",), unlisted=("words.",)),
}
MISTAKES: dict[str, Callable[[], Setting]] = {
    "first layer, detached": lambda: Setting(Chain(detach=True)),
    "first layers, not given": lambda: Setting(Chain(), unlisted=("one.", "two.")),
    "middle layer, not given": lambda: Setting(Chain(), unlisted=("two.",)),
    "middle layer, without gradient": lambda: Setting(Chain(), frozen=("three.",)),
    "last layer, not given": lambda: Setting(Chain(), unlisted=("four.",)),
    "last layer, without gradient": lambda: Setting(Chain(), frozen=("four.",)),
    "embedding, detached": lambda: Setting(Reader(detach="embedding")),
    "all before the head, detached": lambda: Setting(Reader(detach="body")),
    "head, replaced": with_new_head,
    "head, not given": lambda: Setting(Reader(), unlisted=("classify",)),
    "branch, detached": lambda: Setting(Towers(detach=True)),
    "branch, not given": lambda: Setting(Towers(), unlisted=("words.",)),
}
HEALTHY: dict[str, Callable[[], Setting]] = {
    "everything": lambda: Setting(Reader()),
    "a tied output": lambda: Setting(Tied()),
    "adapters of a base that is random": lambda: with_adapters(layers=False, base=Reader()),
    "experts without a token": lambda: Setting(Mixture()),
    "a table with unseen rows": lambda: Setting(with_unseen_rows()),
}


def with_unseen_rows() -> nn.Module:
    model = Reader()
    model.embedding = nn.Embedding(40 * WORDS, WIDTH)
    return model


def starts(name: str, some: Iterable[str]) -> bool:
    return any(name.startswith(one) for one in some)


def left_by(make: Callable[[], Setting], folder: Path, *, named: bool, sgd: bool) -> set[str]:
    """The codes of what the rules find in what a training leaves: two checkpoints."""
    torch.manual_seed(1)
    setting = make()
    model = setting.model
    for name, one in model.named_parameters():
        one.requires_grad_(one.requires_grad and not starts(name, setting.frozen))
    given = [(name, one) for name, one in model.named_parameters() if not starts(name, setting.unlisted)]
    parameters = given if named else [one for _, one in given]
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9) if sgd else torch.optim.Adam(parameters, lr=2e-3)
    setting.after_optimizer(model)
    for step in range(1, STEPS + 1):
        words, numbers, aims = draw(step)
        optimizer.zero_grad()
        functional.cross_entropy(model(words, numbers), aims).backward()
        optimizer.step()
        setting.before_step(model)
        if step in {STEPS // 2, STEPS}:
            held = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(held, folder / f"checkpoint_{step}.pt")
    report = check(folder)
    assert report.verdict != "error", report.errors
    return {one.code for one in report.results if one.code in CODES and one.verdict in {"warn", "fail"}}


WAYS = [pytest.param(named, sgd, id=f"{'named' if named else 'unnamed'}-{'sgd' if sgd else 'adam'}")
        for named in (True, False) for sgd in (False, True)]  # fmt: skip


@pytest.mark.parametrize(("named", "sgd"), WAYS)
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.thinned(6)
@pytest.mark.slow
def test_what_was_left_out_by_mistake(mistake, named, sgd, tmp_path):
    assert left_by(MISTAKES[mistake], tmp_path, named=named, sgd=sgd)


@pytest.mark.parametrize(("named", "sgd"), WAYS)
@pytest.mark.parametrize("purpose", MEANT | HEALTHY)
@pytest.mark.thinned(8)
@pytest.mark.slow
def test_what_was_left_out_on_purpose(purpose, named, sgd, tmp_path):
    assert not left_by((MEANT | HEALTHY)[purpose], tmp_path, named=named, sgd=sgd)
