"""The reader of W&B's transaction logs: framing against a naive writer, contents against W&B's own reader."""

from __future__ import annotations

import math
import struct
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.errors import ReadError
from tracker_health.readers.files import protobuf as wire
from tracker_health.readers.files import record_log
from tracker_health.readers.files.record_log import BLOCK, HEADER, RecordLog, framed
from tracker_health.stores.wandb.transaction_log import read_log, records_of, rows_of
from tracker_health.stores.wandb.values import params_of

from . import wandb_logs, wandb_runs

wandb = pytest.importorskip("wandb")

SIZES = st.one_of(st.integers(0, 40), st.integers(BLOCK - 40, BLOCK + 40), st.integers(2 * BLOCK - 30, 3 * BLOCK))
CONTENTS = st.lists(st.builds(lambda size, byte: bytes([byte]) * size, SIZES, st.integers(0, 255)), max_size=8)


def read(log):
    records = RecordLog(BytesIO(log))
    return [one.content for one in records], records


# Framing


@settings(deadline=None)
@given(CONTENTS)
def test_what_is_written_is_read(contents):
    log = HEADER + framed(contents, len(HEADER))
    found, records = read(log)
    assert found == contents
    assert (records.damaged, records.torn, records.end) == (0, False, len(log))


@settings(deadline=None)
@given(CONTENTS)
def test_frames_are_those_of_a_naive_writer(contents):
    assert HEADER + framed(contents, len(HEADER)) == wandb_logs.log_of(contents)


@settings(deadline=None)
@given(CONTENTS, CONTENTS)
def test_a_log_can_be_cut_at_any_record_and_framed_on(before, after):
    log = wandb_logs.log_of([*before, *after])
    places = [place for place, _ in wandb_logs.contents_of(log)]
    cut = places[len(before)] if after else len(log)
    assert log[:cut] + framed(after, cut) == log


@settings(deadline=None)
@given(CONTENTS, st.integers(0, 2**20))
def test_a_log_cut_short_anywhere_gives_what_came_before(contents, place):
    log = wandb_logs.log_of(contents)
    end = max(len(HEADER), place % (len(log) + 1))
    found, records = read(log[:end])
    assert found == contents[: len(found)]
    whole = [content for start, content in wandb_logs.contents_of(log) if start < end]
    assert len(whole) - len(found) <= 1
    assert records.damaged == 0


@settings(deadline=None, max_examples=draws(50))
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_flipped_byte_costs_its_block_at_most(place, flip):
    contents = [str(number).encode() * 40 for number in range(3000)]
    log = bytearray(wandb_logs.log_of(contents))
    place = len(HEADER) + place % (len(log) - len(HEADER))
    log[place] ^= flip
    found, _ = read(bytes(log))
    assert set(found) <= set(contents)
    lost = set(contents) - set(found)
    assert sum(map(len, lost)) < 2 * BLOCK
    assert found == [content for content in contents if content not in lost]


def test_damage_is_counted():
    contents = [bytes([number]) * 9000 for number in range(20)]
    log = bytearray(wandb_logs.log_of(contents))
    log[BLOCK + 20_000] ^= 1
    log[4 * BLOCK + 20_000] ^= 1
    found, records = read(bytes(log))
    assert records.damaged == 2
    assert not records.torn
    assert 10 < len(found) < 19


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (b"", "empty"),
        (b"PK\3\4 archive", "no transaction log"),
        (b":W&B", "version"),
        (b":W&B\xe1\xbe\x01", "version"),
        (b":W&B\xe1\xbf\x00", "version"),
    ],
)
def test_other_files_are_refused(log, said):
    with pytest.raises(ReadError, match=said):
        RecordLog(BytesIO(log))


def test_a_record_without_end_is_passed_over(monkeypatch):
    monkeypatch.setattr(record_log, "MAX_RECORD_BYTES", 100_000)
    found, records = read(wandb_logs.log_of([b"one", bytes(200_000), b"two"]))
    assert found == [b"one", b"two"]
    assert records.damaged == 1


