"""What W&B's SDK raises, as errors of one line with a hint. The API key never appears in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import URLError

from tracker_health.errors import (
    RunError,
    RunNotFound,
    StoreRefused,
    StoreUnavailable,
    TrackerHealthError,
    WriteError,
)
from tracker_health.readers.files.ranged_file import PartsRefused
from tracker_health.stores.remote.answers import ExcessiveAnswer, excess_behind
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
from tracker_health.stores.wandb.core import status_of
from tracker_health.stores.wandb.server import QUESTION, last_word
from tracker_health.text import printable, without_userinfo

KEY_HINT = "wandb login, or set WANDB_API_KEY; WANDB_BASE_URL names the server"
_READ_HINT = "ask its owner for access to the project, or use another API key"
_EDIT_HINT = "you may read this run and not change it: ask for a seat that may write, or use another API key"
_AGAIN_HINT = "part of it may be there: do it again when the server answers, which puts that right"
_PAGE_HINT = "is WANDB_BASE_URL right, and is there no proxy or login page before the server?"
_DIALECT_HINT = "this server does not answer what the installed SDK asks for: is it W&B's own, and new enough for it?"
_OTHER_DIALECT = re.compile(r"unknown (operation|type|argument)|cannot query field", re.IGNORECASE)
# How core says that an answer is no JSON, or no object.
_NO_JSON = ("looking for beginning of value", "json: cannot unmarshal")
# What older SDKs say of whatever kept them from asking whether the key is good; the cause is behind it.
_UNCHECKED = "while verifying the API key"
_NO_KEY = ("API key", "not logged in", "error 401")
_NOT_THERE = ("could not find run", "run not found", "could not find project", "project not found")


@contextmanager
def translated(doing: str, server: str, otherwise: type[RunError] = StoreUnavailable) -> Iterator[None]:
    """Turn whatever the SDK raises into a RunError of one line.

    ``doing`` says what went wrong; ``otherwise`` is the error for all that is neither a refusal, nor a run that is not
    there, nor a failure of the server. That is ``StoreUnavailable``, unless something was to be written.
    """
    try:
        with followed() as trail:
            yield
    except ExcessiveAnswer as error:
        raise _excess(error, doing, server) from None
    except (TrackerHealthError, PartsRefused):
        raise
    except Exception as error:  # noqa: BLE001  the SDK raises anything, and core's errors are of no type of their own
        if excess := excess_behind(error):
            raise _excess(excess, doing, server) from None
        raise _translation(error, doing, server, otherwise, trail) from None


def _excess(error: ExcessiveAnswer, doing: str, server: str) -> ExcessiveAnswer:
    return ExcessiveAnswer(f"{doing} ({graphql_of(server)})", error.why)


def graphql_of(server: str) -> str:
    """Where everything is asked for but the content of files."""
    return f"{printable(without_userinfo(server))}/graphql"


def _translation(error: Exception, doing: str, server: str, otherwise: type[RunError], trail: Trail) -> RunError:
    what = f"{doing} ({printable(without_userinfo(server))})"
    cause = error.__cause__ if _UNCHECKED in str(error) else None
    status, text = trail.status or status_of(error), str(cause or error)
    to = f" to {trail.asked}" if trail.asked else ""
    said = f": the server answered {status}{to}" if status >= 400 else trail.asked and f": {trail.asked}"
    failure = otherwise if issubclass(otherwise, WriteError) else StoreUnavailable
    if is_failure(status):  # whatever it says besides is not to be believed
        return failure(f"{what}{said}", status_hint(status))
    if status == 401 or any(words in text for words in _NO_KEY):
        return StoreRefused(f"{what}: the server does not accept the API key{said}", KEY_HINT)
    if status == 403 or "permission denied" in text.lower():
        hint = _EDIT_HINT if issubclass(otherwise, WriteError) else _READ_HINT
        return StoreRefused(f"{what}: no permission{said}", hint)
    if any(words in text.lower() for words in _NOT_THERE):
        hint = "check entity, project and run id; a run that you may not see looks the same"
        return RunNotFound(f"{what}: there is no such run", hint)
    if any(words in text for words in _NO_JSON):
        return failure(f"{what}: what answers there is no W&B server, or a page before it{said}", _PAGE_HINT)
    reason = reason_in(text)
    if reason == TORN or isinstance(error, Unanswered):
        return failure(f"{what}: {reason if is_of_server(reason) else TORN}{said}", TORN_HINT)
    if reason != NO_ANSWER:
        hint = _DIALECT_HINT if _OTHER_DIALECT.search(text) else ""
        kind = failure if is_of_server(reason) or isinstance(error, URLError) else otherwise
        return kind(f"{what}: {printable(reason, 300)}{said}", hint)
    # Core waits as long as a server asks it to, and does not say so.
    status, reason = last_word(server, QUESTION)
    if is_failure(status):
        distrust(server, said=f"answered {status}, again and again,")
        return failure(f"{what}: the server answers {status}, again and again{to}", status_hint(status))
    distrust(server)
    hint = _AGAIN_HINT if issubclass(otherwise, WriteError) else "the server hangs or is very slow: try again later"
    return failure(f"{what}: {reason or NO_ANSWER}{to}", hint)
