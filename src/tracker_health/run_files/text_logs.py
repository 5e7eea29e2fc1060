"""Texts and tables of any name (``out.txt``, ``fold0.csv``) that may be logs: what names, places and contents say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from tracker_health.errors import UNREADABLE
from tracker_health.evidence import Request, StepUnit
from tracker_health.readers.files.random_access import RandomAccess
from tracker_health.run_files.naming import saying
from tracker_health.run_files.tree import FileTree, RunFile

if TYPE_CHECKING:
    from tracker_health.readers.log_formats import Log

MOST_TEXTS = 20
"""Of a run, and of one ending: more of them are data."""

_TEXT = re.compile(r".*\.(?:(?:txt|csv|tsv|json)(?:\.gz)?|ipynb)", re.IGNORECASE | re.DOTALL)
_FOLDER = re.compile(
    rf"{saying('logs?|outputs?|out|stdout|console|slurm|results?|metrics|history')}.*", re.IGNORECASE | re.DOTALL
)
# What a training's output is sent to; any other text counts only where nothing else has a history.
_OF_OUTPUT = re.compile(
    rf"{saying('out|run|train|training|trainer|main|screen|terminal|job')}.*\.txt", re.IGNORECASE | re.DOTALL
)
_OF_SOMETHING_ELSE = (
    "read_?me|licen[cs]e|notice|copying|authors|requirements|constraints|vocab(?:ulary)?|merges|notes?|todo|change_?log|"
    "class(?:es)?|labels?|tokens?|dict(?:ionary)?|corpus|prompts?|freeze|environment|packages|args|config|cmakelists|"
    "hparams|settings|tokenizer|index|map|info|state|package|submission|predictions?|dataset|data|samples?|annotations?"
)
_SOMETHING_ELSE = re.compile(
    rf"{saying(_OF_SOMETHING_ELSE)}.*\.(?:txt|csv|tsv|json)(?:\.gz)?|.*\.index\.json|[^.]*_config\.json",
    re.IGNORECASE | re.DOTALL,
)
_BEGINNING, _END = 2**16, 2**14
_MOST_OF_A_NOTEBOOK = 2**26  # bytes
_MOST_IN_WHOLE = 2**22  # of what only shows what it is when all of it was read
_FEWEST = 3
_MOST_LINES_TO_A_ROW, _MOST_TO_A_COUNTED_ROW = 50, 4


def may_be_text_log(path: str) -> bool:
    """Whether a file of this path is looked into: at the run's top, or in a folder of logs there."""
    folder, _, name = path.rpartition("/")
    placed = not folder or ("/" not in folder and _FOLDER.fullmatch(folder) is not None)
    return placed and _TEXT.fullmatch(name) is not None and _SOMETHING_ELSE.fullmatch(name) is None


def says_output(file: RunFile) -> bool:
    """Whether such a text is called what the output of trainings is."""
    return _OF_OUTPUT.fullmatch(file.name) is not None


def texts_among(files: Iterable[RunFile]) -> list[RunFile]:
    """The files that may be such texts, by path; none where they are so many that they are data."""
    found = [file for file in files if may_be_text_log(file.path)]
    several = Counter(_ending(file) for file in found)
    return [file for file in found if several[_ending(file)] <= MOST_TEXTS]


def _ending(file: RunFile) -> str:
    return file.name.lower().removesuffix(".gz").rpartition(".")[2]


def is_notebook(name: str) -> bool:
    """Whether a file of this name is a notebook, whose cells may have printed a training."""
    return name.lower().endswith(".ipynb")


def begins_as_log(tree: FileTree, file: RunFile, request: Request) -> bool:
    """Whether a text is worth reading whole: it is small, or its beginning or its end is of a log."""
    if file.size <= _BEGINNING:
        return file.size > 0
    if is_notebook(file.name):
        return file.size <= _MOST_OF_A_NOTEBOOK
    if _ending(file) == "json" or file.name.lower().endswith(".gz"):
        return file.size <= _MOST_IN_WHOLE
    try:
        opened = tree.open(file)
        try:
            pieces = (0, _BEGINNING), (max(opened.size - _END, 0), _END)
            return any(_is_of_a_log(_piece(opened, start, size), request) for start, size in pieces)
        finally:
            opened.close()
    except UNREADABLE:
        return False


def _piece(opened: RandomAccess, start: int, size: int) -> bytes:
    content = bytearray(min(size, opened.size - start))
    opened.read_into(start, memoryview(content))
    return bytes(content)


def _is_of_a_log(piece: bytes, request: Request) -> bool:
    # Here: a folder with nothing but a checkpoint is judged without the formats of logs.
    from tracker_health.readers.log_formats import is_table, log_of

    return is_table(piece) or is_history(log_of(piece, request.roles))


def is_history(log: Log) -> bool:
    """Whether what was read of a text, or of a piece of it, is a log: a metric has several points, which are no rare
    find in it.
    """
    known = [one for one in log.series if len(np.unique(one.steps)) >= _FEWEST]
    if not known or log.text is None:
        return bool(known)
    counted = all(one.step_unit is StepUnit.LOG_CALL for one in known)
    most = _MOST_TO_A_COUNTED_ROW if counted else _MOST_LINES_TO_A_ROW
    return log.text.rows >= _FEWEST and log.text.rows * most >= log.text.lines
