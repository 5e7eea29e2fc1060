"""What the installed torch has not got because it is older, done with what it has: the one place for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def uncompiled(function: Callable[..., None], why: str) -> Callable[..., None]:
    """The function, left as it is where code that calls it is compiled."""
    disable: Any = torch.compiler.disable
    try:
        found: Callable[..., None] = disable(function, reason=why)
    except TypeError:  # before torch 2.7
        found = disable(function)
    return found
