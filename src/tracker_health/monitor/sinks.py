"""Where statistics go: all of them into a file of their own, a summary of each layer to the trackers that run."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TextIO

from tracker_health.errors import ConfigError, named
from tracker_health.monitor.measuring_errors import tell
from tracker_health.monitor.trackers import ActiveRun, wandb_folder
from tracker_health.words.gap_names import GAP_FILE, GAP_SCHEMA, STATISTICS, layer_of, metric

Key = tuple[str, str]
"""Kind and name: ``("grads", "layers.0.weight")``."""
Values = tuple[float, float, float | None]
"""Maximum of the absolute values, mean and variance."""
Found = Mapping[Key, Values]
Log = Callable[[int, Mapping[str, float]], object]
"""Takes a step and its metrics."""


class StatisticsSink(Protocol):
    """Takes the statistics of measured steps, in the first process alone."""

    def write(self, step: int, found: Found, counts: Mapping[Key, float]) -> None:
        """Take a step's statistics. ``counts``: of how many values each was taken."""

    def close(self) -> None:
        """Nothing more comes."""


class Several:
    """Hands everything to each of several sinks."""

    def __init__(self, sinks: Sequence[StatisticsSink]) -> None:
        self._sinks = sinks

    def write(self, step: int, found: Found, counts: Mapping[Key, float]) -> None:
        for sink in self._sinks:
            sink.write(step, found, counts)

    def close(self) -> None:
        with ExitStack() as stack:  # all of them, whatever one of them raises
            for sink in reversed(self._sinks):
                stack.callback(sink.close)


class DetailFile:
    """Every statistic, as JSON lines: a head with the columns, then a row of numbers for each measured step.

    The file is opened with the first row. ``when_closed`` gets its path when it is complete.

    Raises:
        ConfigError: the file is there already, and ``continued`` is false.
    """

    def __init__(
        self, path: Path, *, continued: bool = False, when_closed: Callable[[Path], object] | None = None
    ) -> None:
        if path.exists() and not continued:
            hint = "give another folder, or steps_done where the run continues from a checkpoint"
            raise ConfigError(f"{path} is there already", hint)
        self.path = path
        self._file: TextIO | None = None
        self._columns: dict[str, None] = {}
        self._when_closed = when_closed

    def write(self, step: int, found: Found, _: Mapping[Key, float]) -> None:
        """Add a row, and before it a new head where it has a new column."""
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a", encoding="utf-8")
        numbers = {f"{kind}/{name}": values for (kind, name), values in found.items()}
        text = ""
        if not numbers.keys() <= self._columns.keys():
            self._columns |= dict.fromkeys(numbers)
            text = _line({"schema": GAP_SCHEMA, "statistics": STATISTICS, "columns": list(self._columns)})
        row = [_written(value) for name in self._columns for value in numbers.get(name, (None, None, None))]
        self._file.write(text + _line({"step": step, "values": row}))
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            if self._when_closed is not None:
                self._when_closed(self.path)


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n"


def _written(value: float | None) -> float | str | None:
    """Seven digits, as single precision has them; what is not finite as text, since JSON has no word for it."""
    if value is None:
        return None
    return float(f"{value:.7g}") if math.isfinite(value) else str(value)


class Metrics:
    """Statistics as metrics. ``layers``: one summary for all that belongs to a layer, instead of every one."""

    def __init__(self, log: Log, *, layers: bool) -> None:
        self._log, self._layers, self._warned = log, layers, False

    def write(self, step: int, found: Found, counts: Mapping[Key, float]) -> None:
        """Log them; that a tracker is out of reach is reported once, and tried again at the next measured step."""
        chosen = layer_summaries(found, counts) if self._layers else found
        metrics = {
            metric(kind, name, statistic): value
            for (kind, name), values in chosen.items()
            for statistic, value in zip(STATISTICS, values, strict=True)
            if value is not None
        }
        try:
            self._log(step, metrics)
        except Exception as error:  # noqa: BLE001  a tracker's trouble stops neither the training nor the detail file
            if not self._warned:
                tell(f"step {step} was not logged: {named(error)}")
            self._warned = True

    def close(self) -> None:
        """Trackers are closed by whoever opened them."""


