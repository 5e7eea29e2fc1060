"""One verdict, whoever asks: ``check``, ``annotate``, ``report`` and ``summary`` on the same runs of a real server."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from tracker_health import annotate, check, clear_annotations, open_run, preset
from tracker_health.api import annotate_as
from tracker_health.cli import cli
from tracker_health.fleet.sweep import Sweep
from tracker_health.roles import DEFAULT_PATTERNS
from tracker_health.runs.annotating import AnnotateOptions
from tracker_health.settings.policy import VARIABLE
from tracker_health.stores.common.exits import exit_value
from tracker_health.words.ending import Ended, Ending

pytestmark = pytest.mark.usefixtures("no_pictures")

HOUR = 3600.0


def falling(points=60, seed=0):
    noise = np.random.default_rng(seed).normal(0.0, 0.01, points)
    return 2.3 * 0.95 ** np.arange(points) + 0.05 + noise


CURVES = {
    "healthy": falling(),
    "many points": falling(160),
    "diverged": np.concatenate([falling(), 2.3 * 1.1 ** np.arange(40)]),
    "nan": np.concatenate([falling(), [np.nan] * 10]),
    "flat": 2.3 + np.random.default_rng(1).normal(0.0, 0.01, 60),
    "few": falling(3),
}
ENDS = ("FINISHED", "FAILED", "KILLED", "RUNNING", "silent", "seen to be killed", "seen to exit with 0")


@pytest.fixture
def runs(server_uri):
    """Runs of all kinds, by what they are."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=server_uri)
    name = f"kinds {time.time_ns()}"
    experiment = client.create_experiment(name)
    made = {f"{curve}, {end}": _made(client, experiment, CURVES[curve], end) for curve in CURVES for end in ENDS}
    made |= {f"empty, {end}": _made(client, experiment, [], end) for end in ENDS[:3]}
    for kind, run in made.items():
        if "seen" in kind:
            how = (
                Ending(how=Ended.KILLED, by="SIGKILL")
                if "killed" in kind
                else Ending(how=Ended.FINISHED, by="exit code 0")
            )
            with closing(open_run(run, tracking_uri=server_uri)) as opened:
                opened.set_marks({"exit": exit_value(how, opened.state())})
    return name, made


def _made(client, experiment, values, end, metric="train/loss"):
    from mlflow.entities import Metric

    began = time.time() - (20 * HOUR if end == "silent" else 60.0)
    run = client.create_run(experiment, start_time=int(began * 1000)).info.run_id
    points = [Metric(metric, float(value), int(began * 1000) + step, step) for step, value in enumerate(values)]
    if points:
        client.log_batch(run, metrics=points)
    status = {"seen to be killed": "RUNNING", "seen to exit with 0": "FAILED", "silent": "RUNNING"}.get(end, end)
    if status != "RUNNING":
        client.set_terminated(run, status)
    return run


def called(uri, *arguments):
    result = CliRunner().invoke(cli, [*arguments, "--tracking-uri", uri])
    assert result.exit_code in (0, 1), result.output
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def by_run(reports):
    return {one["run"]["id"]: (one["verdict"], one["ended"]) for one in reports}


@pytest.mark.exhaustive
def test_every_command_gives_the_same_verdict(runs, server_uri):
    name, made = runs
    assert len(made) == 45
    ids = list(made.values())
    checked = by_run(called(server_uri, "check", *ids, "--json", "--fail-on", "never"))
    assert by_run(called(server_uri, "report", *ids, "--json")) == checked
    annotated = by_run(called(server_uri, "annotate", *ids, "--json"))
    assert annotated == checked
    assert by_run(called(server_uri, "check", *ids, "--json", "--fail-on", "never")) == checked, (
        "annotating changes nothing"
    )
    (summed,) = called(server_uri, "summary", "--experiment", name, "--json")
    verdicts = [verdict for verdict, _ in checked.values()]
    assert {word: count for word, count in summed["verdicts"].items() if count} == {
        word: verdicts.count(word) for word in set(verdicts)
    }
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=server_uri)
    tags = {run: client.get_run(run).data.tags for run in ids}
    assert {run: (one["health.verdict"], one.get("health.ended")) for run, one in tags.items()} == checked
    ends = {kind: checked[run][1] for kind, run in made.items() if kind.startswith("healthy")}
    assert list(ends.values()) == ["finished", "failed", "interrupted", "running", "silent", "killed", "finished"]
    assert {checked[made[f"many points, {end}"]][0] for end in ("FINISHED", "seen to exit with 0")} == {"pass"}
    assert checked[made["many points, RUNNING"]][0] == "skip"
    assert checked[made["many points, FAILED"]][0] == "warn"
    assert checked[made["healthy, FAILED"]][0] == "fail"


