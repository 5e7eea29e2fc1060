"""How right the rules on live statistics are: python -m benchmarks.faults.live [SEEDS].

Really trains small models of ten kinds, healthy and with a fault built in, watched in every fifth step, and asks the
rules GAP001 to GAP006 twice: at the end, with the loss, and after each measured step, as ``alert`` does. Prints which
faults were seen, which healthy trainings were objected to, and how near the healthy ones came to each threshold. A
fault counts only if it did what it was to do: a healthy training has to lose a third of its loss, or it is left out.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tracker_health.evidence import Evidence, RunRef, Series
from tracker_health.monitor import watch
from tracker_health.monitor.gap_rules import GapJudge, MeasuredSteps
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe
from tracker_health.rules.registry import probe_classes
from tracker_health.words.verdict import Verdict

STEPS, INTERVAL, BATCH = 200, 5, 64
RATES = (0.3, 1.0, 3.0)
"""Times the usual learning rate: healthy trainings have no single one."""

RULES: tuple[Probe, ...] = tuple(one() for one in probe_classes() if one.code.startswith("GAP"))

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def digits() -> tuple[Tensor, Tensor]:
    data = load_digits()
    return torch.tensor(data.data, dtype=torch.float32) / 16.0, torch.tensor(data.target)


def text() -> tuple[Tensor, Tensor]:
    words = (Path(__file__).parent.parent.parent / "LICENSE").read_bytes()[:8000]
    codes = torch.tensor(list(words)).clamp(max=127)
    windows = codes.unfold(0, 33, 7)
    return windows[:, :-1], windows[:, 1:]


def classified(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x).flatten(0, -2), y.flatten())


def rebuilt(model: nn.Module, x: Tensor, _: Tensor) -> Tensor:
    return F.mse_loss(model(x), x)


class Plain(nn.Module):
    """A stack of linear layers. ``cut``: nothing comes back before this layer."""

    def __init__(self, sizes: list[int], function: Callable[[], nn.Module], last: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(one, two) for one, two in pairwise(sizes[:-1])])
        self.functions = nn.ModuleList([function() for _ in self.layers])
        self.head = nn.Linear(sizes[-2], sizes[-1])
        self.last = last or nn.Identity()
        self.cut = -1

    def forward(self, x: Tensor) -> Tensor:
        for index, (layer, function) in enumerate(zip(self.layers, self.functions, strict=True)):
            x = function(layer(x))
            if index == self.cut:
                x = x.detach()
        return self.last(self.head(x))


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.conv2, self.norm2 = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.relu1, self.relu2, self.head = nn.ReLU(), nn.ReLU(inplace=True), nn.Linear(16 * 16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu1(self.norm1(self.conv1(x.view(-1, 1, 8, 8))))
        x = F.max_pool2d(self.relu2(self.norm2(self.conv2(x))), 2)
        return self.head(x.flatten(1))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.rnn, self.head = kind(8, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x.view(-1, 8, 8))[0][:, -1])


class Transformer(nn.Module):
    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(128, 32), nn.Embedding(32, 32)
        self.layers = nn.ModuleList(
            [
                nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
                for _ in range(layers)
            ]
        )
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 128)
        self.cut = -1

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embed(x) + self.place(torch.arange(x.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, src_mask=mask, is_causal=True)
            if index == self.cut:
                hidden = hidden.detach()
        return self.head(self.norm(hidden))


class Residual(nn.Module):
    """Eight blocks, each added to what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(64, 48), nn.Linear(48, 10)
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.LayerNorm(48), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 48)) for _ in range(8)]
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


@dataclass(frozen=True)
class Kind:
    """An architecture with its data and how it is trained."""

    build: Callable[[], nn.Module]
    data: Callable[[], tuple[Tensor, Tensor]] = digits
    loss: Loss = classified
    rate: float = 2e-3


KINDS = {
    "mlp": Kind(lambda: Plain([64, 64, 64, 10], nn.ReLU)),
    "mlp-tanh": Kind(lambda: Plain([64, 64, 64, 10], nn.Tanh)),
    "mlp-gelu-dropout": Kind(lambda: Plain([64, 64, 64, 10], lambda: nn.Sequential(nn.GELU(), nn.Dropout(0.2)))),
    "convnet": Kind(Convolutional),
    "lstm": Kind(lambda: Recurrent(nn.LSTM), rate=5e-3),
    "gru": Kind(lambda: Recurrent(nn.GRU), rate=5e-3),
    "transformer": Kind(Transformer, text),
    "residual": Kind(Residual),
    "deep-mlp": Kind(lambda: Plain([64, *[64] * 6, 10], nn.GELU)),
    "autoencoder": Kind(lambda: Plain([64, 48, 16, 48, 64], nn.ReLU, nn.Sigmoid()), loss=rebuilt),
}

