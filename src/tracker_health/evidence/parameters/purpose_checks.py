"""What finds the parameters that an answer is for: one function for each question that ``purpose`` puts.

Each takes a case and gives those of its parameters that it answers for, or none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from tracker_health.evidence.parameters.initial import Initial
from tracker_health.evidence.parameters.joining import values_of
from tracker_health.evidence.parameters.left_out import ONE_LAYER, Case, Left
from tracker_health.evidence.parameters.rows import Kind, Naming, Parameter
from tracker_health.evidence.parameters.words import (
    alternatives_around,
    copies_among,
    embedding_kind,
    holds_alternatives,
    is_of_another_objective,
    kind_of,
    module_of,
    numbered,
    often_unused,
    part_of_module,
    position_of,
    stays_random,
)
from tracker_health.evidence.parameters.words import is_first_factor as is_named_first_factor
from tracker_health.words.layers import place_of

MANY_VECTORS = 4
"""More vectors than this are a kind of parameters (all normalisations), and no accident."""
NEARLY_ALL = 0.9
"""Of a branch, which may share a projection with others."""
FEWEST_OF_A_BRANCH = 3
"""Tensors: more than a weight and its bias."""
NEIGHBOURS = 2
"""Layers on each side, in the model's order, that may be the ones before and behind: next to a shortcut is another."""
SHOWS_A_DRAW = 80_000
"""Values of a normal draw whose spread is known to 2 %: four standard errors."""
FEWEST_LAYERS = 3
"""Layers in which the same parts are left out."""

Answer = Sequence[Parameter]


# What is known to be no trained part of the model: answered for each parameter by itself.


def says_so(case: Case) -> Answer:
    """All of them, where the run's params say that parts are frozen."""
    return case.missing if case.says_so else ()


def asks_for_none(case: Case) -> Answer:
    """Those that ask for no gradient."""
    return [one for one in case.missing if one.asks is False]


def is_copy(case: Case) -> Answer:
    """Copies of other parameters: a moving average, a teacher, or values tied to a trained parameter."""
    copies = copies_among([_Named(one.key, one.shape) for one in (*case.missing, *case.trained)])
    known = (one for one in case.trained if one.naming is Naming.FILE and one.weight is not None)
    tied = {values_of(one.weight) for one in known if one.weight is not None} - {None}
    return [
        one for one in case.missing if one.key in copies or (one.weight is not None and values_of(one.weight) in tied)
    ]


class _Named(NamedTuple):
    name: str
    shape: tuple[int, ...] | None


def is_often_unused(case: Case) -> Answer:
    """Those with a name that is often not used in training."""
    return [one for one in case.missing if one.name is not None and often_unused(one.name)]


def is_random_on_purpose(case: Case) -> Answer:
    """Those with a name of what works by staying random: random features, a reservoir, a target of distillation."""
    return [one for one in case.missing if one.name is not None and stays_random(one.name)]


def may_be_buffer(case: Case) -> Answer:
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


def is_base_of_adapters(case: Case) -> Answer:
    """The base model below adapters."""
    if case.is_adapter_file:
        return ()
    if case.adapters:
        return [one for one in case.missing if not one.is_adapter]
    return [one for one in case.missing if one.module in case.adapted]


def is_first_factor(case: Case) -> Answer:
    """All of them at once, as LoRA-FA has it."""
    trained = any(is_named_first_factor(one.called) for one in case.trained)
    return () if trained else [one for one in case.missing if is_named_first_factor(one.called)]


def is_another_head(case: Case) -> Answer:
    """What a run of another task uses: next to a trained one that its name makes it an alternative to."""
    used = {place for one in case.trained if one.name for place in alternatives_around(one.name)}
    found = [one for one in case.missing if one.name and any(at in used for at in alternatives_around(one.name))]
    return found if used else ()


def is_idle_expert(case: Case) -> Answer:
    """Of a mixture of which half the experts are trained at least."""
    idle, busy = _experts(case.missing), _experts(case.trained)
    return [one for one in case.missing if one.expert is not None and len(idle) <= len(busy)]


def is_lost_expert(case: Case) -> Answer:
    """Experts that the optimizer was given, but that got no updates."""
    return [one for one in case.missing if one.expert is not None and case.how is not Left.NOT_GIVEN]


def _experts(rows: Iterable[Parameter]) -> set[str]:
    return {one.expert for one in rows if one.expert is not None}


# What contradicts any purpose.


def is_half_of_a_module(case: Case) -> Answer:
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


def is_part_of_an_adapter_file(case: Case) -> Answer:
    """Some, but not all, of the parameters of an adapter file."""
    return case.missing if case.is_adapter_file and len(case.missing) < case.all_amount else ()


def is_alone_at_the_front(case: Case) -> Answer:
    """One layer that the optimizer was never given, before all others: what is frozen looks as what was forgotten."""
    return case.missing if case.how is Left.NOT_GIVEN and len(case.missing) <= ONE_LAYER and case.is_first else ()


