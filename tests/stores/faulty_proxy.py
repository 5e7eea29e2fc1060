"""A proxy before a server: passes on what is asked, but for the requests that a plan has answered badly."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

HANG_SECONDS = 30
HTML, JSON = (
    b"<html><body>of a proxy</body></html>",
    b'{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "run not found"}',
)


@dataclass(frozen=True)
class Fault:
    """What becomes of a request. ``status``: of an answer in the place of the server's, which is not asked. ``cut``: of
    the server's answer half is left, and the connection ``closed`` or ``reset`` behind it. ``lost``: the connection is
    reset in place of an answer, ``before`` or ``after`` the server got the request. ``hangs``: as ``lost``, but that the
    client is left waiting.
    """

    status: int = 0
    body: bytes = HTML
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: str = ""
    lost: str = ""
    hangs: str = ""

    @property
    def is_passed_on(self) -> bool:
        """Whether the server gets the request."""
        return not (self.status or self.lost == "before" or self.hangs == "before")


FAULTS = {
    **{
        f"{status} {kind}": Fault(status, body)
        for status in (500, 502, 503, 504)
        for kind, body in (("html", HTML), ("json", JSON))
    },
    "429": Fault(429),
    "429 Retry-After": Fault(429, JSON, {"Retry-After": "1"}),
    "429 RateLimit-Reset": Fault(429, JSON, {"RateLimit-Reset": "1"}),
    "401": Fault(401, JSON),
    "403": Fault(403, HTML),
    "reset before": Fault(lost="before"),
    "reset after": Fault(lost="after"),
    "reset in the body": Fault(cut="reset"),
    "truncated": Fault(cut="closed"),
    "a page": Fault(200, HTML),
    "another object": Fault(200, b'{"status": "ok"}'),
    "a list": Fault(200, b"[]"),
    "null": Fault(200, b"null"),
    "hang before": Fault(hangs="before"),
    "hang after": Fault(hangs="after"),
}

Plan = Callable[[int, str], Fault | None]
"""What becomes of a request, by its number (from 0 on) and what it asks: ``GET /path?query``."""


class Proxy:
    """``asked``: all requests since ``failing`` began, as a plan gets them; ``failed``: those of them that went wrong."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self.asked: list[str] = []
        self.failed: list[str] = []
        self.over = threading.Event()
        self._plan: Plan = lambda *_: None
        self._numbers = itertools.count()
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.proxy = self
        self.uri = f"http://127.0.0.1:{self._http.server_port}"

    def fault_of(self, asked: str) -> Fault:
        """Note a request; what is to become of it."""
        self.asked.append(asked)
        fault = self._plan(next(self._numbers), asked)
        self.failed += [asked] if fault else []
        return fault or Fault()

    def answer_of(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """What the server behind it says: status, the headers that matter, body."""
        host, port = self._target.hostname or "", self._target.port
        with contextlib.closing(http.client.HTTPConnection(host, port, timeout=60)) as link:
            dropped = ("host", "connection", "accept-encoding")
            kept = {name: value for name, value in headers.items() if name.lower() not in dropped}
            link.request(method, path, body, kept)
            answer = link.getresponse()
            kinds = ("content-type", "content-range", "etag", "last-modified")
            return answer.status, {k: v for k, v in answer.getheaders() if k.lower() in kinds}, answer.read()

    @contextlib.contextmanager
    def failing(self, fault: str | Plan, where: str = "") -> Iterator[Proxy]:
        """Have a plan go on within this: one's own, or a fault of ``FAULTS`` for all that asks for ``where``."""
        self.asked, self.failed, self._numbers = [], [], itertools.count()
        self._plan = (lambda _, asked: FAULTS[fault] if where in asked else None) if isinstance(fault, str) else fault
        try:
            yield self
        finally:
            self._plan = lambda *_: None

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    proxy: Proxy

    def handle_error(self, *_: object) -> None:
        """A client that hung up is none of ours."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def _pass_on(self) -> None:
        proxy: Proxy = self.server.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = proxy.fault_of(f"{self.command} {self.path}")
        status, headers, content = fault.status, {"Content-Type": "application/json", **fault.headers}, fault.body
        if fault.is_passed_on:
            status, headers, content = proxy.answer_of(self.command, self.path, self.headers, body)
        if fault.hangs:
            proxy.over.wait(HANG_SECONDS)
        if not (fault.lost or fault.hangs):
            self._answer(status, headers, content, content[: len(content) // 2] if fault.cut else content)
        if fault.lost or fault.hangs or fault.cut == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection |= bool(fault.lost or fault.hangs or fault.cut)

    do_GET = do_POST = do_PUT = do_HEAD = do_PATCH = do_DELETE = _pass_on  # noqa: N815

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes, sent: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)
