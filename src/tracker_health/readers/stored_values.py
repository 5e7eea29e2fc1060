"""Stored numbers of any width as float64."""

from __future__ import annotations

import numpy as np

from tracker_health.evidence import FloatArray

BFLOAT16 = "bf16"
"""The one dtype code that numpy has none for; the others are numpy's, without a byte order."""


def item_size(dtype: str) -> int:
    """Bytes of one value."""
    return 2 if dtype == BFLOAT16 else np.dtype(dtype).itemsize


def convert(raw: memoryview, dtype: str, order: str, values: FloatArray) -> None:
    """Write the values of ``raw`` (of a dtype code, in byte order ``<`` or ``>``) into ``values``, as float64."""
    if dtype == BFLOAT16:
        upper = np.frombuffer(raw, dtype=f"{order}u2").astype(np.uint32) << 16
        values[:] = upper.view(np.float32)
    else:
        values[:] = np.frombuffer(raw, dtype=f"{order}{dtype}")
