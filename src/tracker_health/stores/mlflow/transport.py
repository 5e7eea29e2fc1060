"""MLflow's own requests, bounded where they are ours: in the one place where it takes a session for each of them."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from tracker_health.stores.remote.answers import bounded, is_ours
from tracker_health.stores.remote.http_parts import Unanswered
from tracker_health.stores.remote.reasons import NOT_THE_ANSWER, is_failure

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
                _sessions[session].hooks["response"].append(_require_answer)
            return _sessions[session]

    session_of.is_bounded = True  # type: ignore[attr-defined]
    with _installing:
        request_utils._get_request_session = session_of  # noqa: SLF001


def _require_answer(response: Any, *_: Any, stream: bool = False, **__: Any) -> None:
    """See that an answer is one, before MLflow looks into it.

    What it does not find there it takes for empty: a list of files out of something else would be one of a run without
    files. And what comes with a status of failure may be of anybody on the way, whatever it says: that a tag is gone,
    or a run.

    Raises:
        HTTPError: the server failed, or did not let us in.
        Unanswered: the answer is JSON, and none that the server could have given.
    """
    if stream:
        return
    status = response.status_code
    if status in (401, 403) or is_failure(status):
        from requests import HTTPError

        response.close()
        raise HTTPError(f"the server answered {status}", response=response)
    endpoint = re.sub(r"^.*/api/\d\.\d(?=/mlflow)", "", urlsplit(response.url).path)
    fields = _answers().get((response.request.method, endpoint)) if status == 200 else None
    if fields is None:
        return
    try:
        answer = response.json()
    except ValueError:
        return  # MLflow says so
    # What changes something is answered with nothing, and other servers than MLflow's own may say more.
    if not isinstance(answer, dict) or (fields and answer and not answer.keys() & fields):
        raise Unanswered(NOT_THE_ANSWER)


@cache
def _answers() -> Mapping[tuple[str, str], frozenset[str]]:
    """By method and endpoint the fields that an answer may have."""
    from mlflow.protos import mlflow_artifacts_pb2, service_pb2
    from mlflow.protos.databricks_pb2 import rpc

    services = [
        *service_pb2.DESCRIPTOR.services_by_name.values(),
        *mlflow_artifacts_pb2.DESCRIPTOR.services_by_name.values(),
    ]
    return {
        (endpoint.method, endpoint.path): frozenset(
            field.name for field in method.input_type.nested_types_by_name["Response"].fields
        )
        for service in services
        for method in service.methods
        if "Response" in method.input_type.nested_types_by_name
        for endpoint in method.GetOptions().Extensions[rpc].endpoints
    }
