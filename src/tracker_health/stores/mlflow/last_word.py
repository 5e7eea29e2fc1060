"""With what a server answers a question right now, asked without MLflow's retries, which keep that to themselves."""

from __future__ import annotations

from contextlib import closing
from typing import Any
from urllib.parse import quote, urlencode

from tracker_health.stores.mlflow.credentials import credentials_for
from tracker_health.stores.remote.deadline import within

ANSWER_SECONDS = 5
"""How long it may take over it. It has just left the same question without an answer for much longer."""
_API = "/api/2.0/"
_ARTIFACTS = "mlflow-artifacts/artifacts"
_OF_SERVER = "mlflow-artifacts:/"
_POST = "POST "


def question(endpoint: str, **values: str) -> str:
    """A question to the REST API, as ``status_of`` takes it."""
    return f"{_API}{endpoint}{f'?{urlencode(values)}' if values else ''}"


def search(endpoint: str) -> str:
    """The same for what is asked by POST."""
    return f"{_POST}{_API}{endpoint}"


def artifacts(location: str, path: str = "") -> str:
    """The same for the list of the artifacts at a location, or for one of them; empty where these are of no server."""
    if not location.startswith(_OF_SERVER):
        return ""
    place = location.removeprefix(_OF_SERVER).strip("/")
    return question(f"{_ARTIFACTS}/{quote(f'{place}/{path}')}") if path else question(_ARTIFACTS, path=place)


def status_of(uri: str, asked: str) -> int:
    """The HTTP status of the answer, 0 where there is none, or none in time."""
    try:
        return int(within(ANSWER_SECONDS + 1, _answer, uri, asked))
    except Exception:  # noqa: BLE001  whatever it is, it is no answer
        return 0


def _answer(uri: str, asked: str) -> int:
    from mlflow.utils.rest_utils import http_request

    # MLflow's own function: the same proxies and certificates as for all other requests.
    options: dict[str, Any] = {"max_retries": 0, "timeout": ANSWER_SECONDS, "raise_on_status": False, "stream": True}
    path, method = asked.removeprefix(_POST), "POST" if asked.startswith(_POST) else "GET"
    if method == "POST":
        options["json"] = {"max_results": 1}
    with closing(http_request(credentials_for(uri), path, method, **options)) as response:  # type: ignore[no-untyped-call]
        return int(response.status_code)
