"""The files of an online run and of the artifacts that it logged, listed when asked for and fetched when read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urljoin

from tracker_health.errors import UNREADABLE, ReadError
from tracker_health.readers.files.ranged_file import PartsRefused
from tracker_health.run_files.all_checkpoints import is_model_file
from tracker_health.run_files.model_files import is_description
from tracker_health.run_files.naming import is_plain
from tracker_health.run_files.reading import is_relevant
from tracker_health.run_files.text_logs import MOST_TEXTS, may_be_text_log
from tracker_health.run_files.tree import RunFile
from tracker_health.stores.remote.answers import MOST_ANSWER_BYTES
from tracker_health.stores.remote.deadline import BYTES_A_SECOND, REQUEST_SECONDS, within
from tracker_health.stores.remote.downloads import Fetch
from tracker_health.stores.remote.fetched_files import MAX_FILES, MAX_SEEN, FetchedFiles, Listing
from tracker_health.stores.remote.http_parts import HttpParts
from tracker_health.stores.remote.url import asked
from tracker_health.stores.wandb.connection import Connection, fetched, files_of, has_artifacts, pages
from tracker_health.stores.wandb.failures import translated
from tracker_health.stores.wandb.values import SDK_FILES
from tracker_health.text import printable, size_of

MAX_ARTIFACTS = 10
_PAGE = 1000
_OURS = ("health/", "media/")
# What W&B itself writes among the files of a run, and as artifacts.
_OF_WANDB = (*SDK_FILES, "code/", "logs/")
_NO_CHECKPOINTS = frozenset({"wandb-history", "run_table", "job", "code", "dataset"})


@dataclass(frozen=True)
class _Listing(Listing):
    origins: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


class OnlineFiles(FetchedFiles):
    """The files of the run, and of its artifacts, which are in ``NAME/vN/``; the limits are over both."""

    what = "files"

    def __init__(self, connection: Connection, run: Any) -> None:
        super().__init__()
        self._connection = connection
        self._run = run

    def identity(self, files: Iterable[RunFile]) -> list[list[Any]]:
        """Path, size and checksum of each of these files."""
        return [[file.path, file.size, self._listing.versions[file.path]] for file in files]

    def local(self, file: RunFile) -> Path:
        origin = self._listing.origins[file.path]
        with translated(f"the file {printable(file.path)} could not be fetched", self._connection.server, ReadError):
            return self._downloads.whole(file, partial(fetched, self._connection, origin))

    @cached_property
    def _listing(self) -> _Listing:
        found: dict[str, tuple[RunFile, Any]] = {}
        seen = texts = 0
        problem = ""
        try:
            for path, file in self._walk():
                seen += 1
                if seen > MAX_SEEN:
                    break
                if not is_plain(path):
                    continue
                text = may_be_text_log(path) and not is_relevant(path)
                texts += text
                if self._keeps(path) or (text and texts <= MOST_TEXTS + 1):
                    found.setdefault(path, (RunFile(path=path, size=file.size), file))
                if len(found) >= MAX_FILES:
                    break
        except UNREADABLE as error:
            problem = str(error)
        return _Listing(
            files=tuple(found[path][0] for path in sorted(found)),
            origins={path: file for path, (_, file) in found.items()},
            versions={path: str(getattr(file, "md5", "") or "") for path, (_, file) in found.items()},
            problem=problem,
            truncated=seen > MAX_SEEN or len(found) >= MAX_FILES,
        )

    def _keeps(self, path: str) -> bool:
        """Whether a file is listed, whatever the others are."""
        return is_relevant(path) or is_model_file(path.rpartition("/")[2])

    def _walk(self) -> Iterator[tuple[str, Any]]:
        for file in self._files():
            if not file.name.startswith((*_OURS, *_OF_WANDB)):
                yield file.name, file
        for artifact in self._artifacts():
            yield from self._of(artifact, folder_of(artifact))

    def _of(self, artifact: Any, folder: str) -> Iterator[tuple[str, Any]]:
        """The files of an artifact, with their paths below a folder."""
        doing = f"the files of the artifact {printable(artifact.name)} could not be listed"
        listed = self._connection.asked(doing, artifact.files, per_page=_PAGE)
        named: frozenset[str] | None = None
        for file in pages(self._connection, doing, listed, _PAGE):
            # Of a reference both are the address of what it stands for; some servers of one's own give files so, too.
            if file.url and file.url == file.direct_url:
                named = files_in(self._connection, artifact) if named is None else named
            if file.url and (file.url != file.direct_url or file.name in (named or ())):
                yield f"{folder}{file.name}", file

    def _files(self) -> Iterable[Any]:
        found = files_of(self._run)
        if found is not None:
            return found
        doing = "its files could not be listed"
        listed = self._connection.asked(doing, self._run.files, per_page=_PAGE)
        return pages(self._connection, doing, listed, _PAGE)

    @property
    def own_files(self) -> tuple[RunFile, ...]:
        """Those of the run itself, without those of its artifacts."""
        folders = tuple(folder_of(one) for one in self.logged)
        return tuple(file for file in self.files if not file.path.startswith(folders))

    def _artifacts(self) -> list[Any]:
        return self.logged[-MAX_ARTIFACTS:]

    @cached_property
    def logged(self) -> list[Any]:
        """The artifacts that the run logged and that may hold a checkpoint, the oldest first.

        Raises:
            RunError: they cannot be listed.
        """
        if not has_artifacts(self._run):
            return []
        doing = "its artifacts could not be listed"
        listed = self._connection.asked(doing, self._run.logged_artifacts, per_page=100)
        found = [one for one in pages(self._connection, doing, listed, 100) if one.type not in _NO_CHECKPOINTS]
        return [one for one in found if (one.file_count or 0) <= MAX_FILES]

    def _parts(self, file: RunFile) -> Fetch | None:
        origin = self._listing.origins[file.path]
        url = str(origin.direct_url or "")
        if not url.lower().startswith(("http://", "https://")):
            return None
        return partial(self._part, file, HttpParts(partial(asked, url), file.size))

    def _part(self, file: RunFile, parts: HttpParts, start: int, length: int) -> bytearray:
        doing = f"a part of {printable(file.path)} could not be fetched"
        with translated(doing, self._connection.server, ReadError):
            try:
                part: bytearray = within(REQUEST_SECONDS + length / BYTES_A_SECOND, parts.fetch, start, length)
            except HTTPError:
                raise PartsRefused from None  # such an address ends after a while: the SDK gets another
        return part


class FilesOfArtifact(OnlineFiles):
    """The files of one artifact, whatever else its run has logged."""

    what = "the artifact's files"

    def __init__(self, connection: Connection, artifact: Any) -> None:
        super().__init__(connection, None)
        self._artifact = artifact

    def _keeps(self, path: str) -> bool:
        return super()._keeps(path) or not is_description(path.rpartition("/")[2])

    def _walk(self) -> Iterator[tuple[str, Any]]:
        yield from self._of(self._artifact, "")


def folder_of(artifact: Any) -> str:
    """Where the files of an artifact are in the tree: ``NAME/v3/``."""
    return "/".join(artifact.source_name.rsplit(":", 1)) + "/"


# What a version of an artifact lists: which names are files, and which only stand for something elsewhere.

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
