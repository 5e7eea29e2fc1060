"""The curve that a verdict is about, in one line of text, and where it is marked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.evidence import Evidence, RunRef, Series
from tracker_health.render.sketch import sketch
from tracker_health.report.result import ProbeResult, Report, ToolInfo
from tracker_health.words.verdict import Verdict

RUN = RunRef(store="directory", id="a", name="a")
TOOL = ToolInfo(version="1", preset="default", config_digest="d")
_ANY = st.floats(allow_nan=True, allow_infinity=True)


def a_series(values, steps=None, role="train_loss", name="loss"):
    steps = np.arange(len(values)) if steps is None else np.asarray(steps)
    return Series(name=name, role=role, steps=steps, values=np.asarray(values, dtype=np.float64))


def a_finding(about, steps=(), verdict=Verdict.WARN):
    return ProbeResult(
        code="LOS004", name="diverged", symptom="diverged", status="stable", verdict=verdict, votes=True, score=0.5,
        message="it rose", steps=tuple(steps), about=tuple(about),
    )  # fmt: skip


def drawn(*series, findings=(), columns=40):
    report = Report(run=RUN, verdict=Verdict.WARN, score=0.5, summary="", results=tuple(findings), tool=TOOL)
    return sketch(Evidence(run=RUN, series=series), report, columns)


def line_of(values, steps=None, columns=40):
    found = drawn(a_series(values, steps), columns=columns)
    return "" if found is None else found.line


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([8, 7, 6, 5, 4, 3, 2, 1], "█▇▆▅▄▃▂▁"),
        ([1, 2, np.nan], "▁█x"),
        ([np.nan] * 4, "xxxx"),
        ([3, 3, 3], "▅▅▅"),
        ([1e6, 1e3, 1], "█▅▁"),
        ([1e308, -1e308, 0], "█▁▅"),
        ([1, 2], ""),
        ([], ""),
    ],
)
def test_short_curves(values, line):
    assert line_of(values) == line


def test_steps_are_the_width():
    assert line_of([4, 3, 1], steps=[0, 1, 100], columns=3) == "█ ▁"


def test_a_single_peak_is_seen_and_its_height_is_said():
    values = np.full(400, 2.3)
    values[2], values[3] = 987.0, 2.2
    found = drawn(a_series(values))
    assert found.line[0] == "█"
    assert found.says == "loss, min 2.2, max 987 (log scale)"


def test_what_a_finding_is_about_comes_before_the_loss():
    loss, kl = a_series([3, 2, 1]), a_series([1, 1, 9], role="kl", name="kl")
    assert drawn(loss, kl).says.startswith("loss")
    found = drawn(loss, kl, findings=[a_finding(["kl"], [2])])
    assert (found.says, found.mark, found.at) == ("kl, min 1, max 9", 2, "step 2")
    assert drawn(loss, findings=[a_finding(["kl"], [2])]).mark == -1


def test_a_reward_comes_before_a_score():
    score, reward = a_series([1, 2, 3], role="val_accuracy", name="acc"), a_series([1, 2, 3], role="train_reward")
    assert "loss" in drawn(score, reward).says
    assert "acc" in drawn(score).says
    assert drawn(a_series([1, 2, 3], role="grad_norm")) is None


@settings(deadline=None, max_examples=draws(100))
@given(st.lists(_ANY, min_size=3, max_size=300), st.integers(1, 60))
def test_never_wider_than_asked(values, columns):
    line = line_of(values, columns=columns)
    assert len(line) == min(columns, len(values))
    assert set(line) <= set("▁▂▃▄▅▆▇█x ")


@settings(deadline=None, max_examples=draws(200))
@given(
    st.lists(st.integers(0, 10**6), min_size=3, max_size=200, unique=True).map(sorted), st.data(), st.integers(1, 60)
)
def test_the_mark_is_where_the_finding_is(steps, data, columns):
    """The step lies between the first and the last step that its column stands for, and a point is drawn there."""
    step = data.draw(st.sampled_from(steps[1:]))
    found = drawn(
        a_series(np.arange(len(steps)), steps), findings=[a_finding(["loss"], [step, steps[-1]])], columns=columns
    )
    width = (steps[-1] - steps[0]) / len(found.line)
    assert steps[0] + width * found.mark - 1e-6 <= step <= steps[0] + width * (found.mark + 1) + 1e-6
    assert found.line[found.mark] != " "
    assert found.lines[1].index("^") == found.mark
    assert str(step) in found.lines[1]
