"""OPT010."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.evidence.parameters.steps import epsilon, root_second_moment, weighted_median
from tracker_health.facts.descent import descent
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import number, percent
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class EpsilonDominates(Probe):
    """The optimizer's epsilon outweighs the gradients, and takes the size out of the steps.

    What it finds:
        An adaptive optimizer whose eps is far larger than the root of its second moments.

    Why it matters:
        The step of Adam and comparable ones is lr * m / (sqrt(v) + eps), that of RMSprop lr * g / (sqrt(v) + eps).
        Where eps is the larger part, the step shrinks with the gradient to a fraction of the learning rate, and the
        model barely learns. Either eps was set too high, or the loss was scaled down until its gradients are as small
        as eps.

    How it decides:
        Per parameter eps of its group is divided by the root of the mean second moment, bias-corrected. The
        median is taken over the parameters by their number of values, without those that never got a gradient.
        At `least_ratio` or more, fail when the training loss did not come down by `least_descent` of its start.
        Pass when it came down by `healthy_descent`, and warn otherwise. It needs `min_steps` optimizer steps.

    Known limits:
        Needs the optimizer's groups next to its second moments. A model that has memorised its samples to the last
        digit has gradients as small as that: its loss has come down. An eps of a few times the gradients passes: it
        slows a training as a smaller rate would. In 31 small models eps ended at three to ten times the gradients, and
        17 of them had learnt as much as others. Those that had not learnt at all are recognised by their loss.

    Worked example:
        train_loss: 2.3 2.3 2.3 2.3 2.3 2.3 2.3 2.3 2.3 2.3 2.3 2.3
        group: eps=0.001
        optimizer fc 4x4: step=10000 exp_avg=1e-6*16 exp_avg_sq=1e-10*16
        gives: eps_ratio 100
        fail: the root of 1e-10 is 1e-5; 0.001 over it is 100, above `least_ratio`, and the loss stands.

    What to do:
        Set eps to 1e-8, or look for what scales the loss down; a mean over many values may be a sum.

    References:
        Kingma and Ba (2015), algorithm 1.
    """

    code = "OPT010"
    name = "epsilon-dominates"
    symptom = Symptom.UPDATE_SIZE
    headline = ("eps_ratio",)

    least_ratio: Annotated[float, Threshold("eps over the root of the second moment", "ratio", "design", gt=1)] = 10.0
    least_descent: Annotated[
        float, Threshold("fall of a loss that learns, as a share of its start", "fraction", "calibration", gt=0)
    ] = 0.05
    healthy_descent: Annotated[
        float, Threshold("fall of a loss that has learnt, as a share of its start", "fraction", "calibration", gt=0)
    ] = 0.5
    min_steps: Annotated[int, Threshold("optimizer steps needed", "steps", "design", ge=1)] = 10

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.SECOND_MOMENTS),
            Need(role=Part.OPTIMIZER_STATE, min_points=self.min_steps, unit="optimizer_steps"),
            Need(role="train_loss", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        state = evidence.optimizer
        known = [
            (eps / root, tensor.numel)
            for tensor in (state.with_second_moment if state is not None else ())
            if state is not None
            and (eps := epsilon(state, tensor)) is not None
            and (root := root_second_moment(state, tensor)) is not None
        ]
        ratio = weighted_median([(one, values) for one, values in known if np.isfinite(one)])
        if ratio is None:
            return Finding(verdict=Verdict.SKIP, message="no group tells its eps, or no parameter got a gradient")
        measured = {"eps_ratio": ratio}
        seen = f"eps is {number(ratio)} times the root of the second moment"
        if ratio < self.least_ratio:
            return Finding(verdict=Verdict.PASS, message=seen, measured=measured)
        loss = descent(evidence)
        if loss is not None and loss.sure and loss.share >= self.healthy_descent:
            message = f"{seen}, which did no harm: the loss came down by {percent(loss.share)}"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured | {"descent": loss.share})
        stuck = loss is not None and not (loss.sure and loss.share >= self.least_descent)
        return Finding(
            verdict=Verdict.FAIL if stuck else Verdict.WARN,
            message=f"{seen}: a step is that much smaller than the learning rate says"
            + ("; the loss did not come down" if stuck else ""),
            remedy="set eps to 1e-8, or look for what scales the loss down",
            measured=measured,
        )
