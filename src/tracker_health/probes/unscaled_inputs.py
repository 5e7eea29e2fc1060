"""OPT009."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, OptimizerState, Part, TensorHeader, TensorState, Weights
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._run import descent, why_too_few_steps
from tracker_health.result import Finding
from tracker_health.text import number, printable
from tracker_health.verdict import Verdict

_CANCELLED = 1e-4
_ROUNDING = 1e5
_VECTORS = 6
_LONGEST = 200
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
        below a ten-thousandth of the largest of any layer's, or its input would be above 100,000.

        A normalisation behind a layer does away with the size of what went into it, in its output and in its gradients.
        Where it has running statistics, their root mean square over the norm of a row of the weights before them tells
        it all the same. Such inputs are often harmless: warn when they are above `max_before_norm` and the training
        loss is known not to have come down by `healthy_descent` of its start. Where the rows have shrunk to less than a
        tenth, nothing is said.

    Known limits:
        Needs 50 steps, and Adam's state of layers with a bias, or running statistics. Convolutions add up over
        positions, and inputs that go together add up as well, by up to the root of how many there are. Which layer is
        before a normalisation is told by the order of the weights; a file that lists them by their names may hide it.

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
        plain, normalised = list(_input_sizes(evidence.optimizer)), list(_before_statistics(evidence.weights))
        if not plain and not normalised:
            message = "no layer has the second moments of a weight and of its bias, or running statistics behind it"
            return Finding(verdict=Verdict.SKIP, message=message)
        harmful = bool(normalised) and self._did_harm(max(normalised)[0], evidence)
        size, layer = max(normalised if harmful or not plain else plain)
        message = f"the inputs of {printable(layer, 80)} have a root mean square of {number(size)}"
        measured = {"input_rms": size, "layers": len(plain) + len(normalised)}
        if not harmful and (not plain or size <= self.max_rms):
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"{message}; near 1 is usual",
            remedy="scale the inputs to mean 0 and deviation 1, or put a normalisation before this layer",
            measured=measured,
        )

    def _did_harm(self, size: float, evidence: Evidence) -> bool:
        """Whether inputs before a normalisation are too large, and the loss is known not to have come down."""
        loss = descent(evidence)
        return size > self.max_before_norm and loss is not None and not loss.share >= self.healthy_descent


def _before_statistics(weights: Weights | None) -> Iterator[tuple[float, str]]:
    """The root mean square of what goes into the layer before each normalisation with running statistics, and its name:
    the last matrix, or convolution, of as many rows that comes before the statistics.
    """
    tensors = {one.name: one for one in weights.tensors if one.stats is not None} if weights is not None else {}
    names = list(tensors) if weights is not None and weights.in_order else sorted(tensors, key=_by_number)
    before: TensorHeader | None = None
    for name in names:
        one, mean = tensors[name], tensors.get(name.removesuffix(_VARIANCE) + _MEAN)
        if len(one.shape) >= 2:
            before = None if "emb" in name.lower() else one  # what goes into an embedding has no size
        if not name.endswith(_VARIANCE) or mean is None or before is None or not before.rms:
            continue
        norm = before.rms * float(np.sqrt(np.prod(before.shape[1:], dtype=np.float64)))
        deviation = np.sqrt(max(0.0, one.stats.mean)) if one.stats is not None else 0.0
        size = float(np.hypot(deviation, mean.rms or 0.0))  # their squares may be beyond any number
        alike = one.shape == mean.shape == before.shape[:1]
        if alike and norm >= _DECAYED and np.isfinite(size) and size > 0:
            yield size / norm, before.name


def _by_number(name: str) -> list[tuple[int, str]]:
    """What puts the modules of a sequence in their order: ``10`` after ``2``."""
    return [(int(part) if part.isdecimal() else -1, part) for part in name[:_LONGEST].split(".")]


def _input_sizes(state: OptimizerState | None) -> Iterator[tuple[float, str]]:
    """The root mean square of what goes into each layer. Biases whose gradient is the rounding of 0 tell nothing."""
    squares = [
        (weight.second_moment.mean, bias.second_moment.mean, weight.label)
        for weight, bias in (_layers(state) if state is not None else ())
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
