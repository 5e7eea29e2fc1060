"""What is trained: small real models on data that ships with Python and scikit-learn.

A task is an architecture on a data set. Tasks, not seeds, are split into those that thresholds may be tuned on and
those that they are validated on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

SEQUENCE = 32
VOCABULARY = 96
WINDOW = 64


@dataclass(frozen=True)
class Data:
    """Training and validation samples. ``classes``: of the target, None for regression and reconstruction."""

    x: Tensor
    y: Tensor
    x_val: Tensor
    y_val: Tensor
    classes: int | None


@dataclass(frozen=True)
class Task:
    """One architecture on one data set.

    ``rates``: learning rates (low, high) at which AdamW trains this well; ``sgd``: the same for SGD with momentum 0.9,
    None where it does not. ``steps``: shortest and longest ordinary training. ``gets_faults``: whether it is also
    trained with faults.
    """

    name: str
    split: str
    build: Callable[[float], nn.Module]
    data: Callable[[], Data]
    rates: tuple[float, float]
    sgd: tuple[float, float] | None
    steps: tuple[int, int]
    pretrained: bool = False
    gets_faults: bool = True


def loss_of(output: Tensor, target: Tensor, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy for integer targets (over the last dimension), mean squared error for others."""
    if target.dtype == torch.int64:
        return functional.cross_entropy(output.flatten(0, -2), target.flatten(), label_smoothing=smoothing)
    return functional.mse_loss(output, target)


# Data


