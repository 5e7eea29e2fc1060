"""Shadow and acknowledgements on the command line, with folders: what is said, what is written, which exit code."""

import json
import math
import time

import pytest
from click.testing import CliRunner

from tracker_health.cli import cli
from tracker_health.runs import retrying
from tracker_health.stores.base import Overtaken
from tracker_health.stores.folder.directory import DirectoryRun


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("LOGNAME", "tester")

    def invoke(*arguments):
        return CliRunner().invoke(cli, [str(one) for one in arguments], catch_exceptions=False)

    return invoke


@pytest.fixture
def sick(write_log, healthy_losses):
    return write_log([*healthy_losses[:100], *[math.nan] * 100], folder="sick")


@pytest.fixture
def judged(run, sick, no_pictures):
    assert run("annotate", sick).exit_code == 0
    return sick


@pytest.fixture
def no_pictures(monkeypatch):
    monkeypatch.setattr("tracker_health.runs.annotating._draw", lambda *_, **__: ({}, ""))


BECAUSE = ("--because", "the data has this", "--who", "ana")


def test_what_is_acknowledged_no_longer_fails_a_job_and_the_verdict_stays(run, judged, valid_report):
    assert run("check", judged).exit_code == 1
    said = run("ack", judged, *BECAUSE)
    assert (said.exit_code, said.stdout) == (0, "FAIL sick: acknowledged by ana (LOS001); nothing is open\n")
    checked = run("check", judged)
    assert checked.exit_code == 0
    assert "fail, acknowledged by ana" in checked.stdout
    assert "the data has this" in checked.stdout
    document = json.loads(run("check", "--json", judged).stdout)
    valid_report(document)
    assert (document["verdict"], document["severity"], document["open"]) == ("fail", 3, [])
    assert document["acknowledged"][0]["who"] == "ana"
    assert "[acknowledged by ana]" in run("check", *[judged] * 6).stdout
    assert "acknowledged by ana" in run("check", "--format", "markdown", judged).stdout
    unchanged = run("annotate", "--fail-on", "fail", judged)
    assert (unchanged.exit_code, "unchanged" in unchanged.stdout) == (0, True)
    assert "acknowledged" not in json.loads((judged / "health" / "report.json").read_text())


def test_it_survives_another_annotation_and_an_upgrade(run, judged, monkeypatch):
    run("ack", judged, "non-finite-loss", *BECAUSE)
    monkeypatch.setattr("tracker_health.runs.still_holds.RULES_VERSION", 999)
    monkeypatch.setattr("tracker_health.judge.annotations.RULES_VERSION", 999)
    assert run("annotate", "--force", "--rejudge", judged, "--fail-on", "fail").exit_code == 0


def test_it_is_dropped_when_the_run_goes_on(run, judged):
    run("ack", judged, *BECAUSE)
    (log,) = judged.glob("*.jsonl")
    with log.open("a") as file:
        file.write('{"step": 200, "loss": NaN}\n')
    assert run("check", judged).exit_code == 1
    assert run("annotate", "--fail-on", "fail", judged).exit_code == 1


def test_it_is_dropped_when_another_cause_is_found(run, judged, monkeypatch):
    run("ack", judged, *BECAUSE)
    (entry,) = (judged / "health" / "acks").iterdir()
    document = json.loads(entry.read_text())
    assert document["cause"] == "non-finite-loss"
    entry.write_text(json.dumps({**document, "cause": "bad-data"}))
    assert run("check", judged).exit_code == 1


def test_a_code_a_name_and_the_cause_name_what_is_meant(run, judged):
    for name in ("los001", "nonfinite-loss", "non-finite-loss"):
        assert run("ack", judged, name, *BECAUSE).exit_code == 0
    refused = run("ack", judged, "LOS004", *BECAUSE)
    assert refused.exit_code == 2
    assert "no finding or cause 'LOS004'" in refused.stderr


def test_what_is_taken_back_is_open_again(run, judged):
    refused = run("ack", judged, "--undo")
    assert (refused.exit_code, "nothing to take back" in refused.stderr) == (3, True)
    run("ack", judged, "--wrong", *BECAUSE)
    assert "called wrong by ana" in run("check", judged).stdout
    undone = run("ack", judged, "--undo", "--json")
    assert json.loads(undone.stdout)["open"] == ["LOS001"]
    assert run("check", judged).exit_code == 1
    assert len(list((judged / "health" / "acks").iterdir())) == 2, "nothing of it is ever changed"


