"""One checkpoint at the address of a web server or an object store: read in parts where that pays, never written to."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path, PurePosixPath
from socket import gaierror
from threading import Lock
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import OpenerDirector
from urllib.request import Request as HttpRequest

from tracker_health.errors import ReadError, RunError, RunNotFound, StoreRefused, StoreUnavailable, optional_packages
from tracker_health.evidence import Evidence, Part, Problem, Request, RunRef
from tracker_health.readers.files.random_access import LocalFile, RandomAccess
from tracker_health.readers.files.ranged_file import SMALLEST, PartsRefused, RangedFile, Remote
from tracker_health.run_files.reading import read_files
from tracker_health.run_files.tree import AboveLimit, RunFile
from tracker_health.stores.base import RunRecord
from tracker_health.stores.common.temporary import TemporaryFolder
from tracker_health.stores.common.tracked_run import ReadOnlyRun
from tracker_health.stores.remote import hosts
from tracker_health.stores.remote.deadline import BYTES_A_SECOND, REQUEST_SECONDS, is_too_slow, within
from tracker_health.stores.remote.http_parts import CHUNK, HttpParts, HttpResponse
from tracker_health.stores.remote.progress import downloading
from tracker_health.stores.remote.reasons import TORN, TORN_HINT
from tracker_health.stores.remote.trail import note_request
from tracker_health.stores.remote.web import opener
from tracker_health.text import decoded_once, printable, size_of, without_userinfo

_CHECKPOINT = re.compile(r".*[^/]\.(pt|pth|ckpt|bin|tar)", re.IGNORECASE)
_WEB = frozenset({"http", "https"})
# Those of fsspec that are elsewhere. Not its chains (``simplecache::``), its local files, and what it would run.
_OBJECTS = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "hf", "oci", "sftp", "ssh", "webhdfs"})
_SILENCE_SECONDS = 20
_IS_IT_THERE = "are the address and the port right, is the server running, and is there a proxy or firewall between?"
_MISSING_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub"}


def is_checkpoint_url(text: str) -> bool:
    """Whether this is the address of a file that may be a checkpoint, by its name."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    known = parts.scheme.lower() in _WEB | _OBJECTS and bool(parts.netloc) and not parts.fragment
    return known and bool(_CHECKPOINT.fullmatch(parts.path))


def open_url(url: str) -> UrlRun:
    """The run that a checkpoint at an address stands for, found.

    Raises:
        RunNotFound: there is no such file.
        StoreUnavailable: the server does not answer.
        StoreRefused: no permission.
        MissingExtra: fsspec is needed for such an address, and not installed.
    """
    scheme = urlsplit(url).scheme.lower()
    with _translated(url):
        return UrlRun(url, within(REQUEST_SECONDS, _of_web if scheme in _WEB else _of_object_store, url))


@dataclass(frozen=True, kw_only=True)
class _File:
    """A file elsewhere: its size, what tells this version of it from others, and the ways to it. ``part`` is None where
    only the whole is to be had; ``whole`` writes it into a file.
    """

    size: int
    version: str
    part: Callable[[int, int], bytes | bytearray] | None
    whole: Callable[[Path], None]


