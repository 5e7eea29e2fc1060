"""Parts of a file over HTTP: asked for by range, checked to be what was asked for, asked for again when they fail."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.readers.files.random_access import SHORTER
from tracker_health.readers.files.ranged_file import PartsRefused
from tracker_health.stores.remote.backoff import pause_before
from tracker_health.stores.remote.deadline import seconds_left

_RANGE = re.compile(r"bytes\s+(\d+)-(\d+)/(\d+|\*)")
_RETRIES = 2
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
CHUNK = 256 * 2**10


class Unanswered(OSError):
    """A request that another try may answer."""


@dataclass(frozen=True)
class HttpResponse:
    """An HTTP response: its status, its headers (names in any case), and its body in pieces."""

    status: int
    headers: Mapping[str, Any]
    chunks: Iterable[bytes]


Ask = Callable[[Mapping[str, str]], AbstractContextManager[HttpResponse]]


class HttpParts:
    """Parts of one file of ``size`` bytes. ``ask`` makes a GET request with some headers."""

    def __init__(self, ask: Ask, size: int) -> None:
        self._ask = ask
        self._size = size
        self._version: str | None = None

    def fetch(self, start: int, length: int) -> bytearray:
        """Exactly these bytes.

        Raises:
            PartsRefused: the server gives the whole file, or another version of it with each request.
            ReadError: the file has become shorter.
            Exception: what the last of a few tries raised, or the last one for which there was time.
        """
        for retry in range(_RETRIES):
            try:
                return self._fetched(start, length)
            except OSError as error:
                pause = pause_before(retry, _wanted_by(error))
                if not _passes(error) or pause >= seconds_left():
                    raise
                time.sleep(pause)
        return self._fetched(start, length)

    def _fetched(self, start: int, length: int) -> bytearray:
        # Compressed, the range would count other bytes.
        headers = {"Range": f"bytes={start}-{start + length - 1}", "Accept-Encoding": "identity"}
        with self._ask(headers) as answer:
            if answer.status == 416:
                raise ReadError(SHORTER)
            if answer.status != 206:
                raise PartsRefused
            self._check(answer, start, length)
            return _body(answer, length)

    def _check(self, answer: HttpResponse, start: int, length: int) -> None:
        stated = _RANGE.fullmatch(_header(answer, "content-range"))
        if stated is None or _header(answer, "content-encoding") not in ("", "identity"):
            raise PartsRefused
        if (int(stated[1]), int(stated[2])) != (start, start + length - 1) or stated[3] not in ("*", str(self._size)):
            raise ReadError("it has another size than was said")
        # Not as If-Range: a server that makes a new copy for each request would then send the whole file each time.
        version = _header(answer, "etag") or _header(answer, "last-modified")
        if self._version is None:
            self._version = version
        elif version != self._version:
            raise PartsRefused


def _passes(error: OSError) -> bool:
    """Whether it may be gone at the next try: not where the server has said no."""
    status = getattr(getattr(error, "response", None), "status_code", None) or getattr(error, "code", None)
    return not isinstance(status, int) or status in _PASSING


def _wanted_by(error: OSError) -> str | None:
    """The ``Retry-After`` of the answer that an error is."""
    headers = getattr(getattr(error, "response", error), "headers", None)
    return None if headers is None else headers.get("Retry-After")


def _header(answer: HttpResponse, name: str) -> str:
    return next((str(value) for key, value in answer.headers.items() if key.lower() == name), "")


def _body(answer: HttpResponse, length: int) -> bytearray:
    body = bytearray()
    for chunk in answer.chunks:
        body += chunk
        if len(body) > length:
            raise PartsRefused
    if len(body) != length:
        raise Unanswered(f"the connection ended after {len(body)} of {length} bytes")
    return body
