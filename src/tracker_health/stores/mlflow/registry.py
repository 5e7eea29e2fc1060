"""Models in MLflow: versions in the registry, and models that a run logged; their run, their files, their tags."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from tracker_health.errors import RunNotFound, StoreRefused, StoreUnavailable, WriteError
from tracker_health.evidence import Request
from tracker_health.roles import OWN_PREFIXES
from tracker_health.run_files.tree import FileEvidence
from tracker_health.stores.found import Undescribed
from tracker_health.stores.mlflow.connection import connect
from tracker_health.stores.mlflow.failures import shown, translated
from tracker_health.stores.mlflow.run import MlflowRun, open_mlflow_run
from tracker_health.stores.mlflow.stored_files.artifacts import ModelFiles
from tracker_health.stores.remote import hosts
from tracker_health.stores.remote.paging import Paging
from tracker_health.text import decoded_once, printable, without_userinfo

if TYPE_CHECKING:
    from mlflow import MlflowClient

# Only what stands where: ``_checked`` says which names are none. Nothing of these is decoded, as MLflow does not.
_VERSION = re.compile(r"models:/{1,3}([^/]*)/([0-9]{1,12})/?")
_ALIAS = re.compile(r"models:/{1,3}([^/]*)@([\w-]{1,255})/?")
_ALL = re.compile(r"models:/{1,3}([^/]+)")
_LOGGED = re.compile(r"models:/{1,3}(m-[A-Za-z0-9]{1,64})/?")
# In the address of a page, the name is percent-encoded once.
_PAGE = re.compile(r"((?i:https?)://[^#?\s]+?)/(?:\?[^#\s]*)?#/models/([^/?#\s]+)/versions/([0-9]{1,12})(?:[/?].*)?")
_LOGGED_PAGE = re.compile(
    r"((?i:https?)://[^#?\s]+?)/(?:\?[^#\s]*)?#/experiments/[^/?#\s]+/models/(m-[A-Za-z0-9]{1,64})(?:[/?].*)?"
)
_OF_A_RUN = re.compile(r"runs:/([A-Za-z0-9_-]{1,250})/?(.*)", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,12}")
MOST_OF_A_NAME = 256
"""Characters: as many as MLflow's database has room for."""
_ABSENT = frozenset({"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"})
_READY = "READY"
_PAGE_SIZE = 200
_PROMPT_TAG = "mlflow.prompt.is_prompt"
_HINT = "give models:/NAME/VERSION, models:/NAME@ALIAS, models:/m-..., or the address of the version's page"
_PROMOTE_HINT = "you may read this model and not change it: ask for EDIT permission on it"
_EDIT_HINT = "you may read this model and not change it: ask for EDIT permission on it, or give --no-tags"


class ModelName(NamedTuple):
    """What names a model: parsed once, and then this is what is judged, tagged and printed.

    Either ``logged`` is the id of a logged model, or ``name`` is that of a registered one, letter by letter, with its
    version or an alias. ``server``: what its page's address begins with, or empty.
    """

    name: str = ""
    version: str = ""
    alias: str = ""
    logged: str = ""
    server: str = ""

    @property
    def shown(self) -> str:
        """As it is printed: what ``model_name_of`` makes this of again."""
        alias = f"@{self.alias}" if self.alias else ""
        return f"models:/{self.logged or self.name}{alias}{f'/{self.version}' if self.version else ''}"


def version_named(name: str, version: str) -> ModelName:
    """The version of a registered model, from its name and number as a registry has them: nothing is decoded.

    Raises:
        RunNotFound: these can be no registered model's; the message says why.
    """
    if not _NUMBER.fullmatch(version):
        raise RunNotFound(f"{printable(version, 80)!r} is no version of a registered model", _HINT)
    return ModelName(name=_checked(name), version=str(int(version)))


