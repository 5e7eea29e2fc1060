"""Runs of the gallery that are known by their checkpoint: what an optimizer keeps, and the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any

import numpy as np

from gallery.entry import Entry, FloatArray, descent, noise, run, series
from tracker_health.evidence import (
    Attribution,
    DlmCheckpoint,
    Evidence,
    MomentStats,
    OptimizerState,
    SavedSchedule,
    TensorHeader,
    TensorState,
    WeightChange,
    Weights,
)

BLOCKS, WIDTH, TOKENS = 6, 32, 200
STEPS = 400
GRADIENT = 1e-3
NOISE = sqrt((1 - 0.9) / (1 + 0.9))  # of Adam's first moment, in sizes of the gradient, if gradients are pure noise
SILENT = 300  # steps since the last gradient
NEAR = {
    "frozen-front": "OPT003 OPT004 WGT005",
    "moved": "WGT002",
    "adapter-trained": "WGT007",
    "statistics-used": "WGT006",
    "checkpoint-usual": "OPT005 OPT006 OPT007 OPT009 OPT010 OPT011 OPT001 OPT002 OPT019 WGT001 WGT003 WGT004 WGT005",
}
"""The rules that a run comes close to, or is the healthy sibling for."""

CORRECTION = sqrt(1 - 0.999**STEPS)  # of Adam's second moment, which begins at 0


@dataclass(kw_only=True)
class Tensor:
    """A parameter while it is made: its values, Adam's two moments (None: no state), and its group."""

    name: str
    weight: FloatArray
    first: FloatArray | None = None
    second: FloatArray | None = None
    listed: bool = True
    group: int = 0
    unchanged: bool = False
    initial: FloatArray = field(default_factory=lambda: np.zeros(0))


def _shapes() -> Mapping[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (TOKENS, WIDTH)}
    for block in range(BLOCKS):
        shapes[f"layers.{block}.up.weight"] = (2 * WIDTH, WIDTH)
        shapes[f"layers.{block}.up.bias"] = (2 * WIDTH,)
        shapes[f"layers.{block}.down.weight"] = (WIDTH, 2 * WIDTH)
        shapes[f"layers.{block}.down.bias"] = (WIDTH,)
    return shapes | {"head.weight": (10, WIDTH), "head.bias": (10,)}


def trained() -> dict[str, Tensor]:
    """A model that trained as usual, by name."""
    tensors = {}
    for place, (name, shape) in enumerate(_shapes().items()):
        rng = np.random.default_rng(200 + place)
        bound = 1 / sqrt(shape[-1] if len(shape) > 1 else WIDTH)
        initial = rng.standard_normal(shape) if name.startswith("embed") else rng.uniform(-bound, bound, shape)
        moved = initial + 0.25 * bound * rng.standard_normal(shape)
        sizes = GRADIENT * CORRECTION * np.exp(0.3 * rng.standard_normal(shape))
        tensors[name] = Tensor(
            name=name,
            weight=moved,
            initial=initial,
            second=sizes**2,
            first=NOISE / CORRECTION * sizes * rng.standard_normal(shape),
        )
    return tensors


def _stats(values: FloatArray) -> MomentStats:
    with np.errstate(invalid="ignore", over="ignore"):
        return MomentStats(
            count=values.size, mean=float(values.mean()), rms=float(np.sqrt(np.mean(values**2))),
            minimum=float(values.min()), maximum=float(values.max()), zeros=int(np.count_nonzero(values == 0)),
            nonfinite=int(np.count_nonzero(~np.isfinite(values))),
            zero_rows=int(np.count_nonzero(~values.any(axis=1))) if values.ndim > 1 else None,
        )  # fmt: skip


def _ratio(first: FloatArray, second: FloatArray) -> float | None:
    seen = second > 0
    return float(np.mean(first[seen] ** 2 / second[seen])) if seen.any() else None


