"""What MLflow and the libraries below it raise, as errors of one line with a hint.

User names, passwords and tokens never appear in them.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote

from tracker_health.errors import (
    RunError,
    RunNotFound,
    StoreRefused,
    StoreUnavailable,
    TrackerHealthError,
    WriteError,
)
from tracker_health.stores.remote import hosts
from tracker_health.stores.remote.answers import excess_behind
from tracker_health.stores.remote.deadline import distrust
from tracker_health.stores.remote.http_parts import Unanswered
from tracker_health.stores.remote.reasons import (
    NO_ANSWER,
    TORN,
    TORN_HINT,
    is_failure,
    is_of_server,
    reason_in,
    status_hint,
)
from tracker_health.stores.remote.trail import Trail, followed
from tracker_health.text import printable

URI_HINT = "check --tracking-uri or MLFLOW_TRACKING_URI"
SERVER_HINT = "is the server running, and is the tracking URI right?"

_UNAUTHENTICATED = frozenset({"CUSTOMER_UNAUTHORIZED", "UNAUTHENTICATED"})
_REFUSED_WRITE = re.compile(r"read-?only (database|transaction|option)|read-only mode|--read-only", re.IGNORECASE)
_DENIED = re.compile(r"permission denied|command denied|access denied", re.IGNORECASE)
_CREDENTIALS_HINT = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
_EDIT_HINT = "you may read this run and not change it: ask for EDIT permission on its experiment"
_READ_HINT = f"ask for READ permission on its experiment, or use another account: {_CREDENTIALS_HINT}"
_WRITABLE_HINT = "make it writable for you, or give an address of it that is"
_SLOW_HINT = "the server hangs or is very slow: try again later; MLFLOW_HTTP_REQUEST_TIMEOUT gives it more seconds"
_HALF_WRITTEN_HINT = "part of it may be there: do it again when the server answers, which puts that right"
_REASONS = (
    (r"unsupported URI|unsupported tracking store", "that is no kind of MLflow store"),
    (r"Unity Catalog tracking URI", "it holds models, and no runs"),
    (r"Reading Databricks credential", "no credentials for Databricks were found"),
)
_HINTS = (
    (r"(tracking|store) URI '?arn:|:sagemaker:", "pip install sagemaker-mlflow"),
    (r"\bazureml:", "pip install azureml-mlflow"),
    (r"database is locked", "another process is writing to it: try again when that has finished"),
    (r"file is not a database|file is encrypted", f"that file is no SQLite database: {URI_HINT}"),
    (r"unsupported URI|unsupported tracking store", "give http(s)://..., a database, databricks, or a folder of runs"),
    (r"Unity Catalog tracking URI", "runs are in --tracking-uri databricks"),
    (r"Reading Databricks credential", "databricks configure, or set DATABRICKS_HOST and DATABRICKS_TOKEN"),
    (
        r"unable to locate credentials|determine credentials|credentials were not found|failed to retrieve a token",
        "give this machine credentials for the artifact store, as for its own command line tool",
    ),
)
# The packages that MLflow leaves to those who need them.
_PACKAGES = {
    "boto3": "boto3",
    "botocore": "boto3",
    "google": "google-cloud-storage",
    "azure": "azure-storage-blob azure-identity",
    "b2sdk": "b2sdk",
    "pysftp": "pysftp",
    "pyarrow": "pyarrow",
    "databricks": "databricks-sdk",
    "psycopg2": "psycopg2-binary",
    "MySQLdb": "mysqlclient",
    "pymysql": "pymysql",
    "pymssql": "pymssql",
    "pyodbc": "pyodbc",
}
_STATUS = re.compile(r"too many (\d{3}) error responses|failed with error code (\d{3})")
_CUT_OFF = re.compile(r"Response body: '\s*[{\[]")


@dataclass(frozen=True)
class _Attempt:
    """What was tried: in words, at which store, at which place of it, and the error for what is nothing special.
    ``trail``: what was asked of the server.
    """

    doing: str
    uri: str
    at: str
    otherwise: type[RunError]
    trail: Trail = field(default_factory=Trail)

    def endpoint(self, before: str) -> str:
        """What the server answered badly, or not at all, behind these words; empty where it is not known."""
        return f"{before}{self.trail.asked}" if self.trail.asked else ""

    @property
    def what(self) -> str:
        place = shown(self.at or self.uri)
        return f"{self.doing} ({place} of {shown(self.uri)})" if _is_of_server(self.at) else f"{self.doing} ({place})"

    @property
    def server(self) -> str:
        """The address that was asked, as far as it is known here."""
        if not self.at.startswith(("http:", "https:", "mlflow-artifacts://")):
            return self.uri
        return re.sub(r"^mlflow-artifacts:", f"{self.uri.partition(':')[0]}:", self.at)

    @property
    def writes(self) -> bool:
        return issubclass(self.otherwise, WriteError)

    @property
    def failure(self) -> type[RunError]:
        """The error for what is the server's fault, whatever was asked for."""
        return self.otherwise if self.writes else StoreUnavailable

    @property
    def is_far(self) -> bool:
        """Whether it is no file of this machine that was to be read."""
        place = self.at or self.uri
        return _is_of_server(place) or ("://" in place and not place.startswith(("file:", "sqlite")))

    def is_out_of_reach(self, reason: str) -> bool:
        """Whether it is a store that clients have to reach themselves, and that nobody reaches from this machine: so it
        may be for good, and what the tracking server has is judged all the same.
        """
        return bool(self.at) and not _is_of_server(self.at) and reason not in (NO_ANSWER, TORN)

    @property
    def asks_server(self) -> bool:
        return self.uri.startswith("http") and (not self.at or _is_of_server(self.at))


