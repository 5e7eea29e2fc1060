"""The runs of a W&B project."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tracker_health.errors import ConfigError, RunNotFound
from tracker_health.evidence.kin import Kin, results_of, settings_of_kin
from tracker_health.stores.base import TaggedRun
from tracker_health.stores.common.record import of_run, tagged
from tracker_health.stores.common.standing import Standing, standing
from tracker_health.stores.found import Period, SweptListed
from tracker_health.stores.remote.answers import ExcessiveAnswer
from tracker_health.stores.wandb.address import Address, Project, project_of
from tracker_health.stores.wandb.connection import Connection, connect, pages
from tracker_health.stores.wandb.marks import marks_in, marks_of_tags
from tracker_health.stores.wandb.online import (
    OnlineRun,
    acknowledgements_of,
    evidence_of,
    heard_of,
    is_live,
    last_step_of,
    open_online_run,
    ref_of,
    seconds_of,
)
from tracker_health.stores.wandb.values import OWN_TAGS, flattened, is_metric, number, params_of
from tracker_health.text import printable

_PAGES = (100, 10, 1)
_CHARACTERS, _MOST_KEYS = 200, 20_000


@dataclass(frozen=True)
class ListedOnlineRun:
    """A run as a search found it, opened by what its server calls it and not by its text, ``wandb:ENTITY/PROJECT/RUN``:
    that may say something else, where a project is called ``sweeps``.
    """

    address: Address

    def __str__(self) -> str:
        return self.address.shown

    def open(self) -> OnlineRun:
        """The run as it is now."""
        return open_online_run(self.address)


def listed_runs(name: str, where: str = "") -> Iterator[ListedOnlineRun]:
    """The runs of ``ENTITY/PROJECT``, ``PROJECT`` of one's own, or of one sweep of it (``/sweeps/ID`` behind that), the
    newest first.

    ``where``: a filter in W&B's own language, as JSON.

    Raises:
        ConfigError: the filter is no JSON object.
        RunNotFound: there is no such project, or sweep of it.
        RunError: the server cannot be reached, or does not understand the filter.
    """
    for _, address in _runs(name, _filters(where)):
        yield ListedOnlineRun(address)


def swept_runs(name: str, period: Period, *, kin: bool = False) -> Iterator[SweptListed]:
    """The runs of a project that a sweep is about. ``kin``: with their relations, for which more of each is listed.

    Raises:
        RunError: as for ``listed_runs``.
    """
    for run, address in _runs(name, {}, lazy=not kin):
        heard, live = heard_of(run), is_live(run)
        quiet = live and heard > period.silent_since  # which is by its heartbeat: of its points the list says nothing
        if period.since <= heard and not (quiet and period.quiet_since is None):
            annotated = bool(OWN_TAGS.intersection(run.tags))
            related = kin_of(run, "/".join(address[:2])) if kin else None
            state = json.dumps([run.state, heard, sorted(run.tags)])
            yield SweptListed(
                name=address.shown,
                state=state,
                annotated=annotated,
                silent=live,
                since=heard,
                kin=related,
                listed=ListedOnlineRun(address),
                quiet=quiet,
            )


def tagged_runs(name: str, where: str = "", since: float | None = None, *, kin: bool = False) -> Iterator[TaggedRun]:
    """What the summaries of a project's runs say of their health. ``since``: of those that ended at that time (seconds
    since 1970) or later, or are still running. ``kin``: with their relations.

    Raises:
        RunError: as for ``listed_runs``.
    """
    for run, address in _runs(name, _filters(where), lazy=False):
        heard = heard_of(run)
        if since is None or is_live(run) or heard is None or heard >= since:
            ref = ref_of(run, address, connect().app)
            marks, user = of_run(marks_in(run.summary_metrics), str(run.id)), str(getattr(run.user, "username", ""))
            yield tagged(
                ref,
                marks,
                user=user,
                experiment=(project := "/".join(address[:2])),
                started=seconds_of(run.created_at),
                last_step=last_step_of(run),
                acks=acknowledgements_of(run),
                kin=kin_of(run, project) if kin else None,
            )


def kin_of(run: Any, where: str) -> Kin:
    """What is known by a run of the SDK's that was listed with its config and summary. ``where``: its project."""
    name, job_type = _text(run.name), _text(getattr(run, "job_type", ""))
    listed = islice(flattened(run.summary_metrics), _MOST_KEYS)
    last = {key: known for key, value in listed if is_metric(key) and (known := number(value)) is not None}
    step = last_step_of(run)
    return Kin(
        where=where,
        id=_text(run.id),
        name=name or _text(run.id),
        group=_text(getattr(run, "group", "")),
        job_type=job_type,
        sweep=_text(getattr(run, "sweep_name", "")),
        started=seconds_of(run.created_at),
        ended=None if is_live(run) else heard_of(run),
        last_step=step if step >= 0 else None,
        results=results_of(last),
        state=evidence_of(run),
        **settings_of_kin(params_of(run.config), [name, job_type, *map(str, run.tags)]),
    )


