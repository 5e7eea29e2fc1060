"""The credentials of the environment go to servers alone that the user has named, or that the configuration allows."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

import tracker_health as th
from tracker_health.cli import cli
from tracker_health.errors import RunError, StoreRefused
from tracker_health.stores.mlflow.stored_files.repositories import repository_of
from tracker_health.stores.remote import deadline, hosts

pytest.importorskip("mlflow")

RUN = "0123456789abcdef" * 2
SECRET = "s3cr3t-of-home"


@contextmanager
def server(status=401):
    """A server, and what was in the requests to it."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            asked.append({key.lower(): value for key, value in self.headers.items()} | {"path": self.path})
            content = json.dumps({"error_code": "UNAUTHENTICATED", "message": "who are you?"}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *_):
            pass

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}", asked
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


@pytest.fixture(autouse=True)
def _nobody_is_known(monkeypatch, tmp_path):
    for name in ("_named", "_allowed", "_withheld"):
        monkeypatch.setattr(hosts, name, set())
    monkeypatch.setattr(deadline, "_answered", {})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9/")


def page(uri):
    return f"{uri}/#/experiments/1/runs/{RUN}"


OF_MLFLOW = {
    "token": {"MLFLOW_TRACKING_TOKEN": SECRET},
    "password": {"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": SECRET},
}


def tells(asked):
    """Whether the secret was in a request, plain or as in a header."""
    encoded = base64.b64encode(f"me:{SECRET}".encode()).decode()
    return any(SECRET in json.dumps(one) or encoded in json.dumps(one) for one in asked)


@pytest.fixture(params=list(OF_MLFLOW))
def exported(request, monkeypatch):
    for name, value in OF_MLFLOW[request.param].items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("exported")
@pytest.mark.parametrize("work", [th.check, th.annotate, th.clear_annotations], ids=lambda one: one.__name__)
@pytest.mark.thinned(2)
def test_the_page_of_a_stranger_gets_none(work):
    with server() as (uri, asked):
        with pytest.raises(StoreRefused) as caught:
            work(page(uri))
        assert asked
        assert not tells(asked)
    host = uri.partition("://")[2]
    assert host in caught.value.hint
    assert f"trusted_hosts = ['{host}']" in caught.value.hint
    assert SECRET not in str(caught.value)


@pytest.mark.usefixtures("exported")
def test_the_page_of_the_configured_server_gets_them(monkeypatch):
    with server() as (uri, asked):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        with pytest.raises(StoreRefused) as caught:
            th.check(page(uri))
        assert tells(asked)
    assert "trusted_hosts" not in caught.value.hint


@pytest.mark.usefixtures("exported")
def test_a_server_that_is_named_as_the_tracking_uri_gets_them():
    with server() as (uri, asked):
        with pytest.raises(StoreRefused):
            th.check(RUN, tracking_uri=uri)
        assert tells(asked)


@pytest.mark.usefixtures("exported")
def test_a_page_of_the_server_that_is_named_beside_it_gets_them():
    with server() as (uri, asked):
        with pytest.raises(StoreRefused):
            th.check(page(uri), tracking_uri=uri)
        assert tells(asked)


@pytest.fixture
def elsewhere(monkeypatch):
    """As if 127.0.0.1 were another machine, to which requests go unencrypted."""
    monkeypatch.setattr(hosts, "_is_loopback_address", lambda _: False)


@pytest.mark.usefixtures("exported", "elsewhere")
def test_no_server_gets_them_over_plain_http_unless_that_is_allowed(monkeypatch):
    with server() as (uri, asked):
        with pytest.raises(StoreRefused) as caught:
            th.check(RUN, tracking_uri=uri)
        assert asked
        assert not tells(asked)
        host = uri.partition("://")[2]
        assert f"TRACKER_HEALTH_PLAIN_HTTP={host}" in caught.value.hint
        monkeypatch.setenv("TRACKER_HEALTH_PLAIN_HTTP", f"other.example,{host}")
        with pytest.raises(StoreRefused):
            th.check(RUN, tracking_uri=uri)
        assert tells(asked)


@pytest.mark.usefixtures("elsewhere")
def test_an_address_with_a_password_is_not_asked_over_plain_http():
    with server() as (uri, asked):
        with pytest.raises(StoreRefused, match="plain http"):
            th.check(uri.replace("://", f"://me:{SECRET}@") + "/last.ckpt")
        assert not asked


def test_a_name_that_begins_as_this_machine_is_another():
    assert not hosts.may_carry_secrets("http://127.evil.example/")
    assert not hosts.is_of_this_machine("http://127.evil.example/")
    safe = ["http://127.1.2.3:5000", "http://[::1]:5000", "http://localhost", "https://mlflow.example.com"]
    assert all(map(hosts.may_carry_secrets, safe))


