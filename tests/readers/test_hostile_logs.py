"""Logs that are broken, huge or made to harm: read in a child process with little memory, within seconds."""

from __future__ import annotations

import os
import random
import struct

import pytest

ROWS = b"".join(b"step %d loss=%d.5 lr=1e-4\n" % (step, step % 7) for step in range(50))
CSV = b"step,loss\n" + b"".join(b"%d,%d.5\n" % (step, step % 7) for step in range(50))

TEXTS = {
    "binary junk between": ROWS + random.Random(0).randbytes(3 * 10**6) + b"\n" + ROWS,
    "NUL bytes between": ROWS + bytes(10**7) + b"\n" + ROWS,
    "a line of 100 MB": ROWS + b"x" * 10**8 + b"\n" + ROWS,
    "a line of 50 MB of pairs": ROWS + b"loss=1 " * 7_000_000 + b"\n" + ROWS,
    "a name of 10 MB": ROWS + b"a" * 10**7 + b"=1\n" + ROWS,
    "words without end": ROWS + b"word " * 10_000 + b"\n" + ROWS,
    "lines of words": ROWS + (b"one two three four " * 300 + b"\n") * 1000 + ROWS,
    "digits without end": ROWS + b"step " + b"9" * 60_000 + b" loss=1\n" + ROWS,
    "commas without end": ROWS + b"loss=" + b"1," * 30_000 + b"\n" + ROWS,
    "colours without end": ROWS + b"\x1b[31m" * 10**6 + b"\n" + ROWS,
    "colours that do not end": ROWS + b"\x1b]" * 10**5 + b"\n" + ROWS,
    "carriage returns": ROWS + b"\r" * 10**7 + b"\n" + ROWS,
    "blank lines": ROWS + b"\n" * 10**7 + ROWS,
    "other names on every line": ROWS + b"".join(b"step 1 loss_%d=1\n" % at for at in range(9_000)) + ROWS,
    "tracebacks": ROWS + b"Traceback (most recent call last):\n  x\nValueError: y\n" * 30_000 + ROWS,
    "a traceback without end": ROWS + b"Traceback (most recent call last):\n" + b"  x\n" * 10**6 + ROWS,
    "bars": ROWS + "█".encode() * 20_000 + b"| 1/2 [x" * 1000 + b"\n" + ROWS,
    "spaces": ROWS + (b" " * 60_000 + b"\n") * 100 + ROWS,
    "brackets": ROWS + b"loss [" * 10_000 + b"\n" + ROWS,
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", list(TEXTS))
def test_hostile_text_takes_nothing_from_the_rows_around_it(name, tmp_path, measured):
    path = tmp_path / "console.log"
    path.write_bytes(TEXTS[name])
    assert measured("log", path)["value"] >= 100


@pytest.mark.slow
@pytest.mark.parametrize("name", ["console.log", "metrics.csv"])
def test_a_sparse_gigabyte_in_one_line(name, tmp_path, measured):
    path = tmp_path / name
    content = CSV if name.endswith("csv") else ROWS
    with path.open("wb") as file:
        file.write(content)
        file.truncate(10**9)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + content)
    assert measured("log", path)["value"] >= 50


def test_a_sparse_terabyte_is_refused(tmp_path, measured):
    path = tmp_path / "console.log"
    with path.open("wb") as file:
        file.write(ROWS)
        file.truncate(10**12)
    assert "larger than" in measured("log", path)["message"]


def header(count):
    return b",".join([b"step", *(b"c%d" % at for at in range(count))])


TABLES = {
    "a hundred thousand columns": (header(100_000) + b"\n" + b",".join([b"1"] * 100_001) + b"\n", "more than"),
    "a quote that does not end": (CSV + b'"' + b"x" * 10**7, None),
    "quotes": (CSV + b'"","' * 10**6, "more than"),
    "a cell of 10 MB": (CSV + b"51," + b"9" * 10**7 + b"\n" + CSV, None),
    "headers on every line": (b"step,loss\n" * 10**5 + CSV, None),
    "rows of other lengths": (CSV + b"1,2,3\n1\n" * 10**5, None),
    "junk": (CSV + random.Random(1).randbytes(10**6), None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(TABLES))
@pytest.mark.thinned(3)
def test_hostile_tables(name, tmp_path, measured):
    content, message = TABLES[name]
    path = tmp_path / "metrics.csv"
    path.write_bytes(content)
    outcome = measured("log", path)
    if message is not None:
        assert message in outcome["message"]
    else:
        assert outcome["value"] >= 50


JSON = {
    "nested a million deep": b'{"loss": ' * 10**6,
    "lists nested a million deep": b"[" * 10**6,
    "a list of 20 MB": b'{"loss": [' + b"1," * 10**7 + b"1]}",
    "small objects": b'{"a": [' + b'{"":1},' * 3_000_000 + b"{}]}",
    "names": b"{" + b",".join(b'"%d": [1]' % at for at in range(30_000)) + b"}",
}


@pytest.mark.parametrize("name", list(JSON))
@pytest.mark.thinned(3)
def test_hostile_json(name, tmp_path, measured):
    path = tmp_path / "history.json"
    path.write_bytes(JSON[name])
    outcome = measured("log", path)
    assert outcome["message"] or outcome["value"] == 0


def record(content, length=None):
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    head = struct.pack("<Q", len(content) if length is None else length)
    return head + struct.pack("<I", masked_crc32c(head)) + content + struct.pack("<I", masked_crc32c(content))


@pytest.mark.parametrize("length", [2**40, 2**63, 2**64 - 1, 2**20 + 1, 2**20])
@pytest.mark.thinned(3)
def test_event_files_with_lengths_that_lie(length, tmp_path, measured):
    pytest.importorskip("tensorboard")
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(record(b"\x09\0\0\0\0\0\0\xf0?\x1a\rbrain.Event:2") + record(b"x" * 100, length))
    outcome = measured("log", path)
    assert outcome["message"] or outcome["value"] == 0
