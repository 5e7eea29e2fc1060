"""What the server keeps, in memory: runs with their history and files, artifacts with their manifests, and bytes."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class Blob:
    """Bytes under a name. ``updated``: when they were put there."""

    content: bytes
    updated: str = field(default_factory=now)

    @property
    def md5(self) -> str:
        return base64.b64encode(hashlib.md5(self.content).digest()).decode()


@dataclass
class Run:
    """A run, as its clients have written it."""

    entity: str
    project: str
    name: str
    number: int
    display_name: str = ""
    notes: str = ""
    group: str | None = None
    job_type: str | None = None
    sweep: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    state: str = "running"
    history: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    files: dict[str, Blob] = field(default_factory=dict)
    created: str = field(default_factory=now)
    heartbeat: str = field(default_factory=now)

    @property
    def storage_id(self) -> str:
        return base64.b64encode(f"Run:v1:{self.name}:{self.project}:{self.entity}".encode()).decode()

    def rows(self, first: int = 0, end: float = math.inf) -> list[dict[str, Any]]:
        """The rows of the history of these steps, as far as they are given already."""
        there = self.history[: len(self.history) - self.late]
        rows = [strict(row) for row in map(json.loads, there) if first <= row["_step"] < end]
        return [dict(_dotted(row)) for row in rows] if self.nested == "dotted" else rows

    late: int = 0
    """Rows at the end of the history that are not given yet."""

    nested: str = "rows"
    """How nested metrics are given: as they were logged (``rows``), with dots (``dotted``), as logged, with the names
    below each key in the list of keys (``maps``), or as structs in a file (``parquet``).
    """

    def history_keys(self) -> dict[str, Any] | None:
        """The names in the history, how often each was logged, and the last step."""
        rows = self.rows()
        if not rows:
            return None
        return {
            "sets": [],
            "keys": _keys_in(rows, maps=self.nested == "maps"),
            "lastStep": max(row["_step"] for row in rows),
        }

    def stream(self, body: dict[str, Any]) -> None:
        """Take what core streams: lines at an offset, and in the end how it ended."""
        self.heartbeat = now()
        for name, chunk in (body.get("files") or {}).items():
            kept = {"wandb-history.jsonl": self.history, "wandb-events.jsonl": self.events, "output.log": self.log}
            if name == "wandb-summary.json":
                self.summary = json.loads(chunk["content"][-1])
            elif name in kept:
                lines = kept[name]
                lines[chunk["offset"] : chunk["offset"] + len(chunk["content"])] = chunk["content"]
        if body.get("complete"):
            self.state = "finished" if body.get("exitcode") == 0 else "failed"


def _keys_in(rows: list[dict[str, Any]], *, maps: bool) -> dict[str, Any]:
    counts = Counter(key for row in rows for key in row)
    types = {key: _type(row[key]) for row in rows for key in row}
    keys: dict[str, Any] = {
        key: {"typeCounts": [{"type": types[key], "count": count}]} for key, count in counts.items()
    }
    for key in [key for key in keys if maps and types[key] == "map"]:
        below = [row[key] for row in rows if isinstance(row.get(key), dict)]
        keys[key]["typeCounts"][0]["keys"] = _keys_in(below, maps=True)
    return keys


def _dotted(row: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, dict) and "_type" not in value:
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def parquet_of(rows: list[dict[str, Any]]) -> bytes:
    """Rows as the columns of a file, nested ones as structs."""
    import io

    import pyarrow as pa
    from pyarrow import parquet

    table, file = pa.Table.from_pylist(rows), io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()


def strict(value: Any) -> Any:
    """The same without NaN and infinities, which JSON has not: W&B gives their names as strings."""
    if isinstance(value, dict):
        return {key: strict(one) for key, one in value.items()}
    if isinstance(value, list):
        return [strict(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _type(value: Any) -> str:
    if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
        return "string"
    return "map" if isinstance(value, dict) else "number"


@dataclass
class Artifact:
    """One version of an artifact. ``manifests``: by id, the names and the blobs that they are of."""

    id: str
    run: Run
    type: str
    collection: str
    digest: str
    version: int
    aliases: list[str]
    metadata: str | None = None
    description: str | None = None
    state: str = "PENDING"
    created: str = field(default_factory=now)
    manifest: Blob | None = None

    @property
    def entries(self) -> dict[str, dict[str, Any]]:
        return json.loads(self.manifest.content)["contents"] if self.manifest else {}


class Store:
    """All of it. Ids are made here, and blobs lie under their paths."""

    def __init__(self) -> None:
        self.runs: dict[tuple[str, str, str], Run] = {}
        self.artifacts: dict[str, Artifact] = {}
        self.blobs: dict[str, Blob] = {}
        self.clients: dict[str, str] = {}
        self.alerts: list[dict[str, Any]] = []
        self.views: dict[str, dict[str, Any]] = {}
        self.sweeps: set[tuple[str, str, str]] = set()
        """Sweeps without a run as yet."""
        self.lists_files = True
        """Whether files are listed at once: in W&B's cloud that takes a while."""
        self.one_address = False
        """Whether the address of a file is that of its bytes, as some servers of one's own have it; of a reference both
        are always what it stands for."""
        self.late = 0
        """See ``Run``: of new runs, whose summaries then do not say it either."""

    def run(self, entity: str, project: str, name: str) -> Run | None:
        return self.runs.get((entity, project, name))

    def by_storage_id(self, storage_id: str) -> Run | None:
        return next((run for run in self.runs.values() if run.storage_id == storage_id), None)

    def new_run(self, entity: str, project: str, name: str) -> Run:
        run = Run(entity=entity, project=project, name=name, number=len(self.runs) + 1, late=self.late)
        self.runs[entity, project, name] = run
        return run

    def projects(self) -> set[tuple[str, str]]:
        return {(entity, project) for entity, project, _ in self.runs}

    def new_artifact(self, run: Run, kind: str, collection: str, digest: str, aliases: list[str]) -> Artifact:
        earlier = self.versions(run.entity, run.project, collection)
        for artifact in earlier:
            if artifact.digest == digest:
                return artifact
            artifact.aliases = [alias for alias in artifact.aliases if alias not in aliases]
        number = len(self.artifacts) + 1
        made = Artifact(
            id=base64.b64encode(f"Artifact:{number}".encode()).decode(),
            run=run,
            type=kind,
            collection=collection,
            digest=digest,
            version=len(earlier),
            aliases=list(aliases),
        )
        self.artifacts[made.id] = made
        return made

    def versions(self, entity: str, project: str, collection: str) -> list[Artifact]:
        return [
            one
            for one in self.artifacts.values()
            if (one.run.entity, one.run.project, one.collection) == (entity, project, collection)
        ]

    def logged(self, run: Run) -> list[Artifact]:
        return [one for one in self.artifacts.values() if one.run is run and one.state == "COMMITTED"]

    def put(self, path: str, content: bytes) -> None:
        """Keep bytes that were uploaded; those below ``run/`` are files of a run, ``manifest/`` an artifact's list."""
        kind, _, rest = path.partition("/")
        blob = Blob(content)
        if kind == "run":
            entity, project, name, file = rest.split("/", 3)
            self.runs[entity, project, name].files[file] = blob
        elif kind == "manifest":
            self.artifacts[rest].manifest = blob
        else:
            self.blobs[path] = blob

    def get(self, path: str) -> Blob | None:
        kind, _, rest = path.partition("/")
        if kind == "run":
            entity, project, name, file = rest.split("/", 3)
            run = self.run(entity, project, name)
            return run.files.get(file) if run else None
        if kind == "manifest":
            found = self.artifacts.get(rest)
            return found.manifest if found else None
        return self.blobs.get(path)


