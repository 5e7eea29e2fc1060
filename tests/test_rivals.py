"""The page that compares four tools has every run and version, and what tracker-health says of these runs today."""

import contextlib
import importlib
import json
import re
import sys
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracker_health.cli import cli

pytest.importorskip("torch")

FOLDER = Path(__file__).parent.parent / "benchmarks" / "rivals"
NAMES = ("runs", "tools", "page")
sys.path.insert(0, str(FOLDER))
try:
    runs, tools, page = (importlib.import_module(name) for name in NAMES)
finally:
    sys.path.remove(str(FOLDER))
    for name in NAMES:
        sys.modules.pop(name, None)

TEXT = page.PAGE.read_text(encoding="utf-8")
OURS = [tool for tool in tools.TOOLS if tool.command[0] == "tracker-health"]


def test_page_has_all_runs_and_versions():
    assert len(runs.RUNS) == 10
    versions = dict(tools.versions())
    assert set(versions) == {tool.name for tool in tools.TOOLS} - {tool.name for tool in OURS}
    for tool in tools.TOOLS:
        assert f"| {tool.name} | {versions.get(tool.name, 'this repository')} |" in TEXT
        for run in runs.RUNS:
            assert re.search(rf"^\| {run.name} \| {tool.name} \| [^|]+ \| [^|]+ \|$", TEXT, re.MULTILINE)
    for run in runs.RUNS:
        assert f"| {run.name} | {run.truth} |" in TEXT


def test_results_follow_the_rule_of_the_page():
    overfit, healthy = (next(run for run in runs.RUNS if run.name == name) for name in ("overfit", "healthy"))
    losslint = next(tool for tool in tools.TOOLS if tool.name == "losslint")
    note = tools.Answer((("info", "overfit_onset: eval loss has worsened"),))
    warning = tools.Answer((("warning", "loss_spike: once"),))
    assert page.cell_of(overfit, losslint, [note, warning, tools.Answer()]) == "1 of 3<br>named 1"
    assert page.cell_of(healthy, losslint, [note, warning, tools.Answer(failed="no answer")]) == "1 of 3"


def test_page_is_filled_between_its_markers():
    silent = {(run.name, tool.name): [tools.Answer()] for run in runs.RUNS for tool in tools.TOOLS}
    text = page.filled(TEXT, silent, date(2026, 1, 2))
    assert "Last run: 2 January 2026." in text
    assert text.count("| **3 of 3** ") == text.count("| **0 of 7<br>named 0** ") == len(tools.TOOLS)


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """What tracker-health says of a training, by the command that the page shows."""
    monkeypatch.chdir(tmp_path)

    def answer(run, tool, seed):
        if not (tmp_path / str(seed)).exists():
            run.make(tmp_path / str(seed) / run.name, seed)
        with contextlib.chdir(tmp_path / str(seed)):
            return tool.read(json.loads(CliRunner().invoke(cli, tool.arguments(run.name)).stdout))

    return answer


@pytest.mark.parametrize("run", runs.RUNS, ids=lambda run: run.name)
def test_page_has_what_tracker_health_says_today(run, ask):
    for tool in OURS:
        assert page.line_of(run, tool, ask(run, tool, 0)) in TEXT.splitlines(), "make rivals writes the page again"


@pytest.mark.slow
@pytest.mark.parametrize("run", runs.RUNS, ids=lambda run: run.name)
def test_page_has_how_often_tracker_health_is_right(run, ask):
    cells = [page.cell_of(run, tool, [ask(run, tool, seed) for seed in range(page.SEEDS)]) for tool in OURS]
    assert f"| {run.name} | {' | '.join(cells)} |" in TEXT
