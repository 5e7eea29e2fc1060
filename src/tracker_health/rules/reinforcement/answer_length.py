"""RWD007."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_LEVELS, Curve, Evidence, Need
from tracker_health.facts.policy import Reward, reward_of
from tracker_health.report.result import Finding
from tracker_health.roles import REWARDS
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.reinforcement._policy import course, harmless, wrong
from tracker_health.text import number, printable

_CUT = "raise the limit of the length, or lower the length that answers begin with"
_GROWN = "look whether length alone earns reward; penalise it, or leave answers that were cut off out of the loss"
_CHANGED = (
    "look at answers, and at what an empty or endless one is paid; lower the learning rate, raise the KL coefficient"
)


@dataclass(frozen=True, kw_only=True)
class AnswerLength(Probe):
    """Answers were cut off at the limit, grew into it, or changed their length far for nothing.

    What it finds:
        A limit that is too short for the task, or answers that grew until it cut them. Also lengths that collapsed or
        exploded while the reward did not rise.

    Why it matters:
        An answer that is cut off is graded without its end. Answers that grow up to the limit suggest a reward for
        length.

    How it decides:
        Warn when the share of answers that are cut surely begins below `seldom_cut` and surely ends above `most_cut`.
        Warn when lengths that surely began above `empty` surely end below it. Where the reward did not likely rise,
        warn in three more cases, or fail if it surely fell. The share that is cut lies surely above `most_cut` in the
        second half. Or lengths end surely below `collapse` of their start, or surely above `explosion` times it.

    Known limits:
        A task whose answers all have the limit's length is cut always; its reward rises.

    Worked example:
        cut_share: 0.9 1 1 0.9 1 1 1 0.9 1 1 1 1
        train_reward: 0.1 0.1 0 0.1 0.1 0.1 0 0.1 0.1 0 0.1 0.1
        gives: start 0.9, peak 1, end 1
        warn: all answers are cut off, surely more than 0.6, and the reward did not rise.

    What to do:
        Read some answers. Raise the limit (max_completion_length), penalise length, or mask what was cut off.

    References:
        Yu et al. (2025), DAPO (overlong rewards); Singhal et al. (2023), a long way to go.
    """

    code = "RWD007"
    name = "answer-length"
    symptom = Symptom.UNSTABLE
    kinds = ("grew-into-the-limit", "cut", "empty", "changed")

    most_cut: Annotated[float, Threshold("share of answers that may be cut off", "fraction", "design", gt=0, le=1)] = (
        0.6
    )
    seldom_cut: Annotated[float, Threshold("share that is cut off in passing", "fraction", "design", ge=0, le=1)] = 0.3
    collapse: Annotated[float, Threshold("share of its length that is left", "fraction", "design", gt=0, le=1)] = 0.5
    empty: Annotated[float, Threshold("length of an answer that says nothing", "tokens", "design", ge=1)] = 1.5
    explosion: Annotated[float, Threshold("growth of the length", "times", "design", ge=1)] = 2.0

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="cut_share", any_of=("response_length",), min_points=FEWEST_LEVELS),
            Need(role=REWARDS[0], any_of=REWARDS[1:], min_points=FEWEST_LEVELS),
        )

    def judge(self, evidence: Evidence) -> Finding:
        reward, cut, length = reward_of(evidence), evidence.curve("cut_share"), evidence.curve("response_length")
        seen = cut if cut is not None else length
        if reward is None or seen is None:
            return Finding.skipped("too few points can be compared")
        found = self._of_cuts(cut, reward) if cut is not None else None
        if found is None and length is not None:
            found = self._of_lengths(length, reward)
        return found or harmless(seen, reward)

    def _of_cuts(self, cut: Curve, reward: Reward) -> Finding | None:
        late, name = cut.between(0.5, 1.0), printable(cut.series.name)
        if cut.end.surely_above(self.most_cut) and cut.start.surely_below(self.seldom_cut):
            return wrong(
                cut,
                reward,
                f"answers grew into the limit: {course(cut)}",
                _GROWN,
                cut.left(self.most_cut),
                kind="grew-into-the-limit",
            )
        if not reward.may_have_risen and late.surely_above(self.most_cut):
            return wrong(cut, reward, f"answers were cut off: {name} was {number(late.value)}", _CUT, kind="cut")
        return None

    def _of_lengths(self, length: Curve, reward: Reward) -> Finding | None:
        start, end = length.start.value, length.end
        if length.start.surely_above(self.empty) and end.surely_below(self.empty):
            return wrong(length, reward, f"answers became empty: {course(length)}", _CHANGED, kind="empty")
        if reward.may_have_risen:
            return None
        if end.surely_below(self.collapse * start) or end.surely_above(self.explosion * start):
            return wrong(length, reward, f"answers changed their length: {course(length)}", _CHANGED, kind="changed")
        return None