def is_a_random_front(case: Case) -> Answer:
    """One layer before all others that is as it was drawn, and whose output the first trained one takes: in a model
    that was trained before, the front was as well.
    """
    matrices = [one for one in case.missing if one.is_matrix]
    if len(matrices) != 1 or not (case.is_one_layer and case.is_front and case.is_random):
        return ()
    taken = matrices[0].kind is Kind.EMBEDDING or any(_fits(matrices[0], one) for one in case.matrices)
    # A few steps barely change the spread of a small normal draw, and leave no value of a uniform one within its bound.
    shape = matrices[0].shape or ()
    shows = matrices[0].initial is Initial.DRAWN or prod(shape) >= SHOWS_A_DRAW
    return case.missing if taken and (shows or case.began_fresh) else ()


def is_first_and_trained_before(case: Case) -> Answer:
    """The first so many parameters of a model that was trained before, wherever that ends."""
    told = any(one.initial is Initial.NO for one in case.missing) and not case.is_random
    return case.missing if told and case.is_first and case.has_order else ()


def is_inside_a_trained_layer(case: Case) -> Answer:
    """Most have trained matrices next to them in their own layer, and the same is trained in a later one."""
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


def is_between_sisters(case: Case) -> Answer:
    """Matrices of numbered modules of which the same tensor is trained both in an earlier and in a later one; of
    embeddings next to each other an earlier one is enough; of a block whose other matrices are trained a later one.
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


def is_an_embedding_beside_others(case: Case) -> Answer:
    """As drawn, next to a trained one of the same kind (``item_emb``, ``user_emb``)."""
    kinds = {embedding_kind(one.key) for one in case.trained} - {""}
    found = [one for one in case.missing if embedding_kind(one.key) in kinds and one.certain]
    return found if len(found) == len(case.missing) and case.is_random else ()


def asks_for_a_gradient(case: Case) -> Answer:
    """All of them, where all ask for a gradient and they are neither most nor whole branches."""
    told = all(one.asks for one in case.missing)
    return case.missing if told and not case.are_most and not _are_branches(case) else ()


def is_beside_the_way(case: Case) -> Answer:
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


def has_a_rate_of_zero(case: Case) -> Answer:
    """A rate of 0 is what someone said: of what was trained before it is no accident."""
    return case.missing if case.how is Left.WITHOUT_RATE and not case.is_random else ()


def is_random(case: Case) -> Answer:
    """Unless it is one layer of an objective that this run need not have."""
    heads = any(one.is_back for one in case.trained)
    other = heads and case.is_one_layer and is_of_another_objective(case.missing[0].key)
    return case.missing if case.is_random and not other else ()


# What is usual.


def are_most(case: Case) -> Answer:
    """All of them, where they are most of the model."""
    return case.missing if case.are_most else ()


def are_kinds_of_parameters(case: Case) -> Answer:
    """All of them, where only some kinds of parameters are left out or trained."""
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
    """Whether these are some parts of every layer, as all but the attention, and what is in front of the layers."""
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


def are_first(case: Case) -> Answer:
    """All of them, where they are the front of the model."""
    return case.missing if case.is_front else ()


def are_a_branch(case: Case) -> Answer:
    """All of them, where they are whole branches of the model."""
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


def is_tied_output(case: Case) -> Answer:
    """Output layers of the shape of a trained embedding, whose values are not known to be others."""
    front = {one.shape for one in case.trained if one.kind is Kind.EMBEDDING}
    known = any(one.weight is not None and values_of(one.weight) is not None for one in case.missing)
    matrices = [one for one in case.missing if one.is_matrix]
    tied = bool(matrices) and all(one.is_back and one.shape in front for one in matrices)
    return case.missing if tied and not known else ()


# What is left.


def lacks_its_matrix(case: Case) -> Answer:
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


def is_not_given(case: Case) -> Answer:
    """All of them, where the optimizer was never given them."""
    return case.missing if case.how is Left.NOT_GIVEN else ()


def is_more_than_a_layer(case: Case) -> Answer:
    """All of them, where they are more than one layer."""
    return case.missing if len(case.missing) > ONE_LAYER else ()


def is_one_layer(case: Case) -> Answer:
    """All of them: what is left is one layer."""
    return case.missing


def _with_their_blocks(found: Sequence[Parameter], case: Case) -> list[Parameter]:
    """With what else is left out of the same module, or of the same of several numbered ones."""
    blocks = {block for one in found for block in (one.module, *_blocks(one))}
    return [one for one in case.missing if not blocks.isdisjoint((one.module, *_blocks(one)))]


def _blocks(row: Parameter) -> list[str]:
    return [f"{before}{number}" for before, number, _ in numbered(row.key)][-1:]


# Without names: by the order in which the optimizer has them, and by the shapes of those that are trained.


def trains_kinds_alone(case: Case) -> Answer:
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


def are_in_one_piece(case: Case) -> Answer:
    """A third of the parameters or more, which follow each other: a branch."""
    places: dict[str, list[int]] = defaultdict(list)
    for sequence, place in (one.order for one in case.missing if one.order is not None):
        places[sequence].append(place)
    known = sum(map(len, places.values())) == len(case.missing) > ONE_LAYER
    whole = all(NEARLY_ALL * (max(some) - min(some)) < len(some) for some in places.values())
    return case.missing if known and whole and 2 * len(case.missing) >= len(case.trained) else ()
