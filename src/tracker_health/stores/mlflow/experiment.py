"""The runs of MLflow experiments, page by page: each with its record, and the histories of many read at once."""

from __future__ import annotations

import json
import random
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from tracker_health.config import did_you_mean
from tracker_health.errors import RunNotFound, StoreRefused
from tracker_health.evidence.kin import Kin
from tracker_health.stores.base import TaggedRun
from tracker_health.stores.common.record import DIGEST, entries_on, is_finished, recorded_on, shadow_on, tagged
from tracker_health.stores.common.standing import Standing, standing
from tracker_health.stores.found import Period
from tracker_health.stores.mlflow.batch import Batch
from tracker_health.stores.mlflow.bulk import BulkHistories
from tracker_health.stores.mlflow.connection import connect, folder_of, moved
from tracker_health.stores.mlflow.failures import shown, translated
from tracker_health.stores.mlflow.kin import kin_of
from tracker_health.stores.mlflow.marks import latest_points, marks_in
from tracker_health.stores.mlflow.run import MlflowRun, last_heard, last_point, last_step_of, ref_of, state_of
from tracker_health.stores.mlflow.stored_files.empty_runs import EmptyRuns
from tracker_health.stores.mlflow.stored_files.store_files import require_plain_experiments
from tracker_health.stores.remote import hosts
from tracker_health.stores.remote.answers import ExcessiveAnswer
from tracker_health.stores.remote.paging import Paging
from tracker_health.text import count, decoded_once, printable
from tracker_health.words.acknowledgements import on_evidence
from tracker_health.words.ending import Ended

if TYPE_CHECKING:
    from mlflow import MlflowClient

_PAGE = 200
_SMALLEST_PAGE = 5
_RUNNING = "attributes.status = 'RUNNING'"
_MOST_NAMES = 1000
_EXPERIMENT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_EXPERIMENT = frozenset({"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"})
_PAGE_OF_EXPERIMENT = re.compile(r"((?i:https?)://[^#?\s]++)(?:\?[^#\s]*+)?#/experiments/([^/?#\s]++)(?:[/?]\S*+)?")
_NEWEST_FIRST = ["attributes.start_time DESC"]


@dataclass(frozen=True)
class ListedMlflowRun:
    """A run as a search found it: opened without asking for its record again. As text it is its id."""

    record: Any = field(repr=False)
    _client: MlflowClient = field(repr=False)
    _uri: str = field(repr=False)
    _batch: Batch | None = field(repr=False)

    def __str__(self) -> str:
        return str(self.record.info.run_id)

    def open(self) -> MlflowRun:
        """The run, with the record that the search gave."""
        return MlflowRun(self._client, self._uri, moved(self.record, self._uri), batch=self._batch)


@dataclass(frozen=True)
class SweptMlflowRun:
    """A ``SweptRun`` of MLflow."""

    name: str
    state: str
    annotated: bool
    silent: bool
    since: float | None
    kin: Kin | None
    _listed: ListedMlflowRun = field(repr=False)
    quiet: bool = False

    def __str__(self) -> str:
        return self.name

    def open(self) -> MlflowRun:
        """The run with the record that it has now: another sweep may have been here."""
        run = self._listed.open()
        run.look()
        return run


def listed_runs(
    names: Sequence[str] = (), tracking_uri: str | None = None, where: str = ""
) -> Iterator[ListedMlflowRun]:
    """The runs of experiments (without names: of all), the newest first. ``where``: a filter in MLflow's own language.

    Raises:
        RunNotFound: there is no such experiment.
        RunError: it is deleted, or the store cannot be reached, or does not understand the filter.
    """
    client, uri, names = _opened(names, tracking_uri)
    batch = Batch(BulkHistories(client, uri), EmptyRuns(uri))
    # The next page before this one is done: its histories can be fetched while the last of this one are judged.
    ahead: deque[ListedMlflowRun] = deque()
    for page in _pages(client, uri, _experiments(client, uri, names), where):
        ahead.extend(_expected(page, client, uri, batch))
        while len(ahead) > _PAGE:
            yield ahead.popleft()
    yield from ahead


