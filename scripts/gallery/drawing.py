"""Small pictures as SVG: a log with its levels, limit and marks, or a checkpoint's table as bars.

Colours are of middle brightness and the ground is transparent, so that one file serves light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from gallery.entry import FloatArray
from tracker_health.evidence import Evidence, IntArray, Part, Series
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe

WIDTH, HEIGHT = 320, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 8, 16, 22
_MOST_POINTS, _MOST_LINES, _MOST_MARKS, _MOST_BARS = 160, 6, 8, 48
_LOG_FROM = 60.0  # highest over lowest value at which a logarithmic axis shows more
_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#7b8190}.axis{stroke:#7b8190;stroke-width:1;fill:none}"
    ".log{stroke:#5b8def;stroke-width:1;fill:none;opacity:.75}.other{stroke:#2aa198;stroke-width:1;fill:none;opacity:.8}"
    ".level{stroke:#3d6fd8;stroke-width:2;fill:none}.limit{stroke:#d9534f;stroke-width:1.2;stroke-dasharray:5 4}"
    ".mark{stroke:#d9534f;stroke-width:2;fill:none}.bar{fill:#5b8def}.out{fill:#7b8190;opacity:.18}.found{fill:#d9534f}.red{fill:#d9534f}"
)
_SKIPPED = frozenset(("epoch", "global_step"))
_COMPANIONS = {"val_loss": "train_loss", "val_accuracy": "train_accuracy", "chosen_logp": "rejected_logp"}
_CHECKPOINT = frozenset(
    (Part.OPTIMIZER_STATE, Part.SECOND_MOMENTS, Part.WEIGHTS, Part.WEIGHT_CHANGES, Part.DLM_CHECKPOINT)
)
_LIMITS = ("chance", "usual_end", "tau")
"""Measures that are a level in the unit of the series judged."""
_OF_WEIGHTS = frozenset((Part.WEIGHTS, Part.WEIGHT_CHANGES))


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes: lines (the first is the one judged), the levels of it, limits, and marked steps."""

    title: str
    lines: tuple[Series, ...]
    levels: tuple[IntArray, FloatArray] | None = None
    limits: tuple[float, ...] = ()
    marks: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Bars:
    """A checkpoint's table: one bar for each tensor, some of them marked. A value below 0: the optimizer does not list
    it.
    """

    title: str
    values: tuple[float, ...]
    found: tuple[bool, ...] = field(default=())


def picture(evidence: Evidence, rule: Probe | None, finding: Finding | None, alt: str) -> str:
    """The picture of a run as a rule sees it, or by itself."""
    roles = _roles(rule, evidence)
    if not roles and evidence.optimizer is not None:
        return _svg([_bars(_table(evidence, rule, finding))], alt)
    if not roles and evidence.weights is not None:
        return _svg([_bars(_table(evidence, rule, finding))], alt)
    panels = _panels(evidence, roles or ["train_loss"], rule, finding)
    height = HEIGHT if len(panels) == 1 else HEIGHT * 2 // 3
    return _svg([_axes(panel, height) for panel in panels], alt, height)


# What is shown


def _roles(rule: Probe | None, evidence: Evidence) -> list[str]:
    """The roles of the series that a rule judges; none where it looks at the checkpoint."""
    if rule is None:
        shown = list(dict.fromkeys(one.role for one in evidence.series if one.role not in _SKIPPED))
        at_first = [role for role in shown if role != "learning_rate"]
        of_layers = [role for role in at_first if role is not None and role.startswith("gap_")]
        if evidence.optimizer is not None or evidence.weights is not None:
            return []
        return of_layers or [role for role in at_first if role]
    needs = [need for need in rule.needs if not need.optional]
    roles = [role for need in needs for role in need.roles if role in evidence.by_role and role not in _SKIPPED]
    if roles:
        return roles
    looks = {role for need in rule.needs for role in need.roles}
    there = evidence.optimizer is not None or evidence.weights is not None
    return [] if there and looks & {*_CHECKPOINT, Part.OPTIMIZER_STEPS} else ["train_loss"]


