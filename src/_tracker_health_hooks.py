"""Switches the hooks on where that is wanted.

MLflow imports this by the entry point ``mlflow.run_context_provider``; W&B has no such entry points, so Python does as
it starts, by ``tracker-health.pth``, where TRACKER_HEALTH_AUTO is set.

A module of its own, outside of the package: whatever may be wrong with that, MLflow can still be imported.
"""

import os


class RunContextProvider:
    """Gives no tags: MLflow just has no other place from which a package is imported with it."""

    def in_context(self) -> bool:
        """Never; MLflow then asks for no tags."""
        return False

    def tags(self) -> "dict[str, str]":
        """None."""
        return {}


try:
    if os.environ.get("TRACKER_HEALTH_DISABLED", "").strip().lower() in ("", "0", "false", "no", "off"):
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
