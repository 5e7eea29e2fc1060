"""The tensors of a run's checkpoint, one by one: what its optimizer and its weights look like, the worst first.

As a document (schema ``tracker-health/tensors/1``) and as lines for the terminal, where every foreign text goes through
``printable``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click

from tracker_health.evidence import (
    Attribution,
    Evidence,
    MomentStats,
    OptimizerState,
    RunRef,
    TensorHeader,
    TensorState,
)
from tracker_health.evidence.parameters.steps import signal_to_noise
from tracker_health.layers import Place, place_of
from tracker_health.text import count, number, printable

SCHEMA = "tracker-health/tensors/1"

_NOTHING = (
    "no optimizer state or weights were found among the run's files (training_state.pt, optimizer.pt, *.ckpt, "
    "*.safetensors); give the folder or the address in which the training saved them"
)
_ROWS_SHOWN = 40
_NAME_WIDTH = 44
_SAID = {
    Attribution.NAMED: "names from the file",
    Attribution.CONTENT_CHECKED: "names by an assumed order of the parameters, which their contents confirm",
    Attribution.ASSUMED_ORDER: "names by an assumed order of the parameters, in which all shapes agree",
    Attribution.UNATTRIBUTED: "no names: which parameter is which is not known",
}


@dataclass(frozen=True, kw_only=True)
class TensorRow:
    """One tensor: what the optimizer keeps for it, the weight itself, or both where it is known that they belong
    together. ``snr``: the mean of the squared first moment over the second, bias-corrected; ``update_ratio``: the size
    of a step over that of the weight, at its group's learning rate.
    """

    name: str | None
    shape: tuple[int, ...]
    state: TensorState | None = None
    weight: TensorHeader | None = None
    snr: float | None = None
    update_ratio: float | None = None

    @property
    def place(self) -> Place | None:
        return None if self.name is None else place_of(self.name)

    @property
    def label(self) -> str:
        return self.state.label if self.state is not None else str(self.name)

    @property
    def all_stats(self) -> tuple[MomentStats, ...]:
        """The statistics of everything that was read of it."""
        state, weight = self.state, self.weight
        known = (
            state.first_moment if state is not None else None,
            state.second_moment if state is not None else None,
            weight.stats if weight is not None else None,
        )
        return tuple(one for one in known if one is not None)

    @property
    def nonfinite(self) -> int:
        return sum(one.nonfinite for one in self.all_stats)

    @property
    def is_dead(self) -> bool:
        """Whether no gradient ever reached it: a second moment of zeros."""
        moment = self.state.second_moment if self.state is not None else None
        return moment is not None and moment.count > 0 and moment.zeros == moment.count

    @property
    def zero_rows(self) -> int:
        """Output units without a gradient, or whose weights are all 0."""
        second = self.state.second_moment if self.state is not None else None
        weight = self.weight.stats if self.weight is not None else None
        return max((one.zero_rows or 0 for one in (second, weight) if one is not None), default=0)

    @property
    def badness(self) -> tuple[bool, bool, bool, float]:
        """What to sort by: non-finite values, no gradient, silent rows, then the signal-to-noise ratio."""
        return (self.nonfinite > 0, self.is_dead, self.zero_rows > 0, self.snr if self.snr is not None else -1.0)

    @property
    def remark(self) -> str:
        """What is wrong with it, in a word."""
        if self.nonfinite:
            return "nonfinite"
        if self.is_dead:
            return "dead"
        return f"{count(self.zero_rows, 'zero row')}" if self.zero_rows else ""


@dataclass(frozen=True, kw_only=True)
class TensorTable:
    """Every tensor of a run's checkpoint. ``rows`` are those of the optimizer, ``weights_only`` the weights for which
    it keeps nothing, or for which it is not known what it keeps; both with the worst first.

    ``problems``: what could not be read, each with its source. ``missing``: why there is nothing, where there is.
    """

    run: RunRef
    optimizer: OptimizerState | None
    weights_source: str | None
    rows: tuple[TensorRow, ...]
    weights_only: tuple[TensorRow, ...]
    problems: tuple[tuple[str, str], ...] = ()
    missing: str = ""

    @property
    def attribution(self) -> Attribution:
        return self.optimizer.attribution if self.optimizer is not None else Attribution.UNATTRIBUTED

    @property
    def kinds(self) -> str | None:
        """The optimizer, as far as what it keeps tells it: ``adam``, ``adafactor``, ``momentum``."""
        tensors = self.optimizer.tensors if self.optimizer is not None else ()
        return ", ".join(sorted({one.kind for one in tensors if one.kind})) or None

    @property
    def global_step(self) -> int | None:
        if self.optimizer is None:
            return None
        return self.optimizer.global_step if self.optimizer.global_step is not None else self.optimizer.steps

    def to_json(self) -> dict[str, Any]:
        """The table as a schema 1 document of strict JSON values: what is not finite is null, and counted."""
        run = self.run
        return {
            "schema": SCHEMA,
            "run": {"store": run.store, "id": run.id, "name": run.name, "url": run.url},
            "optimizer": self.kinds,
            "global_step": self.global_step,
            "attribution": str(self.attribution),
            "source": self.optimizer.source if self.optimizer is not None else None,
            "weights_source": self.weights_source,
            "tensors": [_state_document(row) for row in self.rows],
            "weights": [_weight_document(row) for row in self.weights_only],
            "errors": [{"source": source, "message": message} for source, message in self.problems],
        }


def tensor_table(evidence: Evidence) -> TensorTable:
    """The table of what was read of a run."""
    state, weights = evidence.optimizer, evidence.weights
    headers: Mapping[str, TensorHeader] = {one.name: one for one in weights.tensors} if weights is not None else {}
    rows = [_row(state, one, headers) for one in state.tensors] if state is not None else []
    joined = {row.weight.name for row in rows if row.weight is not None}
    others = [
        TensorRow(name=one.name, shape=one.shape, weight=one) for one in headers.values() if one.name not in joined
    ]
    nothing = state is None and not headers
    return TensorTable(
        run=evidence.run,
        optimizer=state,
        weights_source=weights.source if weights is not None else None,
        rows=_worst_first(rows),
        weights_only=_worst_first(others),
        problems=tuple((one.source, one.message) for one in evidence.problems),
        missing=next(iter(evidence.missing.values()), _NOTHING) if nothing else "",
    )


def _row(state: OptimizerState, tensor: TensorState, headers: Mapping[str, TensorHeader]) -> TensorRow:
    weight = headers.get(tensor.name) if tensor.name is not None else None
    if weight is not None and weight.shape != tensor.shape:
        weight = None
    snr = signal_to_noise(state, tensor, fewest_steps=1)
    # AMSGrad divides by the largest second moment there was, not by the present one.
    ratio, rate = None, None if tensor.kind == "amsgrad" else _learning_rate(state, tensor)
    if snr is not None and snr >= 0 and rate is not None and weight is not None and weight.rms:
        ratio = rate * math.sqrt(snr) / weight.rms
    return TensorRow(name=tensor.name, shape=tensor.shape, state=tensor, weight=weight, snr=snr, update_ratio=ratio)


def _learning_rate(state: OptimizerState, tensor: TensorState) -> float | None:
    """The learning rate of the parameter's group; where a schedule brought it to 0, the one that it began with."""
    place = 0 if tensor.group is None and len(state.groups) == 1 else tensor.group
    if place is None or place >= len(state.groups):
        return None
    rates = (state.groups[place].get("lr"), state.groups[place].get("initial_lr"))
    return next((float(one) for one in rates if isinstance(one, (int, float)) and 0 < one < math.inf), None)