@pytest.fixture
def one_run(server_uri):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=server_uri)
    run = _made(client, client.create_experiment(f"one {time.time_ns()}"), CURVES["healthy"], "FAILED")
    return run, lambda: client.get_run(run).data.tags


LENIENT = replace(preset("default"), ignore=frozenset({"RUN004"}), thresholds={"diverged": {"sigmas": 9}})


def test_two_users_with_different_settings_do_not_flip_a_verdict(one_run, server_uri):
    run, tags = one_run
    assert annotate(run, tracking_uri=server_uri).report.verdict == "fail"
    before = tags()
    for config in (LENIENT, preset("default"), LENIENT, preset("strict")):
        outcome = annotate(run, config=config, tracking_uri=server_uri)
        assert (outcome.status, outcome.report.verdict) == ("unchanged", "fail")
        assert ("--force" in outcome.report.summary) == (config is not preset("default"))
    assert tags() == before
    assert annotate(run, config=LENIENT, tracking_uri=server_uri, force=True).report.verdict == "pass"
    assert tags()["health.ignored"] == "RUN004, diverged.sigmas=9"
    assert check(run, config=LENIENT, tracking_uri=server_uri).tool.ignored == ("RUN004", "diverged.sigmas=9")


PATIENT, HASTY = (replace(preset("default"), stale_after=hours * HOUR) for hours in (100, 1))
NARROW = replace(preset("default"), select=frozenset({"LOS003"}))
NARROWER = replace(NARROW, thresholds={"loss-spike": {"single_share": 100_000.0}})


@pytest.mark.parametrize(
    "configs", [(HASTY, PATIENT), (PATIENT, HASTY), (NARROW, preset("default")), (NARROW, NARROWER)]
)
def test_nor_do_those_who_wait_longer_or_look_at_less(server_uri, tmp_path, configs):
    """What the other's settings make of the run's state is no matter: how long it was silent, which files count."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=server_uri)
    experiment = client.create_experiment(f"others {time.time_ns()}")
    run = _made(client, experiment, np.concatenate([CURVES["healthy"], [90.0], CURVES["healthy"][-20:]]), "silent")
    (tmp_path / "train.log").write_text("".join(f"step {step} lr 0.001\n" for step in range(50)))
    client.log_artifact(run, str(tmp_path / "train.log"))
    first, other = configs
    assert annotate(run, config=first, tracking_uri=server_uri).status == "written"
    before = client.get_run(run).data.tags
    assert [annotate(run, config=one, tracking_uri=server_uri).status for one in (other, first, other)] == [
        "unchanged"
    ] * 3
    assert client.get_run(run).data.tags == before
    (tmp_path / "train.log").write_text("and more\n")
    client.log_artifact(run, str(tmp_path / "train.log"))
    if first is NARROW:
        assert annotate(run, config=other, tracking_uri=server_uri).status == "written", "what only the other sees"


NAMED = replace(preset("default"), roles={**DEFAULT_PATTERNS, "train_loss": ("zq",)})
MISNAMED = replace(preset("default"), roles={**DEFAULT_PATTERNS, "train_loss": ("elsewhere",)})


def test_where_others_could_judge_nothing_settings_that_can_are_in_force(server_uri):
    """By ``annotate`` and ``sweep``; and those of whom none can judge it do not write in turn."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=server_uri)
    name = f"unnamed {time.time_ns()}"
    experiment = client.create_experiment(name)
    by_hand, swept = (
        _made(client, experiment, CURVES["many points"], "FINISHED", metric="zq") for _ in ("annotate", "sweep")
    )
    default = preset("default")
    for run in (by_hand, swept):
        assert annotate(run, tracking_uri=server_uri).report.verdict == "skip"
        tags = client.get_run(run).data.tags
        assert "zq falls as a loss does: set roles.train_loss to it" in tags["health.summary"]
        assert "roles.train" in tags["mlflow.note.content"]
        outcomes = [annotate(run, config=one, tracking_uri=server_uri) for one in (MISNAMED, default, MISNAMED)]
        assert {(one.status, one.report.verdict) for one in outcomes} == {("unchanged", "skip")}
        assert client.get_run(run).data.tags == tags
    assert annotate(by_hand, config=NAMED, tracking_uri=server_uri).status == "written"

    def sweep(config):
        swept = Sweep(config=config, experiments=(name,), tracking_uri=server_uri)
        return {one.run.name: one.kind for one in swept.annotate(swept.candidates())}

    assert sorted(sweep(NAMED).values()) == ["annotated", "unchanged"]
    assert [set(sweep(one).values()) for one in (NAMED, default)] == [{"unchanged"}] * 2
    for run in (by_hand, swept):
        assert client.get_run(run).data.tags["health.verdict"] == "pass"
        clear_annotations(run, tracking_uri=server_uri)
        assert not [one for one in client.get_run(run).data.tags if one.startswith(("health.", "mlflow.note"))]


