"""Reward hacked."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding
from tracker_health.diagnosis._facts import Facts


def _grew(facts: Facts) -> bool:
    return "grew into the limit" in facts.found["RWD007"].message and not facts.has("RWD001", "RWD003")


class RewardHacked(Cause):
    """The reward is earned without doing the task.

    The policy found what is paid best: length, a phrase, a form. The total rises, and what was meant falls.
    """

    name = "reward-hacked"
    title = "The reward is earned without doing the task"
    explains = codes("RWD007 RWD008")
    signs = (
        finding("RWD008", 6, "the reward rose while another one fell"),
        finding("RWD007", 6, "answers grew into the limit, and the reward was not lost", _grew),
    )
    test = "read ten answers of the highest reward"
    do = "read answers of high reward; pay length or form only where the answer is right, or give the task more weight"
