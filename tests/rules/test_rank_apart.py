"""RUN005."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.evidence import Rank, StepUnit, as_one, beside

CODE = "RUN005"
N = 200


def loss(seed, *, noise=0.03, start=2.3, end=0.4):
    level = end + (start - end) * np.exp(-np.arange(N) / 30.0)
    return level * (1.0 + noise * np.random.default_rng(seed).standard_normal(N))


def together(make, *losses, role="train_loss"):
    ranks = [
        Rank(number=number, name=f"rank {number}", series=(make.series(values, role=role, name="loss"),))
        for number, values in enumerate(losses)
    ]
    return make.evidence(ranks=tuple(ranks))


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.3])
def test_ranks_that_lie_together_pass(make, judge, ranks, noise):
    result = judge(CODE, together(make, *(loss(seed, noise=noise) for seed in range(ranks))))
    assert result.verdict == "pass", result.message


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("role", ["train_loss", "val_loss"])
def test_a_rank_that_leaves_the_others_is_named(make, judge, ranks, role):
    losses = [loss(seed) for seed in range(ranks)]
    losses[1][80:] += 1.0
    result = judge(CODE, together(make, *losses, role=role))
    assert (result.verdict, result.kind, result.measured["rank"]) == ("warn", "left", 1)
    assert 70 <= result.steps[0] <= 90
    assert "rank 1 left the others from step" in result.message


def test_near_misses(make, judge):
    harder = [loss(seed) * (1.15 if seed == 2 else 1.0) for seed in range(4)]  # its shard is a little harder
    assert judge(CODE, together(make, *harder)).verdict == "pass"
    came_back = [loss(seed) for seed in range(3)]
    came_back[1][80:150] += 1.0
    assert judge(CODE, together(make, *came_back)).verdict == "pass"
    spread = [loss(seed) * factor for seed, factor in enumerate((0.8, 1.0, 1.2, 1.45))]  # shards that are all unlike
    assert judge(CODE, together(make, *spread)).verdict == "pass"
    once = [loss(seed) for seed in range(3)]
    once[1][100] = math.nan
    assert judge(CODE, together(make, *once)).verdict == "pass"
    a_bit_behind = [loss(0), loss(1)[:-6], loss(2)]
    assert judge(CODE, together(make, *a_bit_behind)).verdict == "pass"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_rank_that_becomes_nan_fails(make, judge, value):
    losses = [loss(seed) for seed in range(3)]
    losses[2][120:] = value
    result = judge(CODE, together(make, *losses))
    assert (result.verdict, result.kind, result.measured["rank"], result.steps) == ("fail", "nonfinite", 2, (120,))


def test_where_all_are_nan_no_rank_is_apart(make, judge):
    losses = [loss(seed) for seed in range(3)]
    for one in losses:
        one[120:] = math.nan
    assert judge(CODE, together(make, *losses)).verdict == "pass"


def test_a_rank_that_stops_is_named(make, judge):
    result = judge(CODE, together(make, loss(0), loss(1)[:90], loss(2)))
    assert (result.verdict, result.kind, result.measured["rank"], result.steps) == ("warn", "stopped", 1, (89,))


def test_ranks_that_log_nothing_are_no_fault(make, judge):
    only = Rank(number=0, name="rank 0", series=(make.series(loss(0), role="train_loss", name="loss"),))
    result = judge(CODE, make.evidence(ranks=(only, Rank(number=1, name="rank 1"))))
    assert result.verdict == "SkippedProbe"


def test_a_rank_that_logs_less_often_is_no_fault(make, judge):
    losses = [loss(seed) for seed in range(3)]
    ranks = [
        Rank(
            number=at,
            name=str(at),
            series=(make.series(one[::every], np.arange(N)[::every], role="train_loss", name="loss"),),
        )
        for at, (one, every) in enumerate(zip(losses, (1, 1, 10), strict=True))
    ]
    assert judge(CODE, make.evidence(ranks=tuple(ranks))).verdict == "pass"


def test_one_run_by_itself_is_skipped(make, judge):
    assert judge(CODE, make.evidence(make.series(loss(0), role="train_loss"))).verdict == "SkippedProbe"


@given(
    seed=st.integers(0, 10_000),
    ranks=st.integers(2, 6),
    noise=st.floats(0.0, 0.5),
    apart=st.floats(-0.6, 3.0),
)
def test_against_a_plain_computation(seed, ranks, noise, apart, make, judge):
    """Of a distance that is there from the start, by means over all: far away is flagged, near by is not."""
    rng = np.random.default_rng(seed)
    losses = 1.0 + noise * rng.standard_normal((ranks, N))
    losses[0] += apart
    result = judge(CODE, together(make, *losses))
    others = losses[1:].mean(axis=0)
    distance, error = abs(losses[0].mean() - others.mean()), (losses[0] - others).std() / math.sqrt(N)
    if distance < 0.15 or distance < 2.0 * error:
        assert result.verdict == "pass", result.message
    if distance > 0.45 * (1.0 if ranks > 2 else max(1.0, 1.0 + apart)) and distance > 12.0 * error:
        assert (result.verdict, result.kind) == ("warn", "left")
        assert ranks == 2 or result.measured["rank"] == 0


def test_ranks_as_one_curve(make):
    rows = [[3.0, 2.0, 1.0, 1.0], [5.0, 2.0, math.nan, 1.0], [4.0, 2.0, 3.0, 1.0]]
    ranks = [
        Rank(number=at, name=str(at), series=(make.series(row, role="train_loss", name="loss"),))
        for at, row in enumerate(rows)
    ]
    alone = make.series([0.1] * 5, role="learning_rate", name="lr")
    ranks[0] = Rank(number=0, name="0", series=(*ranks[0].series, alone))
    joined = {one.name: one.values.tolist() for one in as_one(ranks)}
    assert joined == {"loss": [4.0, 2.0, 2.0, 1.0], "lr": [0.1] * 5}
    (both,) = beside(ranks)
    assert (both.numbers, both.role) == ((0, 1, 2), "train_loss")


def test_rank_0_that_calls_its_logger_twice_as_often_is_no_fault(make, judge):
    """W&B counts the calls: the same training step is another one of rank 0."""
    ranks = []
    for number, every in enumerate((2, 1, 1)):
        one = make.series(loss(number), np.arange(N) * every, role="train_loss", name="loss")
        ranks.append(Rank(number=number, name=str(number), series=(replace(one, step_unit=StepUnit.LOG_CALL),)))
    assert judge(CODE, make.evidence(ranks=tuple(ranks))).verdict == "pass"
