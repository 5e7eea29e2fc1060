"""The commands on two runs or more next to each other: compare, repaired."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from tracker_health.cli.choices import settings_of
from tracker_health.cli.group import cli
from tracker_health.cli.options import BRIEF, all_of, choice_options, note_verbose
from tracker_health.errors import ConfigError
from tracker_health.terminal import EXIT_DONE, EXIT_UNFINISHED, EXIT_VERDICT, Output, open_page, write_page
from tracker_health.text import count, printable

if TYPE_CHECKING:
    from tracker_health.runs.comparing import Comparison, Repair

_MOST_ROWS = 12
EXIT_SOMETHING_NEW = 5
"""Of ``repaired``: the old cause is gone, and something as severe is new."""

_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document, on standard output.")
_QUIET = click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
_VERBOSE = click.option(
    "-v", "--verbose", is_flag=True, expose_value=False, callback=note_verbose, help="All rows, and tracebacks."
)


@cli.command()
@click.argument("bad", metavar="BAD")
@click.argument("goods", metavar="GOOD...", nargs=-1, required=True)
@click.option(
    "-o", "--output", "path", metavar="FILE", help="Also write a page with both curves; - is standard output."
)
@click.option("--open", "opens", is_flag=True, help="Open that page in the browser.")
@all_of(*choice_options(fail_on=None))
@_JSON
@BRIEF
@_QUIET
@_VERBOSE
@click.pass_context
def compare(
    context: click.Context, /, bad: str, goods: tuple[str, ...], path: str | None, opens: bool, **choices: Any
) -> None:
    """Show what is unlike between a run and one or more others: settings, curves, findings, weights. Writes nothing.

    Each run may be a folder, a run of MLflow or of W&B. Curves are put over each other by step, by epoch or by the
    share of the plan. Named is the first place at which they clearly part: by more than noise, and by more than another
    seed brings. Several good runs make a band.
    """
    from tracker_health.api import compare as compared

    choices["as_json"] |= choices["in_brief"]
    if path == "-" and (choices["as_json"] or opens):
        raise ConfigError("a page on standard output leaves no room for anything else", "give the page a file: -o FILE")
    settings = settings_of(choices)
    found = compared(bad, goods, config=settings.config, tracking_uri=settings.tracking_uri)
    page = path or (_PAGE if opens else "")
    if page:
        from tracker_health.render.compared import compared_page

        write_page(page, compared_page(found))
    output = Output()
    if choices["as_json"]:
        output.print(json.dumps(found.brief() if choices["in_brief"] else found.to_json(), allow_nan=False))
    elif not choices["quiet"] and page != "-":
        for line in _comparison_lines(found, every=_is_verbose(context)):
            output.print(line)
    if opens:
        open_page(page)
    sys.exit(output.exit_code)


_PAGE = "health-compare.html"


def _is_verbose(context: click.Context) -> bool:
    from tracker_health.cli.options import VERBOSE_KEY

    return bool(context.meta.get(VERBOSE_KEY))


def _comparison_lines(found: Comparison, *, every: bool) -> Iterator[str]:
    """The answer first, then what is unlike, the most telling of each kind."""
    most = None if every else _MOST_ROWS
    names = ", ".join(f"{one.shown} ({one.report.verdict})" for one in found.goods)
    yield f"{found.bad.shown} ({found.bad.report.verdict}) next to {names}: {found.headline}"
    yield from _rows("parted", [one.said for one in found.partings.found], most)
    yield from _rows("settings", [one.said for one in found.changes], most)
    if not found.changes:
        yield f"settings: none differs of {found.same} that are known" if found.same else "settings: none is known"
    own = [f"{code} {found.bad.found[code].message}" for code in found.only_own]
    there = [f"{code} {found.goods[0].found[code].message}" for code in found.only_there]
    yield from _rows("found only here", own, most)
    yield from _rows("found only there", there, most)
    yield from _rows("weights", [] if found.tensors is None else found.tensors.lines(), most)
    yield from _rows("not sure", list(found.unsure), most)


def _rows(title: str, rows: list[str], most: int | None) -> Iterator[str]:
    if not rows:
        return
    yield f"{title}:"
    yield from (f"  {printable(row, 300)}" for row in rows[:most])
    if most is not None and len(rows) > most:
        yield f"  and {len(rows) - most} more: -v shows them"


@cli.command()
@click.argument("old")
@click.argument("new")
@click.option(
    "--seed", "seeds", multiple=True, metavar="RUN", help="A run set as NEW with another seed; may be repeated."
)
@click.option("--write", "writes", is_flag=True, help="Put the answer onto both runs.")
@all_of(*choice_options(fail_on=None))
@_JSON
@BRIEF
@_QUIET
@_VERBOSE
def repaired(old: str, new: str, seeds: tuple[str, ...], writes: bool, **choices: Any) -> None:
    """Say whether NEW repairs OLD: the cause is gone, nothing as bad is new, and it ends better beyond noise.

    The runs are judged, and compared at the same share of their plans. What counts as noise is the scatter of the runs
    that --seed names; without them the run's own scatter, and what another seed brings to healthy runs.

    \b
    Exit codes
      0  repaired
      1  not repaired
      4  cannot tell: shorter, another metric, other data
      5  repaired, and something new that is as severe
    """  # noqa: D301  \b keeps click from joining these lines
    from tracker_health.api import repaired as judged
    from tracker_health.words.repairs import Answer

    settings = settings_of(choices)
    found = judged(old, new, seeds=seeds, config=settings.config, tracking_uri=settings.tracking_uri)
    written: list[str] = []
    if writes:
        from tracker_health.api import write_repaired

        written = write_repaired(found, old, new, config=settings.config, tracking_uri=settings.tracking_uri)
    output = Output()
    if choices["as_json"] or choices["in_brief"]:
        document = found.brief() if choices["in_brief"] else found.to_json()
        output.print(json.dumps({**document, "written": written}, allow_nan=False))
    elif not choices["quiet"]:
        for line in _repair_lines(found):
            output.print(line)
        if writes:
            said = f"written onto {' and '.join(written)}" if written else "both runs say so already"
            output.print(f"  {said}")
    codes = {
        Answer.REPAIRED: EXIT_DONE,
        Answer.NOT_REPAIRED: EXIT_VERDICT,
        Answer.CANNOT_TELL: EXIT_UNFINISHED,
        Answer.SOMETHING_NEW: EXIT_SOMETHING_NEW,
    }
    sys.exit(output.exit_code or codes[found.answer])


def _repair_lines(found: Repair) -> Iterator[str]:
    old, new = (f"{one.shown} ({one.report.verdict})" for one in (found.old, found.new))
    yield f"{found.answer.upper()}  {old} -> {new}: {found.because}"
    if found.cause:
        yield f"  was       {found.cause}"
    yield from (f"  changed   {one.as_change}" for one in found.changes[:3])
    if len(found.changes) > 3:
        yield f"            and {count(len(found.changes) - 3, 'more setting')}"
    yield from (f"  end       {one.said}" for one in found.ends[:3])
    yield from (f"  new       {one}" for one in found.added)
    yield from (f"  new       {one}, less severe" for one in found.also)
    yield from (f"  not compared: {one}" for one in found.not_compared)