def _panels(evidence: Evidence, roles: list[str], rule: Probe | None, finding: Finding | None) -> list[Panel]:
    """Two at most, the first for the role that the finding's steps and limit are of."""
    panels: list[Panel] = []
    drawn: set[str] = set()
    for role in roles:
        companion = _COMPANIONS.get(role)
        if (
            role in drawn
            or role not in evidence.by_role
            or (role in _COMPANIONS.values() and _COMPANIONS_OF[role] in roles)
        ):
            continue
        first = not panels
        lines = _lines(evidence, role) + (_lines(evidence, companion) if companion else ())
        drawn |= {role, companion or role}
        curve = evidence.curve(role) if len(_lines(evidence, role)) == 1 else None
        panels.append(
            Panel(
                title=_title(lines),
                lines=lines,
                levels=(curve.steps, curve.levels) if curve is not None and rule is not None else None,
                limits=_limits(rule, finding) if first else (),
                marks=tuple(finding.steps[:_MOST_MARKS]) if first and finding is not None else (),
            )
        )
    return panels[:2]


_COMPANIONS_OF = {other: role for role, other in _COMPANIONS.items()}


def _title(lines: Sequence[Series]) -> str:
    if len(lines) > 2:
        kind, _, statistic = lines[0].name.rpartition("/")
        return f"{kind.split('/')[1] if '/' in kind else lines[0].name}, {statistic} of each layer"
    names = [one.name.replace("_", " ") for one in lines]
    return names[0] if len(names) == 1 else f"{names[0]} (blue), {names[1]} (green)"


def _lines(evidence: Evidence, role: str) -> tuple[Series, ...]:
    """The series of a role; of layers those of the statistic that says most."""
    found = evidence.all_of(role)
    if not role.startswith("gap_"):
        best = evidence.find(role)
        return () if best is None else (found[0], *found[1:2]) if role in ("objective_loss", "loss_part") else (best,)
    by_statistic: dict[str, list[Series]] = {}
    for one in found:
        by_statistic.setdefault(one.name.rpartition("/")[2], []).append(one)
    del by_statistic["mean"]
    return tuple(max(by_statistic.values(), key=_spread)[:_MOST_LINES])


def _spread(lines: Iterable[Series]) -> float:
    values = np.concatenate([one.values for one in lines])
    if not np.isfinite(values).all():
        return math.inf
    low, high = float(np.abs(values).min()), float(np.abs(values).max())
    return high / low if low > 0 else 1e30


def _limits(rule: Probe | None, finding: Finding | None) -> tuple[float, ...]:
    """The levels that the rule compared with, in the unit of the series."""
    if finding is None or rule is None:
        return ()
    measured = {key: float(one) for key, one in finding.measured.items() if isinstance(one, (int, float))}
    share = rule.thresholds.get("rise_share")
    if share is not None and measured.get("rise_share") and {"end", "best"} <= measured.keys():
        rise = measured["end"] - measured["best"]
        return (measured["best"] + rise * share / measured["rise_share"],)
    return tuple(measured[name] for name in _LIMITS if name in measured)


def _table(evidence: Evidence, rule: Probe | None, finding: Finding | None) -> Bars:
    """The size of each tensor's gradients, or of its weights where the rule looks at those."""
    needed = {role for need in rule.needs if not need.optional for role in need.roles} if rule is not None else set()
    of_weights = evidence.optimizer is None or bool(needed & _OF_WEIGHTS and Part.SECOND_MOMENTS not in needed)
    named = _names_in(finding)
    if of_weights and evidence.weights is not None:
        rows = [(one.name, one.rms if one.rms is not None else math.nan) for one in evidence.weights.tensors]
        title = "size of each weight tensor"
    else:
        state = evidence.optimizer
        assert state is not None  # noqa: S101  the caller looked
        kept = {one.label: _size(one.second_moment.mean) for one in state.tensors if one.second_moment is not None}
        order = [one.name for one in evidence.weights.tensors] if evidence.weights is not None else list(kept)
        unlisted = {name: -1.0 for name in order if name not in kept and name not in state.stateless}
        rows = [(name, unlisted.get(name, kept.get(name, 0.0))) for name in order]
        title = "gradient size of each parameter"
    rows = rows[:_MOST_BARS]
    found = tuple(
        any(name == one or one.endswith(name) or name.startswith(f"{one}.") for one in named) for name, _ in rows
    )
    return Bars(title=title, values=tuple(value for _, value in rows), found=found)


def _size(second: float) -> float:
    return math.sqrt(second) if second >= 0 else math.nan


