import json
import math
import re
from dataclasses import replace

import pytest

from tracker_health.config import Config, preset
from tracker_health.evidence import RunRef
from tracker_health.judge.annotations import (
    MAX_HEADLINE_METRICS,
    REPORT_FILE,
    JudgedBy,
    digest_of,
    in_markdown,
    incomplete,
    is_wanted,
    plan,
)
from tracker_health.report.result import ErrorEntry, Judged, ProbeResult, Report, ToolInfo
from tracker_health.words.diagnosis import Action, Alternative, Diagnosis
from tracker_health.words.verdict import Verdict


def result(code, name, verdict, **more):
    return ProbeResult(
        **{
            "code": code,
            "name": name,
            "symptom": "diverged",
            "status": "stable",
            "verdict": verdict,
            "votes": True,
            "score": 0.0,
            "message": "it rose",
            **more,
        }
    )


@pytest.fixture
def failing():
    return Report(
        run=RunRef(store="mlflow", id="1", name="n"), verdict=Verdict.FAIL, score=0.0, summary="diverged: it rose",
        tool=ToolInfo(version="0.1.0", preset="default", config_digest="d"),
        results=(
            result("LOS001", "nonfinite-loss", Verdict.WARN, symptom="nonfinite"),
            result("LOS004", "diverged", Verdict.FAIL, measured={"rise_share": 2.0, "noise": 0.1}, remedy="lower it"),
            result("LOS005", "no-progress", Verdict.PASS, measured={"descent_share": 0.4, "best": math.nan}),
        ),
    )  # fmt: skip


ALL = Config(metrics=True, pages="always", description="always")


@pytest.mark.parametrize(
    ("when", "noted"),
    [("findings", [Verdict.WARN, Verdict.ERROR, Verdict.FAIL]), ("never", []), ("always", [*Verdict])],
)
def test_what_is_written_by_which_setting(failing, when, noted):
    """Of a healthy run its tags and the report; measures as metrics only where they are asked for."""
    reports = [replace(failing, verdict=verdict) for verdict in Verdict]
    found = [plan(one, "abc", config=Config(description=when)) for one in reports]
    assert {one.verdict for one in found if one.note} == set(noted)
    assert {tuple(one.metrics) for one in found if one.verdict is not Verdict.SKIP} == {("severity",)}
    assert [is_wanted(when, one) for one in (Verdict.PASS, Verdict.WARN, Verdict.FAIL)] == [
        one in noted for one in (Verdict.PASS, Verdict.WARN, Verdict.FAIL)
    ]


def test_what_is_written_for_a_finding(failing):
    annotations = plan(failing, "abc", {"loss.png": b"png"}, ALL)
    assert annotations.verdict is Verdict.FAIL
    assert annotations.digest == "abc"
    assert annotations.tags == {
        "codes": "LOS004,LOS001",
        "symptoms": "diverged,nonfinite",
        "summary": "diverged: it rose",
        "version": "0.1.0",
    }
    assert annotations.metrics == {"severity": 3.0, "diverged/rise_share": 2.0, "no_progress/descent_share": 0.4}
    assert set(annotations.files) == {REPORT_FILE, "loss.png"}
    assert json.loads(annotations.files[REPORT_FILE]) == failing.to_json()
    assert "LOS004" in annotations.note
    assert "it rose. *Lower it.*" in annotations.note


def test_a_run_with_nothing_to_judge_says_why_and_gets_no_report(failing):
    annotations = plan(replace(failing, verdict=Verdict.SKIP), "abc", {"loss.png": b"png"})
    assert (annotations.tags, annotations.metrics, annotations.files) == ({"summary": failing.summary}, {}, {})


@pytest.mark.parametrize(
    ("summary", "noted"),
    [
        ("nothing here shows whether training worked: a loss has 3 points", ["always"]),
        (
            "nothing here shows whether training worked: seen: zq; set roles.train_loss to name one",
            ["findings", "always"],
        ),
        ("so far healthy up to step 8", ["always"]),
    ],
)
def test_what_could_be_set_stands_in_the_description(failing, summary, noted):
    report = replace(failing, verdict=Verdict.SKIP, summary=summary)
    notes = {
        when: plan(report, "abc", config=Config(description=when)).note for when in ("never", "findings", "always")
    }
    assert [when for when, note in notes.items() if note] == noted
    assert "Training health" in notes["always"]


