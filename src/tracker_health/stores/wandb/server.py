"""Whether a W&B server is there, asked without its SDK, which takes long to say that it is not."""

from __future__ import annotations

import base64
import ssl
from urllib.error import HTTPError, URLError
from urllib.request import Request

from tracker_health.errors import StoreUnavailable
from tracker_health.stores.remote.backoff import seconds_of
from tracker_health.stores.remote.deadline import distrust, is_silent, is_trusted, trust, why_silent, within
from tracker_health.stores.remote.reasons import NO_ANSWER, reason_in
from tracker_health.stores.remote.web import opener
from tracker_health.text import printable, without_userinfo

ANSWER_SECONDS = 10
"""How long a server may take to answer that it is there."""
MOST_PAUSE_SECONDS = 60
"""How long a server that wants fewer requests is left alone; W&B's counts them by the minute."""

QUESTION = b'{"query": "query Viewer { viewer { id } }"}'


def reach(server: str) -> None:
    """Ask the server once whether it is there; any HTTP answer will do. One that has just left that unanswered is not
    asked again: a list of runs would wait for each of them.

    Raises:
        StoreUnavailable: it does not answer.
    """
    if is_trusted(server):
        return
    shown = printable(without_userinfo(server))
    if is_silent(server):
        message = f"the W&B server ({shown}) {why_silent(server)} a moment ago; it was not asked again"
        raise StoreUnavailable(message, "try the run again in a minute, when the server answers")
    status, reason = last_word(server)
    if not status and reason:
        distrust(server, silent=reason == NO_ANSWER)
        hint = "is the network there, and is WANDB_BASE_URL right?"
        raise StoreUnavailable(f"the W&B server does not answer ({shown}): {reason} to HEAD /", hint)
    trust(server)


def last_word(server: str, question: bytes | None = None) -> tuple[int, str]:
    """The HTTP status with which a server answers, or 0 with the reason why it does not. ``question``: of GraphQL.

    Both are empty where only the SDK may know the way: its certificates are its own.
    """
    request = Request(f"{server}/", method="HEAD") if question is None else _asking(server, question)  # noqa: S310
    try:
        return within(ANSWER_SECONDS + 1, _status_of, request), ""
    except (URLError, OSError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLError):
            return 0, ""
        return 0, printable(reason_in(f"{type(reason).__name__} {reason}"), 200)


def _status_of(request: Request) -> int:
    try:
        with opener(unencrypted=True).open(request, timeout=ANSWER_SECONDS) as response:
            return int(response.status)
    except HTTPError as error:
        error.close()
        return error.code


def _asking(server: str, question: bytes) -> Request:
    return Request(f"{server}/graphql", data=question, headers={"Content-Type": "application/json"})  # noqa: S310


def pause_wanted(server: str, key: str) -> float:
    """For how many seconds a server wants no more requests of this account (429 with ``RateLimit-Reset``, as W&B's own,
    or ``Retry-After``); 0 where it does not say so. The SDK's core process heeds the latter alone.
    """
    request = _asking(server, QUESTION)
    if key:
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(f'api:{key}'.encode()).decode()}")
    try:
        within(ANSWER_SECONDS + 1, lambda: opener().open(request, timeout=ANSWER_SECONDS).close())
    except HTTPError as error:
        error.close()
        wanted = error.headers.get("RateLimit-Reset") or error.headers.get("Retry-After")
        if error.code == 429:
            return min(seconds_of(wanted) or 0.0, MOST_PAUSE_SECONDS)
    except (URLError, OSError):
        pass
    return 0