@pytest.mark.usefixtures("exported")
@pytest.mark.parametrize("where", ["api", "file", "environment"])
@pytest.mark.thinned(2)
def test_a_host_that_the_configuration_allows_gets_them(where, tmp_path, monkeypatch):
    with server() as (uri, asked):
        host = uri.partition("://")[2]
        if where == "api":
            with pytest.raises(StoreRefused):
                th.check(page(uri), config=th.Config(trusted_hosts=(host,)))
        else:
            if where == "file":
                (tmp_path / "tracker-health.toml").write_text(f'trusted_hosts = ["{host}"]\n')
            else:
                monkeypatch.setenv("TRACKER_HEALTH_TRUSTED_HOSTS", f"other.example, {host}")
            assert CliRunner().invoke(cli, ["check", page(uri)]).exit_code == 3
        assert tells(asked)


@pytest.mark.slow
@pytest.mark.usefixtures("exported")
def test_artifacts_at_a_host_that_a_record_names_get_none():
    with server(500) as (home, _), server() as (elsewhere, asked):
        hosts.trust(home)
        place = elsewhere.replace("http:", "mlflow-artifacts:") + "/1/abc/artifacts"
        with pytest.raises(Exception, match="401"):
            repository_of(place, home).list_artifacts("health")
        assert asked
        assert not tells(asked)
        hosts.trust(elsewhere)
        with pytest.raises(Exception, match="401"):
            repository_of(place, home).list_artifacts("health")
        assert tells(asked)


def test_without_credentials_nothing_is_said_of_them():
    with server() as (uri, _), pytest.raises(StoreRefused) as caught:
        th.check(page(uri))
    assert "not sent" not in caught.value.hint


# Which servers are the user's own


@pytest.mark.parametrize(
    ("named", "url", "trusted"),
    [
        ("https://host/mlflow", "https://host/#/x", True),
        ("https://HOST:8443", "https://host/#/x", True),
        ("https://host", "http://host", False),  # in the clear
        ("http://host:5000", "https://host", True),
        ("http://host:5000", "http://host.example", False),
        ("http://host:5000", "http://other@host:5000", True),
        ("http://host:5000", "http://host:5000@evil", False),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000", True),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5001", False),  # of another user's on this machine
        ("http://localhost", "http://localhost:80", True),
        ("sqlite:///host", "http://host", False),
        ("mlruns", "http://mlruns", False),
        ("http://[::1]:5000", "http://[::1]:5000", True),
        ("http://[broken", "http://[broken", False),
        ("", "http://", False),
    ],
)
def test_who_is_trusted(named, url, trusted):
    hosts.trust(named)
    assert hosts.is_trusted(url) is trusted
    assert not hosts.is_allowed(url)


@pytest.mark.parametrize(
    ("host", "url", "allowed"),
    [
        ("mlflow.example", "http://mlflow.example:5000", True),
        ("mlflow.example", "https://mlflow.example", True),
        ("mlflow.example:5000", "http://mlflow.example:5001", False),
        ("mlflow.example", "https://mlflow.example.evil", False),
        ("127.0.0.1", "http://127.0.0.1:5001", True),
    ],
)
def test_who_is_allowed(host, url, allowed):
    hosts.allow(host)
    assert hosts.is_allowed(url) is hosts.is_trusted(url) is allowed


@pytest.mark.parametrize(
    ("uri", "here"),
    [
        ("mlruns", True),
        ("sqlite:///x.db", True),
        ("file:///x", True),
        ("postgresql://me:secret@localhost/db", True),
        ("postgresql://me:secret@db.example/db", False),
        ("http://localhost:5000", True),
        ("http://mlflow.example", False),
    ],
)
def test_what_is_of_this_machine(uri, here):
    assert hosts.is_of_this_machine(uri) is here


# W&B


@pytest.mark.slow
def test_a_key_for_a_server_of_ones_own_is_not_sent_to_the_cloud(monkeypatch, tmp_path):
    wandb = pytest.importorskip("wandb")
    from tracker_health.stores.wandb import connection

    reached = []
    monkeypatch.setattr(connection, "reach", reached.append)
    monkeypatch.setattr(wandb, "Api", lambda **options: reached.append(options) or object())
    for name, value in {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "k" * 40, "HOME": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    wandb.teardown()
    connection._kept.__dict__.clear()
    try:
        with pytest.raises(StoreRefused) as caught:
            th.check("https://wandb.ai/me/project/runs/abc123")
        assert reached == []
        assert "not sent to api.wandb.ai, which WANDB_BASE_URL does not name" in caught.value.hint
        with pytest.raises((RunError, AttributeError)):
            th.check("https://wandb.ai/me/project/runs/abc123", config=th.Config(trusted_hosts=("api.wandb.ai",)))
        assert reached[1]["api_key"] == "k" * 40
    finally:
        connection._kept.__dict__.clear()
        wandb.teardown()
