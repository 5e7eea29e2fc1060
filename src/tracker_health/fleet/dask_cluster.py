"""Other machines to judge runs on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import cast

from tracker_health.errors import StoreUnavailable, described, optional_packages
from tracker_health.text import printable, without_userinfo

_ANSWER_SECONDS = 20


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """The workers of the Dask cluster whose scheduler is at this address (``tcp://host:8786``).

    They need the package and its extras, and find the trackers by the environment that they themselves have. Of what a
    worker that died had in hand, Dask gives another one.

    Raises:
        MissingExtra: distributed is not installed.
        StoreUnavailable: no scheduler answers there.
    """
    with optional_packages("dask"):
        from distributed import Client
    try:
        client = Client(address, timeout=_ANSWER_SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        message = f"no Dask scheduler answers at {printable(without_userinfo(address))}: {described(error)}"
        raise StoreUnavailable(message, "give the address that dask scheduler prints, as tcp://host:8786") from None
    with client:
        # Not pure: of a run that is done a second time the first result must not be given.
        yield cast("Executor", client.get_executor(pure=False))  # type: ignore[no-untyped-call]
