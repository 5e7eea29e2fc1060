"""Servers whose answers have no end, unpack to gigabytes, or lead from page to page for ever."""

from __future__ import annotations

import http.server
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import zlib
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest

from tracker_health.errors import RunError, StoreUnavailable
from tracker_health.stores.remote import answers, deadline
from tracker_health.stores.remote.paging import MOST_IDLE_PAGES, Paging

pytest.importorskip("mlflow")

RUN = "0123456789abcdef" * 2
PIECE = b"0" * 2**16
UNPACKED = 2**30
MOST_MIB = 700
"""Of a process with MLflow in it, which has 300 by itself."""


@contextmanager
def serving(answer):
    """A server that answers as ``answer`` does, which gets the handler."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def respond(self):
            with suppress(OSError):
                answer(self)

        do_GET = do_POST = respond  # noqa: N815

        def log_message(self, *_):
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads, block_on_close = True, False

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def send(handler, status=200, body=b"", **headers):
    handler.send_response(status)
    for name, value in {"Content_Type": "application/json", "Content_Length": len(body), **headers}.items():
        if value is not None:
            handler.send_header(name.replace("_", "-"), str(value))
    handler.end_headers()
    handler.wfile.write(body)


def endless(status):
    def answer(handler):
        send(handler, status, b'{"run": "', Content_Length=None)
        while True:
            handler.wfile.write(PIECE)

    return answer


def bomb(packing):
    packer = zlib.compressobj(1, zlib.DEFLATED, 31 if packing == "gzip" else 15)
    # Piece by piece: a process that is started has the memory of its parent as its peak.
    pieces = [packer.compress(PIECE) for _ in range(UNPACKED // len(PIECE))]
    body = b"".join([*pieces, packer.flush()])
    return lambda handler: send(handler, 200, body, Content_Encoding=packing)


def dripping(handler):
    send(handler, 200, b"", Content_Length=10**6)
    while True:
        handler.wfile.write(b"0")
        time.sleep(0.05)


ANSWERS = {
    "endless": lambda _: endless(200),
    "endless 500": lambda _: endless(500),
    "endless 503": lambda _: endless(503),
    "gzip": bomb,
    "deflate": bomb,
    "drips": lambda _: dripping,
}
JUDGE = """
import re, sys, time
from pathlib import Path
from tracker_health.stores.remote import deadline
deadline.REQUEST_SECONDS = 8
import tracker_health as th
begin = time.monotonic()
try:
    th.check(sys.argv[1], tracking_uri=sys.argv[2])
except th.errors.RunError as error:
    print(error)
