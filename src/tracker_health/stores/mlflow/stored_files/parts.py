"""Parts of the artifacts that an MLflow server keeps for its clients."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tracker_health.stores.remote.deadline import Bounded
from tracker_health.stores.remote.http_parts import CHUNK, HttpParts, HttpResponse

_HANDLED = frozenset({200, 206, 416})


def parts_of(repository: Any, path: str, size: int) -> HttpParts | None:
    """Parts of an artifact, fetched as MLflow's own client fetches it whole; None where it is on no MLflow server."""
    from mlflow.store.artifact.http_artifact_repo import HttpArtifactRepository
    from mlflow.utils.request_utils import augmented_raise_for_status
    from mlflow.utils.rest_utils import http_request

    inner = repository.inner if isinstance(repository, Bounded) else repository
    if not isinstance(inner, HttpArtifactRepository):
        return None

    @contextmanager
    def ask(headers: Mapping[str, str]) -> Iterator[HttpResponse]:
        credentials = inner._host_creds  # noqa: SLF001 - the same server, proxies, certificates and credentials
        options = {"stream": True, "extra_headers": dict(headers)}
        with http_request(credentials, posixpath.join("/", path), "GET", **options) as response:  # type: ignore[no-untyped-call]
            if response.status_code not in _HANDLED:
                augmented_raise_for_status(response)  # type: ignore[no-untyped-call]
            yield HttpResponse(response.status_code, response.headers, response.iter_content(CHUNK))

    return HttpParts(ask, size)