OPTIMIZERS: dict[str, Callable[[list[nn.Parameter], float], torch.optim.Optimizer]] = {
    "adamw": lambda parameters, rate: torch.optim.AdamW(parameters, lr=rate),
    "sgd": lambda parameters, rate: torch.optim.SGD(parameters, lr=min(50 * rate, 0.1), momentum=0.9),
}


@dataclass(frozen=True)
class Fault:
    """A fault: what it does to a fresh model, with which learning rate, and the rules that are to see it."""

    kind: Kind
    expected: frozenset[str]
    spoil: Callable[[nn.Module], object] = lambda _: None
    optimizer: str = "adamw"
    during: Callable[[nn.Module, int], object] = lambda *_: None


def dead(model: nn.Module) -> None:
    nn.init.constant_(model.layers[1].bias, -50.0)


def dead_convolution(model: nn.Module) -> None:
    nn.init.constant_(model.norm1.weight, 0.0)
    nn.init.constant_(model.norm1.bias, -5.0)


def cut(model: nn.Module) -> None:
    model.cut = 0


def scaled(factor: float) -> Callable[[nn.Module], None]:
    def spoil(model: nn.Module) -> None:
        with torch.no_grad():
            for layer in model.layers:
                layer.weight.mul_(factor)

    return spoil


def poisoned(model: nn.Module, step: int) -> None:
    if step == STEPS // 2:
        with torch.no_grad():
            next(model.parameters()).view(-1)[0] = float("nan")


def deep(function: Callable[[], nn.Module]) -> Kind:
    return Kind(lambda: Plain([64, *[48] * 10, 10], function), rate=2e-4)


def with_rate(name: str, rate: float) -> Kind:
    return Kind(KINDS[name].build, KINDS[name].data, KINDS[name].loss, rate)


_EXPLODED = frozenset({"GAP001", "GAP005"})
_GONE = _EXPLODED | {"GAP002"}  # rectifiers die of it at once

FAULTS = {
    "dead rectifiers": Fault(KINDS["mlp"], frozenset({"GAP002"}), dead),
    "dead rectifiers, autoencoder": Fault(KINDS["autoencoder"], frozenset({"GAP002"}), dead),
    "dead rectifiers, convnet": Fault(KINDS["convnet"], frozenset({"GAP002"}), dead_convolution),
    "detached block": Fault(KINDS["mlp"], frozenset({"GAP006"}), cut),
    "detached block, transformer": Fault(KINDS["transformer"], frozenset({"GAP006"}), cut),
    "detached block, autoencoder": Fault(KINDS["autoencoder"], frozenset({"GAP006"}), cut),
    "saturated tanh": Fault(KINDS["mlp-tanh"], frozenset({"GAP003"}), scaled(100.0)),
    "saturated sigmoid": Fault(Kind(lambda: Plain([64, 64, 64, 10], nn.Sigmoid)), frozenset({"GAP003"}), scaled(300.0)),
    "rate too high, mlp": Fault(with_rate("mlp", 3.0), _GONE),
    "rate too high, convnet": Fault(with_rate("convnet", 10.0), _GONE),
    "exploding, leaky rectifiers": Fault(
        Kind(lambda: Plain([64, 64, 64, 10], lambda: nn.LeakyReLU(0.2)), rate=1.0), _EXPLODED
    ),
    "exploding, autoencoder": Fault(
        Kind(lambda: Plain([64, 48, 16, 48, 64], lambda: nn.LeakyReLU(0.2)), loss=rebuilt, rate=1.0), _EXPLODED
    ),
    "exploding, residual": Fault(Kind(Residual, rate=3.0), _EXPLODED),
    "vanishing, sigmoid": Fault(deep(nn.Sigmoid), frozenset({"GAP004"}), optimizer="sgd"),
    "vanishing, tanh with tiny weights": Fault(deep(nn.Tanh), frozenset({"GAP004"}), scaled(0.2), optimizer="sgd"),
    "NaN in a weight": Fault(KINDS["mlp"], frozenset({"GAP001"}), during=poisoned),
    "NaN in a weight, transformer": Fault(KINDS["transformer"], frozenset({"GAP001"}), during=poisoned),
}


