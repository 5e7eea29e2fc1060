"""Real stores for the server that answers agents."""

from __future__ import annotations

from ..stores.conftest import _no_telemetry, sqlite_uri  # noqa: F401, TID252  fixtures