class UrlRun(ReadOnlyRun):
    """A run of which only one checkpoint is known."""

    _what = "a file on a server"
    _instead = "use check, or annotate the run that the checkpoint is of"

    def __init__(self, url: str, file: _File) -> None:
        self._url = url
        self._file = file
        self._shown = printable(without_userinfo(url))
        name = _file_name(url)
        self.files = (RunFile(path=name, size=file.size),)
        self._path: Path | None = None
        self._folder: TemporaryFolder | None = None
        self._opened: RangedFile | None = None
        self._counting = Lock()
        self._spent, self._limit = 0, Request.max_download

    @cached_property
    def record(self) -> RunRecord:
        web = urlsplit(self._url).scheme.lower() in _WEB
        return RunRecord(
            ref=RunRef(store="url", id=self._shown, name=self.files[0].path, url=self._shown if web else None),
            shown=self._shown,
            marks=dict,
            naming=str,
            evidence=lambda: f"{self._file.size} {self._file.version}",
            why_not_asked="no training looks there for such a request: it is a folder or a file",
        )

    def fingerprint(self, request: Request) -> str:  # noqa: ARG002 - the protocol's
        content = f"{self._shown} {self._file.size} {self._file.version}"
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def read(self, request: Request) -> Evidence:
        self._limit = request.max_download
        found = read_files(self, request)
        # What was named is not passed over: above the limit it is an error, and not a run without a checkpoint.
        found.problems += found.above_limit
        if found.optimizer is None and not found.problems:
            message = "it holds no optimizer state"
            found.problems.append(Problem(source=self._shown, message=message, roles=frozenset({Part.OPTIMIZER_STATE})))
        return found.evidence(self.ref, request)

    def local(self, file: RunFile) -> Path:
        """Where the file can be read, fetched whole.

        Raises:
            RunError: it cannot be fetched, or is larger than may be fetched.
        """
        if self._path is None:
            self._reserve(file.size)
            self._path = self._downloaded()
        return self._path

    def open(self, file: RunFile) -> RandomAccess:
        """The file, of which only the parts that are read are fetched where the server gives parts.

        Raises:
            RunError: as for ``local``.
        """
        if self._opened is not None:
            return self._opened
        if self._file.part is None or file.size < SMALLEST:
            return LocalFile(self.local(file))
        remote = Remote(size=file.size, fetch=self._part, whole=partial(self.local, file), reserve=self._reserve)
        self._opened = RangedFile(remote)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
            self._path = None

    def saved(self, request: Request) -> None:
        """What is next to it is not known."""

    def _downloaded(self) -> Path:
        if self._folder is None:
            self._folder = TemporaryFolder()
        target = Path(self._folder.name) / "checkpoint"
        seconds = REQUEST_SECONDS + self._file.size / BYTES_A_SECOND
        with _translated(self._url), downloading(self.files[0].path, self._file.size, target):
            within(seconds, self._file.whole, target)
        self._spent += self._file.size
        return target

    def _part(self, start: int, length: int) -> bytes | bytearray:
        """A part of the file. Called from several threads."""
        part: bytes | bytearray
        with _translated(self._url):
            assert self._file.part is not None  # noqa: S101 - else it is not opened in parts
            part = within(REQUEST_SECONDS + length / BYTES_A_SECOND, self._file.part, start, length)
        with self._counting:
            self._spent += length
        return part

    def _reserve(self, count: int) -> None:
        if self._spent + count > self._limit:
            needed = f"{size_of(count)} of it would be fetched, and {size_of(self._spent)} were"
            message = f"{needed}: that is above the limit of {size_of(self._limit)}"
            raise AboveLimit(message, "raise it with --max-download")


def _file_name(url: str) -> str:
    """The last part of the path, decoded once; as it stands where that would be a path itself."""
    encoded = PurePosixPath(urlsplit(url).path).name
    decoded = decoded_once(encoded)
    return printable(decoded if decoded and not set(decoded) & {"/", "\\"} else encoded)


# Web servers


def _of_web(url: str) -> _File:
    """A file on a web server, of which one byte is fetched to see what the server gives."""
    with asked(url, {"Range": "bytes=0-0", "Accept-Encoding": "identity"}) as answer:
        headers = {key.lower(): value for key, value in answer.headers.items()}
        total = headers.get("content-range", "").rpartition("/")[2] if answer.status == 206 else ""
        stated = total or headers.get("content-length", "")
        if not stated.isdecimal() or len(stated) > 18:
            raise ReadError(f"{printable(without_userinfo(url))}: the server does not say how large it is")
        size = int(stated)
    return _File(
        size=size,
        version=headers.get("etag") or headers.get("last-modified", ""),
        part=HttpParts(partial(asked, url), size).fetch if total else None,
        whole=partial(_download, url, size),
    )


@cache
def _opener() -> OpenerDirector:
    return opener(unencrypted=True)


@contextmanager
def asked(url: str, headers: Mapping[str, str]) -> Iterator[HttpResponse]:
    """The answer of a web server to a GET request; what the address holds of user and password goes to it alone."""
    parts = urlsplit(url)
    userinfo, _, host = parts.netloc.rpartition("@")
    request = HttpRequest(urlunsplit(parts._replace(netloc=host)), headers=dict(headers))  # noqa: S310 - http(s) only
    if userinfo and not hosts.may_carry_secrets(url):
        message = f"{printable(without_userinfo(url))}: the password in the address is not sent over plain http"
        raise StoreRefused(message, hosts.encrypt_hint(url))
    if userinfo:
        # Not sent on to where the server may lead.
        request.add_unredirected_header("Authorization", _basic(userinfo))
    note_request("GET", url)
    try:
        with _opener().open(request, timeout=_SILENCE_SECONDS) as response:
            yield HttpResponse(response.status, response.headers, _chunks(response))
    except HTTPError as error:
        error.close()
        if error.code != 416:
            raise
        yield HttpResponse(416, {}, ())