def test_for_some_time_is_for_some_time(run, judged, monkeypatch):
    assert run("ack", judged, "--for", "14d", *BECAUSE).exit_code == 0
    assert run("check", judged).exit_code == 0
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 15 * 86_400)
    assert run("check", judged).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--who", "ana"), 2, "needs a reason"),
        (("--because", "x", "--who", " "), 2, "who it is from"),
        (("--because", "x", "--for", "soon"), 2, "no duration"),
        (("--because", "x", "--for", "0d"), 2, "over before it began"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(run, judged, arguments, code, said):
    refused = run("ack", judged, *arguments)
    assert refused.exit_code == code
    assert said in refused.stderr
    assert not (judged / "health" / "acks").exists()


def test_there_must_be_something_to_acknowledge(run, sick, write_log, healthy_losses, no_pictures):
    refused = run("ack", sick, *BECAUSE)
    assert (refused.exit_code, "annotate it first" in refused.stderr) == (3, True)
    healthy = write_log(healthy_losses, folder="healthy")
    run("annotate", healthy)
    refused = run("ack", healthy, *BECAUSE)
    assert (refused.exit_code, "nothing was found" in refused.stderr) == (3, True)


def test_who_is_told_to_come_again_does_and_says_it_once(run, judged, monkeypatch):
    monkeypatch.setattr(retrying.time, "sleep", lambda _: None)
    real, refused = DirectoryRun.acknowledge, []

    def twice(self, entry):
        real(self, entry)
        if len(refused) < 2:
            refused.append(entry)
            raise Overtaken("somebody else is at work")

    monkeypatch.setattr(DirectoryRun, "acknowledge", twice)
    assert run("ack", judged, *BECAUSE).exit_code == 0
    assert len(list((judged / "health" / "acks").iterdir())) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 5000, b"\xff\xfe", b"0" * 10**6])
def test_what_somebody_else_put_among_the_entries_counts_for_nothing(run, judged, content):
    folder = judged / "health" / "acks"
    folder.mkdir()
    (folder / f"{'0' * 16}.json").write_bytes(content)
    (folder / "note.json").symlink_to(judged / "health" / "annotation.json")
    assert run("check", judged).exit_code == 1
    assert run("ack", judged, *BECAUSE).exit_code == 0
    assert run("check", judged).exit_code == 0
    run("clear", "--acks", judged)
    assert (folder / f"{'0' * 16}.json").read_bytes() == content, "what is not ours stays"


def test_only_open_findings_trip_the_gate(run, judged, monkeypatch):
    document = json.loads((judged / "health" / "annotation.json").read_text())
    assert document["tags"]["codes"] == "LOS001"
    run("ack", judged, *BECAUSE)
    (entry,) = (judged / "health" / "acks").iterdir()
    other = {**json.loads(entry.read_text()), "codes": ["GRD001"]}
    entry.write_text(json.dumps(other))
    assert run("check", judged).exit_code == 1, "it is about something else"


def test_clear_leaves_what_people_said_unless_asked(run, judged):
    run("ack", judged, *BECAUSE)
    counted = run("clear", "--dry-run", judged).stdout
    assert counted.startswith("would go from 1 of 1 run: ")
    assert "would stay: 1 acknowledgement (--acks takes them off)" in counted
    assert (judged / "health" / "report.json").exists()
    cleared = run("clear", judged)
    assert "1 acknowledgement kept" in cleared.stdout
    assert [path.name for path in (judged / "health").iterdir()] == ["acks"]
    assert run("annotate", judged, "--fail-on", "fail").exit_code == 0, "it holds for the next annotation"
    assert "acknowledgement" not in run("clear", "--acks", judged).stdout
    assert not (judged / "health").exists()


# Shadow


def test_in_shadow_there_is_one_thing_on_the_run_and_the_exit_code_is_0(run, sick):
    tried = run("annotate", "--shadow", "--fail-on", "fail", sick)
    assert (tried.exit_code, "only health.shadow was written" in tried.stdout) == (0, True)
    (path,) = (sick / "health").iterdir()
    document = json.loads(path.read_text())
    assert document.keys() == {"schema", "shadow"}
    assert document["shadow"].startswith("fail LOS001 non-finite-loss ")
    again = run("annotate", "--shadow", sick)
    assert "unchanged since it was judged in shadow" in again.stdout
    assert "report.json" not in again.stdout
    assert run("ack", sick, *BECAUSE).exit_code == 3, "nothing was said that anybody could answer"


def test_shadow_ends_where_annotating_begins(run, sick, no_pictures):
    run("annotate", "--shadow", sick)
    assert run("annotate", sick).exit_code == 0
    assert "shadow" not in json.loads((sick / "health" / "annotation.json").read_text())
    run("annotate", "--shadow", "--force", sick)
    document = json.loads((sick / "health" / "annotation.json").read_text())
    assert {"verdict", "shadow"} <= document.keys(), "a verdict that is there is left there"


@pytest.mark.parametrize("command", ["check", "annotate"])
def test_what_cannot_be_judged_in_shadow_fails_no_job(run, tmp_path, command):
    nowhere = run(command, "--shadow", tmp_path / "nowhere")
    assert nowhere.exit_code == 0
    assert "nowhere" in nowhere.stderr


def test_a_setting_and_a_policy_put_everybody_into_shadow(run, sick, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKER_HEALTH_MODE", "shadow")
    assert run("check", sick).exit_code == 0
    monkeypatch.delenv("TRACKER_HEALTH_MODE")
    assert run("check", sick).exit_code == 1
    policy = tmp_path / "policy.toml"
    policy.write_text('mode = "shadow"\nlocked = ["mode"]\n')
    monkeypatch.setenv("TRACKER_HEALTH_POLICY", str(policy))
    monkeypatch.setenv("TRACKER_HEALTH_MODE", "annotate")
    run("annotate", sick)
    assert json.loads((sick / "health" / "annotation.json").read_text()).keys() == {"schema", "shadow"}


def test_a_mode_that_is_none_is_refused(run, sick):
    refused = run("check", "--set", "mode=quiet", sick)
    assert (refused.exit_code, "mode cannot be 'quiet'" in refused.stderr) == (2, True)
