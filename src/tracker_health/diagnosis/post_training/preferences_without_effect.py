"""Preferences without effect."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, measure, setting
from tracker_health.diagnosis._facts import Facts
from tracker_health.words.diagnosis import Action

_USUAL = 0.1


def _is_zero(facts: Facts) -> bool:
    return facts.settings.kl_coefficient == 0.0 and facts.has("RWD009")


def _stands(facts: Facts) -> bool:
    return "at all" in facts.found["RWD009"].message


class PreferencesWithoutEffect(Cause):
    """What is preferred does not reach the loss.

    Beta is 0, the reference is the model itself, or chosen and rejected answers are the same: the margin is one number,
    and the loss of a pair stays at that of a coin.
    """

    name = "preferences-without-effect"
    title = "What is preferred does not reach the loss"
    from_the_start = True
    explains = codes("RWD009 GRD003 LOS005 LOS006 GEN005 OPT003 LOS007")
    signs = (
        setting("beta is 0", "kl_coefficient", _is_zero),
        measure("chosen and rejected answers are equally likely", "logps", lambda facts: facts.answers_are_the_same, 9),
        finding("RWD009", 6, "the margin is one number throughout", _stands),
        finding("GRD003", 2, "the gradient norm is exactly 0"),
    )
    test = "compute the margin of one pair by hand, after ten steps"

    def action(self, facts: Facts) -> Action:
        if _is_zero(facts):
            return Action(text=f"set beta to {_USUAL:g}, not 0", setting="beta", old=0.0, new=_USUAL)
        return Action(text="look whether chosen and rejected answers differ, and whether the reference is a copy")
