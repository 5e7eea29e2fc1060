"""Servers whose answers have no end, unpack to gigabytes, or lead from page to page for ever."""

from __future__ import annotations

import itertools
import json
import time
from functools import cache
from types import SimpleNamespace

import pytest
from tests.fuzz.servers import PIECE, RUN, TARGETS, cost_of, judge, line_of, send, serving

from tracker_health.errors import RunError, StoreUnavailable
from tracker_health.stores.remote import answers, deadline
from tracker_health.stores.remote.paging import MOST_IDLE_PAGES, Paging

pytest.importorskip("mlflow")


@pytest.fixture(scope="module")
def well():
    """What each command takes of a server that is as it should be."""
    return cache(lambda target: cost_of(target, ""))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("target", "kind"), [pytest.param(one, kind, id=f"{one.name}: {kind}") for one in TARGETS for kind in one.kinds()]
)
def test_a_server_does_not_use_us_up(target, kind, well):
    pytest.importorskip(target.of)
    cost = judge(cost_of(target, kind), well(target))
    assert cost.wrong == [], line_of(cost)


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


class Paged(Listed):
    """One that says how many things it has asked for, as those of GraphQL do: ``count`` of its things make a page."""

    def __init__(self, count):
        super().__init__(itertools.repeat("again"), map(str, itertools.count()))
        self.objects, self.asked, self.index, self._count = [], 0, -1, count

    def __next__(self):
        self.index += 1
        if self.index == len(self.objects):
            self.asked += 1
            self.objects += [super(Paged, self).__next__() for _ in range(self._count)]
        return self.objects[self.index]


@pytest.mark.parametrize("count", [1, 3, 100])
def test_a_list_of_wandb_is_given_up_at_its_second_page_of_the_same_token(count):
    from tracker_health.stores.wandb.connection import Connection, pages

    connection, listed = Connection("http://127.0.0.1:9", "", None, {}), Paged(count)
    with pytest.raises(StoreUnavailable, match="same page token"):
        list(pages(connection, "the runs", listed, 100))
    assert listed.asked == 2


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


def dripping(handler):
    send(handler, 200, b"", Content_Length=10**9)
    while True:
        handler.wfile.write(b"0")
        time.sleep(0.02)


def test_a_large_file_that_drips_is_not_waited_for_as_long_as_it_is_large(monkeypatch, tmp_path):
    """Of a gigabyte, which may take an hour and more: of MLflow's requests, and of a web server's."""
    from mlflow.utils.rest_utils import MlflowHostCreds, http_request

    from tracker_health.stores.mlflow.transport import bound_requests
    from tracker_health.stores.remote import url

    bound_requests()
    monkeypatch.setattr(deadline, "REQUEST_SECONDS", 1)
    with serving(dripping) as uri:
        for download in (
            lambda: http_request(MlflowHostCreds(uri), "/x", "GET"),
            lambda: url._download(uri, 10**9, tmp_path / "file"),
        ):
            begin = time.monotonic()
            with pytest.raises(Exception, match=r"too long|drips"):
                deadline.within(20, download)
            assert time.monotonic() - begin < 10


def test_an_answer_that_stalls_ends_before_its_library_would_end_it(monkeypatch):
    from mlflow.utils.rest_utils import MlflowHostCreds, http_request

    from tracker_health.stores.mlflow.transport import bound_requests

    bound_requests()
    monkeypatch.setattr(deadline, "REQUEST_SECONDS", 1)
    begun = []

    def stalling(handler):
        begun.append(handler.path)
        send(handler, 200, b"{", Content_Length=1000)
        time.sleep(15)

    with serving(stalling) as uri:
        begin = time.monotonic()
        with pytest.raises(Exception, match="timed out"):
            deadline.within(20, http_request, MlflowHostCreds(uri), "/x", "GET", max_retries=0)
        assert (len(begun), time.monotonic() - begin < 10) == (1, True)
