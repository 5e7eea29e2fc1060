"""Public training curves with an expert's labels: nothing breaks on them, and the rules agree with the expert where he is sure.

The curves stay where they are; this test is skipped where they are not.
"""

import importlib
import json
from pathlib import Path

import pytest

from tracker_health.words.verdict import Verdict

ROOT = Path(__file__).parent.parent
CURVES = ROOT.parent / "shared" / "real_runs"

pytestmark = pytest.mark.skipif(not (CURVES / "labels.csv").is_file(), reason="shared/real_runs is not here")


@pytest.fixture(scope="module")
def public_runs():
    """The script that scores them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        return importlib.import_module("public_runs")


@pytest.fixture(scope="module")
def judged(public_runs):
    """Every curve with its report."""
    return public_runs.judged(CURVES)


@pytest.fixture(scope="module")
def sure(public_runs, judged):
    """Those with a label that the expert is sure of."""
    return public_runs.sure(judged)


def share(runs, *, flagged):
    assert runs
    return sum(one.flagged is flagged for one in runs) / len(runs)


@pytest.mark.slow
def test_nothing_breaks(judged):
    assert len(judged) == 203
    assert sum(bool(one.report.errors) for one in judged) == 0
    assert {one.report.verdict for one in judged} <= {Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.SKIP}
    for one in judged:
        json.dumps(one.report.to_json(), allow_nan=False)


@pytest.mark.slow
def test_healthy_runs_pass(sure):
    healthy = [one for one in sure if one.row["label"] == "healthy"]
    assert len(healthy) >= 50
    assert share(healthy, flagged=False) >= 0.95


@pytest.mark.slow
def test_sick_runs_are_flagged(public_runs, sure):
    bad = [one for one in sure if one.row["label"] in public_runs.CLASSES]
    assert share(bad, flagged=True) >= 0.9
    for name in {public_runs.CLASSES[one.row["label"]] for one in bad}:
        assert share([one for one in bad if public_runs.CLASSES[one.row["label"]] == name], flagged=True) >= 0.75, name
