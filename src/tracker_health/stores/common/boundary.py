"""Where this process may read files of runs: in some folders, and where an MLflow store of this machine keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tracker_health.readers.files.regular_file import confine

_ARTIFACTS = ("mlruns", "mlartifacts")
_OF_A_DATABASE = ("", "-wal", "-shm", "-journal")


def read_only_from(folders: Iterable[Path], tracking_uri: str) -> None:
    """Let this process read files of runs from these folders alone, wherever links lead.

    Args:
        folders: Folders of this machine.
        tracking_uri: Of an MLflow store; one on this machine may be read as well, with the folders next to it in which
            MLflow keeps artifacts. Empty for none.
    """
    confine(*folders, *_places_of(tracking_uri))


def _places_of(tracking_uri: str) -> list[Path]:
    parts = urlsplit(tracking_uri)
    if parts.scheme == "sqlite":
        database = Path(unquote(tracking_uri.removeprefix("sqlite:///")))
        files = [database.with_name(database.name + ending) for ending in _OF_A_DATABASE]
        return [*files, *(database.parent / name for name in _ARTIFACTS)]
    if parts.scheme in ("", "file") and tracking_uri:
        return [Path(unquote(parts.path))]
    return []
