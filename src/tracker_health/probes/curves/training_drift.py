"""LOS101."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tracker_health.evidence import DlmStepLog, Evidence, FloatArray, Need, Part
from tracker_health.evidence.numerics import median
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_CURVE_POINTS = 512
_CHUNK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class TrainingDrift(Probe):
    """Smoothness, convergence and instability of a step log, by the original arithmetic.

    What it finds:
        A loss curve that is rough, jumps, or ends too close to where it began, by the thresholds of the pre-run check
        that this rule comes from.

    Why it matters:
        Old reports and gates use these numbers; they are kept to the bit so that people can compare.

    How it decides:
        On `logs/train-*.jsonl`, lines of type `step`; a later line wins for a repeated step; non-finite losses count
        as instability events and are filled with the last finite one. Convergence ratio: last over first loss.
        Smoothness: 1 - var(diff(loss)) / var(loss), at least 0. An instability event is a rise of more than
        `spike_sigma` times the median absolute difference in a window of `rolling_window` around it. Pass when all
        three asserted thresholds hold, with the smoothness as the score; else warn with half of it.

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

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.DLM_STEP_LOG, min_points=self.min_steps, unit="steps"),)

    def judge(self, evidence: Evidence) -> Finding:
        log = evidence.dlm_step_log
        if log is None:
            return Finding(verdict=Verdict.SKIP, message="there is no step log")
        measured = self._measure(log.losses)
        missed = self._missed(measured)
        score = min(1.0, max(0.0, measured["smoothness"]))
        shown = (
            f"convergence ratio {number(measured['convergence_ratio'])}, smoothness {number(measured['smoothness'])}, "
            f"{int(measured['instability_events'])} instability events in {len(log)} steps"
        )
        return Finding(
            verdict=Verdict.WARN if missed else Verdict.PASS,
            score=score * 0.5 if missed else score,
            message=f"{shown}: {'; '.join(missed)}" if missed else shown,
            remedy="look at the loss curve where it jumps; lower the learning rate if it keeps jumping"
            if missed
            else "",
            measured=measured
            | {"raw": measured["smoothness"], "instability_events": int(measured["instability_events"])},
            details=self._details(log, measured),
        )

    def _measure(self, losses: FloatArray) -> dict[str, float]:
        filled, gaps = _fill(losses)
        if filled is None:
            unknown = math.nan
            return {
                "initial_loss": unknown,
                "final_loss": unknown,
                "convergence_ratio": unknown,
                "smoothness": 0.0,
                "instability_events": float(gaps),
            }
        initial, final = float(filled[0]), float(filled[-1])
        with np.errstate(all="ignore"):
            return {
                "initial_loss": initial,
                "final_loss": final,
                "convergence_ratio": final / initial if initial else math.inf,
                "smoothness": _smoothness(filled),
                "instability_events": float(gaps + _spikes(np.diff(filled), self.rolling_window, self.spike_sigma)),
            }

    def _missed(self, measured: dict[str, float]) -> list[str]:
        missed = []
        if not measured["smoothness"] >= self.assert_smoothness_gte:
            missed.append(f"smoothness below {number(self.assert_smoothness_gte)}")
        if not measured["instability_events"] <= self.assert_instability_events_lte:
            missed.append(f"more than {self.assert_instability_events_lte} instability events")
        if not measured["convergence_ratio"] <= self.assert_convergence_ratio_lte:
            missed.append(f"convergence ratio above {number(self.assert_convergence_ratio_lte)}")
        return missed

    def _details(self, log: DlmStepLog, measured: dict[str, float]) -> dict[str, Any]:
        return {
            **measured,
            "instability_events": int(measured["instability_events"]),
            "num_steps": len(log),
            "num_log_files": len(log.files),
            "log_paths": list(log.files),
            "thresholds": dict(self.thresholds),
            "curve_sampled": _sampled(log),
        }


def _fill(losses: FloatArray) -> tuple[FloatArray | None, int]:
    """The losses with non-finite ones replaced by the last finite one (leading ones by the first), and how many were;
    None if none is finite.
    """
    finite = np.isfinite(losses)
    gaps = int(np.count_nonzero(~finite))
    if not finite.any():
        return None, gaps
    index = np.where(finite, np.arange(len(losses)), -1)
    last = np.maximum.accumulate(index)
    last[last < 0] = int(np.argmax(finite))
    return np.ascontiguousarray(losses[last]), gaps


def _smoothness(losses: FloatArray) -> float:
    variance = float(np.var(losses))
    if variance == 0.0:
        return 0.0
    return max(0.0, 1.0 - float(np.var(np.diff(losses))) / variance)


def _spikes(differences: FloatArray, window: int, sigma: float) -> int:
    """Rises of more than sigma times the typical absolute difference around them."""
    magnitudes = np.abs(differences)
    if len(differences) < window:
        baseline = median(magnitudes) if len(magnitudes) else 0.0
        return int(np.count_nonzero(differences > sigma * baseline)) if baseline else 0
    baselines = _medians_around(magnitudes, window // 2)
    return int(np.count_nonzero((differences > 0) & (differences > sigma * baselines)))


def _medians_around(magnitudes: FloatArray, half: int) -> FloatArray:
    """For each value the median of the ``half`` values on either side (fewer at the ends), without itself; 0 where
    there is none.
    """
    n, width = len(magnitudes), 2 * half + 1
    medians = np.empty(n)
    edges = range(n) if n < width else [*range(half), *range(n - half, n)]
    for index in edges:
        low = max(0, index - half)
        around = np.delete(magnitudes[low : index + half + 1], index - low)
        medians[index] = median(around) if len(around) else 0.0
    others = np.delete(np.arange(width), half)
    for start in range(half, n - half, _CHUNK):  # in pieces: the windows take 2 x half times the memory of the values
        stop = min(start + _CHUNK, n - half)
        windows = sliding_window_view(magnitudes[start - half : stop + half], width)
        medians[start:stop] = np.median(windows[:, others], axis=1)
    return medians


def _sampled(log: DlmStepLog) -> list[list[float | int | None]]:
    n = len(log)
    stride = max(1, math.ceil(n / _CURVE_POINTS))
    indices = list(range(0, n, stride))
    if indices and indices[-1] != n - 1:
        indices.append(n - 1)
    return [[int(log.steps[i]), float(log.losses[i]) if np.isfinite(log.losses[i]) else None] for i in indices]
