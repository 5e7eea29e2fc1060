"""Doing what a report says: a setting is set, words are followed as far as they say what to do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, NamedTuple

from changes import NOTHING, Change, Undone

from tracker_health.report.result import Report
from tracker_health.words.diagnosis import Action

Kind = Literal["setting", "words", "setting and words"]

_OF_SCHEDULE = frozenset({"rate-zero", "early-decay", "endless-warm-up"})
_OF_INITIAL_WEIGHTS = frozenset({"vanishing-init", "exploding-init", "update-too-small", "update-too-large"})
_ONCE = frozenset({"nan-midway", "masked-nan"})
_BROKEN_BATCHES = frozenset({"bad-batches"})

_FOLLOWED: dict[str, frozenset[str]] = {
    "zero_grad()": frozenset({"stale-gradient"}),
    "from model.parameters()": frozenset({"missing-from-optimizer", "frozen-layer", "initial-saved"}),
    "a .detach() or no_grad leaves it out": frozenset({"detached"}),
    "after the model is complete and wrapped": frozenset({"frozen-layer", "initial-saved"}),
    "look for .detach(), no_grad or .item() between": frozenset({"detached", "zeroed-branch"}),
    "units that saturate": frozenset({"dead-units", "dead-rows"}),
    "call model.train()": frozenset({"evaluation-mode"}),
    "the share of zeros in each layer's output": frozenset({"zeroed-branch"}),
    "look at its initial bias": frozenset({"dead-units", "dead-rows"}),
    "a minus sign": frozenset({"wrong-sign"}),
    "a factor that scales the loss or the gradient down": frozenset({"scaled-away"}),
    "without a softmax before it": frozenset({"softmax-twice"}),
    "print one batch of inputs": frozenset({"blind-inputs"}),
    "look at ten samples with their labels": frozenset({"random-targets", "shuffled-targets", "blind-inputs"}),
    "the samples of two batches in a row": frozenset({"same-batch"}),
    "scale every input feature": frozenset({"raw-inputs"}),
    "mean and deviation of every input": frozenset({"raw-inputs"}),
    "broken samples in the batches": _BROKEN_BATCHES,
    "look at the batches": _BROKEN_BATCHES,
    "look at the batch of": _BROKEN_BATCHES,
    "evaluate the model that is trained": frozenset({"stale-evaluation"}),
    "save the model again": frozenset({"nan-weights"}),
    "save the model that the optimizer steps": frozenset({"initial-saved"}),
    "a model made again": frozenset({"weights-lost"}),
    "look at the resume": frozenset({"weights-lost"}),
    "go back to the last checkpoint with finite weights": _ONCE | {"nan-weights"},
    "restart from": _ONCE,
    "what the scheduler makes of": _OF_SCHEDULE,
}
"""Words of actions, and the faults that whoever does what they say comes upon: those are then taken out. A word that
only tells to look further, as to log more, leads to none.
"""

_INITIALISED = ("initialise the weights as the framework does", "the norm of every weight before the first step")


_LENGTHS = ("steps", "optimizer steps", "max_steps", "epochs")


class Advice(NamedTuple):
    """What a report says to do: its cause and how sure that is, the action, and what it changes in a run."""

    cause: str
    certainty: str
    action: Action
    kind: Kind
    change: Change


def advice_of(report: Report, fault: str) -> Advice:
    """What is said of a flagged run with this fault. Without a cause it is the remedy of its worst finding."""
    diagnosis = report.diagnosis
    if diagnosis is None:
        worst = report.findings[0]
        return _advice(worst.code, "", Action(text=worst.remedy), fault)
    return _advice(diagnosis.cause, diagnosis.certainty, diagnosis.action, fault)


def _advice(cause: str, certainty: str, action: Action, fault: str) -> Advice:
    by_setting, by_words = _of_setting(action, fault), _of_words(action.text, fault)
    kind: Kind = "setting" if action.setting else "words"
    if NOTHING not in (by_words, by_setting):
        kind = "setting and words"
    elif by_words != NOTHING:
        kind = "words"
    return Advice(cause, certainty, action, kind, _together(by_setting, by_words))


def _together(one: Change, other: Change) -> Change:
    return replace(one, **{name: value for name, value in vars(other).items() if value != getattr(NOTHING, name)})


def _of_setting(action: Action, fault: str) -> Change:
    """What the setting changes that the action names; nothing where the run has no such setting."""
    new = action.new
    match action.setting:
        case "learning_rate":
            return _of_rate(action)
        case "learning_rate of the group":
            return Change(group_rate=_number(new))
        case "scheduler steps" if fault in _OF_SCHEDULE:
            return Change(undone="fault")
        case "shuffle" if fault == "sorted-data":
            return Change(undone="fault")
        case "max_grad_norm":
            return Change(recipe=(("clip", new),))
        case "weight_decay":
            return Change(recipe=(("weight_decay", new),))
        case "precision":
            return Change(recipe=(("half", False),))
        case "eps":
            return Change(optimizer=(("eps", new),))
    if action.setting in _LENGTHS and action.old:
        return Change(longer=max(1, math.ceil(_number(new) / _number(action.old))))
    return NOTHING


def _of_rate(action: Action) -> Change:
    if action.new is None:
        return Change(rate_factor=0.1 if "a tenth of" in action.text else 10.0)
    if not action.old:
        return Change(peak_rate=_number(action.new))
    if action.text.startswith("keep the learning rate at"):
        return Change(rate_limit=_number(action.new))
    return Change(rate_factor=_number(action.new) / _number(action.old))


def _number(value: float | str | None) -> float:
    return float(value or 0.0)


def _of_words(text: str, fault: str) -> Change:
    """What someone changes who does what the words say."""
    third = 1.0 / 3.0 if "train on at a third of the learning rate" in text else 1.0
    longer = 2 if text.startswith("train longer") else 1
    more = (("samples", None),) if "add data" in text else ()
    return Change(undone=_undone(text, fault), recipe=more, rate_factor=third, longer=longer)


def _undone(text: str, fault: str) -> Undone:
    if any(fault in faults for words, faults in _FOLLOWED.items() if words in text):
        return "fault"
    initialised = any(words in text for words in _INITIALISED)
    return "model" if initialised and fault in _OF_INITIAL_WEIGHTS else ""
