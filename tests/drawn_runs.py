"""Runs made by a seed: curves of every kind under every role, states and weights with every fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tracker_health.config import Config
from tracker_health.evidence import (
    Attribution,
    Evidence,
    FloatArray,
    MomentStats,
    OptimizerState,
    RunInfo,
    RunRef,
    Series,
    TensorHeader,
    TensorState,
    WeightChange,
    Weights,
    confirm,
)
from tracker_health.judge.engine import needs_of

RUNS = 240
Maker = Callable[[np.random.Generator, int], FloatArray]


def _falling(draw: np.random.Generator, points: int) -> FloatArray:
    start, end, pace = draw.uniform(1.0, 8.0), draw.uniform(0.01, 0.9), draw.uniform(0.02, 0.4)
    fall = end + (start - end) * np.exp(-np.arange(points) / (pace * points))
    return fall + draw.normal(0.0, draw.choice([0.0, 0.01, 0.05]) * (start - end), points)


def _late(draw: np.random.Generator, points: int) -> int:
    return int(points * draw.uniform(0.3, 0.95))


def _diverging(draw: np.random.Generator, points: int) -> FloatArray:
    values, at = _falling(draw, points), _late(draw, points)
    values[at:] = values[at:] + draw.uniform(0.5, 20.0) * values[0] * np.linspace(
        draw.uniform(0.2, 1.0), 1.0, points - at
    )
    return values


def _spiky(draw: np.random.Generator, points: int) -> FloatArray:
    values = _falling(draw, points)
    values[draw.integers(points // 4, points, draw.integers(1, 5))] += draw.uniform(0.3, 30.0)
    return values


def _broken(draw: np.random.Generator, points: int) -> FloatArray:
    values, at = _falling(draw, points), _late(draw, points)
    values[at : at + draw.integers(1, points)] = draw.choice([np.nan, np.inf, 0.0])
    return values


def _flat(draw: np.random.Generator, points: int) -> FloatArray:
    level = draw.choice([0.0, np.log(2), np.log(10), np.log(1000), draw.uniform(0.5, 5.0)])
    return np.full(points, level) + draw.normal(0.0, draw.choice([0.0, 1e-3, 0.02]), points)


def _turning(draw: np.random.Generator, points: int) -> FloatArray:
    at, values = _late(draw, points), _falling(draw, points)
    values[at:] += draw.uniform(0.0, 1.5) * values[0] * np.linspace(0.0, 1.0, points - at)
    return values


def _rising(draw: np.random.Generator, points: int) -> FloatArray:
    return (
        draw.uniform(0.1, 3.0) + draw.uniform(0.1, 5.0) * np.linspace(0.0, 1.0, points) + draw.normal(0, 0.02, points)
    )


def _saw(draw: np.random.Generator, points: int) -> FloatArray:
    every = int(draw.integers(8, 40))
    return _falling(draw, points) + draw.uniform(0.02, 0.5) * (np.arange(points) % every) / every


LOSSES: tuple[Maker, ...] = (_falling, _falling, _diverging, _spiky, _broken, _flat, _turning, _rising, _saw)


def _share(make: Maker) -> Maker:
    return lambda draw, points: np.clip(1.0 - make(draw, points) / draw.uniform(1.0, 6.0), 0.0, 1.0)


def _rate(draw: np.random.Generator, points: int) -> FloatArray:
    peak, at = 10.0 ** draw.uniform(-7, 1), np.linspace(0.0, 1.0, points)
    shapes = (
        np.ones(points),
        0.5 * (1 + np.cos(np.pi * at)),
        np.minimum(1.0, at / 0.1),
        at,
        at < 0.2,
        1.0 + 9.0 * (at > 0.6),
    )
    return peak * np.asarray(shapes[draw.integers(len(shapes))], dtype=np.float64)


def _positive(make: Maker) -> Maker:
    return lambda draw, points: np.abs(make(draw, points))


OTHERS: dict[str, tuple[Maker, ...]] = {
    "val_loss": LOSSES,
    "train_accuracy": tuple(map(_share, LOSSES)),
    "val_accuracy": tuple(map(_share, LOSSES)),
    "lr": (_rate,),
    "grad_norm": tuple(map(_positive, LOSSES)),
    "loss_scale": (lambda draw, points: 2.0 ** np.round(np.linspace(16, draw.uniform(-2, 20), points)),),
    "reward": (_rising, _flat, _falling, _turning),
    "kl": tuple(map(_positive, (_flat, _rising, _diverging))),
    "entropy": (_falling, _flat, _rising),
    "clip_fraction": tuple(map(_share, LOSSES)),
    "completions/clipped_ratio": tuple(map(_share, LOSSES)),
    "rewards/margins": (_rising, _flat, _falling),
    "box_loss": LOSSES,
}
PARAMS: dict[str, tuple[str, ...]] = {
    "optimizer": ("adam", "sgd", "adamw"),
    "learning_rate": ("3e-4", "1e-6", "5", "0.1"),
    "weight_decay": ("0", "0.1", "5"),
    "max_grad_norm": ("1.0", "1e-5"),
    "num_classes": ("2", "10"),
    "epochs": ("3", "100"),
    "fp16": ("True",),
}


LAYERS = ("embed", "layers.0", "layers.1", "layers.2", "norm", "head")


def _shapes(draw: np.random.Generator) -> dict[str, tuple[int, ...]]:
    """A model's parameters, at times an adapter's."""
    wide, prefix = int(draw.choice([8, 64, 256])), draw.choice(["", "", "model."])
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in LAYERS[: draw.integers(2, len(LAYERS) + 1)]:
        if draw.random() < 0.2:
            shapes |= {f"{prefix}{layer}.lora_A.weight": (4, wide), f"{prefix}{layer}.lora_B.weight": (wide, 4)}
        else:
            shapes[f"{prefix}{layer}.weight"] = (wide,) if layer == "norm" else (wide, wide)
            shapes[f"{prefix}{layer}.bias"] = (wide,)
    return shapes


def _stats(draw: np.random.Generator, shape: tuple[int, ...], size: float, *, signed: bool) -> MomentStats:
    """Statistics of a tensor whose values have about this size; at times of zeros, or with a NaN."""
    count, kind = (
        int(np.prod(shape)),
        draw.choice(["plain"] * 60 + ["zero", "zero", "some zeros", "some zeros", "broken"]),
    )
    zeros = {"zero": count, "some zeros": count // 2}.get(str(kind), 0)
    rms = 0.0 if kind == "zero" else size
    if kind == "broken":
        rms = float("nan")
    mean = rms * draw.normal(0.0, 0.05) if signed else rms * 0.6
    rows = zeros // shape[-1] if len(shape) > 1 else None
    low = -3 * rms if signed else 0.0
    return MomentStats(
        count=count,
        mean=mean,
        rms=rms,
        minimum=low,
        maximum=3 * rms,
        zeros=zeros,
        nonfinite=int(kind == "broken"),
        zero_rows=rows,
    )


def _state(draw: np.random.Generator, shapes: dict[str, tuple[int, ...]]) -> OptimizerState:
    steps, rate = int(10.0 ** draw.uniform(1.5, 5)), float(10.0 ** draw.uniform(-6, 0))
    size, named = 10.0 ** draw.uniform(-9, 1), draw.random() < 0.6
    kept = [name for name in shapes if draw.random() < draw.choice([1.0, 1.0, 0.8])]
    tensors = []
    for at, name in enumerate(kept):
        first = size * 10.0 ** draw.uniform(-1, 1)
        tensors.append(
            TensorState(
                id=at, shape=shapes[name], name=name if named else None, step=float(steps), kind="adam", group=0,
                first_moment=_stats(draw, shapes[name], first, signed=True),
                second_moment=_stats(draw, shapes[name], first**2 * draw.choice([1.0, 10.0, 1e-3]), signed=False),
                moment_ratio=float(draw.choice([0.01, 0.1, 0.9, 1.0])),
            )
        )  # fmt: skip
    group = {
        "lr": rate,
        "betas": (0.9, 0.999) if draw.random() < 0.9 else (0.999, 0.9),
        "eps": float(draw.choice([1e-8, 1e-8, 1e-3])),
        "weight_decay": float(draw.choice([0.0, 0.01, 10.0])),
        "params": list(range(len(kept))),
    }
    return OptimizerState(
        source="optimizer.pt", tensors=tuple(tensors), groups=(group,), global_step=steps,
        attribution=Attribution.NAMED if named else Attribution.UNATTRIBUTED,
        loss_scale=float(2.0 ** draw.integers(-3, 17)) if draw.random() < 0.2 else None,
    )  # fmt: skip


def _weights(draw: np.random.Generator, shapes: dict[str, tuple[int, ...]]) -> Weights:
    scale = draw.choice([0.02, 1.0, 1e-4, 30.0])
    every = {name: _stats(draw, shape, scale * shape[-1] ** -0.5, signed=True) for name, shape in shapes.items()}
    tensors = tuple(
        TensorHeader(name=name, shape=shapes[name], dtype="F32", rms=one.rms, stats=one) for name, one in every.items()
    )
    share = draw.choice([0.0, 0.0, 0.3, 1.0])
    still = {name: bool(draw.random() < share) for name in shapes}
    moved = {
        name: 0.0 if still[name] else float(one.rms * draw.choice([1e-6, 1e-3, 0.1])) for name, one in every.items()
    }
    changes = tuple(WeightChange(name=name, rms=moved[name], unchanged=still[name]) for name in shapes)
    compared = draw.random() < 0.5
    return Weights(
        source="model.safetensors", tensors=tensors, in_order=bool(draw.random() < 0.5),
        previous="before.safetensors" if compared else "", changes=changes if compared else (),
    )  # fmt: skip


def drawn_runs() -> Iterator[tuple[str, Evidence]]:
    """The evidence of each, by name."""
    roles = needs_of(Config()).roles
    for number in range(RUNS):
        draw = np.random.default_rng(number)
        points, every = int(draw.integers(12, 300)), int(draw.choice([1, 1, 10, 50]))
        curves = {"train_loss": LOSSES[number % len(LOSSES)](draw, points)} if draw.random() < 0.85 else {}
        for name in sorted(OTHERS):
            if draw.random() < 0.3:
                makers = OTHERS[name]
                few = points if name not in ("val_loss", "val_accuracy") else max(8, points // 8)
                curves[name] = makers[draw.integers(len(makers))](draw, few)
        params = {name: str(draw.choice(some)) for name, some in PARAMS.items() if draw.random() < 0.3}
        series = tuple(
            Series(
                name=name, steps=every * np.arange(len(values)) * (points // len(values)), values=values, source="log"
            )
            for name, values in curves.items()
        )
        info = RunInfo(params=params, metric_names=tuple(curves))
        confirmed = confirm(series, roles.of(curves))[0]
        shapes = _shapes(draw)
        state = _state(draw, shapes) if number % 2 else None
        weights = _weights(draw, shapes) if number % 4 in (2, 3) else None
        name = f"drawn/{number}"
        yield (
            name,
            Evidence(
                run=RunRef(store="directory", id=name, name=name),
                info=info,
                series=confirmed,
                optimizer=state,
                weights=weights,
            ),
        )
