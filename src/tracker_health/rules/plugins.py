"""Rules from other packages, by the entry point group ``tracker_health.probes``.

An entry point loads to a rule or to an iterable of rules. Whatever is wrong with one becomes an error entry that every
report shows; it never takes anything else with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

from tracker_health.errors import named
from tracker_health.report.result import ErrorEntry
from tracker_health.rules.probe import Probe, flaw_in
from tracker_health.text import printable
from tracker_health.words.retired import retired_words

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "tracker_health.probes"

SWITCH = "TRACKER_HEALTH_PLUGINS"
"""The environment variable that, set to 0, keeps every plugin from being loaded."""

_OFF = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """What the installed plugins brought: their rules, and what is wrong with the others.

    ``identity`` changes whenever a plugin comes, goes, changes its version, or starts or stops working.
    """

    rules: tuple[type[Probe], ...] = ()
    errors: tuple[ErrorEntry, ...] = ()
    identity: tuple[str, ...] = ()


def load_plugins(built_in: Sequence[type[Probe]]) -> Plugins:
    """Every installed plugin rule that works and takes neither code nor name from one that was there before it."""
    if os.environ.get(SWITCH, "").strip().lower() in _OFF or not _may_be_declared():
        return Plugins()
    from importlib.metadata import entry_points

    try:
        entries = sorted(entry_points(group=GROUP), key=lambda entry: (_package(entry), entry.name, entry.value))
    except Exception as error:  # noqa: BLE001  importlib.metadata parses what any package may have written
        message = f"the entry points of the installed packages cannot be read: {named(error)}"
        return Plugins(errors=(ErrorEntry(source="plugins", message=message),), identity=(message,))
    owners = dict.fromkeys(retired_words(), "a retired rule")
    owners |= {word: "a built-in rule" for probe in built_in for word in (probe.code, probe.name)}
    rules: list[type[Probe]] = []
    errors: list[ErrorEntry] = []
    identity: list[str] = []
    for entry in entries:
        source = printable(f"plugin {entry.name} ({_package(entry)})")
        codes = []
        for outcome in _loaded(entry):
            problem = outcome if isinstance(outcome, str) else _taken(outcome, owners)
            if problem is not None or isinstance(outcome, str):
                errors.append(ErrorEntry(source=source, message=printable(problem, 500)))
                continue
            owners |= dict.fromkeys((outcome.code, outcome.name), source)
            rules.append(outcome)
            codes.append(outcome.code)
        identity.append(f"{source} {entry.value} {codes}")
    return Plugins(rules=tuple(rules), errors=tuple(errors), identity=tuple(identity))


def quietly() -> AbstractContextManager[object]:
    """Standard output is for reports: what foreign code prints within this block goes to standard error."""
    return redirect_stdout(sys.stderr)


def _loaded(entry: EntryPoint) -> list[type[Probe] | str]:
    """The rules of an entry point, and for each that is none what is wrong with it."""
    try:
        with quietly():
            return [_checked(one) for one in _listed(entry.load())] or ["not used: it lists no rule"]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  whatever a foreign module does, even leave the process by SystemExit
        return [f"could not be loaded: {named(error)}"]


def _checked(candidate: Any) -> type[Probe] | str:
    flaw = flaw_in(candidate)
    return candidate if flaw is None else f"not used: {flaw}"


def _listed(found: Any) -> list[Any]:
    return [found] if isinstance(found, (type, str)) or not isinstance(found, Iterable) else list(found)


def _taken(probe: type[Probe], owners: dict[str, str]) -> str | None:
    for kind, word in (("code", probe.code), ("name", probe.name)):
        if word in owners:
            return f"not used: {probe.__qualname__} has the {kind} {word}, which {owners[word]} has already"
    return None


def _package(entry: EntryPoint) -> str:
    """Distribution and version, as far as its metadata can be read."""
    try:
        return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "unknown package"
    except Exception:  # noqa: BLE001  a half-removed package has no metadata file
        return "unknown package"


def _may_be_declared() -> bool:
    """Whether a package on the path may have plugins.

    importlib.metadata would tell, but importing and asking it takes 30 ms; to look for the group's name in the
    ``entry_points.txt`` of each package takes two. It is asked where it is loaded anyway, and where packages may come
    from elsewhere than folders (zip files, import hooks).
    """
    if "importlib.metadata" in sys.modules:
        return True
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return True
    return any(_may_declare(folder) for folder in dict.fromkeys(sys.path))


def _may_declare(folder: str) -> bool:
    try:
        with os.scandir(folder or ".") as found:
            return any(_mentions_group(entry.path) for entry in found if _is_metadata(entry.name.lower()))
    except NotADirectoryError:  # a zip file
        return True
    except OSError:
        return False


def _is_metadata(name: str) -> bool:
    return name.endswith((".dist-info", ".egg-info")) or name == "egg-info"


def _mentions_group(folder: str) -> bool:
    try:
        with open(f"{folder}/entry_points.txt", "rb") as file:  # noqa: PTH123  a Path for each package takes longer
            return GROUP.encode() in file.read()
    except OSError:
        return False
