"""Histories of many runs at once, as far as a store gives them without leaving anything out.

The calls that sample (``...-interval``) are none of these: a spike may be what they drop.
"""

from __future__ import annotations

import contextvars
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from tracker_health.errors import RunError
from tracker_health.readers.mlflow_folder import MetricPoints
from tracker_health.stores.mlflow.credentials import credentials_for
from tracker_health.stores.mlflow.failures import translated
from tracker_health.stores.mlflow.histories import PAGE_POINTS, read_history
from tracker_health.stores.remote.deadline import REQUEST_SECONDS, within

if TYPE_CHECKING:
    from mlflow import MlflowClient

MOST_RUNS = 100
"""As many runs as a server takes in one question."""

_FIRST_RUNS = 25
"""At first fewer, so that judging begins soon."""
_ENDPOINT = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"

Row = tuple[str, int, float, int]
"""Run, step, value, time in ms."""
Ask = Callable[[Sequence[str], str], Iterable[Row]]


class BulkHistories:
    """The histories of runs that are read about one after the other, by one thread or several.

    Who asks for a metric of one run is given it, and those of the runs that come next are fetched with it; while they
    are judged, a server is asked for those after them. Of each metric about two answers of the store are held, whatever
    the number of runs.
    """

    def __init__(self, client: MlflowClient, uri: str) -> None:
        self._client = client
        self._uri = uri
        self._ask = _bulk_call(client, uri)
        self._ahead = uri.startswith(("http://", "https://"))  # a database is read by this process: nothing to wait for
        self._lock = threading.Lock()
        self._waiting: dict[str, Mapping[str, int]] = {}
        self._metrics: dict[str, _Metric] = {}
        # Of runs that have an annotation most have not changed, and are never asked for, or else nearly all are.
        self._annotated: dict[str, Mapping[str, int]] = {}
        self._asked = self._passed_over = 0

    def expect(self, run_id: str, latest: Mapping[str, int], *, annotated: bool) -> None:
        """Count on being asked for this run; ``latest``: the last step of each of its metrics."""
        with self._lock:
            (self._annotated if annotated else self._waiting)[run_id] = latest

    def forget(self, run_id: str) -> None:
        """Count on it no more, and keep nothing of it."""
        with self._lock:
            self._waiting.pop(run_id, None)
            self._passed_over += self._annotated.pop(run_id, None) is not None
            metrics = list(self._metrics.values())
        for metric in metrics:
            metric.points.pop(run_id, None)
            metric.given.discard(run_id)

    def read(self, run_id: str, name: str) -> MetricPoints:
        """As ``read_history``."""
        with self._lock:
            if run_id in self._annotated:
                self._waiting[run_id] = self._annotated.pop(run_id)
                self._asked += 1
            known = run_id in self._waiting
            metric = self._metrics.setdefault(name, _Metric())
        if known:
            # One thread asks; the others find what it brought for them.
            with metric.lock:
                if run_id not in metric.points and (coming := metric.coming) is not None:
                    coming.join()
                if run_id not in metric.points:
                    self._fetch(metric, name, run_id)
                points = metric.points.pop(run_id, None)
                metric.given.add(run_id)
                self._fetch_ahead(metric, name)
            if points is not None:
                return points
        return read_history(self._client, run_id, name)

    def _fetch_ahead(self, metric: _Metric, name: str) -> None:
        """Have the histories of the runs after those that are held fetched, where nobody does so yet."""
        if not self._ahead or metric.coming is not None or not 0 < len(metric.points) <= metric.at_once:
            return
        if len(self._chosen(metric, name)) > max(1, metric.at_once // 2):
            context = contextvars.copy_context()
            work = partial(context.run, self._bring, metric, name)
            metric.coming = threading.Thread(target=work, daemon=True, name="tracker-health histories")
            metric.coming.start()

    def _bring(self, metric: _Metric, name: str) -> None:
        try:
            with suppress(Exception):  # who needs them asks again, and is reported
                self._fetch(metric, name)
        finally:
            metric.coming = None

    def _fetch(self, metric: _Metric, name: str, run_id: str | None = None) -> None:
        """Fetch the histories of runs that wait, of this one first; nothing of those of which not all points came."""
        if run_id in metric.given:  # set aside
            return
        may_set_aside = True
        while (ask := self._ask) and len(runs := self._chosen(metric, name, run_id)) > 1:
            try:
                with translated("the histories of several runs could not be read at once", self._uri):
                    found, rows = _by_run(ask(list(runs), name))
            except RunError:
                self._ask = None  # an older server, or one that refuses one of these runs: each is read by itself
                return
            if rows < PAGE_POINTS:
                whole = {one: points for one, points in found.items() if _is_whole(points, runs.get(one))}
                with self._lock:  # none of a run that was forgotten meanwhile
                    metric.points |= {
                        one: whole[one] for one in whole if one in self._waiting or one in self._annotated
                    }
                metric.at_once = min(2 * metric.at_once, metric.most)
                return
            # Cut off somewhere, silently. A run that fills half of an answer is read by itself.
            longest = max(runs, key=lambda one: runs[one])
            if may_set_aside and runs[longest] >= PAGE_POINTS // 2:
                may_set_aside = False
                metric.given.add(longest)
                if longest == run_id:
                    return
                continue
            # As many runs as were in it, less the last, may fit.
            metric.at_once = metric.most = max(1, min(len(found) - 1, len(runs) // 2))

    def _chosen(self, metric: _Metric, name: str, run_id: str | None = None) -> dict[str, int]:
        """The run, if any, and those that wait the longest and have the metric, by its last step."""
        with self._lock:
            first = {} if run_id is None else {run_id: self._waiting[run_id].get(name, 0)}
            likely = [self._waiting, *([self._annotated] if self._asked > self._passed_over else [])]
            having = (
                (one, latest[name])
                for runs in likely
                for one, latest in runs.items()
                if name in latest and one != run_id and one not in metric.points and one not in metric.given
            )
            return first | dict(islice(having, metric.at_once - len(first)))


class _Metric:
    """What was fetched of one metric, of which runs that was asked for, and of how many it can be fetched at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.points: dict[str, MetricPoints] = {}
        self.given: set[str] = set()
        self.coming: threading.Thread | None = None
        self.at_once, self.most = _FIRST_RUNS, MOST_RUNS


def _is_whole(points: MetricPoints, last_step: int | None) -> bool:
    """Whether the points reach as far as the run's record says."""
    return last_step is not None and bool(points.steps.max() >= last_step)


def _by_run(rows: Iterable[Row]) -> tuple[dict[str, MetricPoints], int]:
    """The points of each run, and how many there are together."""
    columns: dict[str, tuple[array[int], array[float], array[float]]] = {}
    count = 0
    for run_id, step, value, time in rows:
        steps, values, times = columns.setdefault(run_id, (array("q"), array("d"), array("d")))
        steps.append(step)
        values.append(value)
        times.append(time)
        count += 1
    found = {
        run_id: MetricPoints(
            steps=np.array(steps, dtype=np.int64),
            values=np.array(values, dtype=np.float64),
            times=np.array(times, dtype=np.float64) / 1000,
        )
        for run_id, (steps, values, times) in columns.items()
    }
    return found, count


def _bulk_call(client: MlflowClient, uri: str) -> Ask | None:
    """The store's own call for the histories of several runs; None where it has none."""
    if uri.startswith(("http://", "https://")):
        return partial(within, REQUEST_SECONDS, _rows_of_server, uri)
    store: Any = client._tracking_client.store  # noqa: SLF001
    return partial(_rows_of_store, store) if hasattr(store, "get_metric_history_bulk") else None


def _rows_of_server(uri: str, runs: Sequence[str], name: str) -> list[Row]:
    from mlflow.utils.rest_utils import http_request

    # MLflow's own function: the same proxies and certificates as for all other requests.
    question = {"run_id": list(runs), "metric_key": name, "max_results": PAGE_POINTS}
    once = {"max_retries": 0, "raise_on_status": False}
    with http_request(credentials_for(uri), _ENDPOINT, "GET", params=question, **once) as response:  # type: ignore[no-untyped-call]
        response.raise_for_status()
        points = response.json()["metrics"]
    return [(point["run_id"], int(point["step"]), float(point["value"]), int(point["timestamp"])) for point in points]


def _rows_of_store(store: Any, runs: Sequence[str], name: str) -> Iterator[Row]:
    points = store.get_metric_history_bulk(run_ids=list(runs), metric_key=name, max_results=PAGE_POINTS)
    return ((point.run_id, point.step, point.value, point.timestamp) for point in points)
