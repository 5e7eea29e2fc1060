"""The artifacts of an MLflow run and of the models that it logged, listed when asked for and fetched when read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from tracker_health.errors import UNREADABLE, ReadError, RunNotFound, StoreUnavailable
from tracker_health.evidence import Part, Request
from tracker_health.readers.files.random_access import LocalFile, RandomAccess
from tracker_health.readers.files.regular_file import require_regular
from tracker_health.run_files.checkpoints import CHECKPOINT_PARTS
from tracker_health.run_files.naming import is_plain
from tracker_health.run_files.reading import is_relevant
from tracker_health.run_files.tree import FileEvidence, RunFile
from tracker_health.run_files.weights import pickled_reason
from tracker_health.stores.common.ownership import HEALTH_FOLDER
from tracker_health.stores.mlflow.connection import answer_of
from tracker_health.stores.mlflow.failures import translated
from tracker_health.stores.mlflow.stored_files.empty_runs import EmptyRuns
from tracker_health.stores.mlflow.stored_files.parts import parts_of
from tracker_health.stores.mlflow.stored_files.repositories import is_local, repository_of
from tracker_health.stores.remote.answers import at_most
from tracker_health.stores.remote.deadline import BYTES_A_SECOND, REQUEST_SECONDS, Bounded, within
from tracker_health.stores.remote.downloads import Fetch
from tracker_health.stores.remote.fetched_files import MAX_FILES, MAX_SEEN, FetchedFiles, Listing
from tracker_health.stores.remote.http_parts import HttpParts
from tracker_health.text import printable

if TYPE_CHECKING:
    from mlflow import MlflowClient

MAX_FOLDERS = 5_000
"""Folders listed, over all places together. Each is a request."""
MAX_DEPTH = 8
MAX_MODELS = 10
_DELETED = frozenset({"RESOURCE_DOES_NOT_EXIST"})
# MLflow's own: pictures and traces, by the thousand.
_SKIPPED_FOLDERS = frozenset({"images", "traces"})
_MODEL_FILE = "MLmodel"
_PICKLED_MODELS = ("data/model.pth", "model.pkl", "python_model.pkl")
_OF_A_MODEL = frozenset({_MODEL_FILE, *(PurePosixPath(path).name for path in _PICKLED_MODELS)})
_OF_SERVER = "mlflow-artifacts:"
_WITHOUT_SERVER = "the artifacts are behind the run's MLflow server: not looked at"
_NOT_SERVED = "the MLflow server gives no artifacts (--no-serve-artifacts): not looked at"


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
    """``pickled``: the models that were logged as pickles, of which nothing is read."""

    origins: dict[str, tuple[_Root, str]] = field(default_factory=dict)
    pickled: tuple[RunFile, ...] = ()


class ArtifactTree(FetchedFiles):
    """The files of a run's artifacts, all but our own. What is on this machine is read in place."""

    what = "artifacts"

    def __init__(self, client: MlflowClient, run: Any, uri: str, empty_runs: EmptyRuns | None = None) -> None:
        super().__init__()
        self._client = client
        self._run = run
        self._uri = uri
        self._empty_runs = empty_runs
        self._at_the_top: set[str] = set()
        self._lacks_our_folder = False
        self.apart = ""
        """Why artifacts are out of reach from here, which is no failure; known once they were to be listed."""

    def evidence(self, request: Request, *, logs: bool) -> FileEvidence:
        """As for all; with the reason why a checkpoint that may be there is not read."""
        found = super().evidence(request, logs=logs)
        if found.weights is None and self._listing.pickled:
            reason = pickled_reason(self.pickled[0].path)
            found.missing = dict.fromkeys((Part.WEIGHTS, Part.WEIGHT_CHANGES), reason) | found.missing
        if self.apart:
            found.missing = dict.fromkeys(CHECKPOINT_PARTS, self.apart) | found.missing
        return found

    @property
    def own_files(self) -> tuple[RunFile, ...]:
        """Those that the run itself logged, without those of its models."""
        return tuple(file for file in self.files if not self._listing.origins[file.path][0].prefix)

    @property
    def pickled(self) -> tuple[RunFile, ...]:
        return self._listing.pickled

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
                matters = is_relevant(file.path) or file.name in _OF_A_MODEL
                counts[matters] += 1
                if counts[matters] <= MAX_FILES:
                    found.setdefault(file.path, (file, root, path))
        except (*UNREADABLE, StoreUnavailable) as error:
            if self._serves_none():
                self.apart = _NOT_SERVED
            elif isinstance(error, StoreUnavailable):
                raise
            else:
                problem = str(error)
        pickled = tuple(path for path in sorted(found) if _is_pickled_model(path, found))
        kept = {path: entry for path, entry in found.items() if path not in pickled}
        return _Listing(
            files=tuple(kept[path][0] for path in sorted(kept)),
            origins={path: (root, inner) for path, (_, root, inner) in kept.items()},
            problem=problem,
            pickled=tuple(found[path][0] for path in pickled),
            truncated=budget.exceeded or counts[True] > MAX_FILES,
        )

    def _walk_roots(self, budget: _Budget) -> Iterator[tuple[RunFile, _Root, str]]:
        for root in self._roots():
            empty, is_own = True, root.location == self._location
            with self._listing_of(root.location):
                for entry in _walk(root.repository, budget, self._at_the_top if is_own else set()):
                    empty = False
                    path = str(PurePosixPath(root.prefix, entry.path))
                    yield RunFile(path=path, size=entry.file_size or 0), root, entry.path
            if is_own and not budget.exceeded:
                self._lacks_our_folder = HEALTH_FOLDER not in self._at_the_top
            if self._empty_runs and is_own:
                self._empty_runs.note(self._run, empty=empty)

    @property
    def lacks_our_folder(self) -> bool:
        """Whether the run's server has listed its artifacts, and none goes by the name of our folder."""
        return self._lacks_our_folder and self._location.startswith(_OF_SERVER)

    def _listing_of(self, location: str) -> AbstractContextManager[None]:
        return translated("the artifacts could not be listed", self._uri, otherwise=ReadError, at=location)

    @property
    def _location(self) -> str:
        """Where the artifacts of the run itself are."""
        return str(self._run.info.artifact_uri)

    def _serves_none(self) -> bool:
        """Whether the run's server says that it has no artifacts to give."""
        if not (self._location.startswith(f"{_OF_SERVER}/") and self._uri.startswith("http")):
            return False
        with suppress(Exception):
            answer: str = within(REQUEST_SECONDS, answer_of, self._uri, "/api/2.0/mlflow-artifacts/artifacts")
            return "--no-serve-artifacts" in answer
        return False

    def _roots(self) -> Iterator[_Root]:
        for prefix, location in self._places():
            if location.startswith(_OF_SERVER) and not self._uri.startswith("http"):
                self.apart = _WITHOUT_SERVER
            else:
                yield self._root(prefix, location)

    def _places(self) -> Iterator[tuple[str, str]]:
        if not (self._empty_runs and self._empty_runs.has_none(self._run)):
            yield "", self._location
        models = list(self._models())
        names = Counter(model.name for model, _ in models)
        for model, step in models:
            # A model's artifacts are found below its name, as MLflow itself shows them.
            name = model.name if names[model.name] == 1 else f"{model.name}-{step}"
            yield name if is_plain(name) else str(model.model_id), model.artifact_location

    def _root(self, prefix: str, location: str) -> _Root:
        with self._listing_of(location):
            return _Root(prefix, repository_of(location, self._uri), location)

    def _models(self) -> Iterator[tuple[Any, int]]:
        """The newest models that the run logged, with the step."""
        outputs = getattr(getattr(self._run, "outputs", None), "model_outputs", None) or []
        for output in sorted(outputs, key=lambda output: int(output.step))[-MAX_MODELS:]:
            with suppress(RunNotFound), translated("a logged model", self._uri, ReadError, absent=_DELETED):
                yield self._client.get_logged_model(output.model_id), output.step

    def _parts(self, file: RunFile) -> Fetch | None:
        root, path = self._listing.origins[file.path]
        parts = parts_of(root.repository, path, file.size)
        return partial(self._fetch_part, root, file, parts) if parts else None

    def _fetch_part(self, root: _Root, file: RunFile, parts: HttpParts, start: int, length: int) -> bytearray:
        """A part of a file. Called from several threads."""
        doing = f"a part of the artifact {printable(file.path)} could not be fetched"
        with translated(doing, self._uri, otherwise=ReadError, at=root.location), at_most(length):
            part: bytearray = within(REQUEST_SECONDS + length / BYTES_A_SECOND, parts.fetch, start, length)
        return part


