"""The way to a W&B server: found or refused in seconds, through the SDK's ``wandb.Api``, never by asking for a key."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from tracker_health.errors import (
    ReadError,
    RunError,
    RunNotFound,
    StoreRefused,
    StoreUnavailable,
    WriteError,
    optional_packages,
    refuse_outdated,
)
from tracker_health.stores.common.temporary import TemporaryFolder
from tracker_health.stores.remote import hosts
from tracker_health.stores.remote.deadline import BYTES_A_SECOND, REQUEST_SECONDS, is_silent, within
from tracker_health.stores.remote.paging import Paging
from tracker_health.stores.wandb.address import CLOUD_API, Address
from tracker_health.stores.wandb.core import bound_requests, writing
from tracker_health.stores.wandb.failures import KEY_HINT, graphql_of, translated
from tracker_health.stores.wandb.media import ENTRIES, OWN_PLACES
from tracker_health.stores.wandb.server import pause_wanted, reach
from tracker_health.text import printable, without_userinfo

PATIENCE_SECONDS = 30
"""For one question, the retries of the SDK's core process included: it continues after 429 and 5xx, as long as the
server asks it to."""

_RETRIES = 3
"""Of core, waiting 2 seconds and twice as long each time, or as long as it is asked to: within our patience, so that it
still says what the last answer was."""

# What the input does not name stays as it is. The answer has what the run has by then.
_CHANGE = """
mutation UpsertBucket(%(variables)s) {
  upsertBucket(input: {%(fields)s}) { bucket { id tags summaryMetrics } }
}
"""
# As the SDK's own ``run.alert`` asks for it.
_ALERT = """
mutation NotifyScriptableRunAlert($entityName: String!, $projectName: String!, $runName: String!, $title: String!,
                                  $text: String!, $severity: AlertSeverity, $waitDuration: Duration) {
  notifyScriptableRunAlert(input: {entityName: $entityName, projectName: $projectName, runName: $runName, title: $title,
                                   text: $text, severity: $severity, waitDuration: $waitDuration}) { success }
}
"""
_ALERT_AGAIN = 60_000
"""Milliseconds before the server takes another alert of the same title: what the SDK gives by default."""
_KINDS = {"id": "String!", "tags": "[String!]", "summaryMetrics": "JSONString"}
_NEW_FILES = """
mutation CreateRunFiles($entity: String!, $project: String!, $run: String!, $files: [String!]!) {
  createRunFiles(input: {entityName: $entity, projectName: $project, runName: $run, files: $files}) {
    uploadHeaders
    files { name uploadUrl }
  }
}
"""
# Whether there is any: most runs have none, and a list of them takes two more requests.
_ANY_ARTIFACT = "outputArtifacts(first: 1) { edges { node { id } } }"
_FILE = "id name url directUrl sizeBytes mimetype updatedAt md5"
_FILES = f"{{ edges {{ node {{ {_FILE} }} }} pageInfo {{ hasNextPage }} }}"
_FIRST_FILES = 100
_MOST_ENTRIES = 200
# Next to the files of the run those that may be ours, which may be behind very many of its owner's.
_OWN_FILES = f"ours: files(first: %d, names: %s) {_FILES} entries: files(first: {_MOST_ENTRIES}, pattern: %s) {_FILES}"
# Clouds that several domains lead to: whichever the page's address has, the configured one will do.
_ONE_CLOUD = ("wandb.ai", "forge.coreweave.com")

_kept = threading.local()


class Connection:
    """One ``wandb.Api``, for one thread; each of its calls is given up after a time."""

    def __init__(self, server: str, app: str, api: Any, credentials: Mapping[str, str]) -> None:
        self.server = server
        """The address under which the SDK reaches it."""
        self.app = app
        """The address of its pages."""
        self.api = api
        self.credentials = credentials

    def asked(
        self,
        doing: str,
        call: Callable[..., Any],
        *arguments: Any,
        size: int = 0,
        otherwise: type[RunError] = StoreUnavailable,
        **options: Any,
    ) -> Any:
        """What a call of the SDK's gives; ``size``: bytes that it transfers. ``doing``: what fails if it does.
        ``otherwise``: see ``translated``.

        Raises:
            RunError: it fails, or takes too long.
        """
        return self._bounded(doing, otherwise, size, partial(call, *arguments, **options))

    def changed(self, doing: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """The same for a call that changes something.

        Raises:
            RunError: it fails, or takes too long: a ``WriteError`` for all that is no refusal.
        """
        return self._bounded(doing, WriteError, 0, call, *arguments)

    def run(self, address: Address, *, own_files: bool = False) -> Any:
        """The run of the SDK's, as it is now. With the files that may be ours, for ``own_files_of``, and but for
        ``own_files`` with the first of all, for ``files_of``.

        Raises:
            RunNotFound: there is none.
        """
        entity = address.entity or self.own_entity()
        shown = printable(f"{entity}/{address.project}/{address.run}")
        return self.asked(f"W&B run {shown}", self._fresh, entity, address.project, address.run, own_files)

    def about_project(self, doing: str, operation: str, wanted: str, **names: str) -> dict[str, Any]:
        """What the server says of a project: ``wanted`` is what GraphQL selects in it. Empty where there is none.
        ``operation``: the name of one of the SDK's. ``names``: of ``entity``, ``project``, and what ``wanted`` needs.

        Raises:
            RunError: it cannot be asked.
        """
        variables = ", ".join(f"${name}: String!" for name in names)
        query = f"query {operation}({variables}) {{ project(name: $project, entityName: $entity) {{ {wanted} }} }}"
        answer = self.asked(doing, self.api._service_api.execute_graphql, query, names)  # noqa: SLF001
        found: dict[str, Any] = (answer or {}).get("project") or {}
        return found

    # Changes

    def change(self, run: Any, *, summary: Mapping[str, Any] | None = None, tags: Iterable[str] | None = None) -> None:
        """Give the run this summary, and these tags, in the place of those that it has, in one request. What is not
        given stays as it is. ``run`` then has what the server has.
        """
        # Not the SDK's own update(): that sends config, notes and names as well, as they were when the run was read.
        values: dict[str, Any] = {"id": run.storage_id}
        if summary is not None:
            values["summaryMetrics"] = json.dumps(summary)
        if tags is not None:
            values["tags"] = list(tags)
        variables = ", ".join(f"${name}: {_KINDS[name]}" for name in values)
        fields = ", ".join(f"{name}: ${name}" for name in values)
        query = _CHANGE % {"variables": variables, "fields": fields}
        answer = self._bounded(_writing(run), WriteError, 0, run._exec, query, **values)  # noqa: SLF001
        bucket = ((answer or {}).get("upsertBucket") or {}).get("bucket") or {}
        if isinstance(bucket.get("tags"), list):
            run._attrs["tags"] = bucket["tags"]  # noqa: SLF001
        if isinstance(bucket.get("summaryMetrics"), str):
            run._attrs["summaryMetrics"] = json.loads(bucket["summaryMetrics"])  # noqa: SLF001

    def alert(self, run: Any, title: str, text: str, level: str) -> None:
        """Have W&B alert people about the run. ``level``: of ``WANDB_ALERT_LEVELS``."""
        values = {"entityName": run.entity, "projectName": run.project, "runName": run.id}
        values |= {"title": title, "text": text, "severity": level, "waitDuration": _ALERT_AGAIN}
        doing = f"an alert about W&B run {printable(run.id)}"
        answer = self._bounded(doing, WriteError, 0, run._exec, _ALERT, **values)  # noqa: SLF001
        if not ((answer or {}).get("notifyScriptableRunAlert") or {}).get("success"):
            raise WriteError(f"{doing}: the server did not take it", "are alerts of runs switched on in the project?")

    def upload(self, run: Any, files: Mapping[str, bytes]) -> None:
        """Write files of the run, by name: two requests for all, and one for the content of each."""
        size = sum(map(len, files.values()))
        self._bounded(_writing(run), WriteError, size, _upload, run, files)

    def delete(self, run: Any, file: Any) -> None:
        """Delete a file of the run."""
        self._bounded(_writing(run), WriteError, 0, file.delete)

    def _bounded(
        self,
        doing: str,
        otherwise: type[RunError],
        size: int,
        call: Callable[..., Any],
        *arguments: Any,
        **options: Any,
    ) -> Any:
        def asked() -> Any:
            try:
                with translated(doing, self.server, otherwise):
                    return within(REQUEST_SECONDS + size / BYTES_A_SECOND, call, *arguments, **options)
            except RunError:
                _kept.__dict__.pop(self.server, None)  # a call that was given up may still use it
                raise

        return _again_after_a_pause(self.server, self.credentials, asked)

    def own_entity(self) -> str:
        """The entity of runs and projects that are named without one: ``WANDB_ENTITY``, or the account's own.

        Raises:
            RunNotFound: there is none.
        """
        entity = self.api.settings.get("entity")
        entity = entity or self.asked("your default entity", lambda: self.api.default_entity)
        if not entity:
            raise RunNotFound("your account has no default entity", "set WANDB_ENTITY, or wandb:ENTITY/PROJECT/RUN")
        return str(entity)

    def _fresh(self, entity: str, project: str, run_id: str, own_files: bool) -> Any:
        # Not api.run(): it keeps runs as they were, and asks for the entity.
        service = self.api._service_api  # noqa: SLF001
        run = _run_class(own_files)(service, entity, project, run_id, lazy=False, api_key=self.api.api_key)
        _remove_empty_folders(Path(run.dir))
        return run


def connect(page: str = "") -> Connection:
    """A connection to the configured server; ``page``: what the address of the run's page begins with.

    Raises:
        StoreUnavailable: the server does not answer.
        StoreRefused: there is no API key, or the server does not accept it.
        RunNotFound: the page is on another server than the configured one.
        MissingExtra: wandb is not installed, or too old.
    """
    with optional_packages("wandb-server"):
        import wandb
    refuse_outdated("wandb-server")
    bound_requests()
    settings = wandb.setup().settings
    server = _server_of(page, settings)
    with translated("W&B cannot be asked", server):
        credentials = _credentials(server, settings)
    reach(server)
    kept: Connection | None = _kept.__dict__.get(server)
    if kept is not None and kept.credentials == credentials:
        return kept

    def made() -> Any:
        options = {"overrides": {"base_url": server}, "timeout": PATIENCE_SECONDS, **credentials}
        with translated("W&B cannot be asked", server):
            return within(REQUEST_SECONDS, wandb.Api, **options)

    api = _with_few_retries(_again_after_a_pause(server, credentials, made))
    app = settings.app_url if settings.base_url.rstrip("/") == server else page
    connection = Connection(server, app.rstrip("/"), api, credentials)
    setattr(_kept, server, connection)
    return connection


def _with_few_retries(api: Any) -> Any:
    """The same, that has core do its requests as ``_RETRIES`` says: each ``Api`` has settings for it."""
    service: Any = getattr(api, "_service_api", None)
    if hasattr(service, "_api_session"):
        settings = service._settings  # noqa: SLF001 - a copy of this Api's own
        settings.x_graphql_retry_max = settings.x_file_transfer_retry_max = _RETRIES
        service._api_session = None  # noqa: SLF001 - it is made anew with them
    return api


def _again_after_a_pause(server: str, credentials: Mapping[str, str], ask: Callable[[], Any]) -> Any:
    """What ``ask`` gives: asked once more where the server counts requests, when it wants some again."""
    try:
        return ask()
    except (StoreUnavailable, WriteError):
        pause = 0 if is_silent(server) else pause_wanted(server, credentials.get("api_key", ""))
        if not pause:
            raise
    time.sleep(pause)
    return ask()


def _server_of(page: str, settings: Any) -> str:
    """The address to ask about runs whose pages have such an address."""
    configured = str(settings.base_url).rstrip("/")
    if not page:
        return configured
    if _in_one_cloud(page):
        return configured if _in_one_cloud(configured) else CLOUD_API
    if page.lower().rstrip("/") in (configured.lower(), str(settings.app_url).lower().rstrip("/")):
        return configured
    shown = printable(without_userinfo(page))
    message = f"{shown} is neither an MLflow server's page nor of the configured W&B server"
    raise RunNotFound(f"{message} ({printable(without_userinfo(configured))})", f"set WANDB_BASE_URL={shown}")


def _in_one_cloud(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return any(host == domain or host.endswith(f".{domain}") for domain in _ONE_CLOUD)


def _credentials(server: str, settings: Any) -> dict[str, str]:
    """The API key for the server, from where the SDK looks for one; nothing where it has another kind of credentials.

    The SDK itself would ask for a key at the terminal.
    """
    from wandb.sdk.lib import wbauth

    configured = str(settings.base_url).rstrip("/")
    hosts.trust(configured)
    ours = hosts.is_trusted(server)
    exported = os.environ.get("WANDB_API_KEY", "")
    kept = settings.api_key if configured == server else ""
    key = (ours and exported) or wbauth.read_netrc_auth(host=server) or kept
    if (key or settings.identity_token_file) and not hosts.may_carry_secrets(server):
        message = f"the API key is not sent to the W&B server {printable(without_userinfo(server))} over plain http"
        raise StoreRefused(message, hosts.encrypt_hint(server))
    if key:
        return {"api_key": key}
    if settings.identity_token_file and ours:
        return {}
    if exported or settings.identity_token_file:
        hosts.withhold(server)
    hint = hosts.hint_on_withheld(server, "WANDB_BASE_URL") or KEY_HINT
    raise StoreRefused(f"there is no API key for the W&B server {printable(without_userinfo(server))}", hint)


@cache
def _run_class(own_files: bool) -> type:
    """The SDK's run, which is asked for with all that is needed of it in one request, files among it."""
    from wandb.apis.public import Run
    from wandb.apis.public.runs import RUN_FRAGMENT

    own = _OWN_FILES % (len(OWN_PLACES), json.dumps(OWN_PLACES), json.dumps(f"{ENTRIES}%"))
    files = own if own_files else f"files(first: {_FIRST_FILES}) {_FILES} {own}"

    class OneRequestRun(Run):
        def load(self, force: bool = False) -> Any:
            fragment = f"{RUN_FRAGMENT.rstrip().removesuffix('}')} {_ANY_ARTIFACT} {files} }}"
            return self._load_with_fragment(fragment, "RunFragment", force)

        @property
        def lastHistoryStep(self) -> int:  # noqa: N802  the SDK's name; it would ask the server again
            last = (self.history_keys or {}).get("lastStep")
            return last if isinstance(last, int) else -1

    return OneRequestRun


