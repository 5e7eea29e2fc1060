"""The command that takes everything tracker-health wrote off runs and models again: clear."""

from __future__ import annotations

import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tracker_health.cli.choices import batch_of, chosen_runs, settings_of
from tracker_health.cli.group import cli
from tracker_health.cli.options import CONFIG_FILE, TRACKING_URI, all_of, batch_options, note_verbose
from tracker_health.errors import ConfigError
from tracker_health.terminal import EXIT_DONE, EXIT_RUN, say, say_error, say_failure
from tracker_health.text import count, listing, printable, without_userinfo

if TYPE_CHECKING:
    from pathlib import Path

    from tracker_health.cli.choices import RunQuery
    from tracker_health.runs.clearing import OursOn
    from tracker_health.settings.sources import Effective
    from tracker_health.stores.base import Cleared, Ours
    from tracker_health.stores.found import Listed

Result = TypeVar("Result")
_NOUNS = {"model": "model", "artifact": "artifact"}
_KEPT_HINT = "take it off by hand, or clear again when its server lets it be deleted: MLflow 2 deletes no single file"


@cli.command()
@click.argument("runs", metavar="RUN|MODEL...", nargs=-1)
@all_of(*batch_options())
@click.option("--all", "everything", is_flag=True, help="All runs of the MLflow tracking server; models are named.")
@click.option("--acks", is_flag=True, help="Also what people answered to the verdicts (ack).")
@click.option("--dry-run", is_flag=True, help="Only count what would go, and say what stays.")
@TRACKING_URI
@CONFIG_FILE
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, callback=note_verbose, help="Tracebacks.")
def clear(runs: tuple[str, ...], acks: bool, dry_run: bool, verbose: bool, **choices: Any) -> None:
    """Take everything tracker-health wrote off runs and models again, and nothing else.

    MODEL is one that gate has judged: models:/NAME/VERSION, models:/NAME@ALIAS, models:/NAME (all its versions),
    models:/m-..., the page of a version, or wandb:ENTITY/PROJECT/ARTIFACT:v3. --experiment and --project are about
    runs; models that these made are cleared where they are named.

    What a tracker cannot delete is hidden. An MLflow metric gets a last value of NaN, which takes it off the run's
    page. Only filters with != in them still match it. What exec or a hook saw of a run's end (health.exit) goes as
    well. So does why its own training stopped it (health.stopped): without them such a run may look like another.
    What people answered to verdicts stays, unless --acks takes it off.

    Where something could not be deleted, it is named, and the exit code is 3.
    """
    from tracker_health.runs.clearing import clear_ours, count_ours, each_version
    from tracker_health.runs.run_config import resolve_config

    batch = batch_of(choices)
    settings = settings_of(choices)
    resolve_config(settings.config)
    uri = settings.tracking_uri
    code, counts = EXIT_DONE, WouldGo(acks=acks)

    def do(run: str | Path | Listed) -> int:
        if dry_run:
            counts.add(count_ours(run, uri))
            return EXIT_DONE
        return _say_cleared(run, clear_ours(run, uri, acks=acks), quiet=choices["quiet"])

    for given in _runs_to_clear(runs, batch, settings, everything=choices["everything"]):
        versions = _guarded(given, partial(each_version, given, uri), verbose=verbose)
        for run in versions or ():
            done = _guarded(run, partial(do, run), verbose=verbose)
            code = max(code, EXIT_RUN if done is None else done)
        code = EXIT_RUN if versions is None else code
    for line in counts.lines() if dry_run else ():
        say(line)
    if (
        batch.experiment
        and not choices["quiet"]
        and _guarded(batch.experiment, partial(_has_view, batch, uri), verbose=verbose)
    ):
        say(f"the view stays: tracker-health view --experiment {shlex.quote(batch.experiment)} --remove takes it off")
    sys.exit(code)


def _has_view(batch: RunQuery, uri: str | None) -> bool:
    """Whether the experiment has the view of verdicts, which is on it and on none of its runs."""
    from tracker_health.stores.mlflow.view import ExperimentView

    return ExperimentView(batch.experiment, uri).is_there()


def _guarded(run: object, work: Callable[[], Result], *, verbose: bool) -> Result | None:
    """What the work gives; None where it failed, and that was said: one bad run never stops the others."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001  see above
        say_failure(error, about=f"{without_userinfo(str(run))}: ", verbose=verbose)
        return None


def _say_cleared(run: object, cleared: Cleared, *, quiet: bool) -> int:
    """Say what became of a run, and what is left of ours; the exit code that this deserves."""
    shown = printable(without_userinfo(str(run)))
    if not quiet:
        say(f"{shown}: {_came_to(cleared)}")
    if not cleared.kept:
        return EXIT_DONE
    say_error(f"{shown}: could not be deleted: {listing(list(cleared.kept), 20)}", _KEPT_HINT)
    return EXIT_RUN


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
    said = f"; {count(cleared.acks, 'acknowledgement')} kept (--acks takes them off)" if cleared.acks else ""
    return f"{'cleared in part' if cleared.kept else 'cleared'}{hidden}{said}"


class WouldGo:
    """Counts of what clearing would take off, for each kind of runs and models. ``acks``: acknowledgements, too."""

    def __init__(self, *, acks: bool) -> None:
        self._acks = acks
        self._found: dict[str, list[Ours]] = defaultdict(list)

    def add(self, one: OursOn) -> None:
        """Count a run or a model."""
        self._found[one.kind].append(one.ours)

    def lines(self) -> Iterator[str]:
        """What would go, in the words of each tracker, and what would stay."""
        for kind, found in self._found.items() or {"": []}.items():
            had = sum(ours.found or (self._acks and bool(ours.acks)) for ours in found)
            parts = listing([*self._parts(kind, found)], 10) or "nothing"
            yield f"would go from {had} of {count(len(found), _NOUNS.get(kind, 'run'))}: {parts}"
        every = [ours for found in self._found.values() for ours in found]
        entries = sum(ours.acks for ours in every)
        stays = [] if self._acks or not entries else [f"{count(entries, 'acknowledgement')} (--acks takes them off)"]
        yield f"would stay: {'; '.join(stays) or 'nothing from tracker-health'}; all that is not ours"

    def _parts(self, kind: str, found: list[Ours]) -> Iterator[str]:
        """As counts with their words; in a folder all is in files."""
        tags, metrics = sum(ours.tags for ours in found), sum(ours.metrics for ours in found)
        notes = sum(ours.note for ours in found)
        if kind == "wandb" and tags + metrics:
            yield f"{tags + metrics} tags and keys of the summary"
        elif kind == "artifact" and tags:
            yield f"{count(tags, 'key')} of the metadata"
        elif kind in ("mlflow", "model") and tags:
            yield count(tags, "tag")
        elif kind == "trackio" and tags + metrics:
            yield f"{count(tags + metrics, 'mark')}, and its alert"
        if kind == "mlflow" and metrics:
            yield f"{count(metrics, 'metric')} (hidden by NaN, as MLflow cannot delete them)"
        if files := sum(ours.files for ours in found):
            yield count(files, "file")
        if kind == "mlflow" and notes:
            yield "1 block in a description" if notes == 1 else f"{notes} blocks in descriptions"
        if self._acks and (entries := sum(ours.acks for ours in found)):
            yield count(entries, "acknowledgement")