def _text(value: object) -> str:
    return value[:_CHARACTERS] if isinstance(value, str) else ""


def standings(name: str) -> Iterator[tuple[str, Standing]]:
    """The ids of a project's runs, the newest first, and how each stands by its record; files are not looked at.

    Raises:
        RunError: as for ``listed_runs``.
    """
    for run, _ in _runs(name, {}, lazy=False):
        marks = of_run(marks_in(run.summary_metrics), str(run.id))
        yield str(run.id), standing(marks | marks_of_tags(run.tags, marks), live=is_live(run))


def may_write(name: str) -> bool | None:
    """Whether the server says that the key may write to a project; None where it does not say.

    Raises:
        RunError: the server cannot be reached.
    """
    project = project_of(name)
    connection = connect(project.server)
    names = {"entity": project.entity or connection.own_entity(), "project": project.name}
    there = connection.about_project(
        f"the W&B project {printable(name, 200)}", "IsProjectReadOnly", "readOnly", **names
    )
    return None if there.get("readOnly") is None else not there["readOnly"]


def _runs(name: str, filters: dict[str, Any], *, lazy: bool = True) -> Iterator[tuple[Any, Address]]:
    """The SDK's runs of a project, with their addresses, the newest first; not ``lazy``: with their summaries."""
    project = project_of(name)
    connection = connect(project.server)
    if project.sweep:
        filters = {"$and": [{"sweep": project.sweep}, *([filters] if filters else [])]}
    entity = project.entity or connection.own_entity()
    path = f"{entity}/{project.name}"
    doing = f"the runs of the W&B project {printable(path, 200)}"
    options: dict[str, Any] = {"filters": filters, "order": "-created_at", "lazy": lazy}
    is_empty = True
    try:
        for run in _in_smaller_pages(connection, doing, path, options):
            is_empty = False
            yield run, Address(entity, project.name, str(run.id))
    except RunNotFound:
        raise RunNotFound(f"there is no W&B project {printable(path, 200)}", "check entity and project") from None
    if project.sweep and is_empty:  # for W&B runs of a sweep that is not there are none
        _require_sweep(connection, entity, project)


def _in_smaller_pages(connection: Connection, doing: str, path: str, options: Mapping[str, Any]) -> Iterator[Any]:
    """The runs of a project, none twice. Where a page is too large an answer, as of runs with long summaries, the rest
    comes in pages of fewer.
    """
    seen: set[str] = set()
    for size in _PAGES:
        connection.api.flush()  # the SDK keeps what it once listed, and a sweep that repeats would see no new run
        listed = connection.asked(doing, connection.api.runs, path, per_page=size, **options)
        try:
            for run in pages(connection, doing, listed, size):
                if str(run.id) not in seen:
                    seen.add(str(run.id))
                    yield run
        except ExcessiveAnswer:
            if size == _PAGES[-1]:
                raise
        else:
            return


def _require_sweep(connection: Connection, entity: str, project: Project) -> None:
    shown = printable(f"{project.sweep} in the W&B project {entity}/{project.name}", 300)
    wanted, names = "sweep(sweepName: $sweep) { id }", {"entity": entity, "project": project.name}
    there = connection.about_project(f"the sweep {shown}", "GetSweep", wanted, **names, sweep=project.sweep)
    if not there.get("sweep"):
        raise RunNotFound(f"there is no sweep {shown}", "its id is the end of its page's address, /sweeps/ID")


def _filters(where: str) -> dict[str, Any]:
    if not where:
        return {}
    example = """for a project a filter is JSON, as in '{"tags": {"$in": ["health:fail"]}}'"""
    try:
        filters = json.loads(where)
    except (ValueError, RecursionError):
        raise ConfigError(f"{printable(where, 80)} is no JSON", example) from None
    if not isinstance(filters, dict):
        raise ConfigError(f"{printable(where, 80)} is no JSON object", example)
    return filters
