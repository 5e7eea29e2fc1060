"""Was this part of the model left out of training on purpose? The one place where that is asked.

``QUESTIONS`` are put in order; each takes what it answers for, until nothing is left. What a person would look at comes
first: what the run says of itself, what is known to be no trained part of the model, what contradicts any purpose. Then
the values: weights that still are what an initialiser draws were frozen by nobody. Only then what is usual.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from typing import NamedTuple

from tracker_health.evidence.parameters.initial import Initial, never_trained
from tracker_health.evidence.parameters.joining import factors_beside, values_of
from tracker_health.evidence.parameters.rows import Kind, Naming, Parameter
from tracker_health.evidence.parameters.words import (
    alternatives_around,
    copies_among,
    embedding_kind,
    holds_alternatives,
    is_first_factor,
    is_of_another_objective,
    kind_of,
    module_of,
    numbered,
    often_unused,
    part_of_module,
    position_of,
)
from tracker_health.layers import place_of

SURE, LIKELY, UNSURE = 0.99, 0.9, 0.6
"""How sure an answer is: names leave no other one; it is hardly otherwise; it is more likely than not."""
ONE_LAYER = 2
"""Tensors of one layer: a weight and its bias."""
MANY_VECTORS = 4
"""More vectors than this are a kind of parameters (all normalisations), and no accident."""
MOST_OF_A_MODEL = 0.7
"""The share of a model's tensors above which what is not trained is its backbone."""
NEARLY_ALL = 0.9
"""Of a branch, which may share a projection with others."""
FEWEST_OF_A_BRANCH = 3
"""Tensors: more than a weight and its bias."""
NEIGHBOURS = 2
"""Layers on each side, in the model's order, that may be the ones before and behind: beside a shortcut lies another."""
FEWEST_LAYERS = 3
"""Layers in which the same parts are left out."""


class Left(Enum):
    """How a parameter was left out of training.

    ``WITHOUT_STATE``: the optimizer lists it and keeps nothing, as no gradient reached it. ``NOT_GIVEN``: no group
    lists it. ``WITHOUT_RATE``: its group's learning rate always was 0. ``UNMOVED``: no optimizer's state tells, and it
    did not change between two checkpoints.
    """

    WITHOUT_STATE = auto()
    NOT_GIVEN = auto()
    WITHOUT_RATE = auto()
    UNMOVED = auto()


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """What is asked about: parameters that were left out in one way, beside those that are trained."""

    how: Left
    missing: tuple[Parameter, ...]
    trained: tuple[Parameter, ...]
    all_amount: int
    says_so: str = ""
    is_adapter_file: bool = False

    @cached_property
    def named(self) -> bool:
        return all(one.name is not None for one in (*self.missing, *self.trained))

    @cached_property
    def matrices(self) -> tuple[Parameter, ...]:
        """The trained ones."""
        return tuple(one for one in self.trained if one.is_matrix)

    @cached_property
    def adapters(self) -> bool:
        """Whether what is trained is an adapter, by its names or its shapes, and with it a head and little else."""
        if any(one.is_adapter for one in self.trained):
            return True
        others = [one for one in self.matrices if not one.is_back and one.key not in self._factors]
        return len(self._factors) > len(others)

    @cached_property
    def _factors(self) -> set[str]:
        """The trained matrices beside an untrained one that their product fits."""
        beside = {one for module in self.adapted for one in (module, module_of(module))}
        return {one.key for one in self.matrices if not {one.module, module_of(one.module)}.isdisjoint(beside)}

    @cached_property
    def adapted(self) -> set[str]:
        """The modules with two thin trained factors beside their untrained matrix."""
        missing, trained = _sized(self.missing), _sized(self.trained)
        return factors_beside(missing, trained)

    @cached_property
    def is_front(self) -> bool:
        """Whether nothing that is trained lies before any of these, or they are embeddings and stems by their names."""
        return self.is_first or (self.named and all(one.is_front for one in self.missing))

    @cached_property
    def has_order(self) -> bool:
        """Whether it is known where these and the trained matrices stand."""
        return bool(self.matrices) and all(one.order is not None for one in (*self.missing, *self.matrices))

    @cached_property
    def is_first(self) -> bool:
        """Whether nothing that is trained lies before any of these: by the order, or else by their names."""
        if not self.has_order:
            return self.named and _lie_before(self.missing, self.trained)
        first: dict[str, int] = {}
        for sequence, place in (one.order for one in self.matrices if one.order is not None):
            first[sequence] = min(place, first.get(sequence, place))
        orders = [one.order for one in self.missing if one.order is not None]
        return all(
            place < first[sequence] if sequence in first else sequence < min(first) for sequence, place in orders
        )

    @cached_property
    def is_random(self) -> bool:
        """Whether these look never trained: nobody keeps random weights on purpose."""
        if not any(one.initial.may_be and (one.certain or one.initial is Initial.DRAWN) for one in self.missing):
            return False  # which one of its shape it is may be open
        matrices = [one for one in self.missing if one.is_matrix]
        if not self.named and 2 * sum(one.weight is not None for one in matrices) <= len(matrices):
            return False  # by their shapes alone some may be another's
        return never_trained([one.weight for one in self.missing if one.weight is not None])

    @cached_property
    def is_one_layer(self) -> bool:
        return len(self.missing) <= ONE_LAYER and len({one.module for one in self.missing}) == 1

    @cached_property
    def are_most(self) -> bool:
        return len(self.missing) > MOST_OF_A_MODEL * self.all_amount


