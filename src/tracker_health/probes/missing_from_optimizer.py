"""OPT004."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, OptimizerState, Part, TensorHeader, Weights
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._frozen import Sized, looks_frozen
from tracker_health.probes._model import expert_of, parameters_of
from tracker_health.probes._never_updated import hardly_stepped, never_stepped
from tracker_health.probes._stateless import is_cut_off, seems_frozen, was_never_trained
from tracker_health.probes._unlisted import not_listed
from tracker_health.result import Finding
from tracker_health.text import count, listing, printable
from tracker_health.verdict import Verdict

_OFTEN_UNUSED = re.compile(r"(^|\.)(pooler|mask_token|mask_emb|masked_spec_embed)(\.|$)")
_FIRST_FACTOR = re.compile(r"\.lora_(embedding_)?A(\.|$)")
_FORGOTTEN = "make the optimizer from all trainable parameters; look for .detach() or no_grad before the loss"
_UNUSED = (
    "unused or frozen on purpose? Then leave them out of the optimizer; else look for .detach() or no_grad between "
    "them and the loss"
)
_ROUTING = "look at the routing: its balance loss, its capacity, and how many tokens each expert gets"

_OF_ONE_LAYER = 2  # a weight and its bias amid what is trained: a pooler or a head that a task leaves out


@dataclass(frozen=True, kw_only=True)
class MissingFromOptimizer(Probe):
    """Parameters that the optimizer does not train.

    What it finds:
        Parameters that a group of the optimizer lists, but for which it keeps no state: their gradient was always None.
        And tensors of the checkpoint's weights that the optimizer was never given. And an optimizer that was hardly
        ever stepped.

    Why it matters:
        These parameters keep the values that they began with, whatever the loss does; nothing complains about it.

    How it decides:
        Listed without state: fail where they are in the middle of what is trained, so that neither freezing nor an
        unused branch explains it: most of them have trained neighbours in their own layer, and their like is trained in
        a later layer; or the optimizer lists nothing but an adapter. What may as well be unused (more than the two
        tensors of one layer), and experts that got no token, are a warning. It passes where nothing that lies before
        them is trained, as in a frozen backbone, where more than `max_share` is missing, where only vectors (and the
        head) or adapters are trained, and for parts that many models carry along unused (a pooler); but it warns where
        such tensors still are as large as layers begin, to within the error of a random draw. Of the weights beside the
        state, tensors are found missing by name, or where the optimizer has no names by their shapes: fail for an
        adapter file, which holds trained tensors only. In a whole model it warns, unless the same signs say that they
        are frozen on purpose. Buffers and the copies that are made of a model (teacher, moving average, momentum
        encoder) do not count. An optimizer that would have state after its first step (Adam and its like, SGD with a
        momentum) and has none made no update: fail where the checkpoint itself says that it is from after `min_steps`
        steps, warn where the log does. Warn where Adam has counted fewer than `few_updates` updates and the run more
        than `most_accumulated` steps to each of them.

    Known limits:
        A forgotten or detached first layer looks like a frozen one, unless its values show that it was never trained. A
        param of the run that speaks of freezing (`freeze_...`) excuses all that is listed without state. Buffers are
        told by their names: tensors of an unknown kind count only where another one of that kind is trained. Optimizers
        without state (plain SGD) cannot be judged. That some of the updates were skipped, half of them or nine in ten,
        is not told from gradients that accumulate, nor from a resume without the optimizer's state.

    What to do:
        Make the optimizer from `model.parameters()` after the model is complete; look for `.detach()` and
        `torch.no_grad()` between the parameter and the loss.

    References:
        torch.optim: a parameter whose gradient is None is skipped, and gets no state. torch.nn.init, on how large
        layers begin.
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

    few_updates: Annotated[
        int, Threshold("updates by the optimizer's own count below which they are compared to the run's steps", "steps",
                       "design", ge=1)
    ] = 50  # fmt: skip
    most_accumulated: Annotated[
        int, Threshold("batches of an update above which gradients are not accumulated, but updates skipped", "batches",
                       "design", ge=1)
    ] = 100  # fmt: skip

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.OPTIMIZER_STATE, unit="optimizer_steps"),
            Need(role=Part.WEIGHTS, optional=True),
            Need(role="train_loss", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        state, known = evidence.optimizer, evidence.steps_at_least
        if state is None:
            return Finding(verdict=Verdict.SKIP, message="there is no optimizer state")
        idle = never_stepped(evidence, state, self.min_steps)
        idle = idle or hardly_stepped(evidence, state, self.few_updates, self.most_accumulated)
        if idle is not None:
            return idle
        if not state.tensors:
            return Finding(verdict=Verdict.SKIP, message="the optimizer keeps no state (plain SGD)")
        if known.steps < self.min_steps:
            by = f"{known.steps}, counted by {printable(known.by, 80)}" if known.by else "none"
            return Finding(verdict=Verdict.SKIP, message=f"fewer than {self.min_steps} optimizer steps are known: {by}")
        said = _said_to_be_frozen(evidence)
        found = None if said or not state.stateless else self._without_state(state, evidence.weights)
        sure, doubtful = parameters_of(evidence.weights.tensors if evidence.weights is not None else ())
        missing = not_listed(state, sure, doubtful)
        if found is None and missing and evidence.weights is not None and not (said and state.stateless):
            found = self._forgotten(state, missing, [*sure, *doubtful], is_adapter=evidence.weights.is_adapter)
        if found is not None:
            return found
        frozen = len(state.stateless) or len(missing)
        note = f"; {count(frozen, 'other tensor')} frozen or unused, as it seems on purpose" if frozen else ""
        kept = "all " if not state.stateless else ""
        return Finding(
            verdict=Verdict.PASS,
            message=f"{kept}{count(len(state.tensors), 'listed parameter')} {_have(len(state.tensors))} state{note}",
            measured={"missing": frozen, "in_optimizer": len(state.tensors)},
        )

    def _without_state(self, state: OptimizerState, weights: Weights | None) -> Finding | None:
        """What is wrong with the parameters that are listed and have no state; None where nothing is."""
        gone = [label for label in state.stateless if not _OFTEN_UNUSED.search(label)]
        experts = [label for label in gone if expert_of(label) is not None]
        rest = [label for label in gone if expert_of(label) is None]
        having = len(state.tensors)
        if rest and not (len(rest) > self.max_share * (len(rest) + having) or seems_frozen(state, rest, weights)):
            if is_cut_off(state, rest, weights):
                what = f"{_have(len(rest))} no state, though others like them are trained: no gradient ever reached "
                return _finding(Verdict.FAIL, rest, having, what + ("it" if len(rest) == 1 else "them"), _FORGOTTEN)
            if len(rest) > _OF_ONE_LAYER:
                what = f"{_have(len(rest))} no state: unused, frozen, or cut off from the loss"
                return _finding(Verdict.WARN, rest, having, what, _UNUSED)
            return None
        if rest and was_never_trained(state, rest, weights):
            what = f"{_have(len(rest))} no state and still the size that layers begin with: never trained"
            return _finding(Verdict.WARN, rest, having, what, _UNUSED)
        if experts:
            owners = len({expert_of(label) for label in experts})
            what = f"{_have(len(experts))} no state: {count(owners, 'expert')} got no token"
            return _finding(Verdict.WARN, experts, having, what, _ROUTING)
        return None

    def _forgotten(
        self, state: OptimizerState, missing: Sequence[TensorHeader], every: Sequence[TensorHeader], *, is_adapter: bool
    ) -> Finding | None:
        """What is wrong with the weights that no group lists; None where nothing is."""
        names = [one.name for one in missing]
        gone = set(names)
        what = f"of the weights {'is' if len(names) == 1 else 'are'} not in the optimizer"
        if is_adapter:
            # All first factors at once are frozen on purpose (LoRA-FA).
            if gone == {one.name for one in every if _FIRST_FACTOR.search(one.name)}:
                return None
            return _finding(Verdict.FAIL, names, len(state.tensors), what, _FORGOTTEN)
        if len(missing) > self.max_share * (len(state.tensors) + len(missing)):
            return None
        trained = [Sized(one.name, one.shape) for one in every if one.name not in gone]
        if looks_frozen([Sized(one.name, one.shape) for one in missing], trained):
            return None
        return _finding(Verdict.WARN, names, len(state.tensors), what, _FORGOTTEN)


def _finding(verdict: Verdict, names: Sequence[str], having: int, what: str, remedy: str) -> Finding:
    return Finding(
        verdict=verdict,
        message=f"{count(len(names), 'parameter')} {what}: {listing(list(names), 5)}",
        remedy=remedy,
        measured={"missing": len(names), "in_optimizer": having},
        details={"missing": list(names[:200])},
    )


def _have(amount: int) -> str:
    return "has" if amount == 1 else "have"


def _said_to_be_frozen(evidence: Evidence) -> bool:
    """Whether the run's own params speak of freezing."""
    return any(
        re.search(r"freez|frozen", name.lower()) and str(value).lower() not in ("", "none", "false", "0", "0.0")
        for name, value in evidence.info.params.items()
    )
