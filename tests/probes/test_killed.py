"""RUN003: a run that nobody ended."""

from __future__ import annotations

import pytest

from tracker_health.config import preset
from tracker_health.engine import diagnose
from tracker_health.evidence import Evidence, RunInfo, RunRef
from tracker_health.probes.killed import Killed
from tracker_health.verdict import Verdict

CONFIG = preset("default")


def judged(**info):
    evidence = Evidence(run=RunRef(store="mlflow", id="x", name="x"), info=RunInfo(**info))
    return diagnose(evidence, CONFIG, probes=[Killed()])


@pytest.mark.parametrize(
    "info",
    [
        {"status": "RUNNING", "ended_by": "SIGKILL"},
        {"ended_by": "SIGTERM"},
        {"status": "CRASHED"},
        {"status": "RUNNING", "ended_by": "SIGSEGV", "params": {"max_steps": "10"}, "global_step": 3},
    ],
)
def test_killed(info):
    report = judged(**info)
    (finding,) = report.findings
    assert (report.verdict, finding.symptom) == (Verdict.FAIL, "killed")
    assert finding.measured["ended_by"] == info.get("ended_by", "the tracker says crashed")
    assert not any("still" in note for note in report.notes)


def test_the_step_reached_is_told():
    assert "after 3 optimizer steps" in judged(status="RUNNING", ended_by="SIGSEGV", global_step=3).findings[0].message


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", "KILLED"])
@pytest.mark.parametrize("ended_by", ["", "SIGKILL"])
def test_a_run_that_was_ended(status, ended_by):
    """Also where its process died later, of what ever."""
    (result,) = judged(status=status, ended_by=ended_by).results
    assert result.verdict is Verdict.PASS


@pytest.mark.parametrize(("status", "reason"), [("RUNNING", "running"), ("", "no tracker"), ("PREEMPTED", "preempted")])
def test_how_it_ended_is_not_known(status, reason):
    (skipped,) = judged(status=status).skipped
    assert reason in skipped.reason


def test_a_killed_run_did_not_reach_its_plan():
    """Its tracker calls it running, which would excuse that."""
    info = {"params": {"max_steps": "100"}, "global_step": 30, "status": "RUNNING"}
    progress = [
        Evidence(run=RunRef(store="mlflow", id="x", name="x"), info=RunInfo(**info, **more)).progress
        for more in ({}, {"ended_by": "SIGKILL"})
    ]
    assert [one.snapshot for one in progress] == [True, False]
