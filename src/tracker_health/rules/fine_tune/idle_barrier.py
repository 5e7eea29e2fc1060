"""REG001."""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose
from typing import Annotated

import numpy as np

from tracker_health.evidence import Curve, Evidence, Need, Part, Series
from tracker_health.evidence.numerics import median
from tracker_health.report.result import Confidence, Finding
from tracker_health.rules.fine_tune import _barrier
from tracker_health.rules.fine_tune._barrier import Barrier, losses_of, number_of, rounding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import contrast, count, number, percent, setting, went
from tracker_health.words.verdict import Verdict

_WIRING = "take the reference's logits with every adapter switched off; kl > 0 has to follow the first optimizer step"


@dataclass(frozen=True, kw_only=True)
class IdleBarrier(Probe):
    """The regulariser that was asked for never acted.

    What it finds:
        A divergence barrier whose KL never exceeded tau. A KL that is always 0, or 0 from the start of a later round. A
        KL in a run that asks for none. Weight decay that is not in the optimizer.

    Why it matters:
        Such a run is a plain fine-tune under another name. A comparison with a plain fine-tune compares two equal runs.

    How it decides:
        From the params `reg` (nll, wd, kl_fwd, kl_rev), `lam`, `tau` and `round`. Fail where a KL was asked for
        and is 0 at every point, or as a later round begins. Fail where it is above 0, though reg is nll or wd.
        Warn when it never exceeded tau, or the checkpoint's weight decay is not the lam of wd. Zero is `zero`
        at most, or half a digit of a rounded log, if the nll clearly gained what makes more: its gain squared,
        over four times its start. It needs `min_points` points.

    Known limits:
        A barrier that never had to act can be good news. Console logs print some of the steps only: the KL may have
        exceeded tau between them. A rounded KL is compared with what the training data gained.

    Worked example:
        kl: 0 0.1 0.2 0.3 0.3 0.3 0.3 0.3
        param reg: kl_rev
        param lam: 2
        param tau: 0.5
        gives: max_kl 0.3, tau 0.5, ratio 0.6
        warn: the KL never exceeded 0.5, so that the barrier was 0 at every step.

    What to do:
        Where the KL is 0, switch the adapters off for the reference. Where it stays below tau, take a lower tau, or
        report the run as one without a barrier.

    References:
        Hinge penalties on the KL divergence to a reference model; the Pythagorean theorem of information geometry
        (Csiszar 1975), from which the relation of gain and divergence follows.
    """

    code = "REG001"
    name = "idle-barrier"
    symptom = Symptom.IDLE_REGULARISER
    headline = ("max_kl", "fired")

    zero: Annotated[
        float, Threshold("largest KL that counts as 0: the rounding of single precision", "nats", "design", ge=0)
    ] = 1e-6
    min_points: Annotated[int, Threshold("points of the KL needed", "points", "design", ge=2)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="kl", any_of=(Part.OPTIMIZER_STATE,)), *Need.beside("train_loss"))

    def judge(self, evidence: Evidence) -> Finding:
        barrier, kl = _barrier.barrier_of(evidence), evidence.find("kl")
        if barrier is None:
            return Finding.skipped("no param says what regularises it (reg: nll, wd, kl_fwd, kl_rev)")
        if not barrier.is_divergence:
            return self._without_barrier(evidence, barrier, kl)
        points = len(kl.clean()) if kl is not None else 0
        if kl is None or points < self.min_points:
            return Finding.skipped(f"reg is {barrier.reg}, and there are {count(points, 'point')} of its KL only")
        if barrier.lam == 0.0:
            return Finding.skipped("lam is 0: no barrier was asked for")
        if not len(kl.finite()):
            message, remedy = f"the KL is NaN or infinite at all {points} points", "find the first step of them"
            return Finding(verdict=Verdict.FAIL, message=message, remedy=remedy)
        return self._barrier(evidence, barrier, kl)

    def _barrier(self, evidence: Evidence, barrier: Barrier, kl: Series) -> Finding:
        values = kl.finite().values
        unit = rounding(kl, *(one for one in losses_of(evidence) if one is not None and one.source == kl.source))
        highest, zero, exact = float(values.max()), max(self.zero, unit), unit <= self.zero
        measured = {"max_kl": highest, "points": len(values), "nonfinite": kl.clean().nonfinite}
        gained = " exactly" if exact else _gained(evidence, unit)
        if float(np.abs(values).max()) <= zero and gained:
            message = f"the KL is 0 at all {len(values)} points{gained}: the reference is the model itself"
            return _miswired(message, measured, "high" if exact else "medium")
        turn = number_of(evidence, "round") or 1.0
        if turn > 1 and abs(float(values[0])) <= zero < highest:
            message = f"round {number(turn)} begins at a KL of 0: the reference is the model of the round before"
            return _miswired(message, measured, "high" if exact else "low")
        if barrier.tau is None:
            return Finding.skipped(f"no param says tau; the KL reached {number(highest)}")
        return _against(barrier.tau, kl, measured, 0.0 if exact else unit)

    def _without_barrier(self, evidence: Evidence, barrier: Barrier, kl: Series | None) -> Finding:
        values = kl.finite().values if kl is not None else np.empty(0)
        highest = float(values.max(initial=0.0))
        measured: dict[str, float] = {"max_kl": highest, "points": len(values)}
        if highest > self.zero:
            message = f"reg is {barrier.reg}, but the KL is above 0, {number(highest)} at most"
            remedy = "find out which objective was trained: the setting and the KL exclude each other"
            return Finding(verdict=Verdict.FAIL, message=message, remedy=remedy, measured=measured)
        groups = evidence.optimizer.groups if evidence.optimizer is not None else ()
        decays = [float(one["weight_decay"]) for one in groups if isinstance(one.get("weight_decay"), (int, float))]
        if barrier.reg != "wd" or barrier.lam is None or not decays:
            return Finding.passed(f"reg is {barrier.reg}, and there is no KL", measured, sure=barrier.reg == "nll")
        measured |= {"lam": barrier.lam, "weight_decay": max(decays)}
        message = f"reg is wd with lam {setting(barrier.lam)}, the optimizer's weight decay is {setting(max(decays))}"
        if any(isclose(one, barrier.lam) for one in decays):
            return Finding.passed(message, measured)
        remedy = "give lam to the optimizer as its weight decay"
        return Finding(verdict=Verdict.WARN, message=message, remedy=remedy, measured=measured)


