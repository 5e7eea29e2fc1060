"""Our marks on an MLflow run: tags ``health.NAME``, metrics ``health/NAME`` for numbers, and its description.

MLflow shows every tag in its tables and on the page of a run. What only programs read is therefore kept in one of them,
behind the digest: ``0123456789abcdef {"settings": ...}``. Earlier versions gave each such mark a tag of its own.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracker_health.judge.annotations import (
    BASELINE,
    CAUSE,
    CERTAINTY,
    CODES,
    ENDED_BY,
    EXPLAINED,
    GROUP,
    GROUP_STATE,
    GROUP_VERDICT,
    JUDGED,
    PENDING,
    RULES,
    SETTINGS,
    STEP,
    SYMPTOMS,
    VERSION,
)
from tracker_health.stores.common.record import (
    DIGEST,
    MAX_MARK,
    NOTE,
    OWNERS,
    VERDICT,
    WRITTEN,
    Mark,
    Written,
    is_annotated,
    is_measure,
    of_run,
    presumed,
    text_of,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

NOTE_TAG = "mlflow.note.content"
COLUMN_TAG = "health"
"""The tag that reads well as the only column of a table: verdict, cause, and how sure that is."""
_COLUMN = re.compile(
    r"[A-Z]{4,9}( [A-Z]{3}\d{3}| [\w-]+ \((certain|likely|possible|unknown)\))?( \[its ranks: [A-Z]{4}\])?"
)
"""What that says; also where two at once have torn it, as they can in a store of files."""
_TAG, _METRIC = "health.", "health/"

_BEHIND = (
    WRITTEN,
    SETTINGS,
    RULES,
    STEP,
    GROUP,
    GROUP_STATE,
    ENDED_BY,
    CERTAINTY,
    EXPLAINED,
    BASELINE,
    JUDGED,
    VERSION,
    SYMPTOMS,
)
"""The marks behind the digest. Where there is no room for all, the last are left out."""
_IN_ONE_TAG = frozenset({DIGEST, *_BEHIND})
_OF_RECORD = frozenset({DIGEST, WRITTEN})
_NO_DIGEST = "-"
"""In the place of a digest: what could not be deleted is noted down without a verdict, too."""
_BEGUN = re.compile(r"(?:(?:[0-9a-f]{16}|pending:[0-9a-f]{8}|-) \{.*)?", re.DOTALL)


def latest_points(run: Any) -> dict[str, Any]:
    """Per metric its latest point: key, value, timestamp (ms) and step; ``run.data.metrics`` has only the value."""
    return {metric.key: metric for metric in run.data.to_proto().metrics}


def marks_in(run: Any) -> dict[str, Mark]:
    """The marks among the tags of MLflow's record of a run."""
    return of_run(_parsed(run.data.tags).marks, run.info.run_id)


def called(name: str) -> str:
    """What MLflow calls a mark of this name."""
    if name == NOTE:
        return NOTE_TAG
    if is_measure(name):
        return f"the metric {_METRIC}{name}"
    return f"the tag {_TAG}{DIGEST if name in _IN_ONE_TAG else name}"


@dataclass(frozen=True)
class _Parsed:
    """A run's tags as marks. ``apart``: those behind the digest of which there is a tag of an earlier version's.
    ``has_column``: the tag for tables is ours.
    """

    marks: dict[str, Mark]
    apart: frozenset[str] = frozenset()
    has_column: bool = False


def _parsed(tags: Mapping[str, str]) -> _Parsed:
    found: dict[str, Mark] = {key.removeprefix(_TAG): value for key, value in tags.items() if key.startswith(_TAG)}
    found = {name: value for name, value in found.items() if not is_measure(name)}
    digest, _, behind = text_of(found, DIGEST).partition(" ")
    document = _document(behind)
    marks = {name: value for name, value in found.items() if name not in _IN_ONE_TAG}
    if document is None and DIGEST in found and _BEGUN.fullmatch(text_of(found, DIGEST)):
        # Read while it was written, as in a store of files, or torn there by two at once: not legible, or not yet.
        begun = {DIGEST: PENDING} if behind else {}
        return _Parsed(marks | {WRITTEN: behind} | begun, has_column=_is_our_column(tags))
    if document is None and is_annotated(found) and WRITTEN not in found and _is_our_column(tags):
        # Someone has put a digest in the place of ours, to have it judged again: no earlier version wrote a column.
        return _Parsed(marks | {DIGEST: PENDING, WRITTEN: presumed(marks).value}, has_column=True)
    if document is None:
        return _parsed_of_earlier_version(found)
    marks |= {name: str(document[name]) for name in _BEHIND[1:] if name in document}
    if isinstance(written := document.get(WRITTEN), dict):
        beside = [name for name in _BEHIND[1:] if name in document]
        marks[WRITTEN] = _rewritten(written, beside, {} if digest == _NO_DIGEST else {"digest": digest})
    if digest != _NO_DIGEST:
        marks[DIGEST] = digest
    apart = document.get("apart")
    listed = [name for name in apart if name in _BEHIND and name in found] if isinstance(apart, list) else []
    return _Parsed(marks, frozenset(listed), document.get("column") is True)