def layer_summaries(found: Found, counts: Mapping[Key, float]) -> dict[Key, Values]:
    """One entry for each layer: all values of its tensors taken together. Of activations that of the layer's own
    output, where the layer is a module.
    """
    groups: dict[Key, list[Key]] = {}
    for key in found:
        groups.setdefault((key[0], layer_of(key[1])), []).append(key)
    return {
        layer: found[layer] if layer in found else _pooled([(found[key], counts[key]) for key in keys])
        for layer, keys in groups.items()
    }


def _pooled(parts: Sequence[tuple[Values, float]]) -> Values:
    total = sum(count for _, count in parts)
    mean = sum(values[1] * count for values, count in parts) / total
    known = [(values, count, values[2]) for values, count in parts if values[2] is not None]
    spread = sum(variance * (count - 1) + count * (values[1] - mean) ** 2 for values, count, variance in known)
    return _largest(values[0] for values, _ in parts), mean, spread / (total - 1) if known and total > 1 else None


def _largest(values: Iterable[float]) -> float:
    every = list(values)
    return math.nan if any(map(math.isnan, every)) else max(every)


class Files:
    """Keeps files with the runs when nothing more is written to them."""

    def __init__(self, path: Path, runs: Sequence[ActiveRun]) -> None:
        self._path, self._runs = path, runs

    def write(self, step: int, found: Found, counts: Mapping[Key, float]) -> None:
        """What is kept is written by others."""

    def close(self) -> None:
        if self._path.exists():
            for run in self._runs:
                run.keep(self._path)


class ActiveRunsSink:
    """Lets go of the runs when all others are closed."""

    def __init__(self, runs: Sequence[ActiveRun]) -> None:
        self._runs = runs

    def write(self, step: int, found: Found, counts: Mapping[Key, float]) -> None:
        """Metrics are sent by others."""

    def close(self) -> None:
        for run in self._runs:
            run.close()


class TrainerLog:
    """A trainer's own way to log, and the runs behind it."""

    def __init__(self, log: Log, runs: Sequence[ActiveRun]) -> None:
        self._log, self.runs = log, runs

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        self._log(step, metrics)


def log_to(runs: Sequence[ActiveRun]) -> Log | None:
    """Logs to these runs; None where there are none."""
    if not runs:
        return None

    def log(step: int, metrics: Mapping[str, float]) -> None:
        for run in runs:
            run.log(step, metrics)

    return log


def detail_file(
    folder: str | Path | None, runs: Sequence[ActiveRun], *, continued: bool, keep: bool = False
) -> DetailFile:
    """The file for all statistics.

    It is in ``folder``, if that is given; with ``keep``, the runs get it as well at the end. Otherwise it is among the
    files of the W&B run, or becomes an artifact of the MLflow run at the end. Without a run it is in the current
    folder.

    Raises:
        ConfigError: it is there already.
    """
    if folder is not None:
        kept = runs if keep else ()
        return DetailFile(Path(folder) / GAP_FILE, continued=continued, when_closed=partial(_keep, kept))
    inside = wandb_folder(runs)
    if inside is not None:
        return DetailFile(inside / GAP_FILE, continued=continued, when_closed=partial(_keep, runs))
    if not runs:
        return DetailFile(Path(GAP_FILE), continued=continued)
    path = Path(tempfile.mkdtemp(prefix="tracker-health-")) / GAP_FILE
    return DetailFile(path, when_closed=partial(_keep, runs, remove=True))


def _keep(runs: Sequence[ActiveRun], path: Path, *, remove: bool = False) -> None:
    def delete() -> None:
        path.unlink()
        path.parent.rmdir()

    for run in runs:
        run.keep(path, delete if remove and run is runs[-1] else None)
