"""The command that answers agents: mcp."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from tracker_health.cli.choices import settings_of
from tracker_health.cli.group import cli
from tracker_health.cli.options import CONFIG_FILE, note_verbose
from tracker_health.errors import optional_packages

if TYPE_CHECKING:
    from tracker_health.fleet.agents.tools import Tools


@cli.command()
@click.option("--root", "folders", multiple=True, metavar="DIR", help="Runs below this folder; repeatable.")
@click.option("--tracking-uri", metavar="URI", help="Runs of this MLflow store; without it of none.")
@click.option(
    "--project", "projects", multiple=True, metavar="ENTITY/PROJECT", help="Runs of this W&B project; repeatable."
)
@click.option("--allow-write", is_flag=True, help="With the tool annotate, which writes verdicts onto runs.")
@CONFIG_FILE
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="One setting, as in rules.diverged.sigmas=6."
)
@click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=note_verbose, help="Tracebacks.")
def mcp(folders: tuple[str, ...], projects: tuple[str, ...], allow_write: bool, **choices: Any) -> None:
    """Answer agents over the Model Context Protocol, on standard input and output.

    An MCP client starts it. It looks at nothing but the roots that are given here: folders, one MLflow store, W&B
    projects. It writes nothing without --allow-write. What runs are called and log goes to the model's vendor.

    \b
    As most clients are configured (mcpServers in their JSON):
      {"mcpServers": {"tracker-health": {
        "command": "tracker-health",
        "args": ["mcp", "--root", "/home/me/runs",
                 "--tracking-uri", "http://mlflow:5000"]}}}

    \b
    Claude Code:
      claude mcp add tracker-health -- tracker-health mcp --root .

    Needs the extra mcp: pip install 'tracker-health[mcp]'.
    """  # noqa: D301  \b keeps click from joining these lines
    with optional_packages("mcp"):
        from tracker_health.fleet.agents.server import make_server, serve
    from tracker_health.fleet.agents.secrets import Secrets

    uri: str = choices["tracking_uri"] or ""
    tools = _loading(folders, uri, projects, choices, writes=allow_write)
    server = make_server(tools, Secrets([uri, os.environ.get("WANDB_BASE_URL", "")]), allow_write=allow_write)
    serve(server, tools)


def _loading(
    folders: tuple[str, ...], uri: str, projects: tuple[str, ...], choices: dict[str, Any], *, writes: bool
) -> Callable[[], Tools]:
    """What gives the tools: they are loaded when they are first asked for, since that takes as long as the protocol.

    Raises:
        ConfigError: no root was given, or one makes no sense.
    """
    from tracker_health.fleet.agents.roots import Roots

    roots = Roots.of(folders, uri, projects)

    @cache
    def tools() -> Tools:
        from tracker_health.fleet.agents.tools import Tools as Loaded

        settings = settings_of(choices, writes=writes)
        roots.confine()
        return Loaded(roots=roots, config=settings.config)

    return tools
