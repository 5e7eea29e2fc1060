"""Public training curves with an expert's labels: nothing breaks on them, and the rules agree with the expert where he is sure.

The curves stay where they are; this test is skipped where they are not.
"""

import csv
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tracker_health.config import Config
from tracker_health.engine import diagnose, needs_of
from tracker_health.evidence import Evidence, RunInfo, RunRef, Series, StepUnit
from tracker_health.verdict import Verdict

CURVES = Path(__file__).parent.parent.parent / "shared" / "real_runs"

pytestmark = pytest.mark.skipif(not (CURVES / "labels.csv").is_file(), reason="shared/real_runs is not here")

SICK = {"nan", "diverged", "flat/not-learning"}
FLAGGED = {Verdict.WARN, Verdict.FAIL}


def evidence_of(curve):
    """Evidence in file order, as a reader would make it."""
    roles = needs_of(Config()).select_names(list(curve["metrics"]))
    unit = StepUnit.OPTIMIZER_STEP if curve["kind"] == "hf" else StepUnit.UNKNOWN
    series = [
        Series(
            name=name,
            role=role,
            steps=np.array([int(step or 0) for step, _ in curve["metrics"][name]], dtype=np.int64),
            values=np.array([float(value) for _, value in curve["metrics"][name]]),
            step_unit=unit,
        )
        for name, role in roles.items()
    ]
    run = RunRef(store="directory", id="curve", name="curve")
    return Evidence(run=run, series=tuple(series), info=RunInfo(metric_names=tuple(curve["metrics"])))


@pytest.fixture(scope="module")
def judged():
    """(label row, report) for every curve."""
    with (CURVES / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        (row, diagnose(evidence_of(json.loads((CURVES / "curves" / f"{row['id']}.json").read_text())), Config()))
        for row in rows
    ]


@pytest.fixture(scope="module")
def sure(judged):
    """Those with a high-confidence label, one of each group of the same run."""
    seen = set()
    kept = []
    for row, report in judged:
        group = row["same_run_group"]
        if row["confidence"] == "high" and (not group or group not in seen):
            seen.add(group)
            kept.append((row["label"], report))
    return kept


def test_nothing_breaks(judged):
    assert len(judged) == 203
    assert sum(bool(report.errors) for _, report in judged) == 0
    assert {report.verdict for _, report in judged} <= {Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.SKIP}
    for _, report in judged:
        json.dumps(report.to_json(), allow_nan=False)


def test_healthy_runs_pass(sure):
    verdicts = Counter(report.verdict for label, report in sure if label == "healthy")
    assert verdicts.total() >= 50
    assert verdicts[Verdict.PASS] >= 0.9 * verdicts.total()


def test_sick_runs_are_flagged(sure):
    flagged = [report.verdict in FLAGGED for label, report in sure if label in SICK]
    assert len(flagged) >= 15
    assert sum(flagged) >= 0.7 * len(flagged)
