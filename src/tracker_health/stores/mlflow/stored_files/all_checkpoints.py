"""The checkpoints of an MLflow run: among its artifacts, and the models that it logged, each at a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracker_health.report.resume_point import Counted, Saved, Shelf
from tracker_health.run_files.all_checkpoints import SavedFiles
from tracker_health.run_files.weights import pickled_reason
from tracker_health.stores.mlflow.failures import translated
from tracker_health.stores.mlflow.stored_files.artifacts import ArtifactTree, FilesOfModel
from tracker_health.stores.remote.checkpoint_places import PartOfTree, Versions
from tracker_health.stores.remote.fetched_files import FetchedFiles
from tracker_health.text import printable

if TYPE_CHECKING:
    from mlflow import MlflowClient

_NO_FILES = "no weights that are read are among its files"
_DELETED = frozenset({"RESOURCE_DOES_NOT_EXIST"})


def saved_by(client: MlflowClient, uri: str, run: Any, artifacts: ArtifactTree, most: int) -> Shelf:
    """The checkpoints of a run. ``most``: bytes that may be fetched of it, with what was fetched before."""
    run_id = run.info.run_id
    own = SavedFiles(PartOfTree(artifacts, artifacts.own_files), lambda path: f"runs:/{run_id}/{path}".rstrip("/"))
    outputs = getattr(getattr(run, "outputs", None), "model_outputs", None) or []
    return Versions(
        own,
        lambda: [_Logged(client, uri, str(one.model_id), int(one.step)) for one in outputs],
        most - artifacts.fetched_bytes,
    )


@dataclass(frozen=True)
class _Logged:
    """See ``Version``: a model that the run logged. One without a step is at 0."""

    client: MlflowClient
    uri: str
    model_id: str
    step: int

    @property
    def saved(self) -> Saved:
        address = f"models:/{self.model_id}"
        return Saved(key=address, path=printable(address), counted=Counted(step=self.step or None))

    def files(self) -> FetchedFiles:
        with translated(f"the logged model {printable(self.model_id, 80)}", self.uri, absent=_DELETED):
            location = str(self.client.get_logged_model(self.model_id).artifact_location)
        return FilesOfModel(self.client, location, self.uri)

    def why_none(self, files: FetchedFiles) -> str:
        return pickled_reason(files.pickled[0].path) if files.pickled else _NO_FILES
