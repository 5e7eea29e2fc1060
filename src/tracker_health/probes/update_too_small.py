"""OPT006."""

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
class UpdateTooSmall(Probe):
    """Steps are far too small for the weights to move.

    What it finds:
        An Adam training whose highest learning rate makes hardly any change to the weights in a step.

    Why it matters:
        The model stays what it was, however long it trains.

    How it decides:
        Adam's step is about lr * sqrt((1 - b1) / (1 + b1)) for each value, 0.23 lr for b1 = 0.9, whatever the gradient.
        Fail when the highest learning rate makes that less than `min_ratio` of the root mean square of the weights, in
        the median over the matrices by their number of values. The rate is the highest of the log or of the scheduler's
        memory in the checkpoint; one that is only the last that was set is not judged.

    Known limits:
        Needs Adam's state and the weights beside it. A rate that is right for a short polish at the end of a training
        is small on purpose.

    What to do:
        Raise the learning rate tenfold; healthy trainings have a ratio of a thousandth to a fiftieth.

    References:
        Kingma and Ba (2015), section 2.1, on the bound of Adam's step.
    """

    code = "OPT006"
    name = "update-too-small"
    symptom = Symptom.UPDATE_SIZE
    headline = ("update_ratio",)

    min_ratio: Annotated[float, Threshold("least step over the size of the weights", "ratio", "design", gt=0)] = 1e-5
    min_steps: Annotated[int, Threshold("optimizer steps needed", "steps", "design", ge=1)] = 10

    @property
    def needs(self) -> tuple[Need, ...]:
        return needs_of_update_size(self.min_steps)

    def judge(self, evidence: Evidence) -> Finding:
        size = update_size(evidence)
        if size is None or not size.scheduled:
            why = "the highest learning rate is not known, or no matrix of the state is among the weights"
            return Finding(verdict=Verdict.SKIP, message=why)
        measured = {"update_ratio": size.ratio, "peak_rate": size.rate}
        step = f"a step at the highest learning rate, {number(size.rate)}, is {number(size.ratio)} of the weights"
        if size.ratio >= self.min_ratio:
            return Finding(verdict=Verdict.PASS, message=step, measured=measured)
        return Finding(
            verdict=Verdict.FAIL,
            message=f"{step}, where healthy trainings have 0.001 to 0.02",
            remedy=f"raise the learning rate above {number(size.rate * self.min_ratio / size.ratio)}",
            measured=measured,
        )
