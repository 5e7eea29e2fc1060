"""CMP001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.evidence.numerics import median
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class OddOneOut(Probe):
    """The loss ended clearly higher than in the other runs of the same experiment.

    What it finds:
        A run whose curve looks ordinary by itself, but that ended worse than its siblings. The learning rate may be
        somewhat too high or too low, the data mixed up, or an augmentation left on.

    Why it matters:
        One run alone does not show such a fault. A comparison with the others does.

    How it decides:
        Runs are compared that log the same loss and are about as long (a quarter more steps at most). The end is the
        median of the last tenth of the points. Warn when it lies too far above that of at least `min_runs` others.
        It must lie above their median by `deviations` of their median absolute deviations, and by `worse` of its size.
        It must also lie above it by `worse` of what the others descended, as a rule.

    Known limits:
        Only where runs are read together: `tracker-health report` of several runs or of an experiment. If most runs
        have the same fault, it looks normal. The rule has no vote: runs that differ on purpose (in size, data,
        regularisation) end differently, and nothing says which of them should be alike. It should vote against a
        baseline that somebody chose and froze, not against whatever is in the same experiment.

    What to do:
        Compare this run's parameters with those of the others in the tracker.

    References:
        Hampel, The influence curve and its role in robust estimation, 1974.
    """

    code = "CMP001"
    name = "odd-one-out"
    symptom = Symptom.ODD_ONE_OUT
    status = "preview"
    headline = ("deviations",)

    deviations: Annotated[
        float, Threshold("distance from the others that counts", "median absolute deviations", "calibration", ge=0)
    ] = 5.0
    worse: Annotated[
        float,
        Threshold("distance that counts, of the others' end and of their descent", "fraction", "calibration", ge=0),
    ] = 0.15
    min_runs: Annotated[int, Threshold("other runs needed", "runs", "design", ge=3)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.SIBLINGS, min_points=self.min_runs, unit="runs"),)

    def judge(self, evidence: Evidence) -> Finding:
        siblings = evidence.siblings
        if siblings is None:
            raise LookupError("the rule's needs name the siblings")
        ends, own = np.array([one.end for one in siblings.others]), siblings.own.end
        usual, descent = median(ends), median([one.start - one.end for one in siblings.others])
        spread, above = median(np.abs(ends - usual)), own - usual
        deviations = above / spread if spread > 0 else 0.0
        measured = {"end": own, "usual_end": usual, "spread": spread, "runs": len(ends), "deviations": deviations}
        said = f"it ended at {number(own)}; {len(ends)} comparable runs around {number(usual)}"
        if not above > max(self.deviations * spread, self.worse * abs(usual), self.worse * descent):
            return Finding.passed(said, measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"the loss ended at {number(own)}, where {len(ends)} comparable runs ended around {number(usual)}, "
            f"give or take {number(spread)}",
            remedy="compare its parameters with those of the other runs",
            measured=measured,
        )
