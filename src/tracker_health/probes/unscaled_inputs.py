"""OPT009."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, OptimizerState, Part, TensorState
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import number, printable
from tracker_health.verdict import Verdict

_CANCELLED = 1e-4
_ROUNDING = 1e5
_VECTORS = 6


@dataclass(frozen=True, kw_only=True)
class UnscaledInputs(Probe):
    """What goes into a layer is hundreds of times larger than it should be.

    What it finds:
        A layer whose inputs have a root mean square far above 1, as when data were never scaled, or activations grow
        from layer to layer.

    Why it matters:
        The first steps go into undoing the scale, the learning rate fits no layer any more, and units saturate. The
        loss begins high and comes down, so its curve looks like learning.

    How it decides:
        The gradient of a layer's weight is that of its bias times the layer's input. So Adam's second moment of the
        weight over that of the bias, both averaged, is the mean square of the input, over all steps that the moments
        remember. Warn when its root is above `max_rms` for some layer. Weight and bias belong together by name, or
        where there are no names as neighbours of which the second has one value for each row of the first; two such
        vectors in a row are those of a normalisation.

        A bias before a normalisation, and that of an attention's keys, change nothing: their gradient is 0 but for
        rounding, and would make any input look large. So a layer does not count when the second moment of its bias is
        below a ten-thousandth of the largest of any layer's, or its input would be above 100,000.

    Known limits:
        Needs Adam's state, layers with a bias, and 50 steps; a layer right before a normalisation is not judged.
        Convolutions add up over positions, which changes the figure by a small factor.

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
    min_steps: Annotated[int, Threshold("optimizer steps needed", "steps", "design", ge=1)] = 50

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.SECOND_MOMENTS),
            Need(role=Part.OPTIMIZER_STATE, min_points=self.min_steps, unit="optimizer_steps"),
        )

    def judge(self, evidence: Evidence) -> Finding:
        sizes = list(_input_sizes(evidence.optimizer)) if evidence.optimizer is not None else []
        if not sizes:
            return Finding(verdict=Verdict.SKIP, message="no layer has the second moments of a weight and of its bias")
        largest, layer = max(sizes)
        measured = {"input_rms": largest, "layers": len(sizes)}
        message = f"the inputs of {printable(layer, 80)} have a root mean square of {number(largest)}"
        if largest <= self.max_rms:
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"{message}; near 1 is usual",
            remedy="scale the inputs to mean 0 and deviation 1, or put a normalisation before this layer",
            measured=measured,
        )


def _input_sizes(state: OptimizerState) -> Iterator[tuple[float, str]]:
    """The root mean square of what goes into each layer. Biases whose gradient is the rounding of 0 tell nothing."""
    squares = [
        (weight.second_moment.mean, bias.second_moment.mean, weight.label)
        for weight, bias in _layers(state)
        if weight.second_moment is not None and bias.second_moment is not None
    ]
    known = [one for one in squares if np.isfinite(one[:2]).all() and one[1] > 0]
    largest = max((below for _, below, _ in known), default=0.0)
    for above, below, label in known:
        size = float(np.sqrt(above)) / float(np.sqrt(below))
        if below > _CANCELLED * largest and size < _ROUNDING:
            yield size, label


def _layers(state: OptimizerState) -> Iterator[tuple[TensorState, TensorState]]:
    """Weights and their biases."""
    named = {one.certain_name: one for one in state.tensors if one.certain_name is not None}
    if len(named) == len(state.tensors):
        biases = [named.get(f"{str(one.certain_name).removesuffix('.weight')}.bias") for one in state.tensors]
    else:
        biases = [_bias_behind(state.tensors, place) for place in range(len(state.tensors))]
    for weight, bias in zip(state.tensors, biases, strict=True):
        if bias is not None and len(weight.shape) >= 2 and bias.shape == weight.shape[:1]:
            yield weight, bias


def _bias_behind(tensors: Sequence[TensorState], place: int) -> TensorState | None:
    """The vector after a weight, where it is a bias: no name that it is thought to have says otherwise, and two vectors
    of a shape are the scale and shift of a normalisation, as the last two of three are.
    """
    following = list(takewhile(lambda one: one.shape == tensors[place].shape[:1], tensors[place + 1 :][:_VECTORS]))
    is_bias = len(following) % 2 and (following[0].name is None or "bias" in following[0].name.lower())
    return following[0] if is_bias else None
