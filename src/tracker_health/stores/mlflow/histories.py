"""Metric histories out of an MLflow store, page by page: what is kept of a point is three numbers."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.readers.mlflow_folder import MAX_POINTS, MetricPoints
from tracker_health.stores.remote.deadline import Bounded
from tracker_health.stores.remote.paging import Paging
from tracker_health.text import short_name

if TYPE_CHECKING:
    from mlflow import MlflowClient

PAGE_POINTS = 25_000
"""Points asked for at once: as many as a server gives at most."""


def read_history(client: MlflowClient, run_id: str, name: str, limit: int = MAX_POINTS) -> MetricPoints:
    """The points of a metric in the store's order.

    Raises:
        ReadError: there are more than ``limit``.
    """
    # The client's own method makes one list of objects of all pages: half a kilobyte a point.
    asked: Any = client
    store: Any = client._tracking_client.store  # noqa: SLF001
    if isinstance(asked, Bounded):
        store = Bounded(store)
    steps, values, times = array("q"), array("d"), array("d")
    token, paging, seen = None, Paging(f"metrics/get-history of {short_name(name)}"), set[int]()
    while True:
        page = store.get_metric_history(run_id=run_id, metric_key=name, max_results=PAGE_POINTS, page_token=token)
        steps.extend(point.step for point in page)
        values.extend(point.value for point in page)
        times.extend(point.timestamp for point in page)
        if len(values) > limit:
            raise ReadError(f"it has more than the {limit} points that are read")
        token = page.token
        if not token:
            break
        content = hash(tuple((point.step, point.value, point.timestamp) for point in page))
        paging.turn(token, is_new=len(page) > 0 and content not in seen)
        seen.add(content)
    return MetricPoints(
        steps=np.array(steps, dtype=np.int64),
        values=np.array(values, dtype=np.float64),
        times=np.array(times, dtype=np.float64) / 1000,
    )
