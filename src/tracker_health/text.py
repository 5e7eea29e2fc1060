"""Words and numbers for people, safe to show wherever the text came from."""

from __future__ import annotations

import math
import unicodedata

_ELLIPSIS = "…"
# Format characters reorder or hide text (direction marks, zero-width joiners); the rest control the terminal.
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: object, limit: int = 200) -> str:
    """One line that cannot move the cursor, change colours or reorder what stands beside it.

    Newlines and tabs become spaces; control, direction and zero-width characters become ``?``; longer texts end in
    an ellipsis.
    """
    # Cut first: a name of ten megabytes must not be walked character by character.
    raw = str(text)[: limit + 1]
    clean = "".join(_printable_character(character) for character in raw)
    return clean if len(clean) <= limit else clean[: limit - 1] + _ELLIPSIS


def _printable_character(character: str) -> str:
    if character in "\n\r\t":
        return " "
    return "?" if unicodedata.category(character) in _HIDDEN_CATEGORIES else character


def number(value: float) -> str:
    """A number with four significant digits: ``0.1234``, ``1.5e-07``, ``12500``, ``NaN``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == int(value) and abs(value) < 1e9:
        return str(int(value))
    return f"{value:.4g}"


def count(amount: int, noun: str) -> str:
    """``1 step``, ``3 steps``."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def listing(items: list[str], limit: int = 5) -> str:
    """The first few of a list of names, and how many more there are."""
    shown = ", ".join(printable(item, 80) for item in items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"
