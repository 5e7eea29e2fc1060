"""Every kind of broken or hostile file, judged as a whole run in a process of its own that is watched and limited."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import MEMORY_ABOVE_START, SECONDS, SLOWNESS, assert_one_line_of, quickest
from .hostile import BOTH, LOGS, NAMES, ONE_FORMAT, SAVE, WEIGHTS, named

pytest.importorskip("torch")

# One process that has everything imported; each sample is judged in a fork of it, which starts small and alone.
_CHILD = (
    SLOWNESS
    + """
import json, os, resource, sys
from pathlib import Path
import tracker_health
tracker_health.check(sys.argv[1])

def judged(folder):
    used = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
    outcome = tracker_health.annotate(folder, dry_run=True)
    after = resource.getrusage(resource.RUSAGE_SELF)
    report = outcome.report
    return {
        "seconds": at_leisure(after.ru_utime - used.ru_utime),
        "memory": (after.ru_maxrss - used.ru_maxrss) * 1024,
        "errors": [f"{one.source}: {one.message}" for one in report.errors],
        "verdict": str(report.verdict),
        "codes": [result.code for result in report.results],
        "texts": [*(one.message for one in report.results), *(one.reason for one in report.skipped)],
        "tags": dict(outcome.annotations.tags) if outcome.annotations else {},
        "note": outcome.annotations.note if outcome.annotations else "",
    }

for line in sys.stdin:
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.close(read_end)
        try:
            found = judged(line.rstrip("\\n"))
        except BaseException as error:
            found = {"crash": f"{type(error).__name__}: {error}"[:500]}
        with os.fdopen(write_end, "w") as output:
            json.dump(found, output)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as output:
        print(output.read() or json.dumps({"crash": "it died"}), flush=True)
    os.wait()
"""
)


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """What comes of judging a folder in a process that may take 256 MB more than it has."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("memory is measured through /proc")
    first = tmp_path_factory.mktemp("first")
    SAVE["zip"](first / "training_state.pt", {"optimizer": {"state": {}, "param_groups": []}})
    (first / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _CHILD, str(first), str(MEMORY_ABOVE_START)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:

        def once(folder):
            child.stdin.write(f"{folder}\n")
            child.stdin.flush()
            return json.loads(child.stdout.readline())

        yield lambda folder: quickest(lambda: once(folder))
        child.stdin.close()


def require_bounded(found, folder):
    assert "crash" not in found, found
    assert found["seconds"] < SECONDS
    assert found["memory"] <= MEMORY_ABOVE_START
    assert not (folder / "canary").exists()
    for line in [*found["errors"], *found["texts"]]:
        assert_one_line_of(line)


def try_sample(sample, save, folder, judge):
    sample.make(folder, save)
    found = judge(folder)
    require_bounded(found, folder)
    said = " | ".join(found["errors"])
    if sample.said is None:
        assert not found["errors"]
        assert found["codes"]
    else:
        assert re.search(sample.said, said), said
    return found


@pytest.mark.parametrize("form", list(SAVE))
@pytest.mark.parametrize("name", list(BOTH))
@pytest.mark.thinned(24)
@pytest.mark.slow
def test_a_state_of_either_format(name, form, tmp_path, judge):
    found = try_sample(BOTH[name], SAVE[form], tmp_path, judge)
    if BOTH[name].said is None or "os.system" in name:
        # The rest is still read: whether a moment is finite was looked at.
        assert "OPT002" in found["codes"]


@pytest.mark.parametrize("name", list(ONE_FORMAT))
@pytest.mark.thinned(4)
def test_a_file_of_another_kind(name, tmp_path, judge):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    try_sample(ONE_FORMAT[name], None, inner, judge)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["training_state.pt"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", list(WEIGHTS))
def test_weights_beside_a_sound_checkpoint(name, tmp_path, judge):
    found = try_sample(WEIGHTS[name], SAVE["zip"], tmp_path, judge)
    assert "OPT002" in found["codes"]


@pytest.mark.parametrize("name", list(LOGS))
@pytest.mark.thinned(3)
def test_logs(name, tmp_path, judge):
    try_sample(LOGS[name], None, tmp_path, judge)


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", list(SAVE))
@pytest.mark.parametrize("name", list(NAMES))
def test_names_are_inert_wherever_they_are_shown(name, form, tmp_path, judge):
    named(NAMES[name])(tmp_path, SAVE[form])
    found = judge(tmp_path)
    require_bounded(found, tmp_path)
    shown = [*found["texts"], *found["errors"], *found["tags"], *found["tags"].values(), found["note"]]
    for line in shown:
        assert not set(line) & set("\x1b\x9b\u202e\u2066\u200b\u200f\r\t")
        assert "n" * 1000 not in line
    assert "<script>" not in found["note"]
    assert "](javascript:" not in found["note"]
    command = [sys.executable, "-m", "tracker_health", "check", "-v", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1, 3)
    assert not set(done.stdout + done.stderr) & set("\x1b\x9b\u202e\u2066\u200b\u200f\r\t")
    assert "PASS  all is well" not in [line.strip() for line in done.stdout.splitlines()]
