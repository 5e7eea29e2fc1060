"""The artifacts of an MLflow run and of the models that it logged, listed when asked for and fetched when read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from tracker_health.errors import ReadError, RunError, RunNotFound
from tracker_health.readers.regular_file import require_regular
from tracker_health.stores.deadline import BYTES_A_SECOND, REQUEST_SECONDS, Bounded, within
from tracker_health.stores.downloads import Fetch
from tracker_health.stores.fetched_files import MAX_FILES, MAX_SEEN, FetchedFiles, Listing
from tracker_health.stores.files import is_relevant
from tracker_health.stores.http_parts import HttpParts
from tracker_health.stores.mlflow.credentials import guard_repository
from tracker_health.stores.mlflow.failures import translated
from tracker_health.stores.mlflow.parts import parts_of
from tracker_health.stores.naming import is_plain
from tracker_health.stores.own import HEALTH_FOLDER
from tracker_health.stores.tree import RunFile
from tracker_health.text import printable

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from tracker_health.stores.mlflow.empty_runs import EmptyRuns

MAX_FOLDERS = 5_000
"""Folders listed, over all places together. Each is a request."""
MAX_DEPTH = 8
MAX_MODELS = 10
_DELETED = frozenset({"RESOURCE_DOES_NOT_EXIST"})
# MLflow's own: pictures and traces, by the thousand.
_SKIPPED_FOLDERS = frozenset({"images", "traces"})
_MODEL_FILE = "MLmodel"


@dataclass(frozen=True)
class _Root:
    """A place with artifacts: where they appear in the tree, MLflow's repository object for them, and its address."""

    prefix: str
    repository: Any
    location: str = ""


@dataclass
class _Budget:
    """How much of the artifacts may still be looked at."""

    entries: int
    folders: int
    exceeded: bool = False

    def lasts(self, *, entries: int = 0, folders: int = 0) -> bool:
        """Spend that much; whether it was there."""
        self.entries -= entries
        self.folders -= folders
        self.exceeded |= self.entries < 0 or self.folders < 0
        return not self.exceeded


@dataclass(frozen=True)
class _Listing(Listing):
    origins: dict[str, tuple[_Root, str]] = field(default_factory=dict)


