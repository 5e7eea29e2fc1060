"""Our records in a run's transaction log: before its exit, since ``wandb sync`` reads no further.

All bytes before them stay as they are; what is behind is framed again. The new log is read back and compared before
it takes the old one's place. The log as it was before we first wrote is next to it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

from tracker_health.errors import ReadError, StillRunning, WriteError
from tracker_health.judge.annotations import STEP
from tracker_health.readers.files.protobuf import fields, without, written
from tracker_health.readers.files.record_log import framed
from tracker_health.readers.files.regular_file import open_regular
from tracker_health.stores.common.record import VERDICT
from tracker_health.stores.wandb.media import place_of
from tracker_health.stores.wandb.transaction_log import (
    EXIT,
    FILES,
    OURS,
    RUN,
    RUN_CONFIG,
    RUN_SUMMARY,
    RUN_TAGS,
    RUN_TELEMETRY,
    SUMMARY,
    UUID,
    TransactionLog,
    read_log,
    records_of,
)
from tracker_health.stores.wandb.values import OWN_KEY, tags_with
from tracker_health.text import printable
from tracker_health.words.gap_names import LIVE_WANDB_TAGS
from tracker_health.words.verdict import Verdict

BACKUP = ".before-tracker-health"
"""What the name of the backup has behind the log's: ``wandb sync`` takes all that ends in ``.wandb`` for a run."""

LEFTOVER = ".tracker-health-*.tmp"
_MAX_TAIL_BYTES = 64 * 2**20
_COPIED = 2**20


def backup_of(path: Path) -> Path:
    """Where the log is as it was before us."""
    return path.with_name(path.name + BACKUP)


def our_records(log: TransactionLog, marks: Mapping[str, Any], files: Mapping[str, bytes]) -> list[bytes]:
    """What a log has to have for these marks: the run with its tags, the summary, the files to upload."""
    summary = {f"{OWN_KEY}{name}": int(value) if name == STEP else value for name, value in marks.items()}
    records = [_record(SUMMARY, b"".join(written(1, _item(key, value)) for key, value in summary.items()))]
    ours, marked = tags_with((), Verdict(marks[VERDICT])), LIVE_WANDB_TAGS.intersection(log.tags)
    if ours or marked:
        # Without its configuration: what is in the run's first record may have been changed by later ones.
        unmarked = frozenset(written(RUN_TAGS, tag) for tag in marked)
        run = without(log.run, frozenset({RUN_CONFIG, RUN_SUMMARY, RUN_TELEMETRY}), unmarked)
        records.insert(0, _record(RUN, run + b"".join(written(RUN_TAGS, tag) for tag in ours)))
    listed = b"".join(written(1, written(1, place_of(name))) for name in sorted(files))
    return [*records, _record(FILES, listed)] if listed else records


def _record(kind: int, content: bytes) -> bytes:
    return written(kind, content) + written(UUID, OURS)


def _item(key: str, value: Any) -> bytes:
    return written(1, key) + written(16, json.dumps(value, allow_nan=False))


def replace_ours(path: Path, log: TransactionLog, records: list[bytes]) -> None:
    """Make a log have these records of ours, and no others.

    Raises:
        WriteError: it changed meanwhile, or the new log did not read back as what it should be.
        OSError: it cannot be written.
    """
    before = path.stat()
    new = path.with_name(f".tracker-health-{secrets.token_hex(8)}.tmp")
    try:
        with open_regular(path) as source, new.open("xb") as target:
            _copy(source, target, log.cut)
            target.write(framed(_tail(path, log, records), log.cut))
            target.flush()
            os.fsync(target.fileno())
        _require_same(path, new, records)
        _dress(new, before)
        if not log.bears_ours:
            _keep(path)
        _require_unchanged(path, before)
        _put(new, path)
    finally:
        new.unlink(missing_ok=True)


def restore(path: Path, log: TransactionLog) -> None:
    """Take our records out of a log again: the very file that was there before, where its backup still fits.

    Raises:
        WriteError: it changed meanwhile.
        OSError: it cannot be written.
    """
    backup = backup_of(path)
    before = path.stat()
    if (log.bears_ours or log.damaged) and _fits(backup, path, log):
        _require_unchanged(path, before)
        _put(backup, path)
    elif log.bears_ours:
        replace_ours(path, log, [])
    backup.unlink(missing_ok=True)


