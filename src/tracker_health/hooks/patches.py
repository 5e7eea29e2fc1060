"""Wrapping methods of a tracker's classes so that it can be undone, and so that nothing of it can be felt."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

After = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]
"""Called with what the method gave, its positional arguments (``self`` included) and its keyword arguments."""

_MOST_LAYERS = 100
# Ours that do something. No mark on the function itself, which `functools.wraps` would copy to someone else's.
_active: set[Callable[..., Any]] = set()


def wrap(owner: type, name: str, after: After) -> Callable[[], None]:
    """Have ``after`` called once a method has come back; what undoes it. A method that is wrapped stays as it is.

    Raises:
        AttributeError, TypeError: there is no such method.
    """
    original = getattr(owner, name)
    if not callable(original):
        raise TypeError(f"{owner.__name__}.{name} is no method")
    if any(isinstance(layer, FunctionType) and layer in _active for layer in _layers(original)):
        return lambda: None

    @functools.wraps(original)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        if wrapper in _active:
            after(result, arguments, options)
        return result

    _active.add(wrapper)
    setattr(owner, name, wrapper)

    def undo() -> None:
        _active.discard(wrapper)
        if owner.__dict__.get(name) is wrapper:  # else someone else has wrapped ours: it stays, and does nothing
            setattr(owner, name, original)

    return undo


def _layers(method: Any) -> Iterator[Any]:
    """A method and those that it says to be wrapped around."""
    for _ in range(_MOST_LAYERS):
        if method is None:
            return
        yield method
        method = getattr(method, "__wrapped__", None)


def argument(arguments: tuple[Any, ...], options: dict[str, Any], index: int, name: str) -> Any:
    """An argument of a method, however it was given; None where it was not."""
    return arguments[index] if len(arguments) > index else options.get(name)
