"""KL coefficient too low."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, setting
from tracker_health.diagnosis._facts import Facts
from tracker_health.words.diagnosis import Action

_USUAL, _TIMES = 0.04, 10


def _is_zero(facts: Facts) -> bool:
    return facts.settings.kl_coefficient == 0.0 and facts.has("RWD004", "RWD005", "RWD006", "RWD007")


class KlCoefficientTooLow(Cause):
    """Nothing holds the policy near what it could do before.

    Updates carry it away from its reference, until its answers are nothing that the reference would have said.
    """

    name = "kl-coefficient-too-low"
    title = "Nothing holds the policy near its reference"
    explains = codes("RWD001 RWD003 RWD004 RWD005 RWD006 RWD007")
    signs = (
        finding("RWD005", 3, "the divergence left its course"),
        setting("the KL coefficient is 0, and the policy came apart", "kl_coefficient", _is_zero, 3),
        finding("RWD004", 1, "the policy's entropy collapsed or exploded"),
    )
    test = "train 50 steps with a KL coefficient ten times as high: the reward keeps what it gained"

    def action(self, facts: Facts) -> Action:
        now = facts.settings.kl_coefficient
        new = _USUAL if not now else _TIMES * now
        return Action(text=f"hold the policy with a KL coefficient of {new:g}", setting="beta", old=now, new=new)
