"""The page and the picture of an annotation as media of W&B: its pages show what a summary names as such.

Both are where the SDK puts such files. Nothing is resumed for them, and no row of the history is added.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Any

from tracker_health.judge.annotations import NOTIFIED, PAGE_FILE, PICTURE_FILE, REPORT_FILE
from tracker_health.stores.common.ownership import HEALTH_FOLDER
from tracker_health.stores.folder.annotation_file import ANNOTATION_FILE

MEDIA_PLACES = {
    PAGE_FILE: f"media/html/{HEALTH_FOLDER}/{PAGE_FILE}",
    PICTURE_FILE: f"media/images/{HEALTH_FOLDER}/{PICTURE_FILE}",
}
"""Where these two are among the files of a run."""

LOCAL_COPIES = {f"local {name}": f"{HEALTH_FOLDER}/{name}" for name in (PAGE_FILE, PICTURE_FILE, ANNOTATION_FILE)}
"""What older SDKs take along when a run is synced that was annotated in its folder: all of its files."""

NOTIFIED_PLACE = f"{HEALTH_FOLDER}/{NOTIFIED}.txt"
"""The file that says about what people were sent a message, of a run whose summary cannot be written yet."""

ENTRIES = f"{HEALTH_FOLDER}/acks/"
"""Below that what people answered to its verdicts, an entry in each file."""

OWN_PLACES = sorted({*MEDIA_PLACES.values(), *LOCAL_COPIES.values(), f"{HEALTH_FOLDER}/{REPORT_FILE}", NOTIFIED_PLACE})
"""Where files of ours may be, besides those entries."""

MEDIA_KEYS = {PAGE_FILE: "report", PICTURE_FILE: "picture"}
"""Their names in a summary, behind ``health/``."""

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_SIZE = struct.Struct(">8x4x4xII")


def place_of(name: str) -> str:
    """Where a file of ours is among those of a run on a server."""
    return {**MEDIA_PLACES, **LOCAL_COPIES}.get(name, f"{HEALTH_FOLDER}/{name}")


def media_of(files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """What a summary has to say of these files of an annotation, by its names; nothing of what is no media."""
    found = {}
    for name, key in MEDIA_KEYS.items():
        content = files.get(name, b"")
        if content and (kind := _kind_of(name, content)):
            digest = hashlib.sha256(content).hexdigest()
            found[key] = {**kind, "path": MEDIA_PLACES[name], "sha256": digest, "size": len(content)}
    return found


def _kind_of(name: str, content: bytes) -> dict[str, Any]:
    if name == PAGE_FILE:
        return {"_type": "html-file"}
    if not content.startswith(_PNG) or len(content) < _PNG_SIZE.size:
        return {}
    width, height = _PNG_SIZE.unpack_from(content)
    return {"_type": "image-file", "format": "png", "width": width, "height": height}