def was_damaged_since(path: Path, log: TransactionLog) -> bool:
    """Whether the backup has what the log lost after it was first written to: then it must not be given up."""
    backup = backup_of(path)
    try:
        return bool(log.damaged) and read_log(backup).damaged < log.damaged and _fits(backup, path, log)
    except (ReadError, OSError):
        return False


def remove_leftovers(folder: Path) -> None:
    """Delete the half-written logs of annotators that were killed."""
    for leftover in list(folder.glob(LEFTOVER)):
        leftover.unlink(missing_ok=True)


def _tail(path: Path, log: TransactionLog, records: list[bytes]) -> list[bytes]:
    """What is behind the cut in the new log: ours before the first exit, all others in their order."""
    theirs: list[bytes] = []
    size = 0
    for record, ours in records_of(path):
        if record.start >= log.cut and not ours:
            theirs.append(record.content)
            size += len(record.content)
        if size > _MAX_TAIL_BYTES:
            raise WriteError(f"{printable(path)} has too much behind the exit of its run; nothing was written to it")
    exits = (place for place, content in enumerate(theirs) if any(kind == EXIT for kind, _ in _fields(content)))
    place = next(exits, len(theirs))
    return [*theirs[:place], *records, *theirs[place:]]


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    try:
        yield from fields(content)
    except ReadError:
        return


def _copy(source: BinaryIO, target: BinaryIO, count: int) -> None:
    while count:
        part = source.read(min(count, _COPIED))
        if not part:
            raise WriteError("the log became shorter while it was read; nothing was written to it")
        target.write(part)
        count -= len(part)


def _theirs(path: Path) -> Iterator[bytes]:
    return (record.content for record, ours in records_of(path) if not ours)


def _all(path: Path) -> Iterator[bytes]:
    return (record.content for record, _ in records_of(path))


def _fits(backup: Path, path: Path, log: TransactionLog) -> bool:
    """Whether a backup holds exactly the records that are not ours; of a damaged log, at least those."""
    try:
        holds = _is_part if log.damaged else _same
        return not backup.is_symlink() and holds(_theirs(path), _all(backup))
    except (ReadError, OSError):  # it is gone, or was never finished
        return False


def _same(one: Iterable[bytes], other: Iterable[bytes]) -> bool:
    return all(first == second for first, second in zip_longest(one, other))


def _is_part(some: Iterable[bytes], every: Iterator[bytes]) -> bool:
    """Whether the one is the other with perhaps some left out."""
    return all(record in every for record in some)


def _require_same(path: Path, new: Path, records: list[bytes]) -> None:
    """That every record of the owner's is in the new log, byte for byte and in its order, and of ours these alone."""
    ours = [record.content for record, is_our in records_of(new) if is_our]
    if ours != records or not _same(_theirs(path), _theirs(new)):
        raise WriteError(f"{printable(path)}: the new log did not read back as the old one with ours; it was not used")


def _dress(new: Path, status: os.stat_result) -> None:
    """Give the new log the owner, permissions and times of the old one: W&B tells a run's end by them."""
    if hasattr(os, "chown") and status.st_uid != os.geteuid():
        os.chown(new, status.st_uid, status.st_gid)
    new.chmod(status.st_mode & 0o7777)
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))


def _keep(path: Path) -> None:
    """Keep the log as it is: its own bytes under another name, or a copy where the file system knows no such names."""
    backup = backup_of(path)
    backup.unlink(missing_ok=True)
    try:
        backup.hardlink_to(path)
    except (OSError, NotImplementedError):
        with open_regular(path) as source, backup.open("xb") as target:
            shutil.copyfileobj(source, target, _COPIED)
        shutil.copystat(path, backup)


def _require_unchanged(path: Path, before: os.stat_result) -> None:
    now = path.stat()
    if (now.st_ino, now.st_size, now.st_mtime_ns) != (before.st_ino, before.st_size, before.st_mtime_ns):
        message = f"{printable(path)} changed while it was annotated; it was left as it is"
        raise StillRunning(message, "annotate it again when the run has ended")


def _put(new: Path, path: Path) -> None:
    new.replace(path)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