def _is_of_server(artifact_uri: str) -> bool:
    """Whether the artifacts go through the tracking server."""
    return artifact_uri.startswith("mlflow-artifacts:/") and not artifact_uri.startswith("mlflow-artifacts://")


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
    doing: str,
    uri: str,
    otherwise: type[RunError] = StoreUnavailable,
    absent: frozenset[str] = frozenset(),
    at: str = "",
) -> Iterator[None]:
    """Turn whatever MLflow and the libraries below it raise into a RunError of one line.

    ``doing`` says what went wrong. ``absent``: the MLflow error codes that mean there is no such run. ``otherwise``:
    the error for everything that is neither that, nor a refusal, nor a failure of the server. That is
    ``StoreUnavailable``, unless something was to be written. ``uri``: the tracking URI; ``at``: where the artifacts are
    that it was about.
    """
    try:
        with followed() as trail, _muted("mlflow.store.db.utils"):
            yield
    except TrackerHealthError:
        raise
    except Exception as error:  # noqa: BLE001 - stores are plugins on database and cloud libraries that raise anything
        if excess := excess_behind(error):
            raise excess from None
        # Without the cause: its message holds the whole URL, and would be printed with the traceback.
        raise _translation(error, _Attempt(doing, uri, at, otherwise, trail), absent) from None


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


def is_timeout(error: Exception) -> bool:
    """Whether a request was not answered in time."""
    return _reason(error) == NO_ANSWER


def _translation(error: Exception, attempt: _Attempt, absent: frozenset[str]) -> RunError:
    failed = is_failure(attempt.trail.status)  # whatever it says besides is not to be believed
    return (None if failed else _refusal(error, attempt, absent)) or _failure(error, attempt)


def _refusal(error: Exception, attempt: _Attempt, absent: frozenset[str]) -> RunError | None:
    """What a server says no to; None for what is nothing of that kind."""
    code, what = _code(error, attempt), attempt.what
    withheld = hosts.hint_on_withheld(attempt.server, "MLFLOW_TRACKING_URI")
    if code in _UNAUTHENTICATED:
        said = "no permission without the right credentials"
        return StoreRefused(f"{what}: {said}{_answer_of(attempt)}", withheld or _CREDENTIALS_HINT)
    if code == "PERMISSION_DENIED":
        hint = withheld or (_EDIT_HINT if attempt.writes else _READ_HINT)
        return StoreRefused(f"{what}: no permission{_answer_of(attempt)}", hint)
    if code in absent:
        return RunNotFound(f"{what}: there is no such run", "check the run id and the tracking URI")
    return None


def _failure(error: Exception, attempt: _Attempt) -> RunError:
    code, what = _code(error, attempt), attempt.what
    reason = _reason(error)
    if status := _failing_status(error, attempt):
        if reason == NO_ANSWER:  # it was asked again and again, as long as there was time
            distrust(attempt.uri, said=f"answered {status}, again and again,")
        return attempt.failure(f"{what}: the server answered {status}{attempt.endpoint(' to ')}", status_hint(status))
    if _is_torn(error, attempt):
        return attempt.failure(f"{what}: {TORN}{attempt.endpoint(': ')}", TORN_HINT)
    if code == "ENDPOINT_NOT_FOUND" or "valid JSON" in str(error):
        return attempt.failure(f"{what}: it does not answer as an MLflow server{attempt.endpoint(': ')}", URI_HINT)
    if _REFUSED_WRITE.search(_first_words(error)):
        return StoreRefused(f"{what}: it is read-only", _WRITABLE_HINT)
    if isinstance(error, PermissionError) or _DENIED.search(_first_words(error)):
        return StoreRefused(f"{what}: no permission: {_without_secrets(_first_words(error), attempt)}")
    if reason == NO_ANSWER and attempt.asks_server:
        distrust(attempt.uri)
    is_failure_of_server = is_of_server(reason) or _is_of_requests(error)
    kind = attempt.failure if is_failure_of_server and not attempt.is_out_of_reach(reason) else attempt.otherwise
    endpoint = attempt.endpoint(" to " if reason == NO_ANSWER else ": ") if is_failure_of_server else ""
    return kind(f"{what}: {_without_secrets(reason, attempt)}{endpoint}", _hint(error, reason, attempt))


