"""Reward without signal."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, measure
from tracker_health.diagnosis._facts import Facts

_REWARDS = ("train_reward", "val_reward")


def _has_reward(facts: Facts) -> bool:
    return any(facts.evidence.find(role) is not None for role in _REWARDS)


def _reward_stands(facts: Facts) -> bool:
    for role in _REWARDS:
        series = facts.evidence.find(role)
        values = series.finite().values if series is not None else ()
        if len(values) > 2 and float(min(values)) == float(max(values)):
            return True
    return False


class RewardWithoutSignal(Cause):
    """Rewards do not distinguish good answers from bad ones.

    All samples of a group get the same reward, so every advantage is 0, and nothing is learnt.
    """

    name = "reward-without-signal"
    title = "Rewards do not distinguish answers"
    explains = codes("RWD001 GRD003 OPT003 LOS005 GAP006 WGT002")
    signs = (
        measure("the reward is one number throughout", "reward", _reward_stands, 6),
        finding("GRD003", 4, "the gradient norm is exactly 0 in a run with rewards", _has_reward),
        finding("RWD001", 2, "the reward did not rise, or was lost"),
    )
    test = "print the rewards of one group of samples"
    do = "print the rewards of one group of samples: they must differ; make the reward finer, or the tasks easier"