def model_name_of(text: str) -> ModelName | None:
    """The model that a text names; None where it is not meant for one.

    Raises:
        RunNotFound: it is, and names none.
    """
    if found := _LOGGED.fullmatch(text):
        return ModelName(logged=found.group(1))
    if found := _VERSION.fullmatch(text):
        return version_named(found.group(1), found.group(2))
    if found := _ALIAS.fullmatch(text):
        return ModelName(name=_checked(found.group(1)), alias=found.group(2))
    if found := _PAGE.fullmatch(text):
        return version_named(_decoded(found.group(2)), found.group(3))._replace(server=found.group(1))
    if found := _LOGGED_PAGE.fullmatch(text):
        return ModelName(logged=found.group(2), server=found.group(1))
    if text.startswith("models:"):
        raise RunNotFound(f"{printable(without_userinfo(text))} names no version of a model", _HINT)
    return None


def versions_of(text: str, tracking_uri: str | None = None) -> Iterator[str] | None:
    """The versions of the registered model that a text names, each as ``models:/NAME/VERSION``, the newest first; None
    where it names no model, or one version. With a slash at its end it names none: a number may be missing there.

    Raises:
        RunNotFound: no version is there.
        RunError: the registry cannot be reached.
    """
    named = _ALL.fullmatch(text)
    if named is None or _ALIAS.fullmatch(text) or _LOGGED.fullmatch(text):
        return None
    name = _checked(named.group(1))
    found = newest_versions((name,), tracking_uri)
    first = next(found, None)
    if first is None:
        raise RunNotFound(f"there is no version of model {printable(name, 80)}", _HINT)
    return (one.name for one in chain([first], found))


def _decoded(name: str) -> str:
    decoded = decoded_once(name)
    if decoded is None:
        raise RunNotFound(f"{printable(name, 80)} in the address of a page is not percent-encoded UTF-8", _HINT)
    return decoded


def _checked(name: str) -> str:
    """The name, unless no registered model can have it, or two names would look alike.

    Raises:
        RunNotFound: so it is; the message says why.
    """
    if reason := _why_no_name(name):
        raise RunNotFound(f"{printable(name, 80)!r} cannot be the name of a registered model: {reason}", _HINT)
    return name


def _why_no_name(name: str) -> str:
    if not name.strip():
        return "it is empty"
    if len(name) > MOST_OF_A_NAME:
        return f"it is longer than {MOST_OF_A_NAME} characters"
    if bad := [one for one in "/:" if one in name]:
        return f"it has {bad[0]!r} in it"
    if name in (".", ".."):
        return "MLflow takes it for a path"
    hidden = next((one for one, shown in zip(name, printable(name, len(name)), strict=True) if one != shown), "")
    return f"the character U+{ord(hidden):04X} in it cannot be seen" if hidden else ""


def open_mlflow_model(model: ModelName, tracking_uri: str | None = None) -> MlflowModel:
    """The version of a model, or the logged model, found.

    Raises:
        RunNotFound: there is none.
        RunError: the registry cannot be reached or refuses.
        MissingExtra: mlflow is not installed.
    """
    if model.server:
        hosts.trust(tracking_uri or "")
    client, uri = connect(model.server or tracking_uri, pasted=bool(model.server))
    if model.logged:
        with _of_a_model(f"logged model {model.logged}", uri):
            return LoggedModel(client, uri, client.get_logged_model(model.logged), server=model.server)
    shown_name = printable(model.name, 80)
    if model.alias:
        with _of_a_model(f"model {shown_name}@{printable(model.alias, 80)}", uri):
            record = client.get_model_version_by_alias(model.name, model.alias)
    else:
        with _of_a_model(f"version {model.version} of model {shown_name}", uri):
            record = client.get_model_version(model.name, model.version)
    _require_same(model, record, uri)
    return ModelVersion(client, uri, record, server=model.server)


def _require_same(model: ModelName, record: Any, uri: str) -> None:
    """Raises where the registry gives another version than was named: some databases do not tell capitals apart."""
    if record.name != model.name or model.version not in ("", str(record.version)):
        other = printable(f"models:/{record.name}/{record.version}", MOST_OF_A_NAME)
        message = f"{model.shown} was asked for, and the registry ({shown(uri)}) answered with {other}"
        raise RunNotFound(message, "name the model exactly as the registry does")