# Messages


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.text(max_size=300), st.floats(allow_nan=False), st.integers(0, 2**53))
def test_messages_are_those_of_the_sdk(integer, text, number, size):
    from wandb.proto import wandb_internal_pb2 as sdk

    item = sdk.HistoryItem(key=text, integer=integer)
    assert (
        dict(wire.fields(item.SerializeToString()))[5]
        == dict(wire.fields(wire.written(5, (integer << 1) ^ (integer >> 63))))[5]
    )
    assert wire.zigzag(dict(wire.fields(item.SerializeToString()))[5]) == integer
    assert wire.double(dict(wire.fields(sdk.HistoryItem(number=number).SerializeToString())).get(6, bytes(8))) == number
    entry = sdk.ArtifactManifestEntry(path=text, size=size)
    ours = wire.written(1, text) * bool(text) + (wire.written(4, size) if size else b"")
    assert entry.SerializeToString() == ours
    assert wire.without(ours + wire.written(7, "x"), frozenset({7})) == ours


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(content):
    try:
        list(wire.fields(content))
    except ReadError:
        return
    assert wire.without(content, frozenset()) == content


# Real logs


@pytest.fixture(scope="session")
def runs(offline_runs, tmp_path_factory):
    """The logs of real runs, and one of which a bit was flipped."""
    flipped = tmp_path_factory.mktemp("flipped") / "run-flipped.wandb"
    log = bytearray(wandb_runs.log_in(offline_runs["killed"]).read_bytes())
    log[BLOCK + 5000] ^= 0x40
    flipped.write_bytes(log)
    return {**{name: wandb_runs.log_in(run) for name, run in offline_runs.items()}, "flipped": flipped}


def theirs(value):
    """A number as the reference reader prints it."""
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value.replace("Infinity", "inf"))
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["healthy", "odd", "empty", "killed", "flipped"])
def test_histories_are_those_of_the_reference_reader(runs, name):
    log = read_log(runs[name])
    expected = [one["history"]["item"] for one in wandb_runs.inspected(runs[name]) if one["type"] == "history"]
    assert log.rows == len(expected)
    wanted = frozenset(log.names)
    found = list(rows_of(runs[name], wanted))
    assert len(found) == len(expected)
    for ours, reference in zip(found, expected, strict=True):
        numbers = {
            key: theirs(reference[key]) for key in reference if key in wanted and theirs(reference[key]) is not None
        }
        for key, number in numbers.items():
            value = ours[key]
            value = float(value) if value in ("NaN", "Infinity", "-Infinity") else value
            assert value == pytest.approx(number, rel=1e-12, nan_ok=True), key


@pytest.mark.slow
@pytest.mark.parametrize("name", ["healthy", "odd", "empty", "killed", "flipped"])
def test_the_record_of_a_run_is_that_of_the_reference_reader(runs, name):
    log, summary = read_log(runs[name]), wandb_runs.inspected(runs[name], "--summary")
    assert log.exit_code == summary["exit_code"]
    assert (log.run_id, log.project, log.name) == (summary["run_id"], summary["project"], summary.get("name", "") or "")
    assert list(log.tags) == summary.get("tags", [])
    assert log.notes == summary.get("notes", "")
    assert log.params == params_of(summary["config"])


def test_a_healthy_run(runs):
    log = read_log(runs["healthy"])
    assert set(log.names) == {"loss", "train.acc", "gpu", "_step", "_timestamp", "_runtime"}
    assert (log.damaged, log.torn, log.crowded) == (0, False, False)
    assert log.params["lr"] == "0.2"
    assert [row["loss"] for row in rows_of(runs["healthy"], frozenset({"loss"}))] == [
        2.3 * 0.95**step + 0.01 * (step % 3) for step in range(60)
    ]


