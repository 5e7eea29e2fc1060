"""Which charts a run gives, and what is marked in each: first of the series that the leading finding is about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tracker_health.diagnosis import Facts
from tracker_health.evidence import SHARES, Axis, Evidence, Series
from tracker_health.facts.pace import PER_STEP, worked_out
from tracker_health.judge.pass_reason import MAIN_ROLES
from tracker_health.render.plot import Area, Band, Line, Mark, Plot, Reference
from tracker_health.render.thinning import level, stretches
from tracker_health.report.result import ProbeResult, Report
from tracker_health.text import contrast, count, number, printable, setting, short_name, shortened
from tracker_health.words.verdict import Verdict

_MOST_PLOTS = 8  # besides the first
_MOST_RINGS, _MOST_BANDS = 12, 20
_NOISY_POINTS = 60  # from so many on a curve is drawn with the level that it runs at
_BLOCKS, _FEW_BLOCKS = 120, 60  # of a level, in the first chart and in others
_USUAL_FACTOR = 10.0  # the usual learning rate, times and divided by this, is a usual one as well
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_MOST_DIGITS = 13
_LOOKS = {Verdict.FAIL: "fail", Verdict.WARN: "warn"}
_CHANCE_CODES = ("LOS006", "LOS009")
_NAME_CHARACTERS = 24

_MEDIUM: Mapping[str, Any] = {"buckets": 100, "digits": 5, "height": 230.0}
_SMALL: Mapping[str, Any] = {"buckets": 40, "digits": 5, "height": 190.0}

_PAIRS = {
    "train_loss": "val_loss",
    "train_reward": "val_reward",
    "train_accuracy": "val_accuracy",
    "train_auc": "val_auc",
}
"""Roles that share a chart: of training and of held-out samples."""

_SCORES = ("val_accuracy", "val_auc", "higher_better_val", "lower_better_val", "train_accuracy", "train_auc")
_DRAWN = ("train_loss", "val_loss", "train_reward", "val_reward")
"""Roles that are drawn of every run."""

_ALSO = ("learning_rate", "grad_norm", "loss_scale")
_STEPPED = ("learning_rate", "loss_scale")
"""Roles of what is set and not measured: it has no noise."""

_COUNTERS = ("epoch", "global_step")
_TERMS = ("objective_loss", "loss_part", "val_loss_term", "reward_part")
"""Roles of which a run may have many: their charts are small."""

_BY_NAME = frozenset((*_TERMS, "higher_better_val", "lower_better_val"))
"""Roles that say less than the name of the series."""

_TITLES = {
    "train_loss": "Training loss", "val_loss": "Validation loss", "train_reward": "Reward", "val_reward": "Reward",
    "val_accuracy": "Accuracy", "train_accuracy": "Accuracy", "train_auc": "AUC", "val_auc": "AUC",
    "kl": "KL divergence", "entropy": "Entropy", "grad_norm": "Gradient norm", "learning_rate": "Learning rate",
    "loss_scale": "Loss scale", "response_length": "Length of answers", "episode_length": "Length of episodes",
}  # fmt: skip


@dataclass(kw_only=True)
class _Subject:
    """What one chart is of: a series, or those of training and of held-out samples. ``findings``: what is seen in it;
    ``is_small``: one of several.
    """

    name: str
    series: tuple[Series, ...]
    findings: list[ProbeResult] = field(default_factory=list)
    is_small: bool = False


def plots_of(evidence: Evidence, report: Report) -> tuple[Plot, ...]:
    """The charts of a run, the main one first: of the series that the leading finding is about, else of the loss, the
    reward or a score. Each has the marks of all findings about it. None where no series was read.
    """
    subjects = _subjects(evidence, report)
    return tuple(_plot(one, evidence, report, is_main=one is subjects[0]) for one in subjects[: 1 + _MOST_PLOTS])


def main_plot(evidence: Evidence, report: Report) -> Plot | None:
    """The first chart of a run; None where no series was read."""
    subjects = _subjects(evidence, report)
    return _plot(subjects[0], evidence, report, is_main=True) if subjects else None


def main_series(evidence: Evidence) -> Series | None:
    """The metric that a run is known by."""
    return next((one for role in MAIN_ROLES if (one := evidence.find(role)) is not None), None)


def _subjects(evidence: Evidence, report: Report) -> list[_Subject]:
    """What is drawn: first what findings are about, then what a run is read for."""
    chosen: dict[str, _Subject] = {}
    known = {one.name: one for one in (*evidence.odd, *reversed(evidence.series), *evidence.by_role.values())}
    derived = worked_out(evidence, [name for finding in report.headline_first for name in finding.about])
    known |= {one.name: one for one in derived}

    def add(found: Iterable[Series], *findings: ProbeResult, is_small: bool = False) -> None:
        subjects = {
            one.name: one for series in found if len(series.clean()) for one in (_subject_of(evidence, series),)
        }
        for name, subject in subjects.items():
            subject.is_small = is_small or len(subjects) > 1
            chosen.setdefault(name, subject).findings.extend(findings)

    main = main_series(evidence)
    if main is not None and not any(one.about for one in report.headline_first[:1]):
        add([main])  # what the headline is about is no series
    for finding in report.headline_first:
        about = [known[name] for name in finding.about if name in known]
        add(about or [one for one in (main,) if one is not None and finding.steps], finding)
    for role in (*_DRAWN, *_ALSO):
        add([one for one in (evidence.find(role),) if one is not None])
    add([one for role in _SCORES for one in (evidence.find(role),) if one is not None][:1])
    for role in _TERMS:
        add(evidence.all_of(role), is_small=True)
    if not chosen:
        add(one for role, one in evidence.by_role.items() if role not in _COUNTERS)
    return list(chosen.values())


def _subject_of(evidence: Evidence, series: Series) -> _Subject:
    for pair in _PAIRS.items():
        found = [one for one in map(evidence.find, pair) if one is not None and len(one.clean())]
        if any(one.name == series.name and one.role == series.role for one in found):
            return _Subject(name=pair[0].removeprefix("train_"), series=tuple(one.clean() for one in found))
    role = series.role or ""
    if series.name == PER_STEP:
        return _Subject(name="pace", series=(series,))
    if role not in _BY_NAME and evidence.find(role) is series:
        return _Subject(name=role.replace("_", "-"), series=(series.clean(),))
    place = next(at for at, one in enumerate((*evidence.series, *evidence.odd)) if one is series)
    return _Subject(name=f"series-{place}", series=(series.clean(),))


def clean(evidence: Evidence, role: str) -> Series | None:
    """The series of a role, sorted by step, with its NaN and infinite values; None where it has no point."""
    series = evidence.find(role)
    return series.clean() if series is not None and len(series.clean()) else None


def chance_of(report: Report) -> tuple[float, int | None] | None:
    """The loss of guessing as the rules worked it out, and among how many answers."""
    return _chance_found(one for one in report.results if one.code in _CHANCE_CODES)


def _chance_found(results: Iterable[ProbeResult]) -> tuple[float, int | None] | None:
    for result in results:
        chance, classes = result.measured.get("chance"), result.measured.get("classes")
        if isinstance(chance, (int, float)) and chance > 0:
            return float(chance), int(classes) if isinstance(classes, (int, float)) else None
    return None


def _plot(subject: _Subject, evidence: Evidence, report: Report, *, is_main: bool) -> Plot:
    main, *held_out = subject.series
    rates = usual_rates(evidence, report) if main.role == "learning_rate" else None
    usual, areas = _usual(evidence) if subject.name == "loss" else ([], ())
    references = (*_chance(report, subject), *_usual_references(rates))
    bands = tuple(band for series in subject.series for band in _bands(series))
    marks = [mark for finding in subject.findings for mark in _marks_of(finding, subject, references, bands)]
    others = () if subject.is_small and not is_main else tuple(_siblings(evidence, subject))
    title = _title(subject)
    said = "".join(f" {one.label}." for one in references)
    plot = Plot(
        name=subject.name,
        title=title,
        description=(
            f"{title} by {_unit(main)}: {'; '.join(map(_in_words, subject.series))}.{said}{_marks_in_words(marks)}"
        ),
        lines=(
            *_lines(main, "main", _BLOCKS if is_main else _FEW_BLOCKS, smoothed=main.role not in _STEPPED),
            *(line for one in held_out for line in _lines(one, "val", smoothed=False)),
            *usual,
        ),
        marks=tuple(marks),
        references=references,
        bands=bands,
        areas=areas,
        unit=_unit(main),
        logarithmic=True if rates is not None else None,
        note=" ".join(
            _notes(
                held=any("val" in one.look for one in others) or bool(held_out),
                band=bool(usual),
                rates=rates is not None,
            )
        ),
        codes=tuple(one.code for one in subject.findings),
        is_small=subject.is_small and not is_main,
    )
    if not is_main:
        plot = replace(plot, **(_SMALL if subject.is_small else _MEDIUM))
    plot = _by_owner(plot, main.axis)
    return replace(plot, lines=(*plot.lines, *others))


def _siblings(evidence: Evidence, subject: _Subject) -> Iterator[Line]:
    """The same metrics of the runs that this one is shown next to, where they count alike."""
    names = shortened([one.name for one in evidence.siblings], _NAME_CHARACTERS - 3)  # and ", val"
    of_training, *_ = wanted = [one.role or "" for one in subject.series]
    found = [
        (name, role, series)
        for name, sibling in zip(names, evidence.siblings, strict=True)
        for role in dict.fromkeys((*wanted, _PAIRS.get(of_training, of_training)))
        if (series := sibling.series.get(role)) is not None and len(series)
    ]
    for name, role, series in found:
        if _unit(series) != _unit(subject.series[0]):
            continue
        middle = (
            level(series.steps, series.values, _FEW_BLOCKS)
            if len(series) > _NOISY_POINTS
            else (np.empty(0), np.empty(0))
        )
        steps, values = middle if len(middle[0]) else (series.steps, series.values)
        places = steps if series.axis is None else series.axis.spread(steps)
        held_out = role != of_training
        label = f"{name}, val" if held_out else name
        yield Line(name=label, label=label, steps=places, values=values, look="other val" if held_out else "other")


def kind_of(series: Series) -> str:
    """What kind of metric it is, as runs have it in common: any loss is one, and so is any reward."""
    role = series.role or ""
    title = _TITLES.get(role) or short_name(series.name)
    return "Loss" if role in ("train_loss", "val_loss") else title


def _title(subject: _Subject) -> str:
    series = subject.series[0]
    own = None if subject.name.startswith("series-") else _TITLES.get(series.role or "")
    return own or printable(short_name(series.name), 2 * _NAME_CHARACTERS)


def _notes(*, held: bool, band: bool, rates: bool) -> Iterator[str]:
    if held:
        yield "Dashed: validation."
    if band:
        yield "Green: from the lowest to the highest of healthy runs, and their median."
    if rates:
        yield "Green: what is usual for this optimizer."


def _marks_of(
    finding: ProbeResult, subject: _Subject, references: Sequence[Reference], bands: Sequence[Band]
) -> Iterator[Mark]:
    """The marks of a finding, on the curve that it is about; where a line across the chart is its mark, none."""
    if "chance" in finding.measured and any(one.look == "chance" for one in references):
        return iter(())
    main, *others = subject.series
    own = main if main.name in finding.about else next((one for one in others if one.name in finding.about), main)
    return _marks(finding, own, bands, main)


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


def _chance(report: Report, subject: _Subject) -> Iterator[Reference]:
    """The chance level: of the training loss, or of what a finding compared with it. Not where it is so far off
    that it would flatten the curve.
    """
    main, finite = subject.series[0], subject.series[0].finite().values
    chance = chance_of(report) if main.role == "train_loss" else _chance_found(subject.findings)
    if chance is None or not len(finite):
        return
    value, classes = chance
    if finite.min() / 100 <= value <= finite.max() * 100:
        among = f" among {classes}" if classes else ""
        yield Reference(value=value, label=f"{number(value, 4)}: guessing{among}")


def _usual_references(rates: tuple[float, float] | None) -> Iterator[Reference]:
    for word, rate in zip(("minimum", "maximum"), rates or (), strict=False):
        yield Reference(value=rate, label=f"{setting(rate)}: usual {word}", look="usual")


def usual_rates(evidence: Evidence, report: Report) -> tuple[float, float] | None:
    """The lowest and highest usual learning rate; None where the optimizer is not known."""
    facts = Facts(evidence, report.results)
    if not facts.settings.optimizer:
        return None
    return facts.usual_rate / _USUAL_FACTOR, facts.usual_rate * _USUAL_FACTOR


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


def _lines(series: Series, look: str, blocks: int = _BLOCKS, *, smoothed: bool = True) -> Iterator[Line]:
    """The curve; of many points a thin one, and on top of it the level that it runs at."""
    finite, name = series.finite(), printable(series.name, _NAME_CHARACTERS)
    noisy = smoothed and len(finite) > _NOISY_POINTS
    middle = level(finite.steps, finite.values, blocks) if noisy else (np.empty(0), np.empty(0))
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
        more = "" if value is not None else on.place(step)  # without a ring the line says nothing
        yield Mark(step=step, value=value, label=more if told else said, look=look)
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