def has_artifacts(run: Any) -> bool:
    """Whether a run logged any artifact."""
    found = run._attrs.get("outputArtifacts")  # noqa: SLF001
    return not isinstance(found, dict) or bool(found.get("edges"))


def files_of(run: Any) -> list[Any] | None:
    """The files, as the SDK's, that a run came with; None if there are more."""
    from wandb.apis.public import File

    found = run._attrs.get("files") or {}  # noqa: SLF001
    if (found.get("pageInfo") or {}).get("hasNextPage", True):
        return None
    return [File(run._service_api, edge["node"], run) for edge in found.get("edges") or ()]  # noqa: SLF001


def own_files_of(run: Any) -> list[Any]:
    """The files, as the SDK's, that a run came with where ours may be."""
    from wandb.apis.public import File

    parts = (run._attrs.get(name) or {} for name in ("ours", "entries"))  # noqa: SLF001
    return [File(run._service_api, edge["node"], run) for part in parts for edge in part.get("edges") or ()]  # noqa: SLF001


def _upload(run: Any, files: Mapping[str, bytes]) -> None:
    """As the SDK does it, which takes four requests for each file."""
    from wandb.proto import wandb_api_pb2

    messages: Any = wandb_api_pb2
    names = {"entity": run.entity, "project": run.project, "run": run.id, "files": list(files)}
    answer = run._exec(_NEW_FILES, **names)["createRunFiles"]  # noqa: SLF001
    headers = dict(header.split(":", 1) for header in answer["uploadHeaders"] or ())
    service = run._service_api  # noqa: SLF001
    with TemporaryFolder() as folder:
        path = Path(folder, "file")
        places = {file["name"]: file["uploadUrl"] for file in answer["files"]}
        for name in files:  # in their order: by the first the others are known
            path.write_bytes(files[name])
            url = urljoin(f"{service.base_url}/", places[name])
            request = messages.UploadFileRequest(url=url, path=str(path), headers=headers)
            service.send_api_request(messages.ApiRequest(upload_file_request=request))
    _commit(run, list(files))


