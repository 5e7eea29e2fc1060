"""The way to an MLflow store: found or refused in seconds, with nothing created or migrated.

Its errors become one line each, without user names, passwords and tokens.
"""

from __future__ import annotations

import os
import re
import shlex
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from tracker_health.errors import RunNotFound, StoreRefused, StoreUnavailable, optional_packages, refuse_outdated
from tracker_health.readers.mlflow_folder import META_FILE, TRASH_FOLDER
from tracker_health.stores.common.sqlite_files import PrivateCopy, private_copy, why_not_private
from tracker_health.stores.mlflow.credentials import credentials_for, with_own_credentials
from tracker_health.stores.mlflow.failures import URI_HINT, is_timeout, shown, translated
from tracker_health.stores.mlflow.old_database import copied, copy_of, why_not_copied
from tracker_health.stores.mlflow.reads_from_copy import ReadsFromCopy
from tracker_health.stores.mlflow.transport import bound_requests
from tracker_health.stores.remote import hosts
from tracker_health.stores.remote.deadline import Bounded, distrust, is_silent, is_trusted, trust, why_silent, within

if TYPE_CHECKING:
    import sqlalchemy
    from mlflow import MlflowClient

ANSWER_SECONDS = 10
"""How long a server may take to answer that it is there. MLflow's own retries take minutes to say that it is not."""

# A question that takes the server to its database: one whose database hangs still answers the simpler ones.
_QUESTION = "/api/2.0/mlflow/experiments/get?experiment_id=0"
_ANSWER_BYTES = 2**16

_DATABASES = ("postgresql", "mysql", "mssql", "sqlite")
# MLflow's names of a Databricks workspace and of its catalogue, which look like relative folders.
_WORKSPACES = frozenset({"databricks", "databricks-uc", "uc"})

_ALLOW = "MLFLOW_ALLOW_FILE_STORE"
_environment = threading.Lock()

_SQLITE_FILE = re.compile(r"sqlite(?:\+\w+)?:///(?:file:)?([^?]+)")
_current_databases: set[str] = set()


def connect(tracking_uri: str | None, *, pasted: bool = False) -> tuple[MlflowClient, str]:
    """A client and the tracking URI that it uses; None takes MLflow's own (``MLFLOW_TRACKING_URI``, else its default).

    ``pasted``: it is out of the address of a page, which anybody may have written: such a server gets no credentials
    unless the user has named it elsewhere.

    Raises:
        RunNotFound: there is no such database or folder; none is created.
        StoreUnavailable: the server does not answer, or the database needs another version of MLflow.
        StoreRefused: it asks for credentials.
        MissingExtra: mlflow is not installed, or too old.
    """
    with optional_packages("mlflow"):
        import mlflow
    refuse_outdated("mlflow")
    bound_requests()
    uri = tracking_uri or mlflow.get_tracking_uri()
    hosts.trust(mlflow.get_tracking_uri(), *(() if pasted else (uri,)))
    scheme = uri.partition(":")[0].lower() if ":" in uri else ""
    copy = None
    if scheme in ("http", "https"):
        _reach(uri)
    elif scheme.startswith(_DATABASES):
        uri, copy = _existing_database(uri)
    elif folder := folder_of(uri):
        _require_folder(folder, uri)
    allowed = _folders_allowed() if folder_of(uri) else nullcontext()
    with translated("the MLflow store cannot be opened", uri), allowed:
        # Whoever pasted the address of a page means the registry of that server.
        registry = {"registry_uri": uri} if pasted else {}
        if copy is not None and not copy_of(uri):
            return cast("MlflowClient", ReadsFromCopy(copy, mlflow.MlflowClient, uri)), uri
        client = mlflow.MlflowClient(tracking_uri=copy_of(uri) or uri, **registry)
        if scheme in ("http", "https") and not hosts.gets_credentials(uri):
            client = with_own_credentials(client, uri)
    # The calls to a database stay in this thread: its driver may want that, and has timeouts of its own.
    asks_server = scheme in ("http", "https", *_WORKSPACES) or uri in _WORKSPACES
    return (cast("MlflowClient", Bounded(client)) if asks_server else client), uri


def command_on(uri: str, command: str) -> str:
    """One of MLflow's commands that take the store from the environment, as it is typed for this one."""
    return f"MLFLOW_TRACKING_URI={shlex.quote(shown(uri))} {command}"


# Servers


