"""What the rows say of whole layers: the size of their inputs, their normalisations, and which rows are units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import hypot, inf, isfinite, prod, sqrt

from tracker_health.evidence.parameters.initial import is_constant
from tracker_health.evidence.parameters.rows import Naming, Parameter
from tracker_health.evidence.parameters.words import is_sparse, joins_gates, kind_of, module_of

CANCELLED = 1e-4
"""Of the largest second moment of a bias, below which one is the rounding of 0: a normalisation takes it away again."""
MOST_INPUT = 1e5
"""The size of inputs beyond which the gradient of a bias is the rounding of 0."""
MOST_VECTORS = 6
"""Vectors behind a matrix, without names, of which the first may be its bias."""
SHRUNK = 0.1
"""Of a row's norm, which begins near 0.6: what was decayed so far does not tell the size of its inputs."""
TALL = 4
"""Times as many rows as columns, without a bias: a table of vectors."""
LONGEST = 200
"""Characters of a name by which modules are ordered."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Normalisation:
    """A normalisation with running statistics, and its own parameters where it has some."""

    name: str
    mean: Parameter
    variance: Parameter
    weight: Parameter | None = None
    bias: Parameter | None = None

    @property
    def was_trained(self) -> bool:
        """Whether its bias, or without one its weight, has come to differ from one value to the next."""
        own = self.bias if self.bias is not None else self.weight
        stats = own.weight.stats if own is not None and own.weight is not None else None
        return stats is not None and not stats.nonfinite and stats.minimum != stats.maximum

    @property
    def never_looked(self) -> bool:
        """Whether its statistics are those that it begins with."""
        return _is(self.mean, 0.0) and _is(self.variance, 1.0)

    @property
    def is_begun(self) -> bool:
        """Whether it changes nothing: neither its statistics nor its own parameters ever moved."""
        return self.never_looked and _is(self.weight, 1.0) and _is(self.bias, 0.0)


def _is(row: Parameter | None, value: float) -> bool:
    return row is not None and row.weight is not None and is_constant(row.weight, value)


def normalisations(rows: Sequence[Parameter]) -> list[Normalisation]:
    """Those of the weights that have running statistics."""
    by_name = {one.weight.name: one for one in rows if one.weight is not None}
    found = []
    for name, mean in by_name.items():
        layer, _, kind = name.rpartition(".")
        if kind == "running_mean" and (variance := by_name.get(f"{layer}.running_var")) is not None:
            weight, bias = by_name.get(f"{layer}.weight"), by_name.get(f"{layer}.bias")
            found.append(Normalisation(name=layer, mean=mean, variance=variance, weight=weight, bias=bias))
    return found


def inputs_by_moments(rows: Sequence[Parameter]) -> list[tuple[float, str]]:
    """The root mean square of each layer's input, and the layer's name.

    The gradient of a weight is that of its bias times the input. So the ratio of their second moments is the input's
    mean square. Biases whose gradient is only rounding are left out.
    """
    squares = [
        (weight.state.second_moment.mean, bias.state.second_moment.mean, weight.label)
        for weight, bias in _with_bias(rows)
        if weight.state is not None
        and bias.state is not None
        and weight.state.second_moment is not None
        and bias.state.second_moment is not None
    ]
    known = [one for one in squares if isfinite(one[0]) and 0 < one[1] < inf]
    largest = max((below for _, below, _ in known), default=0.0)
    sizes = ((sqrt(max(above, 0.0)) / sqrt(below), below, label) for above, below, label in known)
    return [(size, label) for size, below, label in sizes if below > CANCELLED * largest and size < MOST_INPUT]


def _with_bias(rows: Sequence[Parameter]) -> Iterator[tuple[Parameter, Parameter]]:
    """Weights and their biases: by name, or where the file has none as neighbours."""
    named = {one.label: one for one in rows if one.naming is Naming.FILE}
    by_name = len(named) == len(rows)
    for at, weight in enumerate(rows):
        bias = named.get(f"{weight.label.removesuffix('.weight')}.bias") if by_name else _bias_behind(rows, at)
        if bias is not None and weight.is_matrix and bias.shape == (weight.shape or ())[:1]:
            yield weight, bias


def _bias_behind(rows: Sequence[Parameter], at: int) -> Parameter | None:
    """The vector after a weight, where it is a bias.

    It is none if its likely name says otherwise. Two vectors of one shape are the scale and shift of a normalisation,
    and so are the last two of three.
    """
    first = (rows[at].shape or ())[:1]
    following = list(takewhile(lambda one: one.shape == first, rows[at + 1 : at + 1 + MOST_VECTORS]))
    is_bias = len(following) % 2 and (following[0].name is None or "bias" in following[0].name.lower())
    return following[0] if is_bias else None


def inputs_by_statistics(rows: Sequence[Parameter]) -> list[tuple[float, str]]:
    """The root mean square of what goes into the layer before each normalisation, and its name: that of the running
    statistics over the norm of a row of the last matrix of as many rows before them.
    """
    known = [one for one in rows if one.weight is not None and one.weight.stats is not None]
    by_order = all(one.order is not None for one in known)
    ordered = sorted(known, key=lambda one: one.order or ("", 0)) if by_order else sorted(known, key=_by_number)
    statistics = {one.variance.called: one for one in normalisations(known)}
    before: Parameter | None = None
    found = []
    for row in ordered:
        if row.is_matrix:
            before = None if "emb" in row.called.lower() else row  # what goes into an embedding has no size
        layer = statistics.get(row.called)
        if layer is None or before is None or before.weight is None or not before.weight.rms:
            continue
        norm = before.weight.rms * sqrt(prod((before.shape or ())[1:]))
        size = _size_of(layer)
        alike = row.shape == layer.mean.shape == (before.shape or ())[:1]
        if alike and norm >= SHRUNK and 0 < size < inf:
            found.append((size / norm, before.called))
    return found


def _size_of(layer: Normalisation) -> float:
    variance, mean = layer.variance.weight, layer.mean.weight
    if variance is None or variance.stats is None or mean is None:
        return 0.0
    return hypot(sqrt(max(0.0, variance.stats.mean)), mean.rms or 0.0)  # their squares may be beyond any number


def _by_number(row: Parameter) -> list[tuple[int, str]]:
    """What puts the modules of a sequence in their order: ``10`` after ``2``."""
    return [(int(part) if part.isdecimal() else -1, part) for part in row.called[:LONGEST].split(".")]


def taken_inputs(rows: Sequence[Parameter]) -> Counter[int]:
    """How many inputs the matrices take, and how many of them those: of the optimizer's state, and of the weights."""
    found: Counter[int] = Counter()
    for some in ([one for one in rows if one.state is not None], [one for one in rows if one.weight is not None]):
        found |= Counter(one.shape[1] for one in some if one.shape is not None and len(one.shape) > 1 and one.shape[1])
    return found


