"""Pipes, sockets and devices where a file is expected: refused at once, by every reader."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tracker_health.errors import ReadError
from tracker_health.readers.dlm_log import read_dlm_step_log
from tracker_health.readers.files import regular_file
from tracker_health.readers.files.regular_file import open_regular, read_regular
from tracker_health.readers.log_formats.step_log import StepLog
from tracker_health.readers.optimizers.optimizer_state import has_optimizer_state, read_optimizer_state
from tracker_health.readers.trainer_state import MAX_BYTES, read_trainer_state
from tracker_health.roles import RolePlan

from .conftest import read_safetensors

READERS = {
    "open": open_regular,
    "dlm": lambda path: read_dlm_step_log([("a", path)]),
    "has optimizer": has_optimizer_state,
    "optimizer": lambda path: read_optimizer_state(path, "a"),
    "safetensors": read_safetensors,
    "steps": lambda path: StepLog().read(path, "a", RolePlan()),
    "trainer": lambda path: read_trainer_state(path, "a", RolePlan()),
}

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here")


def pipe(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


def link_to_a_pipe(path):
    os.mkfifo(path.with_suffix(".pipe"))
    path.symlink_to(path.with_suffix(".pipe"))


def bound_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))  # a socket's path must be short


@pytest.mark.parametrize("reader", list(READERS))
@pytest.mark.parametrize("make", [pipe, endless, link_to_a_pipe, bound_socket, Path.mkdir])
def test_what_is_no_regular_file_is_refused(make, reader, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "a")
    with pytest.raises(ReadError, match="not a regular file"):
        READERS[reader](tmp_path / "a")


def descriptors():
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else None


def test_a_file_that_turns_into_a_pipe_is_refused(tmp_path, monkeypatch):
    pipe(tmp_path / "a")
    monkeypatch.setattr(regular_file, "require_regular", lambda _: None)
    before = descriptors()
    with pytest.raises(ReadError, match="not a regular file"):
        open_regular(tmp_path / "a")
    assert descriptors() == before


def test_a_link_to_a_file_is_a_file(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "a").symlink_to("file")
    with open_regular(tmp_path / "a") as file:
        assert file.read() == b"x"


def test_a_file_that_grew_beyond_what_is_read(tmp_path):
    """A size that was small when somebody asked is no promise: as much is read as may be, and no more."""
    path = tmp_path / "trainer_state.json"
    with path.open("wb") as file:
        file.truncate(10**12)  # takes no room on the disk
    with pytest.raises(ReadError, match=f"larger than the {MAX_BYTES} bytes"):
        read_trainer_state(path, "a", RolePlan())


def test_a_file_whose_size_is_said_to_be_nothing():
    path = Path("/proc/self/status")
    if not path.exists():
        pytest.skip("no such files here")
    for reader in ("optimizer", "safetensors", "trainer"):
        with pytest.raises((ReadError, OSError)):
            READERS[reader](path)


def test_a_file_of_the_kernels_is_none(tmp_path):
    """It is regular by its name: what reading it does, and when it ends, the kernel decides."""
    if not Path("/proc/self/status").exists():
        pytest.skip("no such files here")
    (tmp_path / "a").symlink_to("/proc/self/status")
    for reader in READERS.values():
        with pytest.raises(ReadError, match="not a regular file"):
            reader(tmp_path / "a")


def test_what_has_nothing_to_give_now_is_not_waited_for(tmp_path, monkeypatch):
    (tmp_path / "a").touch()
    reading, writing = os.pipe()
    monkeypatch.setattr(regular_file, "_opened", lambda path, flags: reading)
    os.set_blocking(reading, False)
    with open_regular(tmp_path / "a") as file, pytest.raises(ReadError, match="not a regular file"):
        file.read(1)
    os.close(writing)


def test_no_more_is_read_than_may_be(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(ReadError, match="larger than the 4 bytes"):
        read_regular(path, 4)
