"""CMP001."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from tracker_health.evidence import Baseline, Course, Evidence, Need, Part, place_of
from tracker_health.facts.applied import as_logged
from tracker_health.report.baseline import differences
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import contrast, count, number
from tracker_health.words.verdict import Verdict

_NOTHING_DIFFERS = "no param differs from theirs: look at the data, the code and its version"


@dataclass(frozen=True, kw_only=True)
class OddOneOut(Probe):
    """The loss stayed clearly above that of healthy runs.

    What it finds:
        A run whose curve looks ordinary by itself, and that is worse than healthy runs of its kind: a learning rate
        that is somewhat too high or too low, data that was mixed up, an augmentation that was left on.

    Why it matters:
        Such a fault cannot be seen from one run. Compared with healthy ones it is plain.

    How it decides:
        The run's levels are compared with those of a baseline at each twentieth of the plan. Warn when half of them
        are above the highest of its runs by `above` of what these descended, or of the spread of their ends. The
        baseline needs `min_runs` runs.

    Known limits:
        Only with `--against`. It votes only against a baseline that someone froze into a file. Runs that are named by
        `--against` themselves may differ on purpose, in size, data or regularisation: what they show is advice. A fault
        that the runs of the baseline have, too, is not found.

    What to do:
        Look at what this run has that the others have not: the finding lists the params that differ.

    References:
        None: plain comparisons.
    """

    code = "CMP001"
    name = "odd-one-out"
    symptom = Symptom.ODD_ONE_OUT
    headline = ("above",)

    above: Annotated[
        float,
        Threshold("distance above a baseline that counts, of its descent", "fraction", "calibration", ge=0),
    ] = 0.2
    min_runs: Annotated[int, Threshold("runs of the baseline needed", "runs", "design", ge=3)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.BASELINE, min_points=self.min_runs, unit="runs"),)

    def judge(self, evidence: Evidence) -> Finding:
        if evidence.baseline is None or evidence.course is None:
            raise LookupError("the rule's needs name the baseline")
        return self.judged_against(evidence.baseline, evidence.course, as_logged(evidence))

    def judged_against(self, baseline: Baseline, course: Course, params: Mapping[str, str]) -> Finding:
        """What a baseline shows of a run that can be compared to it."""
        over = float(np.nanmedian(baseline.above(course)))
        share = over / baseline.scale if baseline.scale > 0 else 0.0
        measured = {"end": course.end, "usual_end": baseline.end[1], "above": share, "runs": len(baseline.runs)}
        details = {"baseline": baseline.digest, "frozen": baseline.frozen}
        runs = count(len(baseline.runs), "healthy run")
        at = "ended" if course.reached is None else "is"
        end, low, high = contrast(course.end, baseline.end[0], baseline.end[2])
        ended = f"it {at} at {end}; {runs} between {low} and {high}"
        if not share > self.above:
            return replace(Finding.passed(ended, measured), details=details)
        step, found = baseline.left_at(course), differences(params, baseline)
        by = f"by {number(over)} at half of the levels"
        since = "the beginning" if step is None else place_of(step, course.unit)
        reached = "" if course.reached is None else place_of(course.reached, course.unit)
        so_far = f"at {reached} of {course.length} the loss is above the band of {runs}, {by} from {since} on"
        whole = f"from {since} on the loss is above that of {runs}, {by}; {ended}"
        alone = f"; {found[0]}" if len(found) == 1 else ""  # a headline has room for one
        return Finding(
            verdict=Verdict.WARN,
            message=(whole if course.reached is None else so_far) + alone,
            remedy=f"look at what differs: {'; '.join(map(str, found[:2]))}" if found else _NOTHING_DIFFERS,
            measured=measured,
            details={**details, "differs": [one._asdict() for one in found]},
            steps=() if step is None else (step,),
            about=(course.metric,),
        )
