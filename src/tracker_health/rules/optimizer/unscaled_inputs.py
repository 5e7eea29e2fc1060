"""OPT009."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.facts.descent import descent
from tracker_health.facts.steps import why_too_few_steps
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import contrast, printable
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class UnscaledInputs(Probe):
    """What goes into a layer is hundreds of times larger than it should be.

    What it finds:
        A layer whose inputs have a root mean square far above 1, as when data were never scaled, or activations grow
        from layer to layer.

    Why it matters:
        The first steps are spent on undoing the scale, the learning rate fits no layer, and units saturate. The loss
        begins high and comes down, so its curve looks like learning.

    How it decides:
        A weight's gradient is that of its bias times the layer's input. So Adam's second moment of the weight
        over that of the bias is the mean square of the input. Warn when its root is above `max_rms` for some
        layer. Biases whose gradient is rounding do not count. Before a normalisation its running statistics
        over the norm of a row tell the size instead. Warn above `max_before_norm` where the training loss is
        known not to have come down by `healthy_descent`. It needs `min_steps` optimizer steps.

    Known limits:
        Needs 50 steps, and Adam's state of layers with a bias, or running statistics. Convolutions add up over
        positions. Correlated inputs add up as well, by up to the root of their number. The order of the weights shows
        which layer is before a normalisation. A file that is sorted by names may hide it.

    Worked example:
        optimizer fc.weight 4x4: step=100 exp_avg=0.01*16 exp_avg_sq=0.01*16
        optimizer fc.bias 4: step=100 exp_avg=1e-4*4 exp_avg_sq=1e-6*4
        gives: input_rms 100
        warn: the root of 0.01 / 1e-6 is 100, above `max_rms`.

    What to do:
        Scale inputs to mean 0 and deviation 1; inside a model, put a normalisation before the layer.

    References:
        LeCun et al. (1998), Efficient BackProp, section 4.3.
    """

    code = "OPT009"
    name = "unscaled-inputs"
    symptom = Symptom.UPDATE_SIZE
    headline = ("input_rms",)

    max_rms: Annotated[float, Threshold("root mean square of a layer's input", "activation", "calibration", gt=1)] = (
        30.0
    )
    max_before_norm: Annotated[
        float, Threshold("the same before a normalisation", "activation", "calibration", gt=1)
    ] = 1000.0
    healthy_descent: Annotated[
        float, Threshold("fall of the loss that shows that a normalisation made up for it", "fraction", "design", gt=0)
    ] = 0.25
    min_steps: Annotated[int, Threshold("optimizer steps needed", "steps", "design", ge=1)] = 50

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.SECOND_MOMENTS, any_of=(Part.WEIGHTS,)),
            Need(role=Part.OPTIMIZER_STEPS, any_of=(Part.OPTIMIZER_STATE,)),
            Need(role="train_loss", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        if why := why_too_few_steps(evidence, self.min_steps):
            return Finding(verdict=Verdict.SKIP, message=why)
        plain, normalised = evidence.parameters.inputs, evidence.parameters.inputs_before_norms
        if not plain and not normalised:
            message = "no layer has the second moments of a weight and of its bias, or running statistics behind it"
            return Finding(verdict=Verdict.SKIP, message=message)
        loss = descent(evidence)
        stuck = loss is not None and not loss.share >= self.healthy_descent
        harmful = stuck and any(size > self.max_before_norm for size, _ in normalised)
        size, layer = max(normalised if harmful or not plain else plain)
        shown, limit = contrast(size, self.max_before_norm if harmful else self.max_rms)
        message = f"the inputs of {printable(layer)} have a root mean square of {shown}"
        measured = {"input_rms": size, "layers": len(plain) + len(normalised)}
        if not harmful and (not plain or size <= self.max_rms):
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"{message} (usual near 1, limit {limit})",
            remedy="scale the inputs to mean 0 and deviation 1, or put a normalisation before this layer",
            measured=measured,
            details={"layer": layer},
        )
