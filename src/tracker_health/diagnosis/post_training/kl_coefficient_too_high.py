"""KL coefficient too high."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, setting
from tracker_health.diagnosis._facts import Facts
from tracker_health.text import number
from tracker_health.words.diagnosis import Action

_HIGH, _USUAL = 1.0, 0.04


def _is_high(facts: Facts) -> bool:
    coefficient = facts.settings.kl_coefficient
    return coefficient is not None and coefficient >= _HIGH and facts.has("RWD003")


class KlCoefficientTooHigh(Cause):
    """The policy is held so fast to its reference that it cannot learn.

    The penalty for another answer than the reference's outweighs what a better one earns.
    """

    name = "kl-coefficient-too-high"
    title = "The policy is held fast to its reference"
    explains = codes("RWD003 RWD001")
    signs = (
        setting("the KL coefficient is 1 or more", "kl_coefficient", _is_high),
        finding("RWD003", 1, "the reward did not rise, though answers differ"),
    )
    test = "train 50 steps with a tenth of the KL coefficient: the reward rises"

    def action(self, facts: Facts) -> Action:
        now = facts.settings.kl_coefficient
        text = f"hold the policy with a KL coefficient of {number(_USUAL)}"
        return Action(text=text, setting="beta", old=now, new=_USUAL)
