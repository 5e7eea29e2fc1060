"""What runs with one group, parent or sweep are to each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.evidence.kin import Kin, results_of, settings_of_kin
from tracker_health.judge.kinship import NO_SIGN, kinship_of
from tracker_health.runs.grouping import RankGroups

HOUR = 3600.0


def kin(number, params=None, *, name="", job_type="", where="a", began=0.0, lasts=HOUR, **more):
    settings = settings_of_kin(params or {}, [name, job_type])
    ended = None if lasts is None else began + lasts
    return Kin(
        where=where, id=str(number), name=name, job_type=job_type, started=began, ended=ended, **settings, **more
    )


def kind_of(*runs):
    return kinship_of(runs).kind


LR = {"lr": 0.1}


def ranks(count=3, key="rank", first=0, **more):
    return [kin(at, {**LR, key: at + first}, **more) for at in range(count)]


def test_ranks():
    assert kind_of(*ranks()) == "ranks"
    assert kind_of(*ranks(key="global_rank", first=4)) == "ranks"  # of some, as of one node
    assert kind_of(*ranks(key="distributed.rank")) == "ranks"
    assert kind_of(*(kin(at, LR, name=f"train rank-{at}") for at in range(4))) == "ranks"
    assert kind_of(*(kin(at, LR, job_type=f"worker {at}") for at in range(2))) == "ranks"
    found = kinship_of(list(reversed(ranks())))
    assert [one.rank for one in found.members] == [0, 1, 2]
    assert found.head is found.members[0]
    two_nodes = [kin(at, {**LR, "node_rank": at // 2, "local_rank": at % 2}) for at in range(4)]
    assert [one.id for one in kinship_of(two_nodes).members] == ["0", "1", "2", "3"]
    with_seeds = [kin(at, {**LR, "rank": at, "seed": 7 + at, "world_size": 2}) for at in range(2)]
    assert kind_of(*with_seeds) == "ranks"


@pytest.mark.parametrize(
    "runs",
    [
        ranks(1),
        [*ranks(2), kin(9, LR)],
        [*ranks(3), kin(9, {**LR, "rank": 1})],
        [kin(at, {**LR, "rank": at}, began=at * 2 * HOUR) for at in range(3)],
        [replace(one, started=None) for one in ranks()],
        [kin(at, {**LR, "rank": at, "world_size": 2}) for at in range(3)],
        [kin(at, {**LR, "rank": at}, where=str(at)) for at in range(3)],
        [kin(at, {**LR, "rank": 4 * 2**at}) for at in range(3)],
        [kin(at, LR, name=f"lora-rank-{at}") for at in range(3)],
        [kin(at, {**LR, "lora.rank": 8}) for at in range(3)],
        [kin(at, {**LR, "local_rank": 0}) for at in range(3)],
    ],
    ids=[
        "alone", "one says none", "one twice", "one after the other", "nobody knows when", "beyond the world",
        "of several projects", "of an adapter", "of an adapter, by name", "of an adapter, below it", "all the same",
    ],
)  # fmt: skip
def test_no_ranks(runs):
    found = kinship_of(runs)
    assert (found.kind, found.by, found.head) == ("runs", NO_SIGN, None)


def test_folds_seeds_and_trials():
    assert kind_of(*(kin(at, {**LR, "fold": at}) for at in range(5))) == "folds"
    assert kind_of(*(kin(at, LR, name=f"cv fold_{at} of it") for at in range(5))) == "folds"
    assert kind_of(*(kin(at, {**LR, "fold": at // 2}) for at in range(4))) == "runs"
    assert kind_of(*(kin(at, {**LR, "seed": at}) for at in range(3))) == "seeds"
    assert kind_of(*(kin(at, {**LR, "seed": 1}) for at in range(3))) == "runs"
    assert kind_of(*(kin(at, {"lr": at}) for at in range(3))) == "trials"
    assert kind_of(kin(0, {"lr": 1}), kin(1, {"batch": 2})) == "runs"  # other programs
    assert kind_of(kin(0, {"lr": 1}), kin(1)) == "runs"
    assert kind_of(*(kin(at, LR, sweep="s") for at in range(3))) == "trials"
    assert kind_of(*(kin(at, {"depth": at, "width": 1}, is_trial=True) for at in range(3))) == "trials"
    assert kind_of(*(kin(at, {**LR, "fold": at}, sweep="s") for at in range(3))) == "folds"


def stages(*names, gap=HOUR, **more):
    return [kin(at, {"lr": at}, name=name, began=at * (HOUR + gap), **more) for at, name in enumerate(names)]


def test_stages():
    assert kind_of(*stages("stage 1", "stage 2", "stage 3")) == "stages"
    assert kind_of(*stages("a-phase1", "a-phase2")) == "stages"
    assert kind_of(*stages("llm-pretrain", "sft", "dpo")) == "stages"  # the order in which these come
    assert kind_of(*stages("sft", "pretrain")) == "runs"
    assert kind_of(*stages("sft", "finetune")) == "runs"
    assert (
        kind_of(
            *(
                replace(one, job_type=kind)
                for one, kind in zip(stages("stage1", "stage2"), ("pretrain", "sft"), strict=True)
            )
        )
        == "stages"
    )
    assert kind_of(*stages("stage 2", "stage 1")) == "runs"
    assert kind_of(*stages("stage 1", "stage 2", gap=-HOUR / 2)) == "runs"
    assert kind_of(*stages("stage 1", "stage 1")) == "trials"  # the same stage, with other params
    assert kind_of(*(replace(one, ended=None) for one in stages("stage 1", "stage 2"))) == "runs"


def test_results_have_a_direction():
    found = results_of({"val_loss": 0.5, "eval/accuracy": 0.9, "eval/wer": 0.1, "train_loss": float("nan"), "x": 1.0})
    assert [(one.name, one.higher) for one in found] == [
        ("eval/accuracy", True),
        ("eval/wer", False),
        ("val_loss", False),
    ]


def test_what_is_hostile_is_bounded():
    params = {f"{'k' * 10_000}{at}": "v" * 100_000 for at in range(3000)} | {"rank": "9" * 5000, "fold": "-1"}
    found = settings_of_kin(params, ["rank " + "9" * 50, "x" * 10**6])
    assert (found["rank"], found["fold"]) == (None, None)
    assert len(found["others"]) == 16


RUNS = st.lists(
    st.fixed_dictionaries(
        {
            "where": st.sampled_from("aaab"),
            "name": st.sampled_from(["same", "same", "other"]),
            "rank": st.sampled_from([None, 0, 1, 2, 2, 3]),
            "world": st.sampled_from([None, None, 4]),
            "fold": st.sampled_from([None, None, 0, 1, 2]),
            "seed": st.sampled_from([None, None, 0, 1]),
            "lr": st.sampled_from([0.1, 0.1, 0.1, 0.2]),
            "began": st.sampled_from([0, 0, 0, 1, 5]),
            "lasts": st.sampled_from([2, 2, 9, None]),
            "sweep": st.sampled_from(["", "", "", "s"]),
        }
    ),
    min_size=1,
    max_size=4,
)


def expected(runs):
    """The rules by hand, as the page has them."""

    def column(key):
        return [one[key] for one in runs]

    def same(*keys):
        return all(len(set(column(key))) == 1 for key in keys)

    def distinct(key):
        return None not in column(key) and len(set(column(key))) == len(runs)

    if len(runs) < 2 or not same("where"):
        return "runs"
    overlap = all(
        first["lasts"] is None or second["began"] < first["began"] + first["lasts"] for first in runs for second in runs
    )
    if distinct("rank") and overlap and same("lr", "fold", "world"):
        world, numbers = runs[0]["world"], column("rank")
        counted = 0 in numbers and max(numbers) < 2 * len(numbers)
        if max(numbers) < world if world else counted and same("seed"):
            return "ranks"
    if distinct("fold") and same("lr"):
        return "folds"
    if None not in column("seed") and not same("seed") and same("lr", "fold", "rank"):
        return "seeds"
    if same("sweep") and runs[0]["sweep"]:
        return "trials"
    return "runs" if same("lr") else "trials"


@given(runs=RUNS, order=st.randoms())
def test_drawn_combinations(runs, order):
    made = []
    for number, one in enumerate(runs):
        keys = {"rank": one["rank"], "world_size": one["world"], "fold": one["fold"], "seed": one["seed"]}
        params = {"lr": one["lr"]} | {key: value for key, value in keys.items() if value is not None}
        lasts = None if one["lasts"] is None else one["lasts"] * HOUR
        made.append(
            kin(
                number, params, name=one["name"], where=one["where"], began=one["began"] * HOUR, lasts=lasts,
                group="g", sweep=one["sweep"],
            )
        )  # fmt: skip
    found = kinship_of(made)
    assert found.kind == expected(runs)
    assert sorted(one.id for one in found.members) == sorted(one.id for one in made)
    assert (found.by == NO_SIGN) == (found.kind == "runs")
    if found.kind == "ranks":
        assert all(one.rank < other.rank for one, other in pairwise(found.members))
    shuffled = list(made)
    order.shuffle(shuffled)
    assert kinship_of(shuffled).kind == found.kind


@dataclass(frozen=True)
class Listed:
    """As a sweep lists it."""

    name: str
    kin: Kin


@given(
    drawn=st.lists(
        st.tuples(*map(st.sampled_from, ("ab", "xyz", ["", "g", "h"], ["", "p", "x"], [None, 0, 1, 2]))), max_size=9,
        unique_by=lambda one: one[:2],
    ),
    by=st.sampled_from(["group", "parent"]),
)  # fmt: skip
def test_only_runs_of_one_group_in_one_project_are_ever_joined(drawn, by):
    """Whatever ids, groups and parents they have in common."""
    groups = RankGroups(by)
    for where, run_id, group, parent, rank in drawn:
        known = Kin(
            where=where, id=run_id, name="same", group=group, parent=parent, rank=rank, rank_sure=True, started=0.0
        )
        groups.see(Listed(name=f"{where}/{run_id}", kin=known))
    groups.decide()
    members = {}
    for where, run_id, group, parent, rank in drawn:
        if key := group if by == "group" else parent:
            members.setdefault((where, key), []).append((rank, f"{where}/{run_id}"))
    expected_groups = sorted(
        tuple(name for _, name in sorted(found))
        for found in members.values()
        if len(found) > 1 and None not in (ranks := [rank for rank, _ in found]) and len(set(ranks)) == len(ranks)
    )
    found = [one for some in groups.some_at_a_time() for one in some]
    assert sorted(one.names for one in found) == expected_groups
    for one in found:
        assert len({name[0] for name in one.all}) == 1
        assert groups.headed_by(one.head) is one
