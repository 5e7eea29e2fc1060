"""The commands on the tool itself: explain, rules, config."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from tracker_health.cli import completing
from tracker_health.cli.choices import settings_of
from tracker_health.cli.group import cli
from tracker_health.cli.options import all_of, choice_options
from tracker_health.hooks.startup_path import why_not_at_start
from tracker_health.terminal import say_error
from tracker_health.text import printable

if TYPE_CHECKING:
    from tracker_health.settings.layers import SourcedValue


@cli.command()
@click.argument("code", shell_complete=completing.rules_and_causes)
@click.option(
    "--full", is_flag=True, help="The whole page: also why it matters, when it is wrong, how often it is right."
)
def explain(code: str, full: bool) -> None:
    """What a rule or a cause means, how it decides, and what to do. CODE is a rule's code or name, or a cause.

    Rules of installed plugins too, unless the environment has TRACKER_HEALTH_PLUGINS=0.
    """
    from tracker_health.render.docs import explained

    click.echo(explained(code, full=full), nl=False)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON, one rule a line.")
def rules(as_json: bool) -> None:
    """List the rules.

    Those of installed plugins too, unless the environment has TRACKER_HEALTH_PLUGINS=0.
    """
    from tracker_health.config import preset
    from tracker_health.rules.probe import explanation_of
    from tracker_health.rules.registry import plugins, probe_classes

    for error in plugins().errors:
        say_error(f"{error.source}: {error.message}")
    config = preset("default")
    for probe in probe_classes():
        votes = config.counts(probe.code, probe.status)
        summary = explanation_of(probe).summary
        if as_json:
            record = {
                "code": probe.code,
                "name": probe.name,
                "symptom": str(probe.symptom),
                "status": probe.status,
                "votes": votes,
                "summary": summary,
            }
            click.echo(json.dumps(record))
        else:
            click.echo(
                f"{probe.code}  {probe.name:<18} {probe.status:<8} {'' if votes else 'informational':<13} {summary}"
            )


@cli.command()
@all_of(*choice_options(fail_on="as the command has it"))
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@click.option("--all", "everything", is_flag=True, help="Also what is at its default.")
def config(as_json: bool, everything: bool, **choices: Any) -> None:
    """Show the configuration in force, and where each value came from.

    Command line, environment (TRACKER_HEALTH_...), tracker-health.toml, [tool.tracker-health] in pyproject.toml,
    preset, defaults: what comes first wins. Only what is not at its default is shown.
    """
    from tracker_health.judge.engine import configured_probes

    settings = settings_of(choices, writes=True)
    configured_probes(settings.config)
    shown = settings.described(everything=everything)
    if as_json:
        document = {
            "schema": "tracker-health/config/1",
            "files": list(settings.files),
            "config_digest": settings.config.digest,
            "settings": {key: {"value": one.value, "origin": one.origin} for key, one in shown.items()},
        }
        click.echo(json.dumps(document, allow_nan=False))
        return
    for line in _config_lines(settings.files, shown):
        click.echo(line)
    if settings.described(everything=True)["auto"].value and (why := why_not_at_start()):
        click.echo(f"# {printable(why, 600)}")


def _config_lines(files: tuple[str, ...], shown: dict[str, SourcedValue]) -> list[str]:
    written = [(f"{key} = {_toml(one.value)}", one.origin) for key, one in shown.items()]
    width = min(max((len(text) for text, _ in written), default=0), 60)
    head = f"# read: {', '.join(printable(file) for file in files) or 'no configuration file'}"
    lines = [f"{printable(text, 1000):<{width}}   {printable(origin)}" for text, origin in written]
    return [head, *(lines or ["# everything is at its default; --all shows it"])]


def _toml(value: Any) -> str:
    return "(not set)" if value is None else json.dumps(value, ensure_ascii=False)