def _is_our_column(tags: Mapping[str, str]) -> bool:
    """Whether the tag for tables is there and says what only we do: known where a digest of ours is there as well."""
    return bool(_COLUMN.fullmatch(tags.get(COLUMN_TAG, "")))


def _parsed_of_earlier_version(found: dict[str, Mark]) -> _Parsed:
    """Each mark was a tag of its own. What its owner has under names that are behind the digest is in nobody's way."""
    ours = Written.of(found)
    own = {WRITTEN, *ours.tags} if ours or is_annotated(found) else set()
    apart = frozenset(name for name in _BEHIND if name in found and name in own)
    return _Parsed({name: value for name, value in found.items() if name not in _BEHIND or name in apart}, apart)


def _rewritten(written: Mapping[str, Any], names: Iterable[str], more: Mapping[str, str]) -> str:
    """The record as all stores have it: it names the marks that are next to it, and the digest before it."""
    tags = written.get("tags")
    listed = [*tags, *names] if isinstance(tags, list) else tags
    return json.dumps({**more, **written, "tags": listed})


def _document(text: str) -> dict[str, Any] | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


@dataclass
class Kept:
    """What is known of a run's marks from one look to the next. ``waiting``: changes of what is behind the digest,
    which are written together with it. ``has_column``: the tag for tables was ours.
    """

    waiting: dict[str, Mark | None] = field(default_factory=dict)
    has_column: bool = False


