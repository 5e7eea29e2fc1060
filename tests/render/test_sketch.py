"""The loss in one line of text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.evidence import Evidence, RunRef, Series
from tracker_health.render.sketch import sketch


def drawn(values, steps=None, role="train_loss", columns=40):
    steps = np.arange(len(values)) if steps is None else np.asarray(steps)
    series = Series(name="loss", role=role, steps=steps, values=np.asarray(values, dtype=np.float64))
    return sketch(Evidence(run=RunRef(store="directory", id="a", name="a"), series=(series,)), columns)


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
    assert drawn(values) == line


def test_steps_are_the_width():
    assert drawn([4, 3, 1], steps=[0, 1, 100], columns=3) == "█ ▁"


def test_only_losses_are_drawn():
    assert drawn([1, 2, 3], role="grad_norm") == ""
    assert drawn([1, 2, 3], role="val_loss") != ""


@settings(deadline=None, max_examples=draws(100))
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=3, max_size=300), st.integers(1, 60))
def test_never_wider_than_asked(values, columns):
    line = drawn(values, columns=columns)
    assert len(line) == min(columns, len(values))
    assert set(line) <= set("▁▂▃▄▅▆▇█x ")