def _commit(run: Any, names: list[str]) -> None:
    """Tell a server of one's own that files have arrived: a store of W&B's cloud says so by itself."""
    from wandb.proto import wandb_api_pb2, wandb_internal_pb2

    messages: Any = wandb_api_pb2
    features: Any = wandb_internal_pb2
    service = run._service_api  # noqa: SLF001
    if service.feature_enabled(features.MARK_RUN_FILES_UPLOADED):
        place = {"entity": run.entity, "project": run.project, "run_id": run.id}
        request = messages.MarkRunFilesUploadedRequest(**place, files=names)
        service.send_api_request(messages.ApiRequest(mark_run_files_uploaded_request=request))


def _writing(run: Any) -> str:
    return f"W&B run {'/'.join(run.path)} could not be changed"


def _remove_empty_folders(folder: Path) -> None:
    """The SDK makes a folder for each run that it looks at: ENTITY/PROJECT/RUN."""
    with suppress(OSError):
        for place in (folder, folder.parent, folder.parent.parent):
            place.rmdir()


def fetched(connection: Connection, file: Any, target: Path) -> None:
    """Fetch a file of the SDK's whole."""
    with TemporaryFolder() as folder:
        doing = f"the file {printable(file.name)} could not be fetched"
        with writing(Path(folder), file.size):
            connection.asked(doing, _download, file, folder, size=file.size, otherwise=ReadError)
        (path,) = (one for one in Path(folder).rglob("*") if one.is_file())
        shutil.move(path, target)


