"""Every declared form of console logs: its example is its test, and no other form takes its lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tracker_health.readers.log_formats import read_log
from tracker_health.readers.log_formats.text_forms import FORMS
from tracker_health.roles import RolePlan

POINT = re.compile(r"\(([\d.]+), ([-\d.einfa]+)\)")


@pytest.mark.parametrize("form", FORMS, ids=[form.title for form in FORMS])
def test_the_example_is_read_as_it_says(form, tmp_path):
    assert form.points
    path = tmp_path / ("train_loss.txt" if "<file>" in form.written else "console.log")
    path.write_text("\n".join(form.lines) + "\n")
    log, _ = read_log(path, path.name, RolePlan(every=True))
    found = {one.name: list(zip(one.steps.tolist(), one.values.tolist(), strict=True)) for one in log.series}
    for line in form.points:
        name, _, points = line.partition(": ")
        assert found.get(name) == [(float(step), float(value)) for step, value in POINT.findall(points)], name


@pytest.mark.parametrize("form", FORMS, ids=[form.title for form in FORMS])
def test_a_line_of_the_example_has_no_form_before_it(form):
    assert form in [next((one for one in FORMS if one.pattern.search(line)), None) for line in form.lines]


def test_the_page_on_forms_says_how_to_add_one():
    page = (Path(__file__).parents[2] / "docs" / "add-a-form.md").read_text()
    assert all(form.title in page for form in FORMS)


@pytest.mark.parametrize("second", ["REWARD", "POLICY", "VALUE", "ACTOR", "CRITIC", "MODEL", "ALPHA", "RETURN"])
def test_of_losses_printed_equally_often_the_first_counts_the_rows(second, tmp_path):
    """By a set's order the other one did in half of all processes, and the first's first value was lost."""
    path = tmp_path / "train.log"
    path.write_text("".join(f"INFO:rl:TD LOSS: {at + 1}.5\nINFO:rl:{second} LOSS: 0.{at}1\n" for at in range(9)))
    log, _ = read_log(path, path.name, RolePlan(every=True))
    assert [one.steps.tolist() for one in log.series] == [list(range(1, 10))] * 2
