"""Wrapping methods of a tracker's classes so that it can be undone, and so that nothing of it can be felt."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

After = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]
"""Called with what the method gave, its positional arguments (``self`` included) and its keyword arguments."""

_MARK = "_tracker_health_original"


def wrap(owner: type, name: str, after: After) -> Callable[[], None]:
    """Have ``after`` called once a method has come back; what undoes it. A method that is wrapped stays as it is.

    Raises:
        AttributeError, TypeError: there is no such method.
    """
    original = getattr(owner, name)
    if hasattr(original, _MARK):
        return lambda: None
    if not callable(original):
        raise TypeError(f"{owner.__name__}.{name} is no method")

    @functools.wraps(original)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        if getattr(wrapper, _MARK, None) is not None:
            after(result, arguments, options)
        return result

    setattr(wrapper, _MARK, original)
    setattr(owner, name, wrapper)

    def undo() -> None:
        if owner.__dict__.get(name) is wrapper:
            setattr(owner, name, original)
        else:  # somebody else has wrapped ours: it stays, and does nothing
            setattr(wrapper, _MARK, None)

    return undo


def argument(arguments: tuple[Any, ...], options: dict[str, Any], index: int, name: str) -> Any:
    """An argument of a method, however it was given; None where it was not."""
    return arguments[index] if len(arguments) > index else options.get(name)
