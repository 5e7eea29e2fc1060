"""Groups of runs on real servers: what a summary says of them, and the one verdict of the ranks of one training."""

from __future__ import annotations

import json
import math
import time
import uuid

import numpy as np
import pytest
from click.testing import CliRunner
from tests.stores import mlflow_tags

from tracker_health import preset
from tracker_health.cli import cli
from tracker_health.fleet.sweep import Sweep

from .faulty_proxy import Proxy

Metric = pytest.importorskip("mlflow.entities").Metric

pytestmark = [pytest.mark.usefixtures("no_pictures"), pytest.mark.slow]

BEGAN = time.time() - 3600.0
STEPS = 120


def losses(seed, *, apart_from=None, broken=None):
    """A loss that comes down; ``apart_from``: the step from which it is far above that; ``broken``: from where NaN."""
    noise = np.random.default_rng(seed).normal(0.0, 0.02, STEPS)
    values = 0.3 + 2.0 * np.exp(-np.arange(STEPS) / 20.0) + noise
    if apart_from is not None:
        values[apart_from:] += 1.0
    if broken is not None:
        values[broken:] = math.nan
    return values.tolist()


def run(*arguments, code=0):
    done = CliRunner().invoke(cli, [*map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


# MLflow


class Experiment:
    """A new experiment of MLflow's, filled by hand."""

    def __init__(self, uri):
        import mlflow

        self.uri, self.client = uri, mlflow.MlflowClient(tracking_uri=uri)
        self.name = f"groups {uuid.uuid4().hex[:8]}"
        self.id = self.client.create_experiment(self.name)

    def add(self, name, values=(), *, parent="", params=None, metric="train/loss", last=None, began=0.0, lasts=600.0):
        from mlflow.entities import Param, RunTag

        start = int((BEGAN + began) * 1000)
        tags = {"mlflow.parentRunId": parent} if parent else {}
        made = self.client.create_run(self.id, run_name=name, start_time=start, tags=tags).info.run_id
        points = [Metric(metric, value, start + 10 * step, step) for step, value in enumerate(values)]
        points += [Metric(key, value, start, STEPS) for key, value in (last or {}).items()]
        kept = [Param(key, str(value)) for key, value in (params or {}).items()]
        self.client.log_batch(made, metrics=points, params=kept, tags=[RunTag("made", "here")])
        self.client.set_terminated(made, end_time=start + int(lasts * 1000))
        return made

    def ranks(self, number, *, sick=None, parent=True, seed=0):
        """A training of so many ranks, of which ``sick`` is what one of them does otherwise."""
        above = self.add("a training", began=-1.0) if parent else ""
        params = {"lr": 0.1, "world_size": number}
        return above, [
            self.add(
                f"rank {rank}",
                losses(seed + rank, **((sick or {}) if rank == 1 else {})),
                parent=above,
                params={**params, "rank": rank} if parent else params,
            )
            for rank in range(number)
        ]

    def tags(self, run_id):
        return mlflow_tags.expanded(self.client.get_run(run_id).data.tags)

    def sweep(self, *more):
        return run("sweep", "--experiment", self.name, "--tracking-uri", self.uri, *more)

    def summary(self, *more):
        return run("summary", "--experiment", self.name, "--tracking-uri", self.uri, *more).stdout


@pytest.mark.parametrize(
    ("sick", "verdict", "said"),
    [
        ({}, "pass", ""),
        ({"apart_from": 60}, "fail", "rank 1 left the others from step 60"),
        ({"broken": 60}, "fail", "rank 1 is not finite from step 60 on"),
    ],
)
def test_the_ranks_of_one_training_get_one_verdict_on_their_parent(sqlite_uri, writes, sick, verdict, said):
    made = Experiment(sqlite_uri)
    parent, ranks = made.ranks(3, sick=sick)
    done = made.sweep("--by", "parent")
    assert f"3 ranks of one training: {verdict.upper()}" in done.stdout
    tags = made.tags(parent)
    assert tags["health.group_verdict"] == verdict, tags
    note = tags["mlflow.note.content"]
    assert f"3 ranks of one training: {verdict.upper()}" in note, "above how the runs below fared"
    assert tags["health.group"].startswith(said)
    assert not any("health.group_verdict" in made.tags(one) for one in ranks)
    expected = f"a training: 3 ranks of one training: {verdict.upper()} ({said}"
    assert expected in made.summary("--by", "parent")
    before = dict(writes)
    again = made.sweep("--by", "parent")
    assert ("4 unchanged" in again.stderr, dict(writes)) == (True, before)
    # One that knows nothing of groups leaves it as it is.
    assert "4 unchanged" in made.sweep().stderr
    run("clear", "--experiment", made.name, "--tracking-uri", sqlite_uri)
    left = made.client.get_run(parent).data.tags
    assert not [name for name in left if name.startswith("health")]


def test_where_one_rank_changed_the_group_is_judged_again(sqlite_uri):
    made = Experiment(sqlite_uri)
    parent, ranks = made.ranks(3)
    made.sweep("--by", "parent")
    assert made.tags(parent)["health.group_verdict"] == "pass"
    for step in range(STEPS, STEPS + 60):
        made.client.log_metric(ranks[2], "train/loss", math.nan, step=step, timestamp=int(time.time() * 1000))
    for one in ranks[:2]:
        for step in range(STEPS, STEPS + 60):
            made.client.log_metric(one, "train/loss", 0.3, step=step, timestamp=int(time.time() * 1000))
    made.sweep("--by", "parent")
    assert made.tags(parent)["health.group_verdict"] == "fail"
    assert "4 unchanged" in made.sweep("--by", "parent").stderr


def test_a_sweep_that_keeps_on_looks_at_the_head_again_when_a_rank_has_changed(sqlite_uri):
    made = Experiment(sqlite_uri)
    parent, ranks = made.ranks(3)
    sweep = Sweep(config=preset("default"), experiments=(made.name,), tracking_uri=sqlite_uri, by="parent")

    def swept():
        return sorted(f"{one.run.name == parent} {one.kind}" for one in sweep.annotate(sweep.candidates()))

    assert swept() == ["False annotated"] * 3 + ["True annotated"]
    assert swept() == ["False unchanged"] * 3 + ["True unchanged"]
    assert swept() == []
    later = [Metric("train/loss", math.nan, int(time.time() * 1000), step) for step in range(STEPS - 20, STEPS)]
    made.client.log_batch(ranks[1], metrics=later)
    assert swept() == ["False annotated", "True annotated"]
    assert made.tags(parent)["health.group_verdict"] == "fail"


def test_a_trial_of_a_search_stands_for_its_ranks(sqlite_uri):
    made = Experiment(sqlite_uri)
    search = made.add("search", began=-2.0)
    trials = [made.add(f"trial {at}", parent=search, began=-1.0) for at in range(2)]
    for trial in trials:
        for rank in range(2):
            params = {"lr": 0.1, "rank": rank, "world_size": 2}
            made.add(f"rank {rank}", losses(rank), parent=trial, params=params)
    made.sweep("--by", "parent")
    assert [made.tags(one).get("health.group_verdict") for one in (search, *trials)] == [None, "pass", "pass"]


def test_an_account_that_may_only_read_keeps_it_with_the_reports(sqlite_uri, tmp_path):
    made = Experiment(sqlite_uri)
    parent, _ = made.ranks(2, sick={"broken": 60})
    done = made.sweep("--by", "parent", "--report-to", tmp_path)
    assert "2 ranks of one training: FAIL (rank 1 is not finite from step 60 on" in done.stdout
    assert not [name for name in made.client.get_run(parent).data.tags if name.startswith("health")]
    assert "3 unchanged" in made.sweep("--by", "parent", "--report-to", tmp_path).stderr


def test_a_tag_of_the_owners_is_not_written_over(sqlite_uri):
    made = Experiment(sqlite_uri)
    parent, _ = made.ranks(2)
    made.client.set_tag(parent, "health.group_verdict", "ours")
    made.sweep("--by", "parent")
    assert made.tags(parent)["health.group_verdict"] == "ours"
    assert "health.group" not in made.tags(parent)
    assert "3 unchanged" in made.sweep("--by", "parent").stderr


def test_folds_get_a_line_and_no_verdict_of_their_own(sqlite_uri):
    made = Experiment(sqlite_uri)
    parent = made.add("cv", began=-1.0)
    scores = [0.88, 0.84, 0.9, 0.91, 0.87]
    for fold, score in enumerate(scores):
        made.add(
            f"fold-{fold}",
            losses(fold),
            parent=parent,
            params={"lr": 0.1, "fold": fold},
            last={"val/accuracy": score},
            began=fold * 700.0,
        )
    made.sweep("--by", "parent")
    assert "health.group_verdict" not in made.tags(parent)
    said = "cv: 5 folds: val/accuracy 0.91 best (fold-3), 0.84 worst (fold-1), spread 0.027; 5 pass"
    assert said in made.summary("--by", "parent")
    (group,) = json.loads(made.summary("--by", "parent", "--json"))["groups"]["parent"]
    assert (group["kind"], group["runs"], group["result"]["best"]["run"]) == ("folds", 5, "fold-3")


def test_a_group_costs_an_mlflow_server_no_more_than_single_runs(server_uri):
    """Eight runs, of which seven are ranks below the eighth: swept by themselves, and as a group."""
    costs = []
    with Proxy(server_uri) as proxy:
        for options in ((), ("--by", "parent"), ("--by", "parent")):
            made = Experiment(proxy.uri)
            made.ranks(7)
            before = len(proxy.asked)
            made.sweep("--workers", 1, *options)
            costs.append(len(proxy.asked) - before)
    assert costs[2] <= costs[0] + 2, costs


# W&B


def put(server, project, name, rank, values, *, group="g1", world=3, lasts=600.0):
    made = server.store.new_run("team", project, name)
    made.history = [json.dumps({"_step": n, "_timestamp": BEGAN + n, "loss": loss}) for n, loss in enumerate(values)]
    made.state, made.summary = "finished", {"loss": values[-1], "_step": len(values) - 1}
    made.group, made.job_type, made.display_name = group, "train", f"rank-{rank}"
    made.config = {key: {"value": value} for key, value in {"lr": 0.1, "rank": rank, "world_size": world}.items()}
    made.created, made.heartbeat = (
        time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(moment)) for moment in (BEGAN, BEGAN + lasts)
    )
    return made


def test_a_group_of_ranks_on_a_wandb_server(wandb_server):
    ranks = [
        put(wandb_server, "proj", f"run{rank}", rank, losses(rank, apart_from=60 if rank == 1 else None))
        for rank in range(3)
    ]
    put(wandb_server, "other", "run0", 3, losses(9))
    run("sweep", "--project", "team/proj", "--by", "group")
    head = ranks[0].summary
    assert head["health/group_verdict"] == "fail", "as the rank's own"
    assert head["health/group"].startswith("rank 1 left the others from step 60")
    assert not any("health/group_verdict" in one.summary for one in ranks[1:])
    said = run("summary", "--project", "team/proj", "--by", "group").stdout
    assert "g1: 3 ranks of one training: FAIL (rank 1 left the others from step 60)" in said
    before = json.dumps([one.summary for one in ranks])
    again = run("sweep", "--project", "team/proj", "--by", "group")
    assert "3 unchanged" in again.stderr
    assert json.dumps([one.summary for one in ranks]) == before
    assert "3 unchanged" in run("sweep", "--project", "team/proj").stderr
    run("clear", "--project", "team/proj")
    assert not [key for one in ranks for key in one.summary if key.startswith("health/")]


def test_a_group_costs_a_wandb_server_no_more_than_single_runs(wandb_server):
    costs = []
    run("check", f"wandb:team/warm/{put(wandb_server, 'warm', 'run', 0, losses(0)).name}")
    for project, options in (("single", ()), ("group", ("--by", "group"))):
        for rank in range(8):
            put(wandb_server, project, f"run{rank}", rank, losses(rank), world=8)
        before = len(wandb_server.requests)
        run("sweep", "--project", f"team/{project}", "--workers", 1, *options)
        costs.append(len(wandb_server.requests) - before)
    assert costs[1] <= costs[0] + 2, costs
    assert any("health/group_verdict" in one.summary for one in wandb_server.store.runs.values())


def test_the_list_of_a_summary_takes_no_further_request(wandb_server):
    for rank in range(3):
        put(wandb_server, "proj", f"run{rank}", rank, losses(rank))
    run("summary", "--project", "team/proj")
    costs = []
    for options in ((), ("--by", "group,sweep")):
        before = len(wandb_server.requests)
        run("summary", "--project", "team/proj", *options)
        costs.append(len(wandb_server.requests) - before)
    assert costs[0] == costs[1]


@pytest.mark.parametrize("options", [("--by", "group"), ("--project", "team/proj", "--by", "parent")])
def test_what_a_tracker_does_not_have_is_told(options):
    assert "have no" in run("sweep", *options, code=2).stderr
