"""The checkpoints of a run on a W&B server: among its files, and the versions of artifacts that it logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tracker_health.readers.optimizers.optimizer_state import global_step_of
from tracker_health.report.resume_point import NOTHING, Counted, Saved, Shelf
from tracker_health.run_files.all_checkpoints import SavedFiles
from tracker_health.run_files.naming import counted
from tracker_health.stores.remote.checkpoint_places import PartOfTree, Versions
from tracker_health.stores.remote.fetched_files import FetchedFiles
from tracker_health.stores.wandb.address import Address
from tracker_health.stores.wandb.connection import Connection
from tracker_health.stores.wandb.online_files import FilesOfArtifact, OnlineFiles
from tracker_health.text import printable

_MOST_KEYS = 1000
_FILE_NAME = "original_filename"  # where Lightning's logger keeps it


def saved_by(connection: Connection, address: Address, files: OnlineFiles, most: int) -> Shelf:
    """The checkpoints of a run. ``most``: bytes that may be fetched of it, with what was fetched before."""
    run = f"wandb:{'/'.join(address[:3])}"
    own = SavedFiles(PartOfTree(files, files.own_files), lambda path: f"{run}: {path}" if path else run)
    return Versions(own, lambda: [_Logged(connection, one) for one in files.logged], most - files.fetched_bytes)


@dataclass(frozen=True)
class _Logged:
    """See ``Version``: a version of an artifact."""

    connection: Connection
    artifact: Any

    @property
    def saved(self) -> Saved:
        one = self.artifact
        name = f"wandb:{one.source_entity}/{one.source_project}/{one.source_name}"
        return Saved(key=name, path=printable(name, 400), counted=_counted_by(one))

    def files(self) -> FetchedFiles:
        return FilesOfArtifact(self.connection, self.artifact)

    def why_none(self, files: FetchedFiles) -> str:  # noqa: ARG002 - the protocol's
        return "no weights that are read are among its files"


def _counted_by(artifact: Any) -> Counted:
    """What its metadata says, its aliases (``checkpoint_global_step_500``), and at which point of the history it was
    logged.
    """
    metadata = artifact.metadata if isinstance(artifact.metadata, Mapping) else {}
    plain = {str(key).rpartition("/")[2]: value for key, value in list(metadata.items())[:_MOST_KEYS]}
    epoch = plain.get("epoch")
    whole = epoch if isinstance(epoch, int) and not isinstance(epoch, bool) else None
    file = plain.get(_FILE_NAME)
    names = [*artifact.aliases, file if isinstance(file, str) else ""]
    told = next((one for name in names if (one := counted(str(name)[:200]))), NOTHING)
    logged = artifact.history_step
    own = Counted(step=global_step_of(plain), epoch=whole, logged=logged if isinstance(logged, int) else None)
    return own.over(told)
