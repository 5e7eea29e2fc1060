"""What our marks on a run say: digest, verdict, and the names of all we wrote.

Marks are what a run has under names of ours, in whichever store, without what the tracker puts before them: ``verdict``
is the tag ``health.verdict`` of MLflow, and the key ``health/verdict`` of a summary of W&B. Their owner may have some.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tracker_health.evidence import RunRef
from tracker_health.evidence.kin import Kin
from tracker_health.judge.annotations import (
    ACK,
    CAUSE,
    CERTAINTY,
    CODES,
    ENDED,
    EXIT,
    EXPLAINED,
    GROUP,
    GROUP_STATE,
    GROUP_VERDICT,
    NOTIFIED,
    OPEN,
    PENDING,
    PLAIN_NAMES,
    RULES,
    SETTINGS,
    SEVERITY,
    SHADOW,
    STEP,
    SUMMARY,
    Shadow,
)
from tracker_health.judge.messages import SentMessages
from tracker_health.readers.files.json_lines import as_step
from tracker_health.stores.base import Ours, Recorded, TaggedRun
from tracker_health.stores.common.exits import is_exit_value
from tracker_health.stores.common.ownership import OUR_FILES, is_file_name
from tracker_health.words.acknowledgements import (
    MAX_ENTRY_CHARACTERS,
    Acknowledgement,
    AnswerMarks,
    answer_marks,
    in_order,
    is_ack_mark,
    is_open_mark,
    on_evidence,
    parsed,
)
from tracker_health.words.gap_names import LIVE_WORDS, STOP_WANDB_TAG
from tracker_health.words.repairs import REPAIRED_BY, REPAIRS, RepairMark, is_id_of
from tracker_health.words.stopped import stop_of
from tracker_health.words.verdict import Verdict

Mark = str | float | Mapping[str, Any]
"""Text, a number, or what W&B calls media."""
Marks = Mapping[str, Mark]

DIGEST, VERDICT, WRITTEN = "digest", "verdict", "written"
LIVE, STOP, STOPPED = "live", "stop", "stopped"
NOTE, NATIVE = "note:", "tag:"
"""The description; and the tracker's own tag of a verdict, on a run that has none of ours. Not tags of those names."""
ENTRY_PREFIX = f"{ACK}."
"""Before the id of an entry: each is a mark of its own, so that two people at once write two."""
MAX_MARK = 5_000
"""Characters of a mark that we write. MLflow cuts at 8,000 silently, older servers earlier."""

OWNERS = "of its owner's"
"""In the place of a number that its owner logged, as can be seen by its step."""

TOOL = "tracker-health"

# The mark of an annotation under way names its annotator: of two at once, each sees whose it is.
_PENDING = re.compile(rf"{PENDING}(:[0-9a-f]{{8}})?")
_DIGEST = re.compile(r"[0-9a-f]{16}")
_RESERVED = frozenset({VERDICT, DIGEST, WRITTEN, EXIT, SHADOW, LIVE, STOP, STOPPED, REPAIRS, REPAIRED_BY})
_DIGEST_ROOM = 80
"""For what a record has besides names: its digest, and its run."""
_RUN = re.compile(r"[0-9a-f]{8}")


def is_measure(name: str) -> bool:
    """Whether a mark of this name is a number: of the verdict's severity, or of what a rule measured."""
    return name == SEVERITY or "/" in name


def text_of(marks: Marks, name: str) -> str:
    """The text of a mark, "" where there is none."""
    found = marks.get(name, "")
    return found if isinstance(found, str) else str(found) if isinstance(found, int) else ""


def key_of(identity: str) -> str:
    """What a record has of its run: 8 hexadecimal digits, "" for a run that nothing tells from its copies."""
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:8] if identity else ""


def of_run(marks: Marks, identity: str) -> dict[str, Mark]:
    """The marks of a run. Where their record is another run's, they were copied with its tags or its summary: that
    annotation was never finished here, and nobody was sent a message about this run.
    """
    found, key, written = dict(marks), key_of(identity), Written.of(marks).run
    is_copied = written not in ("", key)
    if is_copied and DIGEST in found:
        found[DIGEST] = PENDING
    if told := notified_on(found):
        found[NOTIFIED] = SentMessages.of(told).on(key, is_copied=is_copied).value
    return found


def is_annotated(marks: Marks) -> bool:
    """Whether a run has a digest of ours, also one that says that it was never finished."""
    return _is_digest(text_of(marks, DIGEST))


