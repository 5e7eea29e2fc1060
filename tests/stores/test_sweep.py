"""Sweeps of a real server: what is judged and what is left alone, alone and two at a time."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest
from click.testing import CliRunner
from tests.stores import mlflow_tags

from tracker_health import check, preset
from tracker_health.api import annotate_as
from tracker_health.cli import cli
from tracker_health.config import Config, Override
from tracker_health.fleet.sweep import Sweep
from tracker_health.runs.annotating import AnnotateOptions
from tracker_health.stores.common.writing import Writing
from tracker_health.words.ending import Ended, Ending

from .many_runs import make_runs

pytestmark = pytest.mark.usefixtures("no_pictures")

DAY = 86_400.0


def client_of(uri):
    import mlflow

    return mlflow.MlflowClient(tracking_uri=uri)


def tags_of(uri, run):
    return mlflow_tags.expanded(client_of(uri).get_run(run).data.tags)


def sweep_of(uri, name, *, stale_after=6 * 3600.0, **more):
    config = replace(preset("default"), stale_after=stale_after)
    return Sweep(config=config, experiments=(name,), tracking_uri=uri, **more)


def swept(sweep):
    return Counter(one.kind for one in sweep.annotate(sweep.candidates()))


def sweeping(uri, name, *options):
    return CliRunner().invoke(cli, ["sweep", "--experiment", name, "--tracking-uri", uri, *options])


def running(uri, name, *, silent_for, metrics_of_ours=False):
    """A run that claims to go on and logged its last metric that many seconds ago."""
    from mlflow.entities import Metric

    client = client_of(uri)
    experiment = client.get_experiment_by_name(name).experiment_id
    last = int((time.time() - silent_for) * 1000)
    run = client.create_run(experiment, start_time=last - 100_000).info.run_id
    logged = [Metric("train/loss", 2.0 * 0.9**step, last - 30 + step, step) for step in range(31)]
    if metrics_of_ours:
        logged.append(Metric("health/severity", 0.0, int(time.time() * 1000), 0))
    client.log_batch(run, metrics=logged)
    return run


@pytest.mark.exhaustive
def test_a_sweep_annotates_what_has_no_verdict_once(server_uri, writes):
    name, ids = make_runs(server_uri, 6, sick={2})
    first, second = sweeping(server_uri, name), sweeping(server_uri, name)
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert len(first.stdout.splitlines()) == 6
    assert "swept 6 runs: 6 annotated, 0 unchanged, 0 taken, 0 left alone, 0 failed" in first.stderr
    assert second.stdout == ""
    assert "0 annotated, 6 unchanged" in second.stderr
    assert writes == Counter(dict.fromkeys(ids, 1))
    assert tags_of(server_uri, ids[2])["health.verdict"] == "fail"


@pytest.mark.slow
def test_a_sweep_judges_again_under_another_configuration(sqlite_uri, writes):
    name, ids = make_runs(sqlite_uri, 3)
    assert swept(sweep_of(sqlite_uri, name)) == {"annotated": 3}
    assert swept(Sweep(config=preset("strict"), experiments=(name,), tracking_uri=sqlite_uri)) == {"annotated": 3}
    assert writes == Counter(dict.fromkeys(ids, 2))


def test_a_sweep_repairs_an_annotation_that_was_interrupted(sqlite_uri):
    name, ids = make_runs(sqlite_uri, 1)
    client_of(sqlite_uri).set_tag(ids[0], "health.digest", "pending:0123abcd")
    assert swept(sweep_of(sqlite_uri, name)) == {"annotated": 1}
    assert tags_of(sqlite_uri, ids[0])["health.verdict"] == "pass"


@pytest.mark.slow
def test_only_runs_that_are_silent_for_long_enough_are_judged_while_they_claim_to_go_on(sqlite_uri):
    name, _ = make_runs(sqlite_uri, 0)
    alive = running(sqlite_uri, name, silent_for=3600)
    dead = running(sqlite_uri, name, silent_for=7 * 3600)
    ancient = running(sqlite_uri, name, silent_for=8 * DAY)
    # Our own metrics are no sign of life.
    cleared = running(sqlite_uri, name, silent_for=7 * 3600, metrics_of_ours=True)
    assert swept(sweep_of(sqlite_uri, name)) == {"annotated": 2}
    assert ["health.verdict" in tags_of(sqlite_uri, one) for one in (alive, dead, ancient, cleared)] == [0, 1, 0, 1]
    assert client_of(sqlite_uri).get_run(dead).info.status == "RUNNING"
    assert [tags_of(sqlite_uri, one)["health.codes"].split(",")[0] for one in (dead, cleared)] == ["RUN003"] * 2
    assert tags_of(sqlite_uri, dead)["health.verdict"] == "warn"
    # With another limit each of them may be judged otherwise.
    assert swept(sweep_of(sqlite_uri, name, stale_after=1800.0)) == {"annotated": 3}
    assert [tags_of(sqlite_uri, one)["health.ended"] for one in (alive, dead, cleared)] == ["silent"] * 3


def test_what_a_launcher_saw_is_not_replaced_by_what_a_sweep_presumes(sqlite_uri):
    """And a dry run knows that the annotation still holds."""
    name, _ = make_runs(sqlite_uri, 0)
    run = running(sqlite_uri, name, silent_for=7 * 3600)
    seen = Ending(how=Ended.KILLED, by="SIGKILL")
    annotate_as(run, AnnotateOptions(config=Config(), tracking_uri=sqlite_uri, ending=seen))
    sweep = sweep_of(sqlite_uri, name)
    assert sweep.estimate(sweep.candidates()).runs == 0
    assert swept(sweep) == {"unchanged": 1}
    tags = tags_of(sqlite_uri, run)
    assert (tags["health.ended"], tags["health.ended_by"]) == ("killed", "SIGKILL")


@pytest.mark.slow
def test_a_run_that_was_only_silent_is_not_called_dead_any_more(sqlite_uri):
    name, _ = make_runs(sqlite_uri, 0)
    run = running(sqlite_uri, name, silent_for=7 * 3600)
    assert swept(sweep_of(sqlite_uri, name)) == {"annotated": 1}
    sweep = sweep_of(sqlite_uri, name)
    assert sweep.estimate(sweep.candidates()).runs == 0
    client_of(sqlite_uri).log_metric(run, "train/loss", 0.05, step=31)
    client_of(sqlite_uri).set_terminated(run)
    assert swept(sweep_of(sqlite_uri, name)) == {"annotated": 1}
    tags = tags_of(sqlite_uri, run)
    assert (tags["health.verdict"], "health.ended_by" in tags) == ("pass", False)


@pytest.mark.slow
def test_a_run_that_goes_on_after_all_is_not_called_dead_by_the_next_sweep(sqlite_uri):
    name, _ = make_runs(sqlite_uri, 0)
    run = running(sqlite_uri, name, silent_for=7 * 3600)
    assert swept(sweep_of(sqlite_uri, name)) == {"annotated": 1}
    client_of(sqlite_uri).log_metric(run, "train/loss", 0.05, step=31)
    sweep = sweep_of(sqlite_uri, name)
    assert sweep.estimate(sweep.candidates()).runs == 1
    assert swept(sweep) == {"annotated": 1}
    tags = tags_of(sqlite_uri, run)
    assert (tags["health.verdict"], tags["health.ended"]) == ("skip", "running")
    assert tags["health.summary"].startswith("so far healthy")
    client_of(sqlite_uri).log_metric(run, "train/loss", 0.05, step=32)
    assert swept(sweep_of(sqlite_uri, name)) == {}, "it goes on, and nobody has called it dead"


@pytest.mark.parametrize(("base", "own", "found"), [(DAY, 3600.0, {"annotated": 1}), (3600.0, DAY, {})])
def test_how_long_a_run_may_be_silent_is_a_matter_of_its_own_settings(sqlite_uri, base, own, found):
    name, _ = make_runs(sqlite_uri, 0)
    run = running(sqlite_uri, name, silent_for=7 * 3600)
    config = replace(
        preset("default"),
        stale_after=base,
        overrides=(Override(match=f"experiment:{name}", changes={"stale_after": own}),),
    )
    sweep = Sweep(config=config, experiments=(name,), tracking_uri=sqlite_uri)
    assert sweep.estimate(sweep.candidates()).silent == sum(found.values())
    assert swept(sweep) == found
    assert check(run, config=config, tracking_uri=sqlite_uri).ended == ("silent" if found else "running")
    assert swept(sweep) == ({"unchanged": 1} if found else {})


@pytest.mark.slow
def test_a_search_is_as_alive_as_its_trials(sqlite_uri):
    """It may log nothing itself for as long as they go on."""
    name, _ = make_runs(sqlite_uri, 0)
    client = client_of(sqlite_uri)
    parents = [running(sqlite_uri, name, silent_for=8 * 3600) for _ in range(2)]
    for parent, hours in zip(parents, (5.5, 7), strict=True):
        client.set_tag(running(sqlite_uri, name, silent_for=hours * 3600), "mlflow.parentRunId", parent)
    assert [check(parent, tracking_uri=sqlite_uri).ended for parent in parents] == ["running", "silent"]
    assert swept(sweep_of(sqlite_uri, name)) == {"annotated": 2}
    assert ["health.ended" in tags_of(sqlite_uri, parent) for parent in parents] == [False, True]


def test_a_run_whose_times_are_in_seconds_is_as_old_as_its_beginning(sqlite_uri):
    name, _ = make_runs(sqlite_uri, 0)
    client = client_of(sqlite_uri)
    run = client.create_run(client.get_experiment_by_name(name).experiment_id).info.run_id
    for step in range(30):
        client.log_metric(run, "train/loss", 2.0 * 0.9**step, timestamp=int(time.time()), step=step)
    assert check(run, tracking_uri=sqlite_uri).ended == "running"
    assert swept(sweep_of(sqlite_uri, name)) == {}


def test_runs_that_ended_long_ago_are_left_alone(sqlite_uri):
    name, _ = make_runs(sqlite_uri, 2, end=None)
    client = client_of(sqlite_uri)
    runs = client.search_runs([client.get_experiment_by_name(name).experiment_id])
    for run, days in zip(runs, (2, 9), strict=True):
        client.set_terminated(run.info.run_id, end_time=int((time.time() - days * DAY) * 1000))
    assert swept(sweep_of(sqlite_uri, name)) == {"annotated": 1}
    assert swept(sweep_of(sqlite_uri, name, since=10 * DAY)) == {"annotated": 1, "unchanged": 1}


def test_a_dry_run_says_how_much_and_writes_nothing(sqlite_uri, tmp_path, writes):
    name, ids = make_runs(sqlite_uri, 3)
    (tmp_path / "optimizer.pt").write_bytes(bytes(3_000_000))
    client_of(sqlite_uri).log_artifact(ids[0], tmp_path / "optimizer.pt")
    running(sqlite_uri, name, silent_for=DAY)
    result = sweeping(sqlite_uri, name, "--dry-run")
    assert result.stdout == "would read at most 3.0 MB of files, write 4 runs, 1 silent run among them\n"
    assert not writes


@pytest.mark.exhaustive
def test_two_sweeps_at_once_leave_each_run_with_one_whole_verdict(server_uri):
    """On a busy machine one may find the other at work on a run for as long as it waits, and says so."""
    name, ids = make_runs(server_uri, 10, sick={4})
    errors = []

    def work():
        sweep = sweep_of(server_uri, name)
        errors.extend(one.outcome.error for one in sweep.annotate(sweep.candidates()) if one.kind == "failed")

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("another annotator is at work" in str(error) for error in errors), errors
    found = Counter(tags_of(server_uri, one)["health.verdict"] for one in ids)
    assert found == {"pass": 9, "fail": 1}
    assert swept(sweep_of(server_uri, name)) == {"unchanged": 10}


@pytest.mark.parametrize("times", [1, 100])
def test_a_run_that_another_is_annotating_is_tried_again_a_few_times(sqlite_uri, monkeypatch, times):
    name, ids = make_runs(sqlite_uri, 1)
    begin, met = Writing._begin, []

    def overtaken(self, *asked):
        new = begin(self, *asked)
        met.append(run_id := self._run.ref.id)
        if len(met) <= times:
            client_of(sqlite_uri).set_tag(run_id, "health.digest", "pending:ffffffff")
        return new

    monkeypatch.setattr(Writing, "_begin", overtaken)
    monkeypatch.setattr("tracker_health.runs.annotating._PAUSES", (0.01, 0.01, 0.01))
    result = sweeping(sqlite_uri, name)
    if times == 1:
        assert (result.exit_code, len(met)) == (0, 2)
        assert "1 annotated" in result.stderr
    else:
        assert (result.exit_code, len(met)) == (3, 4)
        assert f"another annotator is at work on MLflow run {ids[0]}" in result.stderr
        assert "1 failed" in result.stderr


@pytest.mark.slow
def test_a_sweep_that_keeps_on_looks_at_a_run_again_only_when_it_has_changed(sqlite_uri, tmp_path, monkeypatch):
    name, ids = make_runs(sqlite_uri, 3)
    (tmp_path / "optimizer.pt").write_bytes(b"no checkpoint at all")
    client_of(sqlite_uri).log_artifact(ids[0], tmp_path / "optimizer.pt")
    sweep = sweep_of(sqlite_uri, name)
    assert swept(sweep) == {"annotated": 3}
    assert swept(sweep) == {"annotated": 1, "unchanged": 2}  # what could not be read is tried again
    assert swept(sweep) == {}
    client_of(sqlite_uri).log_metric(ids[1], "train/loss", 0.01, step=30, timestamp=int(time.time() * 1000))
    assert swept(sweep) == {"annotated": 1}


@pytest.mark.exhaustive
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_watching_sweep_ends_cleanly(sqlite_uri, sent):
    name, ids = make_runs(sqlite_uri, 1)
    command = [sys.executable, "-m", "tracker_health", "sweep", "--watch", "1", "--experiment", name]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # where it is ignored, the child would ignore it
    try:
        child = subprocess.Popen(
            [*command, "--tracking-uri", sqlite_uri], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with child:
        said = []
        for line in child.stderr:
            said.append(line)
            if "unchanged" in line:
                child.send_signal(sent)
                break
        said += child.stderr.readlines()
        assert "PASS" in child.stdout.read()
    assert child.returncode == 0
    assert not any("Traceback" in line for line in said)
    assert tags_of(sqlite_uri, ids[0])["health.verdict"] == "pass"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "soon"], "'soon' is no duration"),
        (["--since", "1h"], "no run is silent for longer than it is looked at"),
        (["--project", "x"], "an experiment is of MLflow and a project of W&B"),
    ],
)
def test_what_makes_no_sense_is_told(sqlite_uri, options, said):
    name, _ = make_runs(sqlite_uri, 0)
    result = sweeping(sqlite_uri, name, *options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_no_more_requests_a_second_than_allowed(server_uri):
    from tracker_health.stores.remote import deadline

    name, _ = make_runs(server_uri, 2)
    waits = []
    pace = deadline._Pace()
    pace.rate = 50
    began = time.monotonic()
    for _ in range(11):
        pace.wait()
        waits.append(time.monotonic() - began)
    assert waits[-1] >= 0.19  # the eleventh request is ten fiftieths of a second after the first
    try:
        assert sweeping(server_uri, name, "--rate", "1000").exit_code == 0
        assert deadline._pace.rate == 1000
    finally:
        deadline.at_most(None)


@pytest.mark.exhaustive
def test_the_summary_is_made_from_tags_alone(server_uri, monkeypatch):
    name, ids = make_runs(server_uri, 7, sick={1, 2})
    sweeping(server_uri, name)
    client_of(server_uri).set_tag(ids[1], "mlflow.user", "ann")
    client_of(server_uri).set_tag(ids[3], "mlflow.user", "ann")
    client_of(server_uri).delete_tag(ids[6], "health.digest")  # no whole annotation of ours any more
    monkeypatch.setattr("tracker_health.stores.mlflow.run.read_history", None)
    arguments = ["summary", "--experiment", name, "--tracking-uri", server_uri, "--by", "user, code,week"]
    text = CliRunner().invoke(cli, arguments)
    assert text.exit_code == 0
    assert text.stdout.splitlines()[0] == "7 runs: 2 fail, 0 error, 0 warn, 4 pass, 0 skip, 1 none"
    assert "2  LOS001 nonfinite-loss" in text.stdout
    document = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).stdout)
    assert document["verdicts"] == {"fail": 2, "error": 0, "warn": 0, "pass": 4, "skip": 0, "none": 1}
    assert document["reasons"][0] == {"code": "LOS001", "name": "nonfinite-loss", "runs": 2}
    assert [one["run"]["id"] for one in document["worst"]] == [ids[2], ids[1]]
    assert document["worst"][0]["run"]["url"].startswith(server_uri)
    assert document["by"]["user"]["ann"]["fail"] == 1
    assert document["by"]["code"]["LOS001"]["fail"] == 2
    assert list(document["by"]["week"]) == ["2023-W46"]
    for one in ids[1:]:
        client_of(server_uri).set_terminated(one, end_time=1_700_000_100_000)
    recent = CliRunner().invoke(cli, [*arguments, "--since", "30d", "--json"])
    assert json.loads(recent.stdout)["runs"] == 1, "that ended since then, whenever it began"


@pytest.mark.exhaustive
def test_the_summary_as_a_page_says_what_the_text_says_and_names_experiments(server_uri, tmp_path):
    (name, ids), (other, _) = make_runs(server_uri, 3, sick={1}), make_runs(server_uri, 40)
    sweeping(server_uri, name)
    where = ["summary", "--tracking-uri", server_uri, "--html", str(tmp_path / "summary.html")]
    result = CliRunner().invoke(cli, [*where, "--experiment", name, "--by", "experiment", "--json"])
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert {key: sum(counts.values()) for key, counts in document["by"]["experiment"].items()} == {name: 3}
    assert list(document["by"]) == ["experiment"], "as was asked for, whatever the page needs"
    page = (tmp_path / "summary.html").read_text()
    assert "2023-W46, from 13 Nov 2023: 3 runs: 1 fail, 2 pass" in page
    assert f'href="{server_uri}/#/experiments/' in page
    assert ids[1] in page
    CliRunner().invoke(cli, where)
    assert other in (tmp_path / "summary.html").read_text(), "of all experiments the fifteen with the most runs"
    refused = CliRunner().invoke(cli, [*where[:-1], "-"])
    assert (refused.exit_code, "give the page a file" in refused.stderr) == (2, True)


@pytest.mark.parametrize("project", [False, True])
def test_a_summary_by_nothing_known(project):
    result = CliRunner().invoke(cli, ["summary", "--by", "users"])
    assert result.exit_code == 2
    assert "try: did you mean 'user'" in result.stderr or "user" in result.stderr


@pytest.mark.slow
def test_without_names_all_experiments_are_swept(tmp_path):
    import mlflow

    uri = f"sqlite:///{tmp_path / 'own.db'}"
    mlflow.MlflowClient(tracking_uri=uri)
    places = [make_runs(uri, 2, artifacts=str(tmp_path / f"a{index}")) for index in range(2)]
    result = CliRunner().invoke(cli, ["sweep", "--tracking-uri", uri, "--json"])
    assert result.exit_code == 0, result.stderr
    found = {json.loads(line)["run"]["id"] for line in result.stdout.splitlines()}
    assert found == {run for _, ids in places for run in ids}


@pytest.mark.slow
def test_statistics_of_a_sweep_count_and_name_what_waits(sqlite_uri, tmp_path, monkeypatch):
    name, ids = make_runs(sqlite_uri, 3)
    broken = ids[1]
    judged = Writing.write

    def failing(self, annotations):
        if self._run.ref.id == broken:
            raise OSError(28, "No space left on device")
        return judged(self, annotations)

    monkeypatch.setattr(Writing, "write", failing)
    lines, metrics = tmp_path / "passes.jsonl", tmp_path / "sweep.prom"
    first = sweeping(sqlite_uri, name, "--stats", str(lines), "--stats", str(metrics))
    assert first.exit_code == 3
    monkeypatch.setattr(Writing, "write", judged)
    sweeping(sqlite_uri, name, "--stats", str(lines))
    failed, done = (json.loads(line) for line in lines.read_text().splitlines())
    assert [failed[key] for key in ("judged", "skipped", "errors", "complete")] == [2, 0, 1, True]
    assert failed["oldest_unjudged"]["run"] == broken
    assert [done[key] for key in ("judged", "skipped", "errors", "oldest_unjudged")] == [1, 2, 0, None]
    assert 'tracker_health_sweep_runs{result="judged"} 2' in metrics.read_text()
