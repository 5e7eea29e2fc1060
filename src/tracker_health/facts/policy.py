"""How a policy fared: what it earned, how far that rose, how many answers were right, how sure it is of its acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tracker_health.evidence import FEWEST_LEVELS, LIKELY, SURELY, Curve, Estimate, Evidence
from tracker_health.facts.environments import SOLVED, environment_of
from tracker_health.roles import REWARDS, word_set, words_of
from tracker_health.text import number, printable

_OF_ITS_SPAN = 0.5
_RIGHT = word_set("accuracy acc correct correctness right answer exact match")


class Reward(NamedTuple):
    """A policy's reward: its curve, how far it rose from its start to its end, and from one half to the other."""

    curve: Curve
    rise: Estimate
    halves: Estimate

    @property
    def rose(self) -> bool:
        """Whether its end surely lies above its start; or likely, and its second half surely above the first, or its
        levels rise for sure.
        """
        steadily = self.halves.surely_above(0.0) or self.curve.trend > SURELY
        return self.rise.surely_above(0.0) or (self.may_have_risen and steadily)

    @property
    def may_have_risen(self) -> bool:
        return self.rise.surely_above(0.0, LIKELY)

    @property
    def fell(self) -> bool:
        return self.rise.surely_below(0.0)

    @property
    def ever_rose(self) -> bool:
        """Whether its end likely lies above its start, or its best level surely."""
        return self.may_have_risen or self.curve.upside_down.with_waves.descent.surely_above(0.0)

    @property
    def span(self) -> float:
        """From its lowest level to its highest."""
        return float(np.ptp(self.curve.levels))

    @property
    def said(self) -> str:
        """``reward went from 0.2 to 0.7``."""
        start, end = number(self.curve.start.value), number(self.curve.end.value)
        return f"{printable(self.curve.series.name)} went from {start} to {end}"


def reward_of(evidence: Evidence, roles: Sequence[str] = REWARDS) -> Reward | None:
    """The reward of training, unless only that of evaluations may have risen, or only that is there."""
    curves = [curve for role in roles if (curve := evidence.curve(role)) is not None and curve.points >= FEWEST_LEVELS]
    found = [_rewarded(curve, curve.with_waves) for curve in curves]
    return next((one for one in found if one.may_have_risen), next(iter(found), None))


def _rewarded(curve: Curve, wide: Curve) -> Reward:
    return Reward(curve, wide.end - wide.start, wide.between(0.5, 1.0) - wide.between(0.0, 0.5))


def learnt(reward: Reward) -> bool:
    """Whether a reward says that its policy learnt: it surely rose, by `_OF_ITS_SPAN` of all that its levels span."""
    return reward.rose and reward.rise.value > _OF_ITS_SPAN * reward.span


def is_solved(evidence: Evidence, reward: Reward) -> bool:
    """Whether a reward ends where its environment counts as solved, by a param that names one of Gymnasium's."""
    least = SOLVED.get(environment_of(evidence))
    return least is not None and reward.curve.end.value >= least


def rightness_of(evidence: Evidence) -> Curve | None:
    """How many answers are right: the part of the reward that says so by its name, with values from 0 to 1."""
    for part in evidence.all_of("reward_part"):
        curve = Curve.of(part)
        named = not _RIGHT.isdisjoint(words_of(part.name))
        if named and curve is not None and curve.points >= FEWEST_LEVELS and is_a_share(curve):
            return curve
    return None


def is_a_share(curve: Curve) -> bool:
    """Whether all values lie between 0 and 1."""
    values = curve.series.values
    return bool(values.min() >= 0.0 and values.max() <= 1.0)


def entropy_of(evidence: Evidence) -> Curve | None:
    """The policy's entropy: as it was logged, or from a loss that pays for it. Stable-Baselines3's
    ``train/entropy_loss`` is the negative of the mean entropy, and called ``-train/entropy_loss`` here: what begins
    below 0 has its sign turned.
    """
    curve = evidence.curve("entropy")
    if curve is not None:
        return curve
    paid = evidence.curve("entropy_loss")
    if paid is None or not paid.points:
        return None
    if paid.start.value >= 0.0:
        return paid
    turned = paid.upside_down
    return replace(turned, series=replace(turned.series, name=f"-{paid.series.name}"))
