"""Whether the pages of a listing get anywhere: a server that repeats itself would be asked without end."""

from __future__ import annotations

from collections.abc import Hashable

from tracker_health.errors import StoreUnavailable

MOST_IDLE_PAGES = 20
"""Pages in a row without anything new before a listing is given up. Some servers give an empty page now and then."""
_HINT = "the server, or what is before it, does not page as its tracker does: is it the right version of it?"


class Paging:
    """One listing. ``where``: which, with its endpoint and server."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._tokens: set[Hashable] = set()
        self._idle = 0

    def turn(self, token: Hashable, *, is_new: bool) -> None:
        """Note that there is a next page, at this token; ``is_new``: whether the last had anything that was not known.

        Raises:
            StoreUnavailable: this leads nowhere.
        """
        if token in self._tokens:
            raise StoreUnavailable(f"{self._where}: the server gave the same page token again", _HINT)
        self._tokens.add(token)
        self._idle = 0 if is_new else self._idle + 1
        if self._idle >= MOST_IDLE_PAGES:
            message = (
                f"{self._where}: the server gave {self._idle} pages in a row with nothing new, and a token for the next"
            )
            raise StoreUnavailable(message, _HINT)
