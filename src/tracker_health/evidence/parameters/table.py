"""One table of a model's parameters: what trained, what did not, and whether that was meant."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tracker_health.evidence.as_read import AsRead
from tracker_health.evidence.numerics import median
from tracker_health.evidence.parameters.gradient_by_depth import along_the_depth
from tracker_health.evidence.parameters.initial import Initial
from tracker_health.evidence.parameters.joining import TELLING, Order, Replaced, may_be_named, replaced, untaken
from tracker_health.evidence.parameters.layer_facts import (
    Normalisation,
    gives_units,
    inputs_by_moments,
    inputs_by_statistics,
    normalisations,
    scaled_matrices,
    taken_inputs,
)
from tracker_health.evidence.parameters.left_out import Case, Left
from tracker_health.evidence.parameters.purpose import LeftOut, purposes
from tracker_health.evidence.parameters.purpose_checks import FEWEST_OF_A_BRANCH
from tracker_health.evidence.parameters.rows import Naming, Parameter, Place
from tracker_health.evidence.parameters.same_in_two_checkpoints import (
    is_hidden,
    is_stepped,
    only_layers,
    stuck_by_shape,
)
from tracker_health.evidence.parameters.steps import (
    DistanceMoved,
    decays_alone,
    groups_without_rate,
    rate_of_group,
    root_second_moment,
    signal_to_noise,
    silent_for,
    walks,
)
from tracker_health.evidence.parameters.words import bare_name, is_sparse, parameters_of, tail_of
from tracker_health.evidence.tensors import Attribution, OptimizerState, TensorHeader, TensorState, Weights
from tracker_health.words.layers import are_names

_UNNAMED = re.compile(r"(?:^|/)#(-?\d+)$")
_UNSURE = (Naming.ASSUMED, Naming.NONE)
_FREEZES = re.compile(r"(?<!un)freez|frozen")
_NO = re.compile(r"|none|null|false|no|off|\[\]|\{\}|\(\)|-\d{1,9}(\.\d{1,9})?|0+(\.0+)?")


@dataclass(frozen=True, kw_only=True, eq=False)
class ParameterTable:
    """The parameters of a checkpoint, one row each, and the groups of its optimizer with their settings.

    ``rows``: first the parameters with a state, in the optimizer's order, then those that it lists without one. Last
    are weights for which it keeps nothing, or for which that is not known. ``readable``: whether some of their names
    can be known. ``is_named``: the names are the file's own, or contents confirm them. ``says_frozen``: the run's param
    that mentions freezing, empty for none. ``replaced``: weights of a layer in whose place the optimizer has another
    one. ``is_adapter_file``: the file holds an adapter; ``lists_adapter_alone``: and the optimizer nothing else.
    ``idle_groups``: those whose learning rate always was 0, while another one has a rate. ``first_loss``: the median
    of the first three training losses, None where there are none.
    """

    rows: tuple[Parameter, ...]
    groups: tuple[Mapping[str, Any], ...] = ()
    readable: bool = True
    is_named: bool = False
    says_frozen: str = ""
    replaced: tuple[Replaced, ...] = ()
    is_adapter_file: bool = False
    lists_adapter_alone: bool = False
    idle_groups: frozenset[int] = frozenset()
    first_loss: float | None = None

    @classmethod
    def of(cls, evidence: AsRead, steps: int) -> ParameterTable:
        """The table of what was read of a run.

        Args:
            evidence: A run, with the parts of its checkpoint.
            steps: Optimizer steps that it has done, at least.

        Returns:
            The table, without rows where there is no checkpoint.
        """
        state, weights = evidence.optimizer, evidence.weights
        names = (one.name for one in (weights.tensors if weights is not None else ()))
        labels = (*(one.label for one in state.tensors), *state.stateless) if state is not None else ()
        readable = are_names((*names, *labels))
        walked = walks(evidence, steps) if state is not None and state.tensors else {}
        rows = _Rows(state, weights, walked).rows() if readable else _bare(state)
        listed = 0 if state is None else len(state.tensors) + len(state.stateless)
        is_adapter = weights is not None and readable and weights.is_adapter
        return cls(
            rows=tuple(_placed(rows)) if readable else tuple(rows),
            groups=() if state is None else state.groups,
            readable=readable,
            is_named=state is not None and state.attribution in (Attribution.NAMED, Attribution.CONTENT_CHECKED),
            says_frozen=_says_frozen(evidence.info.params),
            replaced=() if state is None or not readable else tuple(replaced(state, weights)),
            is_adapter_file=is_adapter,
            lists_adapter_alone=is_adapter and weights is not None and listed <= len(weights.tensors),
            idle_groups=frozenset() if state is None else groups_without_rate(state),
            first_loss=_first_loss(evidence),
        )

    @property
    def with_state(self) -> tuple[Parameter, ...]:
        """The parameters for which an optimizer keeps something."""
        return tuple(one for one in self.rows if one.state is not None)

    @property
    def with_weight(self) -> tuple[Parameter, ...]:
        """The parameters whose weights were read."""
        return tuple(one for one in self.rows if one.weight is not None)

    def weights_of(self, row: Parameter) -> Sequence[Parameter]:
        """The rows whose weights a parameter is: its own, or without a name from the file all of its shape.

        Args:
            row: A row of the table that has optimizer state.

        Returns:
            Rows that have weights, none where none fits.
        """
        if row.weight is not None and row.naming is Naming.FILE:
            return (row,)
        return self._by_shape.get(row.shape, ())

    @cached_property
    def _by_shape(self) -> Mapping[tuple[int, ...] | None, Sequence[Parameter]]:
        found: dict[tuple[int, ...] | None, list[Parameter]] = defaultdict(list)
        for one in self.with_weight:
            if one.is_parameter:
                found[one.shape].append(one)
        return found

    @cached_property
    def normalisations(self) -> list[Normalisation]:
        """The normalisations with running statistics."""
        return normalisations(self.with_weight)

    @cached_property
    def inputs(self) -> list[tuple[float, str]]:
        """The size of what goes into each layer whose weight and bias have second moments, and its name."""
        return inputs_by_moments(self.with_state)

    @cached_property
    def inputs_before_norms(self) -> list[tuple[float, str]]:
        """The size of what goes into the layer before each normalisation with running statistics, and its name."""
        return inputs_by_statistics(self.with_weight)

    @cached_property
    def units(self) -> tuple[Parameter, ...]:
        """The matrices with a second moment of which each row is a unit."""
        taken = taken_inputs(self.rows)
        tables = {one.shape for one in self.with_weight if is_sparse(one.called)} if self.with_weight else None
        second = (one for one in self.with_state if one.state is not None and one.state.second_moment is not None)
        return tuple(one for one in second if gives_units(one, taken, tables))

    @cached_property
    def scaled(self) -> list[Parameter]:
        """The matrices whose weights have a scale, without embeddings."""
        return scaled_matrices(self.with_weight)

    @property
    def weight_scale(self) -> float:
        """How large the weights are compared with what keeps the size of inputs, in the median; 0 if not known."""
        return median([one.cautious_scale for one in self.scaled]) if self.scaled else 0.0

    def along_the_depth(self, min_layers: int, *, known: bool) -> Mapping[str, float]:
        """How many times larger gradients are in the last layer than in the first, by kind of matrix.

        Args:
            min_layers: Layers that must have the matrix.
            known: Whether a loss is known that says what the gradients were enough for.

        Returns:
            The factor by kind of matrix; none without names from the file, unless ``known``.
        """
        if not self.is_named and not known:
            return {}
        rows = [one for one in self.with_state if one.state is not None and one.state.second_moment is not None]
        return along_the_depth(rows, min_layers, named=self.is_named)

    @cached_property
    def stuck(self) -> tuple[Parameter, ...]:
        """The parameters that the optimizer clearly stepped, and that are the same as in the checkpoint before; without
        those whose steps floating point hides, and experts, which may wait for a token.
        """
        state = self.with_state
        if all(one.name is not None for one in state):
            found = [one for one in state if one.moved is False and one.is_stepped and one.is_parameter]
        else:
            found = stuck_by_shape(state, [one for one in self.with_weight if one.is_parameter])
        steps = {one.shape: one.walk for one in state if one.name is None}
        walked = [one if one.walk is not None else replace(one, walk=steps.get(one.shape)) for one in found]
        return tuple(one for one in walked if one.expert is None and not is_hidden(one))

    @cached_property
    def left_out(self) -> tuple[LeftOut, ...]:
        """What was left out of training, and whether on purpose: per way of being left out, in groups."""
        found: list[LeftOut] = []
        for how in Left if self.readable else ():
            missing = [one for one in self.rows if self._how(one) is how]
            missing = self._with_drawn(missing)
            trained = [one for one in self.rows if one.trained and self._how(one) is None]
            # Without names in the optimizer the weights are the rows that have them.
            if all(one.state is None and one.name is not None for one in missing):
                trained = [one for one in trained if one.name is not None] or trained
            else:
                trained = [one for one in trained if one.state is not None]
            if missing and trained:
                case = Case(
                    how=how,
                    missing=tuple(missing),
                    trained=tuple(trained),
                    all_amount=len(trained) + len(missing),
                    says_so=self.says_frozen,
                    first_loss=self.first_loss,
                    is_adapter_file=self.is_adapter_file if how is Left.NOT_GIVEN else self.lists_adapter_alone,
                )
                found += purposes(case)
        return tuple(found)

    def _with_drawn(self, left: Sequence[Parameter]) -> list[Parameter]:
        """Parameters that are not trained, by their values where the file does not name them: of a shape those weights
        that alone still are draws, if they are as many. An assumed name says less than that.
        """
        drawn: dict[tuple[int, ...] | None, list[Parameter]] = defaultdict(list)
        for one in self.with_weight:
            if one.initial is Initial.DRAWN and one.numel >= TELLING:
                drawn[one.shape].append(one)
        unsure = [one for one in left if one.naming in _UNSURE]
        wanted = Counter(one.shape for one in unsure)
        known = {shape: iter(drawn[shape]) for shape, amount in wanted.items() if len(drawn[shape]) == amount}
        return [
            self._as_drawn(one, next(known[one.shape])) if one.shape in known and one.naming in _UNSURE else one
            for one in left
        ]

    @staticmethod
    def _as_drawn(row: Parameter, drawn: Parameter) -> Parameter:
        name = drawn.name if row.name is not None else None
        return replace(row, name=name, weight=drawn.weight, naming=Naming.VALUES, order=drawn.order)

    def _how(self, row: Parameter) -> Left | None:
        """How a parameter was left out of training; None for one that was not, or of which that is not known."""
        if row.trained:
            return Left.WITHOUT_RATE if row.state is not None and row.state.group in self.idle_groups else None
        if row.trained is None:
            return None
        if row.listed is None:
            return Left.UNMOVED
        return Left.WITHOUT_STATE if row.listed else Left.NOT_GIVEN

    def experts_among(self, rows: Iterable[Parameter]) -> list[Parameter]:
        """Those that are an expert's, by their name or else by a shape that an expert's weight has.

        Args:
            rows: Rows of the table.

        Returns:
            Those of experts, in their order.
        """
        shapes = {one.shape for one in self.with_weight if one.expert is not None}
        return [one for one in rows if (one.shape in shapes if one.certain_name is None else one.expert is not None)]

    def left(self, how: Left, *, meant: bool) -> list[LeftOut]:
        """The parameters that were left out of training in one way.

        Args:
            how: The way: never listed, listed and never stepped, ...
            meant: Whether those are wanted that were left out on purpose, or the others.

        Returns:
            What was left out, with the reason, the surest first.
        """
        some = (one for one in self.left_out if one.how is how and one.purpose.meant is meant)
        return sorted(some, key=lambda one: -one.purpose.confidence)


def _first_loss(evidence: AsRead) -> float | None:
    loss = evidence.find("train_loss")
    values = loss.finite().values[:3] if loss is not None else ()
    return median(values) if len(values) else None


def _says_frozen(params: Mapping[str, Any]) -> str:
    """The name of the param that speaks of freezing, and does not say no to it."""
    for name, value in params.items():
        if _FREEZES.search(name.lower()) and not _NO.fullmatch(str(value)[:40].strip().lower()):
            return name
    return ""


def _bare(state: OptimizerState | None) -> list[Parameter]:
    """Rows of parameters whose names are longer than any model's: what the optimizer keeps, and nothing more."""
    tensors = state.tensors if state is not None else ()
    return [Parameter(label=one.label, name=None, naming=Naming.NONE, shape=one.shape, state=one) for one in tensors]


