"""WGT005."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, OptimizerState, Part, TensorHeader, TensorState
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._model import EDGE, is_uniform_draw, parameters_of, tail_of
from tracker_health.probes._run import descent
from tracker_health.probes._updates import Walk, groups_without_rate, walks
from tracker_health.result import Finding
from tracker_health.text import count, listing
from tracker_health.verdict import Verdict

_PRECISE = frozenset({"F32", "F64"})
_FEWEST_OF_A_VECTOR = 4
_FEWEST_OF_A_MATRIX = 500
_VISIBLE = 1e-5  # of a one or a zero: far above float32's precision
_LEARNT, _LONG = 0.1, 50  # of the first loss; steps
# Times the distance from a uniform draw's largest value to its bound: a dozen values would lie beyond it. A matrix
# alone has to be surer.
_MARGIN = 4.0
_WIDE_MARGIN = 8.0
_SMALLEST_SQUARE = 1e-30
_REMEDY = (
    "save the model that the optimizer steps: look for a copy, a model made anew, or a file that was written before "
    "training"
)
_NO_RATE = "give their parameter group a learning rate, or leave them out of the optimizer"


@dataclass(frozen=True, kw_only=True)
class InitialWeights(Probe):
    """Weights that are what training began with, though the optimizer steps them.

    What it finds:
        Tensors whose values are, to the last one, such as layers begin with, beside an optimizer that has done steps on
        parameters of that name and shape.

    Why it matters:
        What was trained is not what was saved, or the steps went to a copy: the checkpoint is worth nothing, whatever
        the loss says.

    How it decides:
        A vector begins as nothing but ones or zeros. A matrix begins uniform: its largest value lies as close below one
        of the bounds 1 / sqrt(fan-in), sqrt(3 / fan-in), sqrt(6 / fan-in), sqrt(6 / (fan-in + fan-out)) as that of a
        uniform draw does, and never beyond it, and its mean square is a third of the bound's. Training moves values
        across that bound. Such a tensor of at least `min_steps` steps with gradients fails where steps of its learning
        rate would show: two tensors, or a matrix with twice that margin. So it does, where that is not known, if half
        of the matrices are such ones, two at least, of groups that have a learning rate, and the loss fell by a tenth
        for sure, in 50 steps or more and most of the log. Where its group has no learning rate, while others have one,
        it warns; there a nameless matrix is known, too, by its shape, if just as many of that are as they began.

    Known limits:
        Normal initialisation leaves no trace in matrices; then normalisations and biases have to tell. Only for weights
        in single or double precision that were never rounded to half of it and are read in full, and for optimizers
        with moments. Without names in the optimizer, all tensors of a shape have to be as they began, but where their
        group has no learning rate.

    What to do:
        Compare `id(parameter)` in the optimizer with the model's, and look at what is saved, and when.

    References:
        torch.nn.init; the largest of n uniform values is n / (n + 1) of the bound on average.
    """

    code = "WGT005"
    name = "initial-weights"
    symptom = Symptom.FROZEN
    headline = ("initial",)

    min_steps: Annotated[int, Threshold("optimizer steps needed", "steps", "design", ge=1)] = 10

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.WEIGHTS),
            Need(role=Part.OPTIMIZER_STATE, unit="optimizer_steps"),
            Need(role="train_loss", optional=True),
            Need(role="learning_rate", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        state, weights = evidence.optimizer, evidence.weights
        if state is None or weights is None:
            return Finding(verdict=Verdict.SKIP, message="there are no weights beside an optimizer's state")
        known = [one for group in parameters_of(weights.tensors) for one in group]
        if _were_rounded(known):
            return Finding(verdict=Verdict.SKIP, message="the weights are numbers of half precision")
        of = _owners(state, known)
        done = evidence.steps_at_least.steps
        walked = walks(evidence, done)
        stepped = [one for one in state.tensors if of[one.label] and self._is_stepped(one, done)]
        if not stepped:
            return Finding(verdict=Verdict.SKIP, message="no parameter that is stepped has weights that would show it")
        begun = [one for one in stepped if all(map(_as_begun, of[one.label]))]
        stuck = [one for one in begun if one.label in walked and _would_show(one, walked[one.label], of[one.label])]
        idle = groups_without_rate(state)
        without = [one for one in begun if one.label not in walked and one.group in idle]
        without = without or _by_number([one for one in stepped if one.group in idle], known)
        measured = {"initial": len(stuck) + len(without), "stepped": len(stepped)}
        if stuck and self._is_sure(stuck, walked, of):
            return _finding(Verdict.FAIL, stuck, "that the optimizer stepped", _REMEDY, measured)
        rated = [one for one in begun if one.group not in idle]
        if 1 < _matrices(rated) >= _matrices(stepped) / 2 and _has_learnt(evidence, state):
            measured["initial"] = len(rated)
            return _finding(Verdict.FAIL, rated, "that the optimizer stepped, while the loss fell,", _REMEDY, measured)
        if without:
            return _finding(Verdict.WARN, without, "with gradients and a learning rate of 0", _NO_RATE, measured)
        message = f"{len(stepped) - measured['initial']} of {count(len(stepped), 'tensor')} left what layers begin with"
        return Finding(verdict=Verdict.PASS, message=message, measured=measured)

    @staticmethod
    def _is_sure(
        stuck: Sequence[TensorState], walked: Mapping[str, Walk], of: Mapping[str, Sequence[TensorHeader]]
    ) -> bool:
        if len(stuck) > 1:
            return True
        only = stuck[0]
        return len(only.shape) > 1 and _would_show(only, walked[only.label], of[only.label], _WIDE_MARGIN)

    def _is_stepped(self, tensor: TensorState, done: int) -> bool:
        """Whether gradients came, to at least half of the values, in enough steps."""
        moment = tensor.second_moment if tensor.second_moment is not None else tensor.first_moment
        if moment is None or moment.nonfinite or 2 * moment.zeros > moment.count or moment.rms < _SMALLEST_SQUARE:
            return False
        return (done if tensor.step is None else tensor.step) >= self.min_steps


def _owners(state: OptimizerState, known: Sequence[TensorHeader]) -> Mapping[str, Sequence[TensorHeader]]:
    """Per parameter the weights that it is: by name, or else all of its shape. Empty where one of them cannot tell."""
    by_shape: dict[tuple[int, ...], list[TensorHeader]] = defaultdict(list)
    for one in known:
        by_shape[one.shape].append(one)
    by_tail = {tail_of(one.name): one for one in known}
    found = {}
    for tensor in state.tensors:
        name = tensor.certain_name
        own = by_tail.get(tail_of(name)) if name is not None else None
        of = [own] if own is not None and own.shape == tensor.shape else by_shape.get(tensor.shape, [])
        found[tensor.label] = of if all(map(_can_tell, of)) else []
    return found


def _by_number(idle: Sequence[TensorState], known: Sequence[TensorHeader]) -> list[TensorState]:
    """Which matrices of a group without a learning rate, that nobody named, are as they began: those of a shape of
    which there are just as many fresh draws among the weights, since what is stepped is none any more.
    """
    fresh = {(one.shape, one.stats) for one in known if _can_tell(one) and is_uniform_draw(one)}  # two names may be one
    there, wanted = (Counter(shapes) for shapes in ((shape for shape, _ in fresh), (one.shape for one in idle)))
    return [one for one in idle if one.certain_name is None and there[one.shape] == wanted[one.shape]]


def _can_tell(tensor: TensorHeader) -> bool:
    fewest = _FEWEST_OF_A_VECTOR if len(tensor.shape) < 2 else _FEWEST_OF_A_MATRIX
    return tensor.dtype in _PRECISE and tensor.numel >= fewest and tensor.stats is not None


def _were_rounded(tensors: Sequence[TensorHeader]) -> bool:
    """Whether the matrices hold numbers of half precision, in which small steps were rounded away."""
    extremes = [
        np.array([one.stats.minimum, one.stats.maximum], dtype=np.float32)
        for one in tensors
        if len(one.shape) > 1 and one.stats is not None and one.stats.minimum < one.stats.maximum
    ]
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(extremes) and all(
            bool((ends.view(np.uint32) & 0xFFFF == 0).all() or (ends.astype(np.float16) == ends).all())
            for ends in extremes
        )


def _as_begun(tensor: TensorHeader) -> bool:
    stats = tensor.stats
    if stats is None or stats.nonfinite:
        return False
    if stats.minimum == stats.maximum:
        return stats.minimum in (0.0, 1.0)
    return is_uniform_draw(tensor)


def _would_show(tensor: TensorState, walk: Walk, of: Sequence[TensorHeader], margin: float = _MARGIN) -> bool:
    """Whether it went so far that values would lie beyond where they began."""
    if all(one.stats is not None and one.stats.minimum == one.stats.maximum for one in of):
        return walk.step > _VISIBLE
    largest = max((max(one.stats.maximum, -one.stats.minimum) for one in of if one.stats is not None), default=0.0)
    return walk.whole > margin * EDGE * largest / tensor.numel


def _matrices(tensors: Sequence[TensorState]) -> int:
    return sum(len(one.shape) > 1 for one in tensors)


def _has_learnt(evidence: Evidence, state: OptimizerState) -> bool:
    """Whether the loss fell for sure, so that some weights moved, and not after this checkpoint alone."""
    loss, came = evidence.find("train_loss"), descent(evidence)
    if loss is None or came is None or not came.sure or came.share < _LEARNT:
        return False
    return (state.steps or 0) >= max(_LONG, int(loss.steps[-1]) // 2)


def _finding(
    verdict: Verdict, some: Sequence[TensorState], which: str, remedy: str, measured: dict[str, int]
) -> Finding:
    labels, are = [one.label for one in some], "is" if len(some) == 1 else "are"
    found = f"{count(len(some), 'tensor')} {which} {are} what layers begin with, to the last value: {listing(labels)}"
    return Finding(verdict=verdict, message=found, remedy=remedy, measured=measured, details={"initial": labels[:200]})
