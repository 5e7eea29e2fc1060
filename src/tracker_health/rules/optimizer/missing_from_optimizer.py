"""OPT004."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from tracker_health.evidence import Evidence, Left, LeftOut, Need, Part
from tracker_health.evidence.parameters import SURELY_MEANT
from tracker_health.facts.never_updated import hardly_stepped, never_stepped
from tracker_health.facts.steps import why_too_few_steps
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, listing
from tracker_health.words.verdict import Verdict

_FORGOTTEN = (
    "was the layer replaced, or the model moved, after the optimizer was built? Build the optimizer after the model is "
    "complete, from all trainable parameters; look for .detach() or no_grad before the loss"
)
_UNUSED = (
    "unused or frozen on purpose? Then leave them out of the optimizer. Was the layer replaced, or the model moved, "
    "after the optimizer was built? Build it again; else look for .detach() or no_grad between them and the loss"
)
_NO_RATE = "give their group a learning rate; if they are frozen on purpose, leave them out of the optimizer"
_ROUTING = "look at the routing: its balance loss, its capacity, and how many tokens each expert gets"
_WAYS = {
    Left.WITHOUT_STATE: ("without-state", "have no state, no gradient ever reached them", _UNUSED),
    Left.WITHOUT_RATE: ("without-rate", "have a learning rate of 0", _NO_RATE),
    Left.NOT_GIVEN: ("not-given", "of the weights are not in the optimizer", _FORGOTTEN),
}


@dataclass(frozen=True, kw_only=True)
class MissingFromOptimizer(Probe):
    """Parameters that the optimizer does not train, though nothing shows that this was meant.

    What it finds:
        Parameters that the optimizer lists but has no state for: their gradient was always None. Weights that the
        optimizer was never given, or that replaced the layer it still holds. Groups whose learning rate was always 0.
        An optimizer that was almost never stepped.

    Why it matters:
        These parameters keep their initial values, whatever the loss does. Nothing reports it.

    How it decides:
        The table of parameters answers for each part that was left out whether that was meant, by the first of a list
        of questions. They ask for copies, bases of adapters and heads of other tasks. They ask whether the rest of the
        module is trained, and whether weights are what an initialiser draws. They ask for whole fronts and
        branches. Fail for a part that is clearly not meant; else warn. Fail, too, without any state after `min_steps`
        steps. Warn below `few_updates` updates, of more than `most_accumulated` steps each.

    Known limits:
        A single first layer that was never given to the optimizer may be frozen or forgotten: it passes. So does a
        single layer without state that may be unused, unless its values are fresh draws. Small matrices do not show
        whether they were trained. Plain SGD keeps no state: WGT002 compares two checkpoints instead.

    Worked example:
        optimizer body.weight 4x4: step=100 exp_avg=0.01*16 exp_avg_sq=1e-3*16
        optimizer head.weight 10x4: step=100 exp_avg=0.01*40 exp_avg_sq=1e-3*40
        weights body.weight 4x4: normal(0.5)*16
        weights head.weight 2x4: uniform(0.5)*8
        gives: missing 1, in_optimizer 2
        fail: the head has 2 rows in the model and 10 in the optimizer, so that another one is trained.

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
    kinds = ("without-state", "without-rate", "not-given", "replaced", "never-stepped")
    headline = ("missing",)

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
        table, state = evidence.parameters, evidence.optimizer
        if state is None or not table.readable:
            return Finding(verdict=Verdict.SKIP, message="names of parameters are longer than any model's")
        idle = never_stepped(evidence, state, self.min_steps)
        idle = idle or hardly_stepped(evidence, state, self.few_updates, self.most_accumulated)
        if idle is not None:
            return replace(idle, kind="never-stepped")
        having = sum(1 for one in table.with_state if one.trained)
        if not having:
            return Finding(verdict=Verdict.SKIP, message="the optimizer keeps no state (plain SGD)")
        if why_not := why_too_few_steps(evidence, self.min_steps):
            return Finding(verdict=Verdict.SKIP, message=why_not)
        if table.replaced:
            return _replaced([f"{one.weight.name} (now {list(one.weight.shape)}, in the optimizer {list(one.before)})"
                              for one in table.replaced], having)  # fmt: skip
        for how in _WAYS:
            if wrong := table.left(how, meant=False):
                return _finding(wrong[0], having)
        meant = [one for some in table.left_out if some.how in _WAYS for one in some.parameters]
        note = f"; {count(len(meant), 'other tensor')} frozen or unused, as it seems on purpose" if meant else ""
        why = f" ({listing(sorted({one.purpose.sentence for one in table.left_out}))})" if meant else ""
        every = "" if any(one.listed for one in meant) else "all "
        return Finding(
            verdict=Verdict.PASS,
            message=f"{every}{count(having, 'listed parameter')} {'has' if having == 1 else 'have'} state{note}{why}",
            measured={"missing": len(meant), "in_optimizer": having},
        )


def _finding(wrong: LeftOut, having: int) -> Finding:
    kind, what, remedy = _WAYS[wrong.how]
    names = [one.shown for one in wrong.parameters]
    sure = wrong.purpose.confidence >= SURELY_MEANT
    return Finding(
        verdict=Verdict.FAIL if sure else Verdict.WARN,
        message=f"{count(len(names), 'parameter')} {_singular(what, len(names))}; {wrong.purpose.sentence}: "
        f"{listing(names)}",
        remedy=_ROUTING if any(one.expert for one in wrong.parameters) else _FORGOTTEN if sure else remedy,
        measured={"missing": len(names), "in_optimizer": having},
        details={"missing": [one.called if one.name else one.label for one in wrong.parameters[:200]]},
        kind=kind,
    )


def _replaced(names: Sequence[str], having: int) -> Finding:
    return Finding(
        verdict=Verdict.FAIL,
        message=f"{count(len(names), 'parameter')} of another size is in the optimizer than in the model: the layer "
        f"was replaced after the optimizer was built, and the new one is not trained: {listing(list(names))}",
        remedy=_FORGOTTEN,
        measured={"missing": len(names), "in_optimizer": having},
        details={"missing": list(names[:200])},
        kind="replaced",
    )


def _singular(what: str, amount: int) -> str:
    return what if amount > 1 else what.replace("have ", "has ").replace("are ", "is ").replace("them", "it")
