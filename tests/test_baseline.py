"""Runs against a baseline: what it is made of, when it speaks, what a hostile file does, and the command line."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.api import read_baseline
from tracker_health.cli import cli
from tracker_health.config import preset
from tracker_health.errors import ConfigError
from tracker_health.evidence import SHARES, Course, Evidence, RunInfo, RunRef, Series
from tracker_health.judge.engine import diagnose
from tracker_health.report.baseline import Candidate, baseline_of, differences, from_json, settings_beside, to_json
from tracker_health.words.verdict import Verdict

RATES = [0.001, 0.0012, 0.0015, 0.002, 0.0022, 0.0025, 0.0028, 0.003]


def course(end, *, metric="loss", length=300, reach=1.0):
    at = (np.arange(SHARES) + 0.5) / SHARES
    levels = np.where(at <= reach, end + 2 * np.exp(-at * 6), np.nan)
    return Course(metric=metric, length=length, start=end + 2, end=end, levels=tuple(levels.tolist()))


def candidate(number, **changes):
    params = {"learning_rate": str(RATES[number % 8]), "batch_size": "32", "model": "net", "seed": str(number)}
    return Candidate(**{"id": f"run-{number}", "course": course(0.5 + number / 100), "params": params, **changes})


def frozen(**changes):
    made = from_json(json.loads(json.dumps(to_json(baseline_of(map(candidate, range(8)), "experiment:nets")))))
    return replace(made, **changes)


def test_a_baseline_comes_back_from_its_file_as_it_was_but_frozen():
    made = baseline_of(map(candidate, range(8)), "experiment:nets")
    again = from_json(json.loads(json.dumps(to_json(made))))
    assert not made.frozen
    assert again == replace(made, frozen=True)
    assert len(made.runs) == 8
    assert made.params["learning_rate"].low == 0.001


def test_who_is_left_out_and_why():
    odd = [
        candidate(8, why_not="its verdict is fail"),
        candidate(9, course=None),
        candidate(10, course=course(0.5, metric="other")),
        candidate(11, params={"model": "another"}),
        candidate(12, course=course(0.5, length=700)),
        candidate(13, course=course(math.inf)),
    ]
    made = baseline_of([*odd, *map(candidate, range(8))], "nets")
    why = dict(made.left_out)
    assert set(made.runs) == {f"run-{at}" for at in range(8)}
    assert why["run-8"] == "its verdict is fail"
    assert why["run-10"] == "its loss is not loss"
    assert why["run-11"] == "its model is not net"
    assert why["run-12"] == "it has 700 steps, the others about 300"
    assert {"run-9", "run-13"} <= why.keys()
    with pytest.raises(ConfigError, match="needs 5 comparable runs that passed, and 4 are there"):
        baseline_of([*odd, *map(candidate, range(4))], "nets")


@given(st.lists(st.floats(0.0, 5.0), min_size=8, max_size=8), st.integers(-10, 10).map(lambda power: 2.0**power))
def test_no_run_of_a_baseline_lies_above_it_and_units_do_not_matter(ends, unit):
    runs = [candidate(at, course=course(end)) for at, end in enumerate(ends)]
    made = baseline_of(runs, "nets")
    for one in runs:
        assert not np.nanmax(made.above(one.course)) > 0
        assert made.left_at(one.course) is None
    scaled = [
        replace(one, course=replace(one.course, start=one.course.start * unit, end=one.course.end * unit,
                levels=tuple(level * unit for level in one.course.levels)))
        for one in runs
    ]  # fmt: skip
    assert baseline_of(scaled, "nets").descent == pytest.approx(made.descent * unit)


def test_what_differs_comes_with_the_most_telling_first():
    own = {"learning_rate": "0.3", "batch_size": "33", "model": "net", "seed": "99", "extra": "1"}
    found = differences(own, frozen())
    assert [one.name for one in found] == ["learning_rate", "batch_size"]
    assert str(found[0]) == "learning_rate is 0.3, in healthy runs 0.001 to 0.003"
    assert differences({**own, "learning_rate": "0.002", "batch_size": "32"}, frozen()) == []
    assert [one.own for one in differences({"model": "net"}, frozen())] == ["not set"]  # of rates no value is usual


def evidence(end, *, baseline=None, name="loss", **info):
    steps = np.arange(1, 301)
    values = end + 2 * np.exp(-steps / 50) + 0.01 * np.sin(steps)
    series = Series(name=name, role="train_loss", steps=steps, values=values)
    facts = RunInfo(status="FINISHED", metric_names=(name,), params={"learning_rate": "0.3"}, **info)
    return Evidence(run=RunRef(store="directory", id="r", name="r"), info=facts, series=(series,), baseline=baseline)


def finding(report):
    return next(one for one in report.results if one.code == "CMP001")


def test_a_frozen_baseline_votes_and_a_living_one_advises():
    config, alone = preset("default"), diagnose(evidence(1.6), preset("default"))
    voted = diagnose(evidence(1.6, baseline=frozen()), config)
    advised = diagnose(evidence(1.6, baseline=frozen(frozen=False)), preset("strict"))
    assert (alone.verdict, voted.verdict, advised.verdict) == (Verdict.PASS, Verdict.WARN, Verdict.PASS)
    assert finding(voted).votes
    assert finding(voted).details["baseline"] == frozen().digest
    assert finding(voted).remedy.startswith("look at what differs: learning_rate is 0.3")
    assert finding(voted).steps
    assert any(note.startswith(f"compared with baseline {frozen().digest}") for note in voted.notes)
    assert not finding(advised).votes
    assert any(note.startswith("CMP001 advises: from step") for note in advised.notes)
    assert diagnose(evidence(0.52, baseline=frozen()), config).verdict is Verdict.PASS
    assert diagnose(evidence(0.1, baseline=frozen()), config).verdict is Verdict.PASS  # better is not odd


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"metric": "other"}, "the baseline is of other, the run logs loss"),
        ({"shortest": 900, "longest": 900}, "the baseline is of runs of 900 to 900 steps, the run's plan has 300"),
        ({"alike": {"learning_rate": "1"}}, "learning_rate is 0.3, and 1 in the baseline"),
        ({"high": (math.nan,) * SHARES}, "the run has not come far enough of its plan"),
    ],
)
def test_a_run_that_cannot_be_compared_keeps_its_verdict_and_is_told_why(changes, why):
    report = diagnose(evidence(1.6, baseline=frozen(**changes)), preset("default"))
    assert report.verdict is Verdict.PASS
    assert f"not compared with the baseline: {why}" in report.notes
    assert next(one for one in report.skipped if one.code == "CMP001").reason == why


def test_a_config_with_a_baseline_has_another_digest():
    plain = preset("default")
    digests = {
        plain.digest,
        replace(plain, baseline=frozen()).digest,
        replace(plain, baseline=frozen(frozen=False)).digest,
    }
    assert len(digests) == 3


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@settings(max_examples=draws(60))
@given(st.sampled_from([*to_json(baseline_of(map(candidate, range(8)), "nets"))]), JSON)
def test_a_hostile_document_is_refused(key, value):
    document = to_json(baseline_of(map(candidate, range(8)), "nets"))
    if json.dumps(document[key]) == json.dumps(value):
        return
    with pytest.raises(ValueError, match=r"it|its|a part"):
        from_json({**document, key: value})


@pytest.mark.parametrize(
    "content", ["", "[" * 100_000, "null", "{}", "\x00", '{"schema": "tracker-health/baseline/1"}']
)
def test_a_file_that_is_no_baseline_is_named(tmp_path, content):
    path = tmp_path / "b.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"b\.json is no baseline"):
        read_baseline(path)
    path.write_bytes(b" " * 3_000_000)
    with pytest.raises(ConfigError, match=r"b\.json cannot be read"):
        read_baseline(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_baseline(tmp_path)


def trained(folder, end, rate):
    folder.mkdir()
    rows = [{"type": "config", "learning_rate": rate}]
    rows += ({"step": step, "train_loss": end + 2 * math.exp(-step / 40)} for step in range(300))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


def run(*arguments):
    return CliRunner().invoke(cli, list(arguments))


def test_from_runs_to_an_exit_code_and_a_page(tmp_path):
    runs = [trained(tmp_path / f"s{at}", 0.5 + at / 100, rate) for at, rate in enumerate(RATES)]
    odd, path, page = trained(tmp_path / "odd", 1.6, 0.3), str(tmp_path / "b.json"), tmp_path / "p.html"
    saved = run("baseline", "save", *runs, "-o", path)
    assert saved.exit_code == 0, saved.output
    digest = json.loads((tmp_path / "b.json").read_text())["digest"]
    shown = run("baseline", "show", path).output
    assert f"baseline {digest}: 8 runs" in shown
    assert "learning_rate: 0.001 to 0.003" in shown
    assert run("check", odd, "--fail-on", "warn").exit_code == 0
    assert run("check", odd, "--against", path, "--fail-on", "warn").exit_code == 1
    assert run("check", runs[3], "--against", path, "--fail-on", "warn").exit_code == 0
    living = [part for one in runs[:6] for part in ("--against", one)]
    advised = run("check", odd, *living, "--fail-on", "warn")
    assert advised.exit_code == 0
    assert "CMP001 advises" in advised.output
    assert run("report", odd, "--against", path, "-o", str(page)).exit_code == 0
    assert "highest of 8 healthy runs" in page.read_text()
    assert '<polygon class="area usual"' in page.read_text()
    assert f"Baseline {digest}" in page.read_text()
    assert "<td>0.001 to 0.003</td>" in page.read_text()
    changed = json.loads((tmp_path / "b.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps({**changed, "descent": 9.0}))
    refused = run("check", odd, "--against", path)
    assert refused.exit_code == 2
    assert "it was changed since it was saved" in refused.output


def test_next_to_one_run_a_page_shows_its_curve_and_what_differs(tmp_path):
    good, odd, page = trained(tmp_path / "good", 0.5, 0.001), trained(tmp_path / "odd", 1.6, 0.3), tmp_path / "p.html"
    (tmp_path / "good" / "health").mkdir()
    (tmp_path / "good" / "health" / "report.html").write_text("x")
    alone = run("check", odd)
    said = run("check", odd, "--against", good, "-v")
    assert said.exit_code == 0
    assert f"note     next to {tmp_path.name}/good: learning_rate is 0.3, there 0.001" in said.output
    assert "no band: 1 run of --against, 5 are needed" in " ".join(said.output.split())
    assert said.output.split()[0] == alone.output.split()[0] == "PASS"
    assert run("report", odd, "--against", good, "-o", str(page)).exit_code == 0
    text = page.read_text()
    head, _, below = text.partition('id="figure-loss"')
    assert "next to" not in head
    assert '<polyline class="line other"' in below
    assert f'<a href="{(tmp_path / "good" / "health" / "report.html").as_uri()}"' in below
    assert '<th scope="row">learning_rate</th><td>0.3</td><td>0.001</td>' in below
    assert "Fewer than 5 runs make no band" in below


def test_runs_that_did_not_pass_are_shown_where_few_were_named(tmp_path):
    odd, lost = trained(tmp_path / "odd", 1.6, 0.3), trained(tmp_path / "lost", math.nan, 1.0)
    page = tmp_path / "p.html"
    assert run("report", odd, "--against", lost, "-o", str(page)).exit_code == 0
    assert f"Next to {tmp_path.name}/lost (fail)" in page.read_text()
    nothing = run("report", odd, "--against", odd, "-o", str(page))
    assert nothing.exit_code == 2
    assert "there is no run to compare with" in nothing.output
    missing = run("report", odd, "--against", str(tmp_path / "none"), "-o", str(page))
    assert missing.exit_code == 2
    assert "there is no folder or file" in missing.output


def test_settings_that_differ_come_with_the_most_telling_first():
    own = {"lr": "0.3", "decay": "0.01", "seed": "1", "same": "1e-3", "mine": "x"}
    other = {"lr": "0.001", "decay": "0.02", "seed": "2", "same": "0.001", "theirs": "y"}
    rows, alike = settings_beside(own, [other])
    assert [one.name for one in rows] == ["lr", "decay", "theirs", "mine", "seed"]
    assert rows[2:4] == [("theirs", "not set", ("y",)), ("mine", "x", ("not set",))]
    assert alike == 1
    assert settings_beside(own, []) == ([], 5)


@pytest.mark.exhaustive
def test_an_experiment_in_a_real_database(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("nets", artifact_location=str(tmp_path / "artifacts"))
    ids = []
    for at, (end, rate) in enumerate([*((0.5 + at / 100, rate) for at, rate in enumerate(RATES[:6])), (1.6, 0.3)]):
        made = client.create_run(experiment, run_name=f"seed-{at}").info.run_id
        metrics = [mlflow.entities.Metric("train_loss", end + 2 * math.exp(-step / 20), 1, step) for step in range(120)]
        params = [mlflow.entities.Param("learning_rate", str(rate)), mlflow.entities.Param("batch_size", "32")]
        client.log_batch(made, metrics=metrics, params=params)
        client.set_terminated(made)
        ids.append(made)
    path, where = str(tmp_path / "b.json"), ("--tracking-uri", uri)
    living = run("check", ids[-1], "--against", "experiment:nets", "--fail-on", "warn", *where)
    assert living.exit_code == 0, living.output
    assert "CMP001 advises" in living.output
    assert run("baseline", "save", *ids[:6], "-o", path, *where).exit_code == 0
    assert run("annotate", ids[-1], "--against", path, *where).exit_code == 0
    tags = client.get_run(ids[-1]).data.tags
    assert tags["health.verdict"] == "warn"
    kept = json.loads(tags["health.digest"].partition(" ")[2])
    assert kept["baseline"] == json.loads((tmp_path / "b.json").read_text())["digest"]
    page = tmp_path / "p.html"
    assert run("report", ids[-1], "--against", ids[0], "-o", str(page), *where).exit_code == 0
    assert "Next to seed-0 (pass)" in page.read_text()
    assert "<td>0.3</td><td>0.001</td>" in page.read_text()


# Runs that go on


def so_far(reached, *, status="RUNNING", level=0.0, params=(("max_steps", "300"),), metric="loss"):
    steps = np.arange(reached)
    values = 0.5 + 2 * np.exp(-steps / 300 * 6) + level
    series = Series(name=metric, role="train_loss", source="x", steps=steps, values=values)
    info = RunInfo(status=status, tracker="MLflow", params={**dict(params), "model": "net"}, metric_names=(metric,))
    return Evidence(run=RunRef(store="x", id="x", name="x"), info=info, series=(series,), baseline=frozen())


def compared(evidence):
    report = diagnose(evidence, replace(preset("default"), select=frozenset({"CMP001"}), baseline=evidence.baseline))
    return {one.code: one for one in report.results}.get("CMP001")


@pytest.mark.parametrize("plan", ["max_steps", "num_epochs"])
@pytest.mark.parametrize("reached", [100, 180, 299])
def test_a_run_that_goes_on_is_compared_by_the_plan_that_it_and_the_baseline_share(plan, reached):
    found = compared(so_far(reached, level=1.5, params=[(plan, "300")]))
    assert found.votes
    assert found.verdict is Verdict.WARN
    assert found.message.startswith(f"at step {reached - 1} of 300 the loss is above the band of 8 healthy runs, by ")
    assert "ended" not in found.message
    assert compared(so_far(reached, params=[(plan, "300")])).verdict is Verdict.PASS


@pytest.mark.parametrize(
    "changes",
    [
        {"params": ()},
        {"params": [("max_steps", "3000")]},
        {"reached": 20},
        {"params": [("max_steps", "260")], "reached": 299},
    ],
    ids=["no plan", "of another length", "too early", "beyond its plan"],
)
def test_a_run_that_goes_on_without_a_plan_in_that_unit_is_not_compared(changes):
    assert compared(so_far(**{"reached": 180, "level": 1.5, **changes})) is None


def test_a_run_that_ended_is_compared_as_a_whole():
    assert compared(so_far(180, status="FINISHED", level=1.5)) is None  # of 180 steps, beside runs of 300
    assert "from step" in compared(so_far(300, status="FINISHED", level=1.5)).message
