"""A proxy before a server: passes on what is asked, but for the paths that it is told to answer badly."""

from __future__ import annotations

import contextlib
import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

CUT = 20
"""Bytes that are left of an answer that is torn."""


class Proxy:
    """``fault``: None, a status, or ``"torn"`` (half of the true answer, and the connection closed), ``"invalid"``
    (another body of the same kind, cut off) or ``"hang"``; for the requests whose path has ``where`` in it.
    """

    def __init__(self, target):
        self.target = urlsplit(target)
        self.fault, self.where, self.asked = None, "", []
        self.over = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def pass_on(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                proxy.asked.append(f"{self.command} {self.path}")
                bad = proxy.fault if proxy.where in f"{self.command} {self.path}" else None
                if bad == "hang":
                    proxy.over.wait(30)
                    self.close_connection = True
                elif isinstance(bad, int):
                    self.answer(bad, {}, b"<html>of a proxy</html>")
                else:
                    status, headers, content = proxy.answer_of(self.command, self.path, self.headers, body)
                    if bad == "invalid":
                        content = content[: min(CUT, len(content) // 2)]
                    self.answer(status, headers, content, cut=len(content) // 2 if bad == "torn" else None)

            do_GET = do_POST = do_PUT = do_HEAD = do_PATCH = do_DELETE = pass_on  # noqa: N815

            def answer(self, status, headers, content, cut=None):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content if cut is None else content[:cut])
                self.close_connection = cut is not None

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self.http.server_address[1]}"

    def answer_of(self, method, path, headers, body):
        """What the server behind it says: status, the headers that matter, body."""
        with contextlib.closing(http.client.HTTPConnection(self.target.hostname, self.target.port, timeout=60)) as link:
            kept = {
                name: value
                for name, value in headers.items()
                if name.lower() not in ("host", "connection", "accept-encoding")
            }
            link.request(method, path, body, kept)
            answer = link.getresponse()
            kinds = ("content-type", "content-range", "etag", "last-modified")
            return answer.status, {k: v for k, v in answer.getheaders() if k.lower() in kinds}, answer.read()

    @contextlib.contextmanager
    def failing(self, fault, where):
        self.fault, self.where = fault, where
        try:
            yield
        finally:
            self.fault = None

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.http.shutdown()
        self.http.server_close()