def test_a_run_that_goes_on_passes_when_it_is_over_and_not_before(server_uri):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=server_uri)
    experiment = client.create_experiment(f"going on {time.time_ns()}")
    run = _made(client, experiment, CURVES["many points"], "RUNNING")
    outcome = annotate(run, tracking_uri=server_uri)
    assert outcome.report.summary == f"so far healthy up to step {len(CURVES['many points']) - 1}"
    assert not client.search_runs([experiment], "tags.`health.verdict` = 'pass'")
    assert annotate(run, tracking_uri=server_uri).status == "unchanged"
    client.set_terminated(run)
    assert annotate(run, tracking_uri=server_uri).report.verdict == "pass"
    assert [one.info.run_id for one in client.search_runs([experiment], "tags.`health.verdict` = 'pass'")] == [run]
    broken = _made(client, experiment, CURVES["nan"], "RUNNING")
    assert annotate(broken, tracking_uri=server_uri).report.verdict == "fail"


def test_a_verdict_that_is_not_complete_stays_for_nobody(server_uri, monkeypatch):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=server_uri)
    run = _made(client, client.create_experiment(f"part {time.time_ns()}"), CURVES["healthy"], "FINISHED")
    annotate_as(run, AnnotateOptions(config=LENIENT, tracking_uri=server_uri, quick=True))
    assert annotate(run, tracking_uri=server_uri).status == "written"


def test_the_first_to_come_says_what_it_left_out(one_run, server_uri):
    run, tags = one_run
    assert annotate(run, config=LENIENT, tracking_uri=server_uri).report.verdict == "pass"
    assert tags()["health.ignored"].startswith("RUN004")
    assert annotate(run, tracking_uri=server_uri).report.verdict == "pass"


def test_what_changes_on_the_run_is_judged_by_whoever_comes(one_run, server_uri):
    from mlflow import MlflowClient

    run, _ = one_run
    assert annotate(run, config=LENIENT, tracking_uri=server_uri).report.verdict == "pass"
    MlflowClient(tracking_uri=server_uri).log_metric(run, "train/loss", 0.1, step=100)
    assert annotate(run, tracking_uri=server_uri).status == "written"


def test_a_policy_decides_what_is_written(one_run, server_uri, tmp_path, monkeypatch):
    run, tags = one_run
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert annotate(run, config=LENIENT, tracking_uri=server_uri).report.verdict == "pass"
    (tmp_path / "policy.toml").write_text('locked = ["ignore", "select", "rules"]\n')
    monkeypatch.setenv(VARIABLE, str(tmp_path / "policy.toml"))
    for config in (LENIENT, preset("default"), preset("strict"), LENIENT):
        annotate(run, config=config, tracking_uri=server_uri)
        assert (tags()["health.verdict"], "health.ignored" in tags()) == ("fail", False)
    monkeypatch.delenv(VARIABLE)
    assert annotate(run, config=LENIENT, tracking_uri=server_uri).report.verdict == "fail", "nor without the policy"
    monkeypatch.setenv(VARIABLE, str(tmp_path / "policy.toml"))
    assert check(run, config=LENIENT, tracking_uri=server_uri).verdict == "pass", "nothing is written by it"


@pytest.mark.slow
def test_on_a_machine_of_ones_own_settings_are_ones_own(sqlite_uri):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=sqlite_uri)
    run = _made(client, "0", CURVES["healthy"], "FAILED")
    verdicts = [
        annotate(run, config=one, tracking_uri=sqlite_uri).report.verdict for one in (LENIENT, "default", LENIENT)
    ]
    assert verdicts == ["pass", "fail", "pass"]
