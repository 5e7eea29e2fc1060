"""Which charts a run gives (loss, reward, learning rate, gradient norm, loss scale), and what is marked in each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tracker_health.diagnosis import Facts
from tracker_health.evidence import SHARES, Axis, Evidence, Series
from tracker_health.render.plot import Area, Band, Line, Mark, Plot, Reference
from tracker_health.render.thinning import level, stretches
from tracker_health.report.result import ProbeResult, Report
from tracker_health.text import contrast, count, number, printable, setting, short_name
from tracker_health.words.verdict import Verdict

KIND_BY_CODE = {"RWD": "reward", "GRD": "gradient", "LRS": "rate", "AMP": "scale", "OPT": "layers", "WGT": "layers"}
"""Where a rule's findings are marked, by the first letters of its code; all others in the loss."""

_MOST_RINGS, _MOST_BANDS = 12, 20
_NOISY_POINTS = 60  # from so many on a curve is drawn with the level that it runs at
_USUAL_FACTOR = 10.0  # the usual learning rate, times and divided by this, is a usual one as well
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_MOST_DIGITS = 13
_LOOKS = {Verdict.FAIL: "fail", Verdict.WARN: "warn"}
_CHANCE_CODES = ("LOS006", "LOS009", "GEN003")
_NAME_CHARACTERS = 24


def plots_of(evidence: Evidence, report: Report) -> tuple[Plot, ...]:
    """The charts of a run, the loss first; of what was not logged there is none."""
    role = "train_reward" if clean(evidence, "train_reward") is not None else "val_reward"
    found = [
        loss_plot(evidence, report),
        _single(evidence, _found(report, "reward"), role, "Reward", name="reward"),
        _rate(evidence, report),
        _single(evidence, _found(report, "gradient"), "grad_norm", "Gradient norm"),
        _single(evidence, _found(report, "scale"), "loss_scale", "Loss scale"),
    ]
    return tuple(plot for plot in found if plot is not None)


def _found(report: Report, kind: str) -> list[ProbeResult]:
    """The findings that are marked in a kind of chart."""
    return [one for one in report.findings if KIND_BY_CODE.get(one.code[:3], "loss") == kind]


def clean(evidence: Evidence, role: str) -> Series | None:
    """The series of a role, sorted by step, with its NaN and infinite values; None where it has no point."""
    series = evidence.find(role)
    return series.clean() if series is not None and len(series.clean()) else None


def chance_of(report: Report) -> tuple[float, int | None] | None:
    """The loss of guessing as the rules worked it out, and among how many answers."""
    for result in report.results:
        chance, classes = result.measured.get("chance"), result.measured.get("classes")
        if result.code in _CHANCE_CODES and result.code != "GEN003" and isinstance(chance, (int, float)) and chance > 0:
            return float(chance), int(classes) if isinstance(classes, (int, float)) else None
    return None


def loss_plot(evidence: Evidence, report: Report) -> Plot | None:
    """The chart of the training loss, or else of the validation loss; None without either."""
    train, validation = clean(evidence, "train_loss"), clean(evidence, "val_loss")
    main = train if train is not None else validation
    if main is None:
        return None
    lines = [*_lines(main, "main")]
    if train is not None and validation is not None:
        lines += [*_lines(validation, "val", smoothed=False)]
    usual, areas = _usual(evidence)
    lines += usual
    marks: list[Mark] = []
    bands = [*_bands(main)]
    references = tuple(_chance(report, main)) if train is not None else ()
    for finding in _found(report, "loss"):
        if references and finding.code in _CHANCE_CODES:
            continue  # the line across the chart is its mark
        of_validation = finding.code.startswith("GEN") and validation is not None
        marks += _marks(finding, validation if of_validation and validation is not None else main, bands, main)
    what = "Training loss" if train is not None else "Validation loss"
    told = [_in_words(one) for one in (train, validation) if one is not None]
    said = "".join(f" {one.label}." for one in references)
    plot = Plot(
        name="loss",
        title=what,
        description=f"Loss by {_unit(main)}: {'; '.join(told)}.{said}{_marks_in_words(marks)}",
        lines=tuple(lines),
        marks=tuple(marks),
        references=references,
        bands=tuple(bands),
        areas=areas,
        unit=_unit(main),
        note=" ".join(
            (["Dashed: validation."] if train is not None and validation is not None else [])
            + (["Green: from the lowest to the highest of healthy runs, and their median."] if usual else [])
        ),
    )
    return _by_owner(plot, main.axis)


