"""OPT004."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from tracker_health.evidence import Evidence, Need, OptimizerState, Part, TensorState, Weights, label_of
from tracker_health.layers import are_names
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._frozen import often_unused
from tracker_health.probes._model import expert_of
from tracker_health.probes._never_updated import hardly_stepped, never_stepped
from tracker_health.probes._run import says_frozen, why_too_few_steps
from tracker_health.probes._stateless import amiss, never_moved
from tracker_health.probes._unlisted import Sign, forgotten, not_listed
from tracker_health.probes._updates import groups_without_rate
from tracker_health.result import Finding
from tracker_health.text import count, listing
from tracker_health.verdict import Verdict

_FORGOTTEN = "make the optimizer from all trainable parameters; look for .detach() or no_grad before the loss"
_UNUSED = (
    "unused or frozen on purpose? Then leave them out of the optimizer; else look for .detach() or no_grad between "
    "them and the loss"
)
_NO_RATE = "give their group a learning rate; if they are frozen on purpose, leave them out of the optimizer"
_ROUTING = "look at the routing: its balance loss, its capacity, and how many tokens each expert gets"


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
        Listed without state: fail where they are amid what is trained, so that neither freezing nor an unused branch
        explains it: most have trained matrices beside them in their own layer, and their like is trained in a later
        layer; or another matrix of the same recurrent layer or attention is trained; or the optimizer lists nothing but
        an adapter. Where an assumed order gives the names, that is a warning. Warn, too, for a matrix of numbered
        modules of which the same is trained before and behind it, or beside it among embeddings; for a weight whose
        bias is trained; for the model's one head, and an embedding beside a trained one, that are as large as layers
        begin, to within the error of a random draw; for whatever else lies behind trained parameters and is more than
        the two tensors of one layer; for experts that got no token. And for one layer between trained ones, where
        these, as the model defines them, take and give what it does: if they do not fit each other without it, and no
        twin beside it may be in its place, unless its size shows that it was trained before; if they do, where it is as
        large as layers begin, and not of the last of several blocks, whose side outputs often lead nowhere. And for an
        attention's inputs or output of which the other is trained. The same is asked of the parameters of a group whose
        learning rate is 0 and always was, where they are as large as layers begin.

        It passes what is frozen on purpose: where nothing that lies before is trained, as in a frozen backbone; whole
        branches (a tower, an encoder); where more than `max_share` is missing; where nothing but vectors and the head
        is trained, or all but normalisations, or adapters, or the same parts of every layer; one of several heads;
        parts that many models carry along unused (a pooler, an auxiliary head). But it warns where the values of such
        tensors still are as large as layers begin (or some are, and all normalisations scale by exactly 1): nobody
        keeps random weights, but for a single layer that is not listed. It warns, too, where a training that was
        watched left word that they asked for a gradient, and they are no whole branch: that is no freezing.

        Of the weights beside the state, tensors are found missing by name, or where the optimizer has no names by their
        shapes, and which one of a shape it is may then be open: fail for an adapter file, which holds trained tensors
        only. In a whole model it warns, unless the same signs say that they are frozen on purpose. Buffers, a tied
        tensor's second name and the copies that are made of a model (teacher, moving average, momentum encoder) do not
        count.

        An optimizer that would have state after its first step (Adam and its like, SGD with a momentum) and has none
        made no update: fail where the checkpoint itself says that it is from after `min_steps` steps, warn where the
        log does, or where it is one of several optimizers, which may begin later. What Adagrad made before the first
        step, and never stepped, is no state. Warn where Adam has counted fewer than `few_updates` updates and the run
        more than `most_accumulated` steps to each of them, and the log has not a row for each.

    Known limits:
        A forgotten or detached first layer or branch looks like a frozen one, unless its values show that it was never
        trained: those of small matrices do not, nor do those that began pretrained. A single layer without state may be
        one that the task leaves out, and passes unless one of the signs above speaks against it (it may do so of one
        that lies unused amid others of its size); so do heads whose name says that they are another objective's
        (`lm_head`, `classifier`), and all signs by name where the optimizer has none and the weights do not give them.
        A head that is left out on purpose is warned of, where it is the only one and was never trained. A param of the
        run that speaks of freezing (`freeze_...`) excuses all that is listed without state. Buffers are told by their
        names: tensors of an unknown kind count only where another one of that kind is trained. Optimizers without state
        (plain SGD) cannot be judged. That some of the updates were skipped, half of them or nine in ten, is not told
        from gradients that accumulate, nor from a resume without the optimizer's state.

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
        state = evidence.optimizer
        if state is None:
            return Finding(verdict=Verdict.SKIP, message="there is no optimizer state")
        if not are_names(_names(state, evidence.weights)):
            return Finding(verdict=Verdict.SKIP, message="names of parameters are longer than any model's")
        state = _without_idle(state, self.min_steps)
        idle = never_stepped(evidence, state, self.min_steps)
        idle = idle or hardly_stepped(evidence, state, self.few_updates, self.most_accumulated)
        if idle is not None:
            return idle
        if not state.tensors:
            return Finding(verdict=Verdict.SKIP, message="the optimizer keeps no state (plain SGD)")
        if why_not := why_too_few_steps(evidence, self.min_steps):
            return Finding(verdict=Verdict.SKIP, message=why_not)
        said = says_frozen(evidence)
        found = None if said or not state.stateless else self._without_state(state, evidence.weights)
        if found is None and not said:
            found = self._without_rate(state, evidence.weights)
        missing = not_listed(state, evidence.weights)
        if found is None and missing and evidence.weights is not None and not (said and state.stateless):
            found = self._found(forgotten(state, evidence.weights, missing, self.max_share), len(state.tensors), "")
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
        called = {label: state.presumed.get(label, label) for label in state.stateless}
        frozen = frozenset(state.frozen or ())
        gone = [label for label in state.stateless if label not in frozen and not often_unused(called[label])]
        experts = [label for label in gone if expert_of(called[label]) is not None]
        rest = [label for label in gone if expert_of(called[label]) is None]
        having = len(state.tensors)
        found = amiss(state, rest, weights, self.max_share) if rest else None
        if found is not None:
            return self._found(found, having, f"{_have(len(found.labels))} ")
        if experts:
            owners = len({expert_of(called[label]) for label in experts})
            what = f"{_have(len(experts))} no state: {count(owners, 'expert')} got no token"
            return _finding(Verdict.WARN, experts, having, what, _ROUTING)
        return None

    def _without_rate(self, state: OptimizerState, weights: Weights | None) -> Finding | None:
        """The same of the parameters of a group whose learning rate is 0 and always was."""
        groups = groups_without_rate(state)
        idle = [one for one in state.tensors if one.group in groups]
        if not idle or len(idle) == len(state.tensors):
            return None
        without = _without(state, idle)
        gone = without.stateless[len(state.stateless) :]
        sign = amiss(without, gone, weights, self.max_share)
        # A rate of 0 is what somebody said: of what was trained before it is no accident.
        if sign is None or not never_moved(without, gone, weights):
            return None
        what = f"{_have(len(sign.labels))} a learning rate of 0, and still the size that layers begin with"
        return _finding(sign.verdict, sign.labels, len(state.tensors), what, _NO_RATE)

    @staticmethod
    def _found(sign: Sign | None, having: int, before: str) -> Finding | None:
        if sign is None:
            return None
        remedy = _FORGOTTEN if sign.is_sure else _UNUSED
        return _finding(sign.verdict, sign.labels, having, f"{before}{sign.what}", remedy)


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


def _names(state: OptimizerState, weights: Weights | None) -> Iterator[str]:
    yield from (one.label for one in state.tensors)
    yield from state.stateless
    yield from (one.name for one in (weights.tensors if weights is not None else ()))


def _without_idle(state: OptimizerState, least: int) -> OptimizerState:
    """The state without what was made before the first step and never stepped since, as Adagrad's."""
    idle = [one for one in state.tensors if one.step == 0]
    return _without(state, idle) if idle and (state.counted or 0) >= least else state


def _without(state: OptimizerState, idle: Sequence[TensorState]) -> OptimizerState:
    """The state as if nothing was kept for some of its parameters, whose labels are the last of those without."""
    gone = {id(one) for one in idle}
    labels = {label_of(one.id, one.certain_name, one.optimizer): one for one in idle}
    presumed = {label: one.name for label, one in labels.items() if one.assumed and one.name is not None}
    return replace(
        state,
        tensors=tuple(one for one in state.tensors if id(one) not in gone),
        stateless=(*state.stateless, *labels),
        presumed={**state.presumed, **presumed},
    )
