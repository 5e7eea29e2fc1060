"""Temporary folders: gone at the end, and swept by the next annotator where one was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tracker_health.stores.common import temporary
from tracker_health.stores.common.temporary import TemporaryFolder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no such locks here")

HOLDER = """
import sys, time
from tracker_health.stores.common.temporary import TemporaryFolder
folder = TemporaryFolder()
open(folder.name + "/part", "w").close()
print(folder.name, flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.fixture
def start(tmp_path):
    """Start a process that holds a temporary folder; gives it and the folder."""
    started = []

    def begin(seconds=60):
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        command = [sys.executable, "-c", HOLDER, str(seconds)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        return process, Path(process.stdout.readline().strip())

    yield begin
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def of_an_hour_ago(path):
    os.utime(path, (time.time() - 3600,) * 2)


@pytest.mark.slow
def test_the_folder_of_a_killed_annotator_is_swept_by_the_next_one(start, tmp_path):
    killed, left = start()
    alive, kept = start()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    for path in (left, kept):
        of_an_hour_ago(path)
    mine = tmp_path / "tracker-health-fetched-mine"
    for other in (mine, tmp_path / "tracker-health-abcdefgh", tmp_path / "tracker-health-fetched-abcdefgh0"):
        other.mkdir()
        of_an_hour_ago(other)
    (tmp_path / "tracker-health-fetched-12345678").symlink_to(mine)
    process, own = start(0)
    assert process.wait(30) == 0
    assert not left.exists()
    assert not own.exists()
    assert (kept / "part").exists()
    assert alive.poll() is None
    others = {
        mine.name,
        "tracker-health-abcdefgh",
        "tracker-health-fetched-abcdefgh0",
        "tracker-health-fetched-12345678",
    }
    assert {path.name for path in tmp_path.iterdir()} == {kept.name, *others}


@pytest.mark.slow
def test_a_folder_of_this_moment_is_left_alone(start, tmp_path):
    (tmp_path / "tracker-health-fetched-abcdefgh").mkdir()
    process, _ = start(0)
    assert process.wait(30) == 0
    assert (tmp_path / "tracker-health-fetched-abcdefgh").exists()


def descriptors():
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else None


def test_it_ends_with_its_block_and_leaves_no_descriptor(monkeypatch, tmp_path):
    monkeypatch.setattr(temporary, "_sweep", lambda: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = descriptors()
    for _ in range(3):
        with TemporaryFolder() as name:
            assert Path(name).is_dir()
        assert not Path(name).exists()
    held = TemporaryFolder()
    held.cleanup()
    held.cleanup()
    assert descriptors() == before


def test_where_nothing_can_be_locked_it_is_a_folder_all_the_same(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(temporary, "try_lock", lambda _: None)
    with TemporaryFolder() as name:
        assert Path(name).is_dir()
    assert list(tmp_path.iterdir()) == []
