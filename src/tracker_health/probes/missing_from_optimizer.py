"""OPT004."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from tracker_health.evidence import Evidence, Need, OptimizerState, Part, TensorHeader, Weights
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import count, listing
from tracker_health.verdict import Verdict

_BUFFER = re.compile(
    r"(^|\.)(running_mean|running_var|num_batches_tracked|position_ids|inv_freq|token_type_ids|attn_mask|masked_bias"
    r"|causal_mask|relative_position_index|anchor_grid|anchors|freqs_cis|rotary_emb\.\w+)$"
)
_FLOATING = re.compile(r"^(F|BF)\d+")
_FRONT = re.compile(
    r"(^|[._])(tok|token|tokens|emb|embed|embedding|embeddings|embed_tokens|wte|wpe|pos|position|positions|patch|patches"
    r"|stem|conv1)([._]|$)"
)
_BACK = re.compile(r"(^|[._])(head|lm_head|classifier|score|logits|output|out|fc|final_layer|proj_out)([._]|$)")
_NUMBERED = re.compile(r"^(.*?)(?:^|\.)(\d+)\.")
_ADAPTER = re.compile(r"(^|[._])(lora|adapter|prompt|prefix)([._]|$)", re.IGNORECASE)
_MANY_VECTORS = 4


@dataclass(frozen=True, kw_only=True)
class MissingFromOptimizer(Probe):
    """Parameters that the optimizer does not train.

    What it finds:
        Parameters that a group of the optimizer lists, but for which it keeps no state: their gradient was always None.
        And tensors of the checkpoint's weights that the optimizer was never given.

    Why it matters:
        These parameters keep the values that they began with, whatever the loss does; nothing complains about it.

    How it decides:
        Listed without state, where others of the optimizer have some: fail. Of the weights beside the state, tensors
        are found missing by name, or where the optimizer has no names by their shapes in order: fail for an adapter
        file, which holds trained tensors only. In a whole model it warns, and only when at most `max_share` of the
        tensors are missing and they are not simply the first ones: freezing a backbone or embeddings is done on
        purpose.

    Known limits:
        A forgotten first layer looks like a frozen one; frozen parameters that the optimizer was given all the same
        look like detached ones, unless a param of the run (`freeze_...`) says that they are. Optimizers without state
        (plain SGD) cannot be judged.

    What to do:
        Make the optimizer from `model.parameters()` after the model is complete; look for `.detach()` and
        `torch.no_grad()` between the parameter and the loss.

    References:
        torch.optim: a parameter whose gradient is None is skipped, and gets no state.
    """

    code = "OPT004"
    name = "missing-from-optimizer"
    symptom = Symptom.FROZEN
    headline = ("missing",)

    max_share: Annotated[
        float, Threshold("share of a whole model's tensors from which on they are frozen on purpose", "fraction",
                         "design", gt=0, le=1)
    ] = 0.7  # fmt: skip
    min_steps: Annotated[int, Threshold("optimizer steps before no state means something", "steps", "design", ge=1)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.OPTIMIZER_STATE, min_points=self.min_steps, unit="optimizer_steps"),
            Need(role=Part.WEIGHTS, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        state = evidence.optimizer
        if state is None or not state.tensors:
            return Finding(verdict=Verdict.SKIP, message="the optimizer keeps no state (plain SGD)")
        if state.stateless and not _frozen_on_purpose(evidence):
            return self._finding(
                Verdict.FAIL, state.stateless, len(state.tensors), "have no state: no gradient ever reached them"
            )
        missing = _missing(state, evidence.weights) if evidence.weights is not None else ()
        tensors = len(state.tensors) + len(missing)
        if missing and evidence.weights is not None:
            adapter = evidence.weights.is_adapter
            if adapter or (len(missing) <= self.max_share * tensors and not _on_purpose(missing, evidence.weights)):
                names = tuple(tensor.name for tensor in missing)
                verdict = Verdict.FAIL if adapter else Verdict.WARN
                return self._finding(verdict, names, len(state.tensors), "of the weights are not in the optimizer")
        measured = {"missing": len(missing), "in_optimizer": len(state.tensors)}
        frozen = f"; {count(len(missing), 'other tensor')} frozen, as it seems on purpose" if missing else ""
        return Finding(
            verdict=Verdict.PASS,
            message=f"all {len(state.tensors)} listed parameters have state{frozen}",
            measured=measured,
        )

    @staticmethod
    def _finding(verdict: Verdict, names: tuple[str, ...], having: int, what: str) -> Finding:
        return Finding(
            verdict=verdict,
            message=f"{count(len(names), 'parameter')} {what}: {listing(list(names), 5)}",
            remedy="make the optimizer from all trainable parameters; look for .detach() or no_grad before the loss",
            measured={"missing": len(names), "in_optimizer": having},
            details={"missing": list(names[:200])},
        )


def _frozen_on_purpose(evidence: Evidence) -> bool:
    """Whether the run's own params speak of freezing."""
    return any(
        re.search(r"freez|frozen", name.lower()) and str(value).lower() not in ("", "none", "false", "0", "0.0")
        for name, value in evidence.info.params.items()
    )


