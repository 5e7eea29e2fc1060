"""The command that takes everything tracker-health wrote off runs again: clear."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from tracker_health.cli.choices import batch_of, chosen_runs, settings_of
from tracker_health.cli.group import cli
from tracker_health.cli.options import CONFIG_FILE, TRACKING_URI, all_of, batch_options, note_verbose
from tracker_health.errors import ConfigError
from tracker_health.terminal import EXIT_DONE, EXIT_RUN, say_failure
from tracker_health.text import count, listing, printable, without_userinfo

if TYPE_CHECKING:
    from tracker_health.cli.choices import RunQuery
    from tracker_health.settings.sources import Effective
    from tracker_health.stores.base import Cleared, Ours
    from tracker_health.stores.found import Listed


@cli.command()
@click.argument("runs", metavar="RUN...", nargs=-1)
@all_of(*batch_options())
@click.option("--all", "everything", is_flag=True, help="All runs of the MLflow tracking server.")
@click.option("--acks", is_flag=True, help="Also what people answered to the verdicts (ack).")
@click.option("--dry-run", is_flag=True, help="Only count what would go, and say what stays.")
@TRACKING_URI
@CONFIG_FILE
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, callback=note_verbose, help="Tracebacks.")
def clear(runs: tuple[str, ...], acks: bool, dry_run: bool, verbose: bool, **choices: Any) -> None:
    """Take everything tracker-health wrote off runs again, and nothing else.

    What a tracker cannot delete is hidden. An MLflow metric gets a last value of NaN, which takes it off the run's
    page. Only filters with != in them still match it. What exec or a hook saw of a run's end (health.exit) goes as
    well. So does why its own training stopped it (health.stopped): without them such a run may look like another.
    What people answered to verdicts stays, unless --acks takes it off.
    """
    from tracker_health.api import clear_annotations, ours_on

    batch = batch_of(choices)
    settings = settings_of(choices)
    code, counts = EXIT_DONE, WouldGo(acks=acks)
    for run in _runs_to_clear(runs, batch, settings, everything=choices["everything"]):
        shown = without_userinfo(str(run))
        try:
            if dry_run:
                counts.add(ours_on(run, config=settings.config, tracking_uri=settings.tracking_uri))
                continue
            cleared = clear_annotations(run, config=settings.config, tracking_uri=settings.tracking_uri, acks=acks)
        except Exception as error:  # noqa: BLE001  one bad run never stops the others
            say_failure(error, about=f"{shown}: ", verbose=verbose)
            code = EXIT_RUN
            continue
        if not choices["quiet"]:
            click.echo(f"{printable(shown)}: {_came_to(cleared)}")
    for line in counts.lines() if dry_run else ():
        click.echo(line)
    sys.exit(code)


def _runs_to_clear(
    runs: tuple[str, ...], batch: RunQuery, settings: Effective, *, everything: bool
) -> Iterable[str | Listed]:
    from tracker_health.api import runs_of_server

    if not everything:
        return chosen_runs(runs, batch, settings).runs
    if runs or batch.name:
        raise ConfigError("--all is of all runs, and some were named", "leave out one of the two")
    return runs_of_server(tracking_uri=settings.tracking_uri)


def _came_to(cleared: Cleared) -> str:
    if not cleared.found:
        return "nothing from tracker-health on it"
    hidden = f"; hidden, as they cannot be deleted: {listing(list(cleared.hidden), 20)}" if cleared.hidden else ""
    kept = f"; could not be deleted: {listing(list(cleared.kept), 20)}" if cleared.kept else ""
    said = f"; {count(cleared.acks, 'acknowledgement')} kept (--acks takes them off)" if cleared.acks else ""
    return f"cleared{hidden}{kept}{said}"


class WouldGo:
    """Counts of what clearing runs would take off. ``acks``: acknowledgements, too."""

    def __init__(self, *, acks: bool) -> None:
        self._acks = acks
        self._runs = self._found = self._tags = self._metrics = self._files = self._notes = 0
        self._entries = 0

    def add(self, ours: Ours) -> None:
        """Count a run."""
        self._runs += 1
        self._found += ours.found or (self._acks and bool(ours.acks))
        self._tags += ours.tags
        self._metrics += ours.metrics
        self._files += ours.files
        self._notes += ours.note
        self._entries += ours.acks

    def lines(self) -> Iterator[str]:
        """What would go, and what would stay."""
        blocks = "1 block in a description" if self._notes == 1 else f"{self._notes} blocks in descriptions"
        parts = [count(self._tags, "tag"), count(self._files, "file"), blocks]
        entries = count(self._entries, "acknowledgement")
        went = [*parts, *([entries] if self._acks else [])]
        hidden = f"; hidden, as MLflow cannot delete them: {count(self._metrics, 'metric')}" if self._metrics else ""
        yield f"would go from {self._found} of {count(self._runs, 'run')}: {', '.join(went)}{hidden}"
        stays = [] if self._acks or not self._entries else [f"{entries} (--acks takes them off)"]
        yield f"would stay: {'; '.join(stays) or 'nothing from tracker-health'}; all that is not ours"
