"""LOS017."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Curve, Evidence, Part
from tracker_health.facts.resumes import jump_at, resumes_of, state_begins
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.rules.curves.curve_rule import CurveRule
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.text import contrast, number, percent
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class ResumeJump(CurveRule):
    """The loss jumps where the run was resumed.

    What it finds:
        A training loss that is clearly higher right after a resume than right before it.

    Why it matters:
        The checkpoint did not bring back all of the training: its optimizer's state, its weights or its place in the
        data are missing. The steps until the loss is back are lost, and the run may never come back.

    How it decides:
        A resume is where the log says so, where the step counter went back, or where the optimizer began to
        count. The latter needs a twentieth of the steps missing from its count. The median of three points
        after it is compared with that of five before. Warn when the rise clearly exceeds `rise_share` of the
        descent. A fifth of the best level counts as descent where the curve is flat. A pass says so where the
        optimizer's count begins inside the run.

    Known limits:
        A resume that nothing shows is not looked for. Three points on either side are needed. A resume on other data
        looks the same.

    Worked example:
        train_loss: 4 3.6 3.3 3.1 2.9 2.8 2.7 2.6 3.7 3.6 3.4 3.1
        resumed: 7
        gives: rise 0.8, rise_share 0.571
        warn: 3.6 after step 7 is 0.8 above 2.8 before it, 57 % of the descent of 1.4.

    What to do:
        Load weights, optimizer, schedule and random state from one checkpoint. Compare the first loss after the resume
        with the last one before it.

    References:
        Hugging Face Trainer, `resume_from_checkpoint`: it looks for `optimizer.pt` and `scheduler.pt`.
    """

    code = "LOS017"
    name = "resume-jump"
    symptom = Symptom.DIVERGED
    since = "0.2.0"
    headline = ("rise_share",)
    also = (Part.TEXT_LOG, Part.OPTIMIZER_STATE)

    rise_share: Annotated[
        float, Threshold("rise at a resume that counts, as a share of the descent", "fraction", "design", gt=0)
    ] = 0.15

    def judge_curve(self, curve: Curve, evidence: Evidence) -> Finding:
        resumes = resumes_of(evidence)
        # As it was logged: what a rise makes of the beginning is no matter here.
        curve = Curve.of(evidence.first(self.role).clean()) or curve
        if not resumes:
            return Finding.skipped("nothing says that the run was resumed")
        jumps = [(jump, resume) for resume in resumes if (jump := jump_at(curve, resume.step)) is not None]
        if not jumps:
            return Finding.skipped("too few points are before and after the resume")
        rise, resume = max(jumps, key=lambda one: one[0].value)
        share = rise.value / curve.size if curve.size else 0.0
        measured: dict[str, float | int] = {"rise": rise.value, "rise_share": share, "resumes": len(resumes)}
        where = curve.series.where(resume.step)
        if not rise.surely_above(self.rise_share * curve.size):
            began = state_begins(evidence)
            if began is not None:
                measured["state_begins"] = began
                return Finding.passed(
                    f"the optimizer's state begins at step {began}: what it had before is lost", measured
                )
            return Finding.passed(f"the loss continues as before at {where}, where the run was resumed", measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"the loss rose {_from_to(curve, resume.step, rise.value)} ({percent(share)} of its descent) where "
            f"the run was resumed, after {where} ({resume.by})",
            remedy="load weights, optimizer, schedule and random state from one checkpoint",
            measured=measured | {"at": resume.step},
            steps=(resume.step,),
            confidence="high" if curve.sure else "low",
            onset=Onset.on(curve.series, resume.step, "the run was resumed"),
        )


def _from_to(curve: Curve, step: int, rise: float) -> str:
    """``from 2.22 to 3.21``, as logged on both sides of a step; by how much, where noise hides that in one point."""
    before, after = curve.logged_at(step), curve.series.values[curve.series.steps > step]
    if len(after) and float(after[0]) > before:
        return "from {} to {}".format(*contrast(before, float(after[0])))
    return f"by {number(rise)}"