def _is_digest(text: str) -> bool:
    return bool(_PENDING.fullmatch(text) or _DIGEST.fullmatch(text))


def bears_verdict(marks: Marks) -> bool:
    """Whether the verdict on a run, if there is one, is ours: by its digest or, that taken off, its record."""
    return is_annotated(marks) or bool(Written.of(marks).digest)


def names_in_the_way(marks: Marks) -> tuple[str, ...]:
    """The marks of the owner's without which no verdict can be put onto a run."""
    if bears_verdict(marks):
        return ()
    names = (VERDICT, DIGEST, *(() if Written.of(marks) else (WRITTEN,)), NATIVE)
    return tuple(name for name in names if name in marks)


def is_legible(marks: Marks) -> bool:
    """Whether a run has no record of ours, or one that can be read."""
    return _document_of(marks) is not None


def _document_of(marks: Marks) -> Mapping[str, Any] | None:
    try:
        document = json.loads(text_of(marks, WRITTEN) if WRITTEN in marks else "{}")
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def owns_note(marks: Marks) -> bool:
    """Whether a block in the description of a run is ours: by its record or, that taken off, its verdict and digest.

    A run with nothing to judge has none of ours, and before the record is written neither has any other.
    """
    if WRITTEN in marks:
        return Written.of(marks).note
    return bool(_DIGEST.fullmatch(text_of(marks, DIGEST))) and text_of(marks, VERDICT) != Verdict.SKIP


def recorded_on(marks: Marks) -> Recorded | None:
    """The annotation that a run's marks say it has; ``pending`` also where two annotators got in each other's way."""
    if not is_annotated(marks):
        return None
    digest, verdict = text_of(marks, DIGEST), text_of(marks, VERDICT)
    marks = _without_owners(marks)
    codes = _listed(marks, CODES)
    if _PENDING.fullmatch(digest) or Written.of(marks).digest not in ("", digest):
        digest = PENDING
    return Recorded(
        digest=digest,
        verdict=_verdict_of(verdict),
        settings=text_of(marks, SETTINGS),
        step=as_step(marks.get(STEP)),
        ended=text_of(marks, ENDED),
        rules=as_step(marks.get(RULES)),
        codes=codes,
        cause=text_of(marks, CAUSE),
        certainty=text_of(marks, CERTAINTY),
        explained=_listed(marks, EXPLAINED) or codes,
        notified=text_of(marks, NOTIFIED),
        summary=text_of(marks, SUMMARY),
        group_verdict=_verdict_of(text_of(marks, GROUP_VERDICT)),
        group=text_of(marks, GROUP),
        group_state=text_of(marks, GROUP_STATE),
    )


def _verdict_of(text: str) -> Verdict | None:
    return Verdict(text) if text in set(Verdict) else None


def _without_owners(marks: Marks) -> Marks:
    """Without what is not ours by the record, where there is one: its owner may use names that we write as well."""
    written = Written.of(marks)
    theirs = PLAIN_NAMES - written.names if written else frozenset[str]()
    return {name: value for name, value in marks.items() if name not in theirs}


def _listed(marks: Marks, name: str) -> tuple[str, ...]:
    return tuple(code for code in text_of(marks, name).split(",") if code)


def entries_on(marks: Marks) -> tuple[Acknowledgement, ...]:
    """What people answered to the verdicts on a run, each entry a mark of its own, the oldest first; of too many the
    newest.
    """
    return in_order(all_entries(marks))


def all_entries(marks: Marks) -> tuple[Acknowledgement, ...]:
    """All that is there of them, however many there are: what is taken off, and counted before that."""
    named = (
        parsed(value, name.removeprefix(ENTRY_PREFIX))
        for name, value in marks.items()
        if name.startswith(ENTRY_PREFIX) and isinstance(value, str) and len(value) <= MAX_ENTRY_CHARACTERS
    )
    return tuple(one for one in named if one is not None)


def notified_on(marks: Marks) -> str:
    """About what people were sent a message, by a mark that is ours by its form: a run may have it before a verdict."""
    text = text_of(marks, NOTIFIED)
    return text if SentMessages.of(text).value else ""


def shadow_on(marks: Marks) -> Shadow | None:
    """What a run's marks say of a verdict that was only tried out."""
    return Shadow.of(text_of(marks, SHADOW))


def stopped_on(marks: Marks) -> str:
    """Why its own training stopped a run; "" where that is not said, or not by us."""
    text = text_of(marks, STOPPED)
    return text if stop_of(text) is not None else ""


