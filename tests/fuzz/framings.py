"""Files made of records: changed record by record, and put together again so that checksums and lengths fit."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

from ..stores import wandb_logs


@dataclass(frozen=True)
class Framing:
    """How a file of a kind is taken apart, and put together."""

    split: Callable[[bytes], list[bytes]]
    join: Callable[[Sequence[bytes], bytes], bytes]
    """The records and the file that they are from."""


def _zip_entries(content: bytes) -> list[bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [archive.read(name) for name in archive.namelist()]


def _as_zip(records: Sequence[bytes], before: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(before)) as archive, zipfile.ZipFile(file, "w") as new:
        names = archive.namelist()
        for at, record in enumerate(records):
            new.writestr(names[at] if at < len(names) else f"archive/data/{at}", record)
    return file.getvalue()


def _wandb_records(content: bytes) -> list[bytes]:
    return [record for _, record in wandb_logs.contents_of(content)]


def _as_wandb(records: Sequence[bytes], before: bytes) -> bytes:
    return wandb_logs.log_of(list(records))


def _events(content: bytes) -> list[bytes]:
    found, place = [], 0
    while place + 12 <= len(content):
        length = int.from_bytes(content[place : place + 8], "little")
        found.append(content[place + 12 : place + 12 + length])
        place += 16 + length
    return found


def _as_events(records: Sequence[bytes], before: bytes) -> bytes:
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    framed = bytearray()
    for record in records:
        head = struct.pack("<Q", len(record))
        # Longer ones are not checked, and the checksum is slow here.
        checksum = masked_crc32c(record) if len(record) <= 2**12 else crc32(record)
        framed += head + struct.pack("<I", masked_crc32c(head)) + record + struct.pack("<I", checksum)
    return bytes(framed)


ZIP = Framing(_zip_entries, _as_zip)
WANDB = Framing(_wandb_records, _as_wandb)
EVENTS = Framing(_events, _as_events)