def _sized(rows: Iterable[Parameter]) -> list[tuple[str, tuple[int, ...]]]:
    return [(one.key, one.shape) for one in rows if one.name is not None and one.shape is not None]


Answer = Sequence[Parameter]


# What is known to be no trained part of the model: answered for each parameter by itself.


def _says_so(case: Case) -> Answer:
    return case.missing if case.says_so else ()


def _asks_for_none(case: Case) -> Answer:
    return [one for one in case.missing if one.asks is False]


def _is_copy(case: Case) -> Answer:
    copies = copies_among([_Named(one.key, one.shape) for one in (*case.missing, *case.trained)])
    known = (one for one in case.trained if one.naming is Naming.FILE and one.weight is not None)
    tied = {values_of(one.weight) for one in known if one.weight is not None} - {None}
    return [
        one for one in case.missing if one.key in copies or (one.weight is not None and values_of(one.weight) in tied)
    ]


class _Named(NamedTuple):
    name: str
    shape: tuple[int, ...] | None


def _is_often_unused(case: Case) -> Answer:
    return [one for one in case.missing if one.name is not None and often_unused(one.name)]


def _may_be_buffer(case: Case) -> Answer:
    """Nothing but zeros under a name that no layer has a parameter of."""
    return [
        one
        for one in case.missing
        if case.how is Left.NOT_GIVEN
        and one.is_vector
        and one.weight is not None
        and one.weight.rms == 0.0
        and kind_of(one.key) not in ("weight", "bias")
    ]


def _is_base_of_adapters(case: Case) -> Answer:
    if case.is_adapter_file:
        return ()
    if case.adapters:
        return [one for one in case.missing if not one.is_adapter]
    return [one for one in case.missing if one.module in case.adapted]


def _is_first_factor(case: Case) -> Answer:
    """All of them at once, as LoRA-FA has it."""
    trained = any(is_first_factor(one.called) for one in case.trained)
    return () if trained else [one for one in case.missing if is_first_factor(one.called)]


def _is_another_head(case: Case) -> Answer:
    """What a run of another task uses: beside a trained one that its name makes it an alternative to."""
    used = {place for one in case.trained if one.name for place in alternatives_around(one.name)}
    found = [one for one in case.missing if one.name and any(at in used for at in alternatives_around(one.name))]
    return found if used else ()


def _is_idle_expert(case: Case) -> Answer:
    """Of a mixture of which half the experts are trained at least."""
    idle, busy = _experts(case.missing), _experts(case.trained)
    return [one for one in case.missing if one.expert is not None and len(idle) <= len(busy)]


def _is_lost_expert(case: Case) -> Answer:
    return [one for one in case.missing if one.expert is not None and case.how is not Left.NOT_GIVEN]


def _experts(rows: Iterable[Parameter]) -> set[str]:
    return {one.expert for one in rows if one.expert is not None}


# What contradicts any purpose.


def _is_half_of_a_module(case: Case) -> Answer:
    """A recurrent layer's or an attention's matrix, of which another one is trained. A dropout on weights (AWD-LSTM)
    trains a copy, which ends in ``_raw``. Where the first so many of all parameters are frozen, that may end within a
    layer, behind its first matrix.
    """
    missing = case.missing
    before = [one for one in missing if part_of_module(one.key) is None]
    if before and all(one.is_front for one in before) and not any(one.is_front for one in case.trained):
        missing = tuple(one for one in missing if "weight_ih" not in one.key)
    there = {part for one in case.trained if (part := part_of_module(one.key)) is not None}
    copied = {kind.removesuffix("_raw") for one in case.trained if (kind := kind_of(one.key)).endswith("_raw")}
    return [one for one in missing if part_of_module(one.key) in there and kind_of(one.key) not in copied]