class ArtifactTree(FetchedFiles):
    """The files of a run's artifacts, all but our own. What is on this machine is read in place."""

    what = "artifacts"

    def __init__(self, client: MlflowClient, run: Any, uri: str, empty_runs: EmptyRuns | None = None) -> None:
        super().__init__()
        self._client = client
        self._run = run
        self._uri = uri
        self._empty_runs = empty_runs

    def local(self, file: RunFile) -> Path:
        root, path = self._listing.origins[file.path]
        doing = f"the artifact {printable(file.path)} could not be fetched"
        with translated(doing, self._uri, otherwise=ReadError, at=root.location):
            if is_local(root.repository):
                return _regular(Path(root.repository.download_artifacts(path)))
            # Not download_artifacts: it draws a progress bar wherever it is, and first asks whether this is a folder.
            fetch = partial(_download, root.repository, path, file.size)
            return self._downloads.whole(file, fetch)

    @cached_property
    def _listing(self) -> _Listing:
        found: dict[str, tuple[RunFile, _Root, str]] = {}
        budget = _Budget(MAX_SEEN, MAX_FOLDERS)
        counts: Counter[bool] = Counter()
        problem = ""
        try:
            for file, root, path in self._walk_roots(budget):
                matters = is_relevant(file.name) or file.name == _MODEL_FILE
                counts[matters] += 1
                if counts[matters] <= MAX_FILES:
                    found.setdefault(file.path, (file, root, path))
        except RunError as error:
            problem = str(error)
        kept = {path: entry for path, entry in found.items() if not _is_pickled_model(path, found)}
        return _Listing(
            files=tuple(kept[path][0] for path in sorted(kept)),
            origins={path: (root, inner) for path, (_, root, inner) in kept.items()},
            problem=problem,
            truncated=budget.exceeded or counts[True] > MAX_FILES,
        )

    def _walk_roots(self, budget: _Budget) -> Iterator[tuple[RunFile, _Root, str]]:
        for root in self._roots():
            empty = True
            with self._listing_of(root.location):
                for entry in _walk(root.repository, budget):
                    empty = False
                    path = str(PurePosixPath(root.prefix, entry.path))
                    yield RunFile(path=path, size=entry.file_size or 0), root, entry.path
            if self._empty_runs and root.location == self._run.info.artifact_uri:
                self._empty_runs.note(self._run, empty=empty)

    def _listing_of(self, location: str) -> AbstractContextManager[None]:
        return translated("the artifacts could not be listed", self._uri, at=location)

    def _roots(self) -> Iterator[_Root]:
        if not (self._empty_runs and self._empty_runs.has_none(self._run)):
            yield self._root("", self._run.info.artifact_uri)
        models = list(self._models())
        names = Counter(model.name for model, _ in models)
        for model, step in models:
            # A model's artifacts are found below its name, as MLflow itself shows them.
            name = model.name if names[model.name] == 1 else f"{model.name}-{step}"
            prefix = name if is_plain(name) else str(model.model_id)
            yield self._root(prefix, model.artifact_location)

    def _root(self, prefix: str, location: str) -> _Root:
        with self._listing_of(location):
            return _Root(prefix, repository_of(location, self._uri), location)

    def _models(self) -> Iterator[tuple[Any, int]]:
        """The newest models that the run logged, with the step."""
        outputs = getattr(getattr(self._run, "outputs", None), "model_outputs", None) or []
        for output in sorted(outputs, key=lambda output: int(output.step))[-MAX_MODELS:]:
            with suppress(RunNotFound), translated("a logged model", self._uri, absent=_DELETED):
                yield self._client.get_logged_model(output.model_id), output.step

    def _parts(self, file: RunFile) -> Fetch | None:
        root, path = self._listing.origins[file.path]
        parts = parts_of(root.repository, path, file.size)
        return partial(self._fetch_part, root, file, parts) if parts else None

    def _fetch_part(self, root: _Root, file: RunFile, parts: HttpParts, start: int, length: int) -> bytearray:
        """A part of a file. Called from several threads."""
        doing = f"a part of the artifact {printable(file.path)} could not be fetched"
        with translated(doing, self._uri, otherwise=ReadError, at=root.location):
            part: bytearray = within(REQUEST_SECONDS + length / BYTES_A_SECOND, parts.fetch, start, length)
        return part


def repository_of(artifact_uri: str, tracking_uri: str) -> Any:
    """MLflow's object for an artifact location; if that is elsewhere, its calls are given up after a time."""
    # Not the client's: it keeps one per run id in the process, whatever the tracking URI.
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
    from mlflow.utils.uri import add_databricks_profile_info_to_artifact_uri

    location = add_databricks_profile_info_to_artifact_uri(artifact_uri, tracking_uri)  # type: ignore[no-untyped-call]
    repository = guard_repository(get_artifact_repository(location, tracking_uri=tracking_uri))
    return repository if is_local(repository) else Bounded(repository)


def is_local(repository: Any) -> bool:
    """Whether the artifacts lie on this machine, to be read in place."""
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    return isinstance(repository, LocalArtifactRepository)


def _download(repository: Bounded, path: str, size: int, target: Path) -> None:
    repository.for_bytes(size)._download_file(path, str(target))  # noqa: SLF001


def _regular(path: Path) -> Path:
    require_regular(path)
    return path


def _walk(repository: Any, budget: _Budget) -> Iterator[Any]:
    """MLflow's entries for all files, folder by folder, until the budget is spent."""
    folders = [("", 0)]
    while folders:
        folder, depth = folders.pop(0)
        if not budget.lasts(folders=1):
            return
        for entry in repository.list_artifacts(folder or None):
            if not budget.lasts(entries=1):
                return
            inside = entry.path.startswith(f"{folder}/") if folder else True
            if not inside or not is_plain(entry.path):
                continue
            if not entry.is_dir:
                yield entry
            elif depth < MAX_DEPTH and entry.path != HEALTH_FOLDER and _is_entered(entry.path):
                folders.append((entry.path, depth + 1))


def _is_entered(folder: str) -> bool:
    return PurePosixPath(folder).name not in _SKIPPED_FOLDERS


def _is_pickled_model(path: str, paths: dict[str, Any]) -> bool:
    """MLflow's pickled PyTorch module (``data/model.pth`` beside an ``MLmodel``), which never holds optimizer state."""
    module = "data/model.pth"
    return path.endswith(module) and f"{path.removesuffix(module)}{_MODEL_FILE}" in paths
