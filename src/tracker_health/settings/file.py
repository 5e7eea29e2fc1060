"""Configuration files: where they are looked for, and their tables with the line of every key.

Nothing is known here of which keys there are. Folders and files may be anybody's: sizes are bounded, and whatever a
file holds, reading it ends in tables or in one ConfigError.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracker_health.errors import ConfigError, ReadError
from tracker_health.readers.files.regular_file import open_regular
from tracker_health.text import printable

FILE = "tracker-health.toml"
PYPROJECT = "pyproject.toml"
TABLE = ("tool", "tracker-health")

MAX_BYTES = 2**18
_MAX_DOTS = 300
_BARE_OR_QUOTED = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"{_BARE_OR_QUOTED}(?:[ \t]*\.[ \t]*{_BARE_OR_QUOTED})*"
_HEADER = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_DOTTED})[ \t]*\]")
_KEY = re.compile(rf"[ \t]*({_DOTTED})[ \t]*=")

KeyPath = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    """The table of a file that is ours. ``shown``: the file's name for messages. ``lines``: by the path of a key."""

    shown: str
    table: Mapping[str, Any]
    lines: Mapping[KeyPath, int]

    def where(self, path: KeyPath) -> str:
        """``FILE:LINE`` of a key, or of the innermost table around it whose line is known."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return f"{self.shown}:{self.lines[path[:length]]}"
        return self.shown


def documents(config_file: str | None, folder: Path | None, home: Path) -> list[Document]:
    """What configuration files say, the strongest first: ``config_file`` alone if given, else the nearest
    ``tracker-health.toml`` and the nearest ``pyproject.toml`` with a table of ours, from ``folder`` upwards.

    Raises:
        ConfigError: a file cannot be read, or is no TOML.
    """
    if config_file is not None:
        path = Path(config_file)
        document = document_of(_content(path, config_file), config_file, TABLE if path.name == PYPROJECT else ())
        if path.name == PYPROJECT and not document.table:
            raise ConfigError(f"{document.shown}: there is no [{'.'.join(TABLE)}] in it")
        return [document]
    if folder is None:
        return []
    folders = list(_upwards(folder, home))
    own = next(_named(FILE, folders), None)
    found = [] if own is None else [document_of(_content(own, _shown(own, folder)), _shown(own, folder), ())]
    for path in _named(PYPROJECT, folders):
        shown = _shown(path, folder)
        if (content := _pyproject(path, shown)) is not None:
            document = document_of(content, shown, TABLE)
            if document.table:
                return [*found, document]
    return found


def _upwards(folder: Path, home: Path) -> Iterator[Path]:
    """The folder and those above it, up to the root of its repository or the home folder."""
    for one in (folder, *folder.parents):
        # What is in /tmp above us may be anybody's, and a configuration can name a server to send credentials to.
        if one != folder and _is_shared(one):
            return
        yield one
        if one == home or os.path.lexists(one / ".git"):
            return


def _is_shared(folder: Path) -> bool:
    try:
        mode = folder.stat().st_mode
    except OSError:
        return True
    return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)


def _named(name: str, folders: list[Path]) -> Iterator[Path]:
    # Not Path.is_file, which raises where a folder may not be looked into.
    return (folder / name for folder in folders if os.path.isfile(folder / name))  # noqa: PTH113


def _shown(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _content(path: Path, shown: str) -> bytes:
    shown = printable(shown)
    try:
        with open_regular(path) as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration file {shown}") from None
    except ReadError as error:
        raise ConfigError(f"{shown}: the configuration cannot be read: {error.message}", "give a file") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{shown}: the configuration cannot be read: {reason}") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{shown}: larger than {MAX_BYTES} bytes, this is no configuration")
    return content


def _pyproject(path: Path, shown: str) -> bytes | None:
    """The content of a file that is someone else's, if it mentions us at all: else it is not even parsed."""
    try:
        with open_regular(path) as file:
            mentioned = TABLE[-1].encode() in file.read(MAX_BYTES)
    except (OSError, ReadError):
        return None
    return _content(path, shown) if mentioned else None


def document_of(content: bytes, shown: str, table: KeyPath = ()) -> Document:
    """A file's table of ours: that of this path in it.

    Raises:
        ConfigError: it is no TOML, or has something else there.
    """
    shown = printable(shown)
    text = _decoded(content, shown)
    found: Any = _parsed(text, shown)
    for key in table:
        found = found.get(key, {}) if isinstance(found, dict) else {}
    if not isinstance(found, dict):
        raise ConfigError(f"{shown}: {'.'.join(table)} must be a table")
    return Document(shown=shown, table=found, lines=_lines(text, table))


def _decoded(content: bytes, shown: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{shown}:{line}: broken TOML: this is no UTF-8 text") from None


def _parsed(text: str, shown: str) -> dict[str, Any]:
    import tomllib  # only where there is a file

    # tomllib takes a minute for one key of 50,000 parts.
    if any(line.count(".") > _MAX_DOTS for line in text.split("\n")):
        raise ConfigError(f"{shown}: a line with more than {_MAX_DOTS} dots, this is no configuration")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{shown}: nested too deeply, this is no configuration") from None
    except ValueError as error:  # a TOMLDecodeError, or a number of thousands of digits
        place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        reason = printable(str(error)[: place.start()] if place else error)
        line = (place.group(1) or str(text.count("\n") + 1)) if place else ""
        raise ConfigError(f"{shown}{line and f':{line}'}: broken TOML: {reason}") from None


def _lines(text: str, table: KeyPath) -> dict[KeyPath, int]:
    """The line of every key and table header of ours, by its path in our table; the n-th table of an array has its
    number in the path. Found line by line, so that a line of a multi-line string can pass for a key: a wrong line
    number is all that can come of it.
    """
    lines: dict[KeyPath, int] = {}
    arrays: dict[KeyPath, int] = {}
    prefix: KeyPath = ()
    for number, line in enumerate(text.split("\n"), start=1):
        if header := _HEADER.match(line):
            path = _keys(header.group(2))
            if header.group(1) == "[[":
                arrays[path] = arrays.get(path, -1) + 1
            prefix = _numbered(path, arrays)
            path = prefix
        elif key := _KEY.match(line):
            path = prefix + _keys(key.group(1))
        else:
            continue
        if path[: len(table)] == table:
            lines.setdefault(path[len(table) :], number)
    return lines


def _numbered(path: KeyPath, arrays: Mapping[KeyPath, int]) -> KeyPath:
    for length in range(1, min(len(path), len(TABLE) + 1) + 1):
        if path[:length] in arrays:
            return (*path[:length], str(arrays[path[:length]]), *path[length:])
    return path


def _keys(dotted: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in re.findall(_BARE_OR_QUOTED, dotted))