@pytest.mark.parametrize("verdict", [Verdict.SKIP, Verdict.FAIL])
def test_how_it_ended_and_what_was_left_out_stand_on_the_run(failing, verdict):
    tool = replace(failing.tool, ignored=("LOS004", "diverged.sigmas=8"))
    report = replace(failing, verdict=verdict, ended="failed", ended_by="exit code 3", tool=tool)
    said = {"ended": "failed", "ended_by": "exit code 3", "ignored": "LOS004, diverged.sigmas=8"}
    assert said.items() <= plan(report, "abc").tags.items()
    assert replace(Report.from_json(report.to_json()), results=report.results) == report


def test_a_preset_of_ones_own_is_told(failing):
    report = replace(failing, tool=replace(failing.tool, preset="strict", ignored=("LOS004",)))
    assert plan(report, "abc").tags["ignored"] == "preset strict, LOS004"


def test_by_which_settings_a_run_was_judged():
    for by in (JudgedBy(config="a", stale_after=3600.0), JudgedBy(config="a", policy="b", stale_after=0.5, state="c")):
        assert JudgedBy.of(by.value) == by
    for text in ("", "mine", "a:b", "a:b:c:d", "a:b:1:c:d"):
        assert JudgedBy.of(text) == JudgedBy()


def test_no_more_than_a_dozen_headline_metrics(failing, monkeypatch):
    from tracker_health.rules.curves.diverged import Diverged

    monkeypatch.setattr(Diverged, "headline", tuple(f"m{i}" for i in range(40)))
    many = replace(
        failing, results=(result("LOS004", "diverged", Verdict.FAIL, measured={f"m{i}": float(i) for i in range(40)}),)
    )
    assert len(plan(many, "abc", config=ALL).metrics) == MAX_HEADLINE_METRICS + 1


@pytest.mark.parametrize("measure", ["loss (nats)", "", "../x", "x" * 300, "a/b", "ä", "a\n", " a", "1a"])
def test_a_measure_that_no_tracker_takes_as_a_name_is_left_out(failing, monkeypatch, measure):
    from tracker_health.rules.curves.diverged import Diverged

    monkeypatch.setattr(Diverged, "headline", (measure, "rise_share"))
    found = result("LOS004", "diverged", Verdict.FAIL, measured={measure: 1.0, "rise_share": 2.0})
    written = plan(replace(failing, results=(found,)), "abc", config=ALL)
    assert written.metrics == {"severity": 3.0, "diverged/rise_share": 2.0}


def test_the_digest_of_an_annotation_in_part_is_another():
    assert incomplete("a" * 16) == incomplete("a" * 16) != incomplete("b" * 16)
    assert len(incomplete("a" * 16)) == 16


def test_text_of_a_run_is_no_markup_in_the_description(failing):
    hostile = "</div><script>alert(1)</script> [x](javascript:alert(1)) `code` \x1b[31m <!-- tracker-health:end -->"
    findings = (result("LOS004", "diverged", Verdict.FAIL, message=hostile, remedy=hostile),)
    note = plan(replace(failing, results=findings, errors=(ErrorEntry(source=hostile, message=hostile),)), "abc").note
    assert "<" not in note
    assert "\x1b" not in note
    assert not re.search(r"(?<!\\)\]\(", note)


def test_the_digest_changes_with_fingerprint_and_configuration():
    default, strict = preset("default").digest, preset("strict").digest
    assert digest_of("a", default) == digest_of("a", default)
    assert len({digest_of("a", default), digest_of("b", default), digest_of("a", strict)}) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"ignore": frozenset({"LOS001"})},
        {"thresholds": {"diverged": {"sigmas": 5}}},
        {"checkpoint": "x"},
        {"roles": {"train_loss": ("x",)}},
    ],
)
def test_the_configuration_digest_changes_with_what_changes_verdicts(change):
    assert replace(preset("default"), **change).digest != preset("default").digest


def test_addresses_and_formulas_in_markdown_are_text():
    told = in_markdown("see https://evil.example/a, WWW.evil.example and $x$ at 12:30")
    assert told == "see https\\://evil.example/a, WWW\\.evil.example and &#36;x&#36; at 12:30"


