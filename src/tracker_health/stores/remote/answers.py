"""How much of a server's answers is read, packed and unpacked, and until when: for the requests of ``requests``.

Only requests count that are made ``within`` a time, which are ours. What an SDK does for others in this process stays
as it is.
"""

from __future__ import annotations

import http.client
import io
import math
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any

from tracker_health.errors import StoreUnavailable
from tracker_health.stores.remote import hosts
from tracker_health.stores.remote.deadline import is_too_slow, most_silence, seconds_left
from tracker_health.stores.remote.trail import note_answer, note_request
from tracker_health.text import printable, size_of, without_userinfo

MOST_ANSWER_BYTES = 64 * 2**20
"""Of one answer, as it came and unpacked: 200 runs with 2,000 metrics each have 50 MB; of more, fewer are asked for."""
MOST_ERROR_BYTES = 64 * 2**10
"""Of what comes with a status that says that the server failed: the rest is left out."""
_MOST_BEHIND = 10
_SPARE_BYTES = 2**16
"""For the status and the headers, in front of a body."""

_most: ContextVar[int] = ContextVar("bytes of an answer", default=MOST_ANSWER_BYTES)


class ExcessiveAnswer(StoreUnavailable):
    """A server's answer that was not read to its end, as it is too large or takes too long."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}", "is that the address of the tracker, and not of something else?")
        self.why = why


def excess_behind(error: BaseException) -> ExcessiveAnswer | None:
    """What ended an answer, which an SDK has made an error of its own of."""
    behind: BaseException | None = error
    for _ in range(_MOST_BEHIND):
        if behind is None or isinstance(behind, ExcessiveAnswer):
            return behind
        behind = behind.__cause__ or behind.__context__
    return None


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Within this, an answer may have so many bytes, where that is more than usual: a file of known size."""
    token = _most.set(max(size, MOST_ANSWER_BYTES))
    try:
        yield
    finally:
        _most.reset(token)


def is_ours() -> bool:
    """Whether a request that is made here would be one of ours."""
    return seconds_left() < math.inf


def bounded(session: Any) -> Any:
    """A session of ``requests`` like this one, with its retries, whose answers are read within limits."""
    import requests

    ours = requests.Session()
    for name in ("hooks", "headers", "verify", "cert", "proxies", "auth"):
        setattr(ours, name, getattr(session, name))
    for prefix, adapter in session.adapters.items():
        more = {"max_retries": adapter.max_retries, "pool_connections": adapter._pool_connections}  # noqa: SLF001
        kind: Any = type(adapter)
        ours.mount(prefix, _bounded_kind(kind)(**more, pool_maxsize=adapter._pool_maxsize))  # noqa: SLF001
    return ours


@cache
def _bounded_kind(adapter: Any) -> Any:
    return type(f"Bounded{adapter.__name__}", (_BoundedAdapter, adapter), {})