def swept_runs(
    names: Sequence[str], tracking_uri: str | None, period: Period, *, kin: bool = False
) -> Iterator[SweptMlflowRun]:
    """The runs of experiments (without names: of all) that a sweep is about. Those of a page come in any order, so
    that two sweeps do not meet at each run. ``kin``: with their relations.

    Raises:
        RunError: as for ``listed_runs``.
    """
    client, uri, names = _opened(names, tracking_uri)
    batch = Batch(BulkHistories(client, uri), EmptyRuns(uri))
    experiments = _experiments(client, uri, names)
    for where in (_ended_since(period.since), _RUNNING):
        for page in _pages(client, uri, experiments, where):
            chosen = [record for record in page if record.info.status != "RUNNING" or _may_be_silent(record, period)]
            yield from (_quiet(record, client, uri) for record in page if _may_be_quiet(record, period))
            random.shuffle(chosen)
            chosen.sort(key=lambda record: not latest_points(record))  # a parent tells how the runs below it fared
            for listed in _expected(chosen, client, uri, batch):
                info, marks = listed.record.info, marks_in(listed.record)
                silent = info.status == "RUNNING"
                state = json.dumps([info.status, info.end_time, last_heard(listed.record), marks.get(DIGEST)])
                annotated = is_finished(marks) or shadow_on(marks) is not None
                at = None if silent else info.end_time
                since = (last_heard(listed.record) if at is None else at) / 1000
                related = kin_of(listed.record, experiments.get(info.experiment_id, "")) if kin else None
                yield SweptMlflowRun(info.run_id, state, annotated, silent, since, related, listed)


def tagged_runs(
    names: Sequence[str] = (),
    tracking_uri: str | None = None,
    where: str = "",
    since: float | None = None,
    *,
    kin: bool = False,
) -> Iterator[TaggedRun]:
    """What the tags of an experiment's runs say of their health. ``since``: of those that ended at that time (seconds
    since 1970) or later, and of those that are still running, which come last. ``kin``: with their relations.

    Raises:
        RunError: as for ``listed_runs``.
    """
    client, uri, names = _opened(names, tracking_uri)
    experiments = _experiments(client, uri, names)
    recent = [""] if since is None else [_ended_since(since), _RUNNING]
    filters = [" and ".join(filter(None, (where, one))) for one in recent]
    for page in chain.from_iterable(_pages(client, uri, experiments, one) for one in filters):
        for record in page:
            info, marks = record.info, marks_in(record)
            yield tagged(
                ref_of(record, uri),
                marks,
                user=record.data.tags.get("mlflow.user", info.user_id or ""),
                experiment=(named := experiments.get(info.experiment_id, "")),
                started=None if info.start_time is None else info.start_time / 1000,
                last_step=last_step_of(record),
                acks=on_evidence(entries, state_of(record)) if (entries := entries_on(marks)) else (),
                kin=kin_of(record, named) if kin else None,
            )


def _ended_since(moment: float) -> str:
    """The filter for runs that ended at a time, in seconds since 1970, or later."""
    return f"attributes.end_time >= {int(moment * 1000)}"


def standings(name: str, tracking_uri: str | None) -> Iterator[tuple[str, Standing]]:
    """The ids of an experiment's runs, the newest first, and how each stands by its tags; files are not looked at.

    Raises:
        RunError: as for ``listed_runs``.
    """
    client, uri, names = _opened([name], tracking_uri)
    for page in _pages(client, uri, _experiments(client, uri, names), ""):
        for record in page:
            yield record.info.run_id, standing(marks_in(record), live=record.info.status == "RUNNING")


def _expected(page: Sequence[Any], client: MlflowClient, uri: str, batch: Batch) -> list[ListedMlflowRun]:
    for record in page:
        latest = {name: point.step for name, point in latest_points(record).items()}
        batch.histories.expect(record.info.run_id, latest, annotated=is_finished(marks_in(record)))
    return [ListedMlflowRun(record, client, uri, batch) for record in page]


def _may_be_silent(record: Any, period: Period) -> bool:
    """Whether a run is silent, but for the runs below it, or has a verdict that says so."""
    heard = last_heard(record) / 1000
    recorded = recorded_on(marks_in(record))
    is_called_so = recorded is not None and recorded.ended == Ended.SILENT
    return period.since <= heard and (heard <= period.silent_since or is_called_so)


def _may_be_quiet(record: Any, period: Period) -> bool:
    """Whether a run that claims to be running, and is not silent, may stand still, by the list alone."""
    if record.info.status != "RUNNING" or period.quiet_since is None or _may_be_silent(record, period):
        return False
    last = last_point(record)
    return last is not None and period.since <= last <= period.quiet_since


def _quiet(record: Any, client: MlflowClient, uri: str) -> SweptMlflowRun:
    """Such a run: its history is read by itself, if at all."""
    listed, last = ListedMlflowRun(record, client, uri, None), last_point(record)
    state = json.dumps([record.info.status, last])
    return SweptMlflowRun(record.info.run_id, state, False, False, last, None, listed, quiet=True)


class _Id(str):
    """The id of an experiment, out of the address of its page: never the name of another one."""

    __slots__ = ()


def _opened(names: Sequence[str], tracking_uri: str | None) -> tuple[MlflowClient, str, list[str]]:
    """The store of experiments that are given as names, ids, or addresses of their pages: a client, its URI, and the
    experiments by name or id, those of pages as ``_Id``.

    Raises:
        RunNotFound: the addresses are of several servers.
        RunError: the store cannot be reached.
    """
    pages = {name: page for name in names if (page := _PAGE_OF_EXPERIMENT.fullmatch(name.strip()))}
    servers = sorted({page.group(1).rstrip("/") for page in pages.values()})
    if len(servers) > 1:
        raise RunNotFound(f"these experiments are of {len(servers)} servers", "give those of one server at a time")
    if servers:
        hosts.trust(tracking_uri or "")
    client, uri = connect(servers[0] if servers else tracking_uri, pasted=bool(servers))
    return client, uri, [_of_page(pages[name].group(2)) if name in pages else name for name in names]


