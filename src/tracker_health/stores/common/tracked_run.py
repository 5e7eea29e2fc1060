"""A run of any store: what is read of it, and what of ours is put onto it, all in terms of the store's contract."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, Protocol, cast

from tracker_health.errors import StoreRefused
from tracker_health.evidence import Pulse, Request, RunRef
from tracker_health.judge.annotations import EXIT, NOTIFIED, PENDING, SHADOW, Annotations, Shadow
from tracker_health.judge.messages import SentMessages
from tracker_health.stores.base import Cleared, Ours, Recorded, StoredRun
from tracker_health.stores.common import answers, repairing
from tracker_health.stores.common.ownership import in_the_way, overtaken
from tracker_health.stores.common.record import (
    DIGEST,
    NOTE,
    STOP,
    Marks,
    Written,
    entries_on,
    key_of,
    notified_on,
    ours_on,
    recorded_on,
    shadow_on,
    stopped_on,
    text_of,
)
from tracker_health.stores.common.writing import Writing
from tracker_health.words.acknowledgements import Acknowledgement, on_evidence
from tracker_health.words.repairs import RepairMark
from tracker_health.words.stopped import asks, stop_of
from tracker_health.words.verdict import Verdict


class TrackedRun(StoredRun):
    """What ``open_run`` gives. A store implements ``StoredRun``, and gets all that is below."""

    is_whole = is_marked_first = True
    is_charted = False
    note = ""
    alerts_late = False
    """A tracker whose pages show alerts gets one for the verdict on this run, however long ago it ended."""

    # What its tracker says

    @property
    def ref(self) -> RunRef:
        """What the run is called, and where its page is."""
        return self.record.ref

    @property
    def marks(self) -> Marks:
        """What it has under names of ours."""
        return self.record.marks()

    @property
    def shared(self) -> bool:
        """Whether the store is one that several people write to: a server's."""
        return self.record.shared

    def traits(self) -> dict[str, str]:
        """What overrides of the configuration go by."""
        return dict(self.record.traits())

    def remarks(self) -> tuple[str, ...]:
        """What the reader of any verdict on the run should know."""
        return self.record.remarks()

    def pulse(self) -> Pulse | None:
        """When it last gave a sign of life; None where that is not known."""
        found = self.record.pulse()
        heard = self.record.heard() if found is None else None
        return found if heard is None else Pulse(points=heard)

    def heard(self) -> float | None:
        """When a run that claims to be running was last heard of, in seconds since 1970; None for all others."""
        return self.record.heard()

    def last_step(self) -> int | None:
        """The last step of its history, as its tracker has it; None where that is not known."""
        return self.record.last_step

    def state(self) -> str:
        """How far the run has come, for ``is_in_state`` to know later."""
        return self.record.state()

    def is_in_state(self, state: str) -> bool:
        """Whether nothing has come from the run since it was in that state."""
        record = self.record
        return record.still(state) if record.still is not None else state == record.state()

    def evidence(self) -> str:
        """How far the run has come, whatever rules and settings make of it: what acknowledgements are about."""
        return self.record.evidence()

    def bytes_of_files(self, request: Request) -> int:  # noqa: ARG002 - for stores that have to fetch them
        """How much of its files judging the run would fetch, at most."""
        return 0

    # What of ours is on it

    def lacks_alert(self) -> bool:
        """Whether an alert was asked for, whenever the run ended, that its verdict is worth and that is not there."""
        return False

    def recorded(self) -> Recorded | None:
        """The annotation that is there, or None."""
        return recorded_on(self.marks)

    def ours(self) -> Ours:
        """What of ours is on the run, as its record says."""
        return ours_on(self.marks, self.record.naming)

    def exit(self) -> str:
        """What the launcher or a hook saw of the process's end, as ``exits.exit_value`` wrote it; empty without it."""
        return text_of(self.marks, EXIT)

    def stopped(self) -> str:
        """What is on it of why its own training stopped it, as ``stopped.Stop`` wrote it; empty without that."""
        return stopped_on(self.marks)

    def notified(self) -> str:
        """About what people were sent a message, as ``messages.SentMessages`` has it; empty where nobody was."""
        return notified_on(self.marks)

    def shadow(self) -> Shadow | None:
        """What was said of the run while verdicts were only tried out."""
        return shadow_on(self.marks)

    def acknowledgements(self) -> tuple[Acknowledgement, ...]:
        """The entries on the run that are about what it is now, the oldest first."""
        entries = entries_on(self.marks)
        return on_evidence(entries, self.evidence()) if entries else ()

    def repairs(self) -> dict[str, RepairMark]:
        """What it says of repairs, by the names of the marks: ``repairs``, of which run it was to repair, and
        ``repaired_by``.
        """
        return repairing.repairs_of(self)

    # Annotating it

    def write(self, annotations: Annotations) -> tuple[str, ...]:
        """Make the run have these annotations and no older ones, the digest last: until then it is ``pending``, or not
        there.

        Gives what was left out because the owner's own has its name or needs its room, each with the reason.

        Raises:
            WrittenInPart: the verdict is there, and something next to it could not be written.
            Overtaken: another annotator is at work, or has written since this run was looked at.
            RunError: the store is unreachable or refuses, or something of the owner's is in the way. The run is then
                left with the digest ``pending``, untouched, or as the other leaves it.
        """
        described, digest, notified = bool(text_of(self.marks, NOTE)), text_of(self.marks, DIGEST), self.notified()
        with self.writing(f"the verdict could not be written onto {self.record.shown}"):
            # What is to be written was planned on what was there. Half of an annotation has no digest of its own.
            is_another = PENDING not in (digest, now := text_of(self.marks, DIGEST)) and now != digest
            if is_another or self.notified() != notified:
                raise overtaken(self.record.shown)
            omitted = Writing(self, described=described).write(annotations)
            self._settle_after_writing()
        return omitted

    def _settle_after_writing(self) -> None:
        """Someone may have answered meanwhile."""
        answers.settle(self, time.time())

    def clear(self, *, acks: bool = False) -> Cleared:
        """Remove everything tracker-health wrote from the run, and nothing else. An interrupted call can be repeated.

        ``acks``: also what people answered to its verdicts.

        Raises:
            RunError: the store is unreachable or refuses.
        """
        described = bool(text_of(self.marks, NOTE))
        with self.writing(f"the annotation could not be taken off {self.record.shown}"):
            return Writing(self, described=described).clear(acks=acks)

    def acknowledge(self, entry: Acknowledgement) -> None:
        """Add an entry to the run, next to all others, and bring the marks next to its verdict up to date.

        Raises:
            RunError: the store is unreachable or refuses, or another annotator is at work; the entry may be there.
        """
        with self.writing(f"the acknowledgement could not be written onto {self.record.shown}"):
            answers.add(self, entry)

    def settle(self, now: float) -> None:
        """Bring the marks next to the verdict up to date with the entries, at this time (seconds since 1970).

        Raises:
            RunError: as for ``acknowledge``.
        """
        if answers.wanted_beside(self, now) is not None:
            with self.writing(f"the acknowledgement could not be written onto {self.record.shown}"):
                answers.settle(self, now)

    def mark_notified(self, value: str) -> None:
        """Say on the run about what people were sent a message: a value of ``messages.SentMessages``. It may still
        go on, and need not have a verdict. What its owner has under that name stays.

        Raises:
            RunError: the store is unreachable or refuses.
        """
        with self.writing(self._of_a_mark(NOTIFIED), live=True):
            ours = NOTIFIED in Written.of(self.marks).tags or not text_of(self.marks, NOTIFIED) or self.notified()
            if ours:
                self.set_marks({NOTIFIED: SentMessages.of(value).stamped(key_of(self.record.identity)).value})

    def write_shadow(self, shadow: Shadow) -> None:
        """Put what is only tried out onto the run, in the place of an earlier one, and nothing else.

        Raises:
            RunError: the store is unreachable or refuses, or something of the owner's has its name.
        """
        with self.writing(self._of_a_mark(SHADOW)):
            if text_of(self.marks, SHADOW) and self.shadow() is None:
                raise in_the_way(self.record.naming(SHADOW), self.record.shown)
            if self.shadow() != shadow:
                self.set_marks({SHADOW: shadow.value})

    def write_repair(self, mark: RepairMark, *, as_old: bool, described: bool = True) -> bool:
        """Say on the run what came of a repair, in the place of what it said of one before; and in the note of a run
        that has a verdict. Whether something changed: a mark that differs in nothing but its time is left.

        Args:
            mark: the run's own id in it is set to that of this run.
            as_old: it is the run that was to be repaired, not the one that was to repair it.
            described: also in the note; not where settings want no description.

        Raises:
            RunError: the store is unreachable or refuses, or something of the owner's has its name.
        """
        with self.writing(f"the repair could not be written onto {self.record.shown}"):
            return repairing.write(self, mark, as_old=as_old, described=described)

    def _of_a_mark(self, name: str) -> str:
        return f"{self.record.naming(name)} could not be written onto {self.record.shown}"

    # Asking its training to stop

    def why_not_asked(self) -> str:
        """Why its training cannot be asked to stop; empty where it can."""
        return self.record.why_not_asked

    def asked_to_stop(self) -> bool:
        """Whether the run asks its training to stop."""
        return asks(text_of(self.marks, STOP))

    def ask_to_stop(self, request: str) -> None:
        """Ask the training of a running run to stop: one that wants to obey looks for that on its own run. What
        someone set there by hand stays.

        Args:
            request: ``Stop.as_request``. A store without room for it says only that someone asked.

        Raises:
            RunError: the store is unreachable or refuses, or can ask nobody.
        """
        if why := self.why_not_asked():
            raise StoreRefused(f"the training cannot be asked to stop: {why}")
        with self.writing(self._of_a_mark(STOP), live=True):
            there = text_of(self.marks, STOP)
            if not there or stop_of(there) is not None:
                self.set_marks({STOP: request})


