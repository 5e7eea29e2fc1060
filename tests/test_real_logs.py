"""Logs that no one here wrote: every public curve whose file is there is read as its owner's tools read it.

The files stay where they are; this test is skipped where they are not.
"""

import json
import math
from pathlib import Path

import pytest

from tracker_health.evidence import Request
from tracker_health.roles import RolePlan
from tracker_health.run_files.reading import read_files
from tracker_health.stores.folder.directory import DirectoryRun

FOLDER = Path(__file__).parent.parent.parent / "shared" / "real_runs"
KINDS = ("hf", "jsonl", "lightning", "tfevents")
AXES = {"step", "current_steps"}
"""Fields that the curves have as metrics too, and that a reader takes for the steps of the others."""

pytestmark = pytest.mark.skipif(not (FOLDER / "raw").is_dir(), reason="shared/real_runs is not here")


def read(folder):
    request = Request(roles=RolePlan({"any": ("*",)}), parts=frozenset())
    return read_files(DirectoryRun(folder), request)


def is_close(one, other):
    """The curves have seven digits."""
    return one == other or (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-5)


def disagreements(kind):
    """How many series were compared, and those that differ: run, metric, what the curve has, what was read."""
    compared, found = 0, []
    for path in sorted((FOLDER / "curves").glob(f"{kind}-*.json")):
        curve = json.loads(path.read_text())
        raw = FOLDER / "raw" / kind / curve["id"]
        if not raw.is_dir():
            continue
        evidence = read(raw)
        assert evidence.problems == []
        series = {one.name: one for one in evidence.series}
        for name, points in curve["metrics"].items():
            if name in AXES:
                continue
            compared += 1
            values = [float(value) for _, value in points]
            theirs = (len(points), sum(not math.isfinite(value) for value in values))
            mine = series.get(name)
            same = mine is not None and (len(mine), mine.nonfinite) == theirs
            if same and mine is not None:
                ends = [(0, points[0][0], values[0]), (-1, points[-1][0], values[-1])]
                same = all(mine.steps[at] == step and is_close(mine.values[at], value) for at, step, value in ends)
            if not same:
                found.append((curve["id"], name, theirs, mine and len(mine)))
    return compared, found


@pytest.mark.parametrize("kind", KINDS)
def test_every_series_has_the_same_points(kind):
    if kind == "tfevents":
        pytest.importorskip("tensorboard")
    compared, found = disagreements(kind)
    assert compared > 0
    assert found == []
