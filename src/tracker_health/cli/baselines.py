"""What runs are compared to: the option --against, and the command that freezes a baseline into a file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracker_health.cli.choices import settings_of
from tracker_health.cli.group import cli
from tracker_health.cli.options import all_of, choice_options, note_verbose
from tracker_health.terminal import Output, write_page
from tracker_health.text import count, printable

if TYPE_CHECKING:
    from tracker_health.settings.sources import Effective
    from tracker_health.stores.found import Listed

AGAINST = click.option(
    "--against",
    multiple=True,
    metavar="WHAT",
    help="Compare with a baseline: a file of baseline save, which votes; or experiment:NAME, project:NAME or a run "
    "(repeatable), which advise. Next to fewer than 5 runs a report shows curves and settings.",
)


def compared_to(against: Sequence[str], settings: Effective, runs: Iterable[str | Listed]) -> Effective:
    """The settings with a baseline: of a file, or of the runs that are named, without those that are judged. Of too few
    runs the settings have these themselves.

    Raises:
        ConfigError: there is no such baseline, or nothing to compare with.
    """
    from tracker_health.api import compared_with, refs_of

    if len(against) == 1 and Path(against[0]).is_file():
        return compared_to_file(against[0], settings)
    own = refs_of(runs, tracking_uri=settings.tracking_uri)
    config = compared_with(
        _named(against, settings),
        of=_in_words(against),
        config=settings.config,
        tracking_uri=settings.tracking_uri,
        without=own,
    )
    return replace(settings, config=config)


def compared_to_file(path: str, settings: Effective) -> Effective:
    """The settings with the baseline in a file.

    Raises:
        ConfigError: it cannot be read, or is no baseline.
    """
    from tracker_health.api import read_baseline

    return replace(settings, config=replace(settings.config, baseline=read_baseline(path)))


def _in_words(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else "those that were named"


def _named(names: Sequence[str], settings: Effective) -> Iterator[str | Listed]:
    """The runs that are named: one by one, or as those of an experiment or a project."""
    from tracker_health.api import runs_of_experiment, runs_of_project

    def of(name: str) -> Iterable[str | Listed]:
        kind, _, rest = name.partition(":")
        if kind == "experiment":
            return runs_of_experiment(rest, tracking_uri=settings.tracking_uri)
        return runs_of_project(rest) if kind == "project" else [name]

    return chain.from_iterable(map(of, names))


@cli.group()
def baseline() -> None:
    """Freeze what is usual for your runs into a file, to compare other runs to."""


@baseline.command()
@click.argument("runs", metavar="WHAT...", nargs=-1, required=True)
@click.option("-o", "--output", "path", metavar="FILE", required=True, help="The file to write, as baseline.json.")
@all_of(*choice_options(fail_on=None))
@click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=note_verbose, help="Tracebacks.")
def save(runs: tuple[str, ...], path: str, **choices: Any) -> None:
    """Judge runs, and write the band of those that passed and are comparable.

    WHAT is experiment:NAME (MLflow), project:[ENTITY/]PROJECT (W&B), project:trackio:PROJECT or a run. Nothing is
    written onto the runs. The file holds params of the runs and their ids.
    """
    from tracker_health.api import baseline_from
    from tracker_health.report.baseline import as_text

    settings = settings_of(choices)
    found = baseline_from(
        _named(runs, settings), of=_in_words(runs), config=settings.config, tracking_uri=settings.tracking_uri
    )
    write_page(path, as_text(found).encode())
    output = Output()
    if path != "-":
        output.print(f"{printable(path)}: baseline {found.digest} of {count(len(found.runs), 'run')}")
        for run, why in found.left_out:
            output.print(f"  left out: {printable(run)}: {printable(why)}")
    sys.exit(output.exit_code)


@baseline.command()
@click.argument("path", metavar="FILE")
@click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=note_verbose, help="Tracebacks.")
def show(path: str) -> None:
    """Show what a baseline says: its band, its runs, and why others were left out."""
    from tracker_health.api import read_baseline
    from tracker_health.render.baseline import baseline_lines

    output = Output()
    for line in baseline_lines(read_baseline(path)):
        output.print(line)
    sys.exit(output.exit_code)
