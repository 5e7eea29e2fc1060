"""CMP001."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from tracker_health.evidence import Baseline, Course, Evidence, Need, Part
from tracker_health.evidence.numerics import median
from tracker_health.report.baseline import differences
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, number
from tracker_health.words.verdict import Verdict

_NOTHING_DIFFERS = "no param differs from theirs: look at the data, the code and its version"


@dataclass(frozen=True, kw_only=True)
class OddOneOut(Probe):
    """The loss stayed clearly above that of comparable runs.

    What it finds:
        A run whose curve looks ordinary by itself, and that is worse than its siblings: a learning rate that is
        somewhat too high or too low, data that was mixed up, an augmentation that was left on.

    Why it matters:
        Such a fault cannot be seen from one run. Beside the others it is plain.

    How it decides:
        Against a baseline, levels are compared at each twentieth of the plan. Warn when half of them lie above the
        highest of its runs by `above` of what these descended, or of the spread of their ends.
        Beside other runs the ends are compared: the median of the last tenth of the points. Warn when that lies above
        the median of at least `min_runs` others by `deviations` of their median absolute deviations. It must also lie
        above it by `worse` of its size and of their descent.

    Known limits:
        Only where runs are read together (`tracker-health report` of several), or beside a baseline (`--against`). It
        votes only against a baseline that somebody chose and froze into a file. Runs that merely lie beside a run may
        differ on purpose, in size, data or regularisation: what they show is advice. Where most runs have the same
        fault, they are the rule.

    What to do:
        Look at what this run has that the others have not: a finding against a baseline lists the params that differ.

    References:
        Hampel, The influence curve and its role in robust estimation, 1974.
    """

    code = "CMP001"
    name = "odd-one-out"
    symptom = Symptom.ODD_ONE_OUT
    status = "preview"
    headline = ("deviations",)

    above: Annotated[
        float,
        Threshold("distance above a baseline that counts, of its descent", "fraction", "calibration", ge=0),
    ] = 0.2
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
        return (Need(role=Part.SIBLINGS, any_of=(Part.BASELINE,), min_points=self.min_runs, unit="runs"),)

    def judge(self, evidence: Evidence) -> Finding:
        if evidence.baseline is not None and evidence.course is not None:
            return self.judged_against(evidence.baseline, evidence.course, evidence.info.params)
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

    def judged_against(self, baseline: Baseline, course: Course, params: Mapping[str, str]) -> Finding:
        """What a baseline shows of a run that can be compared to it."""
        over = float(np.nanmedian(baseline.above(course)))
        share = over / baseline.scale if baseline.scale > 0 else 0.0
        measured = {"end": course.end, "usual_end": baseline.end[1], "above": share, "runs": len(baseline.runs)}
        details = {"baseline": baseline.digest, "frozen": baseline.frozen}
        runs = count(len(baseline.runs), "healthy run")
        at = "ended" if course.reached is None else "is"
        ended = (
            f"it {at} at {number(course.end)}; {runs} between {number(baseline.end[0])} and {number(baseline.end[2])}"
        )
        if not share > self.above:
            return replace(Finding.passed(ended, measured), details=details)
        step, found = baseline.left_at(course), differences(params, baseline)
        by = f"by {number(over)} at half of the levels"
        so_far = f"at step {course.reached} of {course.length} the loss lies above the band of {runs}, {by} from step"
        whole = f"from step {step} on the loss lies above that of {runs}, {by}; {ended}"
        return Finding(
            verdict=Verdict.WARN,
            message=whole if course.reached is None else f"{so_far} {step} on",
            remedy=f"look at what differs: {'; '.join(map(str, found[:2]))}" if found else _NOTHING_DIFFERS,
            measured=measured,
            details={**details, "differs": [one._asdict() for one in found]},
            steps=() if step is None else (step,),
        )