def repairs_on(marks: Marks, run: str = "") -> dict[str, RepairMark]:
    """What a run says of repairs, by the names of the marks. ``run``: its id, for runs whose tags may have been copied
    from another: what is about that one is left out.
    """
    known = {name: RepairMark.from_text(text_of(marks, name)) for name in (REPAIRS, REPAIRED_BY)}
    found = {name: mark for name, mark in known.items() if mark is not None}
    own = {name: mark.new if name == REPAIRS else mark.old for name, mark in found.items()}
    return {name: mark for name, mark in found.items() if not run or is_id_of(own[name], run)}


def ours_by_form(marks: Marks) -> frozenset[str]:
    """The names of marks that are ours by what they say: a run may have them without a verdict, and no record names
    them.
    """
    live, stop = text_of(marks, LIVE), text_of(marks, STOP)
    found = {
        EXIT: is_exit_value(text_of(marks, EXIT)),
        STOPPED: bool(stopped_on(marks)),
        SHADOW: shadow_on(marks) is not None,
        NOTIFIED: bool(notified_on(marks)),
        LIVE: live in LIVE_WORDS,
        STOP: stop_of(stop) is not None or stop == STOP_WANDB_TAG,
    }
    return frozenset(name for name, ours in found.items() if ours) | repairs_on(marks).keys()


def presumed(marks: Marks) -> Written:
    """What of an annotation is ours where its record is lost: all that goes by our names."""
    answers = {name for name, is_ours in ((ACK, is_ack_mark), (OPEN, is_open_mark)) if is_ours(text_of(marks, name))}
    return Written.naming(marks.keys() & (PLAIN_NAMES | answers), files=OUR_FILES, note=True, digest=PENDING)


def ours_on(marks: Marks, naming: Callable[[str], str] = str) -> Ours:
    """What of ours is on a run, as its marks say. ``naming``: where a mark is; several may share a tag."""
    written = Written.of(marks)
    own = written.names | ours_by_form(marks)
    own |= {DIGEST, WRITTEN} if is_annotated(marks) else set()
    own |= {VERDICT} if bears_verdict(marks) else set()
    there = own & marks.keys()
    measures = frozenset(filter(is_measure, there))
    return Ours(
        tags=len(set(map(naming, there - measures))),
        metrics=len(measures),
        files=len(written.all_files),
        note=owns_note(marks),
        acks=len(all_entries(marks)),
    )


def changed_answers(
    marks: Marks, own: frozenset[str], entries: Iterable[Acknowledgement], evidence: str, now: float
) -> AnswerMarks | None:
    """The marks that belong next to the verdict on a run, None where they are there, and while someone annotates.

    ``own``: the names of marks that are ours by the run's record. Someone may have annotated the run since, so a mark
    of our form on a run with ``entries`` is ours as well; any other is its owner's, and left as it is.
    """
    recorded = recorded_on(marks)
    if recorded is not None and not recorded.is_whole:
        return None
    people = tuple(entries)
    found = (recorded.codes, recorded.cause) if recorded is not None else ((), "")
    wanted = answer_marks(*found, on_evidence(people, evidence), now)
    there = AnswerMarks(ack=text_of(marks, ACK), open=text_of(marks, OPEN))
    if there.ack and not (is_ack_mark(there.ack) and (ACK in own or people)):
        wanted = replace(wanted, ack=there.ack)
    if there.open and not (is_open_mark(there.open) and OPEN in own):  # every annotation names that one
        wanted = replace(wanted, open=there.open)
    return None if wanted == there else wanted


def is_finished(marks: Marks) -> bool:
    """Whether a run has a whole annotation, be it outdated."""
    recorded = recorded_on(marks)
    return recorded is not None and recorded.is_whole


def tagged(
    ref: RunRef,
    marks: Marks,
    *,
    user: str,
    started: float | None,
    last_step: int | None,
    experiment: str = "",
    acks: tuple[Acknowledgement, ...] = (),
    kin: Kin | None = None,
) -> TaggedRun:
    """What the marks say of a run's annotation: nothing of one that is not ours or was never finished. ``acks``: the
    entries that are about what the run is now. ``kin``: its relations, where they are known.
    """
    recorded, found = recorded_on(marks), repairs_on(marks, ref.id)
    plain = TaggedRun(
        ref=ref,
        verdict=None,
        user=user,
        experiment=experiment,
        started=started,
        kin=kin,
        repairs=found.get(REPAIRS),
        repaired_by=found.get(REPAIRED_BY),
    )
    if recorded is None or not is_finished(marks):
        return replace(plain, shadow=shadow_on(marks))
    return replace(
        plain,
        verdict=recorded.verdict,
        codes=recorded.codes,
        summary=recorded.summary,
        cause=recorded.cause,
        certainty=recorded.certainty,
        older=recorded.is_older_than(last_step),
        acks=acks,
        group_verdict=recorded.group_verdict,
        group=recorded.group,
        group_state=recorded.group_state,
    )


