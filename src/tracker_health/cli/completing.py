"""What a shell may complete: codes and names of rules, causes, experiments. Nothing that fails is shown."""

from __future__ import annotations

import os
from contextlib import suppress

import click

_SECONDS = "2"  # that a server has to list its experiments, while somebody waits with a finger on a key
_MOST = 200


def rules(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """Codes and names of rules."""
    from tracker_health.rules.registry import BUILT_IN

    return _beginning(begun, [word for rule in BUILT_IN for word in (rule.code, rule.name)])


def rules_and_causes(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """The same, and the names of causes."""
    from tracker_health.diagnosis import CAUSES

    return [*rules(context, parameter, begun), *_beginning(begun, [cause.name for cause in CAUSES])]


def experiments(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """Names of MLflow's experiments, of the server that the command line or the environment names."""
    os.environ |= {"MLFLOW_HTTP_REQUEST_TIMEOUT": _SECONDS, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    with suppress(Exception):  # no MLflow, no server, no permission: nothing to offer
        from tracker_health.stores.mlflow.connection import connect

        client, _uri = connect(context.params.get("tracking_uri"))
        return _beginning(begun, [one.name for one in client.search_experiments(max_results=_MOST)])
    return []


def _beginning(begun: str, words: list[str]) -> list[str]:
    # A name with a control character would be typed into the shell.
    return [word for word in words if word.lower().startswith(begun.lower()) and word.isprintable()]
