"""Lines of text from files that nobody vouches for, many at a time: of any usual encoding, without colours, and with
every state of a progress bar as a line of its own.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator
from pathlib import Path

from tracker_health.errors import ReadError
from tracker_health.readers.files.json_lines import MAX_LOG_BYTES
from tracker_health.readers.files.regular_file import open_log, pass_hole

MAX_LINE_CHARACTERS = 2**16
_BLOCK_BYTES = 2**18
_HOLE = bytes(_BLOCK_BYTES)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_BACK = re.compile(r"\x08+")
_CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b\b")) + b"\x7f"
_MOST_CONTROL = 0.1


def encoding_of(head: bytes) -> str | None:
    """The encoding of a text that begins like this; None for what is no text."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    # A file with holes, as a machine that lost its power leaves, is text all the same.
    written = head.replace(b"\0", b"")
    control = len(written) - len(written.translate(None, _CONTROL))
    if control > _MOST_CONTROL * len(written):
        return None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(written)
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def text_of(head: bytes) -> str:
    """The beginning of a file as text without its last, possibly cut line; "" for what is no text."""
    encoding = encoding_of(head)
    if encoding is None:
        return ""
    return plain(head.decode(encoding, errors="replace")).replace("\0", "")


def plain(text: str) -> str:
    """Text without colours, and with all line ends alike; going back over what was written ends a line as well."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\b" in text:
        text = _BACK.sub("\n", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text


def blocks(path: Path, max_line: int = MAX_LINE_CHARACTERS) -> Iterator[str]:
    """The text of a file in pieces that end with a line. Of a line that is too long nothing is given.

    Raises:
        ReadError: it is no regular file, or far too long.
        OSError: the file cannot be read.
    """
    with open_log(path) as file:
        if os.fstat(file.fileno()).st_size > MAX_LOG_BYTES:
            raise ReadError(f"it is larger than the {MAX_LOG_BYTES} bytes that are read")
        head = file.read(_BLOCK_BYTES)
        encoding = encoding_of(head) or "latin-1"
        decode = codecs.getincrementaldecoder(encoding)(errors="replace").decode
        rest, block, size = "", head, 0
        too_long = False
        while block:
            size += len(block)
            if size > MAX_LOG_BYTES:
                raise ReadError(f"it is larger than the {MAX_LOG_BYTES} bytes that are read")
            text = rest + decode(block).replace("\0", "")
            end = max(text.rfind("\n"), text.rfind("\r", 0, -1)) + 1  # a last \r may be half of a line's end
            whole, rest = text[:end], text[end:]
            if too_long and end:
                whole, too_long = whole[_first_end(whole) :], False
            if whole:
                yield plain(whole)
            if len(rest) > max_line:
                rest, too_long = "", True
            block = file.read(_BLOCK_BYTES)
            if block == _HOLE:
                pass_hole(file)
        if rest and not too_long:
            yield plain(rest)


def _first_end(text: str) -> int:
    return next(match.end() for match in re.finditer(r"\r\n|\n|\r", text))
