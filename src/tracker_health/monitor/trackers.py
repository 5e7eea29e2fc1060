"""The active runs of W&B, MLflow and trackio: metrics, files, the mark of one that goes wrong. Imports no tracker."""

from __future__ import annotations

import hashlib
import posixpath
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from tracker_health.monitor.background import Background
from tracker_health.stores.common.record import LIVE, STOP, STOPPED, text_of
from tracker_health.stores.mlflow.older_clients import takes_colons
from tracker_health.stores.trackio.alerts import LEVELS, TITLE
from tracker_health.stores.trackio.database import Database, file_name, seconds_of
from tracker_health.stores.trackio.marks import MarksTable
from tracker_health.text import printable
from tracker_health.words.gap_names import (
    LIVE_TAG,
    LIVE_WANDB_TAGS,
    LIVE_WORDS,
    STATISTICS,
    STOP_TAG,
    STOP_WANDB_TAG,
    STOPPED_KEY,
    STOPPED_TAG,
    WANDB_ALERT_LEVELS,
    WANDB_ALERT_TITLE,
    metric,
    parsed,
)
from tracker_health.words.stopped import stop_of
from tracker_health.words.verdict import Verdict

_METRICS_A_REQUEST = 1000
_ASKING_SECONDS = 20
_FIRST_ROW_SECONDS, _LOOK_SECONDS = 5.0, 0.1
_MOST_CHARACTERS = 250  # of a metric's name in MLflow
_CUT_CHARACTERS = 8  # of the digest in the place of what was cut out
# An underscore that would read as one of our replacements is replaced as well: distinct names stay distinct.
_REFUSED = re.compile(r"[^/\w.\- :]|_(?=x[0-9a-f]+_)")
_REFUSED_WITH_COLONS = re.compile(r"[^/\w.\- ]|_(?=x[0-9a-f]+_)")


class ActiveRun(Protocol):
    """A run of a tracker. What takes long happens behind; what raises is caught by whoever calls."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log metrics at a step."""

    def mark(self, word: str) -> None:
        """Mark the run while it is running: ``warn`` or ``fail``."""

    def stopped(self, text: str) -> None:
        """Say on the run why its training stops: ``Stop.as_stopped``. A request for that is taken off."""

    def asks_to_stop(self) -> str:
        """What the run's own record says of a request that its training stop, "" for none.

        It waits for the server, and raises what that leads to: it is for a thread of its own.
        """

    def keep(self, path: Path, done: Callable[[], object] | None = None) -> None:
        """Keep a file, or all files of a folder, with the run. ``done`` is called when they are there."""

    def end(self) -> None:
        """Nothing more comes, and nobody waits for what is under way."""

    def close(self) -> None:
        """Nothing more comes: wait for what is under way, for a while."""


class ActiveWandbRun:
    """A run of this process. The SDK itself waits for nothing."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._seen: Any = None  # the same run, as the server has it

    def log(self, _: int, metrics: Mapping[str, float]) -> None:
        # They join the row that the training itself logs next: W&B's own step counter stays the training's.
        self._run.log(dict(metrics), commit=False)

    def mark(self, word: str) -> None:
        theirs = [tag for tag in (self._run.tags or ()) if tag not in LIVE_WANDB_TAGS]
        self._run.tags = (*theirs, f"health:live-{word}")

    def stopped(self, text: str) -> None:
        there = self._run.summary.get(STOPPED_KEY)
        if there is None or stop_of(str(there)) is not None:
            self._run.summary[STOPPED_KEY] = text

    def asks_to_stop(self) -> str:
        if getattr(self._run, "offline", False) or getattr(self._run, "disabled", False):
            return ""  # there is no server to ask
        if self._seen is None:
            import wandb

            settings = self._run.settings
            api = wandb.Api(
                overrides={"base_url": str(settings.base_url)}, api_key=settings.api_key, timeout=_ASKING_SECONDS
            )
            self._seen = api.run(f"{self._run.entity}/{self._run.project}/{self._run.id}")
        else:
            self._seen.load(force=True)
        return STOP_WANDB_TAG if STOP_WANDB_TAG in (self._seen.tags or ()) else ""

    @property
    def traits(self) -> dict[str, str]:
        """What settings for some runs ask about: the project's name, and the tags, which have no values."""
        tags = (tag for tag in (self._run.tags or ()) if tag not in LIVE_WANDB_TAGS)
        return {"project": str(self._run.project), **{f"tag:{tag}": "" for tag in tags}}

    def alert(self, word: str, reason: str) -> None:
        """Have W&B alert people: ``warn`` or ``fail``, and why."""
        shown = f"{word.upper()} {self._run.name or self._run.id}"
        text = f"{shown}, while the run is still running: {reason}\n{self._run.url or ''}".strip()
        title = printable(f"{shown} while it is running", WANDB_ALERT_TITLE)
        self._run.alert(title=title, text=text, level=WANDB_ALERT_LEVELS[word])

    def keep(self, path: Path, done: Callable[[], object] | None = None) -> None:
        folder = Path(self._run.dir)
        target = folder / path.name
        if path.resolve() != target.resolve():
            shutil.copytree(path, target, dirs_exist_ok=True) if path.is_dir() else shutil.copy2(path, target)
        if done is not None:
            done()

    def end(self) -> None:
        pass

    def close(self) -> None:
        pass


