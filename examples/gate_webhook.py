"""Ask the gate about each new version of a registered model, when MLflow's webhook says that there is one.

    export GATE_WEBHOOK_SECRET=...        # the secret of the webhook
    export MLFLOW_TRACKING_URI=https://mlflow.example.com
    python examples/gate_webhook.py --port 8080

    import mlflow
    mlflow.MlflowClient().create_webhook(
        "gate", "https://gate.example.com/", ["model_version.created"], secret=os.environ["GATE_WEBHOOK_SECRET"]
    )

Webhooks are an experimental feature of MLflow. It sends them to public addresses over https alone: put this behind a
proxy that has a certificate. `tracker-health gate --watch` needs neither, and is the better choice where it will do.

A message counts only with a signature that is made with the secret, once, and while it is young. It says which version
there is and nothing else; everything else is asked of the server that MLFLOW_TRACKING_URI names.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import os
import queue
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tracker_health.errors import TrackerHealthError
from tracker_health.fleet.gate import gate
from tracker_health.render.model_card import model_lines
from tracker_health.stores.mlflow.registry import ModelName, version_named
from tracker_health.text import printable

MAX_BYTES = 65_536
YOUNG_SECONDS = 300.0
TAKEN = "~/.local/state/tracker-health/webhook.sqlite"
_NUMBER = re.compile(r"[0-9]{1,12}")
MOST_WAITING = 100


class Signed:
    """Tells messages that were signed with a secret from all others, and takes each once.

    Which it took is in a file: while a message is young, somebody could send it again to the next process.
    """

    def __init__(self, secret: str, taken: str = TAKEN) -> None:
        self._secret = secret.encode()
        place = Path(taken).expanduser()
        place.parent.mkdir(parents=True, exist_ok=True)
        self._taken = sqlite3.connect(place, check_same_thread=False, isolation_level=None)
        self._taken.execute("CREATE TABLE IF NOT EXISTS taken (delivery TEXT PRIMARY KEY, at REAL)")
        self._lock = threading.Lock()

    def accepts(self, headers: Mapping[str, str], body: bytes, now: float) -> bool:
        """Whether a message is signed, young, and new. ``now``: in seconds since 1970."""
        delivery = headers.get("X-MLflow-Delivery-Id", "")
        stamp = headers.get("X-MLflow-Timestamp", "")
        if not (delivery and _NUMBER.fullmatch(stamp)) or abs(now - int(stamp)) > YOUNG_SECONDS:
            return False
        content = f"{delivery}.{stamp}.".encode() + body
        digest = base64.b64encode(hmac.new(self._secret, content, hashlib.sha256).digest()).decode()
        given = headers.get("X-MLflow-Signature", "").encode()
        if not hmac.compare_digest(given, f"v1,{digest}".encode()):
            return False
        with self._lock:
            self._taken.execute("DELETE FROM taken WHERE at < ?", (now - 2 * YOUNG_SECONDS,))
            # At once, so that of two processes one takes it.
            return self._taken.execute("INSERT OR IGNORE INTO taken VALUES (?, ?)", (delivery, now)).rowcount == 1

    def forget(self, headers: Mapping[str, str]) -> None:
        """Take a message again that nothing was made of."""
        with self._lock:
            self._taken.execute("DELETE FROM taken WHERE delivery = ?", (headers.get("X-MLflow-Delivery-Id", ""),))


def model_of(body: bytes) -> ModelName | None:
    """The model version that a message says was created; None for any other message, and for one that names none.

    Not as text, which would have to be parsed again: what a message names is what is judged.
    """
    try:
        message = json.loads(body)
        name, version = message["data"]["name"], message["data"]["version"]
        created = (message["entity"], message["action"]) == ("model_version", "created")
        is_plain = isinstance(name, str) and isinstance(version, str)
        return version_named(name, version) if created and is_plain else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    except TrackerHealthError as error:
        print(f"a message names no model: {printable(error)}", flush=True)
        return None


class Receiver(ThreadingHTTPServer):
    """Takes messages, and answers at once: MLflow does not wait long. The gate is asked one model after the other."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], secret: str, taken: str = TAKEN) -> None:
        super().__init__(address, _Handler)
        self.signed = Signed(secret, taken)
        self.waiting: queue.Queue[Any] = queue.Queue(MOST_WAITING)
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            self.act(self.waiting.get())

    def named_in(self, body: bytes) -> Any:
        """What a message asks to be done; None for nothing."""
        return model_of(body)

    def act(self, model: ModelName) -> None:
        """Do it."""
        try:
            lines = model_lines(gate(model))
        except TrackerHealthError as error:  # a policy that cannot be read, say: the next one may be judged
            lines = [f"{printable(model.shown, 400)}: {printable(error)}"]
        print("\n".join(lines), flush=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = 10
    server: Any

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not (_NUMBER.fullmatch(length) and int(length) <= MAX_BYTES):
            self._answer(413)
            return
        body = self.rfile.read(int(length))
        headers = {name: self.headers.get(name, "") for name in _HEADERS}
        if not self.server.signed.accepts(headers, body, time.time()):
            self._answer(401)
            return
        named = self.server.named_in(body)
        try:
            if named:
                self.server.waiting.put_nowait(named)
        except queue.Full:
            self.server.signed.forget(headers)
            self._answer(503)  # MLflow tries again, with the same id
            return
        self._answer(202)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """What came in is no business of a log: a stranger may have sent it."""


_HEADERS = ("X-MLflow-Delivery-Id", "X-MLflow-Timestamp", "X-MLflow-Signature")


def main(receive: type[Receiver] = Receiver) -> None:
    """Listen until somebody ends it."""
    options = argparse.ArgumentParser(description="Act on what MLflow's webhooks say.")
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=8080)
    options.add_argument("--taken", default=TAKEN, help="the file of the messages that were taken")
    chosen = options.parse_args()
    secret = os.environ.get("GATE_WEBHOOK_SECRET", "")
    if not secret:
        sys.exit("GATE_WEBHOOK_SECRET is not set: without a secret anybody could send messages")
    with receive((chosen.host, chosen.port), secret, chosen.taken) as receiver:
        print(f"listening on http://{chosen.host}:{receiver.server_port}", flush=True)
        receiver.serve_forever()


if __name__ == "__main__":
    main()
