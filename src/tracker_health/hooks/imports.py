"""Patching a module once it is imported, without importing it and without taking part in its import."""

from __future__ import annotations

import sys
from contextlib import suppress

TYPE_CHECKING = False  # see ``early``
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

MLFLOW, WANDB, TRACKIO = "mlflow.tracking._tracking_service.client", "wandb.sdk.wandb_run", "trackio.run"
"""The modules with what is patched first."""

_waiting: dict[str, Callable[[ModuleType], None]] = {}


class _Observer:
    """A finder that never finds anything. It is asked at each import, and then looks which modules are complete by now.

    A loader that runs something after the module would miss a module that is just being imported. MLflow's client is
    such a module when it loads its plugins. A loader would also take part in imports that do not concern
    tracker-health.
    """

    def find_spec(self, _name: str, _path: Any = None, _target: Any = None) -> None:
        """Nothing, always."""
        with suppress(Exception):  # whatever is wrong with a hook, imports go on
            look()


_observer = _Observer()


def when_imported(name: str, patch: Callable[[ModuleType], None]) -> None:
    """Call ``patch`` with the module of this name: now, or right after it is imported."""
    _waiting[name] = patch
    look()
    if _waiting and _observer not in sys.meta_path:
        sys.meta_path.insert(0, _observer)


def forget(name: str) -> None:
    """Wait for this module no longer."""
    _waiting.pop(name, None)
    _leave_when_done()


def look() -> None:
    """Patch the modules that are imported by now."""
    for name in list(_waiting):
        module = sys.modules.get(name)
        if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
            continue
        patch = _waiting.pop(name, None)
        if patch is not None:  # not taken by another thread
            patch(module)
    _leave_when_done()


def _leave_when_done() -> None:
    if not _waiting and _observer in sys.meta_path:
        sys.meta_path.remove(_observer)
