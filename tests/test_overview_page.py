"""The page about many runs: what it counts, and that nothing of a run gets out of it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("jinja2")

from tracker_health.evidence import RunRef
from tracker_health.evidence.kin import Kin
from tracker_health.fleet.overview_page import GROUPED_BY, MOST_WORST, overview_page
from tracker_health.render.stacks import Column, columns
from tracker_health.runs.overview import overview
from tracker_health.stores.base import TaggedRun
from tracker_health.words.acknowledgements import acknowledgement
from tracker_health.words.verdict import Verdict

NOW = datetime(2026, 1, 7, 12, tzinfo=UTC)
"""A Wednesday of 2026-W02."""


def run(number, verdict, *, cause="", days=0.0, user="ana", experiment="a", url=None, name="", summary="it rose"):
    ref = RunRef(store="mlflow", id=f"{number:032x}", name=name or f"run {number}", url=url)
    began = (NOW - timedelta(days=days)).timestamp()
    codes = ("LOS004",) if verdict is not Verdict.PASS else ()
    return TaggedRun(
        ref=ref, verdict=verdict, codes=codes, summary=summary, cause=cause, user=user, experiment=experiment,
        started=began,
    )  # fmt: skip


def page(runs):
    found = overview(runs, GROUPED_BY, now=NOW.timestamp(), most_worst=MOST_WORST)
    return overview_page(found, title="Experiment a", now=NOW.timestamp()).decode()


def rows(html, table):
    """The rows of the table of a class: each a list of its cells' text."""
    body = re.search(rf'<table class="{table}".*?<tbody[^>]*>(.*?)</tbody>', html, re.DOTALL)[1]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in body.split("</tr>")]
    return [[re.sub(r"<[^>]+>", "", cell).strip() for cell in row] for row in cells if row]


def titles(html):
    return re.findall(r"<g><title>(.*?)</title>", html)


def test_weeks_without_runs_are_drawn_across_a_new_year_and_weeks_to_come_are_not():
    html = page([
        run(1, Verdict.FAIL, days=0), run(2, Verdict.PASS, days=0), run(3, Verdict.WARN, days=21),
        run(4, Verdict.PASS, days=-400), replace(run(5, Verdict.PASS), started=None),
    ])  # fmt: skip
    assert titles(html) == [
        "2025-W51, from 15 Dec 2025: 1 run: 1 warn",
        "2025-W52, from 22 Dec 2025: no runs",
        "2026-W01, from 29 Dec 2025: no runs",
        "2026-W02, from 05 Jan 2026: 2 runs: 1 fail, 1 pass",
    ]
    assert "2 of other weeks or without a start are not drawn" in html


def test_half_a_year_of_weeks_is_drawn():
    html = page([run(number, Verdict.PASS, days=7 * number) for number in range(40)])
    assert len(titles(html)) == 26
    assert titles(html)[-1].startswith("2026-W02")
    assert "14 of other weeks" in html


@pytest.mark.parametrize(
    ("amount", "weeks", "shown"),
    [(7, 1, "7"), (1_234, 1, "1,234"), (1_234, 26, "1.2k"), (123_456, 26, ""), (12, 26, "12")],
)
def test_a_number_stands_in_its_column_as_far_as_it_fits(amount, weeks, shown):
    week = Column(label="W01", below="", name="2026-W01", counts={"pass": amount})
    svg = columns([week] * weeks, ["fail", "pass"], title="t")
    assert re.findall(r'class="in"[^>]*>([^<]*)<', svg) == ([shown] * weeks if shown else [])


def test_causes_are_counted_by_week_user_and_experiment():
    html = page([
        run(1, Verdict.FAIL, cause="overfitting"), run(2, Verdict.FAIL, cause="overfitting", user="bo"),
        run(3, Verdict.FAIL, cause="rate-zero", days=7, experiment="b"), run(4, Verdict.PASS, user="bo"),
    ])  # fmt: skip
    assert rows(html, "heat by-week") == [["overfitting", "", "2", "2", ""], ["rate-zero", "1", "", "1", ""]]
    users, experiments = html.split('class="tally"')[1:]
    (ana, bo), (first, second) = (rows(f'<table class="tally"{part}', "tally") for part in (users, experiments))
    assert [cell for cell in ana if cell] == ["ana", "2", "2", "overfitting 1, rate-zero 1"]
    assert [cell for cell in bo if cell] == ["bo", "2", "1", "overfitting 1"]
    assert [first[0], first[1], second[0], second[1]] == ["a", "3", "b", "1"]


