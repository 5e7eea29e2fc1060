"""The matrices of a checkpoint as a heat map: how far each is from what is usual, by four measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tracker_health.evidence import Evidence, Parameter
from tracker_health.evidence.parameters.steps import relative_updates
from tracker_health.text import number, percent, printable, small_percent

_MOST_ROWS = 24
_TIMES = "\u00d7"
_HOTTEST = 5  # shades, from 0 for what is usual
_SHADES_PER_DECADE = 3.0
_USUAL_SCALE, _USUAL_STEP = (0.4, 4.0), (0.0002, 0.02)
_NAME_CHARACTERS = 48

Steps = Mapping[int, float]
"""The size of a step over that of the weights, by the identity of the optimizer's state for them."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number, as text; ``heat``: from 0 (usual) to 5; None where it is not known."""

    text: str
    heat: int


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """``columns``: heading and what is usual there. ``rows``: name and shape of a matrix, and its cells. ``left_out``:
    how many matrices nearer to what is usual are not shown.
    """

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, str, tuple[Cell | None, ...]], ...]
    left_out: int = 0
    step: int | None = None

    @property
    def hottest(self) -> int:
        """The largest heat of all cells."""
        return max((cell.heat for _, _, cells in self.rows for cell in cells if cell is not None), default=0)


def heat_map(evidence: Evidence) -> HeatMap | None:
    """The heat map of a run's checkpoint; None where nothing of its matrices is known."""
    table = evidence.parameters
    matrices = [row for row in table.rows if row.is_matrix and row.is_parameter] if table.readable else []
    # By the state's identity: of tensors without a name several may look the same.
    steps = {id(state): ratio for state, ratio in relative_updates(evidence)}
    cells = [[make(row, steps) for _, _, make in _COLUMNS] for row in matrices]
    known = [at for at in range(len(_COLUMNS)) if any(one[at] is not None for one in cells)]
    shown = [at for at, row in enumerate(cells) if any(cell is not None for cell in row)]
    if not known or not shown:
        return None
    hottest = sorted(shown, key=lambda at: -_heat_of(cells[at]))[:_MOST_ROWS]
    optimizer = evidence.optimizer
    return HeatMap(
        columns=tuple(_COLUMNS[at][:2] for at in known),
        rows=tuple(
            (
                printable(matrices[row].shown, _NAME_CHARACTERS),
                _TIMES.join(str(one) for one in (matrices[row].shape or ())[:4]),
                tuple(cells[row][at] for at in known),
            )
            for row in sorted(hottest)
        ),
        left_out=len(shown) - len(hottest),
        step=optimizer.steps if optimizer is not None else None,
    )


def _heat_of(cells: Sequence[Cell | None]) -> float:
    return sum(cell.heat for cell in cells if cell is not None)


def _scale(row: Parameter, _: Steps) -> Cell | None:
    """The size of the weights over that of a fresh layer."""
    if row.weight is None or row.weight.rms is None or row.kind == "embedding":
        return None
    return _beside(row.cautious_scale, _USUAL_SCALE, lambda value: f"{number(value)} {_TIMES}")


def _step(row: Parameter, steps: Steps) -> Cell | None:
    """A step at the highest learning rate, over the weights."""
    ratio = steps.get(id(row.state)) if row.state is not None else None
    return None if ratio is None else _beside(ratio, _USUAL_STEP, small_percent)


def _silent(row: Parameter, _: Steps) -> Cell | None:
    """The share of values that no gradient ever reached."""
    if row.moment is None:
        return None
    share = row.silent_share
    return Cell(text=percent(share), heat=0 if share < 0.2 else min(_HOTTEST, math.ceil(_HOTTEST * share)))


def _nonfinite(row: Parameter, _: Steps) -> Cell | None:
    if not row.all_stats:
        return None
    return Cell(text=str(row.nonfinite), heat=_HOTTEST if row.nonfinite else 0)


_COLUMNS: tuple[tuple[str, str, Callable[[Parameter, Steps], Cell | None]], ...] = (
    ("weights, against a fresh layer", "usual 0.4 to 4", _scale),
    ("largest step, against the weights", "usual 0.02 to 2 %", _step),
    ("values without any gradient", "usual below 20 %", _silent),
    ("NaN or infinite values", "usual 0", _nonfinite),
)


def _beside(value: float, usual: tuple[float, float], show: Callable[[float], str]) -> Cell:
    if not math.isfinite(value):
        return Cell(text=number(value), heat=_HOTTEST)
    if value <= 0:
        return Cell(text=show(value), heat=_HOTTEST)
    decades = max(math.log10(value / usual[1]), math.log10(usual[0] / value), 0.0)
    return Cell(text=show(value), heat=min(_HOTTEST, math.ceil(_SHADES_PER_DECADE * decades)))
