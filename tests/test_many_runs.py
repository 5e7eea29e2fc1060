"""Many runs: what failed is said at the end, and is shown by verdict, in an order, with a page of each."""

import json
import math
import shlex
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner

from tracker_health.cli import cli
from tracker_health.report.settings_table import MOST_SETTINGS, differing_settings, kept_settings
from tracker_health.words.order import ORDERS, Place
from tracker_health.words.verdict import Verdict


def invoke(*arguments, **options):
    return CliRunner().invoke(cli, [*map(str, arguments)], **options)


@pytest.fixture
def runs(tmp_path):
    """Five that pass, two that become NaN, and one without a log."""
    folders = []
    for number in range(7):
        folder = tmp_path / f"run {number}"
        folder.mkdir()
        losses = [0.5 + 2 * math.exp(-step / 40) if number < 5 or step < 100 else math.nan for step in range(300)]
        rows = ({"step": step, "train_loss": loss} for step, loss in enumerate(losses))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "config.json").write_text(json.dumps({"lr": 10.0**-number, "optimizer": "adam"}))
        folders.append(folder)
    (tmp_path / "empty").mkdir()
    return [*folders, tmp_path / "empty"]


def verdicts(result):
    return [line.split()[0] for line in result.stdout.splitlines()]


def test_many_runs_end_with_what_failed_and_the_command_for_their_page(runs, tmp_path, monkeypatch):
    result = invoke("check", *runs, "--set", "probes.diverged.sigmas=6")
    lines = result.stderr.splitlines()
    assert any(line.split()[:3] == ["fail", "2", "non-finite-loss"] for line in lines)
    worst = [line for line in lines if "  FAIL  " in line and "/run" in line]
    assert len(worst) == 2
    assert all(len(line) <= 100 for line in worst)
    command = shlex.split(next(line.removeprefix("page") for line in lines if line.startswith("page")))
    assert command == ["tracker-health", "report", "-o", "failed.html", "--set", "probes.diverged.sigmas=6"] + [
        str(run) for run in runs[5:7]
    ]
    monkeypatch.chdir(tmp_path)
    assert invoke(*command[1:]).exit_code == 0
    assert (tmp_path / "failed.html").read_text().count('class="name">') == 2


def test_a_selection_is_repeated_as_it_was_typed(runs):
    listed = "\n".join(map(str, runs))
    result = invoke("check", "-", input=listed)
    assert "report -o failed.html " in result.stderr  # a list cannot be read again: these two are named
    bad = [*runs[5:7]] * 3
    result = invoke("check", "--only", "fail", *bad)
    assert f"report -o failed.html --only fail {shlex.quote(str(bad[0]))} " in result.stderr


def test_healthy_runs_have_no_page_of_failures(runs):
    result = invoke("check", *runs[:5], *runs[:5])
    assert "page" not in result.stderr


def test_only_hides_runs_and_neither_the_exit_code_nor_the_counts(runs):
    whole, some = invoke("check", *runs), invoke("check", *runs, "--only", "pass,skip")
    assert whole.exit_code == some.exit_code == 3
    assert verdicts(some) == ["PASS"] * 5
    assert "3 runs left out by --only pass,skip" in some.stderr
    assert "fail        2" in some.stderr
    assert len(invoke("check", *runs, "--only", "fail", "--json").stdout.splitlines()) == 2
    unknown = invoke("check", *runs, "--only", "bad")
    assert unknown.exit_code == 2
    assert "none of pass, warn, fail, skip, error" in unknown.stderr


def test_runs_are_shown_in_an_order(runs):
    result = invoke("check", *runs, "--sort", "verdict")
    assert verdicts(result) == ["FAIL"] * 2 + ["ERROR"] + ["PASS"] * 5
    lines = invoke("check", *reversed(runs), "--sort", "name").stdout.splitlines()
    names = [line[7:].split("  ")[0].rpartition("/")[2] for line in lines]
    assert names == ["empty", *(f"run {number}" for number in range(7))]


def test_orders():
    places = [Place(Verdict.PASS, "lr0.1", "b"), Place(Verdict.FAIL, "lr0.01"), Place(Verdict.WARN, "lr10", "a")]
    orders = {name: [place.name for place in sorted(places, key=key)] for name, key in ORDERS.items()}
    assert orders == {
        "verdict": ["lr0.01", "lr10", "lr0.1"],
        "name": ["lr0.01", "lr0.1", "lr10"],
        "cause": ["lr10", "lr0.1", "lr0.01"],
    }


class Links(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found += [dict(attrs)["href"]] if tag == "a" else []


def test_a_folder_has_a_page_of_each_run(runs, tmp_path):
    pages = tmp_path / "pages"
    result = invoke("report", *runs, runs[0], "-o", f"{pages}/", "--only", "pass,fail")
    assert "pages/index.html: 6 pass, 0 warn, 2 fail" in result.stdout
    assert "1 run left out by --only pass,fail" in result.stderr
    text = (pages / "index.html").read_text()
    assert "8 of 9 runs that were judged are shown" in text
    links = Links(text).found
    assert sorted(links) == sorted(path.name for path in pages.iterdir() if path.name != "index.html")
    assert {f"{tmp_path.name}-run-0.html", f"{tmp_path.name}-run-0-2.html"} <= {*links}
    page = (pages / f"{tmp_path.name}-run-0-2.html").read_text()
    assert f"<b>{tmp_path.name}/run 0</b>" in page
    assert Links(page).found[1] == "index.html"


def test_a_page_links_what_annotate_left_in_the_folders(runs, tmp_path):
    invoke("annotate", runs[5])  # one that passes gets no page
    invoke("report", *runs[4:6], "-o", tmp_path / "page.html")
    assert Links((tmp_path / "page.html").read_text()).found == ["run%205/health/report.html"]


def test_settings_that_differ_are_columns(runs, tmp_path):
    invoke("report", *runs, "-o", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert 'class="setting number" data-of="lr"' in text
    assert 'data-of="optimizer"' not in text


def test_a_whole_number_is_shown_without_its_point():
    columns, _ = differing_settings([kept_settings({"steps": text}) for text in ("3000.0", "2400", "0.5")])
    assert columns[0].values == ("3000", "2400", "0.5")
    assert differing_settings([kept_settings({"steps": text}) for text in ("3000.0", "3000")]) == ((), ())


def test_which_settings_are_columns():
    runs = [
        {"a/lr": f"{10.0**-n}", "lr": f"{10.0**-n}", "same": "1", "output_dir": f"/{n}", "b.beta": f"{n}", "x": f"<{n}"}
        | {f"other{i}": f"{n * i}" for i in range(1, 12)}
        for n in range(4)
    ]
    runs[2].pop("b.beta")
    columns, left = differing_settings([*runs, {}])
    assert columns[0].name == "lr"  # the shorter of two that are the same
    assert columns[0].numbers[1] == 0.1
    assert len(columns) == MOST_SETTINGS
    shown = {one.name for one in columns} | {*left}
    assert {"x", "b.beta"} <= shown
    assert not {"same", "output_dir", "a/lr"} & shown
    assert differing_settings([]) == ((), ())