def _usual(evidence: Evidence) -> tuple[list[Line], tuple[Area, ...]]:
    """The band in which healthy runs stayed, at the same share of the plan: its edges and its median, and what is
    between; nothing without a baseline.
    """
    baseline, course = evidence.baseline, evidence.course
    if baseline is None or course is None or evidence.not_compared:
        return [], ()
    reached = np.isfinite(course.levels)
    steps = np.round((np.arange(SHARES) + 0.5) / SHARES * course.length).astype(np.int64)[reached]
    low, middle, high = (np.array(levels)[reached] for levels in (baseline.low, baseline.middle, baseline.high))
    if not np.isfinite(middle).any():
        return [], ()
    runs = count(len(baseline.runs), "healthy run")
    median = f"median of {runs}"
    return [
        Line(name=f"highest of {runs}", steps=steps, values=high, look="usual edge"),
        Line(name=f"lowest of {runs}", steps=steps, values=low, look="usual edge"),
        Line(name=median, label=median, steps=steps, values=middle, look="usual"),
    ], (Area(steps=steps, low=low, high=high),)


def _chance(report: Report, main: Series) -> Iterator[Reference]:
    """The chance level, unless it is so far off that it would flatten the curve."""
    chance, finite = chance_of(report), main.finite().values
    if chance is None or not len(finite):
        return
    value, classes = chance
    if finite.min() / 100 <= value <= finite.max() * 100:
        among = f" among {classes}" if classes else ""
        yield Reference(value=value, label=f"{number(value, 4)}: guessing{among}")


def _rate(evidence: Evidence, report: Report) -> Plot | None:
    series = clean(evidence, "learning_rate")
    if series is None or not len(series.finite()):
        return None
    usual = usual_rates(evidence, report)
    references = (
        (
            Reference(value=usual[1], label=f"{setting(usual[1])}: usual maximum", look="usual"),
            Reference(value=usual[0], label=f"{setting(usual[0])}: usual minimum", look="usual"),
        )
        if usual is not None
        else ()
    )
    marks = [mark for finding in _found(report, "rate") for mark in _marks(finding, series, ())]
    said = f" Usual for such a training: {setting(usual[0])} to {setting(usual[1])}." if usual is not None else ""
    plot = Plot(
        name="rate",
        title="Learning rate",
        description=f"Learning rate by {_unit(series)}: {_in_words(series)}.{said}{_marks_in_words(marks)}",
        lines=tuple(_lines(series, "main", smoothed=False)),
        marks=tuple(marks),
        references=references,
        unit=_unit(series),
        logarithmic=True if usual is not None else None,
        note="Green: what is usual for this optimizer." if usual is not None else "",
        buckets=100,
        height=230.0,
    )
    return _by_owner(plot, series.axis)


def usual_rates(evidence: Evidence, report: Report) -> tuple[float, float] | None:
    """The lowest and highest usual learning rate; None where the optimizer is not known."""
    facts = Facts(evidence, report.results)
    if not facts.settings.optimizer:
        return None
    return facts.usual_rate / _USUAL_FACTOR, facts.usual_rate * _USUAL_FACTOR


def _single(
    evidence: Evidence, findings: Sequence[ProbeResult], role: str, title: str, *, name: str = ""
) -> Plot | None:
    series = clean(evidence, role)
    if series is None:
        return None
    bands = tuple(_bands(series))
    marks = [mark for finding in findings for mark in _marks(finding, series, bands)]
    plot = Plot(
        name=name or role.replace("_", "-"),
        title=title,
        description=f"{title} by {_unit(series)}: {_in_words(series)}.{_marks_in_words(marks)}",
        lines=tuple(_lines(series, "main", smoothed=role != "loss_scale")),
        marks=tuple(marks),
        bands=bands,
        unit=_unit(series),
        buckets=150,
        height=230.0,
    )
    return _by_owner(plot, series.axis)


def _unit(series: Series) -> str:
    if series.axis is not None:
        return printable(series.axis.name, _NAME_CHARACTERS)
    return printable(series.step_word, _NAME_CHARACTERS) or ("epoch" if series.step_unit == "epoch" else "step")


