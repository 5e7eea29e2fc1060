"""Entropy bonus too high."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, setting
from tracker_health.diagnosis._facts import Facts
from tracker_health.text import number
from tracker_health.words.diagnosis import Action

_HIGH, _USUAL = 0.1, 0.001


def _came_apart(facts: Facts) -> bool:
    return facts.has("RWD004") and "came apart" in facts.found["RWD004"].message


def _is_high(facts: Facts) -> bool:
    bonus = facts.settings.entropy_bonus
    return bonus is not None and bonus >= _HIGH and _came_apart(facts)


class EntropyBonusTooHigh(Cause):
    """The policy is paid more for being random than for being right.

    Its entropy rises to that of guessing, and with it goes what it knew.
    """

    name = "entropy-bonus-too-high"
    title = "The policy is paid for being random"
    explains = codes("RWD001 RWD003 RWD004 RWD007")
    signs = (
        setting("the entropy bonus is a tenth or more", "entropy_coef", _is_high),
        finding("RWD004", 1, "the policy came apart", _came_apart),
    )
    test = "train 50 steps without the bonus: the entropy falls"

    def action(self, facts: Facts) -> Action:
        text = f"pay {number(_USUAL)} for entropy, or nothing"
        return Action(text=text, setting="entropy_coef", old=facts.settings.entropy_bonus, new=_USUAL)
