"""The runs of an MLflow experiment."""

from __future__ import annotations

from collections.abc import Iterator

from tracker_health.config import did_you_mean
from tracker_health.errors import RunNotFound
from tracker_health.stores.mlflow.connection import connect
from tracker_health.stores.mlflow.failures import translated
from tracker_health.text import printable

_PAGE = 1000
_MOST_NAMES = 1000


def run_ids(name: str, tracking_uri: str | None = None, where: str = "") -> Iterator[str]:
    """The ids of an experiment's runs, the newest first. ``where``: a filter in MLflow's own language.

    Raises:
        RunNotFound: there is no such experiment.
        RunError: the store cannot be reached, or does not understand the filter.
    """
    client, uri = connect(tracking_uri)
    with translated(f"the experiment {printable(name, 80)}", uri):
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            known = [one.name for one in client.search_experiments(max_results=_MOST_NAMES)]
            raise RunNotFound(f"there is no experiment {printable(name, 80)!r}", did_you_mean(name, known))
    token = None
    while True:
        with translated(f"the runs of experiment {printable(name, 80)}", uri):
            page = client.search_runs([experiment.experiment_id], where, max_results=_PAGE, page_token=token)
        yield from (run.info.run_id for run in page)
        token = page.token
        if not token:
            return
