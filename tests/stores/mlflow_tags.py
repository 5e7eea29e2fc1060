"""What of ours is among the tags of an MLflow run, in plain words."""

from __future__ import annotations

import json
from collections.abc import Mapping

BEHIND = ("written", "settings", "rules", "step", "group", "group_state", "ended_by", "certainty", "explained", "baseline", "judged", "version", "symptoms")  # fmt: skip


def ours(tags: Mapping[str, str]) -> dict[str, str]:
    """Our marks by name: those behind the digest as if each were a tag, and ``column``: the tag for tables."""
    found = {key.removeprefix("health."): value for key, value in tags.items() if key.startswith("health.")}
    digest, _, behind = found.get("digest", "").partition(" ")
    document = json.loads(behind) if behind.startswith("{") else {}
    found |= {
        name: document[name] if name != "written" else json.dumps(document[name]) for name in BEHIND if name in document
    }
    if "digest" in found:
        found["digest"] = digest
    if document.get("column") and "health" in tags:
        found["column"] = tags["health"]
    return found


def written(tags: Mapping[str, str]) -> dict[str, list[str]]:
    """The names that the record lists: of files, metrics and tags."""
    document: dict[str, list[str]] = json.loads(ours(tags).get("written", "{}"))
    return document


def expanded(tags: Mapping[str, str]) -> dict[str, str]:
    """All tags, those behind the digest as if each were one."""
    others = {key: value for key, value in tags.items() if not key.startswith("health.")}
    return others | {f"health.{name}": value for name, value in ours(tags).items() if name != "column"}
