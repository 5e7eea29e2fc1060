"""Our block in a run's description: put in, replaced and taken out, without a byte of the user's text changed."""

from __future__ import annotations

import re

BEGIN = "<!-- tracker-health:begin -->"
END = "<!-- tracker-health:end -->"
MAX_DESCRIPTION = 8_000
"""Characters that MLflow keeps of a description; it cuts off the rest silently."""

_BLANK_LINE = "\n\n"
_BEGINNING = re.compile(rf"^{re.escape(BEGIN)}\r?\n", re.MULTILINE)
_END = re.compile(rf"^{re.escape(END)}", re.MULTILINE)


def with_note(text: str, note: str, limit: int = MAX_DESCRIPTION) -> str:
    """The description ``text`` with ``note`` as its block, or without a block when ``note`` is empty.

    A block that is there is replaced in place; a new one follows the user's text after a blank line. The block is left
    out when it and the user's text exceed ``limit`` characters. A text with broken markers (one alone, several, not at
    the start of a line) is returned as it is: where our block would begin and end in it, nobody can say.
    """
    if has_broken_markers(text):
        return text
    found = _extent(text)
    if found is None:
        before, after = (text + _BLANK_LINE if text else ""), ""
    else:
        before, after = text[: found[0]], text[found[1] :]
    # A marker inside the note would end the block early.
    block = f"{BEGIN}\n{note.replace('<!--', '&lt;!--')}\n{END}"
    result = before + block + after
    return result if note and len(result) <= limit else before.removesuffix(_BLANK_LINE) + after


def block_of(text: str) -> str:
    """What is within our markers in a description, "" where there is no whole block."""
    found = None if has_broken_markers(text) else _extent(text)
    return text[found[0] : found[1]].removeprefix(BEGIN).removesuffix(END).strip() if found else ""


def has_markers(text: str) -> bool:
    """Whether a description holds one of our markers, wherever and however many."""
    return BEGIN in text or END in text


def has_broken_markers(text: str) -> bool:
    """Whether a description holds our markers, and not as we write them: one alone, several, or inside a line."""
    several = text.count(BEGIN) > 1 or text.count(END) > 1
    return several or (has_markers(text) and _extent(text) is None)


def _extent(text: str) -> tuple[int, int] | None:
    """Where our block begins and ends in a description; None where there is none."""
    begin = _BEGINNING.search(text)
    end = _END.search(text, begin.end()) if begin is not None else None
    return (begin.start(), end.end()) if begin is not None and end is not None else None
