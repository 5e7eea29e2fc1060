"""Real stores for the server that answers agents."""

from __future__ import annotations

from ..stores.conftest import _no_telemetry, server_uri, sqlite_uri, wandb_server  # noqa: F401, TID252  fixtures