def _split(x: np.ndarray, y: np.ndarray, classes: int | None) -> Data:
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    held_out = min(max(80, 3 * len(x) // 10), 400)  # half for the oracle, half for the log
    mean, scale = x[held_out:].mean(0), x[held_out:].std(0) + 1e-6
    inputs = torch.tensor((x - mean) / scale, dtype=torch.float32)
    targets = torch.tensor(y, dtype=torch.float32 if classes is None else torch.int64)
    return Data(inputs[held_out:], targets[held_out:], inputs[:held_out], targets[:held_out], classes)


def _regression(x: np.ndarray, y: np.ndarray) -> Data:
    return _split(x, ((y - y.mean()) / y.std())[:, None], classes=None)


@cache
def digits() -> Data:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = x / 8.0 - 1.0
    return _split_unscaled(x, y, 10)


def _split_unscaled(x: np.ndarray, y: np.ndarray, classes: int) -> Data:
    order = np.random.default_rng(0).permutation(len(x))
    inputs, targets = torch.tensor(x[order], dtype=torch.float32), torch.tensor(y[order])
    return Data(inputs[360:], targets[360:], inputs[:360], targets[:360], classes)


@cache
def reconstruction() -> Data:
    whole = digits()
    return Data(whole.x, whole.x, whole.x_val, whole.x_val, None)


@cache
def cancer() -> Data:
    from sklearn.datasets import load_breast_cancer

    return _split(*load_breast_cancer(return_X_y=True), classes=2)


@cache
def clusters() -> Data:
    from sklearn.datasets import make_classification

    x, y = make_classification(
        2500, 20, n_informative=12, n_redundant=4, n_classes=5, class_sep=1.3, flip_y=0.02, random_state=1
    )
    return _split(x, y, classes=5)


@cache
def friedman() -> Data:
    from sklearn.datasets import make_friedman1

    x, y = make_friedman1(2000, noise=1.0, random_state=2)
    return _regression(x, y)


@cache
def friedman3() -> Data:
    from sklearn.datasets import make_friedman3

    x, y = make_friedman3(2000, noise=0.1, random_state=3)
    return _regression(x, y)


@cache
def mislabelled() -> Data:
    """Half of the labels are drawn anew: most of the loss is noise that nobody can learn."""
    from sklearn.datasets import make_classification

    x, y = make_classification(
        8000, 20, n_informative=12, n_redundant=4, n_classes=5, class_sep=1.3, flip_y=0.5, random_state=4
    )
    return _split(x, y, classes=5)


@cache
def faint() -> Data:
    """Four fifths of the variance are noise."""
    from sklearn.datasets import make_friedman1

    x, y = make_friedman1(8000, noise=10.0, random_state=5)
    return _regression(x, y)


@cache
def wine() -> Data:
    from sklearn.datasets import load_wine

    return _split(*load_wine(return_X_y=True), classes=3)


def _text(content: str) -> Data:
    codes = np.frombuffer(content.encode("ascii", "replace"), dtype=np.uint8).astype(np.int64)
    tokens = torch.tensor(np.clip(codes - 32, -1, VOCABULARY - 2) + 1)
    windows = tokens[: len(tokens) // (SEQUENCE + 1) * (SEQUENCE + 1)].view(-1, SEQUENCE + 1)
    windows = windows[torch.randperm(len(windows), generator=torch.Generator().manual_seed(0))]
    x, y = windows[:, :-1], windows[:, 1:]
    return Data(x[200:], y[200:], x[:200], y[:200], VOCABULARY)


@cache
def prose() -> Data:
    from pydoc_data.topics import topics

    return _text("\n".join(topics[name] for name in sorted(topics))[:400_000])


@cache
def code() -> Data:
    import argparse
    import ast
    import doctest
    import tarfile

    return _text("\n".join(inspect.getsource(module) for module in (argparse, ast, doctest, tarfile))[:400_000])


@cache
def diabetes() -> Data:
    """Small and noisy: half of the variance is all that can be explained."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    return _regression(x, y)


@cache
def modules() -> Data:
    """From which of six modules a few lines of source come."""
    import argparse
    import ast
    import statistics
    import tarfile
    import typing

    texts = [inspect.getsource(module) for module in (argparse, ast, inspect, statistics, tarfile, typing)]
    codes = [np.frombuffer(text.encode("ascii", "replace"), dtype=np.uint8)[: 400 * WINDOW] for text in texts]
    rows = [one[: len(one) // WINDOW * WINDOW].reshape(-1, WINDOW).astype(np.int64) for one in codes]
    x, y = np.concatenate(rows), np.concatenate([np.full(len(one), index) for index, one in enumerate(rows)])
    order = np.random.default_rng(0).permutation(len(x))
    tokens, labels = torch.tensor(np.clip(x[order] - 32, -1, VOCABULARY - 2) + 1), torch.tensor(y[order])
    return Data(tokens[300:], labels[300:], tokens[:300], labels[:300], len(rows))


# Models


def mlp(inputs: int, outputs: int, width: int = 64, depth: int = 2) -> Callable[[float], nn.Module]:
    def build(dropout: float) -> nn.Module:
        layers: list[nn.Module] = []
        for index in range(depth):
            layers += [nn.Linear(inputs if index == 0 else width, width), nn.ReLU(), nn.Dropout(dropout)]
        return nn.Sequential(*layers, nn.Linear(width, outputs))

    return build


def normalised_mlp(inputs: int, outputs: int, width: int = 32) -> Callable[[float], nn.Module]:
    def build(dropout: float) -> nn.Module:
        return nn.Sequential(
            nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.SiLU(), nn.Dropout(dropout), nn.Linear(width, width),
            nn.BatchNorm1d(width), nn.SiLU(), nn.Linear(width, outputs),
        )  # fmt: skip

    return build


class TextCnn(nn.Module):
    """A classifier of short texts: embedding, one convolution along them, the maximum of each channel."""

    def __init__(self, classes: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 24)
        self.convolution = nn.Conv1d(24, 64, 5, padding=2)
        self.hidden, self.head = nn.Linear(64, 48), nn.Linear(48, classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        channels = functional.relu(self.convolution(self.embedding(x).transpose(1, 2))).amax(2)
        return self.head(self.dropout(functional.relu(self.hidden(channels))))


class _Residual(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


def residual_mlp(inputs: int, outputs: int) -> Callable[[float], nn.Module]:
    def build(dropout: float) -> nn.Module:
        blocks = [_Residual(48, dropout) for _ in range(3)]
        return nn.Sequential(nn.Linear(inputs, 48), *blocks, nn.LayerNorm(48), nn.Linear(48, outputs))

    return build


def cnn(*, normalised: bool) -> Callable[[float], nn.Module]:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        norm = [nn.BatchNorm2d(outputs)] if normalised else []
        return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=not normalised), *norm, nn.ReLU(), nn.MaxPool2d(2)]

    def build(dropout: float) -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)), *block(1, 16), *block(16, 32), nn.Flatten(), nn.Dropout(dropout),
            nn.Linear(128, 10),
        )  # fmt: skip

    return build


def autoencoder(dropout: float) -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 48), nn.Tanh(), nn.Dropout(dropout / 3), nn.Linear(48, 12), nn.Tanh(), nn.Linear(12, 48),
        nn.Tanh(), nn.Linear(48, 64),
    )  # fmt: skip


class Recurrent(nn.Module):
    """A character language model: embedding, one recurrent layer, output."""

    def __init__(self, kind: type[nn.GRU | nn.LSTM], dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.recurrent = kind(32, 64, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(64, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(self.recurrent(self.embedding(x))[0]))


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, *, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)
        self.heads, self.causal, self.dropout = heads, causal, nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.down(functional.gelu(self.up(self.norm2(x)))))


class Transformer(nn.Module):
    """A decoder over characters."""

    def __init__(self, dropout: float, width: int = 48, depth: int = 2) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(SEQUENCE, width)
        self.layers = nn.ModuleList(_Attention(width, 4, dropout, causal=True) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.tokens(x) + self.positions.weight[: x.shape[1]]
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))


class PatchTransformer(nn.Module):
    """An encoder over the sixteen 2 x 2 patches of a digit."""

    def __init__(self, dropout: float, width: int = 32) -> None:
        super().__init__()
        self.patches, self.positions = nn.Linear(4, width), nn.Parameter(0.02 * torch.randn(16, width))
        self.layers = nn.ModuleList(_Attention(width, 4, dropout, causal=False) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        patches = x.view(-1, 4, 2, 4, 2).transpose(2, 3).reshape(-1, 16, 4)
        hidden = self.patches(patches) + self.positions
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden).mean(1))


class LowRank(nn.Module):
    """A linear layer, frozen, with a trainable product of rank 4 beside it."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2.0 * self.lora_B(self.lora_A(x))


@cache
def _base_model(read: Callable[[], Data]) -> dict[str, Tensor]:
    """A transformer that has read one of the texts; trained once in each process, always the same."""
    torch.manual_seed(0)
    model, data = Transformer(0.0), read()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(500):
        rows = torch.randint(len(data.x), (16,))
        optimizer.zero_grad()
        loss_of(model(data.x[rows]), data.y[rows]).backward()
        optimizer.step()
    return {name: value.clone() for name, value in model.state_dict().items()}


def adapted(read: Callable[[], Data]) -> Callable[[float], nn.Module]:
    """A base model, frozen, with low-rank adapters on its attention and feed-forward layers."""

    def build(dropout: float) -> nn.Module:
        with torch.random.fork_rng():
            base = _base_model(read)
        model = Transformer(dropout)
        model.load_state_dict(base)
        model.requires_grad_(False)
        for layer in model.layers:
            for name in ("qkv", "out", "up", "down"):
                setattr(layer, name, LowRank(getattr(layer, name)))
        return model

    return build


def relu_autoencoder(dropout: float) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Dropout(dropout / 3), nn.Linear(24, 64))


def _keeping(module: nn.Module, name: str, value: Tensor) -> None:
    """Register a constant of the model, which its saved weights hold."""
    module.register_buffer(name, value)


class _SeparateAttention(nn.Module):
    """Attention as older models have it: a query, key and value layer of their own, with biases, and a stored mask."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.out_proj = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        _keeping(self, "mask", torch.tril(torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool)))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        hidden = self.norm1(x)
        q, k, v = (
            layer(hidden).view(batch, length, self.heads, -1).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask[:length, :length])
        x = x + self.dropout(self.out_proj(mixed.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.down(functional.gelu(self.up(self.norm2(x)))))


class SeparateTransformer(nn.Module):
    """A decoder with separate query, key and value layers; positions are learnt, or sines that are stored."""

    def __init__(self, dropout: float, width: int, *, sines: bool) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, width)
        if sines:
            angles = torch.arange(SEQUENCE)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)
            _keeping(self, "positional_encoding", torch.cat([angles.sin(), angles.cos()], dim=1))
        else:
            self.positional_encoding = nn.Parameter(0.02 * torch.randn(SEQUENCE, width))
        self.blocks = nn.ModuleList(_SeparateAttention(width, 4, dropout) for _ in range(2))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embed_tokens(x) + self.positional_encoding[: x.shape[1]]
        for block in self.blocks:
            hidden = block(hidden)
        return self.lm_head(self.ln_f(hidden))


def biased_bn_cnn(dropout: float) -> nn.Module:
    """Convolutions that keep their bias although a normalisation follows and takes it away again."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(dropout), nn.Linear(24, 10),
    )  # fmt: skip


def bn_mlp(inputs: int, outputs: int, width: int = 48) -> Callable[[float], nn.Module]:
    def build(dropout: float) -> nn.Module:
        return nn.Sequential(
            nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, width),
            nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, outputs),
        )  # fmt: skip

    return build


