"""Locks: one holder at a time, and never longer than its process lives."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tracker_health
from tracker_health.errors import WriteError
from tracker_health.stores.common.locks import let_go, locked, try_lock

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no such locks here")

PACKAGE = Path(tracker_health.__file__).parent
HOLDER = """
import sys, time
from pathlib import Path
from tracker_health.stores.common.locks import locked
with locked(Path(sys.argv[1]), "a run"):
    print("held", flush=True)
    time.sleep(60)
"""


def refused(place):
    try:
        with locked(place, "a run"):
            return False
    except WriteError:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_lock_does_not_survive_its_process(end, tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout.readline() == "held\n"
        assert refused(tmp_path)
        assert try_lock(tmp_path) is None
        process.send_signal(end)
        process.wait(30)
    assert not refused(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_child_that_goes_on_holds_no_lock(tmp_path):
    with locked(tmp_path, "a run"):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        assert not refused(tmp_path)
    finally:
        child.communicate(b"\n", timeout=30)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_that_goes_on_holds_no_lock_that_was_let_go(tmp_path):
    read_end, write_end = os.pipe()
    descriptor = try_lock(tmp_path)
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.read(read_end, 1)
        os._exit(0)
    os.close(read_end)
    try:
        let_go(descriptor)
        assert not refused(tmp_path)
    finally:
        os.close(write_end)
        os.waitpid(child, 0)


def test_what_is_no_longer_there_is_not_locked(tmp_path):
    assert try_lock(tmp_path / "gone") is None
    with pytest.raises(OSError), locked(tmp_path / "gone", "a run"):
        pass


def test_a_link_and_a_file_are_no_folders_of_ours(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    assert try_lock(tmp_path / "file") is None
    assert try_lock(tmp_path / "link") is None


@pytest.mark.slow
def test_there_is_one_means_of_locking():
    calls = ("flock", "lockf", "O_EXCL", "filelock", "msvcrt")
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.attr if isinstance(node, ast.Attribute) else node.name if isinstance(node, ast.alias) else ""
            if name in calls:
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {"stores/common/locks.py"}
