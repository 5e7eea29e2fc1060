"""What ``explain`` shows of a rule: the short form fits a terminal, the full one leaves nothing out."""

import re

import pytest

from tracker_health.render import docs
from tracker_health.render.docs import MOST_LINES, explain, explain_in_full
from tracker_health.rules.probe import explanation_of, thresholds_of
from tracker_health.rules.registry import BUILT_IN

WORDS = 90
"""A rule whose decision takes no more is shown whole in the short form."""


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize("probe", BUILT_IN, ids=lambda probe: probe.code)
def test_the_short_form_fits_a_terminal(probe):
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


@pytest.mark.parametrize("probe", BUILT_IN, ids=lambda probe: probe.code)
def test_the_full_form_has_everything(probe):
    full = explain_in_full(probe)
    shown, letters = words(full), re.sub(r"[^A-Za-z]+", "", full)  # steps are numbered, and tables set in columns
    for text in explanation_of(probe).sections.values():
        assert re.sub(r"[^A-Za-z]+", "", text.replace("->", "")) in letters
    assert "](" not in full
    assert "<span" not in full
    assert all(threshold.source in shown for _, threshold in thresholds_of(probe).values())


def test_what_is_cut_says_so():
    class Wordy(BUILT_IN[0]):
        __doc__ = BUILT_IN[0].__doc__.replace("decides:\n", "decides:\n" + 99 * "        And so on, at some length.\n")

    lines = explain(Wordy).splitlines()
    assert "  ... (--full shows the rest)" in lines
    assert len(lines) == MOST_LINES


def test_items_of_a_list_stay_on_lines_of_their_own():
    assert docs._reflowed("One,\ntwo:\n\n- three\n  four\n- five\n\nSix.") == [
        "  One, two:",
        "  - three four",
        "  - five",
        "  Six.",
    ]