def _basic(userinfo: str) -> str:
    return f"Basic {base64.b64encode(unquote(userinfo).encode()).decode()}"


def _chunks(response: IO[bytes]) -> Iterator[bytes]:
    begun, count = time.monotonic(), 0
    # As much as has come: a whole chunk of a body that drips would be waited for.
    while chunk := response.read1(CHUNK):  # type: ignore[attr-defined]
        count += len(chunk)
        if is_too_slow(begun, count):
            raise TimeoutError("the body drips")
        yield chunk


def _download(url: str, size: int, target: Path) -> None:
    with asked(url, {"Accept-Encoding": "identity"}) as answer, target.open("wb") as file:
        for chunk in answer.chunks:
            file.write(chunk)
            if file.tell() > size:
                break
    came = target.stat().st_size
    if came < size:
        raise StoreUnavailable(f"{printable(without_userinfo(url))}: {TORN}", TORN_HINT)
    if came > size:
        raise ReadError("it has another size than its server said")


# Object stores, through fsspec


def _of_object_store(url: str) -> _File:
    with optional_packages("remote"):
        import fsspec
    system, path = fsspec.core.url_to_fs(url)
    facts = system.info(path)
    size = facts.get("size")
    if facts.get("type") != "file" or not isinstance(size, int):
        raise RunNotFound(f"{printable(without_userinfo(url))} is no file")
    return _File(
        size=size,
        version=str(facts.get("ETag") or facts.get("etag") or facts.get("LastModified") or facts.get("mtime") or ""),
        part=partial(_object_part, system, path),
        whole=partial(_object_whole, system, path),
    )


def _object_part(system: Any, path: str, start: int, length: int) -> bytes:
    # By its own offsets: a file object of fsspec reads ahead, which is more than the whole file in the end.
    part: bytes = system.cat_file(path, start=start, end=start + length)
    if len(part) > length:
        raise PartsRefused
    if len(part) < length:
        raise ReadError("it has become shorter while it was read")
    return part


def _object_whole(system: Any, path: str, target: Path) -> None:
    with system.open(path, "rb", cache_type="none") as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, 2**20)


# What goes wrong


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Turn what the libraries raise into a RunError of one line, without the secrets of an address."""
    shown = printable(without_userinfo(url))
    try:
        yield
    except (RunError, PartsRefused):
        raise
    except Exception as error:  # noqa: BLE001 - cloud libraries raise anything
        raise _translation(error, shown, urlsplit(url).scheme.lower()) from None


def _translation(error: Exception, shown: str, scheme: str) -> RunError:
    code = getattr(error, "code", None)
    if isinstance(error, FileNotFoundError) or code in (404, 410):
        return RunNotFound(f"{shown}: there is no such file")
    if isinstance(error, PermissionError) or code in (401, 403):
        return StoreRefused(f"{shown}: no permission", "does the address hold what the server asks for?")
    if isinstance(error, ImportError):
        package = _MISSING_PACKAGES.get(scheme, "")
        hint = f"pip install {package}" if package else "see fsspec's documentation for the package that it needs"
        return StoreUnavailable(f"{shown}: a package for such addresses is not installed", hint)
    if isinstance(code, int) and 300 <= code < 400:
        return StoreUnavailable(f"{shown}: the server leads in a circle, or to what is no web address")
    if isinstance(code, int):
        return StoreUnavailable(f"{shown}: the server answered {code}")
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, TimeoutError):
        return StoreUnavailable(f"{shown}: no answer in time", _IS_IT_THERE)
    # Of an OSError only what the system says: the text of any other may hold the address with all that is in it.
    words = reason.strerror if isinstance(reason, OSError) else ""
    hint = _IS_IT_THERE if isinstance(reason, (ConnectionError, gaierror)) else ""
    return StoreUnavailable(f"{shown}: it could not be read: {printable(words or type(error).__name__, 100)}", hint)
