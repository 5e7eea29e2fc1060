"""Where the pages of runs go: into one file, or into a folder with a page of each run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from tracker_health.errors import ConfigError
from tracker_health.terminal import write_page
from tracker_health.text import printable

if TYPE_CHECKING:
    from tracker_health.report.result import Report

_TABLE = "index.html"
_NAME_CHARACTERS = 80
_OF_THE_RUN = Path("health", "report.html")  # where annotate writes it


@dataclass(kw_only=True)
class Pages:
    """``table``: the file of the page of all. ``folder``: where each run gets a page of its own, None for nowhere."""

    table: str
    folder: Path | None = None
    _taken: set[str] = field(default_factory=lambda: {_TABLE})

    def page_at(self, report: Report, page: Callable[[str], bytes]) -> str:
        """Write the page of a run where each gets one; its address, or that of the page which the run has already."""
        if self.folder is None:
            return self._of_the_run(report)
        name = self._free_name(report.run.listed_name)
        write_page(str(self.folder / name), page(_TABLE))
        return name

    def _of_the_run(self, report: Report) -> str:
        """The page that ``annotate`` left in a run's folder, from where the table is."""
        found = Path(report.run.id, _OF_THE_RUN)
        if report.run.store != "directory" or self.table == "-" or not found.is_file():
            return ""
        try:
            return quote(Path(os.path.relpath(found, Path(self.table).parent)).as_posix())
        except ValueError:  # on another drive
            return ""

    def _free_name(self, run: str) -> str:
        """A file's name that any file system takes and no other run has."""
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", run)[:_NAME_CHARACTERS].strip(".-") or "run"
        name, number = f"{stem}.html", 1
        while name.lower() in self._taken:
            number += 1
            name = f"{stem}-{number}.html"
        self._taken.add(name.lower())
        return name


def pages_of(path: str) -> Pages:
    """Where the pages go that ``-o`` names: a folder that is there, or whose name ends in a slash, or else a file.

    Raises:
        ConfigError: the folder cannot be made.
    """
    folder = Path(path)
    if not (path.endswith(("/", os.sep)) or folder.is_dir()):
        return Pages(table=path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{printable(path)} cannot be made: {error.strerror}", "give another folder") from error
    return Pages(table=str(folder / _TABLE), folder=folder)
