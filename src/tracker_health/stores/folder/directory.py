"""A folder as a trainer leaves it: checkpoints and logs read in place; the verdict goes into its ``health/`` folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from tracker_health.errors import ReadError, RunNotFound, StoreRefused, WriteError
from tracker_health.evidence import Evidence, Problem, Request, RunRef, TextLog
from tracker_health.evidence.ending import fatal_trouble
from tracker_health.judge.annotations import (
    ACK,
    CAUSE,
    CERTAINTY,
    ENDED,
    EXIT,
    EXPLAINED,
    NOTIFIED,
    OPEN,
    PENDING,
    RULES,
    SETTINGS,
    SHADOW,
    STEP,
    Annotations,
    Shadow,
)
from tracker_health.readers.files.json_lines import as_step, parse_json
from tracker_health.readers.files.random_access import LocalFile, RandomAccess
from tracker_health.readers.files.regular_file import read_regular
from tracker_health.report.resume_point import Shelf
from tracker_health.roles import NOTHING_READ
from tracker_health.stores.base import Cleared, Ours, Recorded, Untracked
from tracker_health.stores.common.atomic_files import (
    is_leftover,
    link_among,
    refuse_links,
    remove_leftovers,
    replace_file,
)
from tracker_health.stores.common.exits import ending_seen
from tracker_health.stores.common.locks import locked
from tracker_health.stores.common.ownership import HEALTH_FOLDER, in_the_way, is_file_name
from tracker_health.stores.files.all_checkpoints import SavedFiles
from tracker_health.stores.files.checkpoints import CHECKPOINT_PARTS, is_checkpoint_file
from tracker_health.stores.files.naming import is_one_of_several
from tracker_health.stores.files.reading import is_relevant, is_settings, read_files
from tracker_health.stores.files.text_logs import MOST_TEXTS, may_be_text_log, texts_among
from tracker_health.stores.files.tree import RunFile
from tracker_health.text import count, listing, printable
from tracker_health.words.acknowledgements import (
    MAX_ENTRY_CHARACTERS,
    MOST_ENTRIES,
    Acknowledgement,
    on_evidence,
    parsed,
)
from tracker_health.words.verdict import Verdict

ANNOTATION_FILE = "annotation.json"
ANNOTATION_SCHEMA = "tracker-health/annotation/1"
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


class DirectoryRun(Untracked):
    """A run that is a folder."""

    _has_settings = True  # in files: no tracker knows its params

    def __init__(self, folder: str | Path) -> None:
        self._given = str(folder)
        self._folder = Path(folder)
        if not self._folder.is_dir():
            raise RunNotFound(f"{printable(folder)} is not a folder", "give the folder with the checkpoints and logs")
        self._seen = 0
        self._nothing = ""
        self._unlisted: list[str] = []

    @property
    def ref(self) -> RunRef:
        return RunRef(store="directory", id=self._given, name=self._folder.resolve().name or self._given)

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

    def traits(self) -> Mapping[str, str]:
        return {}

    def remarks(self) -> tuple[str, ...]:
        return ()

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
        # Of a single checkpoint that was named the others lie beside it, and are not looked at.
        return None if is_one_of_several(self._folder.resolve().name) else SavedFiles(self, self._shown)

    def _shown(self, path: str) -> str:
        """What people call a file of the run, from where they named the run."""
        return str(Path(self._given, path))

    def _has_checkpoint_unasked(self, request: Request) -> bool:
        return not request.needs(*CHECKPOINT_PARTS) and any(is_checkpoint_file(file.name) for file in self.files)

    def close(self) -> None:
        """Nothing was downloaded."""

    def recorded(self) -> Recorded | None:
        document = self._annotation()
        if document is None or _has_no_verdict(document):
            return None
        verdict, tags = document.get("verdict"), document.get("tags")
        known = tags if isinstance(tags, dict) else {}
        return Recorded(
            digest=PENDING if self._has_leftovers() else str(document.get("digest", PENDING)),
            verdict=Verdict(verdict) if isinstance(verdict, str) and verdict in set(Verdict) else None,
            settings=str(known.get(SETTINGS, "")),
            step=as_step(known.get(STEP)),
            ended=str(known.get(ENDED, "")),
            rules=as_step(known.get(RULES)),
            codes=(codes := _codes(known, "codes")),
            cause=str(known.get(CAUSE, "")),
            certainty=str(known.get(CERTAINTY, "")),
            explained=_codes(known, EXPLAINED) or codes,
            notified=str(known.get(NOTIFIED, "")),
        )

    def evidence(self) -> str:
        return self.fingerprint(_NO_REQUEST)

    def acknowledgements(self) -> tuple[Acknowledgement, ...]:
        entries = self._entries()
        return on_evidence(entries.values(), self.evidence()) if entries else ()

    def _entries(self) -> dict[Path, Acknowledgement]:
        """What people answered to the verdicts on the run, by the files that it is in."""
        folder, found = self._folder / HEALTH_FOLDER / ACKS_FOLDER, {}
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

    def acknowledge(self, entry: Acknowledgement) -> None:
        folder = self._folder / HEALTH_FOLDER / ACKS_FOLDER
        path = folder / f"{entry.id}.json"
        refuse_links([*self._own_folders, folder, path])
        if len(self._entries()) >= MOST_ENTRIES:
            message = f"{printable(self._given)} has {MOST_ENTRIES} entries of acknowledgements, and takes no more"
            raise WriteError(message, "clear --acks takes them off")
        with self._told("write"):
            folder.mkdir(exist_ok=True)
            replace_file(path, f"{entry.value}\n".encode())

    def notified(self) -> str:
        document = self._annotation() or {}
        tags = document.get("tags")
        known = tags.get(NOTIFIED) if isinstance(tags, dict) else document.get(NOTIFIED)
        return str(known or "")

    def mark_notified(self, value: str) -> None:
        folder = self._folder / HEALTH_FOLDER
        with self._adding() as earlier:
            tags = earlier.get("tags")
            changed = {"tags": {**tags, NOTIFIED: value}} if isinstance(tags, dict) else {NOTIFIED: value}
            replace_file(folder / ANNOTATION_FILE, _json({**earlier, **changed}))

    @contextmanager
    def _adding(self) -> Iterator[dict[str, Any]]:
        """Gives the record, to add to it and write it, while nobody else does."""
        folder = self._folder / HEALTH_FOLDER
        refuse_links(self._own_folders)
        self._refuse_no_run()
        with self._told("write"):
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder, printable(self._given)):
                earlier = self._annotation()
                self._refuse_to_overwrite(folder, earlier, None)
                yield {"schema": ANNOTATION_SCHEMA, **(earlier or {})}

    def shadow(self) -> Shadow | None:
        document = self._annotation()
        return Shadow.of(str(document.get(SHADOW, ""))) if document is not None else None

    def write_shadow(self, shadow: Shadow) -> None:
        with self._adding() as earlier:
            replace_file(self._folder / HEALTH_FOLDER / ANNOTATION_FILE, _json({**earlier, SHADOW: shadow.value}))

    def ours(self) -> Ours:
        document = self._annotation() or {}
        tags = document.get("tags")
        return Ours(
            tags=(len(tags) if isinstance(tags, dict) else 0)
            + sum(name in document for name in ("verdict", SHADOW, NOTIFIED)),
            files=len(_file_names(document)) + bool(document.keys() - {"schema", EXIT}),
            acks=len(self._entries()),
            exit=EXIT in document,
        )

    def exit(self) -> str:
        document = self._annotation()
        return str(document.get(EXIT, "")) if document is not None else ""

    def _has_leftovers(self) -> bool:
        """Whether another annotation was begun that has not ended: half a file of it lies beside the one before."""
        try:
            return any(is_leftover(path.name) for path in (self._folder / HEALTH_FOLDER).iterdir())
        except OSError:
            return False

    @property
    def _own_folders(self) -> list[Path]:
        """Where our files lie, with the folders of the run around it."""
        return [self._folder / HEALTH_FOLDER]

    def write(self, annotations: Annotations) -> tuple[str, ...]:
        folder = self._folder / HEALTH_FOLDER
        refuse_links(self._own_folders)
        self._refuse_no_run()
        with self._told("write"):
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder, printable(self._given)):
                earlier = self._annotation()
                self._refuse_to_overwrite(folder, earlier, annotations)
                remove_leftovers(folder)
                owned = set(_file_names(earlier))
                # The pending mark names every file that may be there from now on, so that a later run knows them as
                # ours.
                seen = {EXIT: annotations.exit} if annotations.exit else {}
                self._begin(owned | annotations.files.keys(), {**seen, **self._claimed(earlier, annotations)})
                for name, content in annotations.files.items():
                    replace_file(folder / name, content)
                for name in owned - annotations.files.keys():
                    (folder / name).unlink(missing_ok=True)
                beyond = self._write_beyond(annotations)
                replace_file(folder / ANNOTATION_FILE, _json(_document(annotations) | beyond))
        return ()

    def _refuse_no_run(self) -> None:
        if self._nothing and self._annotation() is None:
            # Any folder at all may have been named by mistake.
            message = f"{printable(self._given)} holds no run: nothing was written"
            raise WriteError(message, "give the folder with the checkpoints and logs")

    def _begin(self, names: Iterable[str], beyond: Mapping[str, Any]) -> None:
        """Mark the folder as being written, with the names of all the files in it that are ours, or may be.

        ``beyond``: what the record says of all else.
        """
        seen = {EXIT: value} if (value := self.exit()) else {}
        seen |= {NOTIFIED: value} if (value := self.notified()) else {}
        replace_file(self._folder / HEALTH_FOLDER / ANNOTATION_FILE, _json({**seen, **beyond, **_pending(names)}))

    def _claimed(
        self,
        earlier: dict[str, Any] | None,  # noqa: ARG002 - for runs that have more
        annotations: Annotations | None,  # noqa: ARG002
    ) -> dict[str, Any]:
        """What the record has to say of what lies elsewhere and is ours, or may be once these are written.

        Raises:
            WriteError: something of the owner's is in the way.
        """
        return {}

    def _put(self, path: Path, content: bytes) -> None:
        """Write a file of ours elsewhere in the run."""
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)

    def _take_away(self, path: Path) -> None:
        """Delete such a file, with what a killed annotator left beside it, and the folders that are empty then."""
        path.unlink(missing_ok=True)
        with suppress(OSError):  # a folder is not there, or not empty
            remove_leftovers(path.parent)
            for folder in path.relative_to(self._folder).parents:
                (self._folder / folder).rmdir()

    def _write_beyond(self, annotations: Annotations) -> dict[str, Any]:  # noqa: ARG002 - for runs that have more
        """Write what does not go into the folder; what its record has to say of it."""
        return {}

    def clear(self, *, acks: bool = False) -> Cleared:
        if link_among(self._own_folders):
            return Cleared(found=False)
        entries = self._entries()
        cleared = self._clear_annotation()
        if entries and acks:
            with self._told("delete"):
                self._remove_entries(entries)
        left = {} if acks else entries
        return replace(cleared, found=cleared.found or bool(entries and acks), acks=len(left))

    def _remove_entries(self, paths: Iterable[Path]) -> None:
        folder = self._folder / HEALTH_FOLDER
        refuse_links(paths)
        for path in paths:
            path.unlink(missing_ok=True)
        remove_leftovers(folder / ACKS_FOLDER)
        for place in (folder / ACKS_FOLDER, folder):
            with suppress(OSError):  # something else is in it
                place.rmdir()

    def _clear_annotation(self) -> Cleared:
        folder = self._folder / HEALTH_FOLDER
        if _is_cleared(self._annotation()):
            return Cleared(found=False)
        with self._told("delete"), locked(folder, printable(self._given)):
            earlier = self._annotation()
            if _is_cleared(earlier):  # somebody else has done so meanwhile
                return Cleared(found=False)
            names, seen = _file_names(earlier), self.exit() if ending_seen(self) is not None else ""
            refuse_links(folder / name for name in (ANNOTATION_FILE, *names))
            self._begin(names, self._claimed(earlier, None))
            self._clear_beyond()
            for name in names:
                (folder / name).unlink(missing_ok=True)
            remove_leftovers(folder)
            # Last, for it names the others: a clearing that is interrupted can be done again.
            if seen:
                replace_file(folder / ANNOTATION_FILE, _json({"schema": ANNOTATION_SCHEMA, EXIT: seen}))
            else:
                (folder / ANNOTATION_FILE).unlink()
            if not any(folder.iterdir()):
                folder.rmdir()
        return Cleared(found=True, exit=bool(seen))

    def _clear_beyond(self) -> None:
        """Take off what does not lie in the folder."""

    def _refuse_to_overwrite(
        self, folder: Path, earlier: dict[str, Any] | None, annotations: Annotations | None
    ) -> None:
        if earlier is None and not all(is_leftover(path.name) or self._holds_acks(path) for path in folder.iterdir()):
            raise in_the_way(printable(folder))
        files = annotations.files if annotations is not None else {}
        names = {ANNOTATION_FILE, *_file_names(earlier), *files}
        refuse_links(folder / name for name in sorted(names))
        for name in sorted(files.keys() - set(_file_names(earlier))):
            if os.path.lexists(folder / name):
                raise in_the_way(printable(folder / name))

    def _holds_acks(self, path: Path) -> bool:
        """Whether that is the folder of the entries, in which nothing else is."""
        if path.name != ACKS_FOLDER or path.is_symlink() or not path.is_dir():
            return False
        return self._entries().keys() >= {one for one in path.iterdir() if not is_leftover(one.name)}

    @contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        """Turn what the operating system says into an error about this run."""
        folder = printable(self._folder / HEALTH_FOLDER)
        try:
            yield
        except PermissionError as error:
            raise StoreRefused(f"{folder}: no permission to {doing} there") from error
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
            return f"nothing to judge in it: among {of} none names a metric and its value, as in 'step 100 loss=0.52'"
        found = "no training log or checkpoint" if self._seen else "it is empty"
        looked_for = (
            "trainer_state.json, logs (*.jsonl, metrics.csv, *.log, TensorBoard's event files), notebooks, "
            "training_state.pt, optimizer.pt and other torch checkpoints"
        )
        return f"nothing to judge in it: {found}; looked for {looked_for}"

    def _annotation(self) -> dict[str, Any] | None:
        path = self._folder / HEALTH_FOLDER / ANNOTATION_FILE
        try:
            document = parse_json(read_regular(path, _MAX_ANNOTATION_BYTES))
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise StoreRefused(f"{printable(path)}: no permission to read it") from error
        except (ReadError, OSError, ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or document.get("schema") != ANNOTATION_SCHEMA:
            return None
        return document


def _status_of_file(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for what is no regular file, or is gone: a live run deletes its old checkpoints."""
    try:
        return entry.stat() if entry.is_file() else None
    except OSError:
        return None


