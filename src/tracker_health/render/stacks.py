"""Counts of verdicts as stacked bars: columns of weeks, and the bar of a row. SVG whose colours the page gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from tracker_health.render.plot import tick, value_ticks
from tracker_health.text import count

_LEFT, _TOP, _FLOOR, _HEIGHT = 46.0, 22.0, 208.0, 250.0
_WIDTH, _NARROWEST, _WIDEST = 1040.0, 34.0, 72.0  # of the columns together, and of one, in pixels
_FILLED = 0.72  # of the pitch
_ROOM_FOR_NUMBER, _DIGIT = 15.0, 7.8  # pixels of height that a number needs, and of width each of its digits
_WHOLE = 1000.0  # the width of a row's bar: it is stretched to the width that the page has
_SLIMMEST = 6.0  # of these, so that one run among thousands is seen


@dataclass(frozen=True, kw_only=True)
class Column:
    """``label`` and ``below``: what is under it; ``name``: in full. ``counts``: by verdict."""

    label: str
    below: str
    name: str
    counts: Mapping[str, int]

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self.counts.values())


def columns(shown: Sequence[Column], order: Sequence[str], *, title: str) -> str:
    """Columns of stacked counts, the first of ``order`` at the bottom. The picture has its own size in pixels: on a
    narrow screen it is scrolled, since text that shrinks with it could not be read.
    """
    pitch = min(_WIDEST, max(_NARROWEST, _WIDTH / max(1, len(shown))))
    most = max((one.total for one in shown), default=0) or 1
    width, scale = _LEFT + pitch * len(shown) + 8, (_FLOOR - _TOP) / most
    size = f'width="{width:.0f}" height="{_HEIGHT:.0f}" viewBox="0 0 {width:.0f} {_HEIGHT:.0f}"'
    parts = [f'<svg class="plot stacks" {size} role="img" aria-label="{escape(title)}">']
    for value in value_ticks(0.0, float(most), logarithmic=False):
        if value == round(value):
            y = _FLOOR - value * scale
            parts.append(f'<line class="grid" x1="{_LEFT:.0f}" x2="{width:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{_LEFT - 8:.0f}" y="{y + 4:.1f}" text-anchor="end">{tick(value)}</text>')
    for at, column in enumerate(shown):
        parts += _column(column, order, _LEFT + pitch * (at + 0.5), pitch * _FILLED, scale)
    return "".join([*parts, "</svg>"])


def _column(column: Column, order: Sequence[str], middle: float, width: float, scale: float) -> Iterator[str]:
    bottom = _FLOOR
    yield f"<g><title>{escape(f'{column.name}: {in_words(column.counts, order)}')}</title>"
    for word in order:
        amount = column.counts.get(word, 0)
        height = amount * scale
        if not amount:
            continue
        bottom -= height
        yield _box(word, middle - width / 2, bottom, width, height)
        if height >= _ROOM_FOR_NUMBER and (shown := _fitting(amount, width)):
            yield f'<text class="in" x="{middle:.1f}" y="{bottom + height / 2 + 4.5:.1f}">{shown}</text>'
    yield f'<text class="middle" x="{middle:.1f}" y="{_FLOOR + 18:.1f}">{escape(column.label)}</text>'
    if column.below:
        yield f'<text class="middle" x="{middle:.1f}" y="{_FLOOR + 34:.1f}">{escape(column.below)}</text>'
    yield "</g>"


def _fitting(amount: int, width: float) -> str:
    """The number as a text that fits, in thousands where there is less room, or nothing."""
    texts = (f"{amount:,}", f"{amount / 1000:.1f}k", f"{amount / 1000:.0f}k")
    return next((text for text in texts if _width_of(text) <= width and not text.startswith("0")), "")


def _width_of(text: str) -> float:
    return sum(_DIGIT / 2 if character in ".," else _DIGIT for character in text)


def row_bar(counts: Mapping[str, int], order: Sequence[str], most: int) -> str:
    """The bar of a row, next to others of which the longest has ``most``."""
    at, parts = 0.0, []
    label = escape(in_words(counts, order))
    for word in order:
        amount = counts.get(word, 0)
        width = max(_SLIMMEST, _WHOLE * amount / max(1, most)) if amount else 0.0
        if amount:
            parts.append(_box(word, at, 0, width, 40))
        at += width
    whole = max(_WHOLE, at)
    box = f'viewBox="0 0 {whole:.0f} 40" preserveAspectRatio="none"'
    return f'<svg class="stack" {box} role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _box(word: str, x: float, y: float, width: float, height: float) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="of-{escape(word)}" {place}/>'


def in_words(counts: Mapping[str, int], order: Sequence[str]) -> str:
    """``12 runs: 3 fail, 9 pass``."""
    told = ", ".join(f"{counts[word]:,} {word}" for word in order if counts.get(word))
    total = sum(counts.get(word, 0) for word in order)
    return f"{count(total, 'run')}: {told}" if told else "no runs"