def _is_part_of_an_adapter_file(case: Case) -> Answer:
    return case.missing if case.is_adapter_file and len(case.missing) < case.all_amount else ()


def _is_alone_at_the_front(case: Case) -> Answer:
    """One layer that the optimizer was never given, before all others: what is frozen looks as what was forgotten."""
    return case.missing if case.how is Left.NOT_GIVEN and len(case.missing) <= ONE_LAYER and case.is_first else ()


def _is_first_and_trained_before(case: Case) -> Answer:
    """The first so many parameters of a model that was trained before, wherever that ends."""
    told = any(one.initial is Initial.NO for one in case.missing) and not case.is_random
    return case.missing if told and case.is_first and case.has_order else ()


def _is_inside_a_trained_layer(case: Case) -> Answer:
    """Most have trained matrices beside them in their own layer, and the same is trained in a later one."""
    layers = {(at.stack, at.layer) for one in case.matrices if (at := place_of(one.key)) is not None}
    last: dict[tuple[str, str], int] = {}
    for one in case.trained:
        if (at := place_of(one.key)) is not None:
            last[at.stack, at.role] = max(at.layer, last.get((at.stack, at.role), at.layer))
    inside = [
        one
        for one in case.missing
        if (at := place_of(one.key)) is not None
        and (at.stack, at.layer) in layers
        and last.get((at.stack, at.role), at.layer) > at.layer
    ]
    if case.how is Left.NOT_GIVEN or _are_kinds(case) or 2 * len(inside) < len(case.missing):
        return ()
    return case.missing


def _is_between_sisters(case: Case) -> Answer:
    """Matrices of numbered modules of which the same tensor is trained both in an earlier and in a later one; of
    embeddings beside each other an earlier one is enough; of a block whose other matrices are trained a later one.
    """
    if case.adapters:
        return ()
    sisters: dict[tuple[str, str], list[int]] = defaultdict(list)
    blocks: set[tuple[str, int]] = set()
    vectors: set[tuple[str, str]] = set()
    for one in case.trained:
        for before, number, behind in numbered(one.key):
            sisters[before, behind].append(number)
            blocks |= {(before, number)} if one.is_matrix else set()
            vectors |= set() if one.is_matrix else {(before, behind)}
    spans = {key: (min(numbers), max(numbers), len(numbers)) for key, numbers in sisters.items()}
    lost = Counter((before, behind) for one in case.missing for before, _, behind in numbered(one.key))

    def is_between(before: str, number: int, behind: str) -> bool:
        first, last, amount = spans.get((before, behind), (number, number, 0))
        if holds_alternatives(before[:-1]) or lost[before, behind] > max(amount, 1):
            return False
        torn = (before, number) in blocks and last > number
        beside = bool(embedding_kind(f"{before[:-1]}.weight"))
        return torn or (amount > 1 and first < number and (number < last or beside))

    found = [
        one
        for one in case.missing
        if one.certain
        and (one.is_matrix or one.shape is None)
        and any(
            is_between(before, number, behind) and (one.is_matrix or (before, behind) not in vectors)
            for before, number, behind in numbered(one.key)
        )
    ]
    return _with_their_blocks(found, case) if 2 * len(found) >= sum(one.is_matrix for one in case.missing) else ()


def _is_an_embedding_beside_others(case: Case) -> Answer:
    """As drawn, beside a trained one of the same kind (``item_emb``, ``user_emb``)."""
    kinds = {embedding_kind(one.key) for one in case.trained} - {""}
    found = [one for one in case.missing if embedding_kind(one.key) in kinds and one.certain]
    return found if len(found) == len(case.missing) and case.is_random else ()


def _asks_for_a_gradient(case: Case) -> Answer:
    told = all(one.asks for one in case.missing)
    return case.missing if told and not case.are_most and not _are_branches(case) else ()


