"""The fields of W&B's GraphQL schema that its client asks for, over a store. Arguments have their names there."""

# ruff: noqa: A002, A006, B023, N803, PLW0108

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Collection
from typing import Any

from .graphql import Node, Refused, connection
from .store import Artifact, Blob, Run, Store, matches, parquet_of, strict

Url = Callable[[str], str]


class Schema:
    """What one caller sees: ``base`` is the server's address, ``writes`` says whether the caller may change anything."""

    def __init__(self, store: Store, base: str, *, writes: bool, entity: str, features: frozenset[str]) -> None:
        self._store, self._base, self._writes, self._entity, self._features = store, base, writes, entity, features

    def query(self) -> Node:
        return Node(
            "Query",
            viewer=self._viewer,
            serverInfo=lambda: Node(
                "ServerInfo",
                cliVersionInfo={},
                latestLocalVersionInfo=None,
                features=[Node("ServerFeature", name=name, isEnabled=True) for name in sorted(self._features)],
            ),
            entity=lambda name: _entity(name),
            project=self._project,
            model=self._project,
            artifact=lambda id: self._artifact(self._store.artifacts[id]),
            clientIDMapping=lambda clientID: Node("ClientIDMapping", serverID=self._store.clients.get(clientID)),
        )

    def mutation(self) -> Node:
        changes = {
            "upsertBucket": self._upsert_bucket,
            "deleteRun": self._delete_run,
            "createRunFiles": self._create_run_files,
            "markRunFilesUploaded": lambda input: Node("MarkRunFilesUploadedPayload", success=True),
            "deleteFiles": self._delete_files,
            "createArtifact": self._create_artifact,
            "createArtifactManifest": self._create_manifest,
            "updateArtifactManifest": self._update_manifest,
            "createArtifactFiles": self._create_artifact_files,
            "commitArtifact": self._commit_artifact,
            "updateArtifact": self._update_artifact,
            "upsertView": self._upsert_view,
            "notifyScriptableRunAlert": self._alert,
        }
        return Node("Mutation", **{name: self._permitted(name, change) for name, change in changes.items()})

    def _permitted(self, name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            if not self._writes:
                raise Refused(403, "permission denied", "PERMISSION_ERROR")
            return change(**arguments)

        return call

    # Reading

    def _viewer(self) -> Node:
        teams = connection([_entity(self._entity)])
        return Node(
            "User", id="VXNlcjox", entity=self._entity, username="tester", name="Tester", email="tester@example.com",
            admin=False, flags="{}", teams=teams, deletedAt=None, apiKeys=connection([]),
            accountType="USER", userEntity=None,
        )  # fmt: skip

    def _project(self, name: str = "", entityName: str = "") -> Node | None:
        entity = entityName or self._entity
        if (entity, name) not in self._store.projects():
            return None
        runs = [run for run in self._store.runs.values() if (run.entity, run.project) == (entity, name)]

        def chosen(filters: str = "{}") -> list[Run]:
            return [run for run in runs if matches(run, json.loads(filters))]

        def listed(
            filters: str = "{}", first: int | None = None, after: str | None = None, order: str = "+created_at"
        ) -> Node:
            found = sorted(chosen(filters), key=lambda run: run.number, reverse=order.startswith("-"))
            return connection([self._run(run) for run in found], first, after)

        def one(name: str, **_: Any) -> Node | None:
            run = self._store.run(entity, entity_project, name)
            return self._run(run) if run else None

        entity_project = name
        return Node(
            "Project", id="UHJvamVjdDox", internalId="1", name=name, readOnly=not self._writes,
            entity=_entity(entity), entityName=entity, isBenchmark=False,
            run=one, bucket=one, runs=listed, runCount=lambda filters="{}": len(chosen(filters)),
            sweep=lambda sweepName: self._sweep(entity, entity_project, sweepName),
            artifactCollection=lambda name: self._collection(entity, entity_project, name),
            artifactCollectionMembership=lambda name: self._membership(entity, entity_project, name),
            artifactType=lambda name: None, artifact=lambda name: None,
        )  # fmt: skip

    def _sweep(self, entity: str, project: str, name: str) -> Node | None:
        """A sweep, which has runs or none yet; of one that is not there nothing, without an error."""
        begun = any(
            (run.entity, run.project, run.sweep) == (entity, project, name) for run in self._store.runs.values()
        )
        return Node("Sweep", id=name, name=name) if begun or (entity, project, name) in self._store.sweeps else None

    def _run(self, run: Run) -> Node:
        return Node(
            "Run", id=run.storage_id, projectId="1", name=run.name, displayName=run.display_name or run.name,
            tags=lambda: sorted(run.tags), sweepName=run.sweep, state=run.state, group=run.group, jobType=run.job_type,
            commit=None, readOnly=not self._writes, createdAt=run.created, heartbeatAt=run.heartbeat, description="",
            notes=run.notes, config=lambda: json.dumps(strict(run.config)), systemMetrics="{}",
            summaryMetrics=lambda: json.dumps(self._summary(run)), historyLineCount=len(run.history),
            eventsLineCount=len(run.events), logLineCount=len(run.log), historyKeys=run.history_keys,
            historyTail=lambda: json.dumps(run.history[-1:]), eventsTail=lambda: json.dumps(run.events[-1:]),
            # A resume wants to know when the run began.
            wandbConfig=lambda keys: json.dumps(run.config.get("_wandb", {}).get("value", {"t": {}})),
            user=Node("User", name="Tester", username="tester"), host="here", program="", stopped=False,
            project=Node("Project", id="UHJvamVjdDox", internalId="1", name=run.project, entity=_entity(run.entity)),
            history=lambda **bounds: [json.dumps(row) for row in _page(run, **bounds)],
            events=lambda **_: list(run.events),
            sampledHistory=lambda specs: [_sampled(run, json.loads(spec)) for spec in specs],
            parquetHistory=lambda liveKeys=(): self._parquet(run, liveKeys),
            files=lambda **choice: self._files(run, **choice), fileCount=len(run.files),
            outputArtifacts=lambda first=None, after=None: connection(
                [self._artifact(one) for one in self._store.logged(run)], first, after
            ),
        )  # fmt: skip

    def _summary(self, run: Run) -> dict[str, Any]:
        there = [row["_step"] for row in run.rows()] if self._store.late else []
        return strict({**run.summary, "_step": max(there)} if there else run.summary)

    def _parquet(self, run: Run, keys: Collection[str]) -> Node:
        """As W&B gives old parts of a history: files, in which nested values are structs; or rows, of a live run."""
        if run.nested != "parquet" or not run.history:
            rows = [row for row in run.rows() if {*keys} <= row.keys()]
            return Node("ParquetHistory", parquetUrls=[], liveData=rows)
        path = f"parquet/{run.entity}/{run.project}/{run.name}"
        self._store.blobs[path] = Blob(parquet_of(run.rows()))
        return Node("ParquetHistory", parquetUrls=[self._url(path)], liveData=[])

    def _files(
        self,
        run: Run,
        names: list[str] | None = None,
        first: int | None = None,
        after: str | None = None,
        pattern: str | None = None,
    ) -> Node:
        listed = run.files if self._store.lists_files else ()
        like = re.compile(re.escape(pattern).replace("%", ".*")) if pattern else None
        chosen = sorted(name for name in listed if (not names or name in names) and (not like or like.fullmatch(name)))
        path = f"run/{run.entity}/{run.project}/{run.name}"
        return connection([self._file(name, run.files[name], f"{path}/{name}") for name in chosen], first, after)

    def _file(self, name: str, blob: Blob, path: str, ref: str = "") -> Node:
        direct = ref or self._url(path)
        url = direct if ref or self._store.one_address else f"{self._base}/files/{path}"
        return Node(
            "File", id=base64.b64encode(path.encode()).decode(), name=name, displayName=name,
            url=lambda upload=False: url, directUrl=direct, sizeBytes=len(blob.content), mimetype=None,
            updatedAt=blob.updated, md5=blob.md5, digest=blob.md5, storagePath=path, artifact=None,
        )  # fmt: skip

    def _url(self, path: str) -> str:
        return f"{self._base}/storage/{path}"

    def _artifact(self, artifact: Artifact) -> Node:
        entries = artifact.entries
        name = artifact.run.project
        project = Node("Project", id="p", internalId="1", name=name, entity=_entity(artifact.run.entity))
        sequence = Node(
            "ArtifactSequence", id=f"seq-{artifact.collection}", name=artifact.collection, project=project,
            latestArtifact=None,
        )  # fmt: skip
        aliases = [
            Node("ArtifactAlias", id=f"{artifact.id}-{alias}", alias=alias, artifactCollection=sequence)
            for alias in artifact.aliases
        ]
        listed = self._file("wandb_manifest.json", artifact.manifest or Blob(b""), f"manifest/{artifact.id}")
        return Node(
            "Artifact", id=artifact.id, artifactSequence=sequence, versionIndex=artifact.version,
            artifactType=Node("ArtifactType", name=artifact.type), description=artifact.description,
            metadata=artifact.metadata, ttlDurationSeconds=-2, ttlIsInherited=True, tags=[], historyStep=None,
            state=artifact.state, size=sum(entry.get("size", 0) for entry in entries.values()), digest=artifact.digest,
            digestAlgorithm="MANIFEST_MD5", commitHash="0" * 20, fileCount=len(entries), createdAt=artifact.created,
            updatedAt=artifact.created, aliases=aliases, currentManifest=Node("ArtifactManifest", file=listed),
            createdBy=lambda: self._run(artifact.run) if artifact.run in self._store.runs.values() else None,
        )  # fmt: skip

    def _membership(self, entity: str, project: str, path: str) -> Node | None:
        """A version of an artifact, by ``NAME:VERSION`` or ``NAME:ALIAS``."""
        name, _, alias = path.partition(":")
        collection = self._collection(entity, project, name)
        found = collection.resolve("artifactMembership", {"aliasName": alias}) if collection else None
        if found is not None:
            owner = Node("Project", id="p", internalId="1", name=project, entity=_entity(entity))
            found.fields["artifactCollection"] = Node("ArtifactSequence", id=f"seq-{name}", name=name, project=owner)
            found.fields |= {
                "createdAt": found.fields["artifact"].fields["createdAt"],
                "aliases": found.fields["artifact"].fields["aliases"],
            }
        return found

    def _collection(self, entity: str, project: str, name: str) -> Node | None:
        versions = self._store.versions(entity, project, name)
        if not versions:
            return None

        def membership(aliasName: str) -> Node | None:
            for artifact in versions:
                if aliasName == f"v{artifact.version}" or aliasName in artifact.aliases:
                    return Node(
                        "ArtifactCollectionMembership", id=artifact.id, versionIndex=artifact.version,
                        artifact=self._artifact(artifact), files=lambda **page: self._artifact_files(artifact, **page),
                    )  # fmt: skip
            return None

        return Node("ArtifactSequence", id=f"seq-{name}", name=name, artifactMembership=membership)

    def _artifact_files(
        self, artifact: Artifact, names: list[str] | None = None, first: int | None = None, after: str | None = None
    ) -> Node:
        chosen = {name: entry for name, entry in artifact.entries.items() if not names or name in names}
        nodes = []
        for name, entry in chosen.items():
            ref = entry.get("ref", "")
            path = f"reference/{name}" if ref else _artifact_path(entry["digest"])
            nodes.append(self._file(name, self._store.blobs.get(path, Blob(b"")), path, ref))
        return connection(nodes, first, after)

    # Writing

    def _upsert_bucket(self, input: dict[str, Any]) -> Node:
        if "id" in input:
            run = self._store.by_storage_id(input["id"])
            if run is None:
                raise Refused(404, "run not found during upsertBucket")
            inserted = False
        else:
            where = (input.get("entityName") or self._entity, input.get("modelName", "uncategorized"), input["name"])
            found = self._store.run(*where)
            inserted, run = found is None, found or self._store.new_run(*where)
        # What is not given stays as it is.
        plain = {
            "notes": "notes",
            "displayName": "display_name",
            "tags": "tags",
            "groupName": "group",
            "jobType": "job_type",
            "sweep": "sweep",
            "state": "state",
        }
        for name, attribute in plain.items():
            if name in input:
                setattr(run, attribute, input[name])
        for name, attribute in {"config": "config", "summaryMetrics": "summary"}.items():
            if name in input:
                setattr(run, attribute, json.loads(input[name]))
        return Node("UpsertBucketPayload", bucket=self._run(run), inserted=inserted)

    def _delete_run(self, input: dict[str, Any]) -> Node:
        run = self._store.by_storage_id(input["id"])
        if run is None:
            raise Refused(404, "run not found")
        del self._store.runs[run.entity, run.project, run.name]
        return Node("DeleteRunPayload", clientMutationId=None)

    def _alert(self, input: dict[str, Any]) -> Node:
        run = self._store.run(input["entityName"], input["projectName"], input["runName"])
        if run is None:
            raise Refused(404, "run not found")
        if len(input["title"]) > 63 or input["severity"] not in ("INFO", "WARN", "ERROR"):
            raise Refused(400, "title or severity of an alert")
        self._store.alerts.append(input)
        return Node("NotifyScriptableRunAlertPayload", success=True)

    def _upsert_view(self, input: dict[str, Any]) -> Node:
        if (input["entityName"], input["projectName"]) not in self._store.projects():
            raise Refused(404, "project not found")
        inserted = "id" not in input
        key = base64.b64encode(f"View:{len(self._store.views) + 1}".encode()).decode() if inserted else input["id"]
        self._store.views[key] = {**input, "spec": json.loads(input["spec"])}
        return Node("UpsertViewPayload", view=Node("View", id=key, name=input["name"]), inserted=inserted)

    def _create_run_files(self, input: dict[str, Any]) -> Node:
        where = (input["entityName"], input["projectName"], input["runName"])
        run = self._store.run(*where)
        if run is None:
            raise Refused(404, "run not found")
        path = "/".join(where)
        files = [Node("File", name=name, uploadUrl=self._url(f"run/{path}/{name}")) for name in input["files"]]
        return Node("CreateRunFilesPayload", runID=run.storage_id, uploadHeaders=[], files=files)

    def _delete_files(self, input: dict[str, Any]) -> Node:
        for file in input["files"]:
            _, entity, project, name, path = base64.b64decode(file).decode().split("/", 4)
            self._store.runs[entity, project, name].files.pop(path, None)
        return Node("DeleteFilesPayload", success=True)

    def _create_artifact(self, input: dict[str, Any]) -> Node:
        run = self._store.run(input["entityName"], input["projectName"], input["runName"])
        if run is None:
            raise Refused(404, "run not found")
        (collection,) = input.get("artifactCollectionNames") or [input["artifactCollectionName"]]
        aliases = [one["alias"] for one in input.get("aliases", [])]
        made = self._store.new_artifact(run, input["artifactTypeName"], collection, input["digest"], aliases)
        made.metadata, made.description = input.get("metadata"), input.get("description")
        if input.get("clientID"):
            self._store.clients[input["clientID"]] = made.id
        return Node("CreateArtifactPayload", artifact=self._artifact(made))

    def _create_manifest(self, input: dict[str, Any]) -> Node:
        return self._manifest(input["artifactID"], "CreateArtifactManifestPayload")

    def _update_manifest(self, input: dict[str, Any]) -> Node:
        return self._manifest(input["artifactManifestID"], "UpdateArtifactManifestPayload")

    def _manifest(self, artifact_id: str, payload: str) -> Node:
        file = Node(
            "File", id=f"file-{artifact_id}", name="wandb_manifest.json", displayName="wandb_manifest.json",
            uploadUrl=self._url(f"manifest/{artifact_id}"), uploadHeaders=[],
        )  # fmt: skip
        return Node(payload, artifactManifest=Node("ArtifactManifest", id=artifact_id, file=file))

    def _create_artifact_files(self, input: dict[str, Any]) -> Node:
        nodes = []
        for spec in input["artifactFiles"]:
            path = _artifact_path(spec["md5"])
            url = None if path in self._store.blobs else self._url(path)
            node = Node(
                "File", id=path, name=spec["name"], displayName=spec["name"], storagePath=path, uploadUrl=url,
                uploadHeaders=[], uploadMultipartUrls=None, artifact=Node("Artifact", id=spec["artifactID"]),
            )  # fmt: skip
            nodes.append(node)
        return Node("CreateArtifactFilesPayload", files=connection(nodes))

    def _update_artifact(self, input: dict[str, Any]) -> Node:
        # What is not given stays as it is.
        artifact = self._store.artifacts[input["artifactID"]]
        artifact.metadata = input.get("metadata", artifact.metadata)
        artifact.description = input.get("description", artifact.description)
        return Node("UpdateArtifactPayload", artifact=self._artifact(artifact))

    def _commit_artifact(self, input: dict[str, Any]) -> Node:
        artifact = self._store.artifacts[input["artifactID"]]
        artifact.state = "COMMITTED"
        return Node("CommitArtifactPayload", artifact=self._artifact(artifact))


def _entity(name: str) -> Node:
    return Node("Entity", id=f"entity-{name}", name=name, organization=None, xxhashDigestsEnabled=False, user=None)


def _artifact_path(md5: str) -> str:
    return f"artifact/{base64.b64decode(md5).hex()}"


def _page(
    run: Run, minStep: int = 0, maxStep: int = 2**62, samples: int = 500
) -> list[dict[str, Any]]:  # fmt: skip
    """Rows of a range of steps; where there are more than asked for, some of them, spread over all."""
    rows = run.rows(minStep, maxStep)
    return rows[:: -(-len(rows) // samples)] if len(rows) > samples else rows


def _sampled(run: Run, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """As ``_page``, of the rows that have all of some keys, and nothing but these; the last step is in the range."""
    rows = [
        row for row in run.rows(spec.get("minStep", 0), spec.get("maxStep", 2**62) + 1) if {*spec["keys"]} <= row.keys()
    ]
    step = -(-len(rows) // spec["samples"]) if len(rows) > spec["samples"] else 1
    return [{key: row[key] for key in spec["keys"]} for row in rows[::step]]
