"""Web servers, asked through the standard library: where they may lead to, and how much of a redirect is read."""

from __future__ import annotations

from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from tracker_health.stores.remote import hosts

_WEB = frozenset({"http", "https"})


class _Redirects(HTTPRedirectHandler):
    """Follows a server to other web servers alone: the one that it is made from would also ask those of FTP.

    The body of a redirect is not read. ``unencrypted``: whether a server that was asked over https may lead to http.
    """

    def __init__(self, *, unencrypted: bool) -> None:
        self._unencrypted = unencrypted

    def http_error_302(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any) -> Any:
        fp.read = lambda *_: b""  # type: ignore[method-assign]  # else it is read to its end, which there may not be
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(  # noqa: PLR0917 - as it is there
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        is_web = urlsplit(newurl).scheme.lower() in _WEB
        is_as_safe = self._unencrypted or req.type != "https" or hosts.may_carry_secrets(newurl)
        if not (is_web and is_as_safe):
            raise HTTPError(newurl, code, msg, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def opener(*, follows: bool = True, unencrypted: bool = False) -> OpenerDirector:
    """What asks web servers. ``follows``: to where they lead; ``unencrypted``: from https to http, too."""
    return build_opener(_Redirects(unencrypted=unencrypted) if follows else _NoRedirects())
