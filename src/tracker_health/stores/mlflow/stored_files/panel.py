"""The picture among a run's metrics: an image as MLflow logs it, under one name of ours, so that a new one replaces it.

MLflow's own ``log_image`` gives each image a new name, and a run annotated ten times would show ten.
"""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path

from tracker_health.stores.mlflow.stored_files.artifact_folder import ArtifactFolder

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
        self._folder().put({_FULL: png, _SMALL: _smaller(png)})

    def places(self) -> list[Path]:
        """Where it is on this machine, with the folder around it; nothing where a server keeps it."""
        return self._folder().places((_FULL, _SMALL))

    def remove(self) -> tuple[frozenset[str], bool]:
        """Take the picture out. The paths of what is left of it, since not every store can delete; and whether no image
        of anybody else's is there, False where that is not known.
        """
        with suppress(Exception):  # whatever a store's own library raises
            folder = self._folder()
            there = folder.listed()
            for name in (_FULL, _SMALL):
                if name in there:
                    folder.delete(name, there)
            folder.remove_if_empty()
            left = folder.listed().keys()
            ours = left & {_FULL, _SMALL}
            return frozenset(f"{_FOLDER}/{name}" for name in ours), left == ours
        return frozenset(), False

    def _folder(self) -> ArtifactFolder:
        return ArtifactFolder(*self._places, _FOLDER)


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
