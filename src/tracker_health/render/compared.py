"""The page of a run next to others: what parted first, both curves, the settings that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tracker_health.evidence import FloatArray, Series
from tracker_health.judge.compare import ROLES, Alignment, By, Comparison, Parting, Side
from tracker_health.render.page import Chart, render
from tracker_health.render.plot import Line, Mark, Plot, draw
from tracker_health.render.thinning import level, thin
from tracker_health.text import printable, short_name, shortened

_LARGE, _MOST = 2, 12
_NAME, _NOISY, _BUCKETS = 28, 200, 200


def compared_page(found: Comparison) -> bytes:
    """The page of a comparison.

    Args:
        found: The comparison.

    Returns:
        HTML that asks nothing of a network.

    Raises:
        MissingExtra: jinja2 is not installed.
    """
    plots = list(_plots(found))
    return render(
        "compared.html",
        scripts=("plot.js", "report.js"),
        data={"plots": [one.data for one in plots], "series": {}},
        found=found,
        sides=[found.bad, *found.goods],
        charts=[Chart(plot=one, svg=draw(one)) for one in plots],
        tensors=[] if found.tensors is None else found.tensors.lines(),
        own=[(code, found.bad.found[code].message) for code in found.only_own],
        there=[(code, found.goods[0].found[code].message) for code in found.only_there],
    )


def _plots(found: Comparison) -> Iterator[Plot]:
    """The series that parted, the first first; then the others that both have."""
    parted = {(one.role, one.name): one for one in found.partings.found}
    rest = [
        (role, one.name)
        for role in ROLES
        for one in found.bad.evidence.all_of(role)
        if one.name in found.partings.compared and (role, one.name) not in parted
    ]
    for at, (role, name) in enumerate([*parted, *dict.fromkeys(rest)][:_MOST]):
        yield _plot(found, role, name, parted.get((role, name)), at)


def _plot(found: Comparison, role: str, name: str, parting: Parting | None, at: int) -> Plot:
    sides = [found.bad, *found.goods]
    names = shortened([one.name for one in sides], _NAME)
    lines: list[Line] = []
    drawn = [_series(side, role, name) for side in sides]
    smooth = any(one is not None and len(one) > _NOISY for one in drawn)
    for place, (side, label) in enumerate(zip(sides, names, strict=True)):
        series = drawn[place]
        if series is not None:
            lines[:0] = _lines(series, side, found.alignment, (label, "main" if not place else "other"), smooth=smooth)
    title = printable(short_name(name), 60)
    marks: tuple[Mark, ...] = ()
    if parting is not None:
        value = parting.own if np.isfinite(parting.own) else None
        marks = (Mark(step=parting.position, value=value, label="parts here"),)
    small = at >= _LARGE
    return Plot(
        name=f"series-{at}",
        title=title,
        description=f"{title} of {', '.join(names)}." + (f" {parting.said}." if parting else " Nothing clearly parts."),
        lines=tuple(lines),
        marks=marks,
        unit="share of the plan" if found.alignment.by is By.PLAN else str(found.alignment.by),
        note=f"{parting.said}." if parting is not None else "",
        is_small=small,
        height=190.0 if small else 280.0,
    )


def _series(side: Side, role: str, name: str) -> Series | None:
    """The series of that name, else the longest one of the role."""
    named = [one for one in side.evidence.all_of(role) if one.name == name]
    found = named[0] if named else side.evidence.find(role)
    return None if found is None else found.clean()


def _lines(series: Series, side: Side, alignment: Alignment, named: tuple[str, str], *, smooth: bool) -> list[Line]:
    """Its curve on the axis of the comparison; of many points the level that it runs at. ``named``: label and look."""
    label, look = named
    at = alignment.positions(series, side.evidence)
    order = np.argsort(at, kind="stable")
    steps, values = at[order], series.values[order]
    finite = np.isfinite(values)
    if smooth and finite.any():
        middle: Sequence[FloatArray] = level(steps[finite], values[finite], _BUCKETS)
        if len(middle[0]):
            return [Line(name=label, label=label, steps=middle[0], values=middle[1], look=f"{look} level")]
    if finite.all():
        places, values = thin(steps, values, _BUCKETS)
        return [Line(name=label, label=label, steps=places, values=values, look=look)]
    return [Line(name=label, label=label, steps=steps, values=values, look=look)]
