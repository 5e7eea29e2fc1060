"""Was this part of the model left out of training on purpose? The one place where that is asked.

``QUESTIONS`` are put in order; each takes what it answers for, until nothing is left. What a person would look at comes
first: what the run says of itself, what is known to be no trained part of the model, what contradicts any purpose. Then
the values: weights that still are what an initialiser draws were frozen by nobody. Only then what is usual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tracker_health.evidence.parameters import purpose_checks
from tracker_health.evidence.parameters.left_out import Case, Left
from tracker_health.evidence.parameters.purpose_checks import Answer
from tracker_health.evidence.parameters.rows import Naming, Parameter

SURE, LIKELY, UNSURE = 0.99, 0.9, 0.6
"""How sure an answer is: names leave no other one; it is most likely so; it is more likely than not."""


class Purpose(NamedTuple):
    """An answer: ``meant`` on purpose or not, why in a sentence, and how sure that is, from 0 to 1."""

    name: str
    sentence: str
    meant: bool
    confidence: float


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Parameters that were left out of training in one way, and the answer for them."""

    parameters: tuple[Parameter, ...]
    how: Left
    purpose: Purpose


class PurposeCheck(NamedTuple):
    """An answer, and what finds the parameters that it is the answer for."""

    purpose: Purpose
    find: Callable[[Case], Answer]


def _meant(name: str, sentence: str, confidence: float, find: Callable[[Case], Answer]) -> PurposeCheck:
    return PurposeCheck(Purpose(name, sentence, meant=True, confidence=confidence), find)


def _wrong(name: str, sentence: str, confidence: float, find: Callable[[Case], Answer]) -> PurposeCheck:
    return PurposeCheck(Purpose(name, sentence, meant=False, confidence=confidence), find)


