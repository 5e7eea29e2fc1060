"""Optimizers that were almost never stepped, by what they keep and count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracker_health.evidence import Evidence, OptimizerState, accumulation, is_whole_multiple, told_by_checkpoint
from tracker_health.report.result import Finding
from tracker_health.text import count, listing, printable
from tracker_health.words.verdict import Verdict

# What the groups of optimizers have that keep state whatever their settings: Adam and comparable ones, RMSprop,
# Adadelta, Adafactor.
_ALWAYS = ("betas", "alpha", "rho", "scale_parameter")
_OF_LIGHTNING = "pytorch-lightning_version"
_CALL_STEP = "call optimizer.step() after backward(), on the optimizer that is saved, whose parameters are the model's"
SKIPPED = (
    "look for what skips steps: a loss scaler, a check for NaN, a branch around optimizer.step(); when resuming, load "
    "the optimizer's state"
)


def never_stepped(evidence: Evidence, state: OptimizerState, least: int) -> Finding | None:
    """What is wrong with an optimizer that would keep state from its first step on and has none; None where nothing is.

    By its own count a checkpoint is from after ``least`` steps; by the log alone it may be from before them all. One of
    several optimizers may be meant to begin later.
    """
    known = evidence.steps_at_least
    idle = _idle(state)
    keeping = state.groups and all(map(_keeps_state, state.groups))
    if not idle or not keeping or known.steps < least:
        return None
    alone = not state.tensors
    sure = alone and told_by_checkpoint(state).steps >= least
    done = f"{count(known.steps, 'step')} (counted by {printable(known.by)})"
    doubt = "" if sure else ", or the checkpoint is from before training" if alone else ", or is to begin later"
    which = "" if alone else f" of {listing(sorted(set(map(_owner, idle))))}"
    return Finding(
        verdict=Verdict.FAIL if sure else Verdict.WARN,
        message=f"{_none_of(len(idle), which)} any state after {done}: the optimizer made no update{doubt}",
        remedy=_CALL_STEP,
        measured={"missing": len(idle), "in_optimizer": len(state.tensors)},
        details={} if alone else {"missing": idle[:200]},
    )


def _idle(state: OptimizerState) -> list[str]:
    """The parameters of the optimizers that have no state at all."""
    active = {one.optimizer for one in state.tensors}
    if not active:
        return list(state.stateless)
    return [] if "" in active else [label for label in state.stateless if _owner(label) not in active]


def _owner(label: str) -> str:
    return label.rpartition("/")[0]


def _none_of(parameters: int, which: str) -> str:
    if parameters > 1:
        return f"none of {parameters} parameters{which} has"
    return f"the 1 parameter{which or ' that there is'} has not"


def _keeps_state(group: Mapping[str, Any]) -> bool:
    momentum = group.get("momentum")
    return any(key in group for key in _ALWAYS) or (isinstance(momentum, (int, float)) and momentum > 0)


def hardly_stepped(evidence: Evidence, state: OptimizerState, few: int, most_in_one: int) -> Finding | None:
    """What is wrong with an optimizer whose own count of a handful (fewer than ``few``) is far below the run's:
    beyond ``most_in_one`` batches to an update, which no accumulation of gradients has; None where nothing is.
    """
    own, reached = state.counted, _reached(evidence, state)
    if own is None or own >= few or reached is None or reached <= most_in_one * max(own, 1):
        return None
    if _went_on(evidence, reached) or _logs_its_updates(evidence, own):
        return None
    return Finding(
        verdict=Verdict.WARN,
        message=f"the optimizer has made {count(own, 'update')}, the run has come to step {reached}: almost all "
        f"updates were skipped, or its state was lost when the run was resumed",
        remedy=SKIPPED,
        measured={"updates": own, "global_step": reached},
    )


def _reached(evidence: Evidence, state: OptimizerState) -> int | None:
    return state.global_step if state.global_step is not None else evidence.info.global_step


def _logs_its_updates(evidence: Evidence, own: int) -> bool:
    """Whether the log has a row for each update: its steps then count something else, as samples or an environment's
    steps.
    """
    loss = evidence.find("train_loss")
    return loss is not None and abs(len(loss) - own) <= 2


def _went_on(evidence: Evidence, reached: int) -> bool:
    """Whether the log begins in the middle: the run continues from another one, and its optimizer may be new."""
    loss = evidence.find("train_loss")
    return loss is not None and len(loss) > 0 and 2 * int(loss.clean().steps.min()) > reached


def behind(evidence: Evidence, own: int, reached: float) -> bool:
    """Whether the optimizer's own count is below half of the steps that the run reached.

    Those steps must clearly be no batches, no samples, and no steps that several optimizers took in turn.
    """
    state = evidence.optimizer
    if state is None or 2 * own >= reached:
        return False
    # So many batches may make an update, unless the params say how many do.
    said = accumulation(evidence.info.params)
    if is_whole_multiple(int(reached), own) and (said == 1 or int(reached) // own == said):
        return False
    if _went_on(evidence, int(reached)):
        return False
    loss = evidence.find("train_loss")
    logged = loss is not None and len(loss) > 2 * own
    return logged or counts_updates(evidence, state)


def counts_updates(evidence: Evidence, state: OptimizerState) -> bool:
    """Whether the run's step is one of trainers that count updates: Hugging Face's, Lightning's of one optimizer."""
    alone = len({one.optimizer for one in state.tensors}) == 1
    return evidence.info.global_step is not None or (alone and _OF_LIGHTNING in state.extras)
