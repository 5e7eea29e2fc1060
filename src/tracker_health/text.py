"""Words and numbers for people, safe to show wherever the text came from."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from urllib.parse import unquote

_ELLIPSIS = "…"
_ELLIPSIS_BYTES = 6  # as JSON writes it
# Format characters reorder or hide text (direction marks, zero-width joiners); the rest control the terminal.
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


_CLAUSE_ENDS = re.compile(r"(?:[;:] |\. (?=[A-Z]))")

NAME_WIDTH = 60
"""Characters of a metric's or a parameter's name that a sentence shows."""

_DIGITS, _DIGITS_OF_SHARES, _DIGITS_WRITTEN, _MOST_DIGITS = 3, 2, 6, 12
_NO_WORSE = 1e-4  # of a best level: an end so near to it is not worth another number
_ROUNDING = 1e-10  # relative differences that are errors of arithmetic
_WHOLE = re.compile(r"^(-?\d+)\.0+$")
_PLAIN = re.compile(r"(-?\d+(?:\.(\d+))?)(?: |$)")

_CAPITALIZED = re.compile(r"[A-Z][a-z'-]*[,:.]?")
_WORD = re.compile(r"[A-Za-z'-]+[,:.]?")


def short_name(name: object) -> str:
    """A name of the user's within a sentence."""
    return printable(name, NAME_WIDTH)


def shortened(names: Sequence[str], limit: int) -> list[str]:
    """Names of that many characters at most: their beginnings, unless the ends distinguish more of them."""
    starts = [printable(one, limit) for one in names]
    ends = [one if len(one) <= limit else _ELLIPSIS + one[1 - limit :] for one in map(printable, names)]
    return ends if len(set(ends)) > len(set(starts)) else starts


def printable(text: object, limit: int = 200) -> str:
    """One line that cannot move the cursor, change colours or reorder what is next to it.

    Newlines and tabs become spaces; control, direction and zero-width characters become ``?``; longer texts end in
    an ellipsis.
    """
    # Cut first: a name of ten megabytes must not be walked character by character.
    raw = str(text)[: limit + 1]
    # What Python calls printable is a part of what is let through here, and nearly every text is.
    clean = raw if raw.isprintable() else "".join(_printable_character(character) for character in raw)
    return clean if len(clean) <= limit else clean[: limit - 1] + _ELLIPSIS


def clipped(text: object, most: int) -> str:
    """``printable``, of at most that many bytes as JSON writes them: an ellipsis is six, a quotation mark two."""
    shown = printable(text, most)
    sizes = [len(json.dumps(character)) - 2 for character in shown]
    if sum(sizes) <= most:
        return shown
    ends = [end for end, size in enumerate(accumulate(sizes), 1) if size + _ELLIPSIS_BYTES <= most]
    return shown[: ends[-1]] + _ELLIPSIS if ends else ""


def _printable_character(character: str) -> str:
    if character in "\n\r\t":
        return " "
    return "?" if unicodedata.category(character) in _HIDDEN_CATEGORIES else character


def without_userinfo(text: str) -> str:
    """A URL without user name, password and query, and of its fragment only a page's route (``#/experiments/1``).

    Where no telling is which part is the secret, only the scheme is left. Text that is no URL stays as it is.
    """
    # Path("https://...") has only one slash left.
    scheme, mark, rest = re.sub(r"(?i)\b(https?):/(?!/)", r"\1://", text).partition("://")
    if not mark:
        return text
    authority, tail = _split_before(rest, r"[/?#\\]")
    host = authority.rpartition("@")[2]
    path, query_and_fragment = _split_before(tail, r"[?#]")
    known = re.fullmatch(r"[\w.+:-]{1,50}", scheme) and re.fullmatch(r"([\w.-]*|\[[\w.:%]*\])(:\d*)?", host)
    if not known or "@" in tail:
        return f"{scheme}://{_ELLIPSIS}" if re.fullmatch(r"[\w+.-]{1,50}", scheme) else f"{_ELLIPSIS}://{_ELLIPSIS}"
    route = re.match(r"/[\w./-]*", query_and_fragment.partition("#")[2])
    return f"{scheme}://{host}{path}{f'#{route.group()}' if route else ''}"


