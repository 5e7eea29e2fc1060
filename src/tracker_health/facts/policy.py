"""How a policy fared: what it earned, how far that rose, how many answers were right, how sure it is of its acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import e, log, pi, sqrt
from typing import NamedTuple

import numpy as np

from tracker_health.evidence import FEWEST_LEVELS, LIKELY, SURELY, Curve, Estimate, Evidence, Series
from tracker_health.facts.environments import SOLVED, environment_of, is_control
from tracker_health.roles import REWARDS, word_set, words_of
from tracker_health.text import contrast, printable, went

_OF_ITS_SPAN, _LOST = 0.5, 0.3
_WINDOW = 100
"""Episodes in the running means of Stable-Baselines3 and RLlib, by default."""
_FEWEST_EPISODES = 0.1
"""Episodes in a point of the log; fewer mean that its steps are not those of the environment."""
_OF_ONE_UPDATE = word_set("approx approxkl ppo")
_EPISODE, _MEAN = word_set("ep episode episodes"), word_set("mean")
_RIGHT = word_set("accuracy acc correct correctness right")
_OF_A_FORM = word_set("tag tags format formatting length style penalty bonus soft")
_SOLVED_SHARE = 0.9
_OF_ONE_NORMAL, _NEAR = 0.5 * log(2.0 * pi * e), 0.01
"""The entropy of one action's normal distribution with a deviation of 1, in nats, as libraries begin with it."""


class Reward(NamedTuple):
    """A policy's reward: its curve, how far it rose from its start to its end, and whether it rose steadily: clearly
    from half to half, or by the trend of its levels.
    """

    curve: Curve
    rise: Estimate
    steadily: bool

    @property
    def rose(self) -> bool:
        """Whether its end is clearly above its start; or likely, and it rose steadily."""
        return self.rise.surely_above(0.0) or (self.may_have_risen and self.steadily)

    @property
    def may_have_risen(self) -> bool:
        return self.rise.surely_above(0.0, LIKELY)

    @property
    def stood(self) -> bool:
        """Whether it did not rise: a rise by half of what its levels span may be one, however unsure."""
        far = self.rise.value >= _OF_ITS_SPAN * self.span > 0.0
        return not self.may_have_risen and not far

    @property
    def fell(self) -> bool:
        return self.rise.surely_below(0.0)

    @property
    def ever_rose(self) -> bool:
        """Whether its end is likely above its start, or its best level clearly."""
        return self.may_have_risen or self.as_loss.descent.surely_above(0.0)

    def rose_by(self, share: float) -> bool:
        """Whether it ever rose, or a level is above its start by a share of the start's size."""
        start = self.curve.start.value
        return self.ever_rose or float(self.curve.levels.max()) > start + share * abs(start)

    @property
    def as_loss(self) -> Curve:
        """Upside down, as a reward goes up where a loss goes down."""
        return self.curve.upside_down.with_waves

    @property
    def span(self) -> float:
        """From its lowest level to its highest, and no less than what a change of a flat curve is measured by."""
        return max(float(np.ptp(self.curve.levels)), self.as_loss.size)

    @property
    def fell_from_its_best(self) -> bool:
        """Whether it ends clearly below its best level, by `_LOST` of all that its levels span."""
        return (self.as_loss.end - self.as_loss.best).surely_above(_LOST * self.span)

    @property
    def said(self) -> str:
        """``reward went from 0.2 to 0.7``; of one that was lost the best level as well."""
        name, start, end = printable(self.curve.series.name), self.curve.start.value, self.curve.end.value
        if not (self.fell_from_its_best and self.ever_rose):
            return f"{name} {went(start, end, levels=True)}"
        first, last, best = contrast(start, end, -self.as_loss.best.value)
        return f"{name} went from about {first} to {last} by way of {best}"


def reward_of(evidence: Evidence, roles: Sequence[str] = REWARDS) -> Reward | None:
    """The reward of training, unless only that of evaluations may have risen, or only that is there."""
    known = [one for role in roles if (one := rewarded(evidence, evidence.curve(role))) is not None]
    found = [one for one in known if one.curve.points >= FEWEST_LEVELS]
    return next((one for one in found if one.may_have_risen), next(iter(found), None))


def rewarded(evidence: Evidence, curve: Curve | None) -> Reward | None:
    """What a curve of rewards says. Points of a running mean over episodes share most of these: their errors become
    those of the few points that share none, and nothing is said of their trend.
    """
    if curve is None:
        return None
    sharing = min(_points_that_share_episodes(evidence, curve), len(curve.series))
    if sharing > 1.0:
        levels = max(1.0, min(sharing / curve.block, len(curve.levels) / 8))
        # One that never had a whole window moves most at its first points, which are means of the fewest.
        noise = curve.noise if sharing < len(curve.series) else float(curve.errors.max())
        curve = replace(curve, errors=np.maximum(curve.errors, sqrt(sharing * levels) * noise))
    wide = curve.with_waves
    halves = wide.between(0.5, 1.0) - wide.between(0.0, 0.5)
    steadily = sharing <= 1.0 and (halves.surely_above(0.0) or curve.trend > SURELY)
    return Reward(curve, wide.end - wide.start, steadily)


