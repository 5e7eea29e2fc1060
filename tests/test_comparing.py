"""Runs beside each other: from folders to one page."""

import json
import math
import webbrowser

from click.testing import CliRunner

from tracker_health.api import compare
from tracker_health.cli import cli
from tracker_health.words.verdict import Verdict


def trained(folder, end, *, steps=300):
    folder.mkdir()
    rows = ({"step": step, "train_loss": end + 2 * math.exp(-step / 40)} for step in range(steps))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


def test_the_run_that_ended_worse_than_its_like_is_told_on_the_page(tmp_path):
    runs = [trained(tmp_path / f"seed-{seed}", 0.5 + seed / 100) for seed in range(6)]
    runs += [trained(tmp_path / "odd", 1.4), str(tmp_path / "nowhere"), trained(tmp_path / "short", 0.5, steps=40)]
    outcomes, page = compare(runs, title="seeds")
    by_name = {outcome.report.run.name: outcome for outcome in outcomes}
    odd = {name for name, one in by_name.items() for found in one.report.results if found.code == "CMP001"
           if found.verdict is Verdict.WARN}  # fmt: skip
    assert odd == {"odd"}
    assert page.decode().count("CMP001: the loss ended at 1.4") == 1
    assert by_name["odd"].report.verdict is Verdict.PASS  # a preview rule does not vote
    assert [one.error is None for one in outcomes].count(False) == 1
    assert any(one.code == "CMP001" for one in by_name["short"].report.skipped)
    voted, _ = compare(runs[:7], title="seeds", config="strict")
    assert {one.report.verdict for one in voted} == {Verdict.PASS}  # nor do living siblings where previews do


def test_one_run_is_beside_nobody(tmp_path):
    run = trained(tmp_path / "alone", 0.5)
    page = tmp_path / "page.html"
    assert CliRunner().invoke(cli, ["report", run, "-o", str(page)]).exit_code == 0
    assert "tracker-health report --experiment NAME judges them together" in page.read_text()
    assert "At the time of judging" not in page.read_text()


def test_who_cannot_be_read_is_named_and_the_others_are_on_the_page(tmp_path):
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "metrics.jsonl").write_text("nothing\n" * 20)
    page = tmp_path / "page.html"
    runs = [trained(tmp_path / "sound", 0.5), str(tmp_path / "torn"), str(tmp_path / "nowhere")]
    result = CliRunner().invoke(cli, ["report", "-q", *runs, "-o", str(page)])
    assert result.exit_code == 3
    assert "torn: metrics.jsonl" in result.stderr
    assert "nowhere" in result.stderr
    assert page.read_text().count('class="name">') == 3
    alone = CliRunner().invoke(cli, ["report", "-q", runs[1], "-o", str(page)])
    assert alone.exit_code == 3
    assert "torn: metrics.jsonl" in alone.stderr


def test_a_report_without_a_name_is_written_beside_and_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["report", trained(tmp_path / "run", 0.5)])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("wrote health-report.html: ")
    assert "<h1>" in (tmp_path / "health-report.html").read_text()


def test_a_report_is_opened_where_there_is_a_browser(tmp_path, monkeypatch):
    opened, run = [], trained(tmp_path / "run", 0.5)
    monkeypatch.setattr(webbrowser, "open", lambda address: bool(opened.append(address)))
    page = tmp_path / "a page.html"
    result = CliRunner().invoke(cli, ["report", run, "-o", str(page), "--open"])
    assert result.exit_code == 0
    assert opened == [page.as_uri()]
    assert f"open {page.as_uri()}" in result.output  # as no browser was started
    result = CliRunner().invoke(cli, ["report", run, "-o", "-", "--open"])
    assert result.exit_code == 2
    assert "cannot be opened" in result.output
