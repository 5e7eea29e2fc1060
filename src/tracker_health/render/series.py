"""The metric series of a run: where each was found, what it was taken for, and how much of it there is.

As a document (schema ``tracker-health/series/1``) and as lines for the terminal, where every foreign text goes through
``printable``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import click

from tracker_health.evidence import Evidence, Problem, RunRef, Series
from tracker_health.text import count, printable

SCHEMA = "tracker-health/series/1"

_WIDTHS = (34, 15, 8, 9, 10, 22, 24, 100)


@dataclass(frozen=True, kw_only=True)
class SeriesTable:
    """Every series of a run, those with a role first. ``names``: the metrics that were logged. ``notes``: what several
    sources say of one metric, and what is made of several.
    """

    run: RunRef
    series: tuple[Series, ...]
    names: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def suggestions(self) -> dict[str, list[str]]:
        """For each role that is only guessed: the names that a setting would make it sure for. A sum has no name."""
        found: dict[str, list[str]] = {}
        for one in self.series:
            if one.guessed and one.role is not None and one.name in self.names:
                found.setdefault(one.role, []).append(one.name)
        return {role: found[role] for role in sorted(found)}

    def to_json(self) -> dict[str, Any]:
        """The document, as strict JSON."""
        return {
            "schema": SCHEMA,
            "run": asdict(self.run),
            "series": [_row(one) for one in self.series],
            "suggested": {f"roles.{role}": names for role, names in self.suggestions.items()},
            "notes": list(self.notes),
            "problems": [{"source": one.source, "message": one.message} for one in self.problems],
        }


def series_table(evidence: Evidence) -> SeriesTable:
    """The series of evidence that was read with every name; the role "" stands for none."""
    every = [replace(one, role=one.role or None) for one in evidence.series]
    every.sort(key=lambda one: (one.role is None, one.role or "", one.name, one.source))
    names = frozenset(evidence.info.metric_names)
    return SeriesTable(
        run=evidence.run, series=tuple(every), names=names, notes=evidence.notes, problems=evidence.problems
    )


def duplicates(series: Series) -> int:
    """How many points are at a step that has a newer one."""
    return len(series) - len(set(series.steps.tolist()))


def _row(series: Series) -> dict[str, Any]:
    clean = series.clean()
    there = len(clean) > 0
    return {
        "name": series.name,
        "role": series.role,
        "guessed": series.guessed,
        "understood": series.understood,
        "source": series.source,
        "step_unit": str(series.step_unit),
        "points": len(series),
        "nonfinite": series.nonfinite,
        "duplicates": duplicates(series),
        "first_step": int(clean.steps[0]) if there else None,
        "last_step": int(clean.steps[-1]) if there else None,
        "first": _strict(clean.values[0]) if there else None,
        "last": _strict(clean.values[-1]) if there else None,
        "axis": _axis(clean),
    }


def _axis(clean: Series) -> dict[str, Any] | None:
    """What its owner plots a series by, and from where to where; None where that is the step."""
    if clean.axis is None or not len(clean):
        return None
    first, last = (clean.axis.at(step) for step in clean.steps[[0, -1]].tolist())
    return {"name": clean.axis.name, "first": first, "last": last}


def _strict(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def series_lines(table: SeriesTable) -> Iterator[str]:
    """The table for the terminal, the settings that it suggests, and the notes."""
    if not table.series:
        yield f"{printable(table.run.id)}: no metric series were found"
    else:
        amount = count(len(table.series), "row")
        yield click.style(f"{printable(table.run.id)}: {amount}", bold=True)
        heads = ("name", "role", "points", "nonfinite", "duplicates", "steps", "source", "taken for")
        yield click.style(_line(heads), dim=True)
    for one in table.series:
        clean = one.clean()
        steps = f"{clean.steps[0]}..{clean.steps[-1]}" if len(clean) else ""
        unit = {"epoch": " epochs", "log_call": " rows"}.get(str(one.step_unit), "")
        yield _line(
            (
                one.name,
                one.role or "-",
                str(len(one)),
                str(one.nonfinite),
                str(duplicates(one)),
                steps + unit,
                one.source,
                f"{one.understood}; plotted from {clean.place(clean.steps[0])} to {clean.place(clean.steps[-1])}"
                if clean.axis is not None and len(clean)
                else one.understood,
            )
        )
    for role, names in table.suggestions.items():
        yield f"{role} is guessed; this setting would make it sure: roles.{role} = {_toml(names[:3])}"
    for note in table.notes:
        yield f"note: {printable(note, 500)}"


def _toml(names: list[str]) -> str:
    """A list of names as TOML in plain ASCII, which knows no surrogates."""
    quoted = ('"' + "".join(map(_toml_character, name)) + '"' for name in names)
    return f"[{', '.join(quoted)}]"


def _toml_character(character: str) -> str:
    code = ord(character)
    if 0xD800 <= code < 0xE000:
        return " "  # names are compared by their letters and digits
    if character in '"\\':
        return f"\\{character}"
    if 0x20 <= code < 0x7F:
        return character
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _line(cells: tuple[str, ...]) -> str:
    shown = [printable(cell, width) for cell, width in zip(cells, _WIDTHS, strict=True)]
    right = (False, False, True, True, True, False, False, False)
    return "  ".join(
        cell.rjust(width) if to_the_right else cell.ljust(width)
        for cell, width, to_the_right in zip(shown, _WIDTHS, right, strict=True)
    ).rstrip()
