"""LOS101."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, nan
from typing import Annotated

import numpy as np

from tracker_health.evidence import DlmStepLog, Evidence, FloatArray, Need, Part
from tracker_health.evidence.numerics import median, medians_around
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import contrast
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class TrainingDrift(Probe):
    """Smoothness, convergence and instability of a step log, by the original arithmetic.

    What it finds:
        A loss curve that is rough, jumps, or ends too close to where it began. The thresholds are those of the pre-run
        check that this rule comes from.

    Why it matters:
        Old reports and gates use these numbers; they are kept to the bit so that people can compare.

    How it decides:
        On lines of type `step` in `logs/train-*.jsonl`; the last line of a step wins. Non-finite losses are
        instability events and become the last finite one. Convergence ratio: last over first loss. Smoothness:
        1 - var(diff(loss)) / var(loss), at least 0. An instability event is a rise of more than `spike_sigma`
        times the median absolute difference in a window of `rolling_window` around it. Pass when all three
        asserted thresholds hold, with the smoothness as the score; else warn with half of it. The details have
        the curve at `curve_points` steps. It needs `min_steps` optimizer steps. The smoothness must reach
        `assert_smoothness_gte`, the convergence ratio may be `assert_convergence_ratio_lte` at most, and the
        instability events `assert_instability_events_lte`.

    Known limits:
        On 88 % of healthy small models these thresholds warn or fail: events grow with the length of a run, and a
        converged plateau counts as rough. Outside the preset `dlm` the rule therefore measures without a vote.

    What to do:
        Look at the curve; prefer the findings of LOS001 to LOS005, which are calibrated.

    References:
        The pre-run check for adapters that these rules were taken from.
    """

    code = "LOS101"
    name = "training-drift"
    symptom = Symptom.UNSTABLE
    vouches = True
    headline = ("convergence_ratio", "smoothness", "instability_events", "final_loss")

    min_steps: Annotated[int, Threshold("logged steps needed", "steps", "original rule", ge=2)] = 10
    rolling_window: Annotated[
        int, Threshold("differences in the window around a rise", "steps", "original rule", ge=2)
    ] = 10
    spike_sigma: Annotated[
        float, Threshold("rise over the median absolute difference that is an event", "ratio", "original rule", gt=0)
    ] = 3.0
    assert_smoothness_gte: Annotated[float, Threshold("smoothness needed", "fraction", "original rule", ge=0, le=1)] = (
        0.7
    )
    assert_convergence_ratio_lte: Annotated[
        float, Threshold("last over first loss allowed", "ratio", "original rule", gt=0)
    ] = 0.7
    assert_instability_events_lte: Annotated[
        int, Threshold("instability events allowed", "events", "original rule", ge=0)
    ] = 0
    curve_points: Annotated[
        int, Threshold("steps of the curve in the details, at most", "steps", "original rule", ge=1)
    ] = 512

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.DLM_STEP_LOG, min_points=self.min_steps, unit="steps"),)

    def judge(self, evidence: Evidence) -> Finding:
        log = evidence.dlm_step_log
        if log is None:
            return Finding.skipped("there is no step log")
        filled = _filled(log.losses)
        events = len(log) - int(np.isfinite(log.losses).sum()) + self._spikes(filled)
        measured = _levels(filled) | {"instability_events": events}
        smoothness, ratio = measured["smoothness"], measured["convergence_ratio"]
        smooth, smooth_limit = contrast(smoothness, self.assert_smoothness_gte)
        converged, ratio_limit = contrast(ratio, self.assert_convergence_ratio_lte)
        missed = [
            said
            for holds, said in (
                (smoothness >= self.assert_smoothness_gte, f"smoothness below {smooth_limit}"),
                (events <= self.assert_instability_events_lte,
                 f"more than {self.assert_instability_events_lte} instability events"),
                (ratio <= self.assert_convergence_ratio_lte,
                 f"convergence ratio above {ratio_limit}"),
            )
            if not holds
        ]  # fmt: skip
        score = min(1.0, max(0.0, smoothness))
        said = f"convergence ratio {converged}, smoothness {smooth}"
        said = f"{said}, {events} instability events in {len(log)} steps"
        jumps = "look at the loss curve where it jumps; lower the learning rate if it keeps jumping"
        return Finding(
            verdict=Verdict.WARN if missed else Verdict.PASS,
            score=score * 0.5 if missed else score,
            message=f"{said}: {'; '.join(missed)}" if missed else said,
            remedy=jumps if missed else "",
            measured=measured | {"raw": smoothness},
            details=measured
            | {"num_steps": len(log), "num_log_files": len(log.files), "log_paths": list(log.files)}
            | {"thresholds": dict(self.thresholds), "curve_sampled": self._sampled(log)},
        )

    def _spikes(self, filled: FloatArray) -> int:
        """How many rises are far above the typical difference around them."""
        with np.errstate(all="ignore"):  # of numbers near the largest
            rises = np.diff(filled)
        sizes = np.abs(rises)
        if len(rises) < self.rolling_window:
            typical = np.full(len(rises), (median(sizes) if len(sizes) else 0.0) or inf)
        else:
            typical = np.nan_to_num(medians_around(sizes, self.rolling_window // 2), posinf=inf)
        return int(np.count_nonzero((rises > 0) & (rises > self.spike_sigma * typical)))

    def _sampled(self, log: DlmStepLog) -> list[list[float | int | None]]:
        """Steps and losses at even distances, and the last."""
        at = np.unique(np.append(np.arange(0, len(log), ceil(len(log) / self.curve_points)), len(log) - 1))
        return [[int(log.steps[i]), float(log.losses[i]) if np.isfinite(log.losses[i]) else None] for i in at]


def _filled(losses: FloatArray) -> FloatArray:
    """The losses with non-finite ones replaced by the last finite one, and leading ones by the first."""
    finite = np.isfinite(losses)
    if not finite.any():
        return np.empty(0)
    last = np.maximum.accumulate(np.where(finite, np.arange(len(losses)), np.argmax(finite)))
    return np.ascontiguousarray(losses[last])


def _levels(filled: FloatArray) -> dict[str, float]:
    """First and last loss, their ratio, and how smooth the curve is between them."""
    if not len(filled):
        return {"initial_loss": nan, "final_loss": nan, "convergence_ratio": nan, "smoothness": 0.0}
    initial, final = float(filled[0]), float(filled[-1])
    with np.errstate(all="ignore"):
        spread, jumps = float(np.var(filled)), float(np.var(np.diff(filled)))
    return {
        "initial_loss": initial,
        "final_loss": final,
        "convergence_ratio": final / initial if initial else inf,
        "smoothness": max(0.0, 1.0 - jumps / spread) if spread else 0.0,
    }