def _download(file: Any, folder: str) -> None:
    file.download(root=folder, replace=True).close()


def pages(connection: Connection, doing: str, found: Iterable[Any], size: int) -> Iterator[Any]:
    """What a lazy list of the SDK's gives, at most ``size`` at a time within the time for one request.

    Raises:
        StoreUnavailable: its pages lead nowhere.
    """
    where = f"{doing} ({graphql_of(connection.server)})"
    iterator, paging, seen, known = iter(found), Paging(where), set[str](), -1
    while chunk := connection.asked(doing, _taken, found, iterator, size):
        names = {name for one in chunk if (name := _name_of(one))}
        yield from chunk
        if 0 < known == _loaded(found):  # the rest of a page
            continue
        known = _loaded(found)
        if _goes_on(found):
            paging.turn(found.cursor, is_new=not names or not names <= seen)  # type: ignore[attr-defined]
        seen |= names
    if _goes_on(found):  # where the SDK stops, as if that were all
        raise StoreUnavailable(f"{where}: the server gave an empty page, and a cursor for the next")


def _goes_on(found: Iterable[Any]) -> bool:
    """Whether the last page of a list says that there are more."""
    has_asked = getattr(found, "last_response", None) is not None
    return has_asked and bool(getattr(found, "more", False)) and hasattr(found, "cursor")


def _name_of(item: Any) -> str:
    """What tells an item of a list from others; empty for a row of a history, which has nothing."""
    return "" if isinstance(item, dict) else str(getattr(item, "id", "") or getattr(item, "name", ""))


def _loaded(found: Iterable[Any]) -> int:
    """How many things the pages have that a list has asked for; 0 for a list of another kind, which does not say."""
    return len(getattr(found, "objects", ()))


def _taken(found: Iterable[Any], iterator: Iterator[Any], size: int) -> list[Any]:
    """So many things, or fewer: it ends where another page was asked for, which may have had a single one."""
    # Its lists begin again when they are asked for an iterator, as any loop does.
    taken: list[Any] = []
    with suppress(StopIteration):
        known = _loaded(found)
        while len(taken) < size and _loaded(found) == known:
            taken.append(next(iterator))
    return taken