def newest_versions(
    names: tuple[str, ...] = (), tracking_uri: str | None = None, since: float = 0.0
) -> Iterator[ModelVersion]:
    """The versions of these models (without names: of all), the newest first, that were registered at ``since`` (in
    seconds since 1970) or later.

    Raises:
        RunError: the registry cannot be reached.
    """
    client, uri = connect(tracking_uri)
    for name in names or ("",):
        # MLflow's language has no way to write a quotation mark within a name.
        if "'" in name:
            raise RunNotFound(
                f"{printable(name)} is no name of a model that can be searched for",
                "name its versions instead: models:/NAME/1",
            )
        token, paging, seen = None, Paging(f"model-versions/search ({shown(uri)})"), set[tuple[str, str]]()
        while True:
            with _of_a_model("the versions of models", uri):
                found = client.search_model_versions(
                    f"name = '{name}'" if name else None,
                    max_results=_PAGE_SIZE,
                    order_by=["creation_timestamp DESC"],
                    page_token=token,
                )
            known = len(seen)
            for record in found:
                if (key := (record.name, str(record.version))) in seen:
                    continue
                seen.add(key)
                if (record.creation_timestamp or 0) < since * 1000:
                    break
                if name and record.name != name:
                    continue
                if record.tags.get(_PROMPT_TAG) != "true":
                    yield ModelVersion(client, uri, record)
            else:
                if token := found.token:
                    paging.turn(token, is_new=len(seen) > known)
                    continue
            break


@contextmanager
def _of_a_model(what: str, uri: str) -> Iterator[None]:
    """The errors of MLflow, about a model."""
    try:
        with translated(what, uri, absent=_ABSENT):
            yield
    except RunNotFound:
        raise RunNotFound(f"{what} ({shown(uri)}): there is no such model", _HINT) from None


class MlflowModel(Undescribed):
    """What versions in the registry and logged models have in common."""

    def __init__(self, client: MlflowClient, uri: str, record: Any, *, server: str = "") -> None:
        self._client = client
        self._uri = uri
        self._record = record
        self._server = server
        self._files: ModelFiles | None = None

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def url(self) -> str:
        base = shown(self._uri).rstrip("/") if self._uri.startswith(("http://", "https://")) else ""
        return f"{base}/#/{self._page}" if base else ""

    @property
    def _page(self) -> str:
        raise NotImplementedError

    @property
    def tags(self) -> Mapping[str, str]:
        return dict(self._record.tags or {})

    @property
    def state(self) -> str:
        theirs = {key: value for key, value in self.tags.items() if not key.startswith(OWN_PREFIXES)}
        return json.dumps([self.name, self._status, self._run_id, sorted(theirs.items())])

    @property
    def _status(self) -> str:
        return str(self._record.status)

    @property
    def _run_id(self) -> str:
        raise NotImplementedError

    def _location(self) -> str:
        raise NotImplementedError

    def run(self) -> MlflowRun:
        """The run that made it, opened.

        Raises:
            RunNotFound: the registry names none, or it is gone.
            RunError: it cannot be reached.
        """
        if not self._run_id:
            raise RunNotFound(f"{self.name} names no run that made it", "register a model that a run has logged")
        try:
            return open_mlflow_run(self._run_id, self._server or self._uri, pasted=bool(self._server))
        except RunNotFound:
            message = f"the run that made {self.name} is gone: {printable(self._run_id, 80)}"
            raise RunNotFound(message, "nothing of it is left to be judged: register a model of another") from None

    def files(self, request: Request) -> FileEvidence:
        """What the registered files hold of a checkpoint.

        Raises:
            RunError: the registry does not say where they are, or that they are complete.
        """
        if self._status.rpartition(".")[2] != _READY:
            raise StoreUnavailable(f"{self.name} is not ready: {printable(self._status, 80)}", "ask again when it is")
        if self._files is None:
            with _of_a_model(f"where the files of {self.name} are", self._uri):
                self._files = ModelFiles(self._client, self._placed(self._location()), self._uri)
        return self._files.evidence(request, logs=False)

    def _placed(self, location: str) -> str:
        """Where the artifacts are that a location of ``runs:/`` or ``models:/`` stands for."""
        if found := _OF_A_RUN.fullmatch(location):
            root = self._client.get_run(found.group(1)).info.artifact_uri
            return f"{root.rstrip('/')}/{found.group(2)}" if found.group(2) else str(root)
        if found := _LOGGED.fullmatch(location):
            return str(self._client.get_logged_model(found.group(1)).artifact_location)
        return location

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set these tags; one with an empty value is taken off.

        Raises:
            StoreRefused: no permission.
            RunError: the registry is unreachable.
        """
        there = self.tags
        try:
            with translated(f"{self.name} could not be tagged", self._uri, otherwise=WriteError):
                for key, value in tags.items():
                    if value and there.get(key) != value:
                        self._set_tag(key, value)
                    elif not value and key in there:
                        self._delete_tag(key)
        except StoreRefused as error:
            raise StoreRefused(error.message, _EDIT_HINT) from None

    def promote(self, alias: str) -> str:
        """A model that a run logged has no aliases.

        Raises:
            WriteError: always.
        """
        message = f"{self.name} does not get the alias {printable(alias, 80)}: it is no version of a registered model"
        raise WriteError(message, "register it, and name the version: models:/NAME/VERSION")

    def _set_tag(self, key: str, value: str) -> None:
        raise NotImplementedError

    def _delete_tag(self, key: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Delete what was downloaded."""
        if self._files is not None:
            self._files.close()


