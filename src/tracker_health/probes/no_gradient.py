"""OPT003."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, MomentStats, Need, OptimizerState, Part, TensorState, Weights
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._model import expert_of
from tracker_health.probes._updates import decays_alone, first_beta, signal_to_noise
from tracker_health.result import Finding
from tracker_health.text import count, listing, printable
from tracker_health.verdict import Verdict

_MEMORY = re.compile(r"weight_hh(?=(?:_l\d{1,3})?(?:_reverse)?$)")
# Adam's mean of m squared over v: of gradients that are noise, and after some ninety steps without any.
_USUAL = 0.05
_FORGOTTEN = 1e-8
_STILL_COMING = 1e-4
_LEAST_RATIO = 1e-80
_NOTHING_LEFT = 0.01  # of the first loss

_EMBEDDING = re.compile(
    r"(^|[._])(emb|embed|embedding|embeddings|wte|wpe|embed_tokens|lm_head|word_embeddings|position_embeddings)([._0-9]|$)"
)
# A value for each user or item: where two scores are subtracted, that of what both have in common cancels.
_OFFSETS = re.compile(r"(^|[._])(bu|bi|b_?user|b_?item|(user|item)s?_?(b|bias)|bias(es)?)([._0-9]|$)")


@dataclass(frozen=True, kw_only=True)
class NoGradient(Probe):
    """Parameters that no gradient ever reached.

    What it finds:
        Parameters whose second moment is exactly 0 (almost) everywhere after many optimizer steps; of an optimizer that
        keeps none (SGD with momentum, Lion) the first moment.

    Why it matters:
        Adam's second moment is a running mean of squared gradients: exactly 0 means that every gradient was exactly 0.
        The layer is detached, dead, or masked out, and keeps the values it began with. A momentum is 0 where every
        gradient of the last thousand steps or so was.

    How it decides:
        Per parameter with at least `min_steps` steps, which the checkpoint or the log has to bear out where the
        optimizer does not count them: fail when at least `zero_share` of its second moment (or of its momentum) is
        exactly 0; or when a matrix's momentum is that of its weight decay, value for value, unless that is so of all
        and the loss has come down to a hundredth. Exempt, because a zero gradient is right there: embeddings and tied
        output layers (rows never seen), tables of one value for each user or item (`user_bias`: it cancels in the
        difference of two scores), and vectors that may be biases before a normalisation layer unless all
        parameters are affected. Experts of a mixture (`experts.3.`) are a warning: nothing is cut off, the router sent
        them no token. Where the optimizer has no names, a parameter counts as an expert's when the weights beside it
        have an expert's tensor of its shape. Likewise the matrices by which recurrent layers take their last hidden
        state, where those for the inputs are trained: the loss reads one step of them. Warn where gradients stopped
        coming to some of the matrices: Adam's first moment forgets in a hundred steps, and is then next to nothing
        beside the second.

    Known limits:
        Checkpoints without parameter names cannot tell a bias from a gain: vectors are then left out. Squares of
        gradients below 1e-23 underflow to 0 in float32; such a parameter is as dead.

    What to do:
        Look for `.detach()`, `torch.no_grad()`, a dead ReLU, or an unused branch between this parameter and the loss.
        Of experts, look at the routing.

    References:
        Kingma and Ba (2015), algorithm 1.
    """

    code = "OPT003"
    name = "no-gradient"
    symptom = Symptom.DEAD
    vouches = True
    headline = ("dead_tensors",)

    min_steps: Annotated[int, Threshold("optimizer steps before a zero means something", "steps", "design", ge=1)] = 50
    zero_share: Annotated[
        float, Threshold("share of exact zeros that makes a parameter dead", "fraction", "design", gt=0, le=1)
    ] = 0.999

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.OPTIMIZER_STATE, unit="optimizer_steps"),
            Need(role="train_loss", optional=True),
            Need(role=Part.WEIGHTS, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        state = evidence.optimizer
        kept = [one for one in (state.tensors if state else ()) if _moment(one) is not None]
        steps = evidence.steps_at_least.steps
        if not kept:
            return Finding(verdict=Verdict.SKIP, message="the optimizer keeps no moments (plain SGD), or made none")
        trained = [one for one in kept if self._trained_enough(one, steps)]
        if not trained:
            known = evidence.steps_at_least
            by = f"{known.steps} are known, counted by {printable(known.by, 80)}" if known.by else "none is known"
            message = f"no parameter has {self.min_steps} optimizer steps: {by}"
            return Finding(verdict=Verdict.SKIP, message=message)
        decaying = _decaying(evidence, trained)
        silent = [one for one in trained if self._is_silent(one) or one.label in decaying]
        everything = len(silent) == len(trained)
        dead = silent if everything else [one for one in silent if not _may_be_silent(one)]
        exempt_ones = [] if everything else [one for one in silent if _may_be_silent(one)]
        measured = {"tensors": len(trained), "dead_tensors": len(dead), "exempt_tensors": len(exempt_ones)}
        details = {
            "dead": [one.label for one in dead[:100]],
            "exempt": [one.label for one in exempt_ones[:100]],
        }
        stopped = {} if dead or state is None else _stopped(state, trained)
        if stopped and len(stopped) < len(trained):
            return _stopped_finding(stopped, len(trained), measured, details)
        if not dead:
            exempt = f" ({len(silent)} exempt)" if silent else ""
            message = f"gradients reached {_all(trained)}{exempt}"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured, details=details)
        experts = _experts(dead, evidence.weights)
        if len(experts) == len(dead) and not everything:
            return self._idle_experts(experts, measured, details)
        if not everything and _are_unused_memories(dead, trained):
            return _without_memory(dead, measured, details)
        any_of_all = f"any of the {len(dead)} parameters" if len(dead) > 1 else "the 1 parameter that there is"
        which = any_of_all if everything else f"{len(dead)} of {len(trained)} parameters"
        return Finding(
            verdict=Verdict.FAIL,
            message=f"{_silence(dead)} {which}: {listing([one.label for one in dead])}",
            remedy="look for .detach(), no_grad, a dead activation or an unused branch between them and the loss",
            measured=measured,
            details=details,
        )

    @staticmethod
    def _idle_experts(experts: list[TensorState], measured: dict[str, int], details: dict[str, list[str]]) -> Finding:
        owners = sorted({owner for owner in (expert_of(one.name) for one in experts) if owner is not None})
        which = f"{count(len(owners), 'expert')} ({listing(owners)})" if owners else "some experts"
        return Finding(
            verdict=Verdict.WARN,
            message=f"{which} got no token: {count(len(experts), 'parameter')} had no gradient in any step",
            remedy="look at the routing: its balance loss, its capacity, and how many tokens each expert gets",
            measured=measured,
            details=details,
        )

    def _trained_enough(self, tensor: TensorState, steps: int) -> bool:
        return tensor.numel > 0 and (steps if tensor.step is None else tensor.step) >= self.min_steps

    def _is_silent(self, tensor: TensorState) -> bool:
        moment = _moment(tensor)
        return moment is not None and moment.nonfinite == 0 and moment.zeros >= self.zero_share * moment.count


def _are_unused_memories(dead: Sequence[TensorState], trained: Sequence[TensorState]) -> bool:
    """Whether these are matrices of recurrent layers that take the last hidden state, and those beside them, which take
    the inputs, are trained.
    """
    alive = {one.name for one in trained} - {one.name for one in dead}
    return all(one.name and _MEMORY.search(one.name) and _MEMORY.sub("weight_ih", one.name) in alive for one in dead)


def _without_memory(dead: Sequence[TensorState], measured: dict[str, int], details: dict[str, list[str]]) -> Finding:
    return Finding(
        verdict=Verdict.WARN,
        message=f"no gradient came through time: {listing([one.label for one in dead])} never took a hidden state that "
        f"the loss depends on",
        remedy="read the whole sequence, or both final states (h_n): the last output of the backward direction saw "
        "one input, and so has every output where the sequences have one step",
        measured=measured,
        details=details,
    )


def _decaying(evidence: Evidence, trained: Sequence[TensorState]) -> set[str]:
    """The matrices whose momentum holds their weight decay and nothing else.

    Where that is so of all of them, a loss that has come down to next to nothing may have no gradient left.
    """
    matrices = [one for one in trained if len(one.shape) > 1]
    state, weights, loss = evidence.optimizer, evidence.weights, evidence.find("train_loss")
    if state is None or weights is None:
        return set()
    found = {one.label for one in matrices if decays_alone(state, one, weights.tensors)}
    values = loss.finite().values if loss is not None else np.empty(0)
    learnt = not len(values) or bool(values[-1] <= _NOTHING_LEFT * values[0])
    return set() if learnt and len(found) == len(matrices) else found


def _stopped(state: OptimizerState, trained: Sequence[TensorState]) -> dict[str, float]:
    """The matrices that had gradients once and none for long, and for how many steps: Adam's first moment, which
    forgets, is next to nothing beside the second, which does not. Embeddings and experts wait for their words.
    """
    found: dict[str, float] = {}
    ratios = {one.label: signal_to_noise(state, one) for one in trained if len(one.shape) > 1}
    if max((ratio for ratio in ratios.values() if ratio is not None), default=0.0) < _STILL_COMING:
        return found  # a loss that is learnt to the last digit
    for one in trained:
        ratio = ratios.get(one.label)
        sparse = one.certain_name is not None and (_EMBEDDING.search(one.certain_name.lower()) or expert_of(one.name))
        if ratio is None or not 0.0 <= ratio < _FORGOTTEN or sparse:
            continue
        beta = first_beta(state, one)
        found[one.label] = min(one.step or 0.0, log(max(ratio, _LEAST_RATIO) / _USUAL) / (2.0 * log(beta)))
    return found


def _stopped_finding(
    stopped: Mapping[str, float], amount: int, measured: dict[str, int], details: dict[str, list[str]]
) -> Finding:
    which, since = f"{len(stopped)} of {amount} parameters", round(min(stopped.values()))
    return Finding(
        verdict=Verdict.WARN,
        message=f"gradients no longer reach {which}, for at least {since} steps: {listing(list(stopped))}",
        remedy="frozen on purpose? Then take them out of the optimizer; else look for units that died",
        measured=measured | {"stopped_tensors": len(stopped), "steps_without": since},
        details=details | {"stopped": list(stopped)[:100]},
    )


def _silence(dead: Sequence[TensorState]) -> str:
    """A momentum forgets what was long ago, a second moment does not, or so little that nothing of it is 0."""
    forgets = any(one.second_moment is None for one in dead)
    return "for a thousand steps or ever since the start no gradient reached" if forgets else "no gradient ever reached"


def _moment(tensor: TensorState) -> MomentStats | None:
    return tensor.second_moment if tensor.second_moment is not None else tensor.first_moment


def _experts(tensors: list[TensorState], weights: Weights | None) -> list[TensorState]:
    """Those that are an expert's, by their name or else by a shape that an expert's tensor has."""
    known = weights.tensors if weights is not None else ()
    shapes = {one.shape for one in known if expert_of(one.name) is not None}
    return [
        one
        for one in tensors
        if (one.shape in shapes if one.certain_name is None else expert_of(one.certain_name) is not None)
    ]


def _may_be_silent(tensor: TensorState) -> bool:
    if len(tensor.shape) < 2:
        return True
    if tensor.shape[-1] == 1 and _OFFSETS.search((tensor.name or "").lower()):
        return True
    if tensor.certain_name is not None and _EMBEDDING.search(tensor.certain_name.lower()):
        return True
    # Unnamed and not silent to the last value: an embedding of which few rows were seen.
    return (
        tensor.certain_name is None
        and tensor.second_moment is not None
        and tensor.second_moment.zeros < tensor.second_moment.count
    )


def _all(parameters: Sequence[TensorState]) -> str:
    return f"all {len(parameters)} parameters" if len(parameters) > 1 else "the 1 parameter that there is"
