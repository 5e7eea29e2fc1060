"""The one verdict on the ranks of a training: by their one curve, by the worst of them, and by how many are there."""

from __future__ import annotations

import numpy as np
import pytest

from tracker_health import preset
from tracker_health.evidence import Evidence, RunInfo, RunRef, Series
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
