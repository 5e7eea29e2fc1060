"""What has Python import the hooks at its start: a folder on its search path, or a file in one of its own folders."""

from __future__ import annotations

import os
import site
from pathlib import Path

_STARTED = "tracker-health.pth"
FOLDER = str(Path(__file__).parent / "startup")


def with_startup(path: str) -> str:
    """A PYTHONPATH with the folder at its head."""
    return os.pathsep.join(filter(None, [FOLDER, without_startup(path)]))


def without_startup(path: str) -> str:
    """The same without it."""
    return os.pathsep.join(part for part in path.split(os.pathsep) if part != FOLDER)


def why_not_at_start() -> str:
    """Why the environment does not switch the hooks on as Python starts, with what does; "" where it does."""
    own = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    if any(Path(folder, _STARTED).is_file() for folder in own):
        return ""
    place = Path(__file__).parents[2]
    return (
        f"TRACKER_HEALTH_AUTO=1 reaches runs of MLflow, and none of W&B: Python reads no {_STARTED} in {place}, which "
        "is none of its own folders (an editable installation, or pip install --target); call "
        "tracker_health.autolog(), or use tracker-health exec"
    )
