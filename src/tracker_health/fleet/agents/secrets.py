"""Credentials of this process, which no answer repeats: the last look at a text before it leaves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote, urlsplit

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_SHORTEST = 6
HIDDEN = "***"


class Secrets:
    """What is kept out of texts: values of the environment with a telling name, and passwords in addresses."""

    def __init__(self, addresses: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> None:
        known = os.environ if environment is None else environment
        found = {value for name, value in known.items() if _SECRET.search(name)}
        for address in (*addresses, *known.values()):
            found |= _of_address(address)
        self._values = sorted((one for one in found if len(one) >= _SHORTEST), key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """The text with ``***`` for each credential in it."""
        for value in self._values:
            text = text.replace(value, HIDDEN)
        return text


def _of_address(text: str) -> set[str]:
    if "://" not in text or "@" not in text:
        return set()
    try:
        password = urlsplit(text).password
    except ValueError:
        return set()
    return {password, unquote(password)} if password else set()
