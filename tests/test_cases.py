"""Runs as people have them, whose logs must be read: the verdict that each must get."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import tracker_health

CASES = Path(__file__).parent / "data" / "cases"
# Flat from the start to the end: whether that is a warning or a failure is the rule's to say.
NOT_OF_READING = {"log-keras-history-csv-without-index-flat/run"}


def rows():
    with (CASES / "expected.csv").open(newline="") as file:
        return [
            row
            for row in csv.DictReader(file)
            if row["about"] == "reading" and row["folder"] not in NOT_OF_READING and (CASES / row["folder"]).is_dir()
        ]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["folder"])
def test_the_verdict_on_a_case(row):
    report = tracker_health.check(CASES / row["folder"])
    codes = {one.code for one in report.results if one.verdict in ("warn", "fail") and one.votes}
    assert report.verdict in row["verdict"].split("|")
    assert not row["one_of_codes"] or codes & set(row["one_of_codes"].split("|"))
    assert not codes & set(row["none_of_codes"].split("|"))
