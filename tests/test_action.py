"""The composite action: its own script, run by bash as GitHub's runner does, on runs of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from click.testing import CliRunner

from tracker_health.cli import cli

ACTION = yaml.safe_load((Path(__file__).parent.parent / "action.yml").read_text())
STEPS = {step["id"]: step for step in ACTION["runs"]["steps"]}


def test_what_is_given_goes_through_the_environment_alone():
    for step in STEPS.values():
        assert "${{" not in step["run"]
    used = {value for step in STEPS.values() for value in step["env"].values()}
    for name in ("command", "targets", "args", "extras"):
        assert f"${{{{ inputs.{name} }}}}" in used
        assert name in ACTION["inputs"]


@pytest.fixture
def job(tmp_path):
    """Runs the action's script with these inputs; what came of it, the summary and the outputs."""
    tool = tmp_path / "bin" / "tracker-health"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tracker_health "$@"\n')
    tool.chmod(0o755)
    (tmp_path / "summary").touch()

    def run(command, targets, args=""):
        environment = os.environ | {
            "PATH": f"{tool.parent}:{os.environ['PATH']}",
            "COMMAND": command,
            "TARGETS": targets,
            "ARGS": args,
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS["judge"]["run"]],
            env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        output = (tmp_path / "output").read_text() if (tmp_path / "output").exists() else ""
        return done, (tmp_path / "summary").read_text(), output

    return run


@pytest.mark.slow
def test_runs_become_annotations_and_a_summary(job, write_log, healthy_losses):
    write_log(healthy_losses, folder="a run; touch pwned")
    write_log([*healthy_losses[:100], *[float("nan")] * 100], folder="sick")
    done, summary, output = job("check", "\na run; touch pwned\nsick\n\n", "--fail-on fail")
    assert done.returncode == 1, done.stderr
    assert [line.partition(" title=")[0] for line in done.stdout.splitlines()] == ["::notice", "::error"]
    assert summary.count("### ") == 2
    assert output == "exit-code=1\n"


def test_a_command_of_somebody_elses_is_refused(job):
    done, _, output = job("clear", "run")
    assert done.returncode == 2
    assert output == ""


def test_check_prints_a_test_report(write_log, healthy_losses):
    good = write_log(healthy_losses, folder="good")
    sick = write_log([*healthy_losses[:100], *[float("nan")] * 100], folder="sick")
    done = CliRunner().invoke(cli, ["check", "--format", "junit", str(good), str(sick), str(good.parent / "no such")])
    assert done.exit_code == 3
    suite = ET.fromstring(done.stdout.encode()).find("testsuite")
    assert [suite.get(key) for key in ("tests", "failures", "errors")] == ["3", "1", "1"]