def _names_in(finding: Finding | None) -> frozenset[str]:
    """The tensors that a finding names."""
    if finding is None or not finding.remedy:
        return frozenset()
    listed = [one for value in finding.details.values() if isinstance(value, (list, tuple)) for one in value]
    names = [one if isinstance(one, str) else one.get("name", "") if isinstance(one, dict) else "" for one in listed]
    words = finding.message.replace(",", " ").replace(":", " ").split()
    return frozenset(name for name in (*names, *(word for word in words if "." in word and word[0].isalpha())) if name)


# How it is drawn


@dataclass(frozen=True)
class _Scale:
    """From values to places, on a linear or a logarithmic axis."""

    low: float
    high: float
    logarithmic: bool
    height: int

    @classmethod
    def of(cls, values: FloatArray, height: int) -> _Scale:
        values = values[np.isfinite(values)]
        if not values.size:
            return cls(0.0, 1.0, False, height)
        low, high = float(values.min()), float(values.max())
        if low > 0 and high / low > _LOG_FROM:
            return cls(low, high, True, height)
        room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
        return cls(max(low - room, 0.0) if low >= 0 else low - room, high + room, False, height)

    def place(self, value: float) -> float:
        """The place on the page; of what is not on the axis its lower end."""
        if self.logarithmic:
            low, high, value = math.log(self.low), math.log(self.high), math.log(max(value, self.low))
        else:
            low, high = self.low, self.high
        share = (min(max(value, low), high) - low) / (high - low)
        return _TOP + (1 - share) * (self.height - _TOP - _BOTTOM)

    @property
    def ticks(self) -> tuple[float, float, float]:
        middle = math.sqrt(self.low * self.high) if self.logarithmic else (self.low + self.high) / 2
        return self.low, middle, self.high


def _axes(panel: Panel, height: int) -> str:
    every = np.concatenate([one.values for one in panel.lines] + [np.asarray(panel.limits)])
    scale = _Scale.of(every, height)
    first = min(int(one.steps.min()) for one in panel.lines)
    last = max(int(one.steps.max()) for one in panel.lines)

    def across(step: float) -> float:
        return _LEFT + (step - first) / max(last - first, 1) * (WIDTH - _LEFT - _RIGHT)

    parts = [_frame(scale, panel.title, height)]
    parts += [
        f'<text x="{_LEFT}" y="{height - 7}">{first}</text>',
        f'<text x="{WIDTH - _RIGHT}" y="{height - 7}" text-anchor="end">step {last}</text>',
    ]
    for place, line in enumerate(panel.lines):
        kind = "log" if not place or len(panel.lines) > 2 else "other"
        points = [
            (across(step), scale.place(value) if math.isfinite(value) else None) for step, value in _thinned(line)
        ]
        parts.append(_path(points, kind))
        lost = line.steps[~np.isfinite(line.values)]
        if len(lost):
            parts.append(_not_a_number(across(int(lost[0])), height))
    if panel.levels is not None:
        parts.append(_path(_stairs(panel, across, scale), "level"))
    for limit in panel.limits:
        y = _short(scale.place(limit))
        parts.append(f'<path class="limit" d="M{_LEFT} {y}H{WIDTH - _RIGHT}"/>')
    parts += [_mark(across(step), _value_at(panel.lines[0], step), scale, height) for step in panel.marks]
    return "".join(parts)


def _not_a_number(x: float, height: int) -> str:
    """Where values stop being numbers."""
    return (
        f'<path class="limit" d="M{_short(x)} {_TOP}V{height - _BOTTOM}"/>'
        f'<text class="red" x="{_short(min(x + 4, WIDTH - 40))}" y="{_TOP + 12}">NaN</text>'
    )


def _frame(scale: _Scale, title: str, height: int) -> str:
    parts = [f'<path class="axis" d="M{_LEFT} {_TOP}V{height - _BOTTOM}H{WIDTH - _RIGHT}"/>']
    note = ", log axis" if scale.logarithmic else ""
    parts.append(f'<text x="{_LEFT}" y="11">{escape(title)}{note}</text>')
    digits = 2 if len({_tick(value, 2) for value in scale.ticks}) == len(scale.ticks) else 3
    for value in scale.ticks:
        y = scale.place(value) + 4
        parts.append(f'<text x="{_LEFT - 4}" y="{_short(y)}" text-anchor="end">{_tick(value, digits)}</text>')
    return "".join(parts)


