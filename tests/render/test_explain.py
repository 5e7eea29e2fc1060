"""What ``explain`` shows of a rule: the short form fits a terminal, the full one leaves nothing out."""

from tracker_health.render import docs
from tracker_health.render.docs import MOST_LINES, explain
from tracker_health.rules.registry import BUILT_IN


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
