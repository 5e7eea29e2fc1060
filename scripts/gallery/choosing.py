"""All rules on all runs of the gallery, and which of the runs a rule's page shows."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite
from pathlib import Path

from gallery import checkpoints, curves
from gallery.drawing import picture
from gallery.entry import Entry
from tracker_health.config import Config
from tracker_health.judge.engine import diagnose
from tracker_health.report.result import Finding, ProbeResult, Report
from tracker_health.rules.probe import Probe, Symptom
from tracker_health.rules.registry import BUILT_IN
from tracker_health.words.diagnosis import Diagnosis
from tracker_health.words.verdict import Verdict

_MOST = 2
"""Runs of either kind on a rule's page."""

_BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "faults" / "findings.jsonl"

JUDGED_BY = Config(preset="strict", preview_votes=True, measure_only=frozenset())
"""Every rule says what it finds, whether it votes by default or not."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A run of the gallery and what rules say of it. ``report``: of every rule; ``usual``: of the default preset."""

    entry: Entry
    report: Report
    usual: Report

    def result(self, code: str) -> ProbeResult | None:
        """What a rule says of it, None where it did not run."""
        return next((one for one in self.report.results if one.code == code), None)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A run on the page of a rule. ``file``: of its picture."""

    entry: Entry
    result: ProbeResult
    file: str
    svg: str


@cache
def judged() -> tuple[Judged, ...]:
    """The whole gallery."""
    entries = [*curves.entries(), *checkpoints.entries()]
    return tuple(
        Judged(entry=one, report=diagnose(one.evidence, JUDGED_BY), usual=diagnose(one.evidence, Config()))
        for one in entries
    )


def flagged_by(code: str) -> list[Judged]:
    """The runs that a rule flags: those first that it fails, and of these those that few other rules flag."""
    found = [one for one in judged() if _verdict(one, code) in (Verdict.WARN, Verdict.FAIL)]
    return sorted(found, key=lambda one: (-(_verdict(one, code) or Verdict.PASS).rank, len(one.report.findings)))


def passed_by(code: str, flagged: Sequence[Judged]) -> list[Judged]:
    """The runs that a rule passes, the nearest first: such as were made for that, then those of the family of what it
    flags, by what it measured of them.
    """
    found = [one for one in judged() if _verdict(one, code) is Verdict.PASS]
    if not flagged:
        return found
    wrong = flagged[0].result(code)
    measured = wrong.measured if wrong is not None else {}

    def distance(one: Judged) -> tuple[bool, bool, float]:
        result = one.result(code)
        far = _apart(measured, result.measured) if result is not None else 1.0
        return code not in one.entry.near, one.entry.family != flagged[0].entry.family, far

    return sorted(found, key=distance)


def _apart(wrong: Mapping[str, object], right: Mapping[str, object]) -> float:
    """How far two runs are apart, from 0 to 1, by the numbers that a rule measured of both."""
    shares = []
    for key in wrong.keys() & right.keys():
        a, b = wrong[key], right[key]
        if isinstance(a, (int, float)) and isinstance(b, (int, float)) and isfinite(a) and isfinite(b):
            shares.append(abs(a - b) / (abs(a) + abs(b)) if a != b else 0.0)
    return sum(shares) / len(shares) if shares else 1.0


def _verdict(one: Judged, code: str) -> Verdict | None:
    result = one.result(code)
    return None if result is None else result.verdict


@cache
def shown_for(probe: type[Probe]) -> tuple[list[Shown], list[Shown]]:
    """What a rule's page shows: two runs at most that it flags, and nearby ones that it passes."""
    flagged = flagged_by(probe.code)
    passed = passed_by(probe.code, flagged)
    return (
        [_shown(probe, one) for one in flagged[:_MOST]],
        [_shown(probe, one) for one in passed[:_MOST]],
    )


def _shown(probe: type[Probe], one: Judged) -> Shown:
    result = one.result(probe.code)
    assert result is not None  # noqa: S101  only those are chosen that it judged
    finding = Finding(
        verdict=result.verdict, message=result.message, remedy=result.remedy, measured=result.measured,
        details=result.details, steps=result.steps,
    )  # fmt: skip
    alt = f"{one.entry.title}: {result.verdict}"
    svg = picture(one.entry.evidence, probe(), finding, alt)
    return Shown(entry=one.entry, result=result, file=f"{probe.code}-{one.entry.name}.svg", svg=svg)


def diagnosed_as(cause: str) -> list[tuple[Judged, Diagnosis]]:
    """Two runs at most of which a cause is the diagnosis, the surest first."""
    found = [
        (one, one.usual.diagnosis)
        for one in judged()
        if one.usual.diagnosis is not None and one.usual.diagnosis.cause == cause
    ]
    surest = {"certain": 0, "likely": 1, "possible": 2, "unknown": 3}
    return sorted(found, key=lambda pair: surest[pair[1].certainty])[:_MOST]


@dataclass(frozen=True, kw_only=True)
class Word:
    """A word of the vocabulary of symptoms, its rules, and in how many flagged runs of the benchmark one spoke."""

    name: str
    rules: Sequence[type[Probe]]
    runs: int


def symptoms() -> list[Word]:
    """The vocabulary, the most common word first."""
    words = []
    for one in Symptom:
        rules = [probe for probe in BUILT_IN if probe.symptom is one]
        words.append(Word(name=str(one), rules=rules, runs=_runs_with({probe.code for probe in rules})))
    return sorted(words, key=lambda word: -word.runs)


def most_common_first(runs: Sequence[Judged]) -> list[Judged]:
    """By how many runs of the benchmark have the most common of their findings, and of equal ones those with few
    findings; runs that no rule flags come last.
    """

    def frequency(one: Judged) -> tuple[bool, int, int]:
        codes = [finding.code for finding in one.usual.findings]
        return not codes, -max((_runs_with({code}) for code in codes), default=0), len(codes)

    return sorted(runs, key=frequency)


@cache
def flagged_runs() -> Sequence[KeysView[str]]:
    """The codes of what was found in each flagged run with a known fault that the benchmark tunes on."""
    return [json.loads(line)["found"].keys() for line in _BENCHMARK.read_text(encoding="utf-8").splitlines()]


def _runs_with(codes: Collection[str]) -> int:
    return sum(not found.isdisjoint(codes) for found in flagged_runs())


def pictures() -> Iterator[tuple[str, str]]:
    """Every picture: the name of its file, and what is in it."""
    for probe in BUILT_IN:
        for some in shown_for(probe):
            yield from ((one.file, one.svg) for one in some)
    for one in judged():
        yield f"{one.entry.name}.svg", picture(one.entry.evidence, None, None, one.entry.title)