def _worst_first(rows: Iterable[TensorRow]) -> tuple[TensorRow, ...]:
    """Sorted, layer by layer: the layer of the worst tensor first."""
    ordered = sorted(rows, key=lambda row: row.badness, reverse=True)
    layers: dict[tuple[str, int] | None, list[TensorRow]] = {}
    for row in ordered:
        layers.setdefault(_layer_of(row), []).append(row)
    return tuple(row for members in layers.values() for row in members)


def _layer_of(row: TensorRow) -> tuple[str, int] | None:
    return None if row.place is None else (row.place.stack, row.place.layer)


def _state_document(row: TensorRow) -> dict[str, Any]:
    state = row.state
    first = state.first_moment if state is not None else None
    second = state.second_moment if state is not None else None
    return {
        "id": state.id if state is not None else None,
        "name": row.name,
        **_place_document(row),
        "shape": list(row.shape),
        "numel": math.prod(row.shape),
        "step": _whole(_finite(state.step if state is not None else None)),
        "m_rms": _finite(first.rms if first is not None else None),
        "v_mean": _finite(second.mean if second is not None else None),
        "v_min": _finite(second.minimum if second is not None else None),
        "v_max": _finite(second.maximum if second is not None else None),
        "snr": _finite(row.snr),
        "zeros": second.zeros if second is not None else None,
        "nonfinite": _sum(one.nonfinite for one in (first, second) if one is not None),
        "zero_rows": second.zero_rows if second is not None else None,
        "group": state.group if state is not None else None,
        "optimizer": (state.optimizer or None) if state is not None else None,
        "weight": None if row.weight is None else _weight_statistics(row.weight),
        "update_ratio": _finite(row.update_ratio),
    }