def _of_page(encoded: str) -> _Id:
    decoded = decoded_once(encoded)
    if decoded is None or not _EXPERIMENT_ID.fullmatch(decoded):
        raise RunNotFound(f"{printable(encoded, 80)} in the address of a page is no id of an experiment")
    return _Id(decoded)


def _named(client: MlflowClient, name: str) -> Any:
    """The experiment of that name, or else of that id; None where there is neither. Of an ``_Id`` only of that."""
    found = None if isinstance(name, _Id) else client.get_experiment_by_name(name)
    if found is not None or not _EXPERIMENT_ID.fullmatch(name):
        return found
    from mlflow.exceptions import MlflowException

    try:
        return client.get_experiment(name)
    except MlflowException as error:
        if error.error_code not in _NO_EXPERIMENT:
            raise
        return None


def experiment_named(name: str, tracking_uri: str | None) -> tuple[MlflowClient, str, Any]:
    """MLflow's record of an experiment, by its name, its id or the address of its page, with a client and its URI.

    Raises:
        RunNotFound: there is no such experiment.
        RunError: the store cannot be reached, or the experiment is deleted.
    """
    client, uri, (named,) = _opened([name], tracking_uri)
    (known,) = _experiments(client, uri, [named])
    with translated(f"the experiment {printable(name, 80)}", uri):
        return client, uri, client.get_experiment(known)


def _experiments(client: MlflowClient, uri: str, names: Sequence[str]) -> dict[str, str]:
    """The names of experiments by their ids; of all without names."""
    if folder := folder_of(uri):
        require_plain_experiments(folder)
    found = {}
    for name in names:
        with translated(f"the experiment {printable(name, 80)}", uri):
            experiment = _named(client, name)
            if experiment is None:
                known = [one.name for one in client.search_experiments(max_results=_MOST_NAMES)]
                raise RunNotFound(f"there is no experiment {printable(name, 80)!r}", did_you_mean(name, known))
        if experiment.lifecycle_stage == "deleted":  # MLflow lists none of its runs
            hint = f"mlflow experiments restore --experiment-id {printable(experiment.experiment_id, 80)}"
            raise StoreRefused(f"the experiment {printable(name, 80)!r} is deleted", hint)
        found[experiment.experiment_id] = experiment.name
    token, paging = None, Paging(f"experiments/search ({shown(uri)})")
    while not names:
        with translated("the experiments", uri):
            page = client.search_experiments(max_results=_MOST_NAMES, page_token=token)
        before = len(found)
        found |= {one.experiment_id: one.name for one in page}
        token = page.token
        if not token:
            break
        paging.turn(token, is_new=len(found) > before)
    return found


def _pages(client: MlflowClient, uri: str, experiments: Mapping[str, str], where: str) -> Iterator[list[Any]]:
    """MLflow's records, the newest first, none twice. ``experiments``: their names by their ids.

    A page begins where the one before ended in time. MLflow's own token is a number of runs to skip. With a filter for
    what we write (runs without a verdict), it would skip as many as were annotated since.
    """
    ids, several = list(experiments), count(len(experiments), "experiment")
    what = f"experiment {printable(experiments[ids[0]], 80)}" if len(ids) == 1 else several
    ended: int | None = None
    token: str | None = None
    seen: set[str] = set()
    paging = Paging(f"the runs of {what}: runs/search ({shown(uri)})")
    size = _PAGE
    while ids:
        later = f"attributes.start_time <= {ended}" if ended is not None else ""
        condition = " and ".join(filter(None, (where, later)))
        try:
            with translated(f"the runs of {what}", uri):
                page = client.search_runs(ids, condition, max_results=size, page_token=token, order_by=_NEWEST_FIRST)
        except ExcessiveAnswer:
            if size <= _SMALLEST_PAGE:
                raise
            size = max(size // 4, _SMALLEST_PAGE)  # such runs have a great many metrics
            continue
        if fresh := [record for record in page if record.info.run_id not in seen]:
            yield fresh
        if not page.token:
            return
        last = page[-1].info.start_time if page else ended
        if last is None or (ended is not None and last >= ended):
            # More runs than a page has, all begun at the same moment; or a server that does not heed the time.
            token = page.token
            seen |= {record.info.run_id for record in page}
        else:
            ended, token = last, None
            seen = {record.info.run_id for record in page if record.info.start_time == last}
        paging.turn((ended, token), is_new=bool(fresh))