_NOBODY = "never trained, as the weights still are what an initialiser draws: nobody freezes random weights"
_BOTH = (
    _meant("said", "a param of the run says so", SURE, purpose_checks.says_so),
    _meant("asks for none", "it asks for no gradient", SURE, purpose_checks.asks_for_none),
)
_UNUSUAL = (
    _wrong(
        "left out",
        "unused, frozen, or cut off from the loss, and none of the usual ways explains it",
        LIKELY,
        purpose_checks.is_more_than_a_layer,
    ),
)
_LAST = (_meant("unused layer", "one layer may be unused", UNSURE, purpose_checks.is_one_layer),)
QUESTIONS: tuple[PurposeCheck, ...] = (
    *_BOTH,
    _meant(
        "copy",
        "it is a copy of trained weights: a teacher, a moving average, a tied tensor",
        SURE,
        purpose_checks.is_copy,
    ),
    _meant(
        "often unused", "many models carry a part of this name along unused", LIKELY, purpose_checks.is_often_unused
    ),
    _meant("random on purpose", "its name says that it is to stay random", LIKELY, purpose_checks.is_random_on_purpose),
    _meant("buffer", "it holds nothing but zeros, as a buffer may", LIKELY, purpose_checks.may_be_buffer),
    _meant("base of adapters", "adapters next to it are trained instead", SURE, purpose_checks.is_base_of_adapters),
    _meant("first factors", "the first factors of all adapters are frozen", LIKELY, purpose_checks.is_first_factor),
    _meant("idle experts", "a few experts got no token", LIKELY, purpose_checks.is_idle_expert),
    _wrong("lost experts", "most experts got no token", LIKELY, purpose_checks.is_lost_expert),
    _meant(
        "other head",
        "it serves another task, next to a part like it that is trained",
        LIKELY,
        purpose_checks.is_another_head,
    ),
    _wrong("half a module", "the rest of the same module is trained", SURE, purpose_checks.is_half_of_a_module),
    _wrong("adapter", "it is part of an adapter that is trained", SURE, purpose_checks.is_part_of_an_adapter_file),
    _wrong(
        "embedding", f"{_NOBODY}; an embedding like it is trained", LIKELY, purpose_checks.is_an_embedding_beside_others
    ),
    _meant(
        "pretrained front",
        "nothing before it is trained, and it was trained before",
        LIKELY,
        purpose_checks.is_first_and_trained_before,
    ),
    _wrong(
        "inside a layer",
        "its own layer is trained, and the same in later ones",
        SURE,
        purpose_checks.is_inside_a_trained_layer,
    ),
    _wrong(
        "between sisters", "the same of the modules next to it is trained", LIKELY, purpose_checks.is_between_sisters
    ),
    _wrong("random front", _NOBODY, LIKELY, purpose_checks.is_a_random_front),
    _meant("lone front", "it is before all that is trained", UNSURE, purpose_checks.is_alone_at_the_front),
    _meant("rate of 0", "its learning rate was set to 0", LIKELY, purpose_checks.has_a_rate_of_zero),
    _meant("unused layer", "no layer gives what it takes: it may be unused", UNSURE, purpose_checks.is_beside_the_way),
    _wrong("random", _NOBODY, LIKELY, purpose_checks.is_random),
    _wrong("asks", "it asks for a gradient, and none came", LIKELY, purpose_checks.asks_for_a_gradient),
    _meant("backbone", "most of the model is frozen", SURE, purpose_checks.are_most),
    _meant("kind", "it is one kind of parameters in all layers", LIKELY, purpose_checks.are_kinds_of_parameters),
    _meant("front", "nothing before it is trained", LIKELY, purpose_checks.are_first),
    _meant("branch", "it is a whole branch", LIKELY, purpose_checks.are_a_branch),
    _meant("tied output", "it may be tied to the embedding", UNSURE, purpose_checks.is_tied_output),
    _wrong("no matrix", "a bias of the same module is trained", LIKELY, purpose_checks.lacks_its_matrix),
    _wrong("not given", "what is before it is trained", LIKELY, purpose_checks.is_not_given),
    *_UNUSUAL,
    *_LAST,
)
NAMELESS_QUESTIONS: tuple[PurposeCheck, ...] = (
    *_BOTH,
    _wrong("adapter", "it is part of an adapter that is trained", SURE, purpose_checks.is_part_of_an_adapter_file),
    _meant("rate of 0", "its learning rate was set to 0", LIKELY, purpose_checks.has_a_rate_of_zero),
    _wrong("random", _NOBODY, LIKELY, purpose_checks.is_random),
    _meant("backbone", "most of the model is frozen", SURE, purpose_checks.are_most),
    _meant("kind", "one kind of parameters is trained", LIKELY, purpose_checks.trains_kinds_alone),
    _meant("front", "nothing before it is trained", LIKELY, purpose_checks.are_first),
    _meant("branch", "it is a whole branch", LIKELY, purpose_checks.are_in_one_piece),
    *_UNUSUAL,
    *_LAST,
)


def purposes(case: Case) -> list[LeftOut]:
    """The answers for all parameters of a case, each by the first question that finds it."""
    found = []
    for purpose, find in QUESTIONS if case.named else NAMELESS_QUESTIONS:
        if not case.missing:
            break
        answered = tuple(find(case))
        if answered:
            found.append(LeftOut(parameters=answered, how=case.how, purpose=_as_sure_as_names(purpose, answered)))
            gone = set(map(id, answered))
            case = replace(case, missing=tuple(one for one in case.missing if id(one) not in gone))
    return found


def _as_sure_as_names(purpose: Purpose, rows: Sequence[Parameter]) -> Purpose:
    """A verdict depends on no assumed name: without the file's own an answer is likely at most, unless it is the same
    for all.
    """
    if purpose.name == "adapter" or all(one.naming in (Naming.FILE, Naming.NONE) for one in rows):
        return purpose
    return purpose._replace(confidence=min(purpose.confidence, LIKELY))
