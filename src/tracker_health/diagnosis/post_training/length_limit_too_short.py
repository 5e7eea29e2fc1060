"""Length limit too short."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, measure
from tracker_health.diagnosis._facts import Facts
from tracker_health.text import number
from tracker_health.words.diagnosis import Action

_TIMES = 4


class LengthLimitTooShort(Cause):
    """Answers are cut off before they are complete.

    The limit of their length leaves no room for an answer that earns its reward. All get little and alike, however good
    they began.
    """

    name = "length-limit-too-short"
    title = "The length limit cuts answers off"
    from_the_start = True
    explains = codes("RWD001 RWD002 RWD003 RWD007 GRD003 OPT003")
    signs = (
        measure(
            "nearly all answers are cut off, from the beginning on", "cut_share", lambda facts: facts.answers_are_cut, 8
        ),
        finding("RWD007", 2, "answers were cut off, or changed their length"),
        finding("RWD002", 1, "groups of answers had no spread of rewards"),
        finding("RWD001", 1, "the reward did not rise, or was lost"),
    )
    test = "read ten answers: they end in the middle"

    def action(self, facts: Facts) -> Action:
        limit = facts.settings.length_limit
        if limit is None:
            return Action(text="raise the limit of the length of answers", setting="max_completion_length")
        text = f"let answers have {number(_TIMES * limit)} tokens, not {number(limit)}"
        return Action(text=text, setting="max_completion_length", old=limit, new=_TIMES * limit)
