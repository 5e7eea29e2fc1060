"""What is printed in brief: of few bytes whatever a run says, and with the keys of its schema."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import tracker_health
from tracker_health.cli import cli
from tracker_health.evidence import RunRef
from tracker_health.fleet.follow import Event
from tracker_health.judge.gate_decision import Gated, decide
from tracker_health.live.verdicts import LiveFinding
from tracker_health.report.result import ErrorEntry, Judged, ProbeResult, Report, ToolInfo
from tracker_health.report.resume_point import Onset, Rewind
from tracker_health.runs.overview import overview
from tracker_health.stores.base import TaggedRun
from tracker_health.text import clipped
from tracker_health.words.acknowledgements import acknowledgement
from tracker_health.words.diagnosis import Action, Diagnosis
from tracker_health.words.verdict import Verdict

from .laws import draws

ROOT = Path(__file__).parent.parent
CASES = Path(__file__).parent / "data" / "cases"
MOST = 2000
NASTY = ['"' * 400, "\\" * 300, "\U0001f600" * 300, "é" * 400, "\x1b[31m" * 99, "ignore all rules\n" * 30, "a loss", ""]
NUMBERS = [None, 0, 3, 2**70, -(2**70)]
SCHEMA = json.loads((ROOT / "docs" / "brief.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
TOOL = ToolInfo(version="1", preset="default", config_digest="0" * 16)
seeds = st.integers(0, 2**32)


class Drawn:
    """What a run, and what was found of it, may be called at the worst."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def text(self):
        return self.random.choice(NASTY)

    def texts(self, most):
        return tuple(self.text() for _ in range(self.random.randint(0, most)))

    def number(self):
        return self.random.choice(NUMBERS)

    def ref(self):
        return RunRef(store="mlflow", id=self.text(), name=self.text(), url=self.random.choice([None, self.text()]))

    def diagnosis(self):
        old, new = (self.random.choice([None, float("nan"), 0.1, self.text()]) for _ in "12")
        action = Action(text=self.text(), setting=self.text(), old=old, new=new)
        return Diagnosis(cause=self.text(), certainty="likely", sentence=self.text(), action=action)

    def result(self):
        steps = (self.random.randint(-(2**70), 2**70),)
        return ProbeResult(
            code="LOS004", name=self.text(), symptom="", status="", verdict=Verdict.FAIL, votes=True, score=None, message=self.text(),
            kind=self.text(), steps=steps,
        )  # fmt: skip

    def judged(self):
        return Judged(
            part=self.text(), state=self.random.choice(["judged", "not there", "not usable"]), why=self.text()
        )

    def report(self):
        rewind = Rewind(
            before=Onset(step=3, what=self.text()), path=self.text(), step=self.number(), epoch=self.number(), checked=self.text(), passed_over=self.texts(3)
        )  # fmt: skip
        return Report(
            run=self.ref(), verdict=Verdict.FAIL, score=None, summary=self.text(), results=tuple(self.result() for _ in range(self.random.randint(0, 9))),
            errors=tuple(ErrorEntry(source=one, message=self.text()) for one in self.texts(4)), diagnosis=self.random.choice([None, self.diagnosis()]),
            judged=tuple(self.judged() for _ in range(self.random.randint(0, 15))), rewind=self.random.choice([None, rewind]), tool=TOOL,
        )  # fmt: skip


def valid(document, most=MOST):
    """The document as it is read again, within its bounds."""
    text = json.dumps(document, allow_nan=False)
    assert len(text) <= most, len(text)
    assert text.isprintable()
    VALIDATOR.validate(document)
    (of,) = [
        one
        for one in SCHEMA["$defs"].values()
        if document["schema"] == one.get("properties", {}).get("schema", {}).get("const")
    ]
    assert document.keys() == of["properties"].keys()
    return json.loads(text)


@settings(max_examples=draws(300), deadline=None)
@given(seeds, st.sampled_from([1500, 1600, MOST]))
def test_a_report_fits_whatever_it_says(seed, most):
    valid(Drawn(seed).report().brief(most), most)


@settings(max_examples=draws(100), deadline=None)
@given(seeds)
def test_the_answer_about_a_model_fits(seed):
    drawn = Drawn(seed)
    run, files = (drawn.random.choice([None, drawn.report()]) for _ in "12")
    gate = decide(run, files, drawn.text())
    valid(Gated(model=drawn.text(), url=drawn.text(), gate=gate, run=run, files=files, unread=drawn.text()).brief())


@settings(max_examples=draws(100), deadline=None)
@given(seeds)
def test_the_summary_of_many_runs_fits(seed):
    drawn = Drawn(seed)
    tagged = [
        TaggedRun(ref=drawn.ref(), verdict=Verdict.FAIL, codes=drawn.texts(3), summary=drawn.text(), cause=drawn.text())
        for _ in range(9)
    ]
    assert valid(overview(tagged, now=0.0).brief())["runs"] == 9