class ModelVersion(MlflowModel):
    """A version of a registered model."""

    @property
    def name(self) -> str:
        return f"models:/{printable(self._record.name, MOST_OF_A_NAME)}/{self._record.version}"

    @property
    def _page(self) -> str:
        return f"models/{quote(self._record.name, safe='')}/versions/{self._record.version}"

    @property
    def _run_id(self) -> str:
        return str(self._record.run_id or "")

    def _location(self) -> str:
        place = self._client.get_model_version_download_uri(self._record.name, self._record.version)
        return str(place or self._record.source or "")

    @property
    def description(self) -> str | None:
        return str(self._record.description or "")

    def describe(self, change: Callable[[str], str]) -> None:
        name, version = self._record.name, self._record.version
        try:
            with translated(f"{self.name} could not be described", self._uri, otherwise=WriteError):
                text = str(self._client.get_model_version(name, version).description or "")
                changed = change(text)
                if changed != text:
                    self._client.update_model_version(name, version, changed)
        except StoreRefused as error:
            raise StoreRefused(error.message, _EDIT_HINT) from None

    def promote(self, alias: str) -> str:
        name, version = self._record.name, str(self._record.version)
        try:
            doing = f"{self.name} could not be given the alias {printable(alias, 80)}"
            with translated(doing, self._uri, otherwise=WriteError):
                before = self._client.get_registered_model(name).aliases.get(alias)
                if str(before) != version:
                    self._client.set_registered_model_alias(name, alias, version)
        except StoreRefused as error:
            raise StoreRefused(error.message, _PROMOTE_HINT) from None
        return f"models:/{printable(name, MOST_OF_A_NAME)}/{before}" if before else ""

    def _set_tag(self, key: str, value: str) -> None:
        self._client.set_model_version_tag(self._record.name, self._record.version, key, value)

    def _delete_tag(self, key: str) -> None:
        self._client.delete_model_version_tag(self._record.name, self._record.version, key)


class LoggedModel(MlflowModel):
    """A model that a run logged, by its own id."""

    @property
    def name(self) -> str:
        return f"models:/{self._record.model_id}"

    @property
    def _page(self) -> str:
        return f"experiments/{self._record.experiment_id}/models/{self._record.model_id}"

    @property
    def _run_id(self) -> str:
        return str(self._record.source_run_id or "")

    def _location(self) -> str:
        return str(self._record.artifact_location)

    def _set_tag(self, key: str, value: str) -> None:
        self._client.set_logged_model_tags(self._record.model_id, {key: value})

    def _delete_tag(self, key: str) -> None:
        self._client.delete_logged_model_tag(self._record.model_id, key)
