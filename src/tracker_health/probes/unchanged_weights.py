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
    is_of_the_end,
)
from tracker_health.layers import place_of
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._model import expert_of, parameters_of, tail_of
from tracker_health.probes._run import learning_rates, rate_since, says_frozen, why_too_few_steps
from tracker_health.probes._unlisted import Sign
from tracker_health.probes._unmoved import cut_off, fell_since, is_half, share_before
from tracker_health.probes._updates import walks
from tracker_health.result import Finding
from tracker_health.text import count, listing, printable, short_name
from tracker_health.verdict import Verdict

_BEGINS_LATER = re.compile(r"(ema|average).{0,20}(start|begin|after|warm)|update_after_step|(start|begin).{0,20}ema")
_MOST_OF_A_NAME = 200
_LAST_DIGIT = 4.0 * 2.0**-24  # of a value; four, since the values of a tensor, and its steps, differ in size
_NO_RATE = 1e-6  # of the highest
_NAMED = (Attribution.NAMED, Attribution.CONTENT_CHECKED)
_ROUNDED = (
    "keep the weights, or the optimizer's copy of them, in float32: in bfloat16 a change below a 256th of a value is "
    "rounded away"
)
_CUT_OFF = (
    "is the optimizer made from all trainable parameters? Look for .detach() or no_grad between them and the loss"
)
_STUCK = "look for a second copy of these tensors: the optimizer may update another one than the model saves"


