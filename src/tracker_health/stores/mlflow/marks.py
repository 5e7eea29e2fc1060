"""Our marks on an MLflow run: tags ``health.NAME``, metrics ``health/NAME`` for numbers, and its description."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tracker_health.stores.common.record import NOTE, OWNERS, Mark, is_measure

if TYPE_CHECKING:
    from mlflow import MlflowClient

NOTE_TAG = "mlflow.note.content"
_TAG, _METRIC = "health.", "health/"


def latest_points(run: Any) -> dict[str, Any]:
    """Per metric its latest point: key, value, timestamp (ms) and step; ``run.data.metrics`` has only the value."""
    return {metric.key: metric for metric in run.data.to_proto().metrics}


def marks_in(tags: Mapping[str, str]) -> dict[str, Mark]:
    """The marks among a run's tags."""
    found = {key.removeprefix(_TAG): value for key, value in tags.items() if key.startswith(_TAG)}
    return {name: value for name, value in found.items() if not is_measure(name)}


def called(name: str) -> str:
    """What MLflow calls a mark of this name."""
    if name == NOTE:
        return NOTE_TAG
    return f"the metric {_METRIC}{name}" if is_measure(name) else f"the tag {_TAG}{name}"


class MlflowMarks(dict[str, Mark]):
    """The marks of one run, as its record has them and as they were changed since."""

    def __init__(self, client: MlflowClient, run: Any) -> None:
        self._client, self._id = client, run.info.run_id
        self._latest = {
            name: point
            for key, point in latest_points(run).items()
            if key.startswith(_METRIC) and is_measure(name := key.removeprefix(_METRIC))
        }
        tags = run.data.tags
        super().__init__(marks_in(tags))
        self |= {name: OWNERS if point.step else point.value for name, point in self._latest.items()}
        if NOTE_TAG in tags:
            self[NOTE] = tags[NOTE_TAG]

    def __contains__(self, name: object) -> bool:
        """Whether the run has such a mark. A number whose latest value is NaN may be one that we hid."""
        if not super().__contains__(name):
            return False
        latest = self._latest.get(str(name))
        if latest is None or not math.isnan(latest.value) or latest.step != 0:
            return True
        # All of ours are at step 0, and before the NaN that hides them stood a number.
        points = self._client.get_metric_history(self._id, latest.key)
        return any(point.step != 0 for point in points) or all(math.isnan(point.value) for point in points)

    def change(self, changes: Mapping[str, Mark | None]) -> frozenset[str]:
        """See ``StoredRun.set_marks``."""
        from mlflow.entities import RunTag

        tags = {name: value for name, value in changes.items() if not is_measure(name)}
        self._delete([name for name, value in tags.items() if value is None and dict.__contains__(self, name)])
        if note := tags.pop(NOTE, None):
            self._client.set_tag(self._id, NOTE_TAG, note)
        points, hidden = self._points({name: value for name, value in changes.items() if is_measure(name)})
        written = [RunTag(f"{_TAG}{name}", str(value)) for name, value in tags.items() if value is not None]
        if points or written:
            self._client.log_batch(self._id, metrics=points, tags=written)
        self |= {name: value for name, value in changes.items() if value is not None}
        return hidden

    def _points(self, numbers: Mapping[str, Any]) -> tuple[list[Any], frozenset[str]]:
        """The points that give the run these numbers, and the names of those that hide one: a metric cannot be deleted,
        and a NaN as its latest point takes it off the run page and out of filters.
        """
        from mlflow.entities import Metric

        now, points, hidden = int(time.time() * 1000), [], set()
        for name, number in sorted(numbers.items()):
            value, last = math.nan if number is None else number, self._latest.get(name)
            if last is None and math.isnan(value):
                continue
            if math.isnan(value):
                hidden.add(f"{_METRIC}{name}")
            if last is not None and (last.value == value or (math.isnan(last.value) and math.isnan(value))):
                continue
            # Of two points at one step the later is the latest; of two at one time the larger, whichever was meant.
            timestamp = now if last is None else max(now, last.timestamp + 1)
            points.append(Metric(f"{_METRIC}{name}", value, timestamp, 0 if last is None else last.step))
        return points, frozenset(hidden)

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            remove_tag(self._client, self._id, NOTE_TAG if name == NOTE else f"{_TAG}{name}")
            self.pop(name, None)


def remove_tag(client: MlflowClient, run_id: str, tag: str) -> None:
    """Delete a tag that may be gone already."""
    from mlflow.exceptions import MlflowException

    try:
        client.delete_tag(run_id, tag)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