def decoded_once(text: str) -> str | None:
    """A part of an address without its percent-encoding; None where what is encoded is no UTF-8.

    For the parts of a page's address alone, and once: decoded again, ``%2574`` would name something else.
    """
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None


def _split_before(text: str, pattern: str) -> tuple[str, str]:
    found = re.search(pattern, text)
    return (text, "") if found is None else (text[: found.start()], text[found.start() :])


def number(value: float, digits: int = _DIGITS) -> str:
    """A number with three significant digits, or as many as asked: ``0.123``, ``1.5e-07``, ``12500``, ``NaN``.

    Whole numbers stay whole, and so does what is before the point: it may be a count.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == int(value) and abs(value) < 1e9:
        return str(int(value))
    short = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in short and abs(value) < 1e6 else short


def setting(value: float, digits: int = _DIGITS_WRITTEN) -> str:
    """A number that a user wrote, with all its digits: ``0.00015``."""
    return number(value, digits)


def as_written(text: str) -> str:
    """A setting as a person would write it: what a tracker has as ``3000.0`` is ``3000``."""
    return _WHOLE.sub(r"\1", text)


def percent(share: float, digits: int = _DIGITS_OF_SHARES, least: float = 0.1) -> str:
    """A share with two significant digits: ``18 %``, ``2.5 %``. Only what is exactly so is ``0 %`` or ``100 %``.

    ``least``: smaller percentages are ``under 0.1 %``.
    """
    value = float(f"{100.0 * share:.{_MOST_DIGITS}g}")
    if 0.0 < abs(value) < least and digits <= _DIGITS:
        return f"under {number(least)} %"
    shown = number(value, digits)
    if shown == "100" and value != 100.0:
        shown = number(value, _DIGITS + (value > 100.0))
    return f"{shown} %" if shown != "100" or value == 100.0 else "over 99.9 %" if value < 100.0 else "over 100 %"


def small_percent(share: float, digits: int = _DIGITS_OF_SHARES) -> str:
    """The same of a share that is usually small: ``0.02 %``."""
    return percent(share, digits, 1e-4)


def contrast(*values: float, show: Callable[..., str] = number) -> tuple[str, ...]:
    """Numbers that a sentence compares, with so many digits that none looks like another: ``2.30``, ``2.41``.

    Rounding errors make no two numbers of one. ``show``: writes a number, with so many digits where they are given.
    """
    texts, digits = tuple(map(show, values)), _DIGITS
    while digits < _MOST_DIGITS and not _are_apart(texts, values):
        texts, digits = tuple(show(value, digits) for value in values), digits + 1
    is_whole = tuple(
        "." not in text and text == show(value, _MOST_DIGITS) for text, value in zip(texts, values, strict=True)
    )
    return _aligned(texts, is_whole)


def went(
    before: float, after: float, verb: str = "went", show: Callable[..., str] = number, *, levels: bool = False
) -> str:
    """``went from 2.31 to 0.52``, or ``stayed at 2.31``. ``levels``: of many values, which are called about."""
    start, end = contrast(before, after, show=show)
    about = "about " * levels
    return f"stayed at {about}{end}" if start == end else f"{verb} from {about}{start} to {end}"


def ends(end: float, best: float, *, at_best: bool, show: Callable[..., str] = number) -> str:
    """``ends at 0.79, its best level is 0.84``; ``ends at its best level, 0.84``, where that is so."""
    if at_best or math.isclose(end, best, rel_tol=_NO_WORSE):
        return f"ends at its best level, {show(end)}"
    return "ends at {}, its best level is {}".format(*contrast(end, best, show=show))


def _are_apart(texts: tuple[str, ...], values: tuple[float, ...]) -> bool:
    of = dict(zip(texts, values, strict=True))
    pairs = [(of[text], value) for text, value in zip(texts, values, strict=True)]
    return all(math.isclose(*pair, rel_tol=_ROUNDING) or any(map(math.isnan, pair)) for pair in pairs)


def _aligned(texts: tuple[str, ...], is_whole: tuple[bool, ...]) -> tuple[str, ...]:
    """With zeros at the end where another number of the same size has more decimals, unless it is whole."""
    sizes = [_size_and_decimals(text) for text in texts]
    most = {size: max(decimals for other, decimals in sizes if other == size) for size, _ in sizes}
    return tuple(
        text if whole or size is None or most[size] == decimals else _with_zeros(text, decimals, most[size] - decimals)
        for text, whole, (size, decimals) in zip(texts, is_whole, sizes, strict=True)
    )


def _size_and_decimals(text: str) -> tuple[int | None, int]:
    """The order of magnitude, None of 0 and of what is no plain number, and how many digits follow the point."""
    known = _PLAIN.match(text)
    value = abs(float(known[1])) if known is not None else 0.0
    return (math.floor(math.log10(value)) if value else None), len(known[2] or "") if known is not None else 0


def _with_zeros(text: str, decimals: int, more: int) -> str:
    shown, space, unit = text.partition(" ")
    return f"{shown}{'' if decimals else '.'}{'0' * more}{space}{unit}"


def sentence(text: str) -> str:
    """With a capital at its beginning, unless that is the name of a metric, and a full stop at its end."""
    text = text.strip()
    is_name = not _WORD.fullmatch(text.partition(" ")[0])
    return (text if is_name else text[:1].upper() + text[1:]) + (
        "" if text.endswith((".", "!", "?")) or not text else "."
    )


def uncapitalized(text: str) -> str:
    """A sentence as the rest of another: without the capital at its beginning, unless that is a name or a number."""
    return text[:1].lower() + text[1:] if _CAPITALIZED.fullmatch(text.partition(" ")[0]) else text


def split_sentence(text: str) -> tuple[str, str]:
    """The first clause of a message as a sentence of its own, for a headline, and the rest as another."""
    for found in _CLAUSE_ENDS.finditer(text):
        head = text[: found.start()]
        is_name = found.group() == ": " and head.count(" ") < 2  # of a rule, before its message
        if head.count("(") == head.count(")") and not is_name:
            return sentence(head), sentence(text[found.end() :])
    return sentence(text), ""


def count(amount: int, noun: str) -> str:
    """``1 step``, ``3 steps``."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def duration(seconds: float) -> str:
    """``0.1 s``, ``42 s``, ``3 min 20 s``, ``5 h 12 min``, ``3 d 4 h``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, smaller, less in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {name}" + (f" {rest} {less}" if rest else "")
    return f"{whole} s"


def duration_in_short(seconds: float) -> str:
    """The same, without the seconds of ten minutes and more: ``21 min``."""
    return duration(seconds if seconds < 600 else 60 * round(seconds / 60))


def size_of(count: int) -> str:
    """A number of bytes: ``1.2 GB``, ``64.0 kB``, ``12 bytes``."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"


def listing(items: list[str], limit: int = 5) -> str:
    """The first few of a list of names, and how many more there are."""
    shown = ", ".join(printable(item, 80) for item in items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"


def steps_in_words(steps: Iterable[int], limit: int = 5) -> str:
    """``step 5``, ``steps 5 and 17``; of many the first few, and how many more there are."""
    shown = [str(int(step)) for step in steps]
    if len(shown) > limit:
        shown[limit:] = [f"{len(shown) - limit} more"]
    return f"step {shown[0]}" if len(shown) == 1 else f"steps {', '.join(shown[:-1])} and {shown[-1]}"


def without_numbers(name: str) -> str:
    """A name with every number masked: the same for what is written one after the other."""
    return re.sub(r"\d+", "#", name)