def test_odd_values(runs):
    log = read_log(runs["odd"])
    assert {"loss", "up", "down", "deep.er.still", "a.b", "big", "tiny", "negative", "zoë/π"} <= set(log.names)
    assert not {"yes", "none", "list", "hist.values", "pic.size", "pic.width"} & set(log.names)
    rows = list(rows_of(runs["odd"], frozenset({"loss", "up", "down", "big", "tiny", "_step"})))
    assert math.isnan(rows[35]["loss"])
    assert (rows[0]["up"], rows[0]["down"]) == (math.inf, -math.inf)
    assert rows[40] == {"loss": 0.5, "_step": 100}
    assert rows[41] == {"big": 2.0**70, "tiny": 5e-324, "_step": 101}


def test_damage_is_told(runs):
    assert read_log(runs["flipped"]).damaged == 1
    assert 0 < read_log(runs["flipped"]).rows < read_log(runs["killed"]).rows
    assert read_log(runs["killed"]).exit_code is None


@pytest.mark.parametrize("form", ["typed", "key", "nested json"])
def test_other_ways_to_write_a_row(tmp_path, form):
    from wandb.proto import wandb_internal_pb2 as sdk

    row = sdk.HistoryRecord()
    if form == "typed":
        row.item.add(key="loss", number=math.nan)
        row.item.add(nested_key=["train", "n"], integer=-7)
        row.item.add(key="flag", boolean=True)
        row.item.add(key="deep", json='{"x": 1, "_type": "histogram"}')
    elif form == "key":
        row.item.add(key="loss", value_json='"NaN"')
        row.item.add(key="train.n", value_json="-7")
    else:
        row.item.add(key="loss", value_json="NaN")
        row.item.add(key="train", value_json='{"n": -7, "h": {"_type": "histogram", "bins": [1]}}')
    row.step.num = 3
    log = wandb_logs.write_log(tmp_path / "run-a.wandb", [wandb_logs.record(history=row)])
    assert read_log(log).names == ("loss", "train.n")
    (found,) = rows_of(log, frozenset({"loss", "train.n"}))
    assert float(found["loss"]) != float(found["loss"])
    assert (found["train.n"], found["_step"]) == (-7, 3)


def test_what_is_no_message_counts_as_damage(tmp_path):
    rows = [wandb_logs.history(step, {"loss": 1.0}).SerializeToString() for step in range(3)]
    path = tmp_path / "run-a.wandb"
    path.write_bytes(wandb_logs.log_of([rows[0], b"\xff\xff\xff", rows[1], rows[2][:-3], struct.pack("<Q", 7)]))
    log = read_log(path)
    assert (log.rows, log.damaged) == (2, 3)
    assert len(list(rows_of(path, frozenset({"loss"})))) == 2


def test_too_many_names_are_told_and_not_kept(tmp_path):
    rows = [wandb_logs.history(step, {f"m{step}_{number}": 1.0 for number in range(1000)}) for step in range(21)]
    log = read_log(wandb_logs.write_log(tmp_path / "run-a.wandb", rows))
    assert log.crowded
    assert log.names == ()


def test_records_are_all_their_owners(runs):
    assert not any(ours for _, ours in records_of(runs["healthy"]))


@pytest.mark.parametrize(
    "value", [b"\x82\x01", b"\x82\x01\x80", wire.written(6, b"1234"), b"\x31\0\0", wire.written(6, b"")]
)
def test_values_that_are_cut_short_are_passed_over(value, tmp_path):
    """A number with fewer bytes than it has, JSON of which only the beginning is there."""
    odd = wire.written(2, wire.written(1, wire.written(2, "odd") + value))
    rows = [wandb_logs.history(step, {"loss": 1.0}).SerializeToString() for step in range(3)]
    path = tmp_path / "run-abc123.wandb"
    path.write_bytes(wandb_logs.log_of([rows[0], odd, *rows[1:]]))
    assert "loss" in read_log(path).names
    assert [row["loss"] for row in rows_of(path, frozenset({"loss", "odd"})) if "loss" in row] == [1.0] * 3
