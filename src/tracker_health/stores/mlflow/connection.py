"""The way to an MLflow store: found or refused in seconds, with nothing created or migrated.

Its errors become one line each, without user names, passwords and tokens.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tracker_health.errors import (
    RunError,
    RunNotFound,
    StoreRefused,
    StoreUnavailable,
    TrackerHealthError,
    optional_packages,
)
from tracker_health.readers.mlflow_folder import META_FILE
from tracker_health.text import printable

if TYPE_CHECKING:
    from mlflow import MlflowClient

ANSWER_SECONDS = 10
"""How long a server may take to answer that it is there. MLflow's own retries take minutes to say that it is not."""

# A question that takes the server to its database: one whose database hangs still answers the simpler ones.
_QUESTION = "/api/2.0/mlflow/experiments/get?experiment_id=0"

_TRUST_SECONDS = 60
_DATABASES = ("postgresql", "mysql", "mssql", "sqlite")
_REFUSALS = frozenset({"PERMISSION_DENIED", "CUSTOMER_UNAUTHORIZED", "UNAUTHENTICATED"})
_REFUSED_WRITE = re.compile(r"read-?only (database|transaction|option)|read-only mode|--read-only", re.IGNORECASE)
_DENIED = re.compile(r"permission denied|command denied|access denied", re.IGNORECASE)
_CREDENTIALS_HINT = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
_URI_HINT = "check --tracking-uri or MLFLOW_TRACKING_URI"
_SERVER_HINT = "is the server running, and is the tracking URI right?"
# What the libraries below say at length, in words.
_REASONS = (
    (r"connection refused", "connection refused"),
    (r"timed out|ConnectTimeout|ReadTimeout", "no answer in time"),
    (r"failed to resolve|name or service not known|getaddrinfo failed|nodename nor servname", "no such host"),
    (r"SSLError|CERTIFICATE_VERIFY_FAILED", "its TLS certificate is not accepted"),
    (r"remote end closed|connection aborted|connection reset", "it closed the connection"),
)

TRASH_FOLDER = ".trash"
"""Where a file store keeps what was deleted."""

_ALLOW = "MLFLOW_ALLOW_FILE_STORE"
_environment = threading.Lock()

_answered: dict[str, float] = {}
_current_databases: set[str] = set()


def connect(tracking_uri: str | None) -> tuple[MlflowClient, str]:
    """A client and the tracking URI that it uses; None takes MLflow's own (``MLFLOW_TRACKING_URI``, else its default).

    Raises:
        RunNotFound: there is no such database or folder; none is created.
        StoreUnavailable: the server does not answer, or the database needs another version of MLflow.
        StoreRefused: it asks for credentials.
    """
    with optional_packages("mlflow"):
        import mlflow
    uri = tracking_uri or mlflow.get_tracking_uri()
    scheme = uri.partition(":")[0].lower() if ":" in uri else ""
    if scheme in ("http", "https"):
        _reach(uri)
    elif scheme.startswith(_DATABASES):
        uri = _existing_database(uri)
    elif folder := _folder_of(uri):
        _require_folder(folder, uri)
    allowed = _folders_allowed() if _folder_of(uri) else nullcontext()
    with translated("the MLflow store cannot be opened", uri), allowed:
        return mlflow.MlflowClient(tracking_uri=uri), uri


def shown(uri: str) -> str:
    """A tracking URI fit to be printed and stored: without user name, password, query and fragment."""
    scheme, mark, rest = uri.partition("://")
    if not mark:
        return printable(re.split(r"[?#]", uri)[0])
    authority, slash, path = rest.partition("/")
    authority = authority.rpartition("@")[2]
    if not re.fullmatch(r"[^:]*(:\d*)?|\[.*\](:\d*)?", authority):
        # A password with a slash in it: no telling what in this is the secret.
        return printable(f"{scheme}://…")
    return printable(f"{scheme}://{authority}{slash}{re.split(r'[?#]', path)[0]}")


