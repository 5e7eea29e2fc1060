"""Which servers the user has named: in the environment, in the configuration or as tracking URI.

They alone get the credentials of this machine's environment, and may choose folders of this machine to be written to.
Everything else that names a server, a pasted address or the record of a run, anybody may have written.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from tracker_health.text import printable, without_userinfo

PLAIN_HTTP = "TRACKER_HEALTH_PLAIN_HTTP"
"""The variable with the hosts, with commas between, to which credentials may go without encryption."""

_PORTS = {"http": 80, "https": 443}
_OF_THIS_MACHINE = frozenset({"localhost", "::1", "0.0.0.0"})  # noqa: S104 - a name to compare with

_named: set[_Named] = set()
_allowed: set[_Named] = set()
_withheld: set[str] = set()


class _Named(NamedTuple):
    """A server that counts as the user's own. ``port``: None for any; ``encrypted``: only over https."""

    host: str
    port: int | None
    encrypted: bool


def trust(*servers: str) -> None:
    """Note that the user has named these, as the servers of runs, by their addresses."""
    _named.update(named for server in servers if "://" in server and (named := _named_by(server)))


def allow(*servers: str) -> None:
    """Note that the configuration allows these all that it allows: hosts, with or without a port."""
    _allowed.update(named for server in servers if (named := _named_by(f"//{server}")))


def is_trusted(url: str) -> bool:
    """Whether an address is of a server that the user has named, or allowed."""
    return _is_among(url, _named | _allowed)


def is_allowed(url: str) -> bool:
    """Whether the configuration allows this server all."""
    return _is_among(url, _allowed)


def may_carry_secrets(url: str) -> bool:
    """Whether nobody on the way to a server could read what is sent: it is encrypted, or stays on this machine. So do
    hosts count that the environment allows without.
    """
    parts = _parts_of(url)
    if parts is None or not parts.hostname:
        return False
    allowed = {named for one in os.environ.get(PLAIN_HTTP, "").split(",") if (named := _named_by(f"//{one.strip()}"))}
    return parts.scheme == "https" or _is_loopback_address(parts.hostname) or _is_among(url, allowed)


def gets_credentials(url: str) -> bool:
    """Whether a server is sent the credentials of the environment: the user has named it, and nobody could read them on
    the way.
    """
    return is_trusted(url) and may_carry_secrets(url)


def encrypt_hint(url: str) -> str:
    """What to do where credentials would have to go unencrypted."""
    return f"use https://, or allow it on a network that you trust: {PLAIN_HTTP}={host_of(url)}"


def is_of_this_machine(url: str) -> bool:
    """Whether an address is of a server on this machine; one without a host is."""
    parts = _parts_of(url)
    return parts is not None and (not parts.hostname or _is_loopback(parts.hostname))


def withhold(url: str) -> None:
    """Note that a server was asked without credentials that there are."""
    _withheld.add(host_of(url))


def hint_on_withheld(url: str, instead: str) -> str:
    """What to do where a server wants the credentials that it was not given; "" where none were withheld from it.
    ``instead``: the setting of the environment that names a server.
    """
    host = host_of(url)
    if host not in _withheld:
        return ""
    if is_trusted(url) and not may_carry_secrets(url):
        return f"credentials are not sent to {host} over plain http: {encrypt_hint(url)}"
    return (
        f"the credentials of the environment are not sent to {host}, which {instead} does not name: set it, or "
        f"trusted_hosts = [{host!r}] in the configuration"
    )


def host_of(url: str) -> str:
    """The host of an address, with its port, to be shown."""
    parts = _parts_of(without_userinfo(url))
    return printable(parts.netloc if parts is not None else url, 100)


def _named_by(server: str) -> _Named | None:
    parts = _parts_of(server)
    if parts is None or not parts.hostname:
        return None
    # Of a machine for all, every port is another user's; elsewhere a page may have another port than the API.
    kept = _port_of(parts) if not parts.scheme or _is_loopback(parts.hostname) else None
    return _Named(parts.hostname, kept, parts.scheme == "https")


def _is_among(url: str, servers: set[_Named]) -> bool:
    parts = _parts_of(url)
    if parts is None or not parts.hostname:
        return False
    return any(
        named.host == parts.hostname
        and named.port in (None, _port_of(parts))
        and (parts.scheme == "https" or not named.encrypted)
        for named in servers
    )


def _parts_of(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _port_of(parts: SplitResult) -> int | None:
    return parts.port or _PORTS.get(parts.scheme)


def _is_loopback(host: str) -> bool:
    return _is_loopback_address(host) or host == socket.gethostname().lower()


def _is_loopback_address(host: str) -> bool:
    if host in _OF_THIS_MACHINE:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which may begin with 127. as well
        return False
