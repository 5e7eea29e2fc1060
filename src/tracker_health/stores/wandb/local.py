"""A run of W&B in a folder of this machine: its transaction log, its files, and what of its artifacts is staged here.

The verdict goes into ``files/health/`` and, as records before the exit, into the log, from where ``wandb sync`` takes
it to a server.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from tracker_health.errors import LeftAlone, ReadError, RunNotFound, StillRunning, StoreRefused, WriteError
from tracker_health.evidence import Evidence, Part, Problem, Pulse, Request, RunRef, Series, StepUnit
from tracker_health.judge.annotations import PENDING, Annotations
from tracker_health.readers.files.regular_file import open_regular, read_regular, require_written
from tracker_health.readers.log_formats import log_of
from tracker_health.roles import TRAIN_LOSS, assign
from tracker_health.run_files.checkpoints import CHECKPOINT_PARTS
from tracker_health.run_files.naming import is_plain
from tracker_health.run_files.reading import is_relevant, read_files
from tracker_health.run_files.tree import FileEvidence, RunFile, Tracked
from tracker_health.stores.base import RunRecord
from tracker_health.stores.common.atomic_files import link_among, replace_file
from tracker_health.stores.common.atomic_files import remove_leftovers as remove_half_files
from tracker_health.stores.common.ownership import in_the_way
from tracker_health.stores.common.record import DIGEST, VERDICT, Written
from tracker_health.stores.folder.directory import DirectoryRun
from tracker_health.stores.wandb.alive import Writer, is_long_ago, writer_of
from tracker_health.stores.wandb.log_writer import (
    backup_of,
    our_records,
    remove_leftovers,
    replace_ours,
    restore,
    was_damaged_since,
)
from tracker_health.stores.wandb.media import MEDIA_PLACES, media_of, place_of
from tracker_health.stores.wandb.segments import Segments, logs_beside, segments_of
from tracker_health.stores.wandb.transaction_log import LoggedFile, TransactionLog, console_of, read_log
from tracker_health.stores.wandb.trials import was_stopped_by_sweep
from tracker_health.stores.wandb.values import (
    OWN_KEY,
    OWN_TAGS,
    SDK_FILES,
    STEP,
    TIME,
    Histories,
    is_metric,
)
from tracker_health.text import count, listing, printable
from tracker_health.words.gap_names import LIVE_WANDB_TAGS
from tracker_health.words.repairs import RepairMark
from tracker_health.words.stopped import stop_of

FILES_FOLDER = "files"
SYNCED = ".synced"
_HISTORIES = ("train_loss", "val_loss", "objective_loss")
_STAGING = ("artifacts", "staging")
_ONLINE = _LOG_OF = "run-"
_NOT_ASKED = "only files were asked for"
_OF_A_VERDICT = frozenset({"verdict", "digest", "written"})


class LocalRun(DirectoryRun):
    """A run whose log is ``path``. ``sidecar``: of a verdict only the files are to be written."""

    _has_settings = False

    def __init__(self, given: str | Path, path: Path, *, sidecar: bool = False) -> None:
        if not path.is_file():
            raise RunNotFound(f"there is no run of W&B at {printable(given)}", "give its folder, or its .wandb file")
        self._given = str(given)
        self._path = path
        self._folder = path.parent / FILES_FOLDER
        self._sidecar = sidecar
        self._seen = 0
        self._nothing = ""
        self._unlisted: list[str] = []
        self._left_out = ""
        self._is_beside = False
        self._version: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def record(self) -> RunRecord:
        ref = RunRef(store="wandb", id=self._given, name=printable(self._log.name or self._log.run_id or self._given))
        return replace(
            super().record,
            ref=ref,
            naming=f"{OWN_KEY}{{}} in the summary".format,
            placing=place_of,
            traits=self._traits,
            remarks=self._remarks,
            heard=lambda: self._heard if self._status == "OPEN" and self._writer is not Writer.ELSEWHERE else None,
            pulse=self._pulse,
            last_step=self._segments.last_step,
            state=lambda: self._contents,
            why_not_asked="its training writes this log and reads nothing back; ask the run on its server",
        )

    def look(self) -> None:
        """Look again whether the run is still running, and into a changed log, when they are next asked for."""
        super().look()
        for name in ("_status", "_writer"):
            self.__dict__.pop(name, None)
        if self._version != self._versions():
            for name in ("_read", "_segments", "record"):
                self.__dict__.pop(name, None)

    def _versions(self) -> tuple[tuple[int, ...], ...]:
        """What differs once a log of the run was written to, or there is another one."""
        return tuple(map(_version_of, logs_beside(self._path, self._path.stem.removeprefix(_LOG_OF))))

    # Reading

    @cached_property
    def _read(self) -> tuple[TransactionLog, str]:
        """What the log says; and why it cannot be read, empty where it can."""
        self._version = self._versions()
        try:
            return read_log(self._path), ""
        except ReadError as error:
            return TransactionLog(), error.message
        except PermissionError as error:
            raise StoreRefused(f"{printable(self._path)}: no permission to read it") from error
        except OSError as error:
            return TransactionLog(), f"it cannot be read: {error.strerror}"

    @property
    def _log(self) -> TransactionLog:
        return self._read[0]

    @cached_property
    def _segments(self) -> Segments:
        """The logs of the run that are judged as one with this one."""
        roles = assign(filter(is_metric, self._log.names))
        return segments_of(self._path, self._log, [name for name, role in roles.items() if role == TRAIN_LOSS])

    @property
    def has_all_of_its_id(self) -> bool:
        """Whether all logs here of the run's id are of one training, this one at their end: it was resumed."""
        segments = self._segments
        return segments.last.path == self._path and not (segments.apart or segments.others)

    @property
    def _contents(self) -> str:
        """A digest of all that is judged."""
        return " ".join(one.log.contents for one in self._segments.parts)

    @cached_property
    def _status(self) -> str:
        log = self._segments.last.log
        if log.exit_code is not None:
            return "FINISHED" if log.exit_code == 0 else "PREEMPTED" if log.preempting else "FAILED"
        if self._writer is Writer.GONE:
            swept = bool(log.sweep) and was_stopped_by_sweep(self._segments.last.path)
            return "PREEMPTED" if log.preempting else "SWEPT" if swept else "GONE"
        left = log.preempting and self._writer is Writer.UNKNOWN and is_long_ago(self._heard)
        return "PREEMPTED" if left else "OPEN"

    @property
    def _heard(self) -> float:
        """The time of the newest record, in seconds since 1970.

        A file's own date is that of the last copy. It counts where a process is seen to write the file, and where no
        record has a time.
        """
        last = self._segments.last
        written, heard = last.path.stat().st_mtime, last.log.heard
        return written if heard is None else max(written, heard) if self._writer is Writer.AT_WORK else heard

    def _pulse(self) -> Pulse:
        """By the log alone, which is written whenever 32 KiB have come together: what came since is not known."""
        log = self._segments.last.log
        return Pulse(points=log.logged, vital=log.measured, until=log.heard)

    @cached_property
    def _writer(self) -> Writer:
        last = self._segments.last
        return writer_of(last.path, last.log.host)

    @cached_property
    def files(self) -> tuple[RunFile, ...]:
        """The files next to the log, and those of logged artifacts that are still staged on this machine."""
        beside = super().files if self._folder.is_dir() else ()
        # A sync adds some of them: that changes nothing of the run.
        beside = tuple(file for file in beside if not file.path.startswith(SDK_FILES))
        taken = {file.path for file in beside}
        staged = (file for path in self._staged if path not in taken and (file := self._staged_file(path)))
        return tuple(sorted([*beside, *staged], key=lambda file: file.path))

    @cached_property
    def _staged(self) -> dict[str, LoggedFile]:
        """By path in the run, the files of logged artifacts: ``artifacts/model/v0/model.pt``."""
        versions: dict[str, dict[str, int]] = {}
        found = {}
        for file in self._log.artifacts:
            known = versions.setdefault(file.artifact, {})
            version = known.setdefault(file.version, len(known))
            path = f"artifacts/{file.artifact}/v{version}/{file.path}"
            if is_plain(path) and is_relevant(path):
                found[path] = file
        return found

    def _staged_file(self, path: str) -> RunFile | None:
        """The file as it is there: where W&B stages files, and of the size that was logged. None where it is gone."""
        logged = self._staged[path]
        place = Path(logged.staged)
        staged = any(place.parts[at : at + 2] == _STAGING for at in range(len(place.parts)))
        if ".." in place.parts or not staged:
            return None
        with suppress(OSError, ValueError):
            status = place.stat()
            if status.st_size == logged.size:
                return RunFile(path=path, size=status.st_size, modified=status.st_mtime)
        return None

    def local(self, file: RunFile) -> Path:
        logged = self._staged.get(file.path)
        return super().local(file) if logged is None else Path(logged.staged)

    def _shown(self, path: str) -> str:
        logged = self._staged.get(path)
        return str(self._folder / path) if logged is None else logged.staged

    def _traits(self) -> Mapping[str, str]:
        """The project, with and without the entity before it, and the tags, which have no values."""
        log = self._log
        project = f"{log.entity}/{log.project}" if log.entity else log.project
        tags = {f"tag:{tag}": "" for tag in log.tags if tag not in OWN_TAGS | LIVE_WANDB_TAGS}
        return {**({"project": project} if log.project else {}), **tags}

    def _remarks(self) -> tuple[str, ...]:
        remarks = list(self._segments.remarks())
        if self._log.torn:
            remarks.append("the end of its log is cut off in the middle of a record: what came before was read")
        if self._status == "SWEPT":
            remarks.append(
                "its sweep stopped it, by its log: it has no end, as those of other trials that lagged behind"
            )
        if self._writer is Writer.ELSEWHERE:
            remarks.append("its log is a copy: the run is still running, and writes the original")
        elif self._status in ("GONE", "OPEN"):
            remarks.append("its log has no exit record: it is still running, was killed or lost, or nobody closed it")
        return tuple(remarks)

    def stopped(self) -> str:
        """As its training has it in the log, which stays as it is."""
        text = self._log.stopped
        return text if stop_of(text) is not None else ""

    def fingerprint(self, request: Request) -> str:
        content = [super().fingerprint(request), self._contents, self._read[1], self._status]
        return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def read(self, request: Request) -> Evidence:
        log, segments = self._segments.last.log, self._segments
        names = [name for name in segments.names if is_metric(name)]
        decided = request.roles.of(names)
        roles, logs = decided.needed, not decided.has_loss
        problems = self._problems()
        series = self._histories(segments.names, roles, problems)
        found = read_files(self, request, logs=logs) if request.parts or logs else FileEvidence()
        found.missing = {**self._why_no_history(), **self._why_no_checkpoint(), **found.missing}
        if found.text_log is None and log.printed and request.needs(Part.TEXT_LOG):
            self._take_console(request, found)
        code = None if log.preempting else log.exit_code  # it left early since it was reported to
        tracked = Tracked(
            status=self._status,
            tracker="W&B",
            exit_code=code,
            stopped=self.stopped(),
            at_work=self._writer in (Writer.AT_WORK, Writer.ELSEWHERE),
            params=segments.params,
            resumed=segments.resumed_at if all(one.step_unit is StepUnit.LOG_CALL for one in series) else (),
            sweep=log.sweep,
            names=names,
            series=[*series, *log.machine.series(request.roles, self._path.name)],
            experiment=log.project,
        )
        return found.evidence(self.ref, request, tracked, problems=(*problems, *self._unseen()))

    def _take_console(self, request: Request, found: FileEvidence) -> None:
        """What was printed, of a run whose SDK put it into the log and into no file."""
        try:
            printed = log_of(console_of(self._path), request.roles)
        except (ReadError, OSError) as error:
            found.cannot_read(self._path.name, error, [Part.TEXT_LOG])
            return
        found.text_log = None if printed.text is None else replace(printed.text, source=self._path.name)
        found.printed += printed.series

    def _histories(self, names: tuple[str, ...], roles: Mapping[str, str], problems: list[Problem]) -> list[Series]:
        if not roles:
            return []
        histories = Histories(names, roles, self._path.name, self._log.plotted_by)
        try:
            for segment in self._segments.parts:
                for row in segment.rows(histories.needed | {STEP, TIME}):
                    histories.add(row)
        except (ReadError, OSError) as error:
            found = FileEvidence()
            found.cannot_read(self._path.name, error, roles.values())
            problems += found.problems
            return []
        return list(histories.series())

    def _problems(self) -> list[Problem]:
        source, (log, unreadable) = printable(self._path.name), self._read
        if unreadable and not self._is_empty:
            return [Problem(source=source, message=unreadable, roles=frozenset(_HISTORIES))]
        if log.crowded:
            message = "its history has more names than are read"
            return [Problem(source=source, message=message, roles=frozenset(_HISTORIES))]
        return [
            Problem(
                source=source if one.path == self._path else printable(f"{one.path.parent.name}/{one.path.name}"),
                message=f"{count(one.log.damaged, 'place')} in it could not be read; the other records were read",
            )
            for one in self._segments.parts
            if one.log.damaged
        ]

    @property
    def _is_empty(self) -> bool:
        return not self._path.stat().st_size

    def _why_no_history(self) -> Mapping[str, str]:
        log, unreadable = self._read
        if log.rows:
            return {}
        return {"train_loss": unreadable or "the run logged no history: log() was never called, or nothing was kept"}

    def _why_no_checkpoint(self) -> Mapping[str, str]:
        there = {file.path for file in self.files}
        gone = sorted({file.artifact for path, file in self._staged.items() if path not in there})
        if not gone:
            return {}
        reason = f"the logged artifact {listing(gone)} is no longer on this machine: it was uploaded, moved or deleted"
        return dict.fromkeys(CHECKPOINT_PARTS, reason)

    # Ours

    @property
    def _own_folders(self) -> list[Path]:
        return [self._folder, *super()._own_folders]

    @cached_property
    def _marks(self) -> dict[str, Any]:
        """Those of the folder; whole where the log has them too, or was left out for a reason that still holds."""
        found, log = super()._marks, self._log
        digest = str(found.get(DIGEST, ""))
        in_the_log = log.own.get(f"{OWN_KEY}digest")
        agreed = in_the_log == digest or digest.startswith(PENDING) or (not log.bears_ours and bool(self._why_not()))
        if (digest and not agreed) or (not digest and log.bears_ours):
            found = {**found, DIGEST: PENDING}
        return found

    def write(self, annotations: Annotations) -> tuple[str, ...]:
        self.look()
        self._refuse_earlier()
        self._refuse_to_mix()
        log = self._log
        omitted = super().write(annotations)
        names = {*annotations.tags, *annotations.metrics, *media_of(annotations.files)}
        theirs = [] if self._left_out else sorted(log.theirs & names)
        left = [f"{OWN_KEY}{name} in the summary (the run has one of its own)" for name in theirs]
        return (*omitted, *left, *self._not_reached(log))

    def write_repair(self, mark: RepairMark, *, as_old: bool, described: bool = True) -> bool:
        self.look()
        self._refuse_earlier()
        return super().write_repair(mark, as_old=as_old, described=described)

    def _not_reached(self, log: TransactionLog) -> list[str]:
        """What the verdict was not written to, or will not get to, each with the reason."""
        if self._left_out:
            return [f"the log ({self._left_out})"]
        if self._path.parent.name.startswith(_ONLINE):
            return [f"the server (this is the log that an online run keeps; the run itself is wandb:{_address(log)})"]
        if log.damaged:
            return ["the server, later (wandb sync stops at the damage in the log, and the verdict is behind it)"]
        return []

    def _refuse_earlier(self) -> None:
        """Raise for a log that another one continues from: the verdict is the run's, and is with its end."""
        last = self._segments.last.path
        if last != self._path:
            message = f"{printable(self._given)} was resumed: the verdict on the whole run is written to its last part"
            before = f"; clear {printable(self._given)}, which has one from before" if self._log.bears_ours else ""
            raise LeftAlone(message, f"annotate {printable(last.parent)}{before}")

    def _refuse_to_mix(self) -> None:
        """Raise where a verdict could only be written next to an earlier one, or next to that of another run."""
        if self._log.bears_ours and (why_not := self._why_not()):
            message = f"the log of {printable(self._given)} has an earlier verdict, and is left as it is: {why_not}"
            raise LeftAlone(message, "clear it first, or annotate the run on its server")
        others = sorted(path.name for path in self._path.parent.glob("*.wandb") if path.name != self._path.name)
        if others:
            message = f"{listing(others)} next to {printable(self._path)}: whose verdict it is could not be determined"
            raise WriteError(message, "put the log into a folder of its own")

    def set_marks(self, changes: Mapping[str, Any]) -> frozenset[str]:
        """Next to the folder's, write the log before the digest says that all is there, or was taken off."""
        digest = changes.get(DIGEST, PENDING)
        self._is_beside = DIGEST not in changes
        if digest is None:
            self._clear_log()
        elif not digest.startswith(PENDING):
            self._write_log({**self._marks, **changes})
        return super().set_marks(changes)

    def _write_log(self, marks: Mapping[str, Any]) -> None:
        self.look()
        remove_leftovers(self._path.parent)
        self._left_out = self._why_not()
        ours = Written.of(marks)
        files = {name: self._read_own(name) for name in sorted(ours.files)}
        media = {} if self._left_out else {MEDIA_PLACES[name]: files[name] for name in MEDIA_PLACES if name in files}
        for place in sorted(self._media - media.keys()):
            self._take_away(self._folder / place)
        for place, content in media.items():
            if not self._is_free(place):
                raise in_the_way(printable(self._folder / place))
            (self._folder / place).parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._folder / place, content)
        if not self._left_out:
            names = (ours.names - self._log.theirs) | {VERDICT, DIGEST}
            named = {name: value for name, value in marks.items() if name in names}
            replace_ours(self._path, self._log, our_records(self._log, named, files))
            self._take_as_written(named, files)
        self.look()

    def _take_as_written(self, marks: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        """Know the log as it is then without reading it: it was read back, and what is not ours is as before."""
        own = {f"{OWN_KEY}{name}": str(value) for name, value in marks.items()}
        log = replace(self._log, bears_ours=True, own=own, own_files=frozenset(map(place_of, files)))
        self.__dict__["_read"] = log, ""
        self._version = self._versions()
        self.__dict__.pop("_segments", None)

    def _read_own(self, name: str) -> bytes:
        path = self._health / name
        return read_regular(path, path.stat().st_size)

    def _clear_log(self) -> None:
        self.look()
        remove_leftovers(self._path.parent)
        if self._log.bears_ours and self._writer is Writer.AT_WORK:
            raise StillRunning(f"{printable(self._given)} is still running: its log was left as it is")
        restore(self._path, self._log)
        for place in sorted(self._media):
            self._take_away(self._folder / place)
        self.look()

    def marks_of_files(self, files: Mapping[str, bytes]) -> Mapping[str, Any]:
        """What W&B's pages show once the log is synced; raises where its owner has something in its place."""
        if self._why_not():
            return {}
        for name in sorted(MEDIA_PLACES.keys() & files):
            if not self._is_free(MEDIA_PLACES[name]):
                raise in_the_way(printable(self._folder / MEDIA_PLACES[name]))
        return media_of(files)

    def _is_free(self, place: str) -> bool:
        """Whether a file of ours may be there."""
        return place in self._media or not (self._is_elsewhere(place) or os.path.lexists(self._folder / place))

    @property
    def _media(self) -> set[str]:
        """The places of media that are ours: those that the record names, or where that is lost the log."""
        document = self._annotation()
        listed = self._log.own_files if document is None else document.get("media")
        known = listed if isinstance(listed, (list, frozenset)) else ()
        return {place for place in MEDIA_PLACES.values() if place in known and not self._is_elsewhere(place)}

    def _beyond(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The media, from before they are written until they are gone; and why the log was left out."""
        if self._is_beside:
            before = self._annotation() or {}
            return {key: before[key] for key in ("log", "media") if key in before}
        names = () if self._why_not() else MEDIA_PLACES.keys() & document.get("files", ())
        new = {MEDIA_PLACES[name] for name in names if self._is_free(MEDIA_PLACES[name])}
        under_way = str(document.get("digest", "")).startswith(PENDING)
        return {"media": sorted(new | self._media if under_way else new), "log": self._left_out or "written"}

    def _take_away(self, path: Path) -> None:
        """Delete such a file, with what a killed annotator left next to it, and the folders that are empty then."""
        path.unlink(missing_ok=True)
        with suppress(OSError):  # a folder is not there, or not empty
            remove_half_files(path.parent)
            for folder in path.relative_to(self._folder).parents:
                (self._folder / folder).rmdir()

    def _is_elsewhere(self, place: str) -> bool:
        """Whether a file of that path would be outside of the run's folder, or below a file; a link there is not
        ours.
        """
        folders = [self._folder / folder for folder in PurePosixPath(place).parents][:-1]
        linked = link_among([self._folder / place, *folders])
        return linked is not None or any(folder.exists() and not folder.is_dir() for folder in folders)

    def _why_not(self) -> str:
        """Why the log is left alone, empty where it may be written."""
        log, unreadable = self._read
        if self._sidecar:
            return _NOT_ASKED
        if unreadable:
            return unreadable
        if not log.run:
            return "it has no record of a run"
        if theirs := sorted(OWN_TAGS.intersection(log.tags)):
            return f"its run has the tag {theirs[0]} already, which is not ours"
        if keys := sorted(_OF_A_VERDICT & log.theirs):
            return f"its run has {OWN_KEY}{keys[0]} already, which is not ours"
        if reason := self._why_not_replaced(log):
            return reason
        if self._writer is Writer.AT_WORK:  # also with an exit in it: more may come
            return "the run is still running"
        is_left = self._writer is Writer.GONE or is_long_ago(self._path.stat().st_mtime)
        if log.exit_code is None and not is_left:
            return "it has no exit, and whether the run is over cannot be seen from here until it was silent for a week"
        return ""

    def _why_not_replaced(self, log: TransactionLog) -> str:
        """Why another file must not take the log's place, empty where it may."""
        if self._path.is_symlink():
            return "it is a symbolic link"
        if self._is_linked():
            return "it has another name as well: it is a hard link"
        if self._has_holes(log):
            return "it is all holes, and would be written whole"
        if self._path.with_name(self._path.name + SYNCED).exists():
            return f"it is synced already: annotate the run on its server, wandb:{_address(log)}"
        if was_damaged_since(self._path, log):
            return f"it was damaged since: clear puts back {printable(backup_of(self._path).name)}, the log from before"
        return "" if self._is_ours_to_write() else "it may not be written by this user"

    def _is_linked(self) -> bool:
        """Whether the log is a file under some name besides its own and our backup's."""
        links, backup = self._path.stat().st_nlink, backup_of(self._path)
        return links > 1 + (backup.exists() and backup.samefile(self._path))

    def _has_holes(self, log: TransactionLog) -> bool:
        try:
            with open_regular(self._path) as file:
                require_written(file.fileno(), log.cut)
        except (ReadError, OSError):
            return True
        return False

    def _is_ours_to_write(self) -> bool:
        owner = self._path.stat().st_uid
        may = os.access(self._path, os.W_OK) and os.access(self._path.parent, os.W_OK)
        return may and (not hasattr(os, "geteuid") or os.geteuid() in (0, owner))


def _version_of(path: Path) -> tuple[int, ...]:
    """What differs once a file was written to, or another one is in its place."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _address(log: TransactionLog) -> str:
    return printable("/".join(part for part in (log.entity or "ENTITY", log.project or "PROJECT", log.run_id)))
