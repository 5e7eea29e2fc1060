"""What rules about a trained policy share: how its reward fared, which says whether what else is seen did harm."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from tracker_health.evidence import FEWEST_LEVELS, LIKELY, SURELY, Curve, Estimate, Evidence, Need
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.roles import REWARDS
from tracker_health.rules.probe import Probe
from tracker_health.text import number, printable, short_name
from tracker_health.words.verdict import Verdict


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


class PolicyRule(Probe):
    """A rule that judges the curve of a role beside the reward: what is seen while the reward rose did no harm."""

    role: ClassVar[str]

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=self.role, min_points=FEWEST_LEVELS),
            Need(role=REWARDS[0], any_of=REWARDS[1:], min_points=FEWEST_LEVELS),
        )

    def judge(self, evidence: Evidence) -> Finding:
        curve, reward = evidence.curve(self.role), reward_of(evidence)
        if curve is None or curve.points < FEWEST_LEVELS or reward is None:
            return Finding.skipped("too few points can be compared")
        return self.judge_policy(curve, reward)

    @abstractmethod
    def judge_policy(self, curve: Curve, reward: Reward) -> Finding:
        """The finding on curves that are long enough."""


def levels(curve: Curve) -> dict[str, float]:
    """What a finding has of a curve."""
    return {"start": curve.start.value, "peak": curve.peak.value, "end": curve.end.value}


def course(curve: Curve) -> str:
    """``kl went from 0.1 to 20``."""
    return f"{printable(curve.series.name)} went from {number(curve.start.value)} to {number(curve.end.value)}"


def wrong(curve: Curve, reward: Reward, said: str, remedy: str, since: int | None = None, *, kind: str = "") -> Finding:
    """What harmed a policy: a failure where its reward surely fell, otherwise a warning."""
    said = f"{said}, while {reward.said}"
    return found(curve, said, remedy, since, fails=reward.fell, sure=reward.curve.sure, kind=kind)


def found(
    curve: Curve,
    said: str,
    remedy: str,
    since: int | None = None,
    *,
    fails: bool = False,
    sure: bool = True,
    kind: str = "",
) -> Finding:
    """What is wrong with a curve; of few points, or where another curve beside it is not ``sure``, a warning.
    ``since``: where it began, of what was right before.
    """
    sure = sure and curve.sure
    what = f"{short_name(curve.series.name)} left its course"
    return Finding(
        verdict=Verdict.FAIL if fails and sure else Verdict.WARN,
        message=said,
        remedy=remedy,
        measured=levels(curve),
        steps=(int(curve.steps[0]) if since is None else since, curve.last_step),
        confidence="high" if sure else "low",
        kind=kind,
        onset=None if since is None else Onset(step=since, unit=curve.series.step_unit, what=what),
    )


def harmless(curve: Curve, reward: Reward) -> Finding:
    """Nothing to object to."""
    return Finding.passed(f"{course(curve)}; {reward.said}", levels(curve))
