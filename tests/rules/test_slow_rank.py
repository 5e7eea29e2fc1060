"""SYS004: ranks of one training by their times, as groups of runs, by names within one run, and by a column."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tracker_health import check
from tracker_health.evidence import Rank
from tracker_health.evidence.ranks import ranks_in

CODE = "SYS004"
N = 200


def time_of(level, seed=0, *, rough=0.1, first=5.0):
    """The first step compiles."""
    values = level * (1 + rough * np.random.default_rng(seed).standard_normal(N))
    values[0] = first * level
    return values


def together(make, **by_role):
    """Each role with the values of each rank."""
    ranks = max(map(len, by_role.values()))
    return make.evidence(
        ranks=tuple(
            Rank(
                number=one,
                name=f"rank {one}",
                series=tuple(make.series(values[one], role=role) for role, values in by_role.items()),
            )
            for one in range(ranks)
        )
    )


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_slow_device_is_named(make, judge, ranks):
    times = [time_of(0.5, seed) for seed in range(ranks)]
    times[1] = time_of(0.8, 1)
    result = judge(CODE, together(make, step_time=times))
    assert (result.verdict, result.kind, result.measured["rank"]) == ("warn", "step", 1)
    assert "rank 1 is slower than the others from step" in result.message
    assert 0.5 < result.measured["share"] < 0.7


def test_a_slow_loader_is_named_where_all_wait_for_it(make, judge):
    """Ranks that average their gradients have one time of a whole step."""
    steps = [time_of(0.8, seed) for seed in range(3)]
    waits = [time_of(0.1, seed) for seed in range(3)]
    waits[2] = time_of(0.4, 2)
    result = judge(CODE, together(make, step_time=steps, data_time=waits))
    assert (result.verdict, result.kind, result.measured["rank"]) == ("warn", "data", 2)
    assert result.measured["share"] == pytest.approx(0.3 / 0.8, rel=0.1)


def test_a_rank_with_a_low_throughput_is_named(make, judge):
    rates = [time_of(1000.0, seed, first=0.1) for seed in range(4)]
    rates[3] = time_of(700.0, 3, first=0.1)
    result = judge(CODE, together(make, throughput=rates))
    assert (result.verdict, result.measured["rank"]) == ("warn", 3)


def test_near_misses(make, judge):
    usual = [time_of(0.5, seed) for seed in range(4)]
    assert judge(CODE, together(make, step_time=usual)).verdict == "pass"
    faster = [time_of(0.5, seed) for seed in range(3)] + [time_of(0.3, 3)]
    assert judge(CODE, together(make, step_time=faster)).verdict == "pass", "one that is faster does no harm"
    recovered = [time_of(0.5, seed) for seed in range(3)]
    recovered[1][50:120] *= 2
    assert judge(CODE, together(make, step_time=recovered)).verdict == "pass"
    evaluates = [time_of(0.5, seed) for seed in range(3)]
    evaluates[0][::20] *= 10
    assert judge(CODE, together(make, step_time=evaluates)).verdict == "pass"
    little = [time_of(0.001, seed) for seed in range(2)] + [time_of(0.01, 2)]
    assert judge(CODE, together(make, step_time=usual[:3], data_time=little)).verdict == "pass", "2 % of a step"
    unlike = [time_of(level, seed) for seed, level in enumerate((0.4, 0.5, 0.6, 0.72))]
    assert judge(CODE, together(make, step_time=unlike)).verdict == "pass", "machines that are all unlike"


def test_times_for_data_alone_are_not_judged(make, judge):
    waits = [time_of(0.1, 0), time_of(0.4, 1)]
    assert judge(CODE, together(make, data_time=waits)).verdict == "SkippedProbe"


def rows(ranks=3, slow=1, points=120, begin=0):
    for step in range(points):
        for rank in range(ranks):
            late = 0.3 * (rank == slow)
            yield {
                "step": step,
                "rank": rank + begin,
                "loss": 2 / (step + 1) + 0.01 * rank,
                "step_time": 0.8,
                "data_time": 0.1 + late,
            }


def as_names(points):
    """Each step's rows as one row, by the names of ranks."""
    found = {}
    for row in points:
        here = found.setdefault(row["step"], {"step": row["step"]})
        rank = row["rank"]
        here |= {
            f"rank{rank}/step_time": row["step_time"],
            f"data_time/rank_{rank}": row["data_time"],
            "loss": row["loss"],
        }
    return list(found.values())


def as_csv(points):
    points = list(points)
    lines = [",".join(map(str, row.values())) for row in points]
    return "\n".join([",".join(points[0]), *lines]) + "\n"


@pytest.mark.parametrize("form", ["a column", "names", "a table"])
def test_ranks_that_log_into_one_run(tmp_path, form):
    points = list(rows())
    if form == "a table":
        (tmp_path / "metrics.csv").write_text(as_csv(points))
    else:
        points = points if form == "a column" else as_names(points)
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in points))
    report = check(tmp_path)
    assert (report.verdict, report.diagnosis.cause) == ("warn", "straggler"), report.summary
    assert report.summary.startswith("Rank 1 is slower than the others")
    assert "data loader of rank 1" in report.diagnosis.action.text


def test_the_rank_of_an_adapter_is_none(tmp_path, make):
    """Processes are counted from 0."""
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows(begin=8)))
    assert check(tmp_path).verdict == "pass"
    names = ("rank_8/step_time", "rank_16/step_time", "rank_0/step_time")
    assert ranks_in([make.series(np.ones(9), role="step_time", name=name) for name in names]) == ()
    assert (
        ranks_in([make.series(np.ones(9), role="train_loss", name=name) for name in ("frank0/loss", "frank1/loss")])
        == ()
    )


@pytest.mark.parametrize(
    "names",
    [("rank0/step_time", "rank1/step_time"), ("step_time/rank_0", "step_time/rank_1"), ("step_time_rank0", "step_time_rank1"),
     ("perf/rank-0/step_time", "perf/rank-1/step_time")],
)  # fmt: skip
def test_names_of_ranks(make, names):
    found = ranks_in([make.series(np.ones(9), role="step_time", name=name) for name in names])
    assert [one.number for one in found] == [0, 1]
    assert len({one.series[0].name for one in found}) == 1
