"""What a folder has that was not understood: its files by name, and what is in the first lines of texts and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from tracker_health.errors import UNREADABLE
from tracker_health.readers.files.regular_file import open_regular
from tracker_health.run_files.text_logs import MOST_TEXTS, may_be_text_log
from tracker_health.run_files.tree import RunFile
from tracker_health.text import count, listing, printable

_MOST_FILES, _MOST_COLUMNS = 3, 6
_HEAD_BYTES, _LINE, _NAME = 4096, 60, 100
_OF_A_LOG = re.compile(r".*\.(?:log|out|err|jsonl|ndjson|wandb)", re.IGNORECASE | re.DOTALL)
_TABLE = re.compile(r".*\.(?:csv|tsv)", re.IGNORECASE | re.DOTALL)


def unread_files(files: Sequence[RunFile], folder: Path) -> str:
    """The files that may have been meant as logs, the largest first, with how each begins; else what else is there."""
    largest = sorted(filter(_may_be_meant, files), key=lambda file: (-file.size, file.path))
    few = len(largest) <= MOST_TEXTS  # more of them are data
    said = [f"{printable(file.path, _NAME)}{head_of(file, folder) if few else ''}" for file in largest[:_MOST_FILES]]
    if len(largest) > _MOST_FILES:
        said.append(f"{len(largest) - _MOST_FILES} more")
    return "; ".join(said) or f"{count(len(files), 'file')}, as {listing([file.path for file in files], _MOST_FILES)}"


def folder_to_try(files: Iterable[RunFile]) -> str:
    """The one folder below in which all of these are; empty where they are in several, or at the top."""
    folders = {PurePosixPath(file.path).parts[0] if "/" in file.path else "" for file in filter(_may_be_meant, files)}
    return folders.pop() if len(folders) == 1 else ""


def _may_be_meant(file: RunFile) -> bool:
    """Whether a file may have been meant as a log, by its name alone."""
    return file.size > 0 and (may_be_text_log(file.name) or _OF_A_LOG.fullmatch(file.name) is not None)


def head_of(file: RunFile, folder: Path) -> str:
    """How a file begins, in parentheses: the columns of a table, or the first line of a text; empty for bytes."""
    try:
        with open_regular(folder / file.path) as opened:
            text = opened.read(_HEAD_BYTES).decode()
    except UnicodeDecodeError as error:
        text = error.object[: error.start].decode() if error.start > _HEAD_BYTES - 4 else ""  # cut in a character
    except UNREADABLE:
        return ""
    line = next((line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    if not line or "\0" in text:
        return ""
    if _TABLE.fullmatch(file.name) and (columns := re.split(r"[,;\t]", line)) and len(columns) > 1:
        names = [column.strip(" \"'") for column in columns]
        return f" (columns {listing(names, _MOST_COLUMNS)})"
    return f" (begins {printable(line, _LINE)!r})"
