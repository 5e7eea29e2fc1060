"""What is told of troubles in the measuring: a warning, which never becomes an exception in somebody's training."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress

from tracker_health.text import printable


def tell(message: str) -> None:
    """Warn in one line. Where warnings are errors, or this thread may not warn, the line goes to standard error."""
    line = f"tracker-health: {printable(message, 1000)}"
    try:
        warnings.warn(line, RuntimeWarning, stacklevel=3)
    except Exception:  # noqa: BLE001  python -W error
        with suppress(Exception):  # closed, full, or somebody's own object
            sys.stderr.write(f"{line}\n")