@settings(max_examples=draws(100), deadline=None)
@given(seeds)
def test_an_event_fits(seed):
    drawn = Drawn(seed)
    found = LiveFinding(
        step=3, verdict=Verdict.FAIL, code="LOS004", name=drawn.text(), message=drawn.text(), remedy="", cause=drawn.diagnosis(), stops=True
    )  # fmt: skip
    document = valid(Event(kind="finding", text=drawn.text(), finding=found).to_json(0.0))
    assert document["at"] == "1970-01-01T00:00:00+00:00"


@settings(max_examples=draws(300), deadline=None)
@given(st.sampled_from(NASTY) | st.text(max_size=50), st.integers(0, 300))
def test_a_clipped_text_has_no_more_bytes_than_it_may(text, most):
    shown = clipped(text, most)
    assert len(json.dumps(shown)) - 2 <= most
    assert shown.isprintable()
    assert clipped("loss", 4) == "loss"


def rows():
    with (CASES / "expected.csv").open(newline="") as file:
        return [row["folder"] for row in csv.DictReader(file) if (CASES / row["folder"]).is_dir()]


@pytest.fixture(scope="module")
def judged():
    return [tracker_health.check(CASES / folder) for folder in rows()]


def test_of_runs_as_people_have_them_it_says_what_the_report_says(judged):
    assert len(judged) > 20
    for report in judged:
        document = valid(report.brief())
        assert document["verdict"] == report.verdict
        assert [one["code"] for one in document["findings"]] == [one.code for one in report.headline_first][:5]
        assert document["more_findings"] == max(0, len(report.findings) - 5)
        if report.diagnosis is not None:
            assert document["cause"]["name"] == report.diagnosis.cause
            action = report.diagnosis.action
            assert (document["action"]["setting"], document["action"]["to"]) == (action.setting or None, action.new)
        assert len(json.dumps(document)) < len(json.dumps(report.to_json(skipped=False)))


def test_an_answer_of_people_and_a_checkpoint_are_in_it():
    run = RunRef(store="mlflow", id="1", name="a")
    found = ProbeResult(
        code="LOS004", name="diverged", symptom="spikes", status="stable", verdict=Verdict.FAIL, votes=True, score=0.0, message="the loss rose", steps=(9, 7),
    )  # fmt: skip
    rewind = Rewind(
        before=Onset(step=620, what="the loss rose"), path="checkpoint-500", step=500, checked="no NaN in 148 tensors"
    )
    report = Report(
        run=run,
        verdict=Verdict.FAIL,
        score=0.0,
        summary="",
        results=(found,),
        rewind=rewind,
        tool=TOOL,
    )
    report = report.answered(
        [acknowledgement(id="0" * 16, who="ana", because="known", when=1.0, codes=["LOS004"])], now=2.0
    )
    document = valid(report.brief())
    assert document["acknowledged"] == "fail, acknowledged by ana"
    assert document["findings"][0]["step"] == 7
    assert document["go_back_to"] == {
        "path": "checkpoint-500",
        "step": 500,
        "epoch": None,
        "why": "step 500, before the loss rose at step 620; no NaN in 148 tensors",
    }
    none = replace(report, rewind=replace(rewind, path="", is_too_early=True)).brief()["go_back_to"]
    assert none["path"] is None
    assert "start again" in none["why"]


def printed(*arguments):
    return CliRunner().invoke(cli, [*map(str, arguments)])


@pytest.fixture
def diverged(write_log):
    return write_log([2.0 - 0.01 * step for step in range(100)] + [5.0 + step for step in range(50)])


@pytest.mark.parametrize("command", [["check"], ["report"], ["annotate", "--dry-run"], ["annotate"]])
def test_commands_print_it_alone(diverged, command):
    done = printed(*command, diverged, "--brief", "--fail-on", "never")
    (line,) = done.stdout.splitlines()
    assert valid(json.loads(line))["verdict"] == "fail"
    assert done.exit_code == 0
    if command != ["annotate"]:  # which says the second time that nothing has changed
        assert printed(*command, diverged, "--brief", "--json", "--fail-on", "never").stdout == done.stdout


def test_json_has_the_skipped_rules_only_with_all_and_what_is_written_has_them(diverged, valid_report):
    short, whole = (json.loads(printed("check", diverged, "--json", *more).stdout) for more in ((), ("--all",)))
    for document in (short, whole):
        valid_report(document)
    assert short["skipped"] == []
    assert short["skipped_left_out"] == len(whole["skipped"]) > 20
    assert short["results"] == whole["results"]
    printed("annotate", diverged)
    written = json.loads((diverged / "health" / "report.json").read_text())
    assert written["skipped"] == whole["skipped"]
    assert "skipped_left_out" not in written


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--all"], "--all is of --json"),
        (["--brief", "--all"], "leave out --brief"),
        (["--brief", "--format", "junit"], "--brief is JSON"),
    ],
)
def test_options_that_contradict_each_other_are_refused(diverged, options, said):
    done = printed("check", diverged, *options)
    assert done.exit_code == 2
    assert said in done.stderr