def matches(run: Run, condition: dict[str, Any]) -> bool:
    """Whether a run fits a filter in W&B's (MongoDB's) language, as much of it as the tests use."""
    for key, wanted in condition.items():
        if key in ("$and", "$or"):
            if not (all if key == "$and" else any)(matches(run, one) for one in wanted):
                return False
        elif not _fits(_value_of(run, key), wanted):
            return False
    return True


def _value_of(run: Run, key: str) -> Any:
    section, _, rest = key.partition(".")
    if section == "summary_metrics":
        return run.summary.get(rest)
    if section == "config":
        entry = run.config.get(rest.removesuffix(".value"), {})
        return entry.get("value") if isinstance(entry, dict) else entry
    return {
        "tags": run.tags,
        "state": run.state,
        "name": run.name,
        "display_name": run.display_name,
        "sweep": run.sweep,
    }[key]


def _fits(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, dict):
        return wanted in value if isinstance(value, list) else value == wanted
    values = value if isinstance(value, list) else [value]
    tests = {
        "$in": lambda given: any(one in given for one in values),
        "$nin": lambda given: not any(one in given for one in values),
        "$ne": lambda given: given not in values,
        "$eq": lambda given: given in values,
        "$exists": lambda given: (value is not None) is given,
        "$gte": lambda given: value is not None and value >= given,
        "$regex": lambda given: any(isinstance(one, str) and re.search(given, one) for one in values),
    }
    return all(tests[operator](given) for operator, given in wanted.items())