def _gained(evidence: Evidence, unit: float) -> str:
    """What the nll gained, in words, where that shows that a divergence of 0 is no rounded one; else empty."""
    nll = losses_of(evidence)[0]
    curve = Curve.of(nll) if nll is not None else None
    if curve is None or not (curve.head - curve.end).surely_above(0.0):
        return ""
    before, after = curve.head.value, curve.end.value
    said = f", although the nll {went(before, after, 'came down')}"
    return said if _barrier.usual_divergence(before, after) > unit else ""


def _against(tau: float, kl: Series, measured: dict[str, float], unit: float) -> Finding:
    """Whether the barrier acted; ``unit``: half of the last digit of a log that rounds."""
    values, bad = kl.finite().values, kl.clean().nonfinite
    highest, fired, late = float(values.max()), float(np.mean(values > tau)), median(values[len(values) // 2 :])
    measured |= {"tau": tau, "fired": fired} | ({"ratio": highest / tau} if tau > 0 else {})
    share = f", {percent(highest / tau)} of tau," if tau > 0 else ""
    largest = contrast(highest, tau)[0]
    reached = f"the KL reached {largest}{share} at {len(values)} points; tau is {setting(tau)}"
    reached += f"; it is not finite at {bad} more" if bad else ""
    if highest > tau - unit:  # as far as a rounded log tells
        return Finding.passed(f"{reached}; the barrier acted at {percent(fired)}", measured, sure=highest > tau)
    remedy = f"take a tau below {number(late)} for a barrier that acts, or call the run one of reg = nll"
    return Finding(
        verdict=Verdict.WARN,
        message=f"{reached}: it never acted, and the run equals reg = nll",
        remedy=remedy if late > 0 else "log the KL with more digits, and see whether the model moves at all",
        measured=measured,
    )


def _miswired(message: str, measured: dict[str, float], confidence: Confidence) -> Finding:
    return Finding(verdict=Verdict.FAIL, message=message, remedy=_WIRING, measured=measured, confidence=confidence)