def evidence(
    tensors: Mapping[str, Tensor], *, steps: int = STEPS, groups: tuple[dict[str, Any], ...] = ({},),
    loss: FloatArray | None = None, extra: tuple[TensorHeader, ...] = (), changes: bool = False,
) -> Evidence:  # fmt: skip
    """A run that ended with this checkpoint. ``groups``: settings of the optimizer that are not the usual ones."""
    states, listed = [], [[] for _ in groups]  # type: tuple[list[TensorState], list[list[int | str]]]
    stateless = []
    for place, one in enumerate(tensors.values()):
        if not one.listed:
            continue
        listed[one.group].append(place)
        if one.second is None or one.first is None:
            stateless.append(one.name)
            continue
        states.append(
            TensorState(
                id=place, shape=one.weight.shape, name=one.name, step=float(steps), kind="adam", group=one.group,
                first_moment=_stats(one.first), second_moment=_stats(one.second),
                moment_ratio=_ratio(one.first, one.second),
            )
        )  # fmt: skip
    headers = tuple(_header(one.name, one.weight) for one in tensors.values())
    moved = tuple(
        WeightChange(name=one.name, rms=0.0 if one.unchanged else 0.01, unchanged=one.unchanged)
        for one in tensors.values()
    )
    usual = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
    values = descent(201, steps) if loss is None else loss
    metrics = (
        series("train_loss", values),
        series("learning_rate", np.full(len(values), float(groups[0].get("lr", 1e-3)))),
    )
    state = OptimizerState(
        source="training_state.pt", tensors=tuple(states), groups=tuple(usual | one for one in groups),
        global_step=steps, stateless=tuple(stateless), attribution=Attribution.NAMED, listed=tuple(map(tuple, listed)),
    )  # fmt: skip
    return run(
        "run", *metrics, optimizer=state,
        dlm_checkpoint=DlmCheckpoint(state=state, global_step=steps, weight_names=tuple(tensors)),
        weights=Weights(
            source="model.safetensors", tensors=(*headers, *extra), in_order=True,
            previous="checkpoint-200" if changes else "", changes=moved if changes else (),
        ),
    )  # fmt: skip


def _header(name: str, values: FloatArray) -> TensorHeader:
    stats = _stats(values)
    return TensorHeader(name=name, shape=values.shape, dtype="F32", rms=stats.rms, stats=stats)


def _of(name: str, title: str, sentence: str, found: Evidence) -> Entry:
    near = NEAR.get(name, "")
    return Entry(name=name, title=title, sentence=sentence, family="Checkpoint", evidence=found, near=near)


def _changed(change: Callable[[Tensor], Tensor], where: str = "") -> dict[str, Tensor]:
    """The trained model with a change made to each tensor whose name has this in it."""
    return {name: change(one) if where in name else one for name, one in trained().items()}


def _scaled(gradient: float = 1.0, weight: float = 1.0) -> Callable[[Tensor], Tensor]:
    def change(one: Tensor) -> Tensor:
        assert one.first is not None and one.second is not None  # noqa: S101, PT018
        return replace(one, first=one.first * gradient, second=one.second * gradient**2, weight=one.weight * weight)

    return change


def _without_state(one: Tensor) -> Tensor:
    return replace(one, first=None, second=None, weight=one.initial)


def _silent(one: Tensor) -> Tensor:
    return replace(one, first=np.zeros_like(one.weight), second=np.zeros_like(one.weight), weight=one.initial)


def _dead(one: Tensor) -> Tensor:
    if one.first is None or one.second is None:
        return one
    alive = (np.arange(len(one.weight)) % 8 == 0).astype(float).reshape(-1, *[1] * (one.weight.ndim - 1))
    return replace(one, first=one.first * alive, second=one.second * alive)


def _smooth(one: Tensor) -> Tensor:
    return one if one.second is None else replace(one, first=1.1 / CORRECTION * np.sqrt(one.second))


def _nan_moments(one: Tensor) -> Tensor:
    return replace(one, second=np.full_like(one.weight, np.nan))


def _nan_weights(one: Tensor) -> Tensor:
    return replace(one, weight=np.full_like(one.weight, np.nan))