@dataclass(frozen=True)
class Judged:
    """``findings`` and ``live``: by code, what a rule said at the end, and the worst of what it was sure of before."""

    findings: dict[str, Finding]
    live: Verdict
    descent: float


def trained(kind: Kind, optimizer: str, seed: int, fault: Fault | None = None) -> Judged:
    torch.manual_seed(seed)
    x, y = kind.data()
    model = kind.build()
    if fault is not None:
        fault.spoil(model)
    stepper = OPTIMIZERS[optimizer](list(model.parameters()), kind.rate)
    history, judge = MeasuredSteps(), GapJudge(lambda _: None, None, rest=0.0)

    class Both:
        def write(self, step: int, found: dict, _: object) -> None:
            history.add(step, found)
            judge._take(step, found)  # noqa: SLF001

        def close(self) -> None:
            judge.close()

    losses = []
    monitor = watch(model, stepper, interval=INTERVAL, detail=lambda *_: None)
    monitor._sink = Both()  # noqa: SLF001
    with monitor, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(1, STEPS + 1):
            rows = torch.randint(len(x), (BATCH,))
            loss = kind.loss(model, x[rows], y[rows])
            loss.backward()
            stepper.step()
            stepper.zero_grad()
            losses.append(loss.item())
            if fault is not None:
                fault.during(model, step)
    steps = np.arange(1, STEPS + 1)
    loss_series = Series(name="loss", role="train_loss", steps=steps, values=np.array(losses))
    evidence = Evidence(run=RunRef(store="bench", id="", name=""), series=(loss_series, *history.series()))
    start, end = np.mean(losses[:5]), np.mean(losses[-10:])
    return Judged({rule.code: rule.judge(evidence) for rule in RULES}, judge._worst, 1 - end / start)  # noqa: SLF001


def healthy(seeds: int) -> Iterator[tuple[str, Judged]]:
    for name, kind in KINDS.items():
        for optimizer in OPTIMIZERS:
            for factor, seed in product(RATES, range(seeds)):
                judged = trained(replace(kind, rate=factor * kind.rate), optimizer, seed)
                yield f"{name} {optimizer} at {factor} times the rate, {seed}", judged


MARGINS = (
    ("GAP004", "depth_ratio"),
    ("GAP005", "gradient_growth"),
    ("GAP005", "largest_activation_rms"),
)


def main() -> None:
    torch.set_num_threads(1)
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    alarms: dict[str, list[str]] = defaultdict(list)
    nearest: dict[str, float] = defaultdict(float)
    count = left_out = live = 0
    for name, judged in healthy(seeds):
        if not judged.descent > 1 / 3:
            left_out += 1
            print(f"left out, its loss fell by {judged.descent:.0%}: {name}")
            continue
        count += 1
        live += judged.live in (Verdict.WARN, Verdict.FAIL)
        for code, finding in judged.findings.items():
            if finding.verdict in (Verdict.WARN, Verdict.FAIL):
                alarms[code].append(name)
                print(f"{code} objects to {name}: {finding.message}")
        for code, measure in MARGINS:
            value = judged.findings[code].measured.get(measure, 0.0)
            nearest[measure] = max(nearest[measure], float(value))
    objected = {name for names in alarms.values() for name in names}
    print(f"healthy: {len(objected)} of {count} objected to at the end, {live} while they went on; {left_out} left out")
    print("nearest:", {measure: round(value, 1) for measure, value in nearest.items()})
    seen = total = early = 0
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for name, fault in FAULTS.items():
        for seed in range(seeds):
            judged = trained(fault.kind, fault.optimizer, seed, fault)
            said = {code for code, one in judged.findings.items() if one.verdict in (Verdict.WARN, Verdict.FAIL)}
            found.update(said & fault.expected)
            wanted.update(fault.expected)
            total += 1
            seen += bool(said & fault.expected)
            early += judged.live in (Verdict.WARN, Verdict.FAIL)
            note = "" if said & fault.expected else "   MISSED"
            print(f"{name:36} {seed}: {', '.join(sorted(said)) or 'nothing'}; live {judged.live}{note}")
    print(
        "by rule, of the faults that it may see:", {code: f"{found[code]} of {wanted[code]}" for code in sorted(wanted)}
    )
    print(f"faults: {seen} of {total} seen at the end, {early} while they went on")


if __name__ == "__main__":
    main()