@dataclass(frozen=True, kw_only=True)
class Written:
    """The names of our files and marks that a run has; ``metrics`` are the marks that are numbers.

    ``missing``: files that could not be uploaded, as far as anybody can tell. ``note``: the description has a block of
    ours. ``digest``: of the annotation that they are, or the mark of the one under way. ``run``: ``key_of`` the run
    that they were written onto, empty where nothing tells that from its copies.
    """

    files: frozenset[str] = frozenset()
    metrics: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    note: bool = False
    digest: str = ""
    run: str = ""

    @classmethod
    def of(cls, marks: Marks) -> Written:
        """What a run's marks say, as far as it can be ours: anybody may have changed it."""
        document = _document_of(marks)
        if document is None or not (is_annotated(marks) or document.get("tool") == TOOL):
            return cls()
        digest, run = document.get("digest"), document.get("run")
        return cls(
            files=frozenset(filter(is_file_name, _strings(document.get("files")))),
            metrics=frozenset(_strings(document.get("metrics"))),
            tags=frozenset(name for name in _strings(document.get("tags")) if not name.startswith(ENTRY_PREFIX))
            - _RESERVED,
            missing=frozenset(filter(is_file_name, _strings(document.get("missing")))),
            note=document.get("note", bool(document)) is True,
            digest=digest if isinstance(digest, str) and _is_digest(digest) else "",
            run=run if isinstance(run, str) and _RUN.fullmatch(run) else "",
        )

    @classmethod
    def naming(cls, names: Iterable[str], **others: Any) -> Written:
        """A record of these marks."""
        marks = frozenset(names)
        measures = frozenset(filter(is_measure, marks))
        return cls(metrics=measures, tags=marks - measures, **others)

    @property
    def names(self) -> frozenset[str]:
        """Of all our marks."""
        return self.metrics | self.tags

    @property
    def all_files(self) -> frozenset[str]:
        """The names of files that are ours, whether or not they arrived."""
        return self.files | self.missing

    def __bool__(self) -> bool:
        return bool(self.files or self.metrics or self.tags or self.missing or self.note)

    def __or__(self, other: Written) -> Written:
        files = self.files | other.files
        return Written(
            files=files,
            metrics=self.metrics | other.metrics,
            tags=self.tags | other.tags,
            missing=(self.missing | other.missing) - files,
            note=self.note or other.note,
            digest=self.digest,
            run=self.run,
        )

    def beside(self, earlier: Written) -> Written:
        """As much of it as one mark takes together with all of ``earlier``.

        A name that is not recorded would be taken for the user's later.
        """
        files, metrics, tags, missing = map(sorted, (self.files, self.metrics, self.tags, self.missing))
        while True:
            kept = Written(
                files=frozenset(files),
                metrics=frozenset(metrics),
                tags=frozenset(tags),
                missing=frozenset(missing),
                note=self.note,
                digest=self.digest,
                run=self.run,
            )
            if not (files or metrics or tags or missing) or len(_document(earlier | kept)) <= MAX_MARK - _DIGEST_ROOM:
                return kept
            (metrics or files or missing or tags).pop()

    def without(self, files: frozenset[str]) -> Written:
        """The same, of whose files these are only perhaps there."""
        return replace(self, files=self.files - files, missing=self.missing | (self.files & files))

    @property
    def value(self) -> str:
        """For the mark; empty when there is nothing to record."""
        kept = self.beside(Written())
        return _document(kept) if kept else ""


def _document(written: Written) -> str:
    document: dict[str, Any] = {"tool": TOOL}
    if written.digest:
        document["digest"] = written.digest
    if written.run:
        document["run"] = written.run
    document |= {"files": sorted(written.files), "metrics": sorted(written.metrics), "tags": sorted(written.tags)}
    document["note"] = written.note
    if written.missing:
        document["missing"] = sorted(written.missing)
    return json.dumps(document)


def _strings(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
