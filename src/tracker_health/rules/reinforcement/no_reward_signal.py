"""RWD002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt

from tracker_health.evidence import FEWEST_LEVELS, Evidence, Need, Series
from tracker_health.facts.policy import Reward, answers_are_right, reward_of
from tracker_health.report.result import Finding
from tracker_health.roles import REWARDS
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import percent, printable
from tracker_health.words.verdict import Verdict

_SIGNALS = ("flat_share", "reward_spread", "grad_norm")
_SAID = {
    "flat_share": "no group of answers had any spread of rewards",
    "reward_spread": "all rewards were alike",
    "grad_norm": "the gradient was exactly 0",
}
_REMEDY = "grade answers more finely, mix in easier prompts, raise the temperature or the number of generations"


@dataclass(frozen=True, kw_only=True)
class NoRewardSignal(Probe):
    """All answers to a prompt got the same reward, so that there was nothing to learn from.

    What it finds:
        Group-relative training (GRPO, RLOO) in which nearly all groups of answers had no spread of rewards, or in which
        the gradient was exactly 0.

    Why it matters:
        The advantage of an answer is its reward over those of its group. Where all are alike it is 0, and so is the
        update: the run costs compute and changes nothing. The loss, around 0 by design, does not show it.

    How it decides:
        A point is silent where no group has any spread, where rewards have none up to rounding, or where the
        gradient is exactly 0. Fail when by one of these a share `most_silent` of all points is silent. Warn
        when in the second half the share of groups without spread is clearly above `most_flat`. It passes when
        the reward clearly rose, and where nearly all answers are right at the end. Then groups agree because the
        task is solved.

    Known limits:
        Some trainers log the spread over all prompts, which hides groups without any. Tasks that are solved from the
        start look the same. They teach nothing either.

    Worked example:
        train_reward: 0.2 0.4 0.3 0.2 0.3 0.4 0.2 0.3 0.2 0.3 0.4 0.3
        reward_spread: 0 0 0 0 0 0 0 0 0 0 0 0
        gives: silent 1
        fail: 12 of 12 points are silent, and 12 of 12 is more than `most_silent`; the reward did not rise.

    What to do:
        Grade answers more finely than right or wrong, and choose prompts that the model solves sometimes. Raise the
        temperature or the number of generations. Check that the answers reach the reward function uncut.

    References:
        Shao et al. (2024), DeepSeekMath (GRPO); Yu et al. (2025), DAPO (dynamic sampling).
    """

    code = "RWD002"
    name = "no-reward-signal"
    symptom = Symptom.NOT_LEARNING
    headline: ClassVar[tuple[str, ...]] = ("silent",)

    most_silent: Annotated[
        float, Threshold("share of points without any signal that fails", "fraction", "design", gt=0, le=1)
    ] = 0.8
    most_flat: Annotated[
        float, Threshold("groups without spread in the second half that warn", "fraction", "design", gt=0, le=1)
    ] = 0.8

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=REWARDS[0], any_of=REWARDS[1:], min_points=FEWEST_LEVELS),
            Need(role=_SIGNALS[0], any_of=_SIGNALS[1:], min_points=FEWEST_LEVELS),
            *Need.beside(*_SIGNALS[1:], "reward_part"),
        )

    def judge(self, evidence: Evidence) -> Finding:
        logged = [one.finite() for role in _SIGNALS if (one := evidence.find(role)) is not None]
        signals = [one for one in logged if len(one) >= FEWEST_LEVELS]
        flat, reward = evidence.curve("flat_share"), reward_of(evidence)
        if reward is None or not signals:
            return Finding.skipped("too few points can be compared")
        silences = [float(np.mean(_silent(one, reward))) for one in signals]
        silent = max(silences)
        signal = signals[silences.index(silent)]
        late = flat is not None and flat.between(0.5, 1.0).surely_above(self.most_flat)
        measured = {"silent": silent}
        if reward.rose or answers_are_right(evidence) or not (silent >= self.most_silent or late):
            said = f"{printable(signal.name)} is silent at {percent(silent)} of the points; {reward.said}"
            return Finding.passed(said, measured)
        if silent >= self.most_silent or flat is None:
            said = f"{printable(signal.name)}: {_SAID[str(signal.role)]} at {percent(silent)} of {len(signal)} points"
        else:
            said = f"{printable(flat.series.name)}: {percent(flat.between(0.5, 1.0).value)} of all groups had no spread"
        return Finding(
            verdict=Verdict.FAIL if silent >= self.most_silent else Verdict.WARN,
            message=f"{said}, which leaves nothing to learn from; {reward.said}",
            remedy=_REMEDY,
            measured=measured,
            steps=(int(signal.steps[int(np.argmax(_silent(signal, reward)))]), int(signal.steps[-1])),
            confidence="high" if reward.curve.sure else "low",
        )


def _silent(signal: Series, reward: Reward) -> npt.NDArray[np.bool_]:
    """At which points there was nothing to learn from."""
    if signal.role == "flat_share":
        return signal.values >= 1.0
    rounding = 2 * np.finfo(np.float32).eps * np.abs(reward.curve.levels).max()
    return np.abs(signal.values) <= (rounding if signal.role == "reward_spread" else 0.0)