def _is_beside_the_way(case: Case) -> Answer:
    """One layer, in a model whose order is known, that takes what no layer before it gives, and gives what none behind
    it takes: an unused one. What is put together of several sizes is a head's matter.
    """
    matrices = [one for one in case.missing if one.is_matrix]
    known = sorted((one for one in case.matrices if one.order is not None), key=lambda one: one.order or ("", 0))
    if not case.is_one_layer or len(matrices) != 1 or matrices[0].order is None or matrices[0].is_back:
        return ()
    at = matrices[0].order
    if len(known) < len(case.matrices) or any(one.kind is Kind.EMBEDDING for one in matrices):
        return ()
    before = [one for one in known if one.order is not None and one.order < at][-NEIGHBOURS:]
    behind = [one for one in known if one.order is not None and one.order > at][:NEIGHBOURS]
    fits = any(_fits(one, matrices[0]) for one in before) or any(_fits(matrices[0], one) for one in behind)
    return () if fits or not before else case.missing


def _fits(one: Parameter, other: Parameter) -> bool:
    """Whether a matrix gives as much as the next one takes; of a table or a convolution a multiple, too."""
    shape, takes = one.shape or (), (other.shape or ())[1:2]
    is_table = one.kind is Kind.EMBEDDING
    gives = shape[1:2] if is_table else shape[:2] if len(shape) > 2 else shape[:1]
    many = is_table or len(shape) > 2
    return any(give == take or (many and give > 0 and take % give == 0) for give in gives for take in takes)


def _has_a_rate_of_zero(case: Case) -> Answer:
    """A rate of 0 is what somebody said: of what was trained before it is no accident."""
    return case.missing if case.how is Left.WITHOUT_RATE and not case.is_random else ()


def _is_random(case: Case) -> Answer:
    """Unless it is one layer of an objective that this run need not have."""
    heads = any(one.is_back for one in case.trained)
    other = heads and case.is_one_layer and is_of_another_objective(case.missing[0].key)
    return case.missing if case.is_random and not other else ()


# What is usual.


def _are_most(case: Case) -> Answer:
    return case.missing if case.are_most else ()


def _are_kinds_of_parameters(case: Case) -> Answer:
    return case.missing if _are_kinds(case) else ()


def _are_kinds(case: Case) -> bool:
    """Whether nothing but some kinds of parameters is left out, or trained: normalisations, all but vectors and the
    head, some parts of every layer.
    """
    vectors = [one for one in case.trained if one.is_vector]
    norms = sum(one.kind is Kind.NORM for one in case.missing)
    many = len(case.missing) > MANY_VECTORS
    if many and (all(one.is_vector for one in case.missing) or norms >= NEARLY_ALL * len(case.missing)):
        return True
    if len(vectors) > MANY_VECTORS and all(one.is_vector or one.is_back for one in case.trained):
        return True
    if not case.matrices:
        return True
    return _are_parts_of_every_layer(case)


def _are_parts_of_every_layer(case: Case) -> bool:
    """Whether these are some parts of every layer, as all but the attention, and what lies in front of the layers."""
    places = [place_of(one.key) for one in case.missing]
    inside = [place for place in places if place is not None]
    beside = [place for one in case.trained if (place := place_of(one.key)) is not None]
    outside = (one for one, place in zip(case.missing, places, strict=True) if place is None)
    layers = {(place.stack, place.layer) for place in inside}
    return (
        len(layers) >= FEWEST_LAYERS
        and layers <= {(place.stack, place.layer) for place in beside}
        and not {(place.stack, place.role) for place in inside} & {(place.stack, place.role) for place in beside}
        and (len(beside) == len(case.trained) or all(one.is_front or one.is_vector for one in outside))
    )


def _are_first(case: Case) -> Answer:
    return case.missing if case.is_front else ()


def _lie_before(missing: Sequence[Parameter], trained: Sequence[Parameter]) -> bool:
    """By their names: nothing that is trained lies before any of these."""
    first: dict[tuple[int, str], tuple[int, int]] = {}
    for one in trained:
        place = position_of(one.key)
        key, at = (place.part, place.list_name), (place.stage, place.number)
        first[key] = min(at, first.get(key, at))
    part = min((part for part, _ in first), default=0)
    places = map(position_of, (one.key for one in missing))
    return all(
        place.part <= part
        and (place.stage, place.number) <= first.get((place.part, place.list_name), (place.stage, place.number))
        for place in places
    )


def _are_a_branch(case: Case) -> Answer:
    return case.missing if _are_branches(case) else ()


