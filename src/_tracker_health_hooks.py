"""Switches the hooks on where that is wanted.

MLflow imports this by the entry point ``mlflow.run_context_provider``; W&B has no such entry points, so Python does as
it starts, by ``tracker-health.pth``, where TRACKER_HEALTH_AUTO is set.

A module of its own, outside of the package: whatever may be wrong with that, MLflow can still be imported.
"""

import os

_OFF = ("", "0", "false", "no", "off")
_CONFIGURATION_BYTES = 2**18
_CONFIGURATION = (("tracker-health.toml", b""), ("pyproject.toml", b"tracker-health"))
"""Files by which the hooks may be switched on, and what is in them then: the package finds no others."""


class RunContextProvider:
    """Gives no tags: MLflow just has no other place from which a package is imported with it."""

    def in_context(self) -> bool:
        """Never; MLflow then asks for no tags."""
        return False

    def tags(self) -> "dict[str, str]":
        """None."""
        return {}


def _is_on(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() not in _OFF


def _may_be_wanted() -> bool:
    """Whether it is worth to ask the package whether the hooks are wanted: everybody who uses MLflow comes by here."""
    if os.environ.get("TRACKER_HEALTH_AUTO", "").strip():
        return _is_on("TRACKER_HEALTH_AUTO")
    return bool(os.environ.get("TRACKER_HEALTH_CONFIG")) or _is_configured(os.getcwd())  # noqa: PTH109


def _is_configured(folder: str) -> bool:
    """Whether there is a file of ours in a folder or above it."""
    while not any(_mentions(os.path.join(folder, name), word) for name, word in _CONFIGURATION):  # noqa: PTH118
        above = os.path.dirname(folder)  # noqa: PTH120
        if above == folder:
            return False
        folder = above
    return True


def _mentions(path: str, word: bytes) -> bool:
    if not os.path.isfile(path):  # noqa: PTH113
        return False
    if not word:
        return True
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return word in file.read(_CONFIGURATION_BYTES)
    except OSError:
        return False


try:
    if not _is_on("TRACKER_HEALTH_DISABLED") and _may_be_wanted():
        from tracker_health.hooks import autolog_if_wanted

        autolog_if_wanted()
except Exception as error:  # noqa: BLE001  MLflow would not be imported
    # Said once, also where this process starts others. Without the package there is no other way to keep that in mind.
    if os.environ.get("TRACKER_HEALTH_AUTO") and not os.environ.get("_TRACKER_HEALTH_TREE"):
        import contextlib
        import sys

        os.environ["_TRACKER_HEALTH_TREE"] = os.devnull
        with contextlib.suppress(Exception):
            reason = f"{type(error).__name__}: {error}".encode("ascii", "backslashreplace").decode()[:300]
            sys.stderr.write(f"tracker-health: runs are not judged when they end: {' '.join(reason.split())}\n")
