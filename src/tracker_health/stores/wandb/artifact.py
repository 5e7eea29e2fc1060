"""Versions of W&B's artifacts, as models: the run that logged one, its files, and its health in its metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from tracker_health.errors import RunError, RunNotFound, StoreRefused, WriteError
from tracker_health.evidence import Request
from tracker_health.readers.files.random_access import LocalFile, RandomAccess
from tracker_health.roles import OWN_PREFIXES
from tracker_health.run_files.tree import FileEvidence, RunFile
from tracker_health.stores.found import Undescribed
from tracker_health.stores.wandb.address import Address
from tracker_health.stores.wandb.connection import Connection, connect
from tracker_health.stores.wandb.online import OnlineRun, open_online_run
from tracker_health.stores.wandb.online_files import FilesOfArtifact
from tracker_health.text import decoded_once, printable

_NAME = r"[^/\\#?%:\x00-\x1f]{1,128}"
_SHORT = re.compile(rf"wandb:(?:/{{0,2}}({_NAME})/)?({_NAME})/({_NAME}):({_NAME})", re.IGNORECASE)
_PAGE = re.compile(
    r"((?i:https?)://[^/?#\s@]+)/([^/?#\s]+)/([^/?#\s]+)/artifacts/[^/?#\s]+/([^/?#\s]+)/([^/?#\s]+)(?:[/?#]\S*)?"
)
_NOT_THERE = ("not found", "artifact membership")
_HINT = "check entity, project, name and version, as in wandb:ENTITY/PROJECT/ARTIFACT:v3"
_EDIT_HINT = "you may read this artifact and not change it: ask for a seat that may write, or give --no-tags"
_TAGS = "health"
_UPDATE = """
mutation UpdateArtifact($id: ID!, $metadata: JSONString) {
  updateArtifact(input: {artifactID: $id, metadata: $metadata}) { artifact { id metadata } }
}
"""


class ArtifactName(NamedTuple):
    """What names a version of an artifact. ``entity``: empty for the user's own. ``version``: or an alias. ``server``:
    what its page's address begins with, or empty.
    """

    entity: str
    project: str
    name: str
    version: str
    server: str = ""

    @property
    def shown(self) -> str:
        """As it is printed."""
        entity = f"{self.entity}/" if self.entity else ""
        return f"wandb:{entity}{self.project}/{self.name}:{self.version}"


def artifact_name_of(text: str) -> ArtifactName | None:
    """The version of an artifact that a text names; None where it names none."""
    if short := _SHORT.fullmatch(text):
        return ArtifactName(short.group(1) or "", *short.groups()[1:])
    if page := _PAGE.fullmatch(text):
        server, *names = page.groups()
        decoded = [decoded_once(one) or "" for one in names]
        if all(re.fullmatch(_NAME, one) for one in decoded):
            entity, project, name, version = decoded
            return ArtifactName(entity, project, name, version, server)
    return None


def open_artifact(named: ArtifactName) -> ArtifactModel:
    """The version, found.

    Raises:
        RunNotFound: there is none.
        RunError: the server cannot be reached or refuses.
        MissingExtra: wandb is not installed.
    """
    connection = connect(named.server)
    entity = named.entity or connection.own_entity()
    path = f"{entity}/{named.project}/{named.name}:{named.version}"
    try:
        artifact = connection.asked(f"W&B artifact {printable(path)}", connection.api.artifact, path)
    except RunError as error:
        if any(words in error.message for words in _NOT_THERE):
            raise RunNotFound(f"there is no W&B artifact {printable(path)}", _HINT) from None
        raise
    return ArtifactModel(connection, artifact)


class ArtifactModel(Undescribed):
    """A version of an artifact, as it was when opened."""

    def __init__(self, connection: Connection, artifact: Any) -> None:
        self._connection = connection
        self._artifact = artifact
        self._files: _ArtifactFiles | None = None

    @property
    def name(self) -> str:
        source = self._artifact
        return printable(f"wandb:{source.source_entity}/{source.source_project}/{source.source_name}", 400)

    @property
    def url(self) -> str:
        source = self._artifact
        name, _, version = source.source_name.rpartition(":")
        named = [source.source_entity, source.source_project, "artifacts", source.type, name, version]
        return f"{self._connection.app}/{'/'.join(quote(str(one), safe='') for one in named)}"

    @property
    def state(self) -> str:
        return json.dumps([self.name, self._artifact.state, self._artifact.digest])

    @property
    def tags(self) -> Mapping[str, str]:
        """What its metadata says of its health."""
        ours = self._artifact.metadata.get(_TAGS)
        return {f"health.{key}": str(value) for key, value in ours.items()} if isinstance(ours, dict) else {}

    def run(self) -> OnlineRun:
        """The run that logged it, opened.

        Raises:
            RunNotFound: it was logged by none, or that is gone.
            RunError: it cannot be reached.
        """
        doing = f"the run that logged {self.name}"
        try:
            found = self._connection.asked(doing, self._logged_by)
        except RunNotFound:
            found = None
        if found is None:
            message = f"the run that logged {self.name} is gone, or it was logged by none"
            raise RunNotFound(message, "nothing of it is left to be judged: log the model again from a run that is")
        return open_online_run(found)

    def _logged_by(self) -> Address | None:
        run = self._artifact.logged_by()
        return None if run is None else Address(run.entity, run.project, run.id)

    def files(self, request: Request) -> FileEvidence:
        """What its files hold of a checkpoint.

        Raises:
            RunError: they cannot be listed.
        """
        if self._files is None:
            self._files = _ArtifactFiles(self._connection, self._artifact)
        return self._files.evidence(request, logs=False)

    def tag(self, tags: Mapping[str, str]) -> None:
        """Put these into its metadata below ``health``; one with an empty value is taken off, and ``health`` itself
        where nothing is left below it. A metadata can only be sent whole: it is read right before.

        Raises:
            StoreRefused: no permission.
            RunError: the server is unreachable.
        """
        doing = f"{self.name} could not be tagged"
        path = f"{self._artifact.entity}/{self._artifact.project}/{self._artifact.name}"
        fresh = self._connection.asked(doing, self._connection.api.artifact, path)
        there = fresh.metadata.get(_TAGS, {})
        if not isinstance(there, dict):
            raise WriteError(f"{doing}: its metadata has something of someone else's under {_TAGS}", "rename that")
        ours = {**there, **{key.removeprefix(OWN_PREFIXES[1]): value for key, value in tags.items()}}
        ours = {key: value for key, value in ours.items() if value}
        if ours == there:
            return
        metadata = {**fresh.metadata, _TAGS: ours}
        if not ours:
            del metadata[_TAGS]
        variables = {"id": fresh.id, "metadata": json.dumps(metadata)}
        service = self._connection.api._service_api  # noqa: SLF001
        try:
            self._connection.changed(doing, service.execute_graphql, _UPDATE, variables)
        except StoreRefused as error:
            raise StoreRefused(error.message, _EDIT_HINT) from None

    def promote(self, alias: str) -> str:
        """Artifacts are not promoted: W&B's registry has collections and rules of its own for that.

        Raises:
            WriteError: always.
        """
        message = f"{self.name} does not get the alias {printable(alias, 80)}: only MLflow's registered models do"
        raise WriteError(message, "set it in W&B, by the exit code of gate")

    def close(self) -> None:
        """Delete what was downloaded."""
        if self._files is not None:
            self._files.close()


class _ArtifactFiles(FilesOfArtifact):
    """The files of one artifact, fetched whole."""

    def open(self, file: RunFile) -> RandomAccess:
        """The file, fetched whole: weights that are alone are read where all of them are here."""
        return LocalFile(self.local(file))
