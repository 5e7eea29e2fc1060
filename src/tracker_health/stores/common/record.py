"""What the tags of an MLflow run say that it has of ours: digest, verdict, and the names of all we wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tracker_health.evidence import RunRef
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
    Shadow,
)
from tracker_health.judge.messages import SentMessages
from tracker_health.readers.files.json_lines import as_step
from tracker_health.stores.base import Ours, Recorded, TaggedRun
from tracker_health.stores.common.ownership import is_file_name
from tracker_health.words.acknowledgements import (
    MAX_ENTRY_CHARACTERS,
    Acknowledgement,
    Marks,
    in_order,
    is_ack_mark,
    is_open_mark,
    marks,
    on_evidence,
    parsed,
)
from tracker_health.words.gap_names import STOPPED_TAG
from tracker_health.words.stopped import stop_of
from tracker_health.words.verdict import Verdict

DIGEST_TAG, VERDICT_TAG, WRITTEN_TAG = "health.digest", "health.verdict", "health.written"
EXIT_TAG = f"health.{EXIT}"
ACK_TAG, OPEN_TAG, SHADOW_TAG = f"health.{ACK}", f"health.{OPEN}", f"health.{SHADOW}"
NOTIFIED_TAG = f"health.{NOTIFIED}"
ENTRY_PREFIX = f"{ACK_TAG}."
"""Before the id of an entry: each has a tag of its own, so that two people at once write two."""
MAX_TAG_VALUE = 5_000
"""Characters of a tag that we write. MLflow cuts at 8,000 without a word, older servers earlier."""

TOOL = "tracker-health"

# The mark of an annotation under way names its annotator: of two at once, each sees whose it is.
_MARK = re.compile(rf"{PENDING}(:[0-9a-f]{{8}})?")
_DIGEST = re.compile(r"[0-9a-f]{16}")
_RESERVED = frozenset({"verdict", "digest", "written", EXIT, SHADOW, "stop", "stopped"})
_OURS_OF_PEOPLE = f"{ACK}."
_DIGEST_ROOM = 50


def is_annotated(tags: Mapping[str, str]) -> bool:
    """Whether a run has a digest of ours, also one that says that it was never finished."""
    return _is_digest(tags.get(DIGEST_TAG, ""))


def _is_digest(text: str) -> bool:
    return bool(_MARK.fullmatch(text) or _DIGEST.fullmatch(text))


def bears_verdict(tags: Mapping[str, str]) -> bool:
    """Whether the verdict on a run, if there is one, is ours: by its digest or, that taken off, its record."""
    return is_annotated(tags) or bool(Written.of(tags).digest)


def is_legible(tags: Mapping[str, str]) -> bool:
    """Whether a run has no record of ours, or one that can be read."""
    return _document_of(tags) is not None


def _document_of(tags: Mapping[str, str]) -> Mapping[str, Any] | None:
    try:
        document = json.loads(tags.get(WRITTEN_TAG, "{}"))
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def owns_note(tags: Mapping[str, str]) -> bool:
    """Whether a block in the description of a run is ours: by its record or, that taken off, its verdict and digest.

    A run with nothing to judge has none of ours, and before the record is written neither has any other.
    """
    if WRITTEN_TAG in tags:
        return Written.of(tags).note
    return bool(_DIGEST.fullmatch(tags.get(DIGEST_TAG, ""))) and tags.get(VERDICT_TAG) != Verdict.SKIP


def recorded_on(tags: Mapping[str, str]) -> Recorded | None:
    """The annotation that a run's tags say it has; ``pending`` also where two annotators got in each other's way."""
    if not is_annotated(tags):
        return None
    digest, verdict = tags[DIGEST_TAG], tags.get(VERDICT_TAG)
    codes = _listed(tags, "codes")
    if _MARK.fullmatch(digest) or Written.of(tags).digest not in ("", digest):
        digest = PENDING
    return Recorded(
        digest=digest,
        verdict=Verdict(verdict) if verdict in set(Verdict) else None,
        settings=tags.get(f"health.{SETTINGS}", ""),
        step=as_step(tags.get(f"health.{STEP}")),
        ended=tags.get(f"health.{ENDED}", ""),
        rules=as_step(tags.get(f"health.{RULES}")),
        codes=codes,
        cause=tags.get(f"health.{CAUSE}", ""),
        certainty=tags.get(f"health.{CERTAINTY}", ""),
        explained=_listed(tags, EXPLAINED) or codes,
        notified=tags.get(NOTIFIED_TAG, ""),
    )


def _listed(tags: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(code for code in tags.get(f"health.{name}", "").split(",") if code)


def entries_on(tags: Mapping[str, str]) -> tuple[Acknowledgement, ...]:
    """What people answered to the verdicts on a run, each entry in a tag of its own, the oldest first."""
    named = (
        parsed(value, name.removeprefix(ENTRY_PREFIX))
        for name, value in tags.items()
        if name.startswith(ENTRY_PREFIX) and len(value) <= MAX_ENTRY_CHARACTERS
    )
    return in_order(one for one in named if one is not None)


def notified_on(tags: Mapping[str, str]) -> str:
    """About what people were sent a message, by a tag that is ours by its form: a run may have it before a verdict."""
    text = tags.get(NOTIFIED_TAG, "")
    return text if SentMessages.of(text).value else ""


def shadow_on(tags: Mapping[str, str]) -> Shadow | None:
    """What a run's tags say of a verdict that was only tried out."""
    return Shadow.of(tags.get(SHADOW_TAG, ""))