def _missing(state: OptimizerState, weights: Weights) -> tuple[TensorHeader, ...]:
    """The trainable tensors of the weights that the optimizer has not, in order; nothing where it cannot be told."""
    trainable = [one for one in weights.tensors if _FLOATING.match(one.dtype) and not _BUFFER.search(one.name)]
    known = [tensor for tensor in state.tensors if tensor.name is not None and not str(tensor.name).isdigit()]
    if len(known) == len(state.tensors):
        return _by_name({str(tensor.name) for tensor in known}, trainable)
    return _by_shape([tensor.shape for tensor in state.tensors], trainable)


def _by_name(names: set[str], trainable: list[TensorHeader]) -> tuple[TensorHeader, ...]:
    """Names may have a prefix in one of the two files (``module.``, ``base_model.model.``): tails are compared."""
    tails = {_tail(name) for name in names}
    missing = tuple(one for one in trainable if _tail(one.name) not in tails)
    # Names of another world: nothing can be said.
    return missing if len(missing) < len(trainable) else ()


def _tail(name: str) -> str:
    plain = re.sub(r"\.(default|weight_orig)(?=\.|$)", "", name)
    return re.sub(r"^(module\.|_orig_mod\.|model\.|base_model\.model\.)+", "", plain)


def _by_shape(shapes: list[tuple[int, ...]], trainable: list[TensorHeader]) -> tuple[TensorHeader, ...]:
    """What is left of the weights when each of the optimizer's shapes has taken one. Of several tensors of a shape
    those count as left that would most likely be frozen on purpose: a file of weights does not keep the model's order.
    """
    have, wanted = Counter(shapes), Counter(one.shape for one in trainable)
    if any(have[shape] > wanted[shape] for shape in have):
        return ()  # not the weights of this optimizer
    left = wanted - have
    missing = []
    for one in sorted(trainable, key=_likely_frozen):
        if left[one.shape]:
            left[one.shape] -= 1
            missing.append(one)
    return tuple(missing)


def _likely_frozen(tensor: TensorHeader) -> tuple[int, int, str]:
    place = _place(tensor.name)
    return place.part, place.number, tensor.name


class _Place(NamedTuple):
    """Where in a model a tensor lies, as far as its name tells: its part (0 first, 2 last), its list, its number
    there.
    """

    part: int
    list_name: str
    number: int

    def after(self, other: _Place) -> bool:
        if self.part != other.part:
            return self.part > other.part
        return self.list_name == other.list_name and self.number > other.number


def _place(name: str) -> _Place:
    numbered = _NUMBERED.match(name)
    stem = numbered.group(1) if numbered else name
    if _FRONT.search(stem):
        return _Place(0, "", 0)
    if _BACK.search(stem):
        return _Place(2, "", 0)
    return _Place(1, stem, int(numbered.group(2))) if numbered else _Place(1, "", 0)


def _on_purpose(missing: tuple[TensorHeader, ...], weights: Weights) -> bool:
    """Whether what is missing looks frozen: nothing that lies before it is trained. So are many vectors at once (all
    normalisation layers), and an output layer that is tied to the embedding.
    """
    gone = {one.name for one in missing}
    trained = [one for one in weights.tensors if one.name not in gone and not _BUFFER.search(one.name)]
    if any(_ADAPTER.search(one.name) for one in trained):
        return True
    if len(missing) > _MANY_VECTORS and all(len(one.shape) == 1 for one in missing):
        return True
    front = {one.shape for one in trained if _place(one.name).part == 0}
    suspects = [one for one in missing if not (_place(one.name).part == 2 and one.shape in front)]
    places = {_place(one.name) for one in trained}
    return not any(_place(one.name).after(place) for one in suspects for place in places)
