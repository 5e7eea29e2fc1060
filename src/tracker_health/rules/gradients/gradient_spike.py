"""GRD002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need
from tracker_health.evidence.numerics import jumps, median, peaks_of
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, number, went
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class GradientSpike(Probe):
    """A gradient jumped up, and the loss was worse for it afterwards, or several jumped far.

    What it finds:
        Steps whose gradient norm is far above those before, and after which the loss was higher. Also several extreme
        steps, whatever the loss did.

    Why it matters:
        One step along such a gradient moves the weights far away. Most spikes do no harm: a gradient 80 times the usual
        one had no effect. This rule finds those that did harm.

    How it decides:
        A causal Hampel filter on the logarithm of the norm. A spike is `sigmas` robust deviations above the
        median before it, and `leap` times as high. It does harm when the loss's level after it is clearly
        above the one before it, by `effect_share` of the descent. Warn at the first that does. Warn also at
        `repeated` norms or more that are `wild` times as high as the median before them, and as that of all.
        The norm to clip at is above `usual` of all. It needs `min_points` points.

    Known limits:
        Averaged logs hide spikes. Harm that is over within a fortieth of the run is not seen.

    Worked example:
        grad_norm: 1.1 0.9 1 1.1 0.9 1 1.1 0.9 1 1.1 0.9 1 50 1.1 0.9 1 1.1 0.9 1 1.1 0.9 1 1.1 0.9
        train_loss: 4 3.6 3.3 3 2.8 2.6 2.4 2.3 2.2 2.1 2 1.9 1.9 3.4 3.3 3.2 3.1 3 2.9 2.8 2.7 2.6 2.5 2.4
        gives: spikes 1, harmful 1, usual 1.1
        warn: after a norm of 50, where 1 is usual, the loss is 1.3 higher, clearly more than 0.3 of its descent of 2.

    What to do:
        Clip gradients at the norm given; look at the batch of the step.

    References:
        Hampel (1974); Pascanu et al. (2013) on clipping.
    """

    code = "GRD002"
    name = "gradient-spike"
    symptom = Symptom.SPIKES

    sigmas: Annotated[float, Threshold("deviations of the log norm", "sigma", "design", gt=0)] = 8.0
    leap: Annotated[float, Threshold("norm over the median before it", "ratio", "design", gt=1)] = 2.0
    effect_share: Annotated[
        float, Threshold("rise of the loss after it, as a share of the descent", "fraction", "calibration", gt=0)
    ] = 0.3
    wild: Annotated[
        float, Threshold("norm over the median before it that is wild, whatever it does", "ratio", "calibration", gt=1)
    ] = 300.0
    repeated: Annotated[int, Threshold("wild norms that make a warning", "norms", "calibration", ge=1)] = 3
    usual: Annotated[
        float, Threshold("share of the norms below the one to clip at", "fraction", "design", gt=0, le=1)
    ] = 0.95
    min_points: Annotated[int, Threshold("norms above 0 needed", "points", "design", ge=20)] = 20

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="grad_norm", min_points=self.min_points), *Need.beside("train_loss", "objective_weight"))

    def judge(self, evidence: Evidence) -> Finding:
        norm = evidence.first("grad_norm").finite()
        norm = norm.at(np.flatnonzero(norm.values > 0.0))
        if len(norm) < self.min_points:
            return Finding.skipped(f"only {len(norm)} finite gradient norms above 0")
        above, scores = jumps(np.log(norm.values))
        spikes = peaks_of((scores >= self.sigmas) & (above >= np.log(self.leap)), above)
        wild = np.flatnonzero((above >= np.log(self.wild)) & (norm.values / self.wild >= median(norm.values)))
        loss = evidence.curve("train_loss")
        harm = 0.0 if loss is None else self.effect_share * loss.size
        harmful = [at for at in spikes if loss is not None and loss.step_up(norm.steps[at]).surely_above(harm)]
        usual = float(np.quantile(norm.values, self.usual))
        measured = {"spikes": len(spikes), "harmful": len(harmful), "wild": len(wild), "usual": usual}
        if not harmful and len(wild) < self.repeated:
            return Finding.passed(f"{count(len(spikes), 'gradient spike')}, none with an effect on the loss", measured)
        found = np.array(harmful) if harmful else wild
        worst = found[np.argmax(above[found])]
        step, before = int(norm.steps[worst]), float(np.exp(np.log(norm.values[worst]) - above[worst]))
        gained = loss is None or (loss.at_step(float(norm.steps[worst - 1])) - loss.end).surely_above(0.0)
        jumped = went(before, float(norm.values[worst]), "jumped")
        effect = "the loss was higher afterwards" if harmful else "such jumps came back"
        return Finding(
            verdict=Verdict.WARN,
            message=f"the gradient norm {jumped} at {norm.where(step)}, and {effect} "
            f"({count(len(found), 'such step')})",
            remedy=f"clip gradients at {number(usual)}; look at the batch of {norm.place(step)} for broken samples",
            measured=measured,
            steps=tuple(int(one) for one in norm.steps[found[:100]]),
            onset=None if gained else Onset.on(norm, step, "the gradient norm jumped"),
        )
