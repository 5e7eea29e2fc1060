"""Answers that fit into the context of a model: JSON of few bytes, whatever a run is called and says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tracker_health.text import clipped

MOST_BYTES = 2000
"""Of a document in brief, as JSON on one line."""
_ID_BYTES, _NAME_BYTES, _URL_BYTES = 120, 60, 200


class Room(NamedTuple):
    """So many bytes each text gets: a headline and an action ``text``, a finding a ``sentence``, a reason ``why``, a
    name ``word``; and how many ``findings`` are listed.
    """

    text: int
    sentence: int
    why: int
    word: int = 40
    findings: int = 5


_ROOMS = (
    Room(400, 300, 160), Room(320, 220, 100), Room(300, 160, 60), Room(260, 120, 40), Room(220, 85, 24),
    # A sentence that breaks off within its numbers says nothing: then rather fewer of them.
    Room(220, 110, 24, findings=3), Room(220, 110, 0, findings=2), Room(180, 100, 0, findings=1),
    Room(60, 30, 0, word=14, findings=1),
)  # fmt: skip


def fitted(document_in: Callable[[Room], dict[str, Any]], most: int = MOST_BYTES) -> dict[str, Any]:
    """The document with as much text as fits.

    Args:
        document_in: Makes the document for a room.
        most: Bytes of the JSON.

    Returns:
        The first that fits, from the roomiest on; the smallest where none does.
    """
    documents = map(document_in, _ROOMS)
    document = next(documents)
    while len(json.dumps(document, allow_nan=False)) > most and (less := next(documents, None)) is not None:
        document = less
    return document


def brief_run(name: str, identity: str, url: str | None) -> dict[str, Any]:
    """Which run it is, in few bytes; half an address leads nowhere, and is left out.

    Args:
        name: Of the run.
        identity: Its id or path.
        url: Of its page.

    Returns:
        Its ``id``, ``name`` and ``url``.
    """
    page = url if url is not None and clipped(url, _URL_BYTES) == url else None
    return {"id": clipped(identity, _ID_BYTES), "name": clipped(name, _NAME_BYTES), "url": page}


def brief_cause(name: str, certainty: str) -> dict[str, str] | None:
    """A cause and how sure it is.

    Args:
        name: Of the cause, empty for none.
        certainty: A word of ``Certainty``, empty where it is not known.

    Returns:
        Its ``name`` and ``certainty``; None for none.
    """
    return {"name": clipped(name, _NAME_BYTES), "certainty": certainty} if name else None