def _points_that_share_episodes(evidence: Evidence, curve: Curve) -> float:
    """How many neighbouring points of a running mean over ``_WINDOW`` episodes have an episode in common; 1 for
    others.
    """
    words, lengths = set(words_of(curve.series.name)), evidence.curve("episode_length")
    if lengths is None or _EPISODE.isdisjoint(words) or _MEAN.isdisjoint(words):
        return 1.0
    steps = curve.series.steps
    apart = float(steps[-1] - steps[0]) / max(len(steps) - 1, 1)
    episodes = apart / max(float(np.median(lengths.series.values)), 1.0)
    return max(1.0, _WINDOW / episodes) if episodes >= _FEWEST_EPISODES else 1.0


def learnt(evidence: Evidence, reward: Reward) -> bool:
    """Whether a reward says that its policy learnt: it clearly rose, by `_OF_ITS_SPAN` of what its levels span, or it
    ends where its environment counts as solved.
    """
    return (reward.rose and reward.rise.value >= _OF_ITS_SPAN * reward.span) or is_solved(evidence, reward.curve)


def learnt_nothing(evidence: Evidence, reward: Reward) -> bool:
    """Whether a reward says that its policy did not learn: it stood, and its environment does not count as solved. What
    may have risen says neither this nor the other.
    """
    return reward.stood and not learnt(evidence, reward)


def is_solved(evidence: Evidence, reward: Curve) -> bool:
    """Whether a reward ends where its environment counts as solved, by a param that names one of Gymnasium's. A reward
    that is 0 throughout is none.
    """
    least = SOLVED.get(environment_of(evidence))
    return least is not None and reward.end.value >= least and bool(reward.series.values.any())


def is_of_one_update(divergence: Series) -> bool:
    """Whether a divergence is, by its name, that from the last policy, which one update a batch leaves at 0."""
    return not _OF_ONE_UPDATE.isdisjoint(words_of(divergence.name))


def rightness_of(evidence: Evidence) -> Curve | None:
    """How many answers are right: the part of the reward that says so by its name, with values from 0 to 1, and does
    not speak of a form.
    """
    for part in evidence.all_of("reward_part"):
        curve = Curve.of(part)
        words = words_of(part.name)
        named = not _RIGHT.isdisjoint(words) and _OF_A_FORM.isdisjoint(words)
        if named and curve is not None and curve.points >= FEWEST_LEVELS and is_a_share(curve):
            return curve
    return None


def is_a_share(curve: Curve) -> bool:
    """Whether all values are between 0 and 1."""
    values = curve.series.values
    return bool(values.min() >= 0.0 and values.max() <= 1.0)


def entropy_of(evidence: Evidence) -> Curve | None:
    """The entropy of a policy that chooses among actions or tokens: as it was logged, or from a loss that pays for it.
    Stable-Baselines3's ``train/entropy_loss`` is the negative of the mean entropy, and called ``-train/entropy_loss``
    here. One that begins above 0 may be either, and is left out. So is that of continuous actions, which has no zero:
    where their spread is logged, or it gets below 0, or begins as that of normal distributions does.
    """
    curve, paid = evidence.curve("entropy"), evidence.curve("entropy_loss")
    if evidence.find("policy_std") is not None:
        return None
    if curve is not None:
        return None if _is_continuous(evidence, curve) else curve
    if paid is None or not paid.points or paid.start.value >= 0.0 or _is_continuous(evidence, paid.upside_down):
        return None
    turned = paid.upside_down
    return replace(turned, series=replace(turned.series, name=f"-{paid.series.name}"))


def _is_continuous(evidence: Evidence, entropy: Curve) -> bool:
    if float(entropy.series.values.min()) < -_NEAR:
        return True
    actions = entropy.head.value / _OF_ONE_NORMAL
    return is_control(evidence) and actions > _OF_ITS_SPAN and abs(actions - round(actions)) <= _NEAR * actions


def answers_are_right(evidence: Evidence) -> bool:
    """Whether nearly all answers are right at the end, by a part of the reward: then there is little left to learn."""
    right = rightness_of(evidence)
    return right is not None and right.end.surely_above(_SOLVED_SHARE, LIKELY)


def rightness_rose(evidence: Evidence) -> bool:
    """Whether more answers are likely right at the end than at the start, by a part of the reward."""
    right = rewarded(evidence, rightness_of(evidence))
    return right is not None and right.may_have_risen
