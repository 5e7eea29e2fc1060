"""Numbers agree with the words around them, in all that is said of drawn runs on whatever scale their values are."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tracker_health.config import Config
from tracker_health.judge.engine import diagnose
from tracker_health.render.facts import facts_of
from tracker_health.render.yardsticks import bar_of

from .drawn_runs import drawn_runs

EVERYTHING = Config(preset="everything", preview_votes=True, measure_only=frozenset())
EVERY = 8
"""Of the drawn runs each so manyth is judged, on every scale."""

_NUMBER = r"(?:under |over )?-?\d[\d.]*(?:e[+-]?\d+)?(?: %)?"
PAIRS = (
    re.compile(rf"\bfrom ({_NUMBER}) to ({_NUMBER})"),
    re.compile(rf"\bfrom ({_NUMBER}) at [\w ()]+ to ({_NUMBER})"),
    re.compile(rf"\bends at ({_NUMBER}), its best level is ({_NUMBER})"),
    re.compile(rf"\b({_NUMBER}) times the size of a fresh layer \(usual [\d. to]+, (?:limit|at least) ({_NUMBER})\)"),
    re.compile(rf"\bbetween ({_NUMBER}) and ({_NUMBER})"),
)
SCALES = {
    "as drawn": lambda values: values,
    "tiny": lambda values: 1e-9 * values,
    "huge": lambda values: 1e9 * values,
    "far from 0": lambda values: 1000.0 + 1e-4 * values,
    "hardly any change": lambda values: 1.0 + 1e-8 * values,
    "negative": lambda values: -values,
    "nothing": lambda values: np.where(np.isfinite(values), -0.0, values),
}


def contrasts(text):
    return [pair.groups() for regex in PAIRS for pair in regex.finditer(text)]


def everything_said(evidence):
    report = diagnose(evidence, EVERYTHING)
    for result in report.results:
        yield from (result.message, result.remedy)
        bar = bar_of(result)
        yield bar.description if bar is not None else ""
    if report.diagnosis is not None:
        yield report.diagnosis.sentence
        yield report.diagnosis.action.text
    for fact in facts_of(evidence, report):
        yield f"{fact.value} {fact.more}"


@pytest.mark.parametrize("scale", SCALES)
def test_what_differs_looks_different_and_nothing_is_minus_zero(scale):
    found = []
    for _, evidence in list(drawn_runs())[::EVERY]:
        series = tuple(replace(one, values=SCALES[scale](one.values)) for one in evidence.series)
        with np.errstate(all="ignore"):
            said = list(everything_said(replace(evidence, series=series)))
        found += [text for text in said if any(one == other for one, other in contrasts(text))]
        found += [text for text in said if re.search(r"(?<![\w.])-0(?:\.0*)?(?![\d.e])", text)]
        found += [text for text in said if re.search(r"\d%|\d\.0+e|\de\+0[0-5]\b", text)]
    assert sorted(set(found)) == []


def test_a_pair_is_found():
    assert contrasts("the loss fell from 1e-05 to 1e-05") == [("1e-05", "1e-05")]
    assert contrasts("it rose from 97.4 % at step 5 to 98 %") == [("97.4 %", "98 %")]