class MlflowMarks(dict[str, Mark]):
    """The marks of one run, as its record has them and as they were changed since. ``at_once``: all tags of a request
    come at once, and not one after the other, as in a store of files.
    """

    def __init__(self, client: MlflowClient, run: Any, kept: Kept, *, at_once: bool) -> None:
        self._client, self._id, self._kept, self._at_once = client, run.info.run_id, kept, at_once
        self._latest = {
            name: point
            for key, point in latest_points(run).items()
            if key.startswith(_METRIC) and is_measure(name := key.removeprefix(_METRIC))
        }
        tags = run.data.tags
        parsed = _parsed(tags)
        super().__init__(of_run(parsed.marks, self._id))
        self |= {name: OWNERS if point.step else point.value for name, point in self._latest.items()}
        if NOTE_TAG in tags:
            self[NOTE] = tags[NOTE_TAG]
        self._apart = parsed.apart
        kept.has_column |= parsed.has_column
        self._has_column = kept.has_column and COLUMN_TAG in tags
        self._may_have_column = kept.has_column or COLUMN_TAG not in tags

    def __contains__(self, name: object) -> bool:
        """Whether the run has such a mark. A number whose latest value is NaN may be one that we hid."""
        if not super().__contains__(name):
            return False
        latest = self._latest.get(str(name))
        if latest is None or not math.isnan(latest.value) or latest.step != 0:
            return True
        # All of ours are at step 0, and before the NaN that hides them stood a number.
        points = self._client.get_metric_history(self._id, latest.key)
        return any(point.step != 0 for point in points) or all(math.isnan(point.value) for point in points)

    def change(self, changes: Mapping[str, Mark | None]) -> frozenset[str]:
        """See ``StoredRun.set_marks``. All that is written is one request, the digest last."""
        from mlflow.entities import RunTag

        texts = {name: value for name, value in changes.items() if not is_measure(name)}
        self._kept.waiting |= {name: texts.pop(name) for name in _BEHIND[1:] if name in texts}
        if not _OF_RECORD.isdisjoint(texts):
            texts = {**self._kept.waiting, **texts}
            self._kept.waiting.clear()
        gone = [name for name, value in texts.items() if value is None and dict.__contains__(self, name)]
        points, hidden = self._points({name: value for name, value in changes.items() if is_measure(name)})
        for name in gone:
            del self[name]
        self |= {name: value for name, value in {**changes, **texts}.items() if value is not None}
        written = {_key(name): value for name, value in texts.items() if value is not None and name not in _IN_ONE_TAG}
        lost = [_key(name) for name in gone if name not in _IN_ONE_TAG]
        begins = str(texts.get(DIGEST)).startswith(PENDING)
        has_news = self._may_have_column and (begins or (VERDICT in texts and VERDICT in self))
        self._has_column |= has_news
        self._kept.has_column |= has_news
        column = {COLUMN_TAG: self._column()} if has_news else {}
        if self._has_column and not (VERDICT in self or DIGEST in self):
            lost.append(COLUMN_TAG)
        if not _OF_RECORD.isdisjoint(texts):
            lost += self._settle_earlier_version()
            digest = self._digest()
            written |= {_key(DIGEST): digest} if digest else {}
            lost += [] if digest or DIGEST not in gone else [_key(DIGEST)]
        # First of the tags on MLflow's pages; but not before the digest that says whose it is.
        written = column | written if self._at_once else written | column
        for key in lost:
            remove_tag(self._client, self._id, key)
        if points or written:
            tags = [RunTag(key, str(value)) for key, value in written.items()]
            self._client.log_batch(self._id, metrics=points, tags=tags)
        return hidden

    def _column(self) -> str:
        """For the tag for tables: ``FAIL learning-rate-too-high (certain)``, or the code of a finding without a cause.
        Before the first verdict is there, it is pending, and then the first of our tags in the order that they came in.
        """
        if VERDICT not in self:
            return PENDING.upper()
        what = text_of(self, CAUSE) or text_of(self, CODES).partition(",")[0]
        sure = self._kept.waiting.get(CERTAINTY, text_of(self, CERTAINTY))
        ranks = text_of(self, GROUP_VERDICT).upper()
        said = [what, f"({sure})" if what and sure else "", f"[its ranks: {ranks}]" if ranks else ""]
        return " ".join([text_of(self, VERDICT).upper(), *filter(None, said)])

    def _settle_earlier_version(self) -> list[str]:
        """The tags of an earlier version that go: their content is behind the digest, once that is whole."""
        if text_of(self, DIGEST).startswith(PENDING):
            return []
        gone, self._apart = sorted(self._apart), frozenset()
        return [_key(name) for name in gone]

    def _digest(self) -> str:
        """For the tag of the digest: it and all that is behind it; "" where there is nothing to say."""
        digest = text_of(self, DIGEST)
        names = [name for name in _BEHIND if dict.__contains__(self, name)]
        if not (digest or names):
            return ""
        flags: dict[str, Any] = {"column": True} if self._has_column else {}
        flags |= {"apart": sorted(self._apart)} if self._apart else {}
        while True:
            behind: dict[str, Any] = {name: text_of(self, name) for name in names}
            if written := _document(behind.get(WRITTEN, "")):
                tags = [name for name in written.get("tags", ()) if name not in names]
                behind[WRITTEN] = {**written, "tags": tags}
                if written.get("digest") == digest:
                    del behind[WRITTEN]["digest"]
            value = f"{digest or _NO_DIGEST} {json.dumps({**flags, **behind})}"
            if len(value) <= MAX_MARK or names == [WRITTEN]:
                return value
            names.pop()

    def _points(self, numbers: Mapping[str, Any]) -> tuple[list[Any], frozenset[str]]:
        """The points that give the run these numbers, and the names of those that hide one: a metric cannot be deleted,
        and a NaN as its latest point takes it off the run page and out of filters.
        """
        from mlflow.entities import Metric

        now, points, hidden = int(time.time() * 1000), [], set()
        for name, number in sorted(numbers.items()):
            value, last = math.nan if number is None else number, self._latest.get(name)
            if last is None and math.isnan(value):
                continue
            if math.isnan(value):
                hidden.add(f"{_METRIC}{name}")
            if last is not None and (last.value == value or (math.isnan(last.value) and math.isnan(value))):
                continue
            # Of two points at one step the later is the latest; of two at one time the larger, whichever was meant.
            timestamp = now if last is None else max(now, last.timestamp + 1)
            points.append(Metric(f"{_METRIC}{name}", value, timestamp, 0 if last is None else last.step))
        return points, frozenset(hidden)


def _key(name: str) -> str:
    return NOTE_TAG if name == NOTE else f"{_TAG}{name}"


def remove_tag(client: MlflowClient, run_id: str, tag: str) -> None:
    """Delete a tag that may be gone already."""
    from mlflow.exceptions import MlflowException

    try:
        client.delete_tag(run_id, tag)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
