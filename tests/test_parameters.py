"""The table of parameters: its rows, and how it tells what still is as it began."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tracker_health.evidence import (
    Evidence,
    Initial,
    MomentStats,
    OptimizerState,
    Place,
    RunRef,
    TensorHeader,
    TensorState,
    WeightChange,
    Weights,
)
from tracker_health.evidence.parameters import Naming
from tracker_health.evidence.parameters.initial import initial_of
from tracker_health.evidence.parameters.joining import factors_beside


def header(values: Tensor, name: str = "layer.weight") -> TensorHeader:
    flat = values.detach().double().flatten()
    stats = MomentStats(
        count=len(flat), mean=float(flat.mean()), rms=float(flat.square().mean().sqrt()), minimum=float(flat.min()),
        maximum=float(flat.max()), zeros=int((flat == 0).sum()), nonfinite=0,
    )  # fmt: skip
    return TensorHeader(name=name, shape=tuple(values.shape), dtype="F32", rms=stats.rms, stats=stats)


def table(state=None, weights=None, **more):
    evidence = Evidence(run=RunRef(store="directory", id="a", name="a"), optimizer=state, weights=weights, **more)
    return evidence.parameters


def drawn(init: Callable[..., object], *args: float) -> Callable[[int, int], Tensor]:
    def draw(rows: int, columns: int) -> Tensor:
        values = torch.empty(rows, columns)
        init(values, *args)
        return values

    return draw


INITIALISERS = {
    "torch's own": lambda rows, columns: nn.Linear(columns, rows).weight,
    "a convolution": lambda rows, columns: nn.Conv2d(columns, rows, 3).weight,
    "an embedding": lambda rows, columns: nn.Embedding(rows, columns).weight,
    "one with padding": lambda rows, columns: nn.Embedding(rows, columns, padding_idx=0).weight,
    "a transformer's": drawn(nn.init.normal_, 0.0, 0.02),
    "truncated": drawn(nn.init.trunc_normal_, 0.0, 0.02),
    "kaiming uniform": drawn(nn.init.kaiming_uniform_),
    "kaiming normal": drawn(nn.init.kaiming_normal_),
    "xavier uniform": drawn(nn.init.xavier_uniform_),
    "xavier normal": drawn(nn.init.xavier_normal_),
    "orthogonal": drawn(nn.init.orthogonal_),
}


@pytest.mark.parametrize("initialiser", INITIALISERS)
@pytest.mark.parametrize("shape", [(64, 64), (128, 40), (300, 24)])
def test_what_an_initialiser_draws_is_known(initialiser, shape):
    torch.manual_seed(0)
    fresh = [initial_of(header(INITIALISERS[initialiser](*shape))) for _ in range(40)]
    assert sum(one.may_be for one in fresh) >= 39


@pytest.mark.parametrize("initialiser", ["torch's own", "a convolution", "kaiming uniform", "xavier uniform"])
@pytest.mark.parametrize("moved", [0.003, 0.03])
def test_a_uniform_draw_is_none_any_more_once_it_moved(initialiser, moved):
    torch.manual_seed(0)
    trained = [INITIALISERS[initialiser](64, 64) for _ in range(40)]
    trained = [one.detach() + moved * torch.randn(one.shape) for one in trained]
    assert sum(initial_of(header(one)) is Initial.NO for one in trained) >= 38


@pytest.mark.parametrize("size", [0.005, 0.05, 0.14, 0.5, 3.0])
def test_weights_of_other_sizes_are_none(size):
    """As pretrained ones have them: fan-in 256 would give 0.0361 or 0.0625, the usual scales 0.01, 0.02 and 1."""
    torch.manual_seed(0)
    assert initial_of(header(size * torch.randn(256, 256))) is Initial.NO
    assert initial_of(header(size * (2 * torch.rand(256, 256) - 1))) is Initial.NO


def test_small_and_unread_tensors_do_not_tell():
    assert initial_of(header(nn.Linear(4, 4).weight)) is Initial.UNKNOWN
    assert initial_of(header(nn.Linear(64, 64).bias)) is Initial.UNKNOWN
    assert initial_of(TensorHeader(name="a.weight", shape=(64, 64), dtype="F32")) is Initial.UNKNOWN


def state_of(*names, shapes=None, named=True, **more):
    tensors = tuple(
        TensorState(id=at, shape=(shapes or {}).get(name, (8, 8)), step=100.0, name=name if named else None, group=0)
        for at, name in enumerate(names)
    )
    return OptimizerState(source="a", tensors=tensors, groups=({"lr": 0.1},), **more)


def test_rows_of_an_optimizer_and_its_weights():
    names = ["embed.weight", "layers.0.weight", "layers.1.weight", "head.weight"]
    headers = tuple(TensorHeader(name=f"model.{name}", shape=(8, 8), dtype="F32", rms=0.7) for name in names[:3])
    headers += (TensorHeader(name="model.head.weight", shape=(4, 8), dtype="F32", rms=0.7),)
    changes = tuple(WeightChange(name=f"model.{name}", rms=0.1, unchanged=name == names[1]) for name in names)
    weights = Weights(source="b", tensors=headers, in_order=True, changes=changes)
    found = table(state_of(*names[:3]), weights)
    assert [one.name for one in found.rows] == [*names[:3], "model.head.weight"]
    assert [one.listed for one in found.rows] == [True, True, True, False]
    assert [one.trained for one in found.rows] == [True, True, True, False]
    assert [one.moved for one in found.rows] == [True, False, True, True]
    assert [one.place for one in found.rows] == [Place.FRONT, Place.MIDDLE, Place.MIDDLE, Place.HEAD]
    assert all(one.naming is Naming.FILE for one in found.rows)
    (left,) = found.left_out
    assert (left.purpose.meant, left.purpose.name) == (False, "not given")
    assert found.groups == ({"lr": 0.1},)


def test_without_names_shapes_and_values_tell_what_is_missing():
    torch.manual_seed(0)
    trained = {f"{at}.weight": header(0.3 * torch.randn(64, 64), f"{at}.weight") for at in (0, 2, 4)}
    missing = header(nn.Linear(64, 64).weight, "6.weight")
    weights = Weights(source="b", tensors=(*trained.values(), missing))
    found = table(state_of("a", "b", "c", named=False, shapes=dict.fromkeys("abc", (64, 64))), weights)
    (left,) = found.left_out
    (row,) = left.parameters
    assert (row.name, row.naming, row.initial) == ("6.weight", Naming.VALUES, Initial.DRAWN)
    assert (left.purpose.name, left.purpose.meant) == ("random", False)
    assert left.purpose.confidence < 0.99, "the optimizer names nothing"


def test_a_head_that_was_replaced():
    shapes = {"body.weight": (64, 64), "fc.weight": (1000, 64), "fc.bias": (1000,)}
    now = shapes | {"fc.weight": (10, 64), "fc.bias": (10,)}
    headers = tuple(TensorHeader(name=name, shape=shape, dtype="F32") for name, shape in now.items())
    weights = Weights(source="b", tensors=headers)
    for named in (True, False):
        found = table(state_of(*shapes, shapes=shapes, named=named), weights)
        assert {(one.weight.name, one.before) for one in found.replaced} == {
            ("fc.weight", (1000, 64)), ("fc.bias", (1000,))
        }  # fmt: skip
    assert not table(state_of(*now, shapes=now), weights).replaced


@pytest.mark.parametrize(
    ("factors", "found"),
    [
        ({"q.A": (4, 32), "q.B": (64, 4)}, True),
        ({"q.A": (32, 4), "q.B": (4, 64)}, True),
        ({"q.down.weight": (4, 32), "q.up.weight": (64, 4)}, True),
        ({"q.A": (4, 32), "q.B": (64, 8)}, False),
        ({"k.A": (4, 32), "k.B": (64, 4)}, False),
        ({"q.A": (4, 32)}, False),
    ],
)
def test_two_thin_matrices_whose_product_fits(factors, found):
    assert factors_beside([("q.base.weight", (64, 32))], list(factors.items())) == ({"q.base"} if found else set())


def test_the_layers_of_a_model_are_no_factors_beside_each_other():
    trained = [("one.weight", (40, 20)), ("two.weight", (32, 40))]
    assert factors_beside([("three.weight", (32, 32))], [*trained, ("four.weight", (6, 32))]) == set()


def test_the_table_is_made_once():
    evidence = Evidence(run=RunRef(store="directory", id="a", name="a"), optimizer=state_of("a", "b"))
    assert evidence.parameters is evidence.parameters


def test_nothing_gives_an_empty_table():
    found = table()
    assert (found.rows, found.left_out, found.stuck, found.groups) == ((), (), (), ())
