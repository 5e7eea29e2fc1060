"""REG001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, Part, Series
from tracker_health.evidence.numerics import local_noise, median, median_error
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes.fine_tune._barrier import (
    Barrier,
    barrier_of,
    losses_of,
    number_of,
    resolution,
    usual_divergence,
)
from tracker_health.result import Confidence, Finding
from tracker_health.text import count, number
from tracker_health.verdict import Verdict

_WIRING = (
    "take the reference's logits with every adapter switched off, and look for kl > 0 after the first optimizer step"
)


@dataclass(frozen=True, kw_only=True)
class IdleBarrier(Probe):
    """The regulariser that was asked for never acted.

    What it finds:
        A divergence barrier whose KL never exceeded tau; a KL that is 0 all along, or from the start of a later round;
        a KL in a run that asks for none; weight decay that is not in the optimizer.

    Why it matters:
        Such a run is a plain fine-tune under another name, and what it is compared to is the same run once more.

    How it decides:
        By the params: `reg` (nll, wd, kl_fwd, kl_rev), `lam`, `tau`, and `round`. Fail when reg is a KL and the KL is 0
        at every point: the reference is the model itself. Fail when a later round (`round` above 1) begins at a KL of
        0: the reference is the model of the round before. Fail when there is a KL above 0 although reg is nll or wd.
        Warn when the KL never exceeded tau although lam is not 0: the run equals reg = nll. Warn when reg is wd and the
        checkpoint's weight decay is not lam. Zero means `zero` at most; of a log that rounds, half of its last digit,
        and then the nll must have come down, beyond two standard errors, by so much that the divergence would show: at
        least the gain squared over four times the first nll. A rounded KL as high as tau counts as
        one that reached it.

    Known limits:
        A barrier that never had to act can be good news. Console logs print some of the steps only: the KL may have
        exceeded tau between them. That a rounded KL is 0 is judged as if it were measured on the training data.

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
        float, Threshold("largest KL that counts as 0, where it is not rounded", "nats", "design", ge=0)
    ] = 1e-7
    min_points: Annotated[int, Threshold("points of the KL needed", "points", "design", ge=2)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="kl", any_of=(Part.OPTIMIZER_STATE,)),
            Need(role="train_loss", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        barrier = barrier_of(evidence)
        kl = evidence.find("kl")
        if barrier is None:
            return Finding(
                verdict=Verdict.SKIP, message="no param says what regularises it (reg: nll, wd, kl_fwd, kl_rev)"
            )
        if not barrier.is_divergence:
            return self._without_barrier(evidence, barrier, kl)
        if kl is None or len(kl.clean()) < self.min_points:
            points = count(len(kl.clean()) if kl is not None else 0, "point")
            return Finding(verdict=Verdict.SKIP, message=f"reg is {barrier.reg}, and there are {points} of its KL only")
        if barrier.lam == 0.0:
            return Finding(verdict=Verdict.SKIP, message="lam is 0: no barrier was asked for")
        if not len(kl.finite()):
            message = f"the KL is NaN or infinite at all {len(kl.clean())} points"
            return Finding(
                verdict=Verdict.FAIL, message=message, remedy="find the first step whose logits are not finite"
            )
        return self._barrier(evidence, barrier, kl)

    def _barrier(self, evidence: Evidence, barrier: Barrier, kl: Series) -> Finding:
        values = kl.finite().values
        step = resolution(kl, *(one for one in losses_of(evidence) if one is not None and one.source == kl.source))
        highest = float(values.max())
        measured: dict[str, float] = {"max_kl": highest, "points": len(values), "nonfinite": kl.clean().nonfinite}
        zero = max(self.zero, step)
        if float(np.abs(values).max()) <= zero and (wrong := self._pinned(evidence, step)):
            message = f"the KL is 0 at all {len(values)} points{wrong}: the reference is the model itself"
            return _miswired(message, measured, "medium" if step else "high")
        turn = number_of(evidence, "round") or 1.0
        if turn > 1 and abs(float(values[0])) <= zero < highest:
            message = f"round {number(turn)} begins at a KL of 0: the reference is the model of the round before"
            return _miswired(message, measured, "low" if step else "high")
        if barrier.tau is None:
            return Finding(verdict=Verdict.SKIP, message=f"no param says tau; the KL reached {number(highest)}")
        return self._against(barrier.tau, kl, measured, step)

    def _pinned(self, evidence: Evidence, step: float) -> str:
        """Words to go on with where a KL that shows as 0 must be 0; "" where its rounding may hide what it is."""
        if not step:
            return " exactly"
        nll = losses_of(evidence)[0]
        levels = nll.finite().values if nll is not None else np.empty(0)
        if len(levels) < self.min_points:
            return ""
        size = max(1, len(levels) // 5)
        before, after = median(levels[:size]), median(levels[-size:])
        unsure = 2.0 * float(np.sqrt(2.0)) * median_error(local_noise(levels), size)
        if before - after <= unsure or usual_divergence(before, after) <= step:
            return ""
        return f", although the nll came down from {number(before)} to {number(after)}"

    def _against(self, tau: float, kl: Series, measured: dict[str, float], step: float) -> Finding:
        values = kl.finite().values
        highest, fired = float(values.max()), float(np.mean(values > tau))
        measured |= {"tau": tau, "fired": fired} | ({"ratio": highest / tau} if tau > 0 else {})
        bad = kl.clean().nonfinite
        aside = f"; it is not finite at {bad} more" if bad else ""
        if highest > tau:
            message = f"the barrier acted at {fired:.0%} of {len(values)} points: the KL reached {number(highest)}, "
            message += f"tau is {number(tau)}"
            return Finding(verdict=Verdict.PASS, message=message + aside, measured=measured)
        if step and tau - highest <= step:
            message = f"the KL came up to tau, which is {number(tau)}, as far as a rounded log tells"
            return Finding(verdict=Verdict.PASS, message=message + aside, measured=measured, confidence="low")
        late = median(values[len(values) // 2 :])
        share = f" ({highest / tau:.0%})" if tau > 0 else ""
        return Finding(
            verdict=Verdict.WARN,
            message=f"the KL never exceeded tau: {number(highest)} of {number(tau)}{share} at most, at {len(values)} "
            f"points{aside}; the run equals reg = nll",
            remedy=f"take a tau below {number(late)} for a barrier that acts, or call the run one of reg = nll"
            if late > 0
            else "log the KL with more digits, and see whether the model moves at all",
            measured=measured,
        )

    def _without_barrier(self, evidence: Evidence, barrier: Barrier, kl: Series | None) -> Finding:
        values = kl.finite().values if kl is not None else np.empty(0)
        highest = float(values.max()) if len(values) else 0.0
        measured: dict[str, float] = {"max_kl": highest, "points": len(values)}
        if highest > self.zero:
            points = count(int(np.sum(values > self.zero)), "point")
            message = f"reg is {barrier.reg}, but the KL is above 0 at {points}, {number(highest)} at most"
            remedy = "find out which objective was trained: the setting and the KL exclude each other"
            return Finding(verdict=Verdict.FAIL, message=message, remedy=remedy, measured=measured)
        if barrier.reg == "wd":
            return _weight_decay(evidence, barrier, measured)
        return Finding(verdict=Verdict.PASS, message="reg is nll, and there is no KL", measured=measured)


def _miswired(message: str, measured: dict[str, float], confidence: Confidence) -> Finding:
    return Finding(verdict=Verdict.FAIL, message=message, remedy=_WIRING, measured=measured, confidence=confidence)


def _weight_decay(evidence: Evidence, barrier: Barrier, measured: dict[str, float]) -> Finding:
    """Whether lam is the optimizer's weight decay, where there is a checkpoint to tell."""
    groups = evidence.optimizer.groups if evidence.optimizer is not None else ()
    decays = [float(one["weight_decay"]) for one in groups if isinstance(one.get("weight_decay"), (int, float))]
    if not decays or barrier.lam is None:
        return Finding(
            verdict=Verdict.PASS, message="reg is wd, and there is no KL", measured=measured, confidence="low"
        )
    measured |= {"lam": barrier.lam, "weight_decay": max(decays)}
    if any(abs(one - barrier.lam) <= 1e-6 + 1e-3 * abs(barrier.lam) for one in decays):
        message = f"the optimizer's weight decay is lam, {number(barrier.lam)}"
        return Finding(verdict=Verdict.PASS, message=message, measured=measured)
    message = f"reg is wd with lam {number(barrier.lam)}, but the optimizer's weight decay is {number(max(decays))}"
    remedy = "give lam to the optimizer as its weight decay"
    return Finding(verdict=Verdict.WARN, message=message, remedy=remedy, measured=measured)