class _Rows:
    """Brings an optimizer's state and weights together."""

    def __init__(
        self, state: OptimizerState | None, weights: Weights | None, walked: Mapping[str, DistanceMoved]
    ) -> None:
        self._state, self._weights, self._walked = state, weights, walked
        self._keeps = state is not None and bool(state.tensors)
        known = weights.tensors if weights is not None else ()
        self._headers = {one.name: one for one in known}
        self._by_shape: dict[tuple[int, ...], list[TensorHeader]] = defaultdict(list)
        for one in known:
            self._by_shape[one.shape].append(one)
        self._sure, self._doubtful = parameters_of(known)
        self._parameters = {one.name for one in (*self._sure, *self._doubtful)}
        self._by_tail = {tail_of(one.name): one for one in known}
        self._moved = {one.name: not one.unchanged for one in (weights.changes if weights is not None else ())}
        self._order = Order.known(weights, state)
        self._used: set[str] = set()

    def rows(self) -> list[Parameter]:
        state = self._state
        if state is None or not self._keeps:
            return only_layers(list(self._of_weights()), self._weights.changes if self._weights is not None else ())
        missing = untaken(state, self._weights)
        if may_be_named(state):
            rows = [*self._with_state(state), *self._without_state(state)]
            given = False
            naming_of = {one.weight.name: one.naming for one in missing}
        else:
            rows = [*self._with_state(state)]
            naming_of = {one.weight.name: one.naming for one in missing}
            if state.stateless and len(missing) != len(state.stateless):
                rows += [self._nameless(label) for label in state.stateless]
                naming_of = {}
            given = bool(state.stateless)
            labels = self._labels(state, list(naming_of)) if given else {}
            return [*rows, *self._of_weights(naming_of, listed=given, labels=labels)]
        return [*rows, *self._of_weights(naming_of, listed=given)]

    def _labels(self, state: OptimizerState, names: list[str]) -> dict[str, str]:
        """What the optimizer calls its parameters without state that are these weights, both in order."""
        order = [self._order.of(name) for name in names]
        if len(names) != len(state.stateless) or None in order:
            return {}
        ordered = [name for _, name in sorted(zip(order, names, strict=True))]
        return dict(zip(ordered, state.stateless, strict=True))

    def _with_state(self, state: OptimizerState) -> Iterator[Parameter]:
        several, counted = _are_of_several(state), state.counted or 0
        for one in state.tensors:
            weight = self._weight_of(one)
            rate, snr = rate_of_group(state, one), signal_to_noise(state, one, fewest_steps=1)
            # AMSGrad divides by the largest second moment there was, not by the present one.
            known = snr is not None and snr >= 0 and rate is not None and one.kind != "amsgrad"
            step = rate * snr**0.5 if known and rate is not None and snr is not None else None
            yield Parameter(
                label=one.label,
                name=_name(one.label, several=several) if one.name is not None else None,
                naming=_naming(one),
                shape=one.shape,
                state=one,
                weight=weight,
                listed=True,
                trained=one.step is None or one.step > 0,
                moved=None if weight is None else self._moved.get(weight.name),
                order=self._order.of(one.name, one.label),
                gradient=root_second_moment(state, one),
                snr=snr,
                step=step,
                decays=one.second_moment is None
                and len(one.shape) > 1
                and decays_alone(state, one, self._by_shape.get(one.shape, ())),
                silent_for=silent_for(state, one),
                is_stepped=is_stepped(state, one, counted),
                walk=self._walked.get(one.label),
                is_parameter=weight is None or weight.name in self._parameters,
                update_ratio=step / weight.rms if step is not None and weight is not None and weight.rms else None,
            )

    def _weight_of(self, tensor: TensorState) -> TensorHeader | None:
        if tensor.name is None:
            return None
        found = self._headers.get(tensor.name) or self._by_tail.get(tail_of(tensor.name))
        if found is None or found.shape != tensor.shape:
            return None
        self._used.add(found.name)
        return found

    def _without_state(self, state: OptimizerState) -> Iterator[Parameter]:
        frozen = None if state.frozen is None else frozenset(state.frozen)
        several = _are_of_several(state)
        for label in state.stateless:
            assumed = state.presumed.get(label)
            name = assumed or (None if _UNNAMED.search(label) else _name(label, several=several))
            weight = self._by_tail.get(tail_of(name)) if name is not None else None
            if weight is not None:
                self._used.add(weight.name)
            yield Parameter(
                label=label,
                name=name,
                naming=Naming.NONE if name is None else Naming.ASSUMED if assumed else Naming.FILE,
                shape=None if weight is None else weight.shape,
                weight=weight,
                listed=True,
                trained=False,
                moved=None if weight is None else self._moved.get(weight.name),
                asks=None if frozen is None else label not in frozen,
                order=self._order.of(name, label),
            )

    def _nameless(self, label: str) -> Parameter:
        order = self._order.of(label)
        return Parameter(
            label=label, name=None, naming=Naming.NONE, shape=None, listed=True, trained=False, order=order
        )

    def _of_weights(
        self,
        missing: Mapping[str, Naming] | None = None,
        *,
        listed: bool = False,
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[Parameter]:
        """Rows of weights that no row of the optimizer has. ``missing``: those that it keeps nothing for, where it
        keeps something; else what moved is trained. The others may be those of any of its parameters without a name.
        """
        sure, doubtful = self._sure, self._doubtful
        kept = {one.name for one in sure}
        kept |= {one.name for one in doubtful if missing is None or one.name in missing}
        nameless = self._state is None or not may_be_named(self._state)
        for weight in self._headers.values():
            if weight.name in self._used:
                continue
            moved, trained, given = self._moved.get(weight.name), None, None
            if weight.name in kept and missing is None:
                trained = moved
            elif missing is not None and weight.name in missing:
                trained, given = False, listed
            elif weight.name in kept and missing and nameless:
                trained = True
            yield Parameter(
                label=(labels or {}).get(weight.name, weight.name),
                name=weight.name,
                naming=Naming.FILE if missing is None else missing.get(weight.name, Naming.SHAPE),
                shape=weight.shape,
                weight=weight,
                listed=given,
                trained=trained,
                moved=moved,
                order=self._order.of(weight.name),
                is_parameter=weight.name in self._parameters,
            )


def _are_of_several(state: OptimizerState) -> bool:
    """Whether parameters of one name belong to several optimizers; else these are those of one model."""
    labels = [*(one.label for one in state.tensors), *state.stateless]
    return len(set(map(bare_name, labels))) < len(labels)


def _name(label: str, *, several: bool) -> str:
    return label.replace("/", ".") if several else bare_name(label)


def _naming(tensor: TensorState) -> Naming:
    if tensor.name is None:
        return Naming.NONE
    return Naming.ASSUMED if tensor.assumed else Naming.FILE


def _placed(rows: Iterable[Parameter]) -> Iterator[Parameter]:
    """The rows with their places in the model."""
    rows = list(rows)
    orders = [one.order for one in rows if one.is_matrix and one.order is not None]
    ends = (min(orders), max(orders)) if orders else ()
    deep = Counter(_root(one) for one in rows if one.name is not None and one.key.count(".") > 1)
    branches = {root for root, amount in deep.items() if amount >= FEWEST_OF_A_BRANCH}
    for one in rows:
        inside = len(branches) > 1 and _root(one) in branches
        yield replace(one, place=_place(one, ends, in_branch=inside))


def _root(row: Parameter) -> str:
    return row.key.partition(".")[0]


def _place(row: Parameter, ends: tuple[tuple[str, int], ...], *, in_branch: bool) -> Place:
    if row.is_adapter:
        return Place.ADAPTER
    if row.is_back:
        return Place.HEAD
    if row.is_front or row.order in ends[:1]:
        return Place.FRONT
    if row.order in ends[1:]:
        return Place.END
    if row.name is None:
        return Place.UNKNOWN
    return Place.BRANCH if in_branch else Place.MIDDLE
