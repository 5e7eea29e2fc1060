"""The one verdict on the ranks of a training: by their one curve, by the worst of them, and by how many are there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tracker_health import preset
from tracker_health.evidence import Evidence, RankReports, RunInfo, RunRef, Series, TextLog
from tracker_health.evidence.collectives import Left, Wait
from tracker_health.evidence.kin import Kin
from tracker_health.judge.group_verdict import GroupVerdict, Member, group_sentence, group_verdict

CONFIG = preset("default")


def member(rank, values, *, world=3, status="FINISHED"):
    series = Series(name="loss", role="train_loss", steps=np.arange(len(values)), values=np.array(values, dtype=float))
    info = RunInfo(status=status, tracker="MLflow", metric_names=("loss",))
    ref = RunRef(store="mlflow", id=f"r{rank}", name=f"rank {rank}")
    kin = Kin(where="e", id=f"r{rank}", name=f"rank {rank}", rank=rank, world=world, state=str(rank))
    return Member(kin=kin, evidence=Evidence(run=ref, info=info, series=(series,) if len(values) else ()))


def falls(seed, points=150):
    noise = np.random.default_rng(seed).normal(0.0, 0.02, points)
    return 0.3 + 2.0 * np.exp(-np.arange(points) / 25.0) + noise


def verdict_on(members, expected=3):
    return group_verdict(members[0].evidence, members, expected, CONFIG)


def test_healthy_ranks_pass():
    found = verdict_on([member(rank, falls(rank)) for rank in range(3)])
    assert str(found.verdict) == "pass"
    assert group_sentence(found).startswith("3 ranks of one training: PASS (")


@pytest.mark.parametrize("points", [0, 3])
def test_a_rank_that_broke_off_is_not_hidden_by_the_others(points):
    ranks = [member(0, falls(0)), member(1, falls(1)), member(2, falls(2)[:points], status="FAILED")]
    found = verdict_on(ranks)
    assert str(found.verdict) == "fail"
    assert found.said.startswith("rank 2: ")
    assert found.said.endswith("the program ended with an error")


def test_a_rank_that_logs_nothing_and_ended_well_is_no_fault():
    found = verdict_on([member(0, falls(0)), member(1, []), member(2, [])])
    assert str(found.verdict) == "pass"


def test_ranks_of_which_some_are_missing_do_not_pass():
    found = verdict_on([member(rank, falls(rank)) for rank in (0, 2)])
    assert found.verdict is None
    assert group_sentence(found).startswith("2 of 3 ranks of one training: not judged (")


def test_what_is_wrong_is_said_although_some_are_missing():
    found = verdict_on([member(0, falls(0)), member(2, np.where(np.arange(150) < 60, falls(2), np.nan))])
    assert str(found.verdict) == "fail"


def test_the_marks_keep_it():
    found = verdict_on([member(rank, falls(rank)) for rank in (0, 2)])
    assert GroupVerdict.of_tags(found.tags) == found
    assert GroupVerdict.of(None, "said", "not ours") is None


def timed(one, data, *, reports=None):
    """A member that logs its times as well, with a console of its own."""
    steps = np.arange(150)
    times = [
        Series(name=name, role=name, steps=steps, values=np.full(150, value))
        for name, value in (("step_time", 0.8), ("data_time", data))
    ]
    log = None if reports is None else TextLog(source="output.log", lines=90, rows=9, reports=reports)
    return replace(one, evidence=replace(one.evidence, series=(*one.evidence.series, *times), text_log=log))


def test_the_rank_that_is_slow_is_named():
    found = verdict_on([timed(member(rank, falls(rank)), 0.5 if rank == 2 else 0.1) for rank in range(3)])
    assert str(found.verdict) == "warn"
    assert found.said.startswith("rank 2 is slower than the others from step")


def test_what_each_rank_reports_in_its_own_console_is_put_together():
    waits = [RankReports(waits=(Wait(rank=rank, operation="all_reduce", number=15, seconds=600.0),)) for rank in (0, 2)]
    ranks = [
        timed(member(rank, falls(rank), status="FAILED"), 0.1, reports=reports)
        for rank, reports in ((0, waits[0]), (1, RankReports(left=(Left(rank=1, code=-15),))), (2, waits[1]))
    ]
    assert "rank 1 reported nothing, while ranks 0 and 2 waited 600 s in all_reduce number 15" in verdict_on(ranks).said