def gives_units(row: Parameter, taken: Mapping[int, int], sparse: set[tuple[int, ...] | None] | None) -> bool:
    """Whether each row of a matrix is a unit: another matrix takes as many inputs. Of filters each has a map of many
    places, and gates are joined before they are taken. ``sparse``: the shapes of tables, None where no weights tell.
    """
    shape = row.shape or ()
    if len(shape) < 2 or _is_table(row, sparse):
        return False
    if taken.get(shape[0], 0) > (shape[1] == shape[0]) or joins_gates(row.called):
        return True
    return len(shape) > 2 and any(inputs % shape[0] == 0 for inputs in taken)


def _is_table(row: Parameter, sparse: set[tuple[int, ...] | None] | None) -> bool:
    """Whether rows of zeros are to be expected."""
    if row.name is not None:
        return is_sparse(row.name)
    shape = row.shape or ()
    return shape[0] > shape[1] if sparse is None else shape in sparse


def scaled_matrices(rows: Sequence[Parameter]) -> list[Parameter]:
    """The matrices that are read, without embeddings: by their name, or tables of vectors without a bias."""
    with_bias = {module_of(one.called) for one in rows if "bias" in kind_of(one.called)}
    return [
        one
        for one in rows
        if one.is_matrix
        and one.numel > 1
        and one.weight is not None
        and one.weight.rms is not None
        and isfinite(one.weight.rms)
        and not one.is_embedding
        and (len(one.shape or ()) > 2 or module_of(one.called) in with_bias or not _is_tall(one.shape or ()))
    ]


def _is_tall(shape: tuple[int, ...]) -> bool:
    return shape[0] >= TALL * shape[1]