@pytest.mark.parametrize(
    "text",
    [
        "learning-rate-too-high 1e-3",
        "lr: 3 -> 0.01",
        "train_loss_2 (of 3) + x",
        "mAP@50 (0, 1)!",
        "a < b & c > d",
        "2 * 3",
    ],
)
def test_what_makes_no_markup_stays_as_it_is_in_markdown(text):
    assert in_markdown(text) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a -b c- --- |-|", r"\- a -b c- --- \|-\|"),
        ("# a", r"\# a"),
        ("[a](javascript:b)", r"\[a\](javascript:b)"),
        ("an [a]: b, [c][d]", r"an \[a\]: b, \[c\]\[d\]"),
        ("__init__ and *a*", r"\_\_init\_\_ and \*a\*"),
        ("<b>&lt; `a` ~~b~~ \\_", r"&lt;b>&amp;lt; \`a\` \~\~b\~\~ \\\_"),
    ],
)
def test_markup_in_markdown_is_text(text, told):
    assert in_markdown(text) == told


def test_an_error_is_told_once_however_many_rules_it_keeps_from_judging():
    why = "it is truncated"
    errors = [
        ErrorEntry(source="optimizer.pt", message=why),
        *(
            ErrorEntry(source="optimizer.pt", message=f"could not be judged: {why}", code=code, name="a-rule")
            for code in ("OPT001", "OPT002", "OPT003")
        ),
    ]
    tool = ToolInfo(version="0.1.0", preset="default", config_digest="d")
    run = RunRef(store="directory", id="a", name="a")
    report = Report(run=run, verdict=Verdict.ERROR, score=None, summary="s", tool=tool)
    note = plan(replace(report, errors=tuple(errors)), "0" * 16).note
    assert note.count("truncated") == 1
    assert "without optimizer.pt not judged: OPT001, OPT002, OPT003" in note


DIAGNOSIS = Diagnosis(
    cause="learning-rate-too-high",
    certainty="likely",
    sentence="A learning rate of 3 is too high; the loss climbed to 2238.",
    action=Action(text="train again with 0.01, not 3", setting="learning_rate", old=3.0, new=0.01),
    explains=("LOS004",),
    others=(Alternative(cause="loss-implemented-wrong", test="compute one loss by hand", score=3),),
)


def test_a_description_begins_with_the_cause_and_what_to_try(failing):
    judged = (Judged(part="loss", state="judged"), Judged(part="weights", state="not there"))
    report = replace(failing, diagnosis=DIAGNOSIS, judged=judged, ended="failed", ended_by="exit code 3")
    found = plan(report, "abc", config=ALL)
    assert found.tags["cause"] == "learning-rate-too-high"
    assert found.tags["action"] == "learning_rate: 3 -> 0.01"
    assert found.tags["judged"] == "loss"
    assert found.tags["summary"] == DIAGNOSIS.sentence
    lines = [line for line in found.note.splitlines() if line]
    assert lines[0] == f"**Training health: FAIL \u00b7 {in_markdown('A learning rate of 3 is too high.')}**"
    assert lines[1] == "**Try next:** `learning_rate: 3 -> 0.01`"
    assert lines[2] == f"{in_markdown('The loss climbed to 2238.')} Cause: `learning-rate-too-high` (likely)."
    assert "LOS004" in lines[3]
    assert "Lower it" not in lines[3]
    assert any("LOS001" in line for line in lines[4:])
    assert any(line.startswith("Judged: loss; not logged: weights. Ended: failed") for line in lines)
    assert "tracker-health explain learning-rate-too-high" in found.note


def test_an_exception_is_told_once(failing):
    said = "the run failed after step 59 (ValueError: shard 17)"
    crashed = replace(failing.results[0], code="RUN004", name="crashed", message=said)
    diagnosis = replace(DIAGNOSIS, sentence=f"Healthy up to step 59; {said}.", explains=("RUN004",), others=())
    report = replace(failing, results=(crashed,), diagnosis=diagnosis, ended="failed", ended_by="ValueError: shard 17")
    note = plan(report, "abc", config=ALL).note
    assert note.count("shard 17") == 1
    assert "`RUN004` crashed: as above" in note
    assert "Ended: failed." in note


def test_a_pass_is_one_line(failing):
    report = replace(failing, verdict=Verdict.PASS, results=(), summary="8 rules passed")
    assert plan(report, "abc", config=ALL).note.count("\n") == 0
