"""Take an alias off a version of a registered model when the gate has found it bad, by MLflow's webhook.

    export GATE_WEBHOOK_SECRET=...        # the secret of the webhook
    export MLFLOW_TRACKING_URI=https://mlflow.example.com
    python examples/verdict_webhook.py --port 8080

    import mlflow
    mlflow.MlflowClient().create_webhook(
        "verdict", "https://act.example.com/", ["model_version_tag.set"], secret=os.environ["GATE_WEBHOOK_SECRET"]
    )

MLflow has events for tags of model versions, and none for tags of runs. So `tracker-health gate` (or `gate --watch`)
writes the tag `health.verdict` onto the version, and MLflow sends that. Messages are checked as in `gate_webhook.py`.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from gate_webhook import Receiver, main
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from tracker_health.text import printable

ALIAS = os.environ.get("VERDICT_ALIAS", "candidate")


class Version(NamedTuple):
    """A version of a registered model."""

    name: str
    version: str


def bad_version_of(body: bytes) -> Version | None:
    """The version that a message says has failed; None for any other message."""
    try:
        message = json.loads(body)
        kind, data = (message["entity"], message["action"]), message["data"]
        said = (*kind, data["key"], data["value"])
        found = Version(data["name"], data["version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_bad = said == ("model_version_tag", "set", "health.verdict", "fail")
    return found if is_bad and all(isinstance(part, str) for part in found) else None


class VerdictReceiver(Receiver):
    """Takes the alias off versions that failed."""

    def named_in(self, body: bytes) -> Version | None:
        """The version that failed."""
        return bad_version_of(body)

    def act(self, model: Version) -> None:
        """Take the alias off, if the version has it now: a message may be late, or about an older version."""
        shown = printable(f"{model.name}/{model.version}", 300)
        try:
            client = MlflowClient()
            there = client.get_model_version_by_alias(model.name, ALIAS)
            if there.version == model.version:
                client.delete_registered_model_alias(model.name, ALIAS)
                print(f"{shown} failed: it is not {ALIAS} any more", flush=True)
        except MlflowException as error:  # no such alias, say: the next message may be about one
            print(f"{shown}: {printable(error, 300)}", flush=True)


if __name__ == "__main__":
    main(VerdictReceiver)
