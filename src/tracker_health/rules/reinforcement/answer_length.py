"""RWD007."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_LEVELS, Curve, Evidence, Need
from tracker_health.facts.policy import Reward, reward_of, rewarded, rightness_of, rightness_rose
from tracker_health.facts.settings import Settings
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
        Warn when the share of answers that are cut clearly begins below `seldom_cut` and clearly ends above
        `most_cut`. Warn when the share is clearly above `often_cut` in the second half. That passes where more
        answers are right than at first, and where the share falls while the reward rises. Warn when lengths
        that clearly began above `empty` clearly end below it. Where a param has the limit, lengths may go from
        below `short` of it to above `full`. Then warn when a held-out reward or the share of right answers is
        known, and did not likely rise. Where the reward stalled, warn in two more cases. Lengths end clearly below
        `collapse` of their start, or clearly above `explosion` times it. Each is a failure if the reward clearly
        fell. A reward stalled when it did not likely rise, and rose by less than half of what its levels span.

    Known limits:
        A task whose answers all have the limit's length is cut always, and warned of.

    Worked example:
        cut_share: 0.9 1 1 0.9 1 1 1 0.9 1 1 1 1
        train_reward: 0.1 0.1 0 0.1 0.1 0.1 0 0.1 0.1 0 0.1 0.1
        gives: start 0.9, peak 1, end 1
        warn: all answers are cut off, clearly more than 0.2, and the reward did not rise.

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
    often_cut: Annotated[
        float, Threshold("share of answers cut off in the second half", "fraction", "design", gt=0, le=1)
    ] = 0.2
    short: Annotated[float, Threshold("share of the limit that leaves room", "fraction", "design", gt=0, le=1)] = 0.8
    full: Annotated[float, Threshold("share of the limit that leaves none", "fraction", "design", gt=0, le=1)] = 0.9
    seldom_cut: Annotated[float, Threshold("share that is cut off in passing", "fraction", "design", ge=0, le=1)] = 0.3
    collapse: Annotated[float, Threshold("share of its length that is left", "fraction", "design", gt=0, le=1)] = 0.5
    empty: Annotated[float, Threshold("length of an answer that says nothing", "tokens", "design", ge=1)] = 1.5
    explosion: Annotated[float, Threshold("growth of the length", "times", "design", ge=1)] = 2.0

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="cut_share", any_of=("response_length",), min_points=FEWEST_LEVELS),
            Need(role=REWARDS[0], any_of=REWARDS[1:], min_points=FEWEST_LEVELS),
            *Need.beside("response_length", "val_reward", "reward_part"),
        )

    def judge(self, evidence: Evidence) -> Finding:
        reward, cut, length = reward_of(evidence), evidence.curve("cut_share"), evidence.curve("response_length")
        seen = cut if cut is not None else length
        if reward is None or seen is None:
            return Finding.skipped("too few points can be compared")
        found = self._of_cuts(cut, reward, better=rightness_rose(evidence)) if cut is not None else None
        if found is None and length is not None:
            found = self._of_lengths(length, reward) or self._of_the_limit(evidence, length, reward)
        return found or harmless(seen, reward)

    def _of_cuts(self, cut: Curve, reward: Reward, *, better: bool) -> Finding | None:
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
        fades = reward.may_have_risen and (cut.end - cut.start).surely_below(0.0)
        if late.surely_above(self.often_cut) and not fades and not better:
            grew = cut.head.value < self.often_cut
            said = f"answers were cut off: {name} was {number(late.value)} in the second half"
            kind, remedy = ("grew-into-the-limit", _GROWN) if grew else ("cut", _CUT)
            return wrong(cut, reward, said, remedy, cut.left(self.often_cut) if grew else None, kind=kind)
        return None

    def _of_the_limit(self, evidence: Evidence, length: Curve, reward: Reward) -> Finding | None:
        """Answers that grew up to the limit, and are no better for it."""
        limit, right = Settings(evidence).length_limit, rightness_of(evidence)
        if limit is None or not (
            length.start.surely_below(self.short * limit) and length.end.surely_above(self.full * limit)
        ):
            return None
        held_out = reward_of(evidence, ("val_reward",))
        known = [one for one in (held_out, rewarded(evidence, right)) if one is not None]
        if not known or any(one.may_have_risen for one in known):
            return None
        said = f"answers grew into the limit of {number(limit)}: {course(length)}"
        return wrong(length, reward, said, _GROWN, length.left(self.full * limit), kind="grew-into-the-limit")

    def _of_lengths(self, length: Curve, reward: Reward) -> Finding | None:
        start, end = length.start.value, length.end
        if length.start.surely_above(self.empty) and end.surely_below(self.empty):
            return wrong(length, reward, f"answers became empty: {course(length)}", _CHANGED, kind="empty")
        if not reward.stood:
            return None
        if end.surely_below(self.collapse * start) or end.surely_above(self.explosion * start):
            return wrong(length, reward, f"answers changed their length: {course(length)}", _CHANGED, kind="changed")
        return None
