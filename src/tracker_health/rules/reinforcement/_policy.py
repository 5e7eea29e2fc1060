"""What rules about a trained policy share: a curve is judged next to the reward, which says whether it did harm."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from tracker_health.evidence import FEWEST_LEVELS, Curve, Evidence, Need
from tracker_health.facts.policy import Reward, reward_of
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.roles import REWARDS
from tracker_health.rules.probe import Probe
from tracker_health.text import printable, short_name, went
from tracker_health.words.verdict import Verdict


class PolicyRule(Probe):
    """A rule that judges the curve of a role next to the reward: what is seen while the reward rose did no harm."""

    role: ClassVar[str]

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=self.role, min_points=FEWEST_LEVELS),
            Need(role=REWARDS[0], any_of=REWARDS[1:], min_points=FEWEST_LEVELS),
        )

    def judge(self, evidence: Evidence) -> Finding:
        curve, reward = self.curve(evidence), reward_of(evidence)
        if curve is None or curve.points < FEWEST_LEVELS or reward is None:
            return Finding.skipped("too few points can be compared")
        return self.judge_policy(evidence, curve, reward)

    def curve(self, evidence: Evidence) -> Curve | None:
        """What is judged, of the evidence."""
        return evidence.curve(self.role)

    @abstractmethod
    def judge_policy(self, evidence: Evidence, curve: Curve, reward: Reward) -> Finding:
        """The finding on curves that are long enough."""


def levels(curve: Curve) -> dict[str, float]:
    """What a finding has of a curve."""
    return {"start": curve.start.value, "peak": curve.peak.value, "end": curve.end.value}


def fell_at(curve: Curve) -> int:
    """The step from which a curve is below the middle of its best level and its end."""
    loss = curve.upside_down
    return loss.left((loss.best.value + loss.end.value) / 2.0)


def course(curve: Curve) -> str:
    """``kl went from 0.1 to 20``."""
    return f"{printable(curve.series.name)} {went(curve.start.value, curve.end.value, levels=True)}"


def wrong(curve: Curve, reward: Reward, said: str, remedy: str, since: int | None = None, *, kind: str = "") -> Finding:
    """What harmed a policy: a failure where its reward clearly fell, otherwise a warning."""
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
    measured: dict[str, float] | None = None,
) -> Finding:
    """What is wrong with a curve; of few points, or where another curve next to it is not ``sure``, a warning.
    ``since``: where it began, of what was right before.
    """
    sure = sure and curve.sure
    what = f"{short_name(curve.series.name)} left its course"
    return Finding(
        verdict=Verdict.FAIL if fails and sure else Verdict.WARN,
        message=said,
        remedy=remedy,
        measured=levels(curve) if measured is None else measured,
        steps=(int(curve.series.steps[0]) if since is None else since, curve.last_step),
        confidence="high" if sure else "low",
        kind=kind,
        about=(curve.series.name,),
        onset=None if since is None else Onset.on(curve.series, since, what),
    )


def harmless(curve: Curve, reward: Reward) -> Finding:
    """Nothing to object to."""
    return Finding.passed(f"{course(curve)}; {reward.said}", levels(curve))
