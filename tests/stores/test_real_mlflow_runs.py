"""Folders out of other people's MLflow file stores: every point is read, nothing breaks, each gets a verdict.

They stay where they are; this test is skipped where they are not.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import tracker_health as th
from tracker_health.evidence import Request, StepUnit
from tracker_health.roles import RolePlan
from tracker_health.stores.mlflow.folder import open_run_folder

REAL = Path(__file__).parents[3] / "shared" / "real_runs"
FOLDERS = sorted((REAL / "raw" / "mlflow").glob("*"))

pytestmark = pytest.mark.skipif(not FOLDERS, reason="shared/real_runs/raw/mlflow is not here")

EVERYTHING = Request(roles=RolePlan(every=True), parts=frozenset())


def the_folders():
    return pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@the_folders()
def test_every_point_is_read(folder):
    evidence = open_run_folder(folder).read(EVERYTHING)
    expected = json.loads((REAL / "curves" / f"{folder.name}.json").read_text())["metrics"]
    assert evidence.problems == ()
    assert {series.name for series in evidence.series} == expected.keys()
    for series in evidence.series:
        points = expected[series.name]
        values = np.array([float(value) for _, value in points])
        values[np.abs(values) > 1.79e308] *= math.inf
        assert len(series) == len(points)
        assert series.nonfinite == np.count_nonzero(~np.isfinite(values))
        if len(set(series.steps)) == 1 or series.step_unit is not StepUnit.LOG_CALL:
            assert [series.steps[0], series.steps[-1]] == [points[0][0], points[-1][0]]
        assert [series.values[0], series.values[-1]] == pytest.approx([values[0], values[-1]], rel=1e-6, nan_ok=True)
        clean = series.clean()
        assert len(clean)
        assert np.all(np.diff(clean.steps) > 0)


@the_folders()
def test_each_gets_a_verdict(folder):
    report = th.check(folder)
    assert report.errors == ()
    assert report.verdict in {th.Verdict.PASS, th.Verdict.WARN, th.Verdict.FAIL, th.Verdict.SKIP}
    assert not (folder / "health").exists()


@the_folders()
@pytest.mark.thinned(3)
def test_in_a_store_mlflow_gives_the_same(folder, tmp_path):
    pytest.importorskip("mlflow")
    meta = dict(line.split(": ", 1) for line in (folder / "meta.yaml").read_text().splitlines() if ": " in line)
    experiment, run_id = (meta[key].strip("'\"") for key in ("experiment_id", "run_id"))
    place = tmp_path / "mlruns" / experiment / run_id
    shutil.copytree(folder, place)
    (place / "_experiment_meta.yaml").rename(place.parent / "meta.yaml")
    for name in ("artifacts", "params"):  # empty ones were left behind
        (place / name).mkdir(exist_ok=True)
    alone, tracked = th.check(folder), th.check(place)
    assert (tracked.run.store, tracked.run.id) == ("mlflow", run_id)
    assert tracked.verdict == alone.verdict
    assert [result.measured for result in tracked.results] == [result.measured for result in alone.results]
