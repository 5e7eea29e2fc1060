"""OPT007."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.evidence.parameters.steps import needs_of_update_size, update_size
from tracker_health.facts.descent import descent
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import number, percent
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class UpdateTooLarge(Probe):
    """Steps are so large that they throw the weights about.

    What it finds:
        An Adam training in which a step at the highest learning rate changes the weights by a large share.

    Why it matters:
        The loss settles on a level of noise well above what the model could reach, often without any other sign.

    How it decides:
        Adam's step is lr * sqrt((1 - b1) / (1 + b1)) for each value, whatever the gradient. Warn when the
        highest learning rate makes that more than `max_ratio` of the root mean square of the weights, in the
        median over the matrices. Half of it is enough where the weights have grown to `grown` times a layer's
        usual size. Pass where the loss came down by `healthy_descent` of its start, not just within its first
        points, and lost no more than `lost_again` of that. It needs `min_steps` optimizer steps.

    Known limits:
        Needs Adam's state and the weights next to it. Matrices in front of a normalisation take large steps, as their
        scale does not matter. Without a loss such a model may get a warning. Small weights of an adapter that has just
        begun make the ratio large; its second factor is left out.

    Worked example:
        group: lr=0.1 betas=0.9,0.999
        optimizer fc 4x4: step=100 exp_avg=0.01*16 exp_avg_sq=1e-3*16
        weights fc 4x4: 0.1*16
        gives: update_ratio 0.2294, peak_rate 0.1
        warn: 0.1 * sqrt(0.1 / 1.9) is 0.0229; over weights of 0.1 that is 0.229, above `max_ratio`.

    What to do:
        Lower the learning rate, or lengthen the warm-up. Healthy trainings from scratch have a ratio of 0.0002 to 0.02
        at their highest rate, fine-tunes often less.

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
    grown: Annotated[
        float, Threshold("size of the weights from which half of that is enough", "ratio", "calibration", gt=1)
    ] = 3.0
    healthy_descent: Annotated[
        float, Threshold("fall of the loss where steps do no harm, as a share of its start", "fraction", "calibration",
                         gt=0)
    ] = 0.75  # fmt: skip
    min_steps: Annotated[int, Threshold("optimizer steps needed", "steps", "design", ge=1)] = 50

    lost_again: Annotated[
        float, Threshold("share of its descent that the loss may have lost again", "fraction", "design", ge=0)
    ] = 0.1

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.SECOND_MOMENTS), *needs_of_update_size(self.min_steps))

    def judge(self, evidence: Evidence) -> Finding:
        size = update_size(evidence)
        if size is None:
            why = "no learning rate is known, or no matrix of the state is among the weights"
            return Finding(verdict=Verdict.SKIP, message=why)
        measured = {"update_ratio": size.ratio, "peak_rate": size.rate, "weight_scale": size.scale}
        limit = self.max_ratio / 2 if size.scale > self.grown else self.max_ratio
        if size.ratio <= limit:
            return Finding(verdict=Verdict.PASS, message=size.step, measured=measured)
        loss = descent(evidence)
        came_down = loss is not None and loss.sure and loss.share >= self.healthy_descent and not loss.at_once
        if loss is not None and came_down and loss.lost <= self.lost_again:
            message = f"{size.step}, which did no harm: the loss came down by {percent(loss.share)}"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured | {"descent": loss.share})
        return Finding(
            verdict=Verdict.WARN,
            message=f"{size.step} (usual 0.02 to 2 %)",
            remedy=f"lower the learning rate below {number(size.rate * limit / size.ratio)}",
            measured=measured,
        )
