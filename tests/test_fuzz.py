"""The fuzzing of readers: a short round of every one, and that it sees what it looks for."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tracker_health.errors import ReadError

from .fuzz import running
from .fuzz.framings import EVENTS, WANDB, ZIP
from .fuzz.mutations import MOST_BYTES, mutated
from .fuzz.running import Outcome
from .fuzz.targets import TARGETS, Target

ROOT = Path(__file__).parents[1]


@pytest.mark.exhaustive
def test_a_round_of_every_reader():
    pytest.importorskip("torch")
    pytest.importorskip("wandb")
    pytest.importorskip("tensorboard")
    command = [
        sys.executable,
        "-m",
        "tests.fuzz",
        "--attempts",
        str(20 * len(TARGETS)),
        "--seed",
        "1",
        "--workers",
        "2",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count("\n") >= len(TARGETS) + 3


def attempted(read):
    outcome = Outcome("a")
    running._attempt(Target("a", "a", ("*",), read), Path("x"), 7, outcome)
    return outcome


def refuse(_):
    raise ReadError("it is none")


def break_down(_):
    raise KeyError("foo")


def test_what_is_raised_is_told_apart():
    assert (attempted(str).read, attempted(refuse).refused) == (1, 1)
    assert attempted(refuse).foreign == {}
    ((name, times),) = attempted(break_down).foreign.items()
    assert name.startswith("KeyError at test_fuzz.py:")
    assert times == [7, 1]


def test_what_hangs_is_stopped(monkeypatch):
    monkeypatch.setattr(running, "HANG_SECONDS", 0.05)
    before = signal.signal(signal.SIGVTALRM, running._give_up)

    def hang(_):
        while True:
            pass

    try:
        assert attempted(hang).hangs == [7]
    finally:
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.slow
def test_the_same_seed_spoils_the_same_way():
    target = TARGETS[0]
    contents = [b'{"step": 1, "loss": 2.0}\n' * 20, b"x" * 99]
    spoilt = [running.spoilt(target, contents, 1, attempt) for attempt in range(200)]
    assert spoilt == [running.spoilt(target, contents, 1, attempt) for attempt in range(200)]
    assert sum(content not in contents for _, content in spoilt) > 150


def test_spoilt_files_have_a_bound():
    rng = random.Random(0)
    assert all(len(mutated(b"ab" * 1000, [b"c"], rng)) <= MOST_BYTES for _ in range(300))
    assert all(isinstance(mutated(b"", [], rng), bytes) for _ in range(300))


@pytest.mark.parametrize("framing", [EVENTS, WANDB], ids=["events", "wandb"])
def test_records_are_framed_as_they_were(framing):
    pytest.importorskip("tensorboard")
    records = [b"one", b"two" * 99, b""]
    whole = framing.join(records, b"")
    assert framing.split(whole) == records
    assert framing.join(framing.split(whole), whole) == whole


def test_entries_of_a_zip_keep_their_names():
    import io
    import zipfile

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"x")
        archive.writestr("archive/data/0", b"y")
    whole = ZIP.join([b"z", b"y", b"more"], file.getvalue())
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert archive.namelist() == ["archive/data.pkl", "archive/data/0", "archive/data/2"]
        assert archive.read("archive/data.pkl") == b"z"
