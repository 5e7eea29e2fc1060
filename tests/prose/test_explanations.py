"""What ``explain`` shows of each rule: the short form fits a terminal, the full one leaves nothing out."""

import re

import pytest

from tracker_health.render.docs import MOST_LINES, explain
from tracker_health.render.rule_page import rule_text
from tracker_health.rules.probe import explanation_of, thresholds_of
from tracker_health.rules.registry import BUILT_IN

pytestmark = pytest.mark.prose

WORDS = 90
"""A rule whose decision takes no more is shown whole in the short form."""


def words(text):
    return " ".join(text.split())


def test_the_short_form_fits_a_terminal():
    for probe in BUILT_IN:
        lines = explain(probe).splitlines()
        assert len(lines) <= MOST_LINES == 40
        assert max(map(len, lines)) <= 100
        assert [line for line in lines if line.startswith("More: ")] == [lines[-1]]
        shown = words(explain(probe))
        assert explanation_of(probe).summary in shown
        assert words(explanation_of(probe).sections["What to do"]) in shown
        assert all(f"{name} = {getattr(probe, name)}" in shown for name in thresholds_of(probe))
        decides = explanation_of(probe).sections["How it decides"]
        if len(decides.split()) <= WORDS:
            assert words(decides) in shown


def test_the_full_form_has_everything():
    for probe in BUILT_IN:
        full = rule_text(probe)
        shown, letters = words(full), re.sub(r"[^A-Za-z]+", "", full)  # steps are numbered, and tables set in columns
        for text in explanation_of(probe).sections.values():
            assert re.sub(r"[^A-Za-z]+", "", text.replace("->", "")) in letters
        assert "](" not in full
        assert "<span" not in full
        assert all(threshold.source in shown for _, threshold in thresholds_of(probe).values())
