"""MLflow's webhooks, sent by a real server to the receiver of the examples, which checks the signature."""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tracker_health.stores.mlflow.registry import ModelName

from .conftest import server_of
from .test_gate import NAN, client_of, gating, registered, tags_of

pytestmark = pytest.mark.slow  # real servers

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "gate_webhook.py"
SECRET = "of the tests"
# Switches of the test server alone: by default MLflow sends over https and to public addresses only.
SWITCHES = {
    "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http,https",
    "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
    "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": base64.urlsafe_b64encode(b"k" * 32).decode(),
}
BODY = json.dumps({"entity": "model_version", "action": "created", "data": {"name": "net", "version": "3"}}).encode()


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("gate_webhook", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def signed(body=BODY, secret=SECRET, delivery="one", at=None):
    stamp = str(int(time.time() if at is None else at))
    digest = hmac.new(secret.encode(), f"{delivery}.{stamp}.".encode() + body, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"X-MLflow-Delivery-Id": delivery, "X-MLflow-Timestamp": stamp, "X-MLflow-Signature": signature}


def test_only_what_is_signed_young_and_new_counts(example, tmp_path):
    receiver, now = example.Signed(SECRET, str(tmp_path / "new" / "taken")), time.time()
    assert receiver.accepts(signed(), BODY, now)
    assert not receiver.accepts(signed(), BODY, now)  # again
    assert receiver.accepts(signed(delivery="two"), BODY, now)
    assert not receiver.accepts(signed(delivery="three"), BODY + b" ", now)
    assert not receiver.accepts(signed(delivery="three", secret="another"), BODY, now)
    assert not receiver.accepts(signed(delivery="three", at=now - 400), BODY, now)
    assert not receiver.accepts({**signed(delivery="three"), "X-MLflow-Timestamp": "²"}, BODY, now)
    assert not receiver.accepts({**signed(delivery="three"), "X-MLflow-Timestamp": "9" * 5_000}, BODY, now)
    assert not receiver.accepts({}, BODY, now)
    assert receiver.accepts(signed(delivery="three"), BODY, now)


def test_what_one_process_took_the_next_one_does_not(example, tmp_path):
    message, now = signed(), time.time()
    for later, is_taken in ((0, True), (1, False), (290, False)):
        assert example.Signed(SECRET, str(tmp_path / "taken")).accepts(message, BODY, now + later) is is_taken


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (BODY, ModelName(name="net", version="3")),
        (BODY.replace(b"created", b"deleted"), None),
        (BODY.replace(b'"3"', b'"3/../../4"'), None),
        (BODY.replace(b'"3"', b"3"), None),
        (BODY.replace(b"net", b"/net"), None),
        (BODY.replace(b"net", b"net/1"), None),
        (b"[" * 100_000, None),
        (b"\xff", None),
        (b"[]", None),
    ],
)
def test_a_message_names_a_version_or_nothing(example, body, model):
    assert example.model_of(body) == model


def full(_):
    raise queue.Full


def test_a_stranger_is_turned_away(example, monkeypatch, tmp_path):
    asked = queue.Queue()
    monkeypatch.setattr(example, "gate", asked.put)
    monkeypatch.setattr(example, "model_lines", lambda _: [])
    with example.Receiver(("127.0.0.1", 0), SECRET, str(tmp_path / "taken")) as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()

        def status_of(headers, body=BODY):
            request = urllib.request.Request(f"http://127.0.0.1:{receiver.server_port}/", body, headers)
            try:
                with urllib.request.urlopen(request, timeout=10) as response:
                    return response.status
            except urllib.error.HTTPError as error:
                error.close()
                return error.code

        assert status_of({}) == 401
        assert status_of(signed(secret="another")) == 401
        assert status_of(signed(b" " * 70_000), b" " * 70_000) == 413
        assert status_of({"Content-Length": "9" * 5_000}) == 413
        assert asked.empty()
        with monkeypatch.context() as patch:
            patch.setattr(receiver.waiting, "put_nowait", full)
            assert status_of(signed()) == 503
        assert status_of(signed()) == 202, "it is sent again"
        assert asked.get(timeout=10) == ModelName(name="net", version="3")
        receiver.shutdown()


@pytest.mark.exhaustive
def test_a_new_version_is_judged_when_the_webhook_says_so(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    for uri in server_of(folder, environment=SWITCHES):
        environment = os.environ | {"MLFLOW_TRACKING_URI": uri, "GATE_WEBHOOK_SECRET": SECRET}
        command = [sys.executable, str(EXAMPLE), "--port", "0", "--taken", str(tmp_path / "taken")]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as receiver:
            try:
                address = receiver.stdout.readline().split()[-1]
                client_of(uri).create_webhook("gate", address, ["model_version.created"], secret=SECRET)
                _, name, _ = registered(uri, tmp_path, weights=NAN)
                line = receiver.stdout.readline()
                assert line.startswith(f"models:/{name}/1: bad model (FAIL)")
                assert tags_of(uri, name)["health.verdict"] == "fail"
            finally:
                receiver.terminate()


@pytest.mark.exhaustive
def test_a_version_that_failed_loses_its_alias_when_the_webhook_says_so(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    for uri in server_of(folder, environment=SWITCHES):
        environment = os.environ | {"MLFLOW_TRACKING_URI": uri, "GATE_WEBHOOK_SECRET": SECRET}
        command = [sys.executable, str(EXAMPLE.with_name("verdict_webhook.py")), "--port", "0"]
        command += ["--taken", str(tmp_path / "taken")]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as receiver:
            try:
                address, client = receiver.stdout.readline().split()[-1], client_of(uri)
                client.create_webhook("verdict", address, ["model_version_tag.set"], secret=SECRET)
                (_, good, _), (_, bad, _) = registered(uri, tmp_path), registered(uri, tmp_path, weights=NAN)
                for name in (good, bad):
                    client.set_registered_model_alias(name, "candidate", "1")
                assert gating(uri, f"models:/{good}/1").exit_code == 0
                assert gating(uri, f"models:/{bad}/1").exit_code == 1
                assert receiver.stdout.readline() == f"{bad}/1 failed: it is not candidate any more\n"
                aliases = [client.get_registered_model(name).aliases for name in (good, bad)]
                assert aliases == [{"candidate": "1"}, {}]
            finally:
                receiver.terminate()


def test_mlflow_and_wandb_tell_nobody_of_a_runs_tags():
    """What the recipes say; one of them is out of date when this fails."""
    entities = {one.value for one in pytest.importorskip("mlflow.entities.webhook").WebhookEntity}
    events = {one.value for one in pytest.importorskip("wandb.automations").EventType}
    assert "model_version_tag" in entities
    assert not [one for one in entities if "run" in one]
    assert {"RUN_METRIC", "RUN_STATE"} <= events
    assert not [one for one in events if "RUN" in one and ("TAG" in one or "SUMMARY" in one)]