def _is_cleared(document: dict[str, Any] | None) -> bool:
    """Whether there is nothing to clear: nothing at all, or only what was seen of the run's end."""
    return document is None or document.keys() == {"schema", EXIT}


def _has_no_verdict(document: dict[str, Any] | None) -> bool:
    """Whether there is no annotation, though perhaps what was seen of the run's end, was only tried out, or sent."""
    return document is None or {"schema"} < document.keys() <= {"schema", EXIT, SHADOW, NOTIFIED}


def _codes(tags: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(code for code in str(tags.get(name, "")).split(",") if code)


def _is_entered(folder: str, depth: int) -> bool:
    ours = depth == 0 and folder == HEALTH_FOLDER
    return not ours and folder not in _SKIPPED_FOLDERS and not folder.startswith(".")


def _file_names(document: dict[str, Any] | None) -> list[str]:
    """The names of our files that an earlier annotation lists; only plain names, whatever somebody wrote there."""
    names = document.get("files") if document else None
    return list(filter(is_file_name, names)) if isinstance(names, list) else []


def _pending(names: Iterable[str]) -> dict[str, Any]:
    return {"schema": ANNOTATION_SCHEMA, "digest": PENDING, "files": sorted(names)}


def _document(annotations: Annotations) -> dict[str, Any]:
    return {
        "schema": ANNOTATION_SCHEMA,
        "verdict": str(annotations.verdict),
        "digest": annotations.digest,
        # The marks follow from the entries beside this file, which come and go without it.
        "tags": {name: value for name, value in annotations.tags.items() if name not in (ACK, OPEN)},
        "metrics": dict(annotations.metrics),
        "note": annotations.note,
        "files": sorted(annotations.files),
        **({EXIT: annotations.exit} if annotations.exit else {}),
    }


def _json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()
