"""The HTTP server: GraphQL, the stream of a live run, and bytes up and down. Every request is kept to be looked at."""

from __future__ import annotations

import base64
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote

from .graphql import Query, Refused
from .schema import Schema
from .store import Run, Store

WRITER = "local-" + "w" * 40
READER = "local-" + "r" * 40
"""API keys: of one who may do everything, and of one who may only look."""

FEATURES = frozenset({"MARK_RUN_FILES_UPLOADED"})


@dataclass(frozen=True)
class Request:
    """What somebody asked. ``calls``: of a GraphQL document, the fields at the top with what they were given."""

    method: str
    path: str
    operation: str = ""
    is_mutation: bool = False
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    user_agent: str = ""

    @property
    def writes(self) -> bool:
        return self.is_mutation or self.method == "PUT" or self.path.endswith("/file_stream")


@dataclass
class Fault:
    """What goes wrong with the requests that ``applies`` names, ``times`` of them: a status with headers, a wait of
    ``hang`` seconds before the answer, or anything that ``action`` does to begin with.
    """

    applies: Callable[[Request], bool]
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    hang: float = 0.0
    times: int = 10**9
    action: Callable[[Request], None] | None = None


class WandbServer:
    """A server on a free port of this machine, in threads of this process."""

    def __init__(self, entity: str = "team", port: int = 0) -> None:
        self.entity = entity
        self.store = Store()
        self.requests: list[Request] = []
        self.errors: list[str] = []
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        self.stopping = threading.Event()
        self._http = _Http(("127.0.0.1", port), _Handler)
        self._http.server = self
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()

    def environment(self, folder: Any, key: str = WRITER) -> dict[str, str]:
        """The environment of a client of this server that leaves its files in a folder, and none elsewhere."""
        folders = {
            name: f"{folder}/{name.lower()}"
            for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR")
        }
        return {
            **folders, "WANDB_BASE_URL": self.url, "WANDB_API_KEY": key, "WANDB_ERROR_REPORTING": "false",
            "NETRC": f"{folder}/netrc", "WANDB_X_DISABLE_STATS": "true",
        }  # fmt: skip

    def run(self, path: str) -> Run:
        """The run of ``ENTITY/PROJECT/RUN``."""
        entity, project, name = path.split("/")
        return self.store.runs[entity, project, name]

    def written(self) -> list[Request]:
        """The requests that change something, in their order."""
        return [one for one in self.requests if one.writes]

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[Fault]:
        self.faults.append(fault)
        try:
            yield fault
        finally:
            self.faults.remove(fault)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    server: WandbServer

    def handle_error(self, *_: object) -> None:
        """A client that hung up is none of ours; what is wrong with the server itself is kept for the tests to see."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            self.server.errors.append(repr(error))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, *_: object) -> None:
        """Nothing is printed: tests look at the requests."""

    def do_GET(self) -> None:
        self._served(self._get)

    def do_HEAD(self) -> None:
        self._served(self._get)

    def do_POST(self) -> None:
        self._served(self._post)

    def do_PUT(self) -> None:
        self._served(self._put)

    @property
    def _wandb(self) -> WandbServer:
        return self.server.server

    def _served(self, answer: Callable[[bytes, Query | None], None]) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = None
        request = Request(self.command, unquote(self.path), user_agent=self.headers.get("User-Agent", ""))
        if self.path == "/graphql":
            document = json.loads(body)
            query = Query(document["query"], document.get("variables"), document.get("operationName") or "")
            request = Request(
                self.command, self.path, query.name, query.is_mutation, tuple(query.calls), request.user_agent
            )
        self._wandb.requests.append(request)
        if not self._failed(request):
            answer(body, query)

    def _failed(self, request: Request) -> bool:
        """Whether a fault has taken the place of the answer."""
        wandb = self._wandb
        with wandb.lock:
            fault = next((one for one in wandb.faults if one.times > 0 and one.applies(request)), None)
            if fault is None:
                return False
            fault.times -= 1
        if fault.action:
            fault.action(request)
        end = time.monotonic() + fault.hang
        while time.monotonic() < end and not wandb.stopping.wait(0.05):
            pass
        if fault.status:
            self._send(fault.status, fault.body, fault.headers)
        return bool(fault.status)

    def _post(self, body: bytes, query: Query | None) -> None:
        writes = self._may_write()
        if writes is None:
            self._send_json(401, {"errors": [{"message": "user is not logged in"}]})
            return
        stream = re.fullmatch(r"/files/([^/]+)/([^/]+)/([^/]+)/file_stream", unquote(self.path))
        if query is not None:
            self._graphql(query, writes=writes)
        elif stream is not None and writes:
            with self._wandb.lock:
                self._wandb.store.runs[stream.groups()].stream(json.loads(body))
            self._send_json(200, {"exitcode": None, "limits": {}})
        else:
            self._send_json(404, {})

    def _graphql(self, query: Query, *, writes: bool) -> None:
        wandb = self._wandb
        schema = Schema(wandb.store, wandb.url, writes=writes, entity=wandb.entity, features=FEATURES)
        try:
            with wandb.lock:
                answer = query.answer(schema.mutation() if query.is_mutation else schema.query())
        except Refused as error:
            wandb.errors.append(f"{query.name}: {error.message}")
            problem = {"message": error.message, "extensions": {"code": error.code}}
            self._send_json(error.status, {"errors": [problem], "data": None})
        except Exception as error:  # noqa: BLE001  the schema lacks something: tests look whether there are any
            wandb.errors.append(f"{query.name}: {error!r}")
            self._send_json(400, {"errors": [{"message": repr(error)}]})
        else:
            self._send_json(200, {"data": answer})

    def _put(self, body: bytes, _: Query | None) -> None:
        with self._wandb.lock:
            self._wandb.store.put(unquote(self.path).removeprefix("/storage/"), body)
        self._send(200, b"")

    def _get(self, _: bytes, __: Query | None) -> None:
        with self._wandb.lock:
            blob = self._wandb.store.get(re.sub(r"^/(storage|files)/", "", unquote(self.path)))
        if blob is None:
            self._send_json(404, {})
            return
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if part is None:
            self._send(200, blob.content, {"ETag": blob.md5})
            return
        start, end = int(part[1]), min(int(part[2]), len(blob.content) - 1)
        headers = {"ETag": blob.md5, "Content-Range": f"bytes {start}-{end}/{len(blob.content)}"}
        self._send(206, blob.content[start : end + 1], headers)

    def _may_write(self) -> bool | None:
        """What the caller's key permits; None for one that nobody has."""
        scheme, _, encoded = (self.headers.get("Authorization") or "").partition(" ")
        key = base64.b64decode(encoded).decode().partition(":")[2] if scheme == "Basic" else ""
        return {WRITER: True, READER: False}.get(key)

    def _send_json(self, status: int, document: Any) -> None:
        self._send(status, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