def _are_branches(case: Case) -> bool:
    """Whether these are whole branches of the model, or nearly so: a tower, an encoder, a network of the loss."""
    inside = {prefix for one in case.trained for prefix in _prefixes(one.key)}
    roots: dict[str, list[Parameter]] = defaultdict(list)
    for one in case.missing:
        root = next((prefix for prefix in _prefixes(one.key) if prefix not in inside), None)
        if root is not None:
            roots[root].append(one)
    stems = Counter(map(_stem, {*inside, *roots}))
    branching = (
        rows
        for root, rows in roots.items()
        if len(rows) >= FEWEST_OF_A_BRANCH
        and len({one.module for one in rows}) > 1
        and (_stem(root) == root or stems[_stem(root)] < 2)
        and not any(position_of(f"{root}.weight").part == 2 for _ in rows[:1])
    )
    return sum(map(len, branching)) >= NEARLY_ALL * len(case.missing)


def _prefixes(name: str) -> list[str]:
    """The modules around a tensor, the outermost first, as far as none is a number in a list."""
    parts = module_of(name).split(".")
    whole = next((at for at, part in enumerate(parts) if part.isdecimal()), len(parts))
    return [".".join(parts[:depth]) for depth in range(1, whole + 1) if parts[0]]


def _stem(module: str) -> str:
    return module.rstrip("0123456789")


def _is_tied_output(case: Case) -> Answer:
    """Output layers of the shape of a trained embedding, whose values are not known to be others."""
    front = {one.shape for one in case.trained if one.kind is Kind.EMBEDDING}
    known = any(one.weight is not None and values_of(one.weight) is not None for one in case.missing)
    matrices = [one for one in case.missing if one.is_matrix]
    tied = bool(matrices) and all(one.is_back and one.shape in front for one in matrices)
    return case.missing if tied and not known else ()


# What is left.


def _lacks_its_matrix(case: Case) -> Answer:
    """A matrix whose bias is trained, where most layers train both."""
    biases = {one.module for one in case.trained if kind_of(one.key) == "bias"}
    both = {one.module for one in case.matrices} & biases
    front = {one.shape for one in case.trained if one.is_front}
    found = [
        one
        for one in case.missing
        if kind_of(one.key) == "weight" and one.is_matrix and one.module in biases and one.shape not in front
    ]
    return case.missing if 0 < len(found) < len(both) else ()


def _is_not_given(case: Case) -> Answer:
    return case.missing if case.how is Left.NOT_GIVEN else ()


def _is_more_than_a_layer(case: Case) -> Answer:
    return case.missing if len(case.missing) > ONE_LAYER else ()


def _is_one_layer(case: Case) -> Answer:
    return case.missing


def _with_their_blocks(found: Sequence[Parameter], case: Case) -> list[Parameter]:
    """With what else is left out of the same module, or of the same of several numbered ones."""
    blocks = {block for one in found for block in (one.module, *_blocks(one))}
    return [one for one in case.missing if not blocks.isdisjoint((one.module, *_blocks(one)))]


def _blocks(row: Parameter) -> list[str]:
    return [f"{before}{number}" for before, number, _ in numbered(row.key)][-1:]


# Without names: by the order in which the optimizer has them, and by the shapes of those that are trained.


def _trains_kinds_alone(case: Case) -> Answer:
    """Vectors alone, matrices alone of many parameters, or adapters: pairs of thin matrices."""
    shapes = [one.shape for one in case.trained if one.shape is not None]
    vectors = sum(len(shape) <= 1 for shape in shapes)
    of_one_kind = min(vectors, len(shapes) - vectors) <= 1 and min(len(shapes), len(case.missing)) > MANY_VECTORS
    return case.missing if of_one_kind or vectors == len(shapes) or _look_like_adapters(shapes) else ()


def _look_like_adapters(shapes: Sequence[tuple[int, ...]]) -> bool:
    matrices = [shape for shape in shapes if len(shape) == 2]
    pairs = zip(matrices[::2], matrices[1::2], strict=False)
    factors = sum(down[0] == up[1] and 2 * down[0] <= min(down[1], up[0]) for down, up in pairs)
    return 2 * factors > len(matrices) / 2


def _are_in_one_piece(case: Case) -> Answer:
    """A third of the parameters or more, which follow each other: a branch."""
    places: dict[str, list[int]] = defaultdict(list)
    for sequence, place in (one.order for one in case.missing if one.order is not None):
        places[sequence].append(place)
    known = sum(map(len, places.values())) == len(case.missing) > ONE_LAYER
    whole = all(NEARLY_ALL * (max(some) - min(some)) < len(some) for some in places.values())
    return case.missing if known and whole and 2 * len(case.missing) >= len(case.trained) else ()


class Question(NamedTuple):
    """An answer, and what finds the parameters that it is the answer for."""

    purpose: Purpose
    find: Callable[[Case], Answer]