@contextmanager
def translated(
    doing: str, uri: str, otherwise: type[RunError] = StoreUnavailable, absent: frozenset[str] = frozenset()
) -> Iterator[None]:
    """Turn whatever MLflow and the libraries below it raise into a RunError of one line.

    ``doing`` says what went wrong, ``absent`` are the MLflow error codes that mean there is no such run, ``otherwise``
    is the error for all that is neither that nor a refusal.
    """
    try:
        with _muted("mlflow.store.db.utils"):
            yield
    except TrackerHealthError:
        raise
    except Exception as error:  # noqa: BLE001 - stores are plugins on database and cloud libraries that raise anything
        # Without the cause: its message holds the whole URL, and would be printed with the traceback.
        raise _translation(error, doing, uri, otherwise, absent) from None


@contextmanager
def _muted(name: str) -> Iterator[None]:
    """Keep a logger from printing what this thread is about to raise anyway, traceback and SQL and all."""
    ours = threading.get_ident()

    def from_elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != ours

    logger = logging.getLogger(name)
    logger.addFilter(from_elsewhere)
    try:
        yield
    finally:
        logger.removeFilter(from_elsewhere)


def _translation(error: Exception, doing: str, uri: str, otherwise: type[RunError], absent: frozenset[str]) -> RunError:
    code, what = _code(error), f"{doing} ({shown(uri)})"
    if code in _REFUSALS:
        return StoreRefused(f"{what}: no permission", _CREDENTIALS_HINT)
    if code in absent:
        return RunNotFound(f"{what}: there is no such run", "check the run id and the tracking URI")
    if code == "ENDPOINT_NOT_FOUND" or "valid JSON" in str(error):
        return StoreUnavailable(f"{what}: it does not answer as an MLflow server", _URI_HINT)
    if _REFUSED_WRITE.search(_first_words(error)):
        return StoreRefused(f"{what}: it is read-only")
    if isinstance(error, PermissionError) or _DENIED.search(_first_words(error)):
        return StoreRefused(f"{what}: no permission: {_without_secrets(_first_words(error), uri)}")
    hint = _SERVER_HINT if otherwise is StoreUnavailable and uri.startswith("http") else ""
    return otherwise(f"{what}: {_without_secrets(_reason(error), uri)}", hint)


def _code(error: Exception) -> str:
    """MLflow's name of the error, also for the plain HTTP errors of artifact requests."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return "PERMISSION_DENIED"
    return str(getattr(error, "error_code", ""))


def _first_words(error: Exception) -> str:
    """What an error says, without the SQL that SQLAlchemy adds to it."""
    return re.split(r"\s*(?:\[SQL: |\(Background on this error)", str(error))[0].strip() or type(error).__name__


def _reason(error: Exception) -> str:
    text = _first_words(error)
    for pattern, reason in _REASONS:
        if re.search(pattern, text, re.IGNORECASE):
            return reason
    return text


def _without_secrets(text: str, uri: str) -> str:
    """The text of a foreign error without the user name and password of the URI, or of any other URL in it."""
    text = re.sub(r"(?<=://)[^\s/]*@", "", text.replace(uri, shown(uri)))
    userinfo = uri.partition("://")[2].rpartition("@")[0].split(":", 1)
    for secret in sorted({*userinfo, *map(unquote, userinfo)} - {""}, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text)
    return printable(text, 300)


# Servers


def _reach(uri: str) -> None:
    """Ask the server once, without retries, whether it and its database are there. Any HTTP answer will do."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    if time.monotonic() - _answered.get(uri, float("-inf")) < _TRUST_SECONDS:
        return
    with translated("the MLflow server does not answer", uri):
        # MLflow's own function: the same proxies, certificates and credentials as for the real requests.
        once = {"max_retries": 0, "timeout": ANSWER_SECONDS, "raise_on_status": False, "stream": True}
        credentials = get_default_host_creds(uri)  # type: ignore[no-untyped-call]
        response = http_request(credentials, _QUESTION, "GET", **once)  # type: ignore[no-untyped-call]
        response.close()
    _answered[uri] = time.monotonic()


