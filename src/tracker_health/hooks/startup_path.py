"""The folder that has Python import the hooks at its start, on a search path and off it again."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = str(Path(__file__).parent / "startup")


def with_startup(path: str) -> str:
    """A PYTHONPATH with the folder at its head."""
    return os.pathsep.join(filter(None, [FOLDER, without_startup(path)]))


def without_startup(path: str) -> str:
    """The same without it."""
    return os.pathsep.join(part for part in path.split(os.pathsep) if part != FOLDER)
