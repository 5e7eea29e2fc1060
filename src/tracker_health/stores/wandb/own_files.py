"""Our files on a run of a W&B server, and the marks that are kept in files."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from tracker_health.errors import UNREADABLE, RunError
from tracker_health.judge.annotations import NOTIFIED, REPORT_FILE
from tracker_health.judge.messages import SentMessages
from tracker_health.readers.files.regular_file import read_regular
from tracker_health.stores.common.ownership import HEALTH_FOLDER, is_file_name
from tracker_health.stores.common.record import DIGEST, ENTRY_PREFIX, Marks
from tracker_health.stores.common.temporary import TemporaryFolder
from tracker_health.stores.wandb.connection import Connection, fetched, own_files_of
from tracker_health.stores.wandb.media import (
    ENTRIES,
    LOCAL_COPIES,
    MEDIA_PLACES,
    NOTIFIED_PLACE,
    OWN_PLACES,
    place_of,
)

_MAX_MARK_BYTES = 20_000
_NAMES = {place: name for name, place in (MEDIA_PLACES | LOCAL_COPIES).items()}


class OwnFiles:
    """The files of one run where ours are. ``old``: by place, the MD5 of each that was written or deleted since, as it
    was before; a server may list it for a while.
    """

    def __init__(self, connection: Connection, run: Any, old: dict[str, str | None] | None = None) -> None:
        self._connection, self._run = connection, run
        self._old = {} if old is None else old

    def listed_again(self, run: Any) -> OwnFiles:
        """The files that a run has that was asked for again."""
        return OwnFiles(self._connection, run, self._old)

    @cached_property
    def _there(self) -> dict[str, Any]:
        """The SDK's files, by place."""
        return {file.name: file for file in own_files_of(self._run)}

    @property
    def is_as_left(self) -> bool:
        """Whether the list shows no file as it was before."""
        return not any(self._is_old(place) for place in self._old)

    def _is_old(self, place: str) -> bool:
        file = self._there.get(place)
        return place in self._old and (None if file is None else file.md5) == self._old[place]

    def listed(self, names: Iterable[str]) -> dict[str, str]:
        """See ``StoredRun.list_files``; without what was deleted, though a server may list it for a while. ``names``:
        of ours by the run's record. Those of another version are asked for.
        """
        if others := sorted({place_of(name) for name in names} - {*OWN_PLACES, *self._there}):
            doing = f"the files of W&B run {'/'.join(self._run.path)} could not be listed"
            asked = self._connection.asked(doing, lambda: list(self._run.files(names=others)))
            self._there.update((file.name, file) for file in asked)
        found = {}
        for place, file in self._there.items():
            name = _NAMES.get(place, place.removeprefix(f"{HEALTH_FOLDER}/"))
            if is_file_name(name) and place_of(name) == place != NOTIFIED_PLACE and not self._is_old(place):
                found[name] = _in_hex(file.md5)
        return found

    def get(self, name: str, limit: int) -> bytes:
        """A file's content; empty for none, and for one of more than ``limit`` bytes.

        Raises:
            RunError: it cannot be fetched.
        """
        return self._content(place_of(name), limit)

    def _content(self, place: str, limit: int) -> bytes:
        file = self._there.get(place)
        if file is None or not 0 < file.size <= limit:
            return b""
        with TemporaryFolder() as folder:
            target = Path(folder, "file")
            fetched(self._connection, file, target)
            return read_regular(target, limit)

    def put(self, files: Mapping[str, bytes]) -> None:
        """Write files, by name."""
        self._upload({place_of(name): files[name] for name in sorted(files, key=lambda name: name != REPORT_FILE)})

    def _upload(self, files: Mapping[str, bytes]) -> None:
        self._connection.upload(self._run, files)
        for place, content in files.items():
            before = self._there.get(place)
            if before is None or before.md5 != _md5_of(content):
                self._old[place] = None if before is None else before.md5
            else:
                self._old.pop(place, None)

    def delete(self, names: Iterable[str]) -> frozenset[str]:
        """Delete files. Gives those that would not go."""
        return frozenset(name for name in sorted(names) if not self._deleted(place_of(name)))

    def _deleted(self, place: str) -> bool:
        file = self._there.get(place)
        if file is not None and not self._is_old(place):
            try:
                self._connection.delete(self._run, file)
            except RunError:
                return False
            self._old[place] = file.md5
        return True

    # Marks in files

    def marks(self, known: Marks) -> dict[str, str]:
        """The marks that are in files; of entries those that the summary does not list."""
        found = {NOTIFIED: self._text(NOTIFIED_PLACE)} if NOTIFIED_PLACE in self._there else {}
        for place in self._there:
            name = f"{ENTRY_PREFIX}{place.removeprefix(ENTRIES).removesuffix('.json')}"
            if place.startswith(ENTRIES) and name not in known:
                with suppress(*UNREADABLE):
                    found[name] = self._text(place)
        return found

    def _text(self, place: str) -> str:
        return self._content(place, _MAX_MARK_BYTES).decode(errors="replace").strip()

    def set_marks(self, changes: Mapping[str, Any], *, in_summary: Callable[[str], bool]) -> frozenset[str]:
        """Bring the files up to date with these changes. Gives the names of marks that are in a file alone."""
        for name, value in changes.items():
            if name.startswith(ENTRY_PREFIX):
                place = f"{ENTRIES}{name.removeprefix(ENTRY_PREFIX)}.json"
                self._change(place, value)
        if NOTIFIED not in changes:
            return frozenset()
        value = changes[NOTIFIED]
        alone = value is not None and DIGEST not in changes and not in_summary(NOTIFIED)
        if alone or SentMessages.of(self._text(NOTIFIED_PLACE)).value:  # else a file there is its owner's
            self._change(NOTIFIED_PLACE, value if alone else None)
        return frozenset({NOTIFIED} if alone else ())

    def _change(self, place: str, value: str | None) -> None:
        if value is None:
            self._deleted(place)
        else:
            self._upload({place: value.encode()})


def _md5_of(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


def _in_hex(md5: object) -> str:
    """A checksum as W&B writes it, as others do; "" for none."""
    with suppress(ValueError):
        return base64.b64decode(str(md5 or ""), validate=True).hex()
    return ""