class ActiveMlflowRun:
    """A run of any tracking server, by its id. Nothing waits for the server."""

    def __init__(self, client: Any, run_id: str) -> None:
        self._client, self._run_id = client, run_id
        self._calls = Background(f"MLflow run {run_id}")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        points = [Metric(mlflow_name(name), float(value), now, step) for name, value in metrics.items()]
        for start in range(0, len(points), _METRICS_A_REQUEST):
            part = points[start : start + _METRICS_A_REQUEST]
            self._calls.put(lambda part=part: self._client.log_batch(self._run_id, metrics=part))  # type: ignore[misc]

    def mark(self, word: str) -> None:
        self._calls.put(lambda: self._mark(word))

    def _mark(self, word: str) -> None:
        run = self._client.get_run(self._run_id)
        there = run.data.tags.get(LIVE_TAG)
        if run.info.status == "RUNNING" and (there is None or there in LIVE_WORDS):  # else it is the user's own
            self._client.set_tag(self._run_id, LIVE_TAG, word)

    def stopped(self, text: str) -> None:
        self._calls.put(lambda: self._stop(text))

    def _stop(self, text: str) -> None:
        tags = self._client.get_run(self._run_id).data.tags
        if STOPPED_TAG not in tags or stop_of(tags[STOPPED_TAG]) is not None:  # else it is the user's own
            self._client.set_tag(self._run_id, STOPPED_TAG, text)
        if stop_of(tags.get(STOP_TAG, "")) is not None:
            self._client.delete_tag(self._run_id, STOP_TAG)

    def asks_to_stop(self) -> str:
        return str(self._client.get_run(self._run_id).data.tags.get(STOP_TAG, ""))

    def keep(self, path: Path, done: Callable[[], object] | None = None) -> None:
        def log() -> None:
            if path.is_dir():
                self._client.log_artifacts(self._run_id, str(path), artifact_path=path.name)
            else:
                self._client.log_artifact(self._run_id, str(path))
            if done is not None:
                done()

        self._calls.put(log)

    def end(self) -> None:
        self._calls.end()

    def close(self) -> None:
        self._calls.close()


class ActiveTrackioRun:
    """A local run of this process. Its marks are in a table of ours, which is written behind."""

    def __init__(self, run: Any, folder: Path) -> None:
        self._run = run
        self._database = folder / file_name(str(run.project))
        self._calls = Background(f"trackio run {run.name}")

    def log(self, _: int, metrics: Mapping[str, float]) -> None:
        # At the step of the last row: with another one trackio's own counter, by which the training logs, would go on.
        # Before the first there is none.
        last = int(getattr(self._run, "_next_step", 0)) - 1
        if last >= 0:
            self._run.log(dict(metrics), step=last)

    def mark(self, word: str) -> None:
        self._calls.put(lambda: self._set({LIVE: word}))

    def stopped(self, text: str) -> None:
        self._calls.put(lambda: self._set({STOPPED: text, STOP: None}))

    def _set(self, changes: Mapping[str, str | None]) -> None:
        end = time.monotonic() + _FIRST_ROW_SECONDS
        while not self._database.exists() and time.monotonic() < end:  # trackio writes its first rows behind, too
            time.sleep(_LOOK_SECONDS)
        table, key = self._marks()
        table.path.parent.mkdir(parents=True, exist_ok=True)
        table.change(key, changes)

    def asks_to_stop(self) -> str:
        if not self._database.exists():  # nothing was logged so far
            return ""
        table, key = self._marks()
        return text_of(table.of(key), STOP)

    def _marks(self) -> tuple[MarksTable, str]:
        has_ids = Database(self._database).layout.has_ids
        return MarksTable(self._database), str(self._run.id if has_ids else self._run.name)

    @property
    def traits(self) -> dict[str, str]:
        """What settings for some runs ask about: the project's name."""
        return {"project": str(self._run.project)}

    def alert(self, word: str, reason: str) -> None:
        """Have trackio alert people: ``warn`` or ``fail``, and why."""
        title, level = f"{TITLE}{word.upper()} while it is running", LEVELS[Verdict(word)]
        level = sys.modules["trackio.alerts"].AlertLevel(level)  # a module of whoever logs to it
        self._run.alert(title=title, text=printable(reason, 600), level=level)

    def keep(self, path: Path, done: Callable[[], object] | None = None) -> None:
        """Trackio has no files of a run."""

    def end(self) -> None:
        self._calls.end()

    def close(self) -> None:
        self._calls.close()


