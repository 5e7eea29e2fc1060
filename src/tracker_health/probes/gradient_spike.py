"""GRD002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, IntArray, Need, Series
from tracker_health.evidence.numerics import jumps, local_noise, median, median_error
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import count, number
from tracker_health.verdict import Verdict

_AROUND = 8
_LEAST_LEAP = np.log(2.0)
_FEWEST = 10
_SEVERAL, _FEW = 3, 0.2  # wild norms, and their share
_BEYOND = 3.0  # times the highest of the first tenth: gradients of a loss that is learnt come down by as much


@dataclass(frozen=True, kw_only=True)
class GradientSpike(Probe):
    """A gradient leapt up, and the loss was worse for it afterwards, or several leapt far.

    What it finds:
        Steps whose gradient norm lies far above those before, and after which the loss stood higher than it had.

    Why it matters:
        One step along such a gradient throws the weights away from where they were. Most spikes do no harm at all (a
        gradient 80 times the usual one went by without a trace); this finds those that did.

    How it decides:
        A causal Hampel filter on the logarithm of the norm: a spike lies `sigmas` robust deviations above the median
        before it and is at least twice as large. It counts when the median of the eight losses after it lies above
        that of the eight before by `effect_share` of the whole descent *and* by four standard errors. Warn at the
        first that counts. Warn also, whatever the loss does and from 10 norms on, when three of them or more lie
        `wild` times above the median of all behind the first tenth and three times above the highest within it, and
        these are few (a fifth at most).

    Known limits:
        Needs gradient norms and losses of the same steps, 40 of each, to see what harm a spike does; averaged logs hide
        spikes.

    What to do:
        Clip gradients at the norm given; look at the batch of the step.

    References:
        Hampel (1974); Pascanu et al. (2013) on clipping.
    """

    code = "GRD002"
    name = "gradient-spike"
    symptom = Symptom.SPIKES

    sigmas: Annotated[float, Threshold("deviations of the log norm", "sigma", "design", gt=0)] = 8.0
    effect_share: Annotated[
        float, Threshold("rise of the loss after it, as a share of the descent", "fraction", "calibration", gt=0)
    ] = 0.3
    wild: Annotated[
        float, Threshold("norms above the median that are wild, whatever they do", "ratio", "calibration", gt=1)
    ] = 300.0
    min_points: Annotated[int, Threshold("points of both needed", "points", "design", ge=20)] = 40

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="grad_norm", min_points=_FEWEST), Need(role="train_loss", optional=True))

    def judge(self, evidence: Evidence) -> Finding:
        norm, losses = _positive(evidence.first("grad_norm")), evidence.find("train_loss")
        loss = losses.finite() if losses is not None else None
        wild = self._wild(norm)
        if len(wild):
            return _strange(norm, wild)
        if loss is None or min(len(norm), len(loss)) < self.min_points:
            return Finding(verdict=Verdict.SKIP, message="too few finite points of gradient norm and loss")
        logs = np.log(norm.values)
        above, scores = jumps(logs)
        # Norms that were logged after clipping hardly differ, and the least difference would be a spike.
        spikes = np.flatnonzero((scores >= self.sigmas) & (above >= _LEAST_LEAP))
        rises = np.array([_rise(loss, int(norm.steps[index])) for index in spikes[:1000]])
        descent = max(float(loss.values[0] - np.quantile(loss.values, 0.05)), 0.0)
        floor = max(self.effect_share * descent, 4.0 * np.sqrt(2.0) * median_error(local_noise(loss.values), _AROUND))
        harmful = spikes[:1000][rises > floor] if len(spikes) else spikes
        usual = float(np.exp(np.quantile(logs, 0.95)))
        measured = {"spikes": len(spikes), "harmful": len(harmful), "norm_95": usual}
        if not len(harmful):
            return Finding(
                verdict=Verdict.PASS,
                message=f"{count(len(spikes), 'gradient spike')}, none with an effect on the loss",
                measured=measured,
            )
        worst = harmful[np.argmax(scores[harmful])]
        step = int(norm.steps[worst])
        return Finding(
            verdict=Verdict.WARN,
            message=f"the gradient norm leapt to {number(float(norm.values[worst]))} at step {step}, and the loss was "
            f"higher afterwards ({count(len(harmful), 'such step')})",
            remedy=f"clip gradients at {number(usual)}, this run's 95th percentile; look at the batch of step {step}",
            measured=measured,
            steps=tuple(int(one) for one in norm.steps[harmful[:100]]),
        )

    def _wild(self, norm: Series) -> IntArray:
        """The places of norms that lie far out, where there are some and they are few."""
        first = len(norm) // 10
        usual = median(norm.values[first:]) if len(norm) >= _FEWEST else np.inf
        early = float(norm.values[: max(1, first)].max(initial=0.0))
        far = (norm.values[first:] / self.wild > usual) & (norm.values[first:] > _BEYOND * early)
        places = first + np.flatnonzero(far)
        return places if _SEVERAL <= len(places) <= _FEW * len(norm) else places[:0]


def _strange(norm: Series, places: IntArray) -> Finding:
    usual, worst = median(norm.values), places[np.argmax(norm.values[places])]
    step = int(norm.steps[worst])
    return Finding(
        verdict=Verdict.WARN,
        message=f"{len(places)} of {len(norm)} gradient norms lie far out, up to "
        f"{number(float(norm.values[worst]))} at step {step}; {number(usual)} is usual",
        remedy=f"look at the batch of step {step} for broken samples; clip gradients at {number(10.0 * usual)}",
        measured={"spikes": len(places), "usual": usual, "highest": float(norm.values[worst])},
        steps=tuple(int(one) for one in norm.steps[places[:100]]),
    )


def _positive(series: Series) -> Series:
    finite = series.finite()
    return finite.at(np.flatnonzero(finite.values > 0))


def _rise(loss: Series, step: int) -> float:
    """The median loss of the next few points over that of the last few before a step."""
    at = int(np.searchsorted(loss.steps, step))
    before, after = loss.values[max(0, at - _AROUND) : at], loss.values[at + 1 : at + 1 + _AROUND]
    if len(before) < _AROUND // 2 or len(after) < _AROUND // 2:
        return 0.0
    return float(median(after) - median(before))
