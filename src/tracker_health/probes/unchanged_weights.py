"""WGT002."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import (
    Attribution,
    Evidence,
    Need,
    OptimizerState,
    Part,
    TensorHeader,
    TensorState,
    Weights,
)
from tracker_health.layers import place_of
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._model import expert_of, parameters_of, tail_of
from tracker_health.probes._run import learning_rates, rate_since
from tracker_health.probes._updates import walks
from tracker_health.result import Finding
from tracker_health.text import count, listing, printable, without_numbers
from tracker_health.verdict import Verdict

_HALF = re.compile(r"^(BF16|F16|F8)")
_LAST_DIGIT = 4.0 * 2.0**-24  # of a value; four, since the values of a tensor, and its steps, differ in size
_NO_RATE = 1e-6  # of the highest
_NAMED = (Attribution.NAMED, Attribution.CONTENT_CHECKED)
_ROUNDED = (
    "keep the weights, or the optimizer's copy of them, in float32: in bfloat16 a change below a 256th of a value is "
    "rounded away"
)
_STUCK = "look for a second copy of these tensors: the optimizer may update another one than the model saves"


@dataclass(frozen=True, kw_only=True)
class UnchangedWeights(Probe):
    """Weights that did not move between two checkpoints, though they are trained.

    What it finds:
        Tensors that are the same to the last bit in the newest checkpoint and in the one before, although the optimizer
        steps them.

    Why it matters:
        They keep their values, whatever the loss does: a module that was replaced after the optimizer was made, weights
        in bfloat16 whose steps are rounded away, a copy that is saved in place of the model.

    How it decides:
        Only where other tensors changed, so that steps were done. A tensor counts when the optimizer, which knows the
        parameters' names, keeps a gradient's moments for it and its group has a learning rate; or, without names, when
        the optimizer steps as many matrices of its shape as the weights have, or has as many parameters, and the same
        tensor of at least `min_siblings` other layers changed, of an earlier layer among them. Fail for those in full
        precision. In 16 bits and fewer it warns, of matrices only: a normalisation's ones hardly ever change there, and
        full-precision copies may have moved. A vector that a step at the group's highest rate would change by less than
        a value's last digit is left alone: a bias before a normalisation that takes it away again gets hardly any
        gradient. Where not one tensor changed it warns if the names of the checkpoints differ in their numbers alone:
        others (`last.pt`) may be copies, and where the log has the learning rate come down to 0, LRS001 tells that.

    Known limits:
        Needs the weights of two checkpoints. Buffers, integers and experts without tokens do not count.

    What to do:
        Make the optimizer after the model is complete; keep a float32 copy of 16-bit weights; compare
        `id(parameter)` in the optimizer with the model's.

    References:
        Micikevicius et al. (2018), section 3.1: a copy of the weights in single precision.
    """

    code = "WGT002"
    name = "unchanged-weights"
    symptom = Symptom.FROZEN
    headline = ("unchanged",)

    min_siblings: Annotated[int, Threshold("other layers whose like changed", "layers", "design", ge=2)] = 3
    min_steps: Annotated[int, Threshold("optimizer steps needed", "steps", "design", ge=1)] = 10

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.WEIGHT_CHANGES),
            Need(role=Part.OPTIMIZER_STATE, min_points=self.min_steps, unit="optimizer_steps"),
            Need(role="learning_rate", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        weights, state = evidence.weights, evidence.optimizer
        if weights is None or state is None or not weights.changes:
            return Finding(verdict=Verdict.SKIP, message="there is no earlier checkpoint to compare the weights with")
        moved = {change.name: not change.unchanged for change in weights.changes}
        compared = [one for group in parameters_of(weights.tensors) for one in group if one.name in moved]
        still = [one for one in compared if not moved[one.name]]
        earlier = printable(weights.previous, 80)
        measured = {"compared": len(compared), "unchanged": 0}
        if compared and len(still) == len(compared):
            return self._nothing_moved(evidence, weights, len(compared))
        stuck = [one for one in self._trained(state, still, compared) if expert_of(one.name) is None]
        stuck = _beyond_rounding(evidence, state, stuck)
        precise = [one for one in stuck if not _HALF.match(one.dtype)]
        rounded = [one for one in stuck if _HALF.match(one.dtype) and len(one.shape) > 1]
        if not precise and not rounded:
            message = f"{len(compared) - len(still)} of {count(len(compared), 'tensor')} changed since {earlier}"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        names = [one.name for one in precise or rounded]
        why = "" if precise else f"; in {rounded[0].dtype} the steps may have been rounded away"
        return Finding(
            verdict=Verdict.FAIL if precise else Verdict.WARN,
            message=f"{count(len(names), 'tensor')} in the optimizer did not change at all since {earlier}: "
            f"{listing(names)}{why}",
            remedy=_STUCK if precise else _ROUNDED,
            measured=measured | {"unchanged": len(names)},
            details={"unchanged": names[:200]},
        )

    @staticmethod
    def _nothing_moved(evidence: Evidence, weights: Weights, amount: int) -> Finding:
        last = max((int(one.steps[-1]) for one in learning_rates(evidence)), default=0)
        rate = rate_since(evidence, last)
        if rate is not None and rate <= _NO_RATE:
            return Finding(verdict=Verdict.SKIP, message="no tensor changed, at a learning rate of 0 (see LRS001)")
        both = f"{printable(weights.previous, 80)} and {printable(weights.source, 80)}"
        if weights.previous == weights.source or without_numbers(weights.previous) != without_numbers(weights.source):
            return Finding(verdict=Verdict.SKIP, message=f"{both} hold the same weights: one may be a copy")
        return Finding(
            verdict=Verdict.WARN,
            message=f"not one of {count(amount, 'tensor')} differs between {both}",
            remedy="where steps were done between them, look whether the optimizer's parameters are the saved model's",
            measured={"compared": amount, "unchanged": amount},
        )

    def _trained(
        self, state: OptimizerState, still: list[TensorHeader], compared: list[TensorHeader]
    ) -> list[TensorHeader]:
        """Those of the unchanged tensors that the optimizer has surely stepped."""
        if state.attribution in _NAMED or all(tensor.name is not None for tensor in state.tensors):
            stepped = {tail_of(str(tensor.name)) for tensor in state.tensors if _is_stepped(state, tensor)}
            return [one for one in still if tail_of(one.name) in stepped]
        gone = {one.name for one in still}
        by_shape = _of_shapes_that_are_all_stepped(state, still, compared)
        if len(state.tensors) < len(compared):
            return [one for one in still if one.name in by_shape]
        layers: dict[tuple[str, str], list[int]] = defaultdict(list)
        for one in compared:
            place = place_of(one.name)
            if place is not None and one.name not in gone:
                layers[place.stack, place.role].append(place.layer)
        places = [(one, place_of(one.name)) for one in still]
        return [
            one
            for one, place in places
            if one.name in by_shape
            or (
                place is not None
                and len(layers[place.stack, place.role]) >= self.min_siblings
                and min(layers[place.stack, place.role]) < place.layer
            )
        ]


def _beyond_rounding(evidence: Evidence, state: OptimizerState, still: list[TensorHeader]) -> list[TensorHeader]:
    """Those that a step, where its size is known, could not leave as they are by rounding in single precision: in a
    matrix there are small values, too, that it would change.
    """
    steps: dict[str | tuple[int, ...], float] = {}
    far = walks(evidence, evidence.steps_at_least.steps)
    for tensor in state.tensors:
        key = tensor.shape if tensor.name is None else tail_of(tensor.name)
        if tensor.label in far and far[tensor.label].step > 0:
            steps[key] = min(far[tensor.label].step, steps.get(key, math.inf))
    known = [(one, steps.get(tail_of(one.name), steps.get(one.shape))) for one in still]
    return [
        one for one, step in known if len(one.shape) > 1 or step is None or not one.rms or step > _LAST_DIGIT * one.rms
    ]


def _of_shapes_that_are_all_stepped(
    state: OptimizerState, still: list[TensorHeader], compared: list[TensorHeader]
) -> set[str]:
    """The unchanged matrices of shapes of which the optimizer steps as many as there are."""
    there = Counter(one.shape for one in compared)
    if not Counter(tensor.shape for tensor in state.tensors) <= there:
        return set()  # it has some that are not among the weights: any of a shape may be one of them
    stepped = Counter(tensor.shape for tensor in state.tensors if _is_stepped(state, tensor))
    return {one.name for one in still if len(one.shape) > 1 and stepped[one.shape] == there[one.shape]}


def _is_stepped(state: OptimizerState, tensor: TensorState) -> bool:
    """Whether a parameter has had gradients and a learning rate."""
    second, first = tensor.second_moment, tensor.first_moment
    moment = second if second is not None else first
    if moment is None or moment.zeros >= moment.count:
        return False
    group = state.groups[tensor.group] if tensor.group is not None and tensor.group < len(state.groups) else {}
    rates = [group.get(key) for key in ("lr", "initial_lr", "max_lr")]
    known = [rate for rate in rates if isinstance(rate, (int, float))]
    return not known or max(known) > 0
