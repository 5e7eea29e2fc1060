"""A web server that gives files in parts, and counts what it gives."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class RangeServer(ThreadingHTTPServer):
    """Serves one file at any path. ``way``: how it does that, or fails to, or an address that it leads to."""

    daemon_threads = True

    def __init__(self, path, way="parts", fails=0):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.path, self.way, self.fails = path, way, fails
        self.requests, self.sent, self.headers = 0, 0, []
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        """A client that leaves early is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        server = self.server
        with server.lock:
            server.requests += 1
            number = server.requests
            server.headers.append(dict(self.headers))
            failing = server.fails > 0 and number > 1
            server.fails -= failing
        if failing and server.way != "cut":
            self.send_error(503)
            return
        if server.way in ("401", "404", "500"):
            self.send_error(int(server.way))
            return
        if server.way == "redirect" and "elsewhere" not in self.path:
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{server.server_address[1]}/elsewhere{self.path}")
            self.end_headers()
            return
        if server.way.startswith("/") or "://" in server.way:
            self.send_response(302)
            self.send_header("Location", server.way)
            self.end_headers()
            return
        size = server.path.stat().st_size
        start, end = 0, size - 1
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        parts = asked is not None and server.way != "whole"
        if parts:
            start, end = int(asked[1]), min(int(asked[2]), size - 1)
        self.send_response(206 if parts else 200)
        if parts:
            shift = 1 if server.way == "wrong part" else 0
            self.send_header(
                "Content-Range",
                f"bytes {start + shift}-{end}/{size + (7 if server.way == 'grows' and number > 1 else 0)}",
            )
        self.send_header("Content-Length", str(end - start + 1))
        self.send_header("ETag", f'"{number if server.way == "new copies" else 1}"')
        self.end_headers()
        self._send(start, end, cut=failing)

    def _send(self, start, end, cut):
        with self.server.path.open("rb") as file:
            file.seek(start)
            left = end - start + 1
            if cut:
                left //= 2
            while left:
                chunk = file.read(min(left, 2**20))
                self.wfile.write(chunk)
                left -= len(chunk)
                with self.server.lock:
                    self.server.sent += len(chunk)


@contextmanager
def serving(path, way="parts", fails=0):
    with RangeServer(path, way, fails) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
