"""Bytes made out of bytes: some changed, left out, put in, repeated, or taken from another file."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

MOST_BYTES = 2**20
_CHANGES_MADE = (1, 1, 2, 4)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_ODD_NUMBERS = (
    *(b"0", b"-1", b"nan", b"inf", b"-inf", b"1e999", b"-0.0", b"1e-400", b"9" * 30, b"9" * 400, b"1.2.3", b"1,2", b""),
    *(b"null", b"true", b'"1"', b"[]", b"{}", b"0x10", b"1_0", b"\xef\xbc\x91", b"2**70", b"18446744073709551616"),
)
_PIECES = (
    *(b"\0", b"\xff", b"\n", b"\r", b"\r\n", b"\t", b" ", b"{", b"}", b"[", b"]", b'"', b"'", b",", b":", b"=", b"\\"),
    *(
        b"\x1b[0m",
        b"\x08",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\xe2\x80\xa8",
        b"\xed\xa0\x80",
        b"NaN",
        b"Infinity",
        b"null",
    ),
    *(
        b"!!bool foo",
        b"!!int _",
        b"!!float ''",
        b"!!timestamp ",
        b"&a ",
        b"*a",
        b"<<: *a",
        b"---\n",
        b"%YAML 9\n",
        b"? ",
        b"- ",
        b"|",
        b"PK\x03\x04",
    ),
    *(
        b"loss",
        b"step",
        b"epoch",
        b"Epoch 1/5",
        b"INFO",
        b"Traceback (most recent call last)",
        b"\x80\x02",
        b"(",
        b"R",
        b".",
    ),
)
_WIDTHS = (1, 2, 4, 8)


def mutated(content: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """A few changes made to ``content``; ``others``: files of the same kind, to take pieces from."""
    changed = bytearray(content)
    for _ in range(rng.choice(_CHANGES_MADE)):
        rng.choice(_CHANGES)(changed, others, rng)
        del changed[MOST_BYTES:]
    return bytes(changed)


Change = Callable[[bytearray, Sequence[bytes], random.Random], None]


def _span(content: bytearray, rng: random.Random, most: int = 64) -> slice:
    start = rng.randint(0, len(content))
    return slice(start, min(len(content), start + rng.randint(0, rng.choice((1, 4, most)))))


def _flip(content: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _overwrite(content: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    width = rng.choice(_WIDTHS)
    value = rng.choice(
        (0, 1, 2, 255, 2 ** (8 * width - 1), 2 ** (8 * width - 1) - 1, 2 ** (8 * width) - 1, rng.getrandbits(8 * width))
    )
    place = rng.randint(0, max(0, len(content) - width))
    content[place : place + width] = (value % 2 ** (8 * width)).to_bytes(width, rng.choice(("little", "big")))


def _put_in(content: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    place = rng.randint(0, len(content))
    content[place:place] = rng.choice(
        (rng.choice(_PIECES), rng.choice(_ODD_NUMBERS), rng.randbytes(rng.randint(1, 16)))
    )


def _leave_out(content: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    del content[_span(content, rng, 4096)]


def _cut_short(content: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    del content[rng.randint(0, len(content)) :]


def _repeat(content: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    span = _span(content, rng)
    times = rng.choice((2, 10, 1000, 65_536))
    piece = bytes(content[span]) or rng.choice(_PIECES)
    content[span] = (piece * times)[:MOST_BYTES]


def _take_from_another(content: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    other = bytearray(rng.choice(others)) if others else bytearray()
    content[_span(content, rng, 4096)] = other[_span(other, rng, 4096)]


def _change_a_number(content: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    found = list(_NUMBER.finditer(content[:65_536]))
    if found:
        content[slice(*rng.choice(found).span())] = rng.choice(_ODD_NUMBERS)


def _change_lines(content: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    lines = bytes(content).split(b"\n")
    at = rng.randrange(len(lines))
    match rng.randrange(3):
        case 0:
            del lines[at]
        case 1:
            lines.insert(rng.randint(0, len(lines)), lines[at])
        case _:
            rng.shuffle(lines)
    content[:] = b"\n".join(lines)


_CHANGES: tuple[Change, ...] = (
    *(_flip, _overwrite, _put_in, _leave_out, _cut_short, _repeat, _take_from_another, _change_a_number, _change_lines),
)
