"""A view of an MLflow experiment with the verdicts: their column, and the runs that failed or were warned of.

MLflow's pages read what a shared view shows from a tag of the experiment, whose name is in the address.
"""

from __future__ import annotations

import json
from typing import Any

from tracker_health.errors import StoreRefused, WriteError
from tracker_health.stores.mlflow.experiment import experiment_named
from tracker_health.stores.mlflow.failures import shown, translated
from tracker_health.stores.mlflow.marks import COLUMN_TAG
from tracker_health.text import printable

_KEY = "tracker-health"
_TAG = f"mlflow.sharedViewState.{_KEY}"
SPEC = {
    "searchFilter": "tags.`health.verdict` != 'pass' and tags.`health.verdict` != 'skip'",
    "orderByKey": f"tags.`{COLUMN_TAG}`",
    "orderByAsc": True,
    "selectedColumns": [f"tags.`{COLUMN_TAG}`"],
}
"""As MLflow's pages write it themselves."""


class ExperimentView:
    """The view of one experiment, made or not."""

    def __init__(self, experiment: str, tracking_uri: str | None = None) -> None:
        """``experiment``: its name, its id or the address of its page."""
        self._given, self._uri = experiment, tracking_uri

    @property
    def spec(self) -> dict[str, Any]:
        """What would be sent, as plain values."""
        return dict(SPEC)

    def lines(self) -> list[str]:
        """The same in words."""
        return [
            f"view of the experiment {printable(self._given, 200)}: its tag {_TAG}",
            f"column: {COLUMN_TAG} (verdict, cause, and how sure that is)",
            "runs: that failed or were warned of, the worst first",
        ]

    def save(self) -> str:
        """Make the view, in the place of an earlier one; its address.

        Raises:
            RunNotFound: there is no such experiment.
            RunError: the server cannot be asked, or does not take it.
        """
        client, uri, experiment = experiment_named(self._given, self._uri)
        if not uri.startswith(("http://", "https://")):
            raise StoreRefused("only the pages of an MLflow server have views", "give the server as --tracking-uri")
        with translated("the view could not be made", uri, otherwise=WriteError):
            client.set_experiment_tag(experiment.experiment_id, _TAG, json.dumps(SPEC))
        return f"{shown(uri).rstrip('/')}/#/experiments/{experiment.experiment_id}/runs?viewStateShareKey={_KEY}"

    def is_there(self) -> bool:
        """Whether the experiment has it.

        Raises:
            RunNotFound: there is no such experiment.
            RunError: the server cannot be asked.
        """
        return _TAG in experiment_named(self._given, self._uri)[2].tags

    def remove(self) -> bool:
        """Take the view off again; whether there was one.

        Raises:
            RunNotFound: there is no such experiment.
            RunError: the server cannot be asked, or does not let it go.
        """
        client, uri, experiment = experiment_named(self._given, self._uri)
        if _TAG not in experiment.tags:
            return False
        with translated("the view could not be taken off", uri, otherwise=WriteError):
            client.delete_experiment_tag(experiment.experiment_id, _TAG)
        return True
