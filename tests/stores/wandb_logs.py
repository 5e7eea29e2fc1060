"""Transaction logs of W&B for tests: framed by hand, with records of the SDK's own classes."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

HEADER = b":W&B\xe1\xbe\x00"
BLOCK = 32768


def chunk(kind, content):
    return struct.pack("<IHB", zlib.crc32(bytes([kind]) + content), len(content), kind) + content


def log_of(contents, start=b""):
    """The naive way: chunk by chunk, a block at a time; behind what is there already."""
    log = bytearray(start or HEADER)
    for content in contents:
        rest, first, done = content, True, False
        while not done:
            room = BLOCK - len(log) % BLOCK
            if room < 7:
                log += bytes(room)
                continue
            part, rest = rest[: room - 7], rest[room - 7 :]
            done = rest == b""
            log += chunk({(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[first, done], part)
            first = False
    return bytes(log)


def contents_of(log):
    """The records of an undamaged log, with the places where they begin."""
    found, parts, start, place = [], b"", 0, len(HEADER)
    while place + 7 <= len(log):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        checksum, length, kind = struct.unpack_from("<IHB", log, place)
        content = log[place + 7 : place + 7 + length]
        assert zlib.crc32(bytes([kind]) + content) == checksum
        start = place if kind in (1, 2) else start
        parts = content if kind in (1, 2) else parts + content
        if kind in (1, 4):
            found.append((start, parts))
        place += 7 + length
    assert place == len(log)
    return found


def records_in(path):
    """The records of a log as objects of the SDK."""
    from wandb.proto import wandb_internal_pb2

    return [wandb_internal_pb2.Record.FromString(content) for _, content in contents_of(Path(path).read_bytes())]


def record(**parts):
    from wandb.proto import wandb_internal_pb2

    return wandb_internal_pb2.Record(**parts)


def history(step, values):
    """A row as the SDK's core writes it: nested keys, JSON without quotes around NaN, items in no order."""
    from wandb.proto import wandb_internal_pb2

    row = wandb_internal_pb2.HistoryRecord()
    for name, value in {**values, "_step": step, "_timestamp": 1.7e9 + step, "_runtime": float(step)}.items():
        keys = name if isinstance(name, tuple) else (name,)
        row.item.add(nested_key=keys, value_json=json.dumps(value))
    row.step.num = step
    return record(history=row)


def summary_record(_step, values):
    from wandb.proto import wandb_internal_pb2

    summary = wandb_internal_pb2.SummaryRecord()
    for name, value in values.items():
        summary.update.add(key=name, value_json=json.dumps(value))
    return record(summary=summary)


def run_record(run_id="abc123", *, config=None, **parts):
    from wandb.proto import wandb_internal_pb2

    run = wandb_internal_pb2.RunRecord(run_id=run_id, project="p", host="vm", **parts)
    for key, value in (config or {}).items():
        run.config.update.add(key=key, value_json=json.dumps(value))
    return record(run=run)


def output_record(text, kind="STDERR"):
    """A piece of the console, as the SDKs before 0.20 put it into the log."""
    from wandb.proto import wandb_internal_pb2

    kind = wandb_internal_pb2.OutputRawRecord.OutputType.Value(kind)
    return record(output_raw=wandb_internal_pb2.OutputRawRecord(output_type=kind, line=text))


def stats_record(when, **values):
    """The machine's load at a time; ``gpu__0__gpu`` is ``gpu.0.gpu``."""
    from wandb.proto import wandb_internal_pb2

    made = wandb_internal_pb2.StatsRecord()
    made.timestamp.seconds = int(when)
    for name, value in values.items():
        made.item.add(key=name.replace("__", "."), value_json=json.dumps(value))
    return record(stats=made)


def output_record_at(when):
    """A piece of the console with its time."""
    made = output_record("a line\n")
    made.output_raw.timestamp.seconds = int(when)
    return made


def start_record(when):
    """A run that began at a time."""
    made = run_record()
    made.run.start_time.seconds = int(when)
    return made


def preempting_record():
    from wandb.proto import wandb_internal_pb2

    return record(preempting=wandb_internal_pb2.RunPreemptingRecord())


def exit_record(code=0):
    from wandb.proto import wandb_internal_pb2

    return record(exit=wandb_internal_pb2.RunExitRecord(exit_code=code))


def write_log(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    numbered = []
    for number, one in enumerate(records, start=1):
        one.num = number
        numbered.append(one.SerializeToString())
    path.write_bytes(log_of(numbered))
    return path
