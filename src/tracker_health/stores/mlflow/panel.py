"""The picture among a run's metrics: an image as MLflow logs it, under one name of ours, so that a new one replaces it.

MLflow's own ``log_image`` gives each image a new name, and a run annotated ten times would show ten.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracker_health.stores.mlflow.artifacts import is_local, repository_of

IMAGES_TAG = "mlflow.loggedImages"
"""By this tag MLflow's pages know that a run has images at all."""

_FOLDER = "images"
# Key, step, time and a random part, as MLflow's pages take them apart; the random part tells ours from the owner's.
_NAME = "health~loss+step+0+timestamp+1+5b0f3c7e-2d6b-4c1a-9f0e-7468656c7468"
_FULL, _SMALL = f"{_NAME}.png", f"{_NAME}+compressed.webp"
_SMALL_WIDTH = 720


class Panel:
    """The picture of one run. Its store may raise anything, already when it is looked up."""

    def __init__(self, artifact_uri: str, tracking_uri: str) -> None:
        self._places = artifact_uri, tracking_uri

    def show(self, png: bytes) -> None:
        """Put a picture in, or in the place of the one before."""
        files = {_FULL: png, _SMALL: _smaller(png)}
        with tempfile.TemporaryDirectory(prefix="tracker-health-") as folder:
            for name, content in files.items():
                Path(folder, name).write_bytes(content)
            repository_of(*self._places).log_artifacts(folder, _FOLDER)

    def remove(self) -> bool:
        """Take the picture out; whether no image of anybody's is left. False where that cannot be told."""
        with suppress(Exception):  # whatever a store's own library raises; not every store can delete
            repository = repository_of(*self._places)
            there = _listed(repository)
            for name in (_FULL, _SMALL):
                if f"{_FOLDER}/{name}" in there:
                    _delete(repository, name)
            if is_local(repository):
                with suppress(OSError):  # the owner has images in it
                    Path(repository.artifact_dir, _FOLDER).rmdir()
            return not _listed(repository)
        return False


def _listed(repository: Any) -> Mapping[str, bool]:
    return {entry.path: bool(entry.is_dir) for entry in repository.list_artifacts(_FOLDER)}


def _delete(repository: Any, name: str) -> None:
    if is_local(repository):  # MLflow 2 deletes nothing but folders here
        Path(repository.artifact_dir, _FOLDER, name).unlink(missing_ok=True)
    else:
        repository.delete_artifacts(f"{_FOLDER}/{name}")


def _smaller(png: bytes) -> bytes:
    """The picture as MLflow's pages first show it; the picture itself where there is nothing to make it smaller."""
    file = io.BytesIO()
    try:
        from PIL import Image

        with Image.open(io.BytesIO(png)) as image:
            image.thumbnail((_SMALL_WIDTH, _SMALL_WIDTH))
            image.save(file, format="WEBP")
    except (ImportError, OSError):
        return png
    return file.getvalue()