def ours_on(tags: Mapping[str, str]) -> Ours:
    """What of ours is on a run, as its tags say."""
    written = Written.of(tags)
    own = {f"health.{name}" for name in written.tags} | ({DIGEST_TAG, WRITTEN_TAG} if is_annotated(tags) else set())
    own |= {VERDICT_TAG} if bears_verdict(tags) else set()
    own |= {SHADOW_TAG} if shadow_on(tags) is not None else set()
    own |= {NOTIFIED_TAG} if notified_on(tags) else set()
    return Ours(
        tags=len(own & tags.keys()),
        metrics=len(written.metrics),
        files=len(written.all_files),
        note=owns_note(tags),
        acks=len(entries_on(tags)),
        exit=EXIT_TAG in tags or stop_of(tags.get(STOPPED_TAG, "")) is not None,
    )


def changed_marks(
    tags: Mapping[str, str], own: frozenset[str], entries: Iterable[Acknowledgement], evidence: str, now: float
) -> Marks | None:
    """The marks that belong beside the verdict on a run, None where they are there, and while somebody annotates.

    ``own``: the names of tags that are ours by the run's record. Somebody may have annotated the run since, so a mark
    of our form on a run with ``entries`` is ours as well; any other is its owner's, and left as it is.
    """
    recorded = recorded_on(tags)
    if recorded is not None and not recorded.is_whole:
        return None
    people = tuple(entries)
    found = (recorded.codes, recorded.cause) if recorded is not None else ((), "")
    wanted = marks(*found, on_evidence(people, evidence), now)
    there = Marks(ack=tags.get(ACK_TAG, ""), open=tags.get(OPEN_TAG, ""))
    if there.ack and not (is_ack_mark(there.ack) and (ACK in own or people)):
        wanted = replace(wanted, ack=there.ack)
    if there.open and not (is_open_mark(there.open) and (OPEN in own or people)):
        wanted = replace(wanted, open=there.open)
    return None if wanted == there else wanted


def is_finished(tags: Mapping[str, str]) -> bool:
    """Whether a run has a whole annotation, be it outdated."""
    recorded = recorded_on(tags)
    return recorded is not None and recorded.is_whole


def tagged(
    ref: RunRef,
    tags: Mapping[str, str],
    *,
    user: str,
    started: float | None,
    last_step: int | None,
    experiment: str = "",
    acks: tuple[Acknowledgement, ...] = (),
) -> TaggedRun:
    """What the tags say of a run's annotation: nothing of one that is not ours or was never finished. ``acks``: the
    entries that are about what the run is now.
    """
    recorded = recorded_on(tags)
    if recorded is None or not is_finished(tags):
        shadow = shadow_on(tags)
        return TaggedRun(ref=ref, verdict=None, user=user, experiment=experiment, started=started, shadow=shadow)
    return TaggedRun(
        ref=ref,
        verdict=Verdict(tags[VERDICT_TAG]),
        codes=recorded.codes,
        summary=tags.get("health.summary", ""),
        cause=recorded.cause,
        certainty=recorded.certainty,
        user=user,
        experiment=experiment,
        started=started,
        older=recorded.is_older_than(last_step),
        acks=acks,
    )


@dataclass(frozen=True, kw_only=True)
class Written:
    """The names of our files, metrics and tags (without prefix) that a run has.

    ``missing``: files that could not be uploaded, as far as anybody can tell. ``note``: the description has a block of
    ours. ``digest``: of the annotation that they are, or the mark of the one under way.
    """

    files: frozenset[str] = frozenset()
    metrics: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    note: bool = False
    digest: str = ""

    @classmethod
    def of(cls, tags: Mapping[str, str]) -> Written:
        """What a run's tags say, as far as it can be ours: anybody may have changed it."""
        document = _document_of(tags)
        if document is None or not (is_annotated(tags) or document.get("tool") == TOOL):
            return cls()
        digest = document.get("digest")
        return cls(
            files=frozenset(filter(is_file_name, _strings(document.get("files")))),
            metrics=frozenset(_strings(document.get("metrics"))),
            tags=frozenset(name for name in _strings(document.get("tags")) if not name.startswith(_OURS_OF_PEOPLE))
            - _RESERVED,
            missing=frozenset(filter(is_file_name, _strings(document.get("missing")))),
            note=document.get("note", bool(document)) is True,
            digest=digest if isinstance(digest, str) and _is_digest(digest) else "",
        )

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
        )

    def beside(self, earlier: Written) -> Written:
        """As much of it as one tag takes together with all of ``earlier``.

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
            )
            if (
                not (files or metrics or tags or missing)
                or len(_document(earlier | kept)) <= MAX_TAG_VALUE - _DIGEST_ROOM
            ):
                return kept
            (metrics or files or missing or tags).pop()

    def without(self, files: frozenset[str]) -> Written:
        """The same, of whose files these are only perhaps there."""
        return replace(self, files=self.files - files, missing=self.missing | (self.files & files))

    @property
    def value(self) -> str:
        """For the tag's value; empty when there is nothing to record."""
        kept = self.beside(Written())
        return _document(kept) if kept else ""


def _document(written: Written) -> str:
    document: dict[str, Any] = {"tool": TOOL}
    if written.digest:
        document["digest"] = written.digest
    document |= {"files": sorted(written.files), "metrics": sorted(written.metrics), "tags": sorted(written.tags)}
    document["note"] = written.note
    if written.missing:
        document["missing"] = sorted(written.missing)
    return json.dumps(document)


def _strings(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