# Not ru_maxrss, which begins with what the process had that started this one.
highest = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
print(highest // 1024, round(time.monotonic() - begin))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", list(ANSWERS))
def test_an_answer_without_end_costs_little_memory_and_time(kind, tmp_path):
    answer = ANSWERS[kind](kind)

    def answering(handler):
        if "experiments/get" in handler.path:
            return send(handler, 404, b'{"error_code": "RESOURCE_DOES_NOT_EXIST"}')
        return answer(handler)

    with serving(answering) as uri:
        environment = os.environ | {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
        done = subprocess.run(
            [sys.executable, "-c", JUDGE, RUN, uri],
            env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True,
        )  # fmt: skip
    said, figures = done.stdout.strip().splitlines()
    mebibytes, seconds = map(int, figures.split())
    assert (mebibytes < MOST_MIB, seconds < 40) == (True, True), done.stdout
    if kind in ("endless", "gzip", "deflate"):
        assert "/api/2.0/mlflow/runs/get: the answer is larger than" in said


JUDGE_WANDB = """
import resource, time, wandb
import tracker_health as th
begin = time.monotonic()
try:
    th.check("wandb:team/proj/abc")
except th.errors.RunError as error:
    print(error)
seconds = time.monotonic() - begin
wandb.teardown()
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, round(seconds))
"""


@pytest.mark.slow
def test_the_core_process_of_wandb_is_given_up_where_an_answer_has_no_end(tmp_path):
    pytest.importorskip("wandb")
    with serving(lambda handler: endless(200)(handler) if "graphql" in handler.path else send(handler)) as uri:
        environment = {"WANDB_BASE_URL": uri, "WANDB_API_KEY": "k" * 40, "HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", JUDGE_WANDB],
            env=os.environ | environment, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True,
        )  # fmt: skip
    said, figures = done.stdout.strip().splitlines()
    mebibytes, seconds = map(int, figures.split())
    assert (mebibytes < 1500, seconds < 25) == (True, True), done.stdout
    assert f"({uri}/graphql): an answer took more than" in said


class Listed:
    """A lazy list as the SDK has them: pages of one thing each, of which the last says that there are more."""

    more, last_response = True, {}

    def __init__(self, cursors, names):
        self._pages = iter(zip(cursors, names, strict=False))
        self.cursor = None

    def __iter__(self):
        return self

    def __next__(self):
        self.cursor, name = next(self._pages)
        return SimpleNamespace(id=name)


@pytest.mark.parametrize(
    ("cursors", "names", "said"),
    [
        (itertools.repeat("again"), map(str, itertools.count()), "same page token"),
        (itertools.count(), itertools.repeat("one"), "nothing new"),
        ("abc", "abc", "an empty page"),
    ],
)
def test_pages_of_wandb_that_lead_nowhere_are_an_error_that_names_the_endpoint(cursors, names, said):
    from tracker_health.stores.wandb.connection import Connection, pages

    connection = Connection("http://127.0.0.1:9", "", None, {})
    found = pages(connection, "the runs of the W&B project team/proj", Listed(cursors, names), 1)
    with pytest.raises(StoreUnavailable, match=f"team/proj .*127.0.0.1:9/graphql.*{said}"):
        list(itertools.islice(found, 1000))


def test_the_body_of_a_redirect_is_not_read():
    from tracker_health.stores.remote.web import opener

    def answer(handler):
        if handler.path == "/there":
            return send(handler, body=b"here")
        handler.send_response(302)
        handler.send_header("Location", "/there")
        handler.end_headers()
        while True:
            handler.wfile.write(PIECE)

    with serving(answer) as uri, opener().open(f"{uri}/", timeout=10) as found:
        assert found.read() == b"here"


def test_only_our_own_requests_are_bounded(monkeypatch):
    from mlflow.utils.request_utils import _get_request_session
    from mlflow.utils.rest_utils import MlflowHostCreds, http_request

    from tracker_health.stores.mlflow.transport import bound_requests

    monkeypatch.setattr(answers, "MOST_ANSWER_BYTES", 1000)
    monkeypatch.setattr("mlflow.utils.request_utils._get_request_session", _get_request_session)
    bound_requests()
    with serving(lambda handler: send(handler, body=b"0" * 200_000)) as uri:
        token = answers._most.set(1000)
        asked = lambda: http_request(MlflowHostCreds(uri), "/x", "GET").content  # noqa: E731
        assert len(asked()) == 200_000
        with pytest.raises(Exception, match="larger than"):
            deadline.within(20, asked)
        with answers.at_most(300_000):
            assert len(deadline.within(20, asked)) == 200_000
        answers._most.reset(token)


def test_credentials_of_a_file_of_passwords_stay_here_as_well(monkeypatch, tmp_path):
    from mlflow.utils.rest_utils import MlflowHostCreds, http_request

    from tracker_health.stores.mlflow.transport import bound_requests
    from tracker_health.stores.remote import hosts

    bound_requests()
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password s3cret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    got = []

    def answer(handler):
        got.append(handler.headers.get("Authorization"))
        send(handler)

    monkeypatch.setattr(hosts, "_named", set())
    with serving(answer) as uri:

        def ask(host=uri):
            deadline.within(20, http_request, MlflowHostCreds(host), "/x", "GET")
            return got[-1]

        assert ask() is None, "nobody named that server"
        assert ask(uri.replace("://", "://you:pw@")) == "Basic eW91OnB3", "what the address itself holds"
        hosts.trust(uri)
        assert ask() == "Basic bWU6czNjcmV0"
        monkeypatch.setattr(hosts, "_is_loopback_address", lambda _: False)
        assert ask() is None, "over plain http"


def run_at(start, name):
    info = {"run_id": name, "run_uuid": name, "experiment_id": "1", "start_time": start, "status": "FINISHED"}
    return {"info": {**info, "artifact_uri": "x", "lifecycle_stage": "active"}, "data": {}}


STUCK = {
    "the same token": lambda count: {"runs": [run_at(5, f"{count}")], "next_page_token": "again"},
    "empty pages": lambda count: {"next_page_token": f"token {count}"},
    "the same runs": lambda count: {"runs": [run_at(5, "one")], "next_page_token": f"token {count}"},
    "to and fro": lambda count: {"runs": [run_at(5 + count % 2, f"{count % 2}")], "next_page_token": f"token {count}"},
}


@pytest.mark.parametrize("kind", list(STUCK))
def test_pages_that_lead_nowhere_are_an_error_that_names_the_endpoint(kind, monkeypatch):
    from tracker_health.stores.mlflow.experiment import listed_runs

    counting = itertools.count()

    def answer(handler):
        if "runs/search" in handler.path:
            return send(handler, body=json.dumps(STUCK[kind](next(counting))).encode())
        experiment = {"experiment": {"experiment_id": "1", "name": "one", "lifecycle_stage": "active"}}
        return send(handler, body=json.dumps(experiment).encode())

    monkeypatch.setattr(deadline, "_answered", {})
    with serving(answer) as uri, pytest.raises(StoreUnavailable, match="runs/search") as caught:
        list(listed_runs(["one"], uri))
    assert "page" in caught.value.message
    assert next(counting) < 3 * MOST_IDLE_PAGES


def test_the_pages_of_a_history_that_repeat_are_an_error(monkeypatch):
    from tracker_health.stores.mlflow.connection import connect
    from tracker_health.stores.mlflow.histories import read_history

    page = {"metrics": [{"key": "loss", "value": 1.0, "timestamp": 1, "step": 1}], "next_page_token": "again"}
    monkeypatch.setattr(deadline, "_answered", {})
    with serving(lambda handler: send(handler, body=json.dumps(page).encode())) as uri:
        client, _ = connect(uri)
        with pytest.raises(RunError, match=r"metrics/get-history of loss: .*same page token"):
            read_history(client, RUN, "loss")


def test_some_idle_pages_are_let_pass():
    paging = Paging("runs/search")
    for token in range(3 * MOST_IDLE_PAGES):
        paging.turn(token, is_new=token % (MOST_IDLE_PAGES - 1) == 0)
