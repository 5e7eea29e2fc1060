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
except Exception:  # noqa: BLE001, S110  MLflow would not be imported
    pass