TASKS = (
    Task("mlp-digits", "tune", mlp(64, 10), digits, (5e-4, 5e-3), (0.01, 0.1), (150, 1200)),
    Task("mlp-clusters", "tune", mlp(20, 5), clusters, (1e-3, 8e-3), (0.01, 0.1), (200, 1200)),
    Task("mlp-friedman", "tune", mlp(10, 1, depth=3), friedman, (1e-3, 8e-3), (0.005, 0.05), (200, 1200)),
    Task("cnn-digits", "tune", cnn(normalised=False), digits, (1e-3, 6e-3), (0.01, 0.08), (120, 700)),
    Task("gru-code", "tune", lambda p: Recurrent(nn.GRU, p), code, (3e-3, 1e-2), None, (200, 600)),
    Task("transformer-prose", "tune", Transformer, prose, (1e-3, 5e-3), None, (200, 600)),
    Task("lora-prose", "tune", adapted(code), prose, (2e-3, 1e-2), None, (120, 400), pretrained=True),
    Task("mlp-wine", "tune", mlp(13, 3, width=32), wine, (1e-3, 8e-3), (0.005, 0.05), (100, 400)),
    Task("narrow-autoencoder-digits", "tune", relu_autoencoder, reconstruction, (1e-3, 8e-3), None, (250, 1200)),
    Task("bn-mlp-diabetes", "tune", normalised_mlp(10, 1), diabetes, (5e-4, 5e-3), (0.003, 0.03), (100, 300)),
    Task("textcnn-modules", "tune", lambda p: TextCnn(6, p), modules, (1e-3, 5e-3), (0.03, 0.2), (200, 600)),
    Task("resmlp-cancer", "validate", residual_mlp(30, 2), cancer, (3e-4, 3e-3), (0.005, 0.05), (100, 500)),
    Task("resmlp-friedman3", "validate", residual_mlp(4, 1), friedman3, (5e-4, 5e-3), (0.005, 0.05), (200, 900)),
    Task("bn-cnn-digits", "validate", cnn(normalised=True), digits, (1e-3, 1e-2), (0.01, 0.2), (100, 700)),
    Task("autoencoder-digits", "validate", autoencoder, reconstruction, (1e-3, 6e-3), None, (300, 1200)),
    Task("vit-digits", "validate", PatchTransformer, digits, (1e-3, 4e-3), None, (300, 800)),
    Task("lstm-prose", "validate", lambda p: Recurrent(nn.LSTM, p), prose, (4e-3, 1.2e-2), None, (250, 600)),
    Task("lora-code", "validate", adapted(prose), code, (2e-3, 1e-2), None, (120, 400), pretrained=True),
    Task("bn-mlp-clusters", "tune", bn_mlp(20, 5), clusters, (1e-3, 8e-3), (0.01, 0.1), (150, 900)),
    Task("transformer-separate-code", "tune", lambda p: SeparateTransformer(p, 40, sines=False), code, (1e-3, 5e-3),
         None, (200, 500)),
    Task("bn-biased-cnn-digits", "validate", biased_bn_cnn, digits, (2e-3, 1e-2), (0.02, 0.2), (150, 600)),
    Task("transformer-sines-prose", "validate", lambda p: SeparateTransformer(p, 48, sines=True), prose, (1e-3, 5e-3),
         None, (200, 500)),
    # High floors under the loss: healthy runs only.
    Task("mlp-mislabelled", "tune", mlp(20, 5, width=32), mislabelled, (5e-4, 4e-3), (0.01, 0.08), (300, 1200),
         gets_faults=False),
    Task("bn-mlp-faint", "tune", normalised_mlp(10, 1), faint, (5e-4, 4e-3), (0.005, 0.05), (300, 1200),
         gets_faults=False),
    Task("resmlp-mislabelled", "validate", residual_mlp(20, 5), mislabelled, (3e-4, 2e-3), (0.005, 0.05), (300, 1200),
         gets_faults=False),
    Task("mlp-faint", "validate", mlp(10, 1), faint, (5e-4, 4e-3), (0.005, 0.05), (300, 1200), gets_faults=False),
)  # fmt: skip
