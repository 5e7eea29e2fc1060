"""OPT007."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._updates import needs_of_update_size, update_size
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class UpdateTooLarge(Probe):
    """Steps are so large that they throw the weights about.

    What it finds:
        An Adam training whose highest learning rate makes a large change to the weights in a step.

    Why it matters:
        The loss settles on a level of noise well above what the model could reach, often without any other sign.

    How it decides:
        Adam's step is about lr * sqrt((1 - b1) / (1 + b1)) for each value, 0.23 lr for b1 = 0.9, whatever the gradient.
        Warn when the highest learning rate makes that more than `max_ratio` of the root mean square of the weights, in
        the median over the matrices by their number of values. The rate is the highest of the log or of the scheduler's
        memory in the checkpoint, or else the last that was set.

    Known limits:
        Needs Adam's state and the weights beside it. Small weights of an adapter that has just begun make the ratio
        large; its second factor is left out.

    What to do:
        Lower the learning rate, lengthen the warm-up; healthy trainings have a ratio of a thousandth to a fiftieth.

    References:
        Kingma and Ba (2015), section 2.1, on the bound of Adam's step.
    """

    code = "OPT007"
    name = "update-too-large"
    symptom = Symptom.UPDATE_SIZE
    headline = ("update_ratio",)

    max_ratio: Annotated[
        float, Threshold("largest step over the size of the weights", "ratio", "calibration", gt=0)
    ] = 0.04
    min_steps: Annotated[int, Threshold("optimizer steps needed", "steps", "design", ge=1)] = 50

    @property
    def needs(self) -> tuple[Need, ...]:
        return needs_of_update_size(self.min_steps)

    def judge(self, evidence: Evidence) -> Finding:
        size = update_size(evidence)
        if size is None:
            why = "no learning rate is known, or no matrix of the state is among the weights"
            return Finding(verdict=Verdict.SKIP, message=why)
        measured = {"update_ratio": size.ratio, "peak_rate": size.rate}
        step = f"a step at the highest learning rate, {number(size.rate)}, is {number(size.ratio)} of the weights"
        if size.ratio <= self.max_ratio:
            return Finding(verdict=Verdict.PASS, message=step, measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"{step}, where healthy trainings have 0.001 to 0.02",
            remedy=f"lower the learning rate below {number(size.rate * self.max_ratio / size.ratio)}",
            measured=measured,
        )
