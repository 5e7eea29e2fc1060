"""A run of a local project of trackio's: read from its database; the verdict becomes marks of ours, files and an alert.

trackio records no end of a run. One from which something came lately counts as running, unless a hook or the launcher
saw its end. So does one that has not come to the end of its plan, until it was silent for too long. Of all others
nothing says how they ended.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from tracker_health.errors import ReadError, RunNotFound, StillRunning, StoreRefused, WriteError
from tracker_health.evidence import Evidence, Problem, Request, RunRef, Series
from tracker_health.evidence.kin import Kin, settings_of_kin
from tracker_health.judge.annotations import EXIT, PENDING, Annotations
from tracker_health.readers.files.json_lines import parse_json
from tracker_health.readers.files.regular_file import read_regular
from tracker_health.report.resume_point import Shelf
from tracker_health.run_files.tree import FileEvidence, Tracked
from tracker_health.stores.base import Cleared, RunRecord
from tracker_health.stores.common.atomic_files import is_leftover, refuse_links, remove_leftovers, replace_file
from tracker_health.stores.common.exits import ending_seen
from tracker_health.stores.common.locks import locked
from tracker_health.stores.common.ownership import OUR_FILES
from tracker_health.stores.common.record import DIGEST, Mark, Written, of_run, text_of
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.trackio.alerts import LEVELS, Alert, alert_of, ours_in, put
from tracker_health.stores.trackio.database import INBOX_FOLDER, Database, RunRow
from tracker_health.stores.trackio.history import SOURCE, names_in, series_in
from tracker_health.stores.trackio.marks import OWN_FOLDER, MarksTable, folder_of
from tracker_health.stores.wandb.values import params_of
from tracker_health.text import count, printable

QUIET_SECONDS = 600.0
"""A run from which something came in this time is believed to be running."""
LATE_SECONDS = 86_400.0
"""A run that ended longer ago gets no alert, unless that is asked for: nobody waits for it."""
_ACTIVE, _UNFINISHED = "ACTIVE", "UNFINISHED"
"""Something came lately; nothing did, and the run has not come to the end of its plan."""
_GROUP, _USER = "_Group", "_Username"
_HISTORIES = frozenset({"train_loss", "val_loss"})


class TrackioRun(TrackedRun):
    """A run of trackio's, as it was when opened. ``over``: it has ended, as whoever opens it knows."""

    note = "mark"

    def __init__(self, database: Database, row: RunRow, *, over: bool = False) -> None:
        self._database, self._row, self._over = database, row, over
        self._table = MarksTable(database.path)
        self._folder = folder_of(database.path, row.key)
        self._alert: Alert | None = None

    @cached_property
    def record(self) -> RunRecord:
        row = self._row
        return RunRecord(
            ref=RunRef(store=SOURCE, id=f"{self._database.project}/{row.key}", name=row.name),
            shown=f"trackio run {printable(self._database.project, 100)}/{printable(row.name, 100)}",
            marks=lambda: self._marks,
            naming="the mark {}".format,
            placing=lambda name: f"{OWN_FOLDER}/{self._folder.parent.name}/{self._folder.name}/{name}",
            traits=lambda: {"project": self._database.project},
            remarks=self._remarks,
            heard=lambda: None if self._is_ended else row.last,
            is_over=not self._is_active,
            last_step=row.last_step,
            state=lambda: self._state,
            evidence=lambda: self._state,
            identity=self._identity,
            started=row.first,
            ended=row.last,
            user=str(self._config.get(_USER) or ""),
            kin=self._kin,
        )

    def look(self) -> None:
        row = self._database.run(self._row.key)
        if row is None:
            raise RunNotFound(f"{self.record.shown} is no longer there: it was deleted or moved")
        self._row = row
        for name in ("record", "_marks", "_config", "_state", "_named"):
            self.__dict__.pop(name, None)

    # What was logged

    @cached_property
    def _config(self) -> dict[str, Any]:
        """As it was given to ``trackio.init``, with trackio's own entries, which begin with ``_``."""
        with suppress(ValueError, RecursionError):
            found = parse_json(self._database.config(self._row))
            return found if isinstance(found, dict) else {}
        return {}

    @cached_property
    def _state(self) -> str:
        row = self._row
        content = [row.rows, row.last_step, row.last_said]
        return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def _is_ended(self) -> bool:
        """Whether someone saw its end."""
        return self._over or ending_seen(self) is not None

    @property
    def _is_active(self) -> bool:
        heard = self._row.last
        return heard is not None and time.time() - heard < QUIET_SECONDS and not self._is_ended

    def _remarks(self) -> tuple[str, ...]:
        """What of the run may be elsewhere: on a Space, or in files that trackio has yet to take into the database."""
        remarks = []
        if space := self._database.space():
            remarks.append(f"its project is sent to the Space {printable(space, 100)}: only what is here was read")
        if next((self._database.path.parent / INBOX_FOLDER).glob("*/*.jsonl"), None) is not None:
            remarks.append("rows that wait in trackio's inbox were not read: trackio show takes them in")
        return tuple(remarks)

    def _kin(self) -> Kin:
        return Kin(
            where=self._database.project,
            id=self._row.key,
            name=self._row.name,
            group=str(self._config.get(_GROUP) or ""),
            started=self._row.first,
            ended=None if self._is_active else self._row.last,
            last_step=self._row.last_step,
            state=self._state,
            **settings_of_kin(params_of(self._config), [self._row.name]),
        )

    def fingerprint(self, request: Request) -> str:  # noqa: ARG002 - one database, whatever is asked for
        content = [self._state, self._is_active, sorted(params_of(self._config).items()), self.stopped()]
        return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def read(self, request: Request) -> Evidence:
        names, problems = self._names()
        decided = request.roles.of(names)
        series: tuple[Series, ...] = ()
        try:
            series = self._histories(names, decided.needed)
        except ReadError as error:
            problems.append(Problem(source=SOURCE, message=str(error), roles=frozenset(decided.needed.values())))
        tracked = Tracked(
            status=_ACTIVE if self._is_active else "",
            tracker=SOURCE,
            stopped=self.stopped(),
            params=params_of(self._config),
            names=names,
            series=series,
            experiment=self._database.project,
            started=self._row.first,
            ended=self._row.last,
        )
        evidence = FileEvidence().evidence(self.ref, request, tracked, problems=problems)
        progress = evidence.progress
        if self._is_active or self._is_ended or progress is None or progress.is_whole:
            return evidence
        return replace(evidence, info=replace(evidence.info, status=_UNFINISHED))

    def _names(self) -> tuple[tuple[str, ...], list[Problem]]:
        layout, key = self._database.layout, self._row.key
        try:
            names, read = self._database.read(lambda connection: names_in(connection, layout, key))
        except ReadError as error:
            return (), [Problem(source=SOURCE, message=str(error), roles=_HISTORIES)]
        if read >= self._row.rows:
            return names, []
        message = f"{count(self._row.rows - read, 'row')} could not be read; the others were"
        return names, [Problem(source=SOURCE, message=message)]

    def _histories(self, names: tuple[str, ...], roles: Mapping[str, str]) -> tuple[Series, ...]:
        if not roles:
            return ()
        layout = self._database.layout
        return self._database.read(lambda connection: series_in(connection, layout, self._row, names, roles))

    def saved(self, request: Request) -> Shelf | None:  # noqa: ARG002 - trackio keeps no checkpoints of its own
        return None

    def close(self) -> None:
        """Nothing was downloaded."""

    # Ours

    @cached_property
    def _marks(self) -> dict[str, Mark]:
        return of_run(self._table.of(self._row.key), self._identity)

    @property
    def _identity(self) -> str:
        """A name may be of another run by now: the first one was deleted, and a new one began."""
        row = self._row
        return row.key if self._database.layout.has_ids else f"{row.key} {row.first}"

    def exit(self) -> str:
        return text_of(self._marks, EXIT)

    def is_in_state(self, state: str) -> bool:
        return state == self._state

    @contextmanager
    def writing(self, doing: str, *, live: bool = False) -> Iterator[None]:
        self.look()
        if self._is_active and not live:
            quiet = f"{QUIET_SECONDS / 60:.0f} minutes"
            message = f"{doing}: trackio got a row of it less than {quiet} ago, so it may still be running"
            raise StillRunning(message, f"try again when nothing has come for {quiet}; exec and the hook see its end")
        shown, folder = printable(self._folder), self._folder
        refuse_links([folder, *list(folder.parents)[:2]])
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder, self.record.shown):
                self.look()
                remove_leftovers(folder)
                try:
                    yield
                finally:
                    with suppress(OSError):  # something is in it
                        for place in (folder, folder.parent, folder.parent.parent):
                            place.rmdir()
        except PermissionError as error:
            raise StoreRefused(f"{shown}: no permission to write there") from error
        except OSError as error:
            raise WriteError(f"{shown}: {error.strerror}") from error

    def write(self, annotations: Annotations) -> tuple[str, ...]:
        """With the alert: before the digest says that all is there."""
        wanted = alert_of(annotations, self._folder)
        self._alert, left_out = self._as_it_is_due(wanted)
        return (*super().write(annotations), *left_out)

    def _as_it_is_due(self, wanted: Alert | None) -> tuple[Alert | None, tuple[str, ...]]:
        """The alert, if it is not too late for one; and why there is none. One that is there is always replaced."""
        if wanted is None:
            return None, ()
        if "alerts" not in self._database.layout.tables:
            return None, ("the alert (this trackio database has no table for it)",)
        late = self._row.last is not None and time.time() - self._row.last > LATE_SECONDS
        if late and not self.alerts_late and not ours_in(self._database, self._row):
            return None, ()
        return wanted, ()

    def lacks_alert(self) -> bool:
        recorded = self.recorded() if self.alerts_late else None
        is_worth_one = recorded is not None and recorded.verdict in LEVELS
        return is_worth_one and "alerts" in self._database.layout.tables and not ours_in(self._database, self._row)

    def clear(self, *, acks: bool = False) -> Cleared:
        """Also an alert whose marks are gone: trackio may have moved its run to another project."""
        found = super().clear(acks=acks)
        if not ours_in(self._database, self._row):
            return found
        with self.writing(f"the alert could not be taken off {self.record.shown}"):
            put(self._database, self._row, None)
        return replace(found, found=True)

    def set_marks(self, changes: Mapping[str, Any]) -> frozenset[str]:
        """The alert comes before the digest says that all is there, and goes before that is taken off."""
        digest = changes.get(DIGEST, PENDING)
        if digest is None or not digest.startswith(PENDING):
            self._put_alert(None if digest is None else self._alert)
        self._table.change(self._row.key, changes)
        self.look()
        return frozenset()

    def _put_alert(self, alert: Alert | None) -> None:
        if ours_in(self._database, self._row) != ([] if alert is None else [alert]):
            put(self._database, self._row, alert)

    def list_files(self) -> Mapping[str, str]:
        refuse_links(self._folder / name for name in sorted(OUR_FILES | Written.of(self._marks).all_files))
        if not self._folder.is_dir():
            return {}
        return dict.fromkeys((path.name for path in self._folder.iterdir() if not is_leftover(path.name)), "")

    def get_file(self, name: str, limit: int) -> bytes:
        path = self._folder / name
        return read_regular(path, limit) if path.stat().st_size <= limit else b""

    def put_files(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            replace_file(self._folder / name, content)

    def delete_files(self, names: Iterable[str]) -> frozenset[str]:
        for name in names:
            (self._folder / name).unlink(missing_ok=True)
        return frozenset()
