"""What one source of settings says, by dotted key: a file, the environment, a policy. What makes no sense is an error,
or is left out and told, where nobody is at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from tracker_health.config import did_you_mean
from tracker_health.errors import ConfigError
from tracker_health.settings.file import Document, KeyPath
from tracker_health.settings.values import JUDGING, JUDGING_SECTIONS, KEYS, MATCHES, SECTIONS, converted, quoted
from tracker_health.text import printable
from tracker_health.words.retired import RULE_LISTS, current_key

Layer = dict[str, "SourcedValue"]
"""What one source says, by dotted key; ``overrides.0.KEY`` is what its first override says."""


@dataclass(frozen=True, kw_only=True)
class SourcedValue:
    """A value and where it came from: ``command line``, ``environment NAME``, ``FILE:LINE``, ``preset NAME`` or
    ``default``.
    """

    value: Any
    origin: str


_left_out: ContextVar[list[str] | None] = ContextVar("what was wrong with settings that were left out", default=None)


@contextmanager
def leaving_out() -> Iterator[list[str]]:
    """Within this, a setting that makes no sense is left out instead of being an error. Gives what was wrong with each.

    For whoever judges without a person at hand: one wrong word in a file must not cost every run its verdict.
    """
    problems: list[str] = []
    token = _left_out.set(problems)
    try:
        yield problems
    finally:
        _left_out.reset(token)


def refuse(error: ConfigError) -> None:
    """Raise what is wrong with a setting, unless such settings are left out.

    Raises:
        ConfigError: they are not.
    """
    problems = _left_out.get()
    if problems is None:
        raise error
    problems.append(f"left out: {error}")


def number_left_out() -> int:
    """How many settings were left out so far."""
    return len(_left_out.get() or ())


# Files: what a table of ours says, by dotted key


def written_layer(document: Document, *, but: tuple[str, ...] = ()) -> dict[str, SourcedValue]:
    """The settings of a configuration file. ``but``: keys at the top that someone else reads.

    Raises:
        ConfigError: it has keys that do not exist, or values that are none; with file and line.
    """
    table = {key: value for key, value in document.table.items() if key not in but}
    layer = dict(_table(document, table, (), (*KEYS, *SECTIONS, "overrides")))
    overrides = document.table.get("overrides", [])
    if not isinstance(overrides, list) or not all(isinstance(one, dict) for one in overrides):
        where = document.where(("overrides",))
        refuse(ConfigError(f"{where}: overrides must be tables, each headed [[overrides]]"))
        return layer
    for index, override in enumerate(overrides):
        path = ("overrides", str(index))
        if "match" not in override:
            refuse(ConfigError(f"{document.where(path)}: this override does not say which runs it is for", MATCHES))
        of_override = dict(_table(document, override, path, (*JUDGING, *JUDGING_SECTIONS, "match")))
        if ".".join((*path, "match")) in of_override:
            layer |= of_override
    return layer


def _table(
    document: Document, table: Mapping[str, Any], path: KeyPath, known: tuple[str, ...]
) -> Iterator[tuple[str, SourcedValue]]:
    for key, value in table.items():
        if current_key(key) not in known:
            where, hint = document.where((*path, key)), did_you_mean(key, known)
            refuse(ConfigError(f"{where}: there is no key {quoted(key)}{_inside(path)}", hint))
            continue
        try:
            leaves = list(_leaves(document, path, key, value))
        except ConfigError as error:
            refuse(error)
            continue
        for inner, raw in leaves:
            where = document.where((*path, *inner))
            dotted = current_key(".".join(inner))
            if (setting := located(dotted, raw, where, where)) is not None:
                yield ".".join((*path, dotted)), setting


def _inside(path: KeyPath) -> str:
    return " in an override" if path else ""


def _leaves(document: Document, path: KeyPath, key: str, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    """The values below a top-level key, each by its path."""
    if key == "overrides":
        return
    if current_key(key) not in SECTIONS:
        yield (key,), value
        return
    for name, inner in _items(document, path, (key,), value):
        if current_key(key) != "rules":
            yield (key, name), inner
            continue
        for threshold, number in _items(document, path, (key, name), inner):
            yield (key, name, threshold), number


def _items(document: Document, path: KeyPath, key: KeyPath, value: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, dict):
        name = printable(".".join(key), 80)
        raise ConfigError(f"{document.where((*path, *key))}: {name} must be a table", f"write [{name}] above its keys")
    return value.items()


def located(key: str, raw: Any, where: str, origin: str) -> SourcedValue | None:
    """The setting of a key, None where it is left out; what is wrong with it is said with the place where it stands."""
    if _left_out.get() is not None and key in RULE_LISTS and isinstance(raw, list) and len(raw) > 1:
        known = [one.value for word in raw if (one := located(key, [word], where, origin)) is not None]
        return SourcedValue(value=frozenset().union(*known), origin=origin) if known else None
    try:
        return SourcedValue(value=converted(key, raw), origin=origin)
    except ConfigError as error:
        refuse(ConfigError(f"{where}: {error.message}", error.hint))
    return None
