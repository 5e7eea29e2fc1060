"""The commands that judge the runs they are given: check, annotate, report."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tracker_health.cli.baselines import AGAINST, compared_to
from tracker_health.cli.choices import batch_of, chosen_runs, settings_of, workers_of
from tracker_health.cli.group import cli
from tracker_health.cli.options import (
    ALL_RULES,
    BRIEF,
    CHOOSING,
    METRICS,
    REJUDGE,
    SHADOW,
    all_of,
    batch_options,
    choice_options,
    note_verbose,
    run_options,
    settle_json,
)
from tracker_health.cli.outcomes import finish, report_json, say_errors, say_left_out, say_unread, verdict_code
from tracker_health.cli.pages import Pages, pages_of
from tracker_health.errors import ConfigError
from tracker_health.terminal import EXIT_DONE, EXIT_RUN, open_page, say, write_page
from tracker_health.text import count, printable
from tracker_health.words.order import ORDERS
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tracker_health.report.result import Report
    from tracker_health.settings.sources import Effective
    from tracker_health.stores.found import Listed

PAGE = "health-report.html"
"""The page that ``report`` writes where it is given no name."""


@cli.command()
@run_options(fail_on="fail", batch=True)
@AGAINST
@SHADOW
def check(runs: tuple[str, ...], **choices: Any) -> None:
    """Judge runs and print the verdicts. Writes nothing."""
    from tracker_health.api import check_many

    settle_json(choices)
    batch = batch_of(choices)
    workers = workers_of(choices, batch)
    against = choices.pop("against")
    settings = settings_of(choices, fail_on="fail")
    listed = chosen_runs(runs, batch, settings, newest=True)
    if against:
        listed = listed.kept()
        settings = compared_to(against, settings, listed.runs)
    work = partial(check_many, config=settings.config, tracking_uri=settings.tracking_uri, workers=workers)
    finish(work, listed, choices, writes=False)


@cli.command()
@run_options(fail_on="never", batch=True)
@click.option("--dry-run", is_flag=True, help="Judge and show, but write nothing.")
@click.option("--force", is_flag=True, help="Judge and write even if nothing has changed since the last annotation.")
@REJUDGE
@METRICS
@SHADOW
@AGAINST
@click.option("--sidecar", is_flag=True, help="Of W&B runs on this machine write only files, and leave the log alone.")
@click.option("--alert", is_flag=True, help="Alert on trackio's pages also of runs that ended over a day ago.")
@click.option("--dask", metavar="ADDRESS", help="Do the runs on the Dask cluster of this scheduler (tcp://host:8786).")
def annotate(
    runs: tuple[str, ...], dry_run: bool, force: bool, sidecar: bool, dask: str | None, **choices: Any
) -> None:
    """Judge runs and write the verdicts onto them."""
    from tracker_health.api import annotate_many

    settle_json(choices)
    batch = batch_of(choices)
    workers = workers_of(choices, batch)
    against = choices.pop("against")
    settings = settings_of(choices, fail_on="never", writes=True)
    listed = chosen_runs(runs, batch, settings)
    if against:
        listed = listed.kept()
        settings = compared_to(against, settings, listed.runs)
    with _cluster(dask) as executor:
        work = partial(
            annotate_many,
            config=settings.config,
            tracking_uri=settings.tracking_uri,
            dry_run=dry_run,
            force=force,
            rejudge=choices.pop("rejudge"),
            sidecar=sidecar,
            alert=choices.pop("alert"),
            workers=workers,
            executor=executor,
        )
        finish(work, listed, choices, writes=not dry_run)


def _cluster(address: str | None) -> AbstractContextManager[Executor | None]:
    if not address:
        return nullcontext()
    from tracker_health.fleet.dask_cluster import dask_executor

    return dask_executor(address)


@cli.command()
@click.argument("runs", metavar="RUN...", nargs=-1)
@click.option(
    "-o",
    "--output",
    "path",
    metavar="FILE",
    help=f"The page to write, by default {PAGE}; - is standard output. A folder (pages/) also gets a page of each run.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@click.option("--card", metavar="FILE", help="Of one run a picture of 1,200 x 630 pixels; the page only with -o, too.")
@all_of(*batch_options(), *choice_options(fail_on="never"))
@AGAINST
@all_of(*CHOOSING)
@click.option("--json", "as_json", is_flag=True, help="One JSON report a line, on standard output; -o may be left out.")
@BRIEF
@ALL_RULES
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, callback=note_verbose, help="Tracebacks.")
def report(runs: tuple[str, ...], path: str | None, opens: bool, quiet: bool, card: str | None, **choices: Any) -> None:
    """Judge runs and write an HTML page about them: of one run its report, of several a table with their curves.

    A page is one file and needs no network. Of several runs, -o pages/ writes pages/index.html and a page of each run
    that it links to. Nothing is written onto the runs.
    """
    settle_json(choices)
    unnamed = not path
    path = path or (PAGE if opens or not (choices["as_json"] or card) else None)
    if path == "-" and opens:
        raise ConfigError("a page on standard output cannot be opened", "leave out -o -, or --open")
    if path == "-" and choices["as_json"]:
        raise ConfigError("page and JSON cannot both go to standard output", "give the page a file: -o report.html")
    batch = batch_of(choices)
    against = choices.pop("against")
    settings = settings_of(choices)
    listed = list(chosen_runs(runs, batch, settings, newest=True).runs)
    if against:
        settings = compared_to(against, settings, listed)
    if card:
        _write_card(card, listed, settings)
    pages = pages_of(path or "-")
    reports, html, complete = _judged(listed, batch.name, pages, settings, choices)
    kept = [one for one in reports if not choices["only"] or one.verdict in choices["only"]]
    if choices["order"]:
        kept.sort(key=lambda one: ORDERS[choices["order"]](one.place))
    for judged in kept if choices["as_json"] else ():
        say(report_json(judged, choices))
    if path:
        _write(pages.table, html, reports, quiet=quiet or choices["as_json"] or path == "-", unnamed=unnamed)
    if not quiet:
        say_left_out(len(reports) - len(kept), choices["only"])
    if path and opens:
        open_page(pages.table)
    gate = choices["fail_on"]
    codes = [verdict_code(one, gate) for one in reports]
    sys.exit(EXIT_RUN if not complete else max(codes, default=EXIT_DONE))


def _write_card(path: str, listed: list[str | Listed], settings: Effective) -> None:
    from tracker_health.api import card_of_run

    if len(listed) != 1:
        raise ConfigError(f"--card is a picture of one run, and these are {len(listed)}", "name one run")
    write_page(path, card_of_run(listed[0], config=settings.config, tracking_uri=settings.tracking_uri))


def _judged(
    listed: list[str | Listed], title: str, pages: Pages, settings: Effective, choices: dict[str, Any]
) -> tuple[list[Report], bytes, bool]:
    """The reports, the page about them, and whether all could be judged. What could not is said."""
    from tracker_health.api import page_of_run, table_of_runs

    options: dict[str, Any] = {"config": settings.config, "tracking_uri": settings.tracking_uri}
    if len(listed) == 1 and not (title or choices["only"] or pages.folder):
        page = page_of_run(listed[0], **options)
        say_unread(page.report)
        return [page.report], page.html, not page.report.errors
    shown = {"only": choices["only"], "sort": choices["order"] or "verdict", "page_at": pages.page_at}
    outcomes, html = table_of_runs(listed, title=title or count(len(listed), "run"), **shown, **options)
    for one in outcomes:
        say_errors(one, {**choices, "as_json": True}, brief=False)
    return [one.report for one in outcomes], html, all(one.complete for one in outcomes)


def _write(path: str, html: bytes, reports: list[Report], *, quiet: bool, unnamed: bool) -> None:
    write_page(path, html)
    if not quiet:
        verdicts = ", ".join(f"{sum(one.verdict is verdict for one in reports)} {verdict}" for verdict in Verdict)
        click.echo(f"{'wrote ' * unnamed}{printable(path)}: {verdicts}")
