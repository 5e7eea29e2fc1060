"""Numbers as people write them: ``1,234.5``, ``1.2k``, ``3e-4``, ``nan``, ``45%``."""

from __future__ import annotations

import re

_DIGITS = r"\d+(?:,\d+){0,9}(?:\.\d*)?|\.\d+"  # of longer lists each number would be looked for in all the rest
NUMBER = rf"[-+]?(?:(?:{_DIGITS})(?:[eE][-+]?\d+)?(?:[kKMBG](?![A-Za-z]))?|(?i:nan|inf(?:inity)?)(?![A-Za-z]))"
"""What is read as a number, for use in a larger pattern."""

_WRITTEN = re.compile(rf"\s*({NUMBER})\s*+(?:%\s*+)?")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")
_FACTORS = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9}
_MAX_CHARACTERS = 64


def as_written(text: str) -> float | None:
    """The value of a number as people write it; None for what is none. A comma parts thousands where every group has
    three digits, and is a decimal comma where there is one only and it cannot be that.
    """
    if len(text) > _MAX_CHARACTERS:
        return None
    match = _WRITTEN.fullmatch(text)
    if match is None:
        return None
    number = match.group(1)
    factor = _FACTORS.get(number[-1], 1.0)
    if factor != 1.0:
        number = number[:-1]
    mantissa, mark, exponent = number.lower().partition("e")
    if "," in mantissa:
        if _THOUSANDS.fullmatch(mantissa):
            mantissa = mantissa.replace(",", "")
        elif mantissa.count(",") == 1 and "." not in mantissa:
            mantissa = mantissa.replace(",", ".")
        else:
            return None
    return float(mantissa + mark + exponent) * factor