def _by_owner(plot: Plot, axis: Axis | None) -> Plot:
    """The chart by the axis that the run's owner plots by."""
    if axis is None:
        return plot

    def at(step: float) -> float:
        return float(axis.spread(np.array([step], dtype=np.float64))[0])

    return replace(
        plot,
        lines=tuple(replace(one, steps=axis.spread(one.steps)) for one in plot.lines),
        marks=tuple(replace(one, step=at(one.step)) for one in plot.marks),
        bands=tuple(replace(one, first=at(one.first), last=at(one.last)) for one in plot.bands),
        areas=tuple(replace(one, steps=axis.spread(one.steps)) for one in plot.areas),
    )


def _lines(series: Series, look: str, *, smoothed: bool = True) -> Iterator[Line]:
    """The curve; of many points a thin one, and on top of it the level that it runs at."""
    finite, name = series.finite(), printable(series.name, _NAME_CHARACTERS)
    noisy = smoothed and len(finite) > _NOISY_POINTS
    middle = level(finite.steps, finite.values) if noisy else (np.empty(0), np.empty(0))
    has_level = len(middle[0]) > 0
    yield Line(
        name=name,
        label="" if has_level else name,
        steps=series.steps,
        values=series.values,
        look=f"{look} noisy" if has_level else look,
    )
    if has_level:
        yield Line(name=name, label=name, steps=middle[0].astype(np.int64), values=middle[1], look=f"{look} level")


def _bands(series: Series) -> Iterator[Band]:
    gaps = sorted(stretches(series.steps, series.values), key=lambda gap: -gap[2])
    for place, (first, last, points) in enumerate(gaps[:_MOST_BANDS]):
        where = f"{'from' if last > first else 'at'} {series.place(first)}"
        said = f"NaN or infinite {where}: {count(points, 'point')}"
        yield Band(first=first, last=last, label=said if place == 0 else "")


def _marks(finding: ProbeResult, series: Series, bands: Sequence[Band], main: Series | None = None) -> Iterator[Mark]:
    """The steps that a finding names; the first of them says the rule, and the value where the finding says it, too: a
    rule may judge by the level around a step. What a band shows is not marked again. ``main``: the series by whose axis
    the chart is, if that is another one.
    """
    on = series if main is None or _unit(series) == _unit(main) else main
    first, last = int(series.steps[0]), int(series.steps[-1])
    look = _LOOKS.get(finding.verdict, "warn")
    told = False
    for step in _spread([one for one in finding.steps if first <= one <= last], (last - first) / 100):
        value = _value_at(series, step)
        if value is None and any(band.first <= step <= band.last for band in bands):
            continue
        said = f"{on.place(step)} ({finding.code})"
        if value is not None and (shown := _as_said(finding.message, value)):
            said = f"{shown} at {said}"
        yield Mark(step=step, value=value, label="" if told else said, look=look)
        told = True


def _as_said(message: str, value: float) -> str:
    """A value with as many digits as a message shows of it; empty where that does not have it."""
    rounded = {float(number(value, digits)) for digits in range(1, _MOST_DIGITS)}
    return next((text for text in _NUMBER.findall(message) if float(text) in rounded), "")


def _spread(steps: Sequence[int], least: float) -> list[int]:
    """Of steps that crowd together the first."""
    kept: list[int] = []
    for step in sorted(steps):
        if not kept or step - kept[-1] > least:
            kept.append(step)
    return kept[:_MOST_RINGS]


def _value_at(series: Series, step: int) -> float | None:
    at = np.flatnonzero(series.steps == step)
    return float(series.values[at[-1]]) if len(at) and np.isfinite(series.values[at[-1]]) else None


def _in_words(series: Series) -> str:
    finite, name = series.finite().values, short_name(series.name)
    if not len(finite):
        return f"{name}, {count(len(series), 'point')}, none of them finite"
    bad = f", {len(series) - len(finite)} not finite" if len(finite) < len(series) else ""
    first, last, low, high = contrast(*map(float, (finite[0], finite[-1], finite.min(), finite.max())))
    ends, span = f"from {first} to {last}", f"lowest {low}, highest {high}"
    return f"{name}, {count(len(series), 'point')}{bad}, {ends}, {span}"


def _marks_in_words(marks: Sequence[Mark]) -> str:
    told = [mark.label for mark in marks if mark.label]
    return f" Marked: {'; '.join(told)}." if told else ""