# Databases


def _existing_database(uri: str) -> str:
    """The URI of a database that is there and has the installed MLflow's schema.

    MLflow itself would create a database that is not there, and migrate one that lacks a table.
    """
    import sqlalchemy

    try:
        parsed = sqlalchemy.make_url(uri)
    except sqlalchemy.exc.ArgumentError:
        raise StoreUnavailable(f"{shown(uri)} is not the URI of a database", _URI_HINT) from None
    if parsed.get_backend_name() == "sqlite":
        path = parsed.database or ":memory:"
        _require_file(Path(path.removeprefix("file:").partition("?")[0]), uri)
        if "%" in uri and "%" not in path and not parsed.query:
            # MLflow makes a folder of the name as it stands in the URI, "%20" and all.
            uri = f"{uri.partition('://')[0]}:///{path}"
    if uri not in _current_databases:
        _require_current_schema(uri)
        _current_databases.add(uri)
    return uri


def _require_file(path: Path, uri: str) -> None:
    if path.is_file():
        return
    hint = _URI_HINT
    if Path("mlruns").is_dir():
        hint = "there is a folder mlruns here: try --tracking-uri mlruns"
    raise RunNotFound(f"there is no MLflow database {shown(uri)}", hint)


# Folders of runs: MLflow's file store


def moved(run: Any, uri: str) -> Any:
    """The run of a file store, with its artifacts where they are.

    Its record says where they were when it was logged. In a folder that was moved since, that is nowhere; in one that
    was copied, it is among the artifacts of the original.
    """
    root = _folder_of(uri)
    stated = _folder_of(run.info.artifact_uri or "")
    if root is None or stated is None or not run.info.artifact_uri:
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


def _folder_of(uri: str) -> Path | None:
    """The folder that a URI or path names; None for the URI of anything else."""
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
            raise RunNotFound(f"the folder {shown(uri)} is no MLflow store: it holds no experiments", _URI_HINT)
    except PermissionError:
        raise StoreRefused(f"the folder {shown(uri)}: no permission to look into it") from None
    hint = f"for a database file: sqlite:///{shown(uri)}" if path.is_file() else _URI_HINT
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


def _require_current_schema(uri: str) -> None:
    import mlflow
    import sqlalchemy
    from mlflow.store.db.utils import create_sqlalchemy_engine

    with translated("the database cannot be opened", uri):
        engine = create_sqlalchemy_engine(uri)  # type: ignore[no-untyped-call]
        try:
            with engine.connect() as connection:
                managed = sqlalchemy.inspect(connection).has_table("alembic_version")
                query = sqlalchemy.text("SELECT version_num FROM alembic_version")
                revision = connection.execute(query).scalar() if managed else None
        finally:
            engine.dispose()
        head, known = _schema_revisions()
    if revision is None:
        raise StoreUnavailable(f"{shown(uri)} is not an MLflow database", _URI_HINT)
    if revision not in known:
        raise StoreUnavailable(
            f"the database {shown(uri)} is of a newer MLflow than the installed {mlflow.__version__}",
            "pip install -U mlflow",
        )
    if revision != head:
        raise StoreUnavailable(
            f"the schema of the database {shown(uri)} is older than the installed MLflow {mlflow.__version__}",
            f"back it up, then: mlflow db upgrade {shown(uri)}",
        )


@lru_cache(maxsize=1)
def _schema_revisions() -> tuple[str | None, frozenset[str]]:
    """The newest schema revision of the installed MLflow, and all that led to it."""
    import mlflow
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(Path(mlflow.__file__).parent / "store" / "db_migrations"))
    return scripts.get_current_head(), frozenset(script.revision for script in scripts.walk_revisions())
