"""The metric series of a run: where each was found, what it was taken for, and how much of it there is.

As a document (schema ``tracker-health/series/1``) and as lines for the terminal, where every foreign text goes through
``printable``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import click

from tracker_health.evidence import Evidence, Problem, RunRef, Series
from tracker_health.roles import HELD_OUT_WORDS, words_of
from tracker_health.text import count, printable

SCHEMA = "tracker-health/series/1"

_WIDTHS = (34, 15, 8, 9, 10, 22, 24)
_HELD_OUT = frozenset(HELD_OUT_WORDS)


@dataclass(frozen=True, kw_only=True)
class SeriesTable:
    """Every series of a run, those with a role first. ``notes``: what several sources say of one metric."""

    run: RunRef
    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def suggestions(self) -> dict[str, list[str]]:
        """For each role that no series has: the names that look as if they should have it."""
        taken = {one.role for one in self.series}
        found: dict[str, list[str]] = {}
        for one in self.series:
            role = _likely_role(one.name) if one.role is None else None
            if role is not None and role not in taken:
                found.setdefault(role, []).append(one.name)
        return {role: found[role] for role in sorted(found)}

    def to_json(self) -> dict[str, Any]:
        """The document, as strict JSON."""
        run = {"store": self.run.store, "id": self.run.id, "name": self.run.name, "url": self.run.url}
        return {
            "schema": SCHEMA,
            "run": run,
            "series": [_row(one) for one in self.series],
            "suggested": {f"roles.{role}": names for role, names in self.suggestions.items()},
            "notes": list(self.notes),
            "problems": [{"source": one.source, "message": one.message} for one in self.problems],
        }


def series_table(evidence: Evidence) -> SeriesTable:
    """The series of evidence that was read with every name; the role "" stands for none."""
    every = [replace(one, role=one.role or None) for one in evidence.series]
    every.sort(key=lambda one: (one.role is None, one.role or "", one.name, one.source))
    return SeriesTable(run=evidence.run, series=tuple(every), notes=evidence.notes, problems=evidence.problems)


def duplicates(series: Series) -> int:
    """How many points stand at a step that has a newer one."""
    return len(series) - len(set(series.steps.tolist()))


def _row(series: Series) -> dict[str, Any]:
    clean = series.clean()
    there = len(clean) > 0
    return {
        "name": series.name,
        "role": series.role,
        "source": series.source,
        "step_unit": str(series.step_unit),
        "points": len(series),
        "nonfinite": series.nonfinite,
        "duplicates": duplicates(series),
        "first_step": int(clean.steps[0]) if there else None,
        "last_step": int(clean.steps[-1]) if there else None,
        "first": _strict(clean.values[0]) if there else None,
        "last": _strict(clean.values[-1]) if there else None,
    }


def _strict(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _likely_role(name: str) -> str | None:
    words = set(words_of(name))
    if {"loss", "nll", "perplexity"} & words and not {"scale", "weight"} & words:
        return "val_loss" if words & _HELD_OUT else "train_loss"
    if {"grad", "gradient", "gnorm"} & words and ({"norm", "gnorm"} & words):
        return "grad_norm"
    return "learning_rate" if "lr" in words or {"learning", "rate"} <= words else None


def series_lines(table: SeriesTable) -> Iterator[str]:
    """The table for the terminal, the settings that it suggests, and the notes."""
    if not table.series:
        yield f"{printable(table.run.id)}: no metric series were found"
    else:
        amount = count(len(table.series), "row")
        yield click.style(f"{printable(table.run.id)}: {amount}", bold=True)
        heads = ("name", "role", "points", "nonfinite", "duplicates", "steps", "source")
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
            )
        )
    for role, names in table.suggestions.items():
        yield f"no series has the role {role}; this setting would give it: roles.{role} = {_toml(names[:3])}"
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
    right = (False, False, True, True, True, False, False)
    return "  ".join(
        cell.rjust(width) if to_the_right else cell.ljust(width)
        for cell, width, to_the_right in zip(shown, _WIDTHS, right, strict=True)
    ).rstrip()