def test_the_worst_come_first_and_only_web_pages_are_linked():
    html = page([
        run(1, Verdict.PASS), run(2, Verdict.WARN, url="https://mlflow.example/#/runs/2"),
        run(3, Verdict.FAIL, days=3, url="javascript:alert(1)"), run(4, Verdict.FAIL),
    ])  # fmt: skip
    assert [row[0] for row in rows(html, "runs plain")] == ["FAIL", "FAIL", "WARN"]
    assert [row[1].split("\n")[0][:5] for row in rows(html, "runs plain")] == ["run 4", "run 3", "run 2"]
    assert re.findall(r'href="([^"]+)"', html) == ["https://mlflow.example/#/runs/2"]


def test_precision_is_shown_where_people_have_answered():
    entry = {"when": NOW.timestamp(), "because": "looked", "codes": ["LOS004"], "cause": ""}
    right = acknowledgement(id="1" * 16, who="ana", **entry)
    wrong = acknowledgement(id="2" * 16, who="bo", wrong=True, **entry)
    flagged = [replace(run(number, Verdict.FAIL), acks=acks) for number, acks in enumerate([(right,), (wrong,), ()])]
    assert rows(page(flagged), "answers") == [["LOS004 diverged", "3", "1", "1", "50 %"]]
    assert "Nobody has answered a verdict yet" in page([run(1, Verdict.FAIL)])


def test_nothing_of_a_run_becomes_markup_and_nothing_is_asked_of_a_network():
    evil = '<script>alert("x")</script>"\'&'
    html = page([
        run(1, Verdict.FAIL, cause=evil, user=evil, experiment=evil, name=evil, summary=evil, url=f"https://x/{evil}"),
        run(2, Verdict.FAIL, user="\u202eb", experiment="b"),
    ])  # fmt: skip
    assert html.count("<script") == 2, "the page's own: its data, and no script"
    assert "\u202e" not in html
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1]
    assert "default-src &#39;none&#39;" in policy or "default-src 'none'" in policy
    assert " style=" not in html, "which the policy would refuse"


def test_its_size_does_not_grow_with_the_runs():
    def some(amount):
        for number in range(amount):
            names = {"user": f"user {number}", "experiment": f"experiment {number}", "cause": f"cause-{number}"}
            yield run(number, Verdict.FAIL, days=number % 900, **names)

    few, many = page(some(300)), page(some(6_000))
    assert len(many) < 1.05 * len(few)
    assert "5985 more with fewer runs" in many


def test_without_runs_there_is_a_page():
    html = page([])
    assert "0 runs" in html
    assert "<table" not in html


def test_how_sure_a_cause_is_and_which_of_the_worst_are_acknowledged():
    """A run somebody has answered is no longer one to look at; of an answer, what a person writes is escaped."""
    entry = {"when": NOW.timestamp(), "because": "known", "codes": ["LOS004"], "cause": "overfitting"}
    said = acknowledgement(id="1" * 16, who="<b>ana</b>", **entry)
    sure, likely = (run(number, Verdict.FAIL, cause="overfitting") for number in (1, 2))
    html = page([replace(sure, certainty="certain", acks=(said,)), replace(likely, certainty="likely")])
    assert rows(html, "heat by-week") == [["overfitting", "2", "2", "1"]]
    assert [row[2:4] for row in rows(html, "runs plain")] == [
        ["overfitting (certain)", "It rose. (acknowledged by &lt;b&gt;ana&lt;/b&gt;)"],
        ["overfitting (likely)", "It rose."],
    ]


def test_what_each_group_is_stands_on_the_page_as_text():
    kin = [Kin(where="a", id=str(at), name=f"<i>{at}", group="<b>g", seed=str(at)) for at in range(2)]
    runs = [replace(run(at, Verdict.PASS), kin=one) for at, one in enumerate(kin)]
    found = overview(runs, (*GROUPED_BY, "group"), now=NOW.timestamp(), most_worst=MOST_WORST)
    html = overview_page(found, title="a", now=NOW.timestamp()).decode()
    assert "&lt;b&gt;g</b>: 2 seeds: 2 pass" in html
    assert "<b>g" not in html
