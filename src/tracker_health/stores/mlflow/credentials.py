"""What MLflow sends along to a server: the credentials of the environment, to servers alone that the user has named."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from inspect import getattr_static
from types import FunctionType
from typing import Any

from tracker_health.stores.remote import hosts

_ASKED = "get_default_host_creds"


def credentials_for(uri: str) -> Any:
    """MLflow's object with what is sent along to a server; for one that the user has not named, or over plain
    http, without token, user, password and signature.
    """
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import MlflowHostCreds

    found = get_default_host_creds(uri)  # type: ignore[no-untyped-call]
    if hosts.gets_credentials(uri):
        return found
    if found.token or found.username or found.password or found.auth or found.aws_sigv4 or found.client_cert_path:
        hosts.withhold(uri)
    return MlflowHostCreds(  # type: ignore[no-untyped-call]
        host=found.host,
        ignore_tls_verification=found.ignore_tls_verification,
        server_cert_path=found.server_cert_path,
    )


def with_own_credentials(client: Any, uri: str) -> Any:
    """A client whose requests carry ``credentials_for`` its server: its store is not the one that MLflow keeps for the
    whole process.
    """
    from mlflow.store.model_registry.rest_store import RestStore as Registry
    from mlflow.store.tracking.rest_store import RestStore
    from mlflow.tracking._model_registry.client import ModelRegistryClient
    from mlflow.tracking._tracking_service.client import TrackingServiceClient

    store = RestStore(partial(credentials_for, uri))  # type: ignore[no-untyped-call]
    registry = Registry(partial(credentials_for, uri))  # type: ignore[no-untyped-call]
    client._tracking_client = type("_Tracking", (TrackingServiceClient,), {"store": store})(uri)  # noqa: SLF001
    # Where the client keeps it once it was asked for.
    client._registry_client_lazy = type("_Registry", (ModelRegistryClient,), {"store": registry})(uri, uri)  # noqa: SLF001
    return client


def guard_repository(repository: Any) -> Any:
    """The artifacts of a server, asked for with ``credentials_for`` it: a run's record says where they are."""
    from mlflow.store.artifact.http_artifact_repo import HttpArtifactRepository

    if isinstance(repository, HttpArtifactRepository) and not hosts.gets_credentials(str(repository.artifact_uri)):
        kind = type(repository)
        repository.__class__ = type(kind.__name__, (kind,), dict(_with_our_credentials(kind)))
    return repository


def _with_our_credentials(kind: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties of a class of MLflow's that ask for credentials, each asking ``credentials_for``.

    MLflow has no way to give them, and asks for them in a dozen places: so each of these is the same code with another
    function under that name.
    """
    for name in dir(kind):
        found = getattr_static(kind, name)
        function = found.fget if isinstance(found, property) else found
        if isinstance(function, FunctionType) and _ASKED in function.__code__.co_names:
            names = {**function.__globals__, _ASKED: credentials_for}
            ours = FunctionType(function.__code__, names, name, function.__defaults__, function.__closure__)
            ours.__kwdefaults__ = function.__kwdefaults__
            yield name, property(ours) if isinstance(found, property) else ours