def mlflow_name(name: str) -> str:
    """A metric's name as MLflow takes it; one name that it refuses costs all metrics of a request.

    A character that it refuses becomes its code (``,`` is ``_x2c_``), and what is too long loses its middle. Layers
    that differ in their number alone still do, which is how the rules know them to be of one stack.
    """
    kind, inner, statistic = parsed(name) or ("", name, "")
    inner = (_REFUSED if takes_colons() else _REFUSED_WITH_COLONS).sub(_code, inner)
    if posixpath.normpath(f"gap/{inner}/max") != f"gap/{inner}/max":
        inner = inner.replace("/", _code_of("/"))
    if not kind:
        return _cut(inner, _MOST_CHARACTERS)
    room = _MOST_CHARACTERS - max(len(metric(kind, "", one)) for one in STATISTICS)
    return metric(kind, _cut(inner, room), statistic)


def _code(found: re.Match[str]) -> str:
    return _code_of(found.group())


def _code_of(character: str) -> str:
    return f"_x{ord(character):x}_"


def _cut(name: str, room: int) -> str:
    """A name of at most ``room`` characters: a digest in the place of its middle."""
    if len(name) <= room:
        return name
    tail = room // 4
    head = room - tail - _CUT_CHARACTERS - 2
    digest = hashlib.sha256(name[head:-tail].encode(errors="surrogatepass")).hexdigest()[:_CUT_CHARACTERS]
    return f"{name[:head]}-{digest}-{name[-tail:]}"


def active_runs(*, since: float = 0.0) -> list[ActiveRun]:
    """The runs of W&B, MLflow and trackio that are active.

    Args:
        since: Those alone that began then or later, in seconds since 1970.
    """
    return [*_wandb_runs(since), *_mlflow_runs(since), *_trackio_runs(since)]


def _wandb_runs(since: float) -> list[ActiveRun]:
    run: Any = getattr(sys.modules.get("wandb"), "run", None)
    return [] if run is None or (since and run.start_time < since) else [ActiveWandbRun(run)]


def _mlflow_runs(since: float) -> list[ActiveRun]:
    mlflow: Any = sys.modules.get("mlflow")
    active = mlflow.active_run() if mlflow is not None and hasattr(mlflow, "active_run") else None
    if active is None or active.info.start_time < int(since * 1000):  # it counts whole milliseconds
        return []
    return [ActiveMlflowRun(mlflow.MlflowClient(mlflow.get_tracking_uri()), active.info.run_id)]


def _trackio_runs(since: float) -> list[ActiveRun]:
    active: Any = getattr(sys.modules.get("trackio.context_vars"), "current_run", None)
    run = active.get() if active is not None else None
    if run is None or not getattr(run, "_is_local", True) or (seconds_of(run.config.get("_Created")) or 0.0) < since:
        return []
    return [ActiveTrackioRun(run, Path(sys.modules["trackio.utils"].TRACKIO_DIR))]


def runs_of_loggers(loggers: Iterable[Any]) -> list[ActiveRun]:
    """The runs behind Lightning's loggers."""
    runs: list[ActiveRun] = []
    for logger in loggers:
        kinds = {one.__name__ for one in type(logger).__mro__}
        with suppress(Exception):  # a logger that cannot reach its tracker is its trainer's trouble
            if "MLFlowLogger" in kinds:
                runs.append(ActiveMlflowRun(logger.experiment, logger.run_id))
            elif "WandbLogger" in kinds:
                runs.append(ActiveWandbRun(logger.experiment))
    return runs


def wandb_folder(runs: Sequence[ActiveRun]) -> Path | None:
    """Where the files of the W&B run are, if there is one."""
    return next((Path(one._run.dir) for one in runs if isinstance(one, ActiveWandbRun)), None)  # noqa: SLF001
