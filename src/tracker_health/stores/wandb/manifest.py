"""What a version of an artifact lists: which of its names are files, and which only stand for something elsewhere."""

from __future__ import annotations

import json
from functools import partial
from typing import Any
from urllib.parse import urljoin

from tracker_health.errors import ReadError
from tracker_health.stores.remote.answers import MOST_ANSWER_BYTES
from tracker_health.stores.remote.url import asked
from tracker_health.stores.wandb.connection import Connection
from tracker_health.text import printable, size_of

_WHERE = """
query ArtifactManifest($id: ID!) { artifact(id: $id) { currentManifest { file { directUrl } } } }
"""


def files_in(connection: Connection, artifact: Any) -> frozenset[str]:
    """The names of the files of an artifact: of what it lists, that which has no ``ref``. One with it has nothing but
    the address of what it stands for, which anybody may have written.

    Raises:
        RunError: what it lists cannot be read.
    """
    doing = f"what the artifact {printable(artifact.name)} lists could not be read"
    # Not as the SDK fetches it, which reads it whole however large it is.
    fetch = partial(_fetched, doing, connection, artifact.id)
    content = connection.asked(doing, fetch, size=MOST_ANSWER_BYTES, otherwise=ReadError)
    try:
        entries = json.loads(content)["contents"]
        return frozenset(name for name, entry in entries.items() if not entry.get("ref"))
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        raise ReadError(f"{doing}: it is no list of files") from None


def _fetched(doing: str, connection: Connection, artifact_id: str) -> bytes:
    answer = connection.api._service_api.execute_graphql(_WHERE, {"id": artifact_id})  # noqa: SLF001
    found = ((answer or {}).get("artifact") or {}).get("currentManifest") or {}
    address = urljoin(f"{connection.server}/", str((found.get("file") or {}).get("directUrl") or ""))
    if not address.lower().startswith(("http://", "https://")):
        raise ReadError(f"{doing}: the server does not say where that is")
    content = bytearray()
    with asked(address, {"Accept-Encoding": "identity"}) as response:
        for chunk in response.chunks:
            content += chunk
            if len(content) > MOST_ANSWER_BYTES:
                raise ReadError(f"{doing}: it is larger than {size_of(MOST_ANSWER_BYTES)}")
    return bytes(content)