def entries() -> Iterator[Entry]:
    """All of them."""
    flat = 2.3 + noise(210, STEPS, 0.01)
    rough = descent(211, STEPS, end=1.9, rough=0.1)
    healthy = trained()
    yield _of("checkpoint-usual", "A usual checkpoint", "Every parameter has gradients, and moved.", evidence(healthy))
    yield _of(
        "missing-layer", "A layer without state", "The optimizer lists it, but no gradient ever reached it.",
        evidence(_changed(_without_state, "layers.3.")),
    )  # fmt: skip
    frozen = {**healthy, **{k: replace(_without_state(v), listed=False, weight=v.weight) for k, v in healthy.items()
                            if k.startswith(("embed", "layers.0.", "layers.1."))}}  # fmt: skip
    yield _of("frozen-front", "A frozen front", "The first layers were left out, all of them.", evidence(frozen))
    yield _of(
        "no-gradient", "A layer without a gradient", "It has state, and all of it is 0.",
        evidence(_changed(_silent, "layers.3.")),
    )  # fmt: skip
    yield _of(
        "dead-units", "Dead units", "Seven in eight units of two layers never got a gradient.",
        evidence(_changed(_dead, ".up."), loss=rough),
    )  # fmt: skip
    fading = {
        name: _scaled(10.0 ** -(BLOCKS - 1 - int(name.split(".")[1])))(one) if name.startswith("layers") else one
        for name, one in healthy.items()
    }
    yield _of(
        "fading-gradients", "Gradients fade towards the input", "Each layer gets a tenth of the one above it.",
        evidence(fading, loss=flat),
    )  # fmt: skip
    yield _of(
        "stale",
        "Gradients pile up",
        "They were never cleared: every step repeats the last.",
        evidence(_changed(_smooth), loss=rough),
    )
    yield _of(
        "steps-too-small", "Steps too small", "A learning rate of 1e-9 moves nothing.",
        evidence(healthy, groups=({"lr": 1e-9},), loss=flat),
    )  # fmt: skip
    yield _of(
        "steps-too-large", "Steps too large", "Every step changes the weights by a large part.",
        evidence(healthy, groups=({"lr": 0.3},), loss=rough),
    )  # fmt: skip
    yield _of(
        "epsilon", "Epsilon outweighs the gradients", "Steps follow the gradient's size, as in plain SGD.",
        evidence(_changed(_scaled(1e-4)), groups=({"eps": 1e-4},), loss=flat),
    )  # fmt: skip
    yield _of(
        "betas",
        "Betas swapped",
        "The first moment remembers longer than the second.",
        evidence(healthy, groups=({"betas": (0.999, 0.9)},)),
    )
    yield _of(
        "unscaled-inputs", "Inputs not scaled", "What enters the first layer is hundreds of times too large.",
        evidence(_changed(_scaled(300.0), "layers.0.up.weight"), loss=rough),
    )  # fmt: skip
    yield _of(
        "moments-nan",
        "Moments are NaN",
        "One layer's state is not finite.",
        evidence(_changed(_nan_moments, "layers.4.")),
    )
    yield _of(
        "weights-nan",
        "Weights are NaN",
        "One layer of the saved model is not finite.",
        evidence(_changed(_nan_weights, "layers.4.")),
    )
    yield _of(
        "weights-large",
        "Weights too large",
        "They are 30 times the size of a fresh layer.",
        evidence(_changed(_scaled(weight=30.0)), loss=rough),
    )
    yield _of(
        "weights-small",
        "Weights too small",
        "They are a twentieth of the size of a fresh layer.",
        evidence(_changed(_scaled(weight=0.04)), loss=flat),
    )
    fresh = {name: replace(one, weight=one.initial) for name, one in healthy.items()}
    yield _of(
        "initial-weights",
        "Weights as at the start",
        "The saved values are those that an initialiser draws.",
        evidence(fresh),
    )
    still = _changed(lambda one: replace(one, unchanged=True), "layers.3.")
    yield _of(
        "unchanged-layer",
        "A layer that did not move",
        "It is the same in two checkpoints.",
        evidence(still, changes=True),
    )
    yield _of(
        "moved", "All layers moved", "Every tensor differs from the checkpoint before.", evidence(healthy, changes=True)
    )
    yield _of(
        "few-steps",
        "A handful of steps",
        "12 optimizer steps.",
        evidence(healthy, steps=12, loss=descent(212, 12, pace=1.0)),
    )
    yield from _schedules(healthy)
    yield from _norms(healthy)
    yield from _adapters()