def _meant(name: str, sentence: str, confidence: float, find: Callable[[Case], Answer]) -> Question:
    return Question(Purpose(name, sentence, meant=True, confidence=confidence), find)


def _wrong(name: str, sentence: str, confidence: float, find: Callable[[Case], Answer]) -> Question:
    return Question(Purpose(name, sentence, meant=False, confidence=confidence), find)


_NOBODY = "never trained, as the weights still are what an initialiser draws: nobody freezes random weights"
_BOTH = (
    _meant("said", "a param of the run says so", SURE, _says_so),
    _meant("asks for none", "it asks for no gradient", SURE, _asks_for_none),
)
_UNUSUAL = (
    _wrong(
        "left out",
        "unused, frozen, or cut off from the loss, and none of the usual ways explains it",
        LIKELY,
        _is_more_than_a_layer,
    ),
)
_LAST = (_meant("unused layer", "one layer may be unused", UNSURE, _is_one_layer),)
QUESTIONS: tuple[Question, ...] = (
    *_BOTH,
    _meant("copy", "it is a copy of trained weights: a teacher, a moving average, a tied tensor", SURE, _is_copy),
    _meant("often unused", "many models carry a part of this name along unused", LIKELY, _is_often_unused),
    _meant("buffer", "it holds nothing but zeros, as a buffer may", LIKELY, _may_be_buffer),
    _meant("base of adapters", "adapters beside it are trained instead", SURE, _is_base_of_adapters),
    _meant("first factors", "the first factors of all adapters are frozen", LIKELY, _is_first_factor),
    _meant("idle experts", "a few experts got no token", LIKELY, _is_idle_expert),
    _wrong("lost experts", "most experts got no token", LIKELY, _is_lost_expert),
    _meant("other head", "it serves another task, beside a part like it that is trained", LIKELY, _is_another_head),
    _wrong("half a module", "the rest of the same module is trained", SURE, _is_half_of_a_module),
    _wrong("adapter", "it is part of an adapter that is trained", SURE, _is_part_of_an_adapter_file),
    _wrong("embedding", f"{_NOBODY}; an embedding like it is trained", LIKELY, _is_an_embedding_beside_others),
    _meant(
        "pretrained front",
        "nothing before it is trained, and it was trained before",
        LIKELY,
        _is_first_and_trained_before,
    ),
    _wrong("inside a layer", "its own layer is trained, and the same in later ones", SURE, _is_inside_a_trained_layer),
    _wrong("between sisters", "the same of the modules beside it is trained", LIKELY, _is_between_sisters),
    _meant("lone front", "it lies before all that is trained", UNSURE, _is_alone_at_the_front),
    _meant("rate of 0", "its learning rate was set to 0", LIKELY, _has_a_rate_of_zero),
    _meant("unused layer", "no layer gives what it takes: it may be unused", UNSURE, _is_beside_the_way),
    _wrong("random", _NOBODY, LIKELY, _is_random),
    _wrong("asks", "it asks for a gradient, and none came", LIKELY, _asks_for_a_gradient),
    _meant("backbone", "most of the model is frozen", SURE, _are_most),
    _meant("kind", "it is one kind of parameters in all layers", LIKELY, _are_kinds_of_parameters),
    _meant("front", "nothing before it is trained", LIKELY, _are_first),
    _meant("branch", "it is a whole branch", LIKELY, _are_a_branch),
    _meant("tied output", "it may be tied to the embedding", UNSURE, _is_tied_output),
    _wrong("no matrix", "a bias of the same module is trained", LIKELY, _lacks_its_matrix),
    _wrong("not given", "what lies before it is trained", LIKELY, _is_not_given),
    *_UNUSUAL,
    *_LAST,
)
NAMELESS_QUESTIONS: tuple[Question, ...] = (
    *_BOTH,
    _wrong("adapter", "it is part of an adapter that is trained", SURE, _is_part_of_an_adapter_file),
    _meant("rate of 0", "its learning rate was set to 0", LIKELY, _has_a_rate_of_zero),
    _wrong("random", _NOBODY, LIKELY, _is_random),
    _meant("backbone", "most of the model is frozen", SURE, _are_most),
    _meant("kind", "one kind of parameters is trained", LIKELY, _trains_kinds_alone),
    _meant("front", "nothing before it is trained", LIKELY, _are_first),
    _meant("branch", "it is a whole branch", LIKELY, _are_in_one_piece),
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
