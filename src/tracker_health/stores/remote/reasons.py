"""Why a server could not be asked, in words: what the libraries below a tracker's say at length."""

from __future__ import annotations

import re

NO_ANSWER = "no answer in time"
TORN = "its answer broke off, or is not whole"
NOT_THE_ANSWER = "its answer is to something else than was asked"

_REASONS = (
    (r"connection refused", "connection refused"),
    (r"timed out|ConnectTimeout|ReadTimeout|timeout exception|did not respond in time", NO_ANSWER),
    (
        r"failed to resolve|name or service not known|getaddrinfo failed|nodename nor servname|no such host",
        "no such host",
    ),
    (r"SSLError|CERTIFICATE_VERIFY_FAILED|x509: ", "its TLS certificate is not accepted"),
    (r"remote end closed|connection aborted|connection (was )?(reset|closed)|broken pipe", "it closed the connection"),
    (r"Incomplete ?Read|connection broken|InvalidChunkLength|ended prematurely|connection ended after", TORN),
    (NOT_THE_ANSWER, NOT_THE_ANSWER),
    (r"unexpected (EOF|end of JSON)|: EOF\b|^EOF$|Unterminated string|Expecting (value|property name|',')", TORN),
)
_OF_SERVERS = frozenset(reason for _, reason in _REASONS)
TORN_HINT = "something on the way cut it off: try again later, or see the log of the server and of a proxy before it"


def reason_in(text: str, more: tuple[tuple[str, str], ...] = ()) -> str:
    """The reason that a message gives, the whole message where it is none of the known ones.

    ``more``: further patterns, with what they mean.
    """
    for pattern, reason in (*_REASONS, *more):
        if re.search(pattern, text, re.IGNORECASE):
            return reason
    return text


def is_of_server(reason: str) -> bool:
    """Whether a reason that ``reason_in`` gave is the server's or the way's to it, and says nothing of what was asked
    for.
    """
    return reason in _OF_SERVERS


def is_failure(status: int) -> bool:
    """Whether with this HTTP status a server failed, or turned away for now, what was no mistake of the client's."""
    return status in (408, 429) or status >= 500


def status_hint(status: int) -> str:
    """What to try after an HTTP status that was no mistake of the client's."""
    if status == 429:
        return "too many requests: try later, or fewer runs at once"
    if status in (502, 503, 504):
        return "the server or a proxy before it is overloaded, starting or down: try later, or see its log"
    return "see the server's log"
