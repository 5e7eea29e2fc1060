"""The marks of a folder: ``health/annotation.json``, the one file by which verdict and files are known as ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracker_health.judge.annotations import EXIT, NOTIFIED, PENDING, SHADOW
from tracker_health.stores.common.ownership import is_file_name
from tracker_health.stores.common.record import (
    DIGEST,
    ENTRY_PREFIX,
    NOTE,
    VERDICT,
    WRITTEN,
    Written,
    is_annotated,
    is_measure,
)
from tracker_health.words.repairs import REPAIRED_BY, REPAIRS

ANNOTATION_FILE = "annotation.json"
ANNOTATION_SCHEMA = "tracker-health/annotation/1"
_ALONE = {
    VERDICT: "verdict",
    DIGEST: "digest",
    NOTE: "note",
    EXIT: "exit",
    SHADOW: "shadow",
    REPAIRS: "repairs",
    REPAIRED_BY: "repaired_by",
}
"""What is next to the tags and metrics in it, by the name of its mark."""


def is_record(document: Any) -> bool:
    """Whether that is what such a file holds."""
    return isinstance(document, dict) and document.get("schema") == ANNOTATION_SCHEMA


def marks_of(document: Mapping[str, Any], *, half: bool = False) -> dict[str, Any]:
    """The marks that a file holds. ``half``: another annotation was begun, and has not ended."""
    found: dict[str, Any] = {}
    for part in ("tags", "metrics"):
        listed = document.get(part)
        found |= listed if isinstance(listed, dict) else {}
    found |= {name: text for name, key in _ALONE.items() if isinstance(text := document.get(key), str) and text}
    if NOTIFIED in document:  # of a run without a verdict, as earlier versions wrote it
        found.setdefault(NOTIFIED, document[NOTIFIED])
    judged = DIGEST in document or VERDICT in document
    if judged and (half or not is_annotated(found)):  # someone may have changed it
        found[DIGEST] = PENDING
    listed = document.get("files")
    files = frozenset(filter(is_file_name, listed)) if isinstance(listed, list) else frozenset[str]()
    if DIGEST in found or files:
        names = found.keys() - _ALONE.keys()
        digest = "" if half else str(found.get(DIGEST, ""))
        found[WRITTEN] = Written.naming(names, files=files, note=bool(found.get(NOTE)), digest=digest).value
    return found


def document_of(marks: Mapping[str, Any]) -> dict[str, Any]:
    """The file that holds these marks; empty for none. Entries have files of their own."""
    kept = {name: value for name, value in marks.items() if value not in (None, "")}
    named = {name: value for name, value in kept.items() if name not in _ALONE and name != WRITTEN}
    named = {name: value for name, value in named.items() if not name.startswith(ENTRY_PREFIX)}
    document = {key: kept[name] for name, key in _ALONE.items() if name in kept}
    if not (document or named):
        return {}
    files = Written.of(kept).all_files
    tags = {name: value for name, value in named.items() if not is_measure(name)}
    metrics = {name: value for name, value in named.items() if is_measure(name)}
    parts = {"tags": tags, "metrics": metrics, "files": sorted(files)}
    return {
        "schema": ANNOTATION_SCHEMA,
        **document,
        **{key: part for key, part in parts.items() if part or DIGEST in kept},
    }