def _reach(uri: str) -> None:
    """Ask the server once, without retries, whether it and its database are there. Any HTTP answer will do.

    One that has just left that unanswered is not asked again: a list of runs would wait for each of them.
    """
    if is_trusted(uri):
        return
    if is_silent(uri):
        message = f"the MLflow server ({shown(uri)}) {why_silent(uri)} a moment ago; it was not asked again"
        raise StoreUnavailable(message, "try the run again in a minute, when the server answers")
    with translated("the MLflow server does not answer", uri):
        try:
            # MLflow's patience is counted again with each byte that comes.
            within(ANSWER_SECONDS + 1, answer_of, uri, _QUESTION)
        except Exception as error:
            if is_timeout(error):
                distrust(uri, silent=True)
            raise
    trust(uri)


def answer_of(uri: str, path: str) -> str:
    """How a server's answer to one question begins, whatever its status; asked without retries."""
    from mlflow.utils.rest_utils import http_request

    # MLflow's own function: the same proxies and certificates as for the real requests.
    once = {"max_retries": 0, "timeout": ANSWER_SECONDS, "raise_on_status": False, "stream": True}
    with http_request(credentials_for(uri), path, "GET", **once) as response:  # type: ignore[no-untyped-call]
        beginning: bytes = next(response.iter_content(_ANSWER_BYTES), b"")
    return beginning.decode("utf-8", "replace")


# Databases


def _existing_database(uri: str) -> tuple[str, PrivateCopy | None]:
    """The URI of a database that is there and has the installed MLflow's schema, and the copy that is read in its
    place.

    MLflow itself would create a database that is not there, and migrate one that lacks a table.
    """
    import sqlalchemy

    try:
        parsed = sqlalchemy.make_url(uri)
    except sqlalchemy.exc.ArgumentError:
        raise StoreUnavailable(f"{shown(uri)} is not the URI of a database", URI_HINT) from None
    private = None
    if parsed.get_backend_name() == "sqlite":
        path = parsed.database or ":memory:"
        file = Path(path.removeprefix("file:").partition("?")[0])
        _require_file(file, uri)
        private = private_copy(file)
        if path.startswith("file:") or "%" in uri:
            # Of such a URI MLflow makes a folder as it is there, "file:" and "%20" and all; not where the driver is
            # named.
            uri = re.sub(r"^sqlite:", "sqlite+pysqlite:", uri)
    if uri not in _current_databases:
        older = _require_known_schema(uri, private.uri if private else uri)
        if older:
            _copy(parsed, uri, older, private)
        _current_databases.add(uri)
    return uri, private


def _copy(parsed: sqlalchemy.URL, uri: str, older: StoreUnavailable, private: PrivateCopy | None) -> None:
    """Have a copy of the database read that is too old; ``older`` says so where there cannot be one."""
    path = private.path if private else Path(parsed.database or "")
    if parsed.get_backend_name() != "sqlite" or not path.is_file() or why_not_copied(path):
        raise older
    try:
        copied(uri, path)
    except Exception as error:
        raise StoreUnavailable(f"{older.message}, and no copy of it could be upgraded", older.hint) from error


def refuse_copy(uri: str) -> None:
    """Say, before something is written, that only a copy is read.

    Raises:
        StoreRefused: so it is.
    """
    if copy_of(uri):
        message = f"the schema of the database {shown(uri)} is older than the installed MLflow: it was read from a copy"
        raise StoreRefused(f"{message}, and nothing is written", _upgrade_hint(uri))


def why_read_itself(uri: str) -> str:
    """Why a SQLite database with a log or journal next to it was not copied before it was read; empty else."""
    match = _SQLITE_FILE.match(uri)
    return why_not_private(Path(match[1])) if match else ""


def _upgrade_hint(uri: str) -> str:
    return f"back it up, then: mlflow db upgrade {shlex.quote(shown(uri))}"


def _require_file(path: Path, uri: str) -> None:
    if path.is_file():
        return
    hint = URI_HINT
    if Path("mlruns").is_dir():
        hint = "there is a folder mlruns here: try --tracking-uri mlruns"
    raise RunNotFound(f"there is no MLflow database {shown(uri)}", hint)


# Folders of runs: MLflow's file store


def moved(run: Any, uri: str) -> Any:
    """The run of a file store, with its artifacts where they are.

    Its record says where they were when it was logged. In a folder that was moved since, that is nowhere; in one that
    was copied, it is among the artifacts of the original.
    """
    root = folder_of(uri)
    stated = folder_of(run.info.artifact_uri or "")
    if root is None:
        return _beside_database(run, uri)
    if stated is None or not run.info.artifact_uri:
        return run
    tail = (run.info.experiment_id, run.info.run_id, "artifacts")
    # An artifact root of the owner's choice has the same folders in it, and no runs.
    original = stated.parts[-3:] == tail and (stated.parent / META_FILE).is_file()
    if stated.parent.is_dir() and not original:
        return run
    for place in (root, root / TRASH_FOLDER):
        here = place / run.info.experiment_id / run.info.run_id
        if here.is_dir():
            run.info._artifact_uri = str(here.resolve() / "artifacts")  # noqa: SLF001 - there is no other way
            break
    return run


