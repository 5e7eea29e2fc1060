"""A parent run without metrics says how the runs below it fared, and is no training of its own."""

from __future__ import annotations

import json
import math

import pytest
from click.testing import CliRunner

import tracker_health as th
from tracker_health.cli import cli
from tracker_health.evidence import Child, Children
from tracker_health.judge.annotations import plan
from tracker_health.report.result import Report
from tracker_health.words.verdict import Verdict

mlflow = pytest.importorskip("mlflow")

NOTE_TAG = "mlflow.note.content"
GOOD = [2.3 * 0.95**step for step in range(60)]
BAD = [*GOOD[:30], *[math.nan] * 30]


class Search:
    """A parent and trials in a store of its own, in one experiment."""

    def __init__(self, folder):
        self.uri = f"sqlite:///{folder}/mlflow.db"
        self.client = mlflow.MlflowClient(tracking_uri=self.uri)
        self.experiment = self.client.create_experiment("search", artifact_location=str(folder / "artifacts"))
        self.parent = self.run("the search", status="FAILED")

    def run(self, name, losses=(), below="", status="FINISHED"):
        tags = {"mlflow.parentRunId": below} if below else {}
        run_id = self.client.create_run(self.experiment, run_name=name, tags=tags).info.run_id
        points = [mlflow.entities.Metric("loss", value, 1_700_000_000_000 + n, n) for n, value in enumerate(losses)]
        self.client.log_batch(run_id, metrics=points)
        self.client.set_terminated(run_id, status)
        return run_id

    def trial(self, name, losses):
        return self.run(name, losses, below=self.parent)

    def tags(self):
        return self.client.get_run(self.parent).data.tags

    def annotate(self, *runs):
        return [th.annotate(run, tracking_uri=self.uri) for run in runs]

    def command(self, *arguments):
        return CliRunner().invoke(cli, [*arguments, "--tracking-uri", self.uri])


@pytest.fixture
def search(tmp_path):
    return Search(tmp_path)


@pytest.mark.exhaustive
def test_a_parent_says_how_the_runs_below_it_fared(search, valid_report):
    trials = [search.trial(f"trial {n}", losses) for n, losses in enumerate([GOOD, BAD, GOOD])]
    later = search.trial("not yet judged", GOOD)
    *_, outcome = search.annotate(*trials, search.parent)
    children = outcome.report.children
    assert (outcome.report.verdict, children.total, children.verdicts) == (
        Verdict.SKIP,
        4,
        {"fail": 1, "pass": 2, "without a verdict": 1},
    )
    assert [(one.name, one.verdict) for one in children.worst] == [("trial 1", Verdict.FAIL)]
    valid_report(outcome.report.to_json())
    assert Report.from_json(outcome.report.to_json()).children.verdicts == children.verdicts
    tags = search.tags()
    assert tags["health.verdict"] == "skip"
    assert tags["health.children"] == "4 runs: 1 fail, 2 pass, 1 without a verdict (1 LOS001)"
    assert f"](#/experiments/{search.experiment}/runs/{trials[1]})" in tags[NOTE_TAG]
    # Once more is told when it has changed, and only then.
    assert search.annotate(search.parent)[0].status == "unchanged"
    search.annotate(later)
    assert search.annotate(search.parent)[0].status == "written"
    assert search.tags()["health.children"] == "4 runs: 1 fail, 3 pass (1 LOS001)"
    th.clear_annotations(search.parent, tracking_uri=search.uri)
    assert not any(name.startswith("health.") or name == NOTE_TAG for name in search.tags())


@pytest.mark.parametrize("gate", ["skip", "warn", "fail"])
@pytest.mark.thinned(3)
@pytest.mark.slow
def test_a_parent_trips_no_gate(search, gate):
    """Nor where it failed itself: that is its trial's, or no training's."""
    search.annotate(search.trial("bad", BAD))
    assert search.command("check", search.parent, "--fail-on", gate).exit_code == 0
    assert search.command("report", search.parent, "--json", "--fail-on", gate).exit_code == 0
    alone = search.run("nothing below it")
    assert search.command("check", alone, "--fail-on", gate).exit_code == (1 if gate == "skip" else 0)


@pytest.mark.slow
def test_a_parent_that_trained_something_is_judged_by_that(search):
    parent = search.run("trained as well", BAD)
    search.run("below it", GOOD, below=parent)
    report = th.check(parent, tracking_uri=search.uri)
    assert (report.verdict, report.children) == (Verdict.FAIL, None)


def test_a_search_with_the_score_of_its_best_trial_is_a_parent_as_well(search):
    for name in ("loss", "best"):
        search.client.log_batch(search.parent, [mlflow.entities.Metric(name, 0.3, 1_700_000_000_000, 0)])
    search.annotate(search.trial("good", GOOD))
    for status in ("written", "unchanged"):
        (outcome,) = search.annotate(search.parent)
        assert (outcome.status, outcome.report.verdict) == (status, Verdict.SKIP)
    tags = search.tags()
    assert (tags["health.children"], "below it 1 run: 1 pass" in tags["health.summary"]) == ("1 run: 1 pass", True)
    assert "the runs below" in tags[NOTE_TAG]


@pytest.mark.exhaustive
def test_all_of_an_experiment_at_once(search):
    """Whoever is first, the parent tells of all that were judged with it."""
    for n in range(6):
        search.trial(f"trial {n}", BAD if n == 3 else GOOD)
    outcomes = list(
        th.annotate_many(
            th.api.runs_of_experiment("search", tracking_uri=search.uri), tracking_uri=search.uri, workers=4
        )
    )
    assert search.tags()["health.children"] == "6 runs: 1 fail, 5 pass (1 LOS001)"
    assert outcomes[-1].report.children.total == 6
    assert len(outcomes) == 7


@pytest.mark.exhaustive
def test_a_sweep_brings_a_parent_up_to_date(search):
    for n in range(6):
        search.trial(f"trial {n}", GOOD)
    for _ in range(2):  # the first may come to the parent before the last of them is judged
        assert search.command("sweep", "--since", "10000d").exit_code == 0
    assert search.tags()["health.children"] == "6 runs: 6 pass"


def test_the_worst_come_first():
    hostile = Child(
        id="x", name="](javascript:alert(1)) <script>", verdict=Verdict.FAIL, codes=("LOS001",), summary="*a*"
    )
    children = Children.of([hostile, *(Child(id=str(n), name=f"n{n}", verdict=Verdict.WARN) for n in range(9))])
    assert str(children) == "10 runs: 1 fail, 9 warn (1 LOS001)"
    assert [one.name for one in children.worst] == [hostile.name, "n0", "n1"]
    assert Children.from_json(json.loads(json.dumps(children.to_json()))).causes == {"LOS001": 1}


@pytest.mark.slow
def test_the_description_of_a_parent(search):
    search.trial("<script>alert(1)</script> [x](javascript:y)", BAD)
    search.annotate(*(one.info.run_id for one in search.client.search_runs([search.experiment]) if one.data.metrics))
    note = plan(th.check(search.parent, tracking_uri=search.uri), "0" * 16).note
    assert "<script>" not in note
    assert "\\[x\\](javascript" in note
