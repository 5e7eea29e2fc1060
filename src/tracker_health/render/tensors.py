"""The table of a checkpoint's parameters, printed: the worst first, and what was left out of training.

As a document (schema ``tracker-health/tensors/2``) and as lines for the terminal, where every foreign text goes through
``printable``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import click

from tracker_health.evidence import Attribution, Evidence, LeftOut, OptimizerState, Parameter, RunRef, TensorHeader
from tracker_health.text import count, listing, number, printable
from tracker_health.words.layers import LayerPlace, place_of

SCHEMA = "tracker-health/tensors/2"

_NOTHING = (
    "no optimizer state or weights were found among the run's files (training_state.pt, optimizer.pt, *.ckpt, "
    "*.safetensors); give the folder or the address in which the training saved them"
)
_ROWS_SHOWN = 40
_MOST_SETTINGS = 50
_NAME_WIDTH = 44
_SAID = {
    Attribution.NAMED: "names from the file",
    Attribution.CONTENT_CHECKED: "names by an assumed order of the parameters, which their contents confirm",
    Attribution.ASSUMED_ORDER: "names by an assumed order of the parameters, in which all shapes agree",
    Attribution.UNATTRIBUTED: "no names: which parameter is which is not known",
}


@dataclass(frozen=True, kw_only=True)
class TensorTable:
    """Every tensor of a run's checkpoint. ``rows`` are those of the optimizer, ``weights_only`` the weights for which
    it keeps nothing, or for which it is not known what it keeps; both with the worst first. ``left_out``: what was left
    out of training, and whether on purpose; ``groups``: the optimizer's, with their settings.

    ``problems``: what could not be read, each with its source. ``missing``: why there is nothing, where there is.
    """

    run: RunRef
    optimizer: OptimizerState | None
    weights_source: str | None
    rows: tuple[Parameter, ...]
    weights_only: tuple[Parameter, ...]
    left_out: tuple[LeftOut, ...] = ()
    groups: tuple[Mapping[str, Any], ...] = ()
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
        """The table as a schema 2 document of strict JSON values: what is not finite is null, and counted."""
        left = {id(one): some for some in self.left_out for one in some.parameters}
        return {
            "schema": SCHEMA,
            "run": asdict(self.run),
            "optimizer": self.kinds,
            "global_step": self.global_step,
            "attribution": str(self.attribution),
            "source": self.optimizer.source if self.optimizer is not None else None,
            "weights_source": self.weights_source,
            "tensors": [_state_document(row, left.get(id(row))) for row in self.rows],
            "weights": [_weight_document(row, left.get(id(row))) for row in self.weights_only],
            "groups": [_settings(one) for one in self.groups],
            "left_out": [_left_document(one) for one in self.left_out],
            "errors": [{"source": source, "message": message} for source, message in self.problems],
        }


def tensor_table(evidence: Evidence) -> TensorTable:
    """The table of what was read of a run."""
    state, weights, table = evidence.optimizer, evidence.weights, evidence.parameters
    nothing = state is None and (weights is None or not weights.tensors)
    return TensorTable(
        run=evidence.run,
        optimizer=state,
        weights_source=weights.source if weights is not None else None,
        rows=_worst_first(table.with_state),
        weights_only=_worst_first(one for one in table.with_weight if one.state is None),
        left_out=table.left_out,
        groups=table.groups,
        problems=tuple((one.source, one.message) for one in evidence.problems),
        missing=next(iter(evidence.missing.values()), _NOTHING) if nothing else "",
    )


def _worst_first(rows: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """Sorted, layer by layer: the layer of the worst tensor first."""
    ordered = sorted(rows, key=_badness, reverse=True)
    layers: dict[tuple[str, int] | None, list[Parameter]] = {}
    for row in ordered:
        layers.setdefault(_layer_of(row), []).append(row)
    return tuple(row for members in layers.values() for row in members)


def _badness(row: Parameter) -> tuple[bool, bool, bool, float]:
    """What to sort by: non-finite values, no gradient, silent rows, then the signal-to-noise ratio."""
    return (row.nonfinite > 0, _is_dead(row), row.dead_rows > 0, row.snr if row.snr is not None else -1.0)


def _is_dead(row: Parameter) -> bool:
    """Whether no gradient ever reached it: a second moment of zeros."""
    moment = row.state.second_moment if row.state is not None else None
    return moment is not None and moment.count > 0 and moment.zeros == moment.count


def remark_of(row: Parameter) -> str:
    """What is wrong with it, in a word."""
    if row.nonfinite:
        return "nonfinite"
    if _is_dead(row):
        return "dead"
    return f"{count(row.dead_rows, 'zero row')}" if row.dead_rows else ""


def _place_of(row: Parameter) -> LayerPlace | None:
    return None if row.name is None else place_of(row.name)


def _layer_of(row: Parameter) -> tuple[str, int] | None:
    place = _place_of(row)
    return None if place is None else (place.stack, place.layer)


def _table_document(row: Parameter, left: LeftOut | None) -> dict[str, Any]:
    """What the table says of a parameter beyond its statistics."""
    return {
        "place": str(row.place),
        "kind": str(row.kind),
        "naming": row.naming.name.lower(),
        "listed": row.listed,
        "trained": row.trained,
        "moved": row.moved,
        "initial": row.initial.name.lower(),
        "gradient": _finite(row.gradient),
        "left_out": None if left is None else left.purpose.name,
    }


def _left_document(left: LeftOut) -> dict[str, Any]:
    return {
        "how": left.how.name.lower().replace("_", "-"),
        "purpose": left.purpose.name,
        "meant": left.purpose.meant,
        "confidence": left.purpose.confidence,
        "sentence": left.purpose.sentence,
        "parameters": [one.called for one in left.parameters],
    }


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    """The plain settings of a group."""
    plain = {key: one for key, one in group.items() if isinstance(key, str) and key != "params"}
    found: dict[str, Any] = {}
    for key, one in islice(plain.items(), _MOST_SETTINGS):
        values = one if isinstance(one, tuple) else (one,)
        if all(isinstance(value, (bool, int, float, str, type(None))) for value in values[:_MOST_SETTINGS]):
            shown = [_finite(value) if isinstance(value, float) else value for value in values[:_MOST_SETTINGS]]
            found[printable(key, 80)] = shown if isinstance(one, tuple) else shown[0]
    return found


def _state_document(row: Parameter, left: LeftOut | None) -> dict[str, Any]:
    state = row.state
    first = state.first_moment if state is not None else None
    second = state.second_moment if state is not None else None
    return {
        "id": state.id if state is not None else None,
        "name": row.name,
        **_place_document(row),
        "shape": list(row.shape or ()),
        "numel": row.numel,
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
        **_table_document(row, left),
    }


def _weight_document(row: Parameter, left: LeftOut | None) -> dict[str, Any]:
    return {
        "name": row.name,
        **_place_document(row),
        "shape": list(row.shape or ()),
        "numel": row.numel,
        **(_weight_statistics(row.weight) if row.weight is not None else {}),
        **_table_document(row, left),
    }


def _place_document(row: Parameter) -> dict[str, Any]:
    place = _place_of(row)
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


_COLUMNS = ("place", "shape", "step", "m rms", "v mean", "v min", "v max", "snr", "zeros", "nonfin", "w rms", "upd/w")
_WIDTHS = (7, 14, 8, 9, 9, 9, 9, 9, 9, 7, 9, 9)


def tensor_lines(table: TensorTable, *, everything: bool = False) -> Iterator[str]:
    """The table for the terminal: the worst tensors, or with ``everything`` all of them."""
    yield click.style(printable(table.run.name, 80), bold=True)
    yield from _head_lines(table)
    rows = [*table.rows, *table.weights_only]
    if not rows:
        return
    # Of weights without state only what is wrong is worth a line, as long as there are others.
    shown = rows if everything or not table.rows else [row for row in rows if row.state is not None or remark_of(row)]
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
    yield from _left_lines(table.left_out)
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


def _left_lines(left_out: Sequence[LeftOut]) -> Iterator[str]:
    """What was left out of training, and the answer for it; mistakes first."""
    if left_out:
        yield "left out of training"
    for left in sorted(left_out, key=lambda one: one.purpose.meant):
        how = left.how.name.lower().replace("_", " ")
        answer = "on purpose, as it seems" if left.purpose.meant else click.style("by mistake?", fg="yellow", bold=True)
        names = listing([one.shown for one in left.parameters])
        yield f"  {count(len(left.parameters), 'parameter')} {how}, {answer} ({left.purpose.sentence}): {names}"


def _row_line(row: Parameter) -> str:
    state, weight = row.state, row.weight
    first = state.first_moment if state is not None else None
    second = state.second_moment if state is not None else None
    both = [one for one in (first, second) if one is not None] or list(row.all_stats)
    values = (
        str(row.place),
        "x".join(map(str, (row.shape or ())[:6])) or "scalar",
        _shown(state.step if state is not None else None),
        _shown(first.rms if first is not None else None),
        *(_shown(getattr(second, name) if second is not None else None) for name in ("mean", "minimum", "maximum")),
        _shown(row.snr),
        _shown(second.zeros if second is not None else (weight.stats.zeros if weight and weight.stats else None)),
        _shown(sum(one.nonfinite for one in both)) if both else "-",
        _shown(weight.rms if weight is not None else None),
        _shown(row.update_ratio),
    )
    name = place.role if (place := _place_of(row)) is not None else row.label
    line = _line(f"  {printable(name, _NAME_WIDTH)}", *values)
    if not (remark := remark_of(row)):
        return line
    colour = "red" if row.nonfinite or _is_dead(row) else "yellow"
    return f"{line}  {click.style(remark, fg=colour, bold=True)}"


def _line(name: str, *values: str) -> str:
    cells = (f"{value:>{width}}" for value, width in zip(values, _WIDTHS, strict=True))
    return f"{name:<{_NAME_WIDTH + 2}} {' '.join(cells)}"


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    text = number(float(value))
    return text if len(text) <= 9 else f"{value:.2e}"