def _beside_database(run: Any, uri: str) -> Any:
    """The run of a SQLite database, with its artifacts where they are next to that.

    Its record may give a relative path, one from before the folder was moved, or that of a server's artifacts.
    """
    match = _SQLITE_FILE.match(uri)
    stated = re.sub(r"^(?:file|mlflow-artifacts):/*", "/", run.info.artifact_uri or "")
    if match is None or "://" in stated or not stated or Path(stated).is_dir():
        return run
    folder = Path(match[1]).parent
    tails = [stated] if not Path(stated).is_absolute() else []
    tails += [str(Path(*Path(stated).parts[-4:])), f"mlartifacts/{'/'.join(Path(stated).parts[-3:])}"]
    for tail in tails:
        if ".." not in Path(tail).parts and not Path(tail).is_absolute() and (folder / tail).is_dir():
            run.info._artifact_uri = str((folder / tail).resolve())  # noqa: SLF001 - there is no other way
            break
    return run


def folder_of(uri: str) -> Path | None:
    """The folder that a URI or path names; None for the URI of anything else."""
    if uri in _WORKSPACES:
        return None
    scheme = uri.partition(":")[0].lower() if ":" in uri else ""
    if scheme not in ("", "file") and len(scheme) != 1:  # one letter: a Windows drive
        return None
    local = re.sub(r"^file:(//(localhost)?(?=/))?", "", uri, flags=re.IGNORECASE)
    return Path(local if local == uri else unquote(local))


def _require_folder(path: Path, uri: str) -> None:
    try:
        if path.is_dir():
            # MLflow would make a store of any folder.
            if (path / TRASH_FOLDER).is_dir() or any((entry / META_FILE).is_file() for entry in path.iterdir()):
                return
            raise RunNotFound(f"the folder {shown(uri)} is no MLflow store: it holds no experiments", URI_HINT)
    except PermissionError:
        raise StoreRefused(f"the folder {shown(uri)}: no permission to look into it") from None
    hint = f"for a database file: sqlite:///{shown(uri)}" if path.is_file() else URI_HINT
    raise RunNotFound(f"there is no MLflow folder {shown(uri)}", hint)


@contextmanager
def _folders_allowed() -> Iterator[None]:
    """Let MLflow open a file store, which newer versions refuse and older ones warn of.

    It asks the environment, and only when it makes its object for a store, which it keeps.
    """
    with _environment, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(file ?system|file store)", category=FutureWarning)
        before = os.environ.get(_ALLOW)
        os.environ[_ALLOW] = "true"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_ALLOW]
            else:
                os.environ[_ALLOW] = before


def _require_known_schema(uri: str, source: str) -> StoreUnavailable | None:
    """What is to be said where the database is older than the installed MLflow, None where it is not. ``source``: the
    URI of the database, or of its copy.

    Raises:
        StoreUnavailable: it is of a newer one, or no database of MLflow's.
    """
    import mlflow
    import sqlalchemy
    from mlflow.store.db.utils import create_sqlalchemy_engine

    with translated("the database cannot be opened", uri):
        engine = create_sqlalchemy_engine(source)  # type: ignore[no-untyped-call]
        try:
            with engine.connect() as connection:
                managed = sqlalchemy.inspect(connection).has_table("alembic_version")
                query = sqlalchemy.text("SELECT version_num FROM alembic_version")
                revision = connection.execute(query).scalar() if managed else None
        finally:
            engine.dispose()
        head, known = _schema_revisions()
    if revision is None:
        raise StoreUnavailable(f"{shown(uri)} is not an MLflow database", URI_HINT)
    if revision not in known:
        raise StoreUnavailable(
            f"the database {shown(uri)} is of a newer MLflow than the installed {mlflow.__version__}",
            "pip install -U mlflow",
        )
    if revision == head:
        return None
    message = f"the schema of the database {shown(uri)} is older than the installed MLflow {mlflow.__version__}"
    return StoreUnavailable(message, _upgrade_hint(uri))


@lru_cache(maxsize=1)
def _schema_revisions() -> tuple[str | None, frozenset[str]]:
    """The newest schema revision of the installed MLflow, and all that led to it."""
    import mlflow
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(Path(mlflow.__file__).parent / "store" / "db_migrations"))
    return scripts.get_current_head(), frozenset(script.revision for script in scripts.walk_revisions())
