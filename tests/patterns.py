"""Every regular expression of the package, and the lines that would make one of them slow.

They are found and not listed, so that new ones are among them: compiled ones by walking all that the modules hold
(also in dictionaries, tuples, classes, default arguments, and properties that are kept), those written out in a call
(``re.search("...", text)``) in the source.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import re._constants as code
import re._parser as parser
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import tracker_health

ROOT = Path(tracker_health.__path__[0])
# Ray is installed for the tests with trainers of others alone.
_NOT_IMPORTED = re.compile(r".*\.(__main__|startup\..*)|tracker_health\.(testing.*|live\.ray)")
# How a pattern is used; the others go through a text as `search` does, from each place.
_METHODS = {
    **dict.fromkeys(("search", "findall", "finditer", "split", "sub", "subn"), "search"),
    "match": "match",
    "fullmatch": "fullmatch",
}


@dataclass(frozen=True)
class Used:
    """A pattern, where it stands, and how it is used: ``search``, ``match``, ``fullmatch``."""

    where: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]

    def run(self, text: str) -> None:
        """Use it on a text in all these ways."""
        given = text.encode("latin-1", "replace") if isinstance(self.pattern.pattern, bytes) else text
        for method in self.methods:
            if method == "search":
                for _ in self.pattern.finditer(given):
                    pass
            else:
                getattr(self.pattern, method)(given)


@cache
def all_patterns() -> list[Used]:
    """Every one of them, by where it stands."""
    found: dict[tuple[Any, int], Used] = {}
    for module in _modules():
        tree = ast.parse(inspect.getsource(module))
        for one in (*_compiled(module, tree), *_written_out(module, tree)):
            key = one.pattern.pattern, one.pattern.flags
            methods = found[key].methods if key in found else frozenset()
            found[key] = Used(one.where, one.pattern, one.methods | methods)
    return sorted(found.values(), key=lambda one: one.where)


def _modules() -> Iterator[ModuleType]:
    for info in pkgutil.walk_packages([str(ROOT)], "tracker_health."):
        if not _NOT_IMPORTED.fullmatch(info.name):
            yield importlib.import_module(info.name)


def _compiled(module: ModuleType, tree: ast.AST) -> Iterator[Used]:
    uses = _uses(tree)
    # Of a pattern in a dictionary or tuple, the name of its loop says nothing: it may be used as any other there is.
    others = frozenset().union(*(uses[name] for name in uses if not isinstance(vars(module).get(name), re.Pattern)))
    for name, value in vars(module).items():
        for pattern in _patterns_in(value, set()):
            known = uses.get(name, frozenset()) if pattern is value else others
            yield Used(f"{module.__name__}.{name}", pattern, known or _elsewhere(name))


def _elsewhere(name: str) -> frozenset[str]:
    """How a pattern is used that its own module does not use: imported by others."""
    return frozenset().union(*(uses.get(name, frozenset()) for uses in _all_uses())) or frozenset(_METHODS.values())


@cache
def _all_uses() -> list[dict[str, frozenset[str]]]:
    return [_uses(ast.parse(path.read_text())) for path in ROOT.rglob("*.py")]


def _uses(tree: ast.AST) -> dict[str, frozenset[str]]:
    """By the name of what a method is called on: which of a pattern's methods."""
    found: dict[str, frozenset[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _METHODS:
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            if name != "re":
                found[name] = found.get(name, frozenset()) | {_METHODS[node.attr]}
    return found


def _patterns_in(value: Any, seen: set[int]) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    inside: list[Any] = []
    if isinstance(value, dict):
        inside = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        inside = list(value)
    elif isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != type(cell)()]
        inside = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *cells]
    elif not isinstance(value, ModuleType) and _is_ours(value):
        inside = [*getattr(value, "__dict__", {}).values()]
        inside += [getattr(value, name, None) for name in getattr(type(value), "__slots__", ())]
        inside += [getattr(value, name) for name, one in vars(type(value)).items() if isinstance(one, cached_property)]
    for one in inside:
        yield from _patterns_in(one, seen)


def _is_ours(value: Any) -> bool:
    owner = value if isinstance(value, type) else type(value)
    return owner.__module__.partition(".")[0] == "tracker_health"


def _written_out(module: ModuleType, tree: ast.AST) -> Iterator[Used]:
    for node in ast.walk(tree):
        if _is_call_of_re(node) and (text := _value(node.args[0], module)) is not None:
            flags = [_value(one.value, module) for one in node.keywords if one.arg == "flags"]
            flags += [_value(one, module) for one in node.args[2:]]
            kinds = sum((one for one in flags if isinstance(one, re.RegexFlag)), start=re.RegexFlag(0))
            where = f"{module.__name__}:{node.lineno}"
            yield Used(where, re.compile(text, kinds), frozenset({_METHODS[node.func.attr]}))


