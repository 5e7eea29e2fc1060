"""Our marks on a run of a W&B server: keys ``health/NAME`` of its summary, and tags of W&B's own kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from tracker_health.judge.annotations import ACK, NOTIFIED, OF_ANY_VERDICT, OPEN, PENDING, PLAIN_NAMES
from tracker_health.rules.registry import probe_classes
from tracker_health.stores.common.ownership import OUR_FILES
from tracker_health.stores.common.record import (
    DIGEST,
    ENTRY_PREFIX,
    LIVE,
    NATIVE,
    STOP,
    VERDICT,
    WRITTEN,
    Marks,
    Written,
    is_annotated,
    recorded_on,
    text_of,
)
from tracker_health.stores.wandb.media import LOCAL_COPIES, MEDIA_KEYS
from tracker_health.stores.wandb.values import ACK_WANDB_TAG, OWN_KEY, OWN_TAGS, tags_with
from tracker_health.words.acknowledgements import MOST_ENTRIES, Acknowledgement, from_json, in_order, is_ack_mark
from tracker_health.words.gap_names import LIVE_WANDB_TAGS, STOP_WANDB_TAG
from tracker_health.words.verdict import Verdict

ENTRIES_KEY = f"{OWN_KEY}acks"
"""In the summary: all entries as a list, for whoever reads many runs. What counts are the files that it is made of."""

_NO_MARKS = frozenset({ENTRIES_KEY, f"{OWN_KEY}{LIVE}", f"{OWN_KEY}{STOP}"})  # the last two are tags
_PLAIN_NAMES = PLAIN_NAMES | {NOTIFIED, ACK, OPEN, *MEDIA_KEYS.values()}


def marks_in(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The marks in a run's summary, the entries of its list among them."""
    found = {key.removeprefix(OWN_KEY): value for key, value in own_keys(summary).items() if key not in _NO_MARKS}
    found |= {f"{ENTRY_PREFIX}{one.id}": one.value for one in entries_in(summary)}
    if WRITTEN not in found and (synced := _synced(found)):
        found[WRITTEN] = synced.value
    return found


def own_keys(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a run's summary that have a name of ours, with their values."""
    return {key: value for key, value in summary.items() if key.startswith(OWN_KEY)}


def entries_in(summary: Mapping[str, Any]) -> tuple[Acknowledgement, ...]:
    """What people answered to the verdicts on a run, by its summary, the oldest first."""
    listed = summary.get(ENTRIES_KEY)
    if not isinstance(listed, list):
        return ()
    found = (from_json(one) for one in islice(reversed(listed), MOST_ENTRIES) if isinstance(one, Mapping))
    return in_order(one for one in found if one is not None)


def _synced(marks: Marks) -> Written:
    """What of a run is ours that was annotated in its folder, and then synced. There all that goes by our names is: it
    has no list of them.
    """
    recorded = recorded_on(marks)
    if recorded is None or recorded.digest == PENDING or recorded.verdict is None:
        return Written()
    if recorded.verdict is Verdict.SKIP:
        return Written.naming(marks.keys() & OF_ANY_VERDICT)
    rules = {probe.name.replace("-", "_") for probe in probe_classes()}
    ours = {name for name in marks if name in _PLAIN_NAMES or name.partition("/")[0] in rules}
    return Written.naming(ours, files=OUR_FILES | LOCAL_COPIES.keys())


def marks_of_tags(tags: Iterable[str], marks: Marks) -> dict[str, str]:
    """What W&B's own tags of a run add to the marks of its summary, or change in them."""
    found = {}
    for tag in tags:
        if tag in LIVE_WANDB_TAGS:
            found[STOP if tag == STOP_WANDB_TAG else LIVE] = tag.rpartition("-")[2]
        elif tag in OWN_TAGS and not is_annotated(marks):
            found[NATIVE] = tag
    recorded = recorded_on(marks)
    plain = without_ack(tags, marks)
    if recorded is not None and recorded.is_whole and sorted(plain) != sorted(tags_with(plain, recorded.verdict)):
        found[DIGEST] = PENDING  # what someone has changed by hand is put right by the next annotation
    return found


def tags_after(tags: Iterable[str], before: Marks, after: Marks, changed: Iterable[str]) -> list[str]:
    """W&B's own tags of a run whose marks were changed from ``before`` to ``after``."""
    found, names = list(tags), set(changed)
    if LIVE in names:
        found = [tag for tag in found if tag not in LIVE_WANDB_TAGS - {STOP_WANDB_TAG}]
    if STOP in names:
        found = [tag for tag in found if tag != STOP_WANDB_TAG] + [STOP_WANDB_TAG] * bool(after.get(STOP))
    digest = text_of(after, DIGEST)
    if DIGEST in names and not digest.startswith(PENDING):
        verdict = Verdict(text_of(after, VERDICT)) if digest else None
        found = tags_with(without_ack(found, before), verdict)
    elif ACK in names:
        found = without_ack(found, before)
    else:
        return found
    if is_ack_mark(text_of(after, ACK)):  # it may be there, of someone whose summary was lost
        found = [*(tag for tag in found if tag != ACK_WANDB_TAG), ACK_WANDB_TAG]
    return found


def without_ack(tags: Iterable[str], marks: Marks) -> list[str]:
    """A run's tags without the one that says that its verdict was answered, where it is ours."""
    ours = is_ack_mark(text_of(marks, ACK))
    return [tag for tag in tags if not (ours and tag == ACK_WANDB_TAG)]