@dataclass(frozen=True, kw_only=True)
class UnchangedWeights(Probe):
    """Weights that did not move between two checkpoints, though they are trained.

    What it finds:
        Tensors that are the same to the last bit in the newest checkpoint and in the one before, although the optimizer
        steps them, or although nothing says that they are frozen on purpose.

    Why it matters:
        They keep their values, whatever the loss does: a module that was replaced after the optimizer was made, layers
        that no gradient reaches, weights in bfloat16 whose steps are rounded away, a copy that is saved in place of the
        model.

    How it decides:
        Only where other tensors changed, so that steps were done. A tensor counts when the optimizer, which knows the
        parameters' names, keeps a gradient's moments for it, stepped it more than half as often as others, and its
        group has a learning rate; or, without names, when the optimizer steps as many matrices of its shape as the
        weights have, or has as many parameters, and the same tensor of at least `min_siblings` other layers changed, of
        an earlier layer among them. Fail for those in full precision. In 16 bits and fewer it warns, of matrices only:
        a normalisation's ones hardly ever change there, and full-precision copies may have moved. A vector that a step
        at the group's highest rate would change by less than a value's last digit is left alone: a bias before a
        normalisation that takes it away again gets hardly any gradient.

        Where no optimizer's state lies beside the weights, or one that keeps none (plain SGD), the layers that stand
        still are asked what OPT004 asks of parameters without state: it warns where neither freezing (also of more than
        `max_share`) nor an unused branch explains them, or where their values still are as large as layers begin:
        nobody freezes random weights. A vector counts only where its layer's matrix stands still, too, and all of them
        only where the others changed by more than rounding.

        Where not one tensor changed it fails if the first checkpoint of three or more is the same as well, and since
        then the training loss fell beyond three standard errors, or there is none: what is saved is not what is
        trained, or nothing is. It warns if there are two, or if the loss did not fall, and the names of the checkpoints
        differ in their numbers alone. Others (`last.pt`) may be copies, and without an optimizer's state so may those
        behind which older ones differ; where the log has the learning rate come down to 0, LRS001 tells that.

        It warns, too, where a moving average of the model (`ema`, `model_ema`, ...) in the file is that of the first
        checkpoint of three or more, by its first matrices that changed in the model, at the run's end: unless a param
        says from when on it is to move (`ema_start`, `update_after_step`).

    Known limits:
        Needs the weights of two checkpoints. Buffers, integers and experts without tokens do not count. Without an
        optimizer's state a layer that no gradient reaches looks like a frozen one where it lies in front, unless its
        values show that it was never trained. A param of the run that speaks of freezing (`freeze_...`) excuses all
        layers there.

    What to do:
        Make the optimizer after the model is complete; keep a float32 copy of 16-bit weights; compare `id(parameter)`
        in the optimizer with the model's.

    References:
        Micikevicius et al. (2018), section 3.1: a copy of the weights in single precision.
    """

    code = "WGT002"
    name = "unchanged-weights"
    symptom = Symptom.FROZEN
    headline = ("unchanged",)

    min_siblings: Annotated[int, Threshold("other layers whose like changed", "layers", "design", ge=2)] = 3
    min_steps: Annotated[
        int, Threshold("optimizer steps needed where there is a state", "steps", "design", ge=1)
    ] = 10  # fmt: skip
    max_share: Annotated[
        float, Threshold("share of a whole model's tensors from which on they are frozen on purpose", "fraction",
                         "design", gt=0, le=1)
    ] = 0.7  # fmt: skip

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.WEIGHT_CHANGES),
            Need(role=Part.OPTIMIZER_STATE, unit="optimizer_steps", optional=True),
            Need(role="learning_rate", optional=True),
            Need(role="train_loss", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        weights, state = evidence.weights, evidence.optimizer
        if weights is None or not weights.changes:
            return Finding(verdict=Verdict.SKIP, message="there is no earlier checkpoint to compare the weights with")
        if state is not None and (why_not := why_too_few_steps(evidence, self.min_steps)):
            return Finding(verdict=Verdict.SKIP, message=why_not)
        moved = {change.name: not change.unchanged for change in weights.changes}
        compared = [one for group in parameters_of(weights.tensors) for one in group if one.name in moved]
        still = [one for one in compared if not moved[one.name]]
        earlier = printable(weights.previous, 80)
        if compared and len(still) == len(compared):
            return _nothing_moved(evidence, weights, len(compared))
        passed = Finding(
            verdict=Verdict.PASS,
            message=f"{len(compared) - len(still)} of {count(len(compared), 'tensor')} changed since {earlier}",
            measured={"compared": len(compared), "unchanged": 0},
        )
        late = any(_BEGINS_LATER.search(name.lower()[:_MOST_OF_A_NAME]) for name in evidence.info.params)
        if weights.idle_average and is_of_the_end(evidence) and not late:
            return _as_idle_average(weights)
        if state is None or not state.tensors:
            found = None if says_frozen(evidence) else cut_off(weights, self.max_share)
            return passed if found is None else _as_cut_off(found, earlier, len(compared))
        stuck = [one for one in self._trained(state, still, compared) if expert_of(one.name) is None]
        stuck = _beyond_rounding(evidence, state, stuck)
        return _as_stuck(stuck, earlier, len(compared)) or passed

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


def _as_idle_average(weights: Weights) -> Finding:
    return Finding(
        verdict=Verdict.WARN,
        message=f"the moving average in {printable(weights.source, 80)} ({short_name(weights.idle_average)}) is "
        "that of the first checkpoint, while the model changed: it is not updated",
        remedy="update it after every optimizer step, with the parameters of the model that is trained",
    )


def _nothing_moved(evidence: Evidence, weights: Weights, amount: int) -> Finding:
    since = weights.first if weights.same_as_first else weights.previous
    share = share_before(since, weights.source)
    fell = None if share is None else fell_since(evidence, share)
    if why_not := _why_nothing_may_move(evidence, weights, share, fell=bool(fell)):
        return Finding(verdict=Verdict.SKIP, message=why_not)
    return Finding(
        verdict=Verdict.FAIL if weights.same_as_first and fell is not False else Verdict.WARN,
        message=f"not one of {count(amount, 'tensor')} differs between {printable(since, 80)} and "
        f"{printable(weights.source, 80)}{', while the training loss fell' if fell else ''}",
        remedy="where steps were done between them, look whether the optimizer's parameters are the saved model's",
        measured={"compared": amount, "unchanged": amount},
    )


def _why_nothing_may_move(evidence: Evidence, weights: Weights, share: float | None, *, fell: bool) -> str:
    """Why it is no finding that nothing moved; empty where it is one. ``fell``: the loss did meanwhile."""
    last = max((int(one.steps[-1]) for one in learning_rates(evidence)), default=0)
    rate = rate_since(evidence, last)
    if rate is not None and rate <= _NO_RATE and not (weights.same_as_first and fell):
        return "no tensor changed, at a learning rate of 0 (see LRS001)"
    if any(one.stats is not None and one.stats.nonfinite == one.stats.count for one in weights.tensors):
        return "no tensor changed, and some are nothing but NaN (see WGT001)"
    may_be_best = evidence.optimizer is None and weights.first and not weights.same_as_first
    if share is None or may_be_best:
        both = f"{printable(weights.previous, 80)} and {printable(weights.source, 80)}"
        return f"{both} hold the same weights: one may be a copy"
    return ""


def _as_stuck(stuck: list[TensorHeader], earlier: str, compared: int) -> Finding | None:
    """What is told of tensors that the optimizer stepped in vain; None where there are none, or vectors alone in half
    precision.
    """
    precise = [one for one in stuck if not is_half(one)]
    rounded = [one for one in stuck if is_half(one) and len(one.shape) > 1]
    if not precise and not rounded:
        return None
    names = [one.name for one in precise or rounded]
    why = "" if precise else f"; in {rounded[0].dtype} the steps may have been rounded away"
    return Finding(
        verdict=Verdict.FAIL if precise else Verdict.WARN,
        message=f"{count(len(names), 'tensor')} in the optimizer did not change at all since {earlier}: "
        f"{listing(names)}{why}",
        remedy=_STUCK if precise else _ROUNDED,
        measured={"compared": compared, "unchanged": len(names)},
        details={"unchanged": names[:200]},
    )


def _as_cut_off(sign: Sign, earlier: str, compared: int) -> Finding:
    what = sign.what.removeprefix("no state")
    shows = "shows" if len(sign.labels) == 1 else "show"
    return Finding(
        verdict=Verdict.WARN,
        message=f"{count(len(sign.labels), 'tensor')} {shows} no change since {earlier}{what}: "
        f"{listing(list(sign.labels))}",
        remedy=_CUT_OFF,
        measured={"compared": compared, "unchanged": len(sign.labels)},
        details={"unchanged": list(sign.labels[:200])},
    )


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
    if tensor.step is not None and 2 * tensor.step <= (state.counted or 0):
        return False  # frozen on the way, as in a first step's leftover gradient
    group = state.groups[tensor.group] if tensor.group is not None and tensor.group < len(state.groups) else {}
    rates = [group.get(key) for key in ("lr", "initial_lr", "max_lr")]
    known = [rate for rate in rates if isinstance(rate, (int, float))]
    return not known or max(known) > 0
