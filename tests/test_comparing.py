"""Several runs on one page."""

import json
import math
import webbrowser

from click.testing import CliRunner

from tracker_health import api
from tracker_health.api import table_of_runs
from tracker_health.cli import cli


def trained(folder, end, *, steps=300):
    folder.mkdir()
    rows = ({"step": step, "train_loss": end + 2 * math.exp(-step / 40)} for step in range(steps))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


def test_several_runs_are_a_table_with_their_curves_each_judged_by_itself(tmp_path):
    runs = [trained(tmp_path / f"seed-{seed}", 0.5 + seed / 100) for seed in range(6)]
    runs += [trained(tmp_path / "odd", 1.4), str(tmp_path / "nowhere"), trained(tmp_path / "short", 0.5, steps=40)]
    outcomes, page = table_of_runs(runs, title="seeds")
    text = page.decode()
    assert text.count('class="name">') == len(runs)
    assert text.count('<svg class="spark"') == len(runs) - 1
    assert [one.error is None for one in outcomes].count(False) == 1
    # What others did is no evidence against a run: they may differ on purpose.
    odd = next(one.report for one in outcomes if one.report.run.name == "odd")
    assert odd.to_json() == api.check(runs[6]).to_json()
    assert "CMP001" not in {one.code for one in odd.results}
    assert "comparable runs ended" not in text


def test_the_page_of_a_run_says_how_to_compare_it(tmp_path):
    run = trained(tmp_path / "alone", 0.5)
    page = tmp_path / "page.html"
    assert CliRunner().invoke(cli, ["report", run, "-o", str(page)]).exit_code == 0
    assert "tracker-health baseline save makes one, --against compares with it" in page.read_text()


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
