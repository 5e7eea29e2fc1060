"""Pages that show what commands print: each block below ``<!-- output of: COMMAND -->`` is printed anew. With
``(first N lines)`` after the command the rest is left out.

Commands run one after the other, page by page, in a folder with the runs of ``example_runs`` and an MLflow store. Ids,
times and the folder's own name are masked.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner
from example_runs import make_folders, make_store

from tracker_health.cli import cli

ROOT = Path(__file__).parent.parent
_IN_DOCS = ("index", "getting-started", "gate", "sweep", "compare", "automatic")
PAGES = ("README.md", *(f"docs/{page}.md" for page in _IN_DOCS))
"""The pages that show output, from the root of the repository; the last one logs a run of its own to the store."""

_BLOCK = re.compile(
    r"(?P<head><!-- output of: (?P<command>.*?)(?: \(first (?P<most>\d+) lines\))? -->\n```(?P<kind>\w+)\n).*?```\n",
    re.DOTALL,
)
_ID = re.compile(r"\b[0-9a-f]{32}\b")
_SHOWN_IDS = [f"{digit}f2a9c0e7b1d4e5f8a6b7c8d9e0f1a2b" for digit in "378a5b4c9d"]
_MASKS = (
    (re.compile(r"; \d+(?:\.\d+)? a second"), ""),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "2026-11-28"),
)
_COLUMNS = "100"


def pages_with_output() -> dict[Path, str]:
    """The pages as they should be."""
    with _workplace() as place:
        return {ROOT / page: _printed_anew((ROOT / page).read_text(encoding="utf-8"), place) for page in PAGES}


def _printed_anew(text: str, place: Path) -> str:
    for part in re.findall(r"```python\n(import json\n.*?)```", text, re.DOTALL):
        exec(part, {})  # noqa: S102  our own page, which writes the log that its commands read
    return _BLOCK.sub(lambda found: _block(found, place), text)


@contextlib.contextmanager
def _workplace() -> Iterator[Path]:
    """A folder with the runs, as the current one, and their store as MLflow's own choice."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        place = Path(folder).resolve()
        make_folders(place)
        os.environ["MLFLOW_TRACKING_URI"] = uri = f"sqlite:///{place}/mlflow.db"
        make_store(place, uri)
        try:
            yield place
        finally:
            del os.environ["MLFLOW_TRACKING_URI"]


def _block(found: re.Match[str], place: Path) -> str:
    command, kind = found.group("command", "kind")
    lines = _masked(_output_of(shlex.split(command)), place).rstrip().splitlines()
    if command.startswith("sweep"):  # which takes runs in any order
        lines.sort(key=_by_verdict)
    lines = [*lines[: int(found["most"])], "  ..."] if found["most"] else lines
    shown = [f"$ tracker-health {command}", *lines] if kind == "console" else lines
    return f"{found['head']}{chr(10).join(shown)}\n```\n"


def _by_verdict(line: str) -> tuple[int, str]:
    """The lines of runs by their verdict; what comes behind them stays as it is."""
    order = ("FAIL", "WARN", "SKIP", "PASS")
    return (order.index(line[:4]), line) if line[:4] in order else (len(order), "")


def _output_of(arguments: list[str]) -> str:
    """Standard output and standard error, as a terminal shows them."""
    environment = {"COLUMNS": _COLUMNS, "PYTHONIOENCODING": "utf-8", "TRACKER_HEALTH_PAGES": "never"}
    if arguments[0] == "exec":  # which starts a process that has to be told where to write
        command = [sys.executable, "-m", "tracker_health", *arguments]
        quiet = environment | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MLFLOW_LOGGING_LEVEL": "ERROR",
        }
        done = subprocess.run(  # noqa: S603  our own command
            command, capture_output=True, text=True, env={**os.environ, **quiet}, check=False
        )
        return "".join(line for line in done.stderr.splitlines(keepends=True) if line.startswith("tracker-health"))
    return CliRunner(env=environment).invoke(cli, arguments).output


def _masked(text: str, place: Path) -> str:
    """The same for every machine and every day."""
    ids = dict(zip(dict.fromkeys(_ID.findall(text)), _SHOWN_IDS, strict=False))
    text = _ID.sub(lambda one: ids.get(one.group(), one.group()), text).replace(str(place), "/home/ana")
    for pattern, shown in _MASKS:
        text = pattern.sub(shown, text)
    return text