def _weight_document(row: TensorRow) -> dict[str, Any]:
    return {
        "name": row.name,
        **_place_document(row),
        "shape": list(row.shape),
        "numel": math.prod(row.shape),
        **(_weight_statistics(row.weight) if row.weight is not None else {}),
    }


def _place_document(row: TensorRow) -> dict[str, Any]:
    place = row.place
    return {"stack": place.stack, "layer": place.layer, "role": place.role} if place is not None else _NO_PLACE


_NO_PLACE = {"stack": None, "layer": None, "role": None}


def _weight_statistics(weight: TensorHeader) -> dict[str, Any]:
    stats = weight.stats
    return {
        "dtype": weight.dtype,
        "rms": _finite(weight.rms),
        "min": _finite(stats.minimum if stats is not None else None),
        "max": _finite(stats.maximum if stats is not None else None),
        "zeros": stats.zeros if stats is not None else None,
        "nonfinite": stats.nonfinite if stats is not None else None,
        "zero_rows": stats.zero_rows if stats is not None else None,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _whole(value: float | None) -> float | int | None:
    return int(value) if value is not None and value.is_integer() else value


def _sum(values: Iterable[int]) -> int | None:
    known = list(values)
    return sum(known) if known else None


_COLUMNS = ("shape", "step", "m rms", "v mean", "v min", "v max", "snr", "zeros", "nonfin", "w rms", "upd/w")
_WIDTHS = (14, 8, 9, 9, 9, 9, 9, 9, 7, 9, 9)


def tensor_lines(table: TensorTable, *, everything: bool = False) -> Iterator[str]:
    """The table for the terminal: the worst tensors, or with ``everything`` all of them."""
    yield click.style(printable(table.run.name, 80), bold=True)
    yield from _head_lines(table)
    rows = [*table.rows, *table.weights_only]
    if not rows:
        return
    # Of weights without state only what is wrong is worth a line, as long as there are others.
    shown = rows if everything or not table.rows else [row for row in rows if row.state is not None or row.remark]
    cut = shown if everything else shown[:_ROWS_SHOWN]
    yield click.style(_line("", *_COLUMNS), dim=True)
    last: object = ()
    for row in cut:
        here = _layer_of(row)
        if here != last and here is not None:
            yield printable(f"{here[0]}.{here[1]}", 100)
        elif here != last:
            yield "outside of the layers, or not known"
        last = here
        yield _row_line(row)
    if len(cut) < len(rows):
        yield click.style(f"{len(rows) - len(cut)} more of {count(len(rows), 'tensor')} (--all shows them)", dim=True)


def _head_lines(table: TensorTable) -> Iterator[str]:
    if table.optimizer is not None:
        step = f", step {table.global_step}" if table.global_step is not None else ""
        tensors = count(len(table.rows), "tensor")
        kept = f"{printable(table.optimizer.source)}: {table.kinds or 'no moments that are read'}{step}, {tensors}"
        yield f"  optimizer state  {kept}"
        yield f"                   {_SAID[table.attribution]}"
    if table.weights_source is not None:
        yield f"  weights          {printable(table.weights_source)}"


def _row_line(row: TensorRow) -> str:
    state, weight = row.state, row.weight
    first = state.first_moment if state is not None else None
    second = state.second_moment if state is not None else None
    both = [one for one in (first, second) if one is not None] or list(row.all_stats)
    values = (
        "x".join(map(str, row.shape[:6])) or "scalar",
        _shown(state.step if state is not None else None),
        _shown(first.rms if first is not None else None),
        *(_shown(getattr(second, name) if second is not None else None) for name in ("mean", "minimum", "maximum")),
        _shown(row.snr),
        _shown(second.zeros if second is not None else (weight.stats.zeros if weight and weight.stats else None)),
        _shown(sum(one.nonfinite for one in both)) if both else "-",
        _shown(weight.rms if weight is not None else None),
        _shown(row.update_ratio),
    )
    name = row.place.role if row.place is not None else row.label
    line = _line(f"  {printable(name, _NAME_WIDTH)}", *values)
    if not row.remark:
        return line
    colour = "red" if row.nonfinite or row.is_dead else "yellow"
    return f"{line}  {click.style(row.remark, fg=colour, bold=True)}"


def _line(name: str, *values: str) -> str:
    cells = (f"{value:>{width}}" for value, width in zip(values, _WIDTHS, strict=True))
    return f"{name:<{_NAME_WIDTH + 2}} {' '.join(cells)}"


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    text = number(float(value))
    return text if len(text) <= 9 else f"{value:.2e}"
