"""MLflow's own requests, bounded where they are ours: in the one place where it takes a session for each of them."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

from tracker_health.stores.remote.answers import bounded, is_ours

_installing = threading.Lock()
_sessions: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def bound_requests() -> None:
    """Have the answers to our requests read within limits; those of others in this process stay as they are."""
    from mlflow.utils import request_utils

    theirs = request_utils._get_request_session  # noqa: SLF001 - there is no other way
    if getattr(theirs, "is_bounded", False):
        return

    def session_of(*arguments: Any, **options: Any) -> Any:
        session = theirs(*arguments, **options)  # type: ignore[no-untyped-call]
        if not is_ours():
            return session
        with _installing:
            if session not in _sessions:
                _sessions[session] = bounded(session)
            return _sessions[session]

    session_of.is_bounded = True  # type: ignore[attr-defined]
    with _installing:
        request_utils._get_request_session = session_of  # noqa: SLF001
