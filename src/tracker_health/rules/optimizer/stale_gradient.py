"""OPT005."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, OptimizerState, Part, Series
from tracker_health.evidence.numerics import median
from tracker_health.evidence.parameters.steps import signal_to_noise, weighted_median
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class StaleGradient(Probe):
    """Gradients pile up from step to step.

    What it finds:
        An Adam state in which almost every gradient pointed in the direction of the one before, as when `zero_grad` is
        forgotten.

    Why it matters:
        Each step then goes along the sum of all gradients so far instead of the present one. The loss may well come
        down for a while, and nothing fails.

    How it decides:
        The signal-to-noise ratio of a parameter is the mean of the squared first moment over the second, both
        with bias correction. Under gradients of pure noise it is 0.053 (b1 = 0.9), under constant ones 1, under
        growing ones more. Fail when the median over the parameters, by their size, is above `max_ratio`, and
        all but `least_share` of them are above `least_ratio`. Where the logged gradient norm is rough, the
        median has to be above `sure_ratio`. Rough is a median second difference of its logarithm of
        `max_roughness` or more. It needs `min_steps` optimizer steps. Roughness counts from
        `min_points` gradient norms on.

    Known limits:
        Full-batch training and training on one batch have the same ratio. So do gradients that all have one direction
        because nothing moves. Gradients that are clipped before each step forget what has accumulated. Needs Adam's two
        moments (b1 of 0.7 or more). A smooth gradient norm alone may be a running average, or clipped.

    Worked example:
        optimizer fc 2x2: step=10000 exp_avg=0.1*4 exp_avg_sq=0.01*4
        gives: signal_to_noise 1, least 1
        fail: 0.1^2 / 0.01 is 1, above `max_ratio`; after 10,000 steps the bias correction changes nothing.

    What to do:
        Call `optimizer.zero_grad()` before each backward pass; with accumulation, after each optimizer step.

    References:
        Kingma and Ba (2015), section 2.1: the signal-to-noise ratio.
    """

    code = "OPT005"
    name = "stale-gradient"
    symptom = Symptom.STALE_GRADIENT
    headline = ("signal_to_noise",)

    max_ratio: Annotated[float, Threshold("signal-to-noise ratio", "ratio", "design", gt=0)] = 0.8
    sure_ratio: Annotated[float, Threshold("the same where the gradient norm is rough", "ratio", "design", gt=0)] = 1.0
    least_ratio: Annotated[
        float, Threshold("signal-to-noise ratio of nearly all parameters", "ratio", "calibration", gt=0)
    ] = 0.7
    least_share: Annotated[
        float, Threshold("share of the parameters that may be below it", "fraction", "design", ge=0, le=1)
    ] = 0.1
    max_roughness: Annotated[
        float, Threshold("median second difference of the log gradient norm", "nats", "calibration", gt=0)
    ] = 0.03
    min_steps: Annotated[int, Threshold("optimizer steps needed", "steps", "design", ge=10)] = 50
    min_points: Annotated[int, Threshold("gradient norms needed", "points", "calibration", ge=10)] = 20

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.SECOND_MOMENTS), Need(role="grad_norm", optional=True))

    def judge(self, evidence: Evidence) -> Finding:
        ratios = self._ratios(evidence.optimizer) if evidence.optimizer is not None else []
        ratio = weighted_median(ratios)
        if ratio is None:
            why = f"no parameter has Adam's moments after {self.min_steps} steps"
            return Finding(verdict=Verdict.SKIP, message=why)
        least = float(np.quantile([one for one, _ in ratios], self.least_share))
        norm = self._roughness(evidence.find("grad_norm"))
        measured = {"signal_to_noise": ratio, "least": least} | ({} if norm is None else {"norm_roughness": norm})
        known = f"Adam's signal-to-noise ratio is {ratio:.3f}"
        rough = norm is not None and norm >= self.max_roughness
        needed = self.sure_ratio if rough else min(self.max_ratio, self.sure_ratio)
        if ratio <= needed or least <= min(self.least_ratio, needed):
            return Finding(verdict=Verdict.PASS, message=known, measured=measured)
        return Finding(
            verdict=Verdict.FAIL,
            message=f"{known}, in minibatch training it is 0.001 to 0.1: gradients pile up, or every batch is the same",
            remedy="call optimizer.zero_grad() before each backward pass, and check that batches differ",
            measured=measured,
        )

    def _ratios(self, state: OptimizerState) -> list[tuple[float, int]]:
        """Of each parameter its ratio and its number of values."""
        pairs = [(signal_to_noise(state, one, fewest_steps=self.min_steps), one.numel) for one in state.tensors]
        return [(ratio, size) for ratio, size in pairs if ratio is not None and size]

    def _roughness(self, series: Series | None) -> float | None:
        if series is None:
            return None
        values = series.finite().values
        values = values[values > 0]
        if len(values) < self.min_points:
            return None
        return median(np.abs(np.diff(np.log(values), 2)))