def _schedules(healthy: Mapping[str, Tensor]) -> Iterator[Entry]:
    """What a scheduler and the groups say of learning rates, and a layer that no gradient reaches any more."""

    def with_schedule(**more: Any) -> Evidence:
        found = evidence(healthy, loss=descent(220, STEPS, pace=1, end=1.2))
        schedule = SavedSchedule(steps=np.empty(0, dtype=np.int64), rates=np.empty(0), **more)
        return replace(found, optimizer=replace(found.optimizer, schedules=(schedule,)))  # type: ignore[type-var]

    yield _of(
        "schedule-waits", "A scheduler that waits in vain", "Its best loss is the highest that was logged.",
        _waiting(with_schedule(stepped=20, best=2.1, waits_for_rise=True)),
    )  # fmt: skip
    yield _of(
        "schedule-length", "A cosine of the wrong length", "It was laid out for 20 steps and took 400.",
        with_schedule(stepped=STEPS, laid_out=20.0, period=40.0),
    )  # fmt: skip
    head = {name: replace(one, group=1) if name.startswith("head") else one for name, one in healthy.items()}
    yield _of(
        "groups-apart", "Groups far apart", "One group began at 1e-3, the other at 1e-9.",
        evidence(head, groups=({"initial_lr": 1e-3}, {"initial_lr": 1e-9, "lr": 1e-9})),
    )  # fmt: skip
    stopped = _changed(_long_silent, "layers.3.")
    yield _of("gradient-stopped", "No more gradients", "For 300 steps none has come to one layer.", evidence(stopped))


def _waiting(found: Evidence) -> Evidence:
    held_out = series("val_loss", 0.6 + 1.5 * np.exp(-np.arange(20) / 5), every=20)
    return replace(found, series=(*found.series, held_out))


def _long_silent(one: Tensor) -> Tensor:
    if one.first is None or one.second is None:
        return one
    return replace(one, first=one.first * 0.9**SILENT, second=one.second * 0.999**SILENT)


def _norms(healthy: Mapping[str, Tensor]) -> Iterator[Entry]:
    """Normalisation layers: their running statistics are buffers next to the parameters."""
    rng = np.random.default_rng(213)
    for name, title, sentence, mean, variance in (
        ("statistics-idle", "Running statistics never updated", "The model was in evaluation mode as it trained.",
         np.zeros(WIDTH), np.ones(WIDTH)),
        ("statistics-used", "Running statistics in use", "Mean and variance are those of batches.",
         rng.standard_normal(WIDTH), np.exp(rng.standard_normal(WIDTH))),
    ):  # fmt: skip
        tensors, buffers = dict(healthy), []
        for block in range(2):
            for part, start in (("weight", 1.0), ("bias", 0.0)):
                like = healthy[f"layers.{block}.down.bias"]
                values = start + 0.05 * rng.standard_normal(WIDTH)
                tensors[f"norms.{block}.{part}"] = replace(like, name=f"norms.{block}.{part}", weight=values)
            buffers += [_header(f"norms.{block}.running_mean", mean), _header(f"norms.{block}.running_var", variance)]
        yield _of(name, title, sentence, evidence(tensors, extra=tuple(buffers)))


def _adapters() -> Iterator[Entry]:
    """Low-rank adapters: the second matrix begins at 0."""
    for name, title, sentence, size in (
        ("adapter-empty", "An adapter that changes nothing", "Its second matrices are still 0.", 0.0),
        ("adapter-trained", "An adapter that was trained", "Its second matrices have moved.", 0.02),
    ):
        rng, headers = np.random.default_rng(214), []
        for layer in range(6):
            module = f"base_model.model.layers.{layer}.q_proj"
            headers.append(_header(f"{module}.lora_A.weight", rng.uniform(-0.2, 0.2, (4, WIDTH))))
            headers.append(_header(f"{module}.lora_B.weight", size * rng.standard_normal((WIDTH, 4))))
        weights = Weights(source="adapter_model.safetensors", tensors=tuple(headers))
        found = run("run", series("train_loss", descent(215, end=1.2)), weights=weights)
        yield _of(name, title, sentence, found)
        if size:
            yield _of(
                "adapter-without-head", "A classifier without its head", "The adapter is for SEQ_CLS, and has no head.",
                replace(found, weights=replace(weights, task="SEQ_CLS")),
            )  # fmt: skip