class ReadOnlyRun(TrackedRun):
    """A run that is judged, and never written onto: ``_what`` it is, and what to do ``_instead``."""

    _what = _instead = ""

    def _refused(self) -> StoreRefused:
        return StoreRefused(f"{self.record.shown} is {self._what}, onto which no verdict can be written", self._instead)

    def look(self) -> None:
        """What was found is what is judged."""

    def writing(self, doing: str, *, live: bool = False) -> NoReturn:  # noqa: ARG002 - the contract's
        raise self._refused()

    def clear(self, *, acks: bool = False) -> Cleared:  # noqa: ARG002
        """There is never anything of ours on it."""
        return Cleared(found=False)

    def set_marks(self, changes: Mapping[str, Any]) -> NoReturn:  # noqa: ARG002
        raise self._refused()

    def list_files(self) -> Mapping[str, str]:
        return {}

    def get_file(self, name: str, limit: int) -> NoReturn:  # noqa: ARG002
        raise self._refused()

    def put_files(self, files: Mapping[str, bytes]) -> NoReturn:  # noqa: ARG002
        raise self._refused()

    def delete_files(self, names: Iterable[str]) -> NoReturn:  # noqa: ARG002
        raise self._refused()


class Alerting(Protocol):
    """A run whose tracker alerts people itself, each as they have asked it to."""

    def alert(self, title: str, text: str, verdict: Verdict) -> None:
        """Have the tracker alert people about this run.

        Raises:
            StoreRefused: no permission.
            WriteError: it did not take the alert.
        """


def alerting(run: TrackedRun) -> Alerting | None:
    """The same run, where its tracker alerts people; None for all others."""
    return cast("Alerting", run) if callable(getattr(run, "alert", None)) else None
