"""The way to a W&B server: found or refused in seconds, through the SDK's ``wandb.Api``, never by asking for a key."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tracker_health.errors import RunError, RunNotFound, StoreRefused, StoreUnavailable, WriteError, optional_packages
from tracker_health.stores import hosts
from tracker_health.stores.deadline import BYTES_A_SECOND, REQUEST_SECONDS, within
from tracker_health.stores.temporary import TemporaryFolder
from tracker_health.stores.wandb.address import CLOUD_API, Address
from tracker_health.stores.wandb.failures import KEY_HINT, translated
from tracker_health.stores.wandb.server import reach
from tracker_health.text import printable, without_userinfo

PATIENCE_SECONDS = 30
"""For one question, the retries of the SDK's core process included: it goes on after 429 and 5xx, as long as the server
asks it to."""

_TAGS = """
mutation UpsertBucket($id: String!, $tags: [String!]) {
  upsertBucket(input: {id: $id, tags: $tags}) { bucket { id } }
}
"""
_SUMMARY = """
mutation UpsertBucket($id: String!, $summaryMetrics: JSONString) {
  upsertBucket(input: {id: $id, summaryMetrics: $summaryMetrics}) { bucket { id } }
}
"""
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

    def asked(self, doing: str, call: Callable[..., Any], *arguments: Any, size: int = 0, **options: Any) -> Any:
        """What a call of the SDK's gives; ``size``: bytes that it transfers. ``doing``: what fails if it does.

        Raises:
            RunError: it fails, or takes too long.
        """
        return self._bounded(doing, StoreUnavailable, size, call, *arguments, **options)

    def run(self, address: Address) -> Any:
        """The run of the SDK's, as it is now.

        Raises:
            RunNotFound: there is none.
        """
        entity = address.entity or self.own_entity()
        path = f"{entity}/{address.project}/{address.run}"
        return self.asked(f"W&B run {printable(path)}", self._fresh, path)

    # Changes, each of one thing: what a change does not name stays as it is

    def set_tags(self, run: Any, tags: Iterable[str]) -> None:
        """Give the run these tags in the place of those that it has."""
        self._change(run, _TAGS, tags=list(tags))

    def set_summary(self, run: Any, summary: Mapping[str, Any]) -> None:
        """Give the run this summary in the place of the one that it has."""
        self._change(run, _SUMMARY, summaryMetrics=json.dumps(summary))

    def upload(self, run: Any, name: str, content: bytes) -> None:
        """Write a file of the run."""
        with TemporaryFolder() as folder:
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            self._bounded(_writing(run), WriteError, len(content), _upload, run, str(path), folder)

    def delete(self, run: Any, file: Any) -> None:
        """Delete a file of the run."""
        self._bounded(_writing(run), WriteError, 0, file.delete)

    def _change(self, run: Any, mutation: str, **values: Any) -> None:
        # Not the SDK's own update(): that sends config, notes and names as well, as they were when the run was read.
        self._bounded(_writing(run), WriteError, 0, run._exec, mutation, id=run.storage_id, **values)  # noqa: SLF001

    def _bounded(
        self,
        doing: str,
        otherwise: type[RunError],
        size: int,
        call: Callable[..., Any],
        *arguments: Any,
        **options: Any,
    ) -> Any:
        try:
            with translated(doing, self.server, otherwise):
                return within(REQUEST_SECONDS + size / BYTES_A_SECOND, call, *arguments, **options)
        except RunError:
            _kept.__dict__.pop(self.server, None)  # a call that was given up may still use it
            raise

    def own_entity(self) -> str:
        """The entity of runs and projects that are named without one.

        Raises:
            RunNotFound: there is none.
        """
        entity = self.asked("your default entity", lambda: self.api.default_entity)
        if not entity:
            raise RunNotFound("your account has no default entity", "name it: wandb:ENTITY/PROJECT/RUN")
        return str(entity)

    def _fresh(self, path: str) -> Any:
        self.api.flush()  # it keeps runs as they were
        run = self.api.run(path)
        _remove_empty_folders(Path(run.dir))
        return run


def connect(page: str = "") -> Connection:
    """A connection to the configured server; ``page``: what the address of the run's page begins with.

    Raises:
        StoreUnavailable: the server does not answer.
        StoreRefused: there is no API key, or the server does not accept it.
        RunNotFound: the page is on another server than the configured one.
        MissingExtra: wandb is not installed.
    """
    with optional_packages("wandb"):
        import wandb
    settings = wandb.setup().settings
    server = _server_of(page, settings)
    with translated("W&B cannot be asked", server):
        credentials = _credentials(server, settings)
    reach(server)
    kept: Connection | None = _kept.__dict__.get(server)
    if kept is not None and kept.credentials == credentials:
        return kept
    with translated("W&B cannot be asked", server):
        options = {"overrides": {"base_url": server}, "timeout": PATIENCE_SECONDS, **credentials}
        api = within(REQUEST_SECONDS, wandb.Api, **options)
    app = settings.app_url if settings.base_url.rstrip("/") == server else page
    made = Connection(server, app.rstrip("/"), api, credentials)
    setattr(_kept, server, made)
    return made


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
    if key:
        return {"api_key": key}
    if settings.identity_token_file and ours:
        return {}
    if exported or settings.identity_token_file:
        hosts.withhold(server)
    hint = hosts.hint_on_withheld(server, "WANDB_BASE_URL") or KEY_HINT
    raise StoreRefused(f"there is no API key for the W&B server {printable(without_userinfo(server))}", hint)


def _upload(run: Any, path: str, folder: str) -> None:
    try:
        run.upload_file(path, root=folder)
    except Exception as error:
        # After the upload it looks for the file in the run's list, where it may not be yet.
        if not isinstance(getattr(error, "exc", error), IndexError):
            raise


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
        connection.asked(doing, _download, file, folder, size=file.size)
        (path,) = (one for one in Path(folder).rglob("*") if one.is_file())
        shutil.move(path, target)


def _download(file: Any, folder: str) -> None:
    file.download(root=folder, replace=True).close()


def pages(connection: Connection, doing: str, found: Iterable[Any], size: int) -> Iterator[Any]:
    """What a lazy list of the SDK's gives, at most ``size`` at a time within the time for one request."""
    iterator = iter(found)
    while chunk := connection.asked(doing, _taken, iterator, size):
        yield from chunk


def _taken(iterator: Iterator[Any], size: int) -> list[Any]:
    # Its lists begin anew when they are asked for an iterator, as any loop does.
    taken: list[Any] = []
    with suppress(StopIteration):
        while len(taken) < size:
            taken.append(next(iterator))
    return taken
