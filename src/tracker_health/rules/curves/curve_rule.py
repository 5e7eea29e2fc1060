"""What rules about one role's curve share: fetching it, and saying that it is too short."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from tracker_health.evidence import FEWEST_LEVELS, Curve, Evidence, Need
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe
from tracker_health.text import count


class CurveRule(Probe):
    """A rule that judges the curve of a role.

    Class variables: ``role`` is judged, of ``fewest`` points or more that can be compared; ``also`` are optional roles
    that the rule looks at besides.
    """

    role: ClassVar[str] = "train_loss"
    also: ClassVar[tuple[str, ...]] = ()
    fewest: ClassVar[int] = FEWEST_LEVELS

    @property
    def needs(self) -> tuple[Need, ...]:
        optional = ("objective_weight", "learning_rate", *self.also)
        return (
            Need(role=self.role, min_points=self.fewest),
            *Need.beside(*dict.fromkeys(optional)),
        )

    def judge(self, evidence: Evidence) -> Finding:
        """The finding on the curve of ``role``.

        Args:
            evidence: What was read of the run.

        Returns:
            What ``judge_curve`` finds, or a skip where too few points can be compared.
        """
        curve = evidence.curve(self.role)
        if curve is None or curve.points < self.fewest:
            only = count(curve.points if curve is not None else 0, "point")
            return Finding.skipped(f"only {only} can be compared, {self.fewest} are needed")
        return self.judge_curve(curve, evidence)

    @abstractmethod
    def judge_curve(self, curve: Curve, evidence: Evidence) -> Finding:
        """The finding on a curve that is long enough.

        Args:
            curve: Of the rule's ``role``.
            evidence: What else was read of the run.

        Returns:
            As for ``Probe.judge``.
        """