def unknown_calls() -> list[str]:
    """Where a pattern is made of what is known only when it is used: such a place has to be looked at by a person."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        if _NOT_IMPORTED.fullmatch(name):
            continue
        module = importlib.import_module(name)
        for node in ast.walk(ast.parse(path.read_text())):
            compiles = isinstance(node, ast.Call) and _name_of(node.func) == "re.compile"
            if (compiles or _is_call_of_re(node)) and _value(node.args[0], module) is None:
                found.append(f"{path.relative_to(ROOT).as_posix()}: {ast.unparse(node)[:60]}")
    return found


def _is_call_of_re(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and (name := _name_of(node.func)).startswith("re.") and name[3:] in _METHODS


def _name_of(node: ast.expr) -> str:
    return (
        f"{node.value.id}.{node.attr}" if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""
    )


def _value(node: ast.expr, module: ModuleType) -> Any:
    try:
        return eval(compile(ast.Expression(node), module.__name__, "eval"), dict(vars(module)))
    except NameError:
        return None


# Parts

_OF_CATEGORY = {
    code.CATEGORY_DIGIT: "1",
    code.CATEGORY_NOT_DIGIT: "x",
    code.CATEGORY_SPACE: " ",
    code.CATEGORY_NOT_SPACE: "x",
    code.CATEGORY_WORD: "a",
    code.CATEGORY_NOT_WORD: "^",
}
_TRIED = "a ^1-.A/\té"
_LONGEST_ROW = 3
_CHOICES = 2


def parts_of(pattern: re.Pattern[Any]) -> set[tuple[str, str]]:
    """What to repeat, each with what has to stand before it: up to three things that follow each other in a pattern,
    at every level of it, as texts that fit them.
    """
    tree = parser.parse(
        pattern.pattern, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
    )
    found: set[tuple[str, str]] = set()
    _collect(list(tree), "", found)
    found.add(("", _example(list(tree), 0)))
    return {(before, part) for before, part in found if part}


def _collect(nodes: list[Any], before: str, found: set[tuple[str, str]]) -> None:
    rows = list(_words_together(nodes))
    texts = [[_example(row, choice) for row in rows] for choice in range(_CHOICES)]
    starts = [before]
    for text in texts[0]:
        starts.append(starts[-1] + text)
    for at, row in enumerate(rows):
        for chosen in texts:
            for width in range(1, _LONGEST_ROW + 1):
                part = "".join(chosen[at : at + width])
                found.update({(starts[at], part), ("", part)})
        for child in (child for node in row for child in _children(*node)):
            _collect(list(child), starts[at], found)


def _words_together(nodes: list[Any]) -> Iterator[list[Any]]:
    """The nodes, each for itself, letters that follow each other together."""
    row: list[Any] = []
    for node in nodes:
        if row and (node[0] is not code.LITERAL or row[-1][0] is not code.LITERAL):
            yield row
            row = []
        row.append(node)
    if row:
        yield row


def _children(kind: Any, value: Any) -> list[Any]:
    if kind in (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT):
        return [value[2]]
    if kind is code.SUBPATTERN:
        return [value[3]]
    if kind is code.BRANCH:
        return value[1]
    if kind in (code.ASSERT, code.ASSERT_NOT):
        return [value[1]]
    return [value] if kind is code.ATOMIC_GROUP else []


def _example(nodes: Any, choice: int) -> str:
    return "".join(_text(kind, value, choice) for kind, value in nodes)


def _text(kind: Any, value: Any, choice: int) -> str:
    """A text that fits a node, of those that there are the first, the second ..."""
    if kind is code.LITERAL:
        return chr(value)
    if kind in (code.ANY, code.NOT_LITERAL):
        return "a" if value != ord("a") else "b"
    if kind is code.IN:
        members = _members(value)
        return members[choice % len(members)]
    if kind in (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT):
        return _example(value[2], choice) * max(value[0], 1)
    if kind is code.SUBPATTERN:
        return _example(value[3], choice)
    if kind is code.BRANCH:
        return _example(value[1][choice % len(value[1])], choice)
    if kind is code.ATOMIC_GROUP:
        return _example(value, choice)
    if kind is code.ASSERT and value[0] > 0:
        return _example(value[1], choice)
    return _OF_CATEGORY[value] if kind is code.CATEGORY else ""


def _members(items: list[Any]) -> list[str]:
    """Some characters of a class."""
    named = [character for item in items for character in _of_item(*item)]
    if items[0][0] is not code.NEGATE:
        return named
    ranges = [value for kind, value in items if kind is code.RANGE]
    within = [character for character in _TRIED if any(first <= ord(character) <= last for first, last in ranges)]
    kinds = [value for kind, value in items if kind is code.CATEGORY]
    alike = [character for character in _TRIED if any(_is_of(kind, character) for kind in kinds)]
    return [character for character in _TRIED if character not in {*named, *within, *alike}] or ["é"]


def _of_item(kind: Any, value: Any) -> list[str]:
    if kind is code.LITERAL:
        return [chr(value)]
    if kind is code.RANGE:
        return [chr(value[0]), chr(value[1])]
    return [_OF_CATEGORY[value]] if kind is code.CATEGORY else []


def _is_of(kind: Any, character: str) -> bool:
    is_of = {
        code.CATEGORY_DIGIT: character.isdecimal(),
        code.CATEGORY_SPACE: character.isspace(),
        code.CATEGORY_WORD: character.isalnum() or character == "_",
    }
    return is_of.get(kind, False)


ENDS = ("", "^", "a", "\n")
"""What ends a line: with some a pattern fits, with others it has to be given up."""


def lines_of(parts: set[tuple[str, str]], length: int, ends: Iterable[str]) -> Iterator[str]:
    """Lines of about a length, each part repeated, with each of the ends."""
    for before, part in sorted(parts):
        for end in ends:
            yield f"{before}{part * max(1, length // len(part))}{end}"