def _tick(value: float, digits: int) -> str:
    """As many digits as tell the ticks of an axis from one another."""
    if value == 0 or 0.01 <= abs(value) < 10_000:
        return f"{value:.{digits}g}" if abs(value) < 100 else f"{value:.0f}"
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def _thinned(line: Series) -> list[tuple[int, float]]:
    """So many points that the file stays small; of each stretch that with the largest departure."""
    steps, values = line.steps, line.values
    count = len(values)
    if count <= _MOST_POINTS:
        return list(zip(steps.tolist(), values.tolist(), strict=True))
    kept: list[int] = [0]
    centre = float(np.nanmedian(values))
    for part in np.array_split(np.arange(count), _MOST_POINTS):
        far = np.abs(
            np.nan_to_num(values[part], nan=centre) - float(np.nanmean(values[max(0, part[0] - 5) : part[-1] + 6]))
            if np.isfinite(values[part]).any()
            else np.zeros(len(part))
        )
        kept.append(int(part[int(np.argmax(far))]))
    kept = sorted({*kept, count - 1})
    return [(int(steps[at]), float(values[at])) for at in kept]


def _path(points: Iterable[tuple[float, float | None]], kind: str) -> str:
    """A line that is interrupted where there is no value."""
    parts, down = [], False
    for x, y in points:
        if y is None:
            down = False
            continue
        parts.append(f"{'L' if down else 'M'}{_short(x)} {_short(y)}")
        down = True
    return f'<path class="{kind}" d="{"".join(parts)}"/>' if parts else ""


def _stairs(panel: Panel, across: object, scale: _Scale) -> list[tuple[float, float | None]]:
    """The levels, each drawn over the points that it is the median of."""
    assert panel.levels is not None  # noqa: S101  the caller looked
    assert callable(across)  # noqa: S101
    steps, levels = panel.levels
    begins = [int(panel.lines[0].steps[0]), *(int(step) for step in steps[:-1])]
    places: list[tuple[float, float | None]] = []
    for begin, end, level in zip(begins, steps.tolist(), levels.tolist(), strict=True):
        places += [(across(begin), scale.place(level)), (across(end), scale.place(level))]
    return places


def _value_at(line: Series, step: int) -> float:
    at = min(int(np.searchsorted(line.steps, step)), len(line) - 1)
    return float(line.values[at])


def _mark(x: float, value: float, scale: _Scale, height: int) -> str:
    y = scale.place(value) if math.isfinite(value) else height - _BOTTOM
    return f'<circle class="mark" cx="{_short(x)}" cy="{_short(y)}" r="5"/>'


def _bars(bars: Bars) -> str:
    known = np.array([one for one in bars.values if math.isfinite(one) and one > 0])
    high = float(known.max()) if known.size else 1.0
    low = min(float(known.min()) / 3, high / 100) if known.size else 0.01
    scale = _Scale(low, high, True, HEIGHT)
    width = (WIDTH - _LEFT - _RIGHT) / max(len(bars.values), 1)
    parts = [_frame(scale, bars.title, HEIGHT)]
    floor = HEIGHT - _BOTTOM
    for place, (value, found) in enumerate(zip(bars.values, bars.found, strict=True)):
        x, inner = _LEFT + place * width, max(width - 1.5, 1.0)
        if value < 0:
            parts.append(
                f'<rect class="out" x="{_short(x)}" y="{_TOP}" width="{_short(inner)}" height="{floor - _TOP}"/>'
            )
            continue
        if not math.isfinite(value) or value == 0:
            text = "0" if value == 0 else "NaN"
            parts.append(
                f'<circle class="mark" cx="{_short(x + inner / 2)}" cy="{floor - 4}" r="2.5">'
                f"<title>{text}</title></circle>"
            )
            continue
        y = scale.place(value)
        kind = "found" if found else "bar"
        parts.append(
            f'<rect class="{kind}" x="{_short(x)}" y="{_short(y)}" width="{_short(inner)}" '
            f'height="{_short(max(floor - y, 1.0))}"/>'
        )
    parts.append(f'<text x="{_LEFT}" y="{HEIGHT - 7}">first layer</text>')
    parts.append(f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 7}" text-anchor="end">last layer</text>')
    return "".join(parts)


def _short(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _svg(panels: Sequence[str], alt: str, height: int = HEIGHT) -> str:
    whole = height * len(panels)
    inside = "".join(
        part if not place else f'<g transform="translate(0 {place * height})">{part}</g>'
        for place, part in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {whole}" width="{WIDTH}" height="{whole}" '
        f'role="img"><title>{escape(alt)}</title><style>{_STYLE}</style>{inside}</svg>\n'
    )
