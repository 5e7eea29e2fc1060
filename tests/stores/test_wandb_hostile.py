"""Transaction logs made to harm: each judged in a process of its own that is watched and limited."""

from __future__ import annotations

import struct
import zlib

import pytest

from tracker_health.readers.files.protobuf import written
from tracker_health.readers.files.record_log import HEADER, framed

from ..readers.test_hostile_files import judge, require_bounded  # noqa: F401, TID252  the fixture is used by its name

ROW, RUN, CONFIG, ARTIFACT = 2, 17, 5, 8
LOSS = written(ROW, written(1, written(2, "loss") + written(16, "1.0")))


def item(name, value):
    return written(1, written(2, name) + written(16, value))


def many_chunks():
    """A record without end: middle parts only."""
    part = bytes(32768 - 7)
    chunk = struct.pack("<IHB", zlib.crc32(part, zlib.crc32(b"\3")), len(part), 3) + part
    first = bytes(32768 - 14)
    head = struct.pack("<IHB", zlib.crc32(first, zlib.crc32(b"\2")), len(first), 2) + first
    return HEADER + head + chunk * 4000


def nested_deeply(count=100_000):
    return b'{"a":' * count + b"1" + b"}" * count


CONTENTS = {
    "a record of 30 MB": lambda: [written(ROW, item("loss", b"[" + b"1," * 15_000_000 + b"1]"))],
    "ten million names in one": lambda: [written(ROW, written(1, written(2, "a") * 8_000_000 + written(16, "1")))],
    "ten million items": lambda: [written(ROW, item("a", "1") * 2_000_000)],
    "ten million fields": lambda: [written(9, b"") * 10_000_000],
    "a field number for each": lambda: [b"".join(written(number, 1) for number in range(1000, 1_500_000))],
    "values nested deeply": lambda: [written(ROW, item("loss", nested_deeply()))] * 20,
    "lists in lists": lambda: [written(ROW, item("loss", b"[" * 500_000))] * 20,
    "a dictionary of a million": lambda: [written(ROW, item("a", b'{"b":1' + b',"c":[]' * 140_000 + b"}"))] * 10,
    "numbers of a million digits": lambda: [written(ROW, item("loss", b"1" * 1_000_000))] * 20,
    "names of a megabyte": lambda: [written(ROW, item(f"{number}" + "x" * 2**20, "1")) for number in range(20)],
    "a million names": lambda: [
        written(ROW, b"".join(item(f"m{row}/{number}", "1") for number in range(1000))) for row in range(300)
    ],
    "a configuration of lists": lambda: [
        written(CONFIG, item(f"k{number}", b"[" + b"[]," * 300_000 + b"1]")) for number in range(30)
    ],
    "an artifact of a million files": lambda: [
        written(
            ARTIFACT,
            written(5, "model") + written(12, written(4, written(1, "optimizer.pt") + written(6, "/x")) * 900_000),
        )
    ],
    "paths of a megabyte": lambda: (
        [
            written(
                ARTIFACT,
                written(5, "m") + written(12, written(4, written(1, "a" * 2**20 + "/optimizer.pt") + written(6, "/x"))),
            )
        ]
        * 20
    ),
    "names above and outside": lambda: [
        written(
            ARTIFACT,
            written(5, "../../..")
            + written(
                12, written(4, written(1, "../optimizer.pt") + written(6, "/artifacts/staging/../../etc/passwd"))
            ),
        )
    ],
    "a run of escapes": lambda: [
        written(RUN, written(1, "\x1b[2J") + written(8, "\x1b]0;x\7\n\n") + written(10, "\x1b[31m") * 5000)
    ],
    "a varint without end": lambda: [b"\xff" * 50, LOSS],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CONTENTS, "a record without end", "zeros", "noise"])
@pytest.mark.thinned(10)
def test_a_hostile_log_is_bounded(name, tmp_path, judge):  # noqa: F811
    run = tmp_path / "offline-run-1-x"
    run.mkdir()
    log = {"a record without end": many_chunks, "zeros": lambda: HEADER + bytes(2**26), "noise": noise}
    content = log[name]() if name in log else HEADER + framed([*CONTENTS[name](), LOSS], len(HEADER))
    (run / "run-x.wandb").write_bytes(content)
    found = judge(run)
    require_bounded(found, run)
    assert found["verdict"] in ("skip", "error", "pass", "warn")


def noise():
    import random

    return HEADER + random.Random(1).randbytes(2**24)
