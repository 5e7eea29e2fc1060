"""OPT009."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, OptimizerState, Part, TensorState, Weights
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._run import why_too_few_steps
from tracker_health.result import Finding
from tracker_health.text import number, printable
from tracker_health.verdict import Verdict

_CANCELLED = 1e-4
_ROUNDING = 1e5
_VECTORS = 6
_SHRUNK, _FIRST_AT_MOST = 1e-8, 1e4
_MEAN, _VARIANCE = ".running_mean", ".running_var"
_DECAYED = 0.1  # of a row's norm, which begins near 0.6


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
        below a ten-thousandth of the largest of any layer's, or its input would be above 100,000. The first layer of
        all, where it is a plain matrix and no running statistics in the weights are as long as its bias, counts down
        to a hundred-millionth, up to 10,000: a normalisation further on divides its gradients by the very scale.

        What goes into a layer before a normalisation with running statistics has left its size there: the root of
        their mean square, over the norm of a row of the weights, by the widest layer that has as many rows. Warn when
        that is above `max_before_norm`. Where the rows have shrunk to less than a tenth, nothing is said.

    Known limits:
        Needs 50 steps, and Adam's state of layers with a bias, or running statistics. Convolutions add up over
        positions, and inputs that go together add up as well, which changes the figures by a small factor. Images of 0
        to 255 before a normalisation, which does away with their scale, pass.

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
        float, Threshold("the same before a normalisation with running statistics", "activation", "calibration", gt=1)
    ] = 1000.0
    min_steps: Annotated[int, Threshold("optimizer steps needed", "steps", "design", ge=1)] = 50

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.SECOND_MOMENTS, any_of=(Part.WEIGHTS,)),
            Need(role=Part.OPTIMIZER_STEPS, any_of=(Part.OPTIMIZER_STATE,)),
        )

    def judge(self, evidence: Evidence) -> Finding:
        state, weights = evidence.optimizer, evidence.weights
        if why := why_too_few_steps(evidence, self.min_steps):
            return Finding(verdict=Verdict.SKIP, message=why)
        if (found := max(_before_norms(weights), default=None)) is not None and found[0] > self.max_before_norm:
            return _large(*found, {"input_rms": found[0], "layers": 1})
        sizes = list(_input_sizes(state, weights)) if state is not None else []
        if not sizes:
            return Finding(verdict=Verdict.SKIP, message="no layer has the second moments of a weight and of its bias")
        largest, layer = max(sizes)
        measured = {"input_rms": largest, "layers": len(sizes)}
        if largest > self.max_rms:
            return _large(largest, layer, measured)
        return Finding(verdict=Verdict.PASS, message=_said(largest, layer), measured=measured)


def _large(size: float, layer: str, measured: dict[str, float]) -> Finding:
    return Finding(
        verdict=Verdict.WARN,
        message=f"{_said(size, layer)}; near 1 is usual",
        remedy="scale the inputs to mean 0 and deviation 1, or put a normalisation before this layer",
        measured=measured,
    )


def _said(size: float, layer: str) -> str:
    return f"the inputs of {printable(layer, 80)} have a root mean square of {number(size)}"


def _before_norms(weights: Weights | None) -> Iterator[tuple[float, str]]:
    """The least root mean square of what goes into the layer before each normalisation, and the normalisation."""
    tensors = {one.name: one for one in weights.tensors if one.stats is not None} if weights is not None else {}
    norms: dict[int, float] = {}
    for one in tensors.values():
        if len(one.shape) >= 2 and one.rms:
            norm = one.rms * float(np.sqrt(np.prod(one.shape[1:], dtype=np.float64)))
            norms[one.shape[0]] = max(norm, norms.get(one.shape[0], 0.0))
    for name, variance in tensors.items():
        mean = tensors.get(name.removesuffix(_VARIANCE) + _MEAN)
        if not name.endswith(_VARIANCE) or mean is None or len(variance.shape) != 1:
            continue
        norm = norms.get(variance.shape[0], 0.0)
        deviation = np.sqrt(max(0.0, variance.stats.mean)) if variance.stats is not None else 0.0
        size = float(np.hypot(deviation, mean.rms or 0.0))  # their squares may be beyond any number
        if norm >= _DECAYED and np.isfinite(size) and size > 0:
            yield size / norm, f"the layer before {name.removesuffix(_VARIANCE)}"


def _input_sizes(state: OptimizerState, weights: Weights | None) -> Iterator[tuple[float, str]]:
    """The root mean square of what goes into each layer. Biases whose gradient is the rounding of 0 tell nothing."""
    squares = [
        (weight.second_moment.mean, bias.second_moment.mean, weight)
        for weight, bias in _layers(state)
        if weight.second_moment is not None and bias.second_moment is not None
    ]
    known = [one for one in squares if np.isfinite(one[:2]).all() and one[1] > 0]
    largest = max((below for _, below, _ in known), default=0.0)
    first = _first_matrix(state, weights)
    for above, below, weight in known:
        size = float(np.sqrt(above)) / float(np.sqrt(below))
        sound = below > _CANCELLED * largest and size < _ROUNDING
        if sound or (weight is first and below > _SHRUNK * largest and size < _FIRST_AT_MOST):
            yield size, weight.label


def _first_matrix(state: OptimizerState, weights: Weights | None) -> TensorState | None:
    """The first layer, where it is a matrix with no normalisation behind it that has running statistics."""
    if weights is None:
        return None
    first = next((one for one in state.tensors if len(one.shape) >= 2), None)
    lengths = {one.shape[:1] for one in weights.tensors if one.name.endswith(_VARIANCE)}
    return first if first is not None and len(first.shape) == 2 and first.shape[:1] not in lengths else None


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
