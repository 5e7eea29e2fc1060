"""Stored numbers of any width as float64."""

from __future__ import annotations

from functools import cache

import numpy as np

from tracker_health.evidence import FloatArray

# Dtype codes are numpy's, without a byte order, but for those that numpy has none for: this one, and eight-bit floats.
BFLOAT16 = "bf16"

# Exponent bits, exponent bias, and which codes stand for no number, of the eight-bit floats of Micikevicius et al.
# (2022), and of those without infinities and negative zero of Noune et al. (2022).
_EIGHT_BIT = {
    "f8_e4m3fn": (4, 7, "last"),
    "f8_e5m2": (5, 15, "ieee"),
    "f8_e4m3fnuz": (4, 8, "zero"),
    "f8_e5m2fnuz": (5, 16, "zero"),
}


@cache
def item_size(dtype: str) -> int:
    """Bytes of one value."""
    if dtype in _EIGHT_BIT:
        return 1
    return 2 if dtype == BFLOAT16 else np.dtype(dtype).itemsize


def convert(raw: memoryview, dtype: str, order: str, values: FloatArray) -> None:
    """Write the values of ``raw`` (of a dtype code, in byte order ``<`` or ``>``) into ``values``, as float64."""
    with np.errstate(invalid="ignore"):  # damaged values are judged, not warned about: a signalling NaN is one of them
        if dtype == BFLOAT16:
            upper = np.frombuffer(raw, dtype=f"{order}u2").astype(np.uint32) << 16
            values[:] = upper.view(np.float32)
        elif dtype in _EIGHT_BIT:
            np.take(_eight_bit(dtype), np.frombuffer(raw, dtype=np.uint8), out=values)
        else:
            values[:] = np.frombuffer(raw, dtype=f"{order}{dtype}")


@cache
def _eight_bit(dtype: str) -> FloatArray:
    """The value of each of the 256 codes of an eight-bit float."""
    exponent_bits, bias, special = _EIGHT_BIT[dtype]
    codes = np.arange(256)
    sign = np.where(codes >= 128, -1.0, 1.0)
    mantissa_bits = 7 - exponent_bits
    exponent = (codes & 0x7F) >> mantissa_bits
    fraction = (codes & (2**mantissa_bits - 1)) / 2.0**mantissa_bits
    values = np.where(
        exponent == 0, np.ldexp(fraction, 1 - bias), np.ldexp(1.0 + fraction, exponent.astype(np.int64) - bias)
    )
    values *= sign
    if special == "last":
        values[[0x7F, 0xFF]] = np.nan
    elif special == "zero":
        values[0x80] = np.nan
    else:
        whole = exponent == 2**exponent_bits - 1
        values[whole] = np.where(fraction[whole] == 0, sign[whole] * np.inf, np.nan)
    return np.asarray(values, dtype=np.float64)
