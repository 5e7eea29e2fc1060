"""A folder as a trainer leaves it: checkpoints and logs read in place; the verdict goes into its ``health/`` folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from tracker_health.errors import ReadError, RunNotFound, StoreRefused, WriteError
from tracker_health.evidence import Evidence, Problem, Request, RunRef, TextLog
from tracker_health.evidence.ending import fatal_trouble
from tracker_health.readers.files.json_lines import parse_json
from tracker_health.readers.files.random_access import LocalFile, RandomAccess
from tracker_health.readers.files.regular_file import read_regular
from tracker_health.report.resume_point import Shelf
from tracker_health.roles import NOTHING_READ
from tracker_health.run_files.all_checkpoints import SavedFiles
from tracker_health.run_files.checkpoints import CHECKPOINT_PARTS, is_checkpoint_file
from tracker_health.run_files.naming import is_one_of_several
from tracker_health.run_files.reading import is_relevant, is_settings, read_files
from tracker_health.run_files.text_logs import MOST_TEXTS, may_be_text_log, texts_among
from tracker_health.run_files.tree import RunFile
from tracker_health.stores.base import Cleared, RunRecord
from tracker_health.stores.common.atomic_files import (
    is_leftover,
    link_among,
    refuse_links,
    remove_leftovers,
    replace_file,
)
from tracker_health.stores.common.locks import locked
from tracker_health.stores.common.ownership import HEALTH_FOLDER, OUR_FILES, in_the_way
from tracker_health.stores.common.record import ENTRY_PREFIX, Written
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.folder.annotation_file import ANNOTATION_FILE, document_of, is_record, marks_of
from tracker_health.stores.folder.unread import folder_to_try, head_of, unread_files
from tracker_health.text import count, listing, printable
from tracker_health.words.acknowledgements import MAX_ENTRY_CHARACTERS, MOST_ENTRIES, Acknowledgement, parsed

ACKS_FOLDER = "acks"
"""Below ``health``: one file for each entry of an acknowledgement, so that two people at once write two."""

MAX_DEPTH = 6
MANY_FILES = 20_000
MAX_FILES = 500_000
_MAX_ANNOTATION_BYTES = 4 * 2**20
_MAX_ENTRY_BYTES = 4 * MAX_ENTRY_CHARACTERS
_MOST_LISTED = 10 * MOST_ENTRIES
_NO_REQUEST = Request(roles=NOTHING_READ, parts=frozenset())
_SKIPPED_FOLDERS = frozenset({"wandb", "mlruns", "node_modules", "__pycache__"})


class DirectoryRun(TrackedRun):
    """A run that is a folder."""

    note = "mark"
    _clears = False

    _has_settings = True  # in files: no tracker knows its params

    def __init__(self, folder: str | Path) -> None:
        self._given = str(folder)
        self._folder = Path(folder)
        if not self._folder.is_dir():
            raise RunNotFound(f"{printable(folder)} is not a folder", "give the folder with the checkpoints and logs")
        self._seen = 0
        self._nothing = ""
        self._unlisted: list[str] = []

    @cached_property
    def record(self) -> RunRecord:
        return RunRecord(
            ref=RunRef(store="directory", id=self._given, name=self._folder.resolve().name or self._given),
            shown=printable(self._given),
            marks=lambda: self._marks,
            naming="health/annotation.json: {}".format,
            evidence=lambda: self.fingerprint(_NO_REQUEST),
            why_not_asked="no training looks there for such a request: it is a folder or a file",
        )

    def look(self) -> None:
        for name in ("record", "_marks"):
            self.__dict__.pop(name, None)

    @cached_property
    def files(self) -> tuple[RunFile, ...]:
        """The files below the folder, sorted by path; where there are very many, those that may matter by their names.

        Hidden folders and linked ones are not entered; linked files count, as data versioning and caches make them.
        """
        found: list[RunFile] = []
        texts = 0
        try:
            for file in self._walk(self._folder, 0):
                self._seen += 1
                if self._seen > MAX_FILES:
                    break
                text = may_be_text_log(file.path)
                texts += text
                if len(found) < MANY_FILES or self._matters(file) or (text and texts <= MOST_TEXTS + 1):
                    found.append(file)
        except PermissionError as error:
            raise StoreRefused(f"{printable(self._given)}: no permission to list it") from error
        return tuple(sorted([*found, *self._logs_above()], key=lambda file: file.path))

    def _matters(self, file: RunFile) -> bool:
        return is_relevant(file.path) or (self._has_settings and is_settings(file.name))

    def local(self, file: RunFile) -> Path:
        return self._folder / file.path

    def open(self, file: RunFile) -> RandomAccess:
        return LocalFile(self.local(file))

    def fingerprint(self, request: Request) -> str:  # noqa: ARG002 - the protocol's
        texts = texts_among(self.files)
        files = [file for file in self.files if self._matters(file) or file in texts]
        content = [[file.path, file.size, file.modified] for file in files]
        return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def read(self, request: Request) -> Evidence:
        found = read_files(self, request, settings=self._has_settings, folder_name=self._folder.resolve().name)
        found.problems += self._unseen()
        known = found.names or found.params or found.optimizer or found.weights or found.dlm_step_log or found.missing
        has_end = fatal_trouble(found.text_log) is not None  # a log of nothing but its end is judged by that
        if not (known or has_end or found.problems or found.doubtful or self._has_checkpoint_unasked(request)):
            self._nothing = self._nothing_found(found.text_log)
            found.problems.append(Problem(source=self._given, message=self._nothing))
        return found.evidence(self.ref, request)

    def saved(self, request: Request) -> Shelf | None:  # noqa: ARG002 - nothing has to be fetched
        # Of a single checkpoint that was named the others are next to it, and are not looked at.
        return None if is_one_of_several(self._folder.resolve().name) else SavedFiles(self, self._shown)

    def _shown(self, path: str) -> str:
        """What people call a file of the run, from where they named the run."""
        return str(Path(self._given, path))

    def _has_checkpoint_unasked(self, request: Request) -> bool:
        return not request.needs(*CHECKPOINT_PARTS) and any(is_checkpoint_file(file.name) for file in self.files)

    def close(self) -> None:
        """Nothing was downloaded."""

    # Ours

    @property
    def _health(self) -> Path:
        return self._folder / HEALTH_FOLDER

    @property
    def _own_folders(self) -> list[Path]:
        """Where our files are, with the folders of the run around it."""
        return [self._health]

    @contextmanager
    def writing(self, doing: str, *, live: bool = False) -> Iterator[None]:  # noqa: ARG002 - what fails says itself
        folder = self._health
        refuse_links([*self._own_folders, folder / ACKS_FOLDER])
        self._refuse_no_run()
        with self._told():
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder, printable(self._given)):
                self.look()
                if not self._clears:  # what is ours there may go, whoever has put something next to it
                    self._refuse_foreign(folder)
                refuse_links([folder / ANNOTATION_FILE])
                remove_leftovers(folder)
                try:
                    yield
                finally:
                    with suppress(OSError):  # something is in it
                        folder.rmdir()

    def _refuse_no_run(self) -> None:
        if self._nothing and self._annotation() is None:
            # Any folder at all may have been named by mistake.
            message = f"{printable(self._given)} holds no run: nothing was written"
            raise WriteError(message, "give the folder with the checkpoints and logs")

    def _refuse_foreign(self, folder: Path) -> None:
        """Raise for a folder of our name that someone else has made."""
        known = is_record(self._annotation()) or all(self._holds_acks(path) for path in self._lying(folder))
        if not known:
            raise in_the_way(printable(folder))

    def _lying(self, folder: Path) -> list[Path]:
        return [path for path in folder.iterdir() if not is_leftover(path.name)]

    def _holds_acks(self, path: Path) -> bool:
        """Whether that is the folder of the entries, in which nothing else is."""
        if path.name != ACKS_FOLDER or path.is_symlink() or not path.is_dir():
            return False
        return self._entries().keys() >= {one for one in path.iterdir() if not is_leftover(one.name)}

    def clear(self, *, acks: bool = False) -> Cleared:
        """Nothing is made to take something off, and a link is not ours."""
        if link_among(self._own_folders) or not self.marks:
            return Cleared(found=False)
        self._clears = True
        try:
            return super().clear(acks=acks)
        finally:
            self._clears = False

    @cached_property
    def _marks(self) -> dict[str, Any]:
        entries = {f"{ENTRY_PREFIX}{path.stem}": entry.value for path, entry in self._entries().items()}
        return marks_of(self._annotation() or {}, half=self._has_leftovers()) | entries

    def _has_leftovers(self) -> bool:
        """Whether another annotation was begun that has not ended: half a file of it is next to the one before."""
        try:
            return any(is_leftover(path.name) for path in self._health.iterdir())
        except OSError:
            return False

    def set_marks(self, changes: Mapping[str, Any]) -> frozenset[str]:
        try:
            for name, value in changes.items():
                if name.startswith(ENTRY_PREFIX):
                    self._set_entry(name.removeprefix(ENTRY_PREFIX), value)
            document = document_of({**marks_of(self._annotation() or {}), **changes})
            path = self._health / ANNOTATION_FILE
            if document:
                replace_file(path, _json({**document, **self._beyond(document)}))
            else:  # last, for it names the others: a clearing that is interrupted can be done again
                path.unlink(missing_ok=True)
        finally:
            self.look()
        return frozenset()

    def _beyond(self, document: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002 - for runs that have more
        """What the record says of what is elsewhere and is ours."""
        return {}

    def list_files(self) -> Mapping[str, str]:
        refuse_links(self._health / name for name in sorted(OUR_FILES | Written.of(self.marks).all_files))
        lying = {path.name for path in self._lying(self._health)}
        return dict.fromkeys(lying - {ANNOTATION_FILE, ACKS_FOLDER}, "")

    def get_file(self, name: str, limit: int) -> bytes:
        path = self._health / name
        return read_regular(path, limit) if path.stat().st_size <= limit else b""

    def put_files(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            replace_file(self._health / name, content)

    def delete_files(self, names: Iterable[str]) -> frozenset[str]:
        for name in names:
            (self._health / name).unlink(missing_ok=True)
        return frozenset()

    def _entries(self) -> dict[Path, Acknowledgement]:
        """What people answered to the verdicts on the run, by the files that it is in."""
        folder, found = self._health / ACKS_FOLDER, {}
        if link_among([*self._own_folders, folder]):
            return {}
        try:
            paths = sorted(path for path in islice(folder.iterdir(), _MOST_LISTED) if path.suffix == ".json")
        except OSError:
            return {}
        for path in paths:
            with suppress(ReadError, OSError, ValueError):
                content = read_regular(path, _MAX_ENTRY_BYTES).decode()
                if (entry := parsed(content.strip(), path.stem)) is not None:
                    found[path] = entry
        return found

    def _set_entry(self, entry_id: str, value: str | None) -> None:
        folder = self._health / ACKS_FOLDER
        path = folder / f"{entry_id}.json"
        refuse_links([path])
        if value is not None:
            folder.mkdir(exist_ok=True)
            replace_file(path, f"{value}\n".encode())
            return
        path.unlink(missing_ok=True)
        with suppress(OSError):  # something else is in it
            remove_leftovers(folder)
            folder.rmdir()

    def _annotation(self) -> dict[str, Any] | None:
        path = self._health / ANNOTATION_FILE
        try:
            document = parse_json(read_regular(path, _MAX_ANNOTATION_BYTES))
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise StoreRefused(f"{printable(path)}: no permission to read it") from error
        except (ReadError, OSError, ValueError, RecursionError):
            return None
        return document if is_record(document) else None

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what the operating system says into an error about this run."""
        folder = printable(self._health)
        try:
            yield
        except PermissionError as error:
            raise StoreRefused(f"{folder}: no permission to write there") from error
        except OSError as error:
            raise WriteError(f"{folder}: {error.strerror}") from error

    def _unseen(self) -> list[Problem]:
        """What of the folder was not looked at."""
        messages = []
        if self._unlisted:
            messages.append(f"could not look into {listing(self._unlisted)}")
        if self._seen > MAX_FILES:
            messages.append(f"more than {MAX_FILES} files; the others were not looked at")
        return [Problem(source=self._given, message=message) for message in messages]

    def _walk(self, folder: Path, depth: int) -> Iterator[RunFile]:
        try:
            listed = os.scandir(folder)
        except OSError:
            if depth == 0:
                raise
            self._unlisted.append(folder.relative_to(self._folder).as_posix())
            return
        with listed as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if depth < MAX_DEPTH and _is_entered(entry.name, depth):
                        yield from self._walk(Path(entry.path), depth + 1)
                elif (status := _status_of_file(entry)) is not None:
                    path = Path(entry.path).relative_to(self._folder).as_posix()
                    yield RunFile(path=path, size=status.st_size, modified=status.st_mtime)

    def _logs_above(self) -> list[RunFile]:
        """The logs of the store that this folder is an adapter version of: ``STORE/logs`` for ``STORE/adapter/...``."""
        folder = self._folder.resolve()
        for depth, parent in enumerate(list(folder.parents)[:3], start=1):
            if folder.relative_to(parent).parts[0] == "adapter" and (parent / "logs").is_dir():
                climb = "/".join([".."] * depth)
                return [
                    RunFile(path=f"{climb}/logs/{path.name}", size=path.stat().st_size, modified=path.stat().st_mtime)
                    for path in sorted((parent / "logs").glob("train-*.jsonl"))
                    if path.is_file()
                ]
        return []

    def _nothing_found(self, log: TextLog | None) -> str:
        if log is not None and not log.rows:
            of = f"{count(log.lines, 'line')} of {printable(log.source)}"
            begins = next((head_of(file, self._folder) for file in self.files if file.path == log.source), "")
            return (
                f"nothing to judge in it: among {of}{begins} none names a metric and its value, "
                "as in 'step 100 loss=0.52'"
            )
        if not self._seen:
            return "nothing to judge in it: it is empty; give the folder that the training writes to"
        seen = f"no training log or checkpoint; seen: {unread_files(self.files, self._folder)}"
        if folder := folder_to_try(self.files):
            return f"nothing to judge in it: {seen}; give the folder of one run: {printable(folder, 100)}"
        return f"nothing to judge in it: {seen}; looked for {_LOOKED_FOR}; {_TO_TRY}"


_LOOKED_FOR = (
    "trainer_state.json, logs (*.jsonl, metrics.csv, *.log, TensorBoard's event files), notebooks, "
    "training_state.pt, optimizer.pt and other torch checkpoints"
)
_TO_TRY = "lines as 'step 100 loss=0.52' are read, and columns of any name: --set roles.train_loss=NAME"


def _status_of_file(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for what is no regular file, or is gone: a live run deletes its old checkpoints."""
    try:
        return entry.stat() if entry.is_file() else None
    except OSError:
        return None


def _is_entered(folder: str, depth: int) -> bool:
    ours = depth == 0 and folder == HEALTH_FOLDER
    return not ours and folder not in _SKIPPED_FOLDERS and not folder.startswith(".")


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()