def _is_torn(error: Exception, attempt: _Attempt) -> bool:
    """Whether an answer came that is not whole, or not what was asked for: then the client stumbles over it."""
    if not attempt.is_far:
        return False
    if isinstance(error, Unanswered) or _CUT_OFF.search(str(error)) or _reason(error) == TORN:
        return True
    if attempt.writes or not attempt.asks_server or _is_of_requests(error) or isinstance(error, UnicodeEncodeError):
        return False
    return isinstance(error, (ValueError, LookupError, TypeError, AttributeError))


def _is_of_requests(error: Exception) -> bool:
    """Whether the HTTP library had no answer to give."""
    of_library = any(kind.__module__.startswith(("requests.", "urllib3.")) for kind in type(error).__mro__)
    return of_library and getattr(error, "response", None) is None


def _answer_of(attempt: _Attempt) -> str:
    """The answer that says no, where it is known, in words that go behind the rest."""
    status = attempt.trail.status
    return f": the server answered {status}{attempt.endpoint(' to ')}" if status >= 400 else ""


def _code(error: Exception, attempt: _Attempt) -> str:
    """MLflow's name of the error, also for plain HTTP errors."""
    status = _response_status(error) or attempt.trail.status
    if status in (401, 403):
        return "UNAUTHENTICATED" if status == 401 else "PERMISSION_DENIED"
    return str(getattr(error, "error_code", ""))


def _response_status(error: Exception) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _status_of_cloud(error: Exception) -> int:
    """The HTTP status behind an error of boto, or of the library of another cloud; 0 where none is known."""
    response = getattr(error, "response", None)
    facts = response.get("ResponseMetadata") if isinstance(response, dict) else None
    found = (facts or {}).get("HTTPStatusCode"), getattr(error, "status_code", None), getattr(error, "code", None)
    return next((int(one) for one in found if isinstance(one, int)), 0)


def _failing_status(error: Exception, attempt: _Attempt) -> int | None:
    """The HTTP status with which a server failed, or turned away for now, what was no mistake of the client's."""
    if is_failure(attempt.trail.status):
        return attempt.trail.status
    found = _STATUS.search(str(error))
    status = int(found.group(1) or found.group(2)) if found else _response_status(error) or _status_of_cloud(error)
    return status if is_failure(status) else None


def _hint(error: Exception, reason: str, attempt: _Attempt) -> str:
    text = _first_words(error)
    if missing := re.search(r"No module named '([\w.]+)'", text):
        package = missing.group(1).partition(".")[0]
        if package == "azure" and attempt.at.startswith("abfss"):
            return "pip install azure-storage-file-datalake azure-identity"
        return f"pip install {_PACKAGES.get(package, package)}"
    for pattern, hint in _HINTS:
        if re.search(pattern, text, re.IGNORECASE):
            return hint
    if reason == NO_ANSWER and attempt.writes:
        return _HALF_WRITTEN_HINT
    if reason == NO_ANSWER and attempt.asks_server:
        return _SLOW_HINT
    return SERVER_HINT if attempt.otherwise is StoreUnavailable and attempt.asks_server else ""


def _first_words(error: Exception) -> str:
    """What an error says, without the SQL that SQLAlchemy adds to it."""
    return re.split(r"\[SQL: |\(Background on this error", str(error))[0].strip() or type(error).__name__


def _reason(error: Exception) -> str:
    return reason_in(_first_words(error), _REASONS)


def _without_secrets(text: str, attempt: _Attempt) -> str:
    """The text of a foreign error without the user name and password of the URIs, or of any other URL in it."""
    for uri in filter(None, (attempt.uri, attempt.at)):
        text = text.replace(uri, shown(uri))
    text = re.sub(r"(?<=://)[^\s/]*@", "", text)
    for uri in (attempt.uri, attempt.at):
        userinfo = uri.partition("://")[2].rpartition("@")[0].split(":", 1)
        for secret in sorted({*userinfo, *map(unquote, userinfo)} - {""}, key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text)
    return printable(text, 300)