class FilesOfModel(ArtifactTree):
    """The files of one model, which are at one place, whatever else its run has logged."""

    what = "the model's files"

    def __init__(self, client: MlflowClient, location: str, uri: str) -> None:
        super().__init__(client, None, uri)
        self._at = location

    @property
    def _location(self) -> str:
        return self._at

    def _places(self) -> Iterator[tuple[str, str]]:
        yield "", self._at


class ModelFiles(FilesOfModel):
    """The files of one model, fetched whole."""

    def open(self, file: RunFile) -> RandomAccess:
        """The file, fetched whole: weights that are alone are read where all of them are here."""
        return LocalFile(self.local(file))


def _download(repository: Bounded, path: str, size: int, target: Path) -> None:
    with at_most(size):
        repository.for_bytes(size)._download_file(path, str(target))  # noqa: SLF001


def _regular(path: Path) -> Path:
    require_regular(path)
    return path


def _walk(repository: Any, budget: _Budget, at_the_top: set[str]) -> Iterator[Any]:
    """MLflow's entries for all files, folder by folder, until the budget is spent. ``at_the_top``: gets the names of
    all that is not within a folder.
    """
    folders = [("", 0)]
    while folders:
        folder, depth = folders.pop(0)
        if not budget.lasts(folders=1):
            return
        for entry in repository.list_artifacts(folder or None):
            if not budget.lasts(entries=1):
                return
            if not folder:
                at_the_top.add(entry.path)
            inside = entry.path.startswith(f"{folder}/") if folder else True
            if not inside or not is_plain(entry.path):
                continue
            if not entry.is_dir:
                yield entry
            elif depth < MAX_DEPTH and entry.path != HEALTH_FOLDER and _is_entered(entry.path):
                folders.append((entry.path, depth + 1))


def _is_entered(folder: str) -> bool:
    return PurePosixPath(folder).name not in _SKIPPED_FOLDERS


def _is_pickled_model(path: str, paths: Container[str]) -> bool:
    """A model that MLflow logged as a pickle, next to an ``MLmodel``: it never holds optimizer state."""
    return any(
        path.endswith(module) and f"{path.removesuffix(module)}{_MODEL_FILE}" in paths for module in _PICKLED_MODELS
    )