class _BoundedAdapter:
    """Before an adapter of ``requests``: each request passes here, each redirect too."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)  # type: ignore[misc]
        self.poolmanager: Any
        _bound_pools(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)  # type: ignore[misc]
        _bound_pools(manager)
        return manager

    def send(self, request: Any, *arguments: Any, **options: Any) -> Any:
        if "Authorization" in request.headers and not hosts.may_carry_secrets(request.url):
            # Out of the address, a file of passwords, or from what MLflow was given.
            del request.headers["Authorization"]
            hosts.withhold(request.url)
        if not hosts.is_trusted(request.url):
            _withhold_passwords_of_a_file(request)
        where = printable(without_userinfo(request.url), 300)
        note_request(request.method, request.url)
        with _placed(where):
            response = super().send(request, *arguments, **options)  # type: ignore[misc]
        _limit_unpacked(response, where)
        return response


def _withhold_passwords_of_a_file(request: Any) -> None:
    """Take off what the library read in ``.netrc``, which it does for every host: here one that the user has not named
    as a tracker. A user and password in the address itself are sent, as they are meant for it.
    """
    from requests.auth import _basic_auth_str
    from requests.utils import get_netrc_auth

    kept = get_netrc_auth(request.url)
    if kept and request.headers.get("Authorization") == _basic_auth_str(*kept):
        del request.headers["Authorization"]
        request.prepare_auth(None)
        hosts.withhold(request.url)


@contextmanager
def _placed(where: str) -> Iterator[None]:
    """What was only known to come from a host is of this endpoint of it."""
    try:
        yield
    except ExcessiveAnswer as error:
        raise ExcessiveAnswer(where, error.why) from None


def _limit_unpacked(response: Any, where: str) -> None:
    """Have the body end with an error where it unpacks to more than an answer may have."""
    if "," in response.headers.get("Content-Encoding", ""):
        response.raw.close()
        raise ExcessiveAnswer(where, "the server has packed its answer several times")
    # Else its characters would be guessed from all of it, which takes minutes.
    response.encoding = response.encoding or "utf-8"
    response.raw = _Unpacked(response.raw, where, failed=response.status_code >= 400)


class _Unpacked:
    """What a body unpacks to, piece by piece; all else is as the library has it."""

    def __init__(self, raw: Any, where: str, *, failed: bool) -> None:
        self._raw = raw
        self._where = where
        self._failed = failed
        self._most = _most.get()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def stream(self, *arguments: Any, **options: Any) -> Iterator[bytes]:
        """As the library's own, with an end."""
        count = 0
        with _placed(self._where):
            for chunk in self._raw.stream(*arguments, **options):
                count += len(chunk)
                if self._failed and count > MOST_ERROR_BYTES:
                    self._raw.close()
                    return
                if count > self._most:
                    self._raw.close()
                    raise ExcessiveAnswer(self._where, _too_large(self._most))
                yield chunk


def _too_large(most: int) -> str:
    return f"the answer is larger than {size_of(most)}, and was not read further"


# What comes over the wire: before anything is unpacked, and also where a library only reads to its end what it drops


def _bound_pools(manager: Any) -> None:
    manager.pool_classes_by_scheme = {
        scheme: _bounded_pool(kind) for scheme, kind in manager.pool_classes_by_scheme.items()
    }


@cache
def _bounded_pool(kind: Any) -> Any:
    connection = type("BoundedConnection", (kind.ConnectionCls,), {"response_class": _Response})

    def urlopen(self: Any, *arguments: Any, **options: Any) -> Any:
        # Each retry comes by here: one that nobody waits for any more would write what was said to be not written.
        if seconds_left() < 0:
            raise ExcessiveAnswer(f"{self.host}:{self.port}", "the answer took too long")
        return kind.urlopen(self, *arguments, **options)

    return type(f"Bounded{kind.__name__}", (kind,), {"ConnectionCls": connection, "urlopen": urlopen})


class _Response(http.client.HTTPResponse):
    """One answer on a connection."""

    def __init__(self, sock: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        _acknowledge_at_once(sock)
        with suppress(OSError, AttributeError):
            sock.settimeout(most_silence(sock.gettimeout()))
        self.fp = io.BufferedReader(_Counted(self.fp.detach(), _peer_of(sock)))

    def begin(self) -> None:
        super().begin()
        note_answer(self.status)


class _Counted(io.RawIOBase):
    """What arrives: an error once it is too much, or too late."""

    def __init__(self, inner: Any, peer: str) -> None:
        self._inner = inner
        self._peer = peer
        self._most = _most.get()
        self._count, self._begun = 0, time.monotonic()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        # Asked for each piece: nobody waits for the rest.
        if seconds_left() < 0 or is_too_slow(self._begun, self._count):
            raise ExcessiveAnswer(self._peer, "the answer took too long")
        count: int | None = self._inner.readinto(buffer)
        self._count += count or 0
        if self._count > self._most + _SPARE_BYTES:
            raise ExcessiveAnswer(self._peer, _too_large(self._most))
        return count

    def close(self) -> None:
        self._inner.close()
        super().close()


def _acknowledge_at_once(sock: Any) -> None:
    """Have the first packet of the answer acknowledged when it comes. Many servers send headers and body apart, and the
    body only once the headers have arrived, of which Linux else tells them 40 ms later: ten times the rest.
    """
    with suppress(OSError, AttributeError):  # no such option on this system
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _peer_of(sock: Any) -> str:
    try:
        host, port, *_ = sock.getpeername()
    except (OSError, ValueError, AttributeError):
        return "the server"
    return printable(f"{host}:{port}", 100)
