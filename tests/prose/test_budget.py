"""How explainable rules are: none may hold a number that nobody declared, nor be longer than a person can follow.

Counted per file: numbers that are neither 0, 1, -1, 2, 0.5 in a function, nor an index, nor a declared ``Threshold``;
lines without docstrings and blanks; and what "How it decides" leaves out.
"""

import ast
import re
from pathlib import Path

import pytest

from tracker_health import rules
from tracker_health.rules.probe import explanation_of, thresholds_of
from tracker_health.rules.registry import BUILT_IN

pytestmark = pytest.mark.prose

TRIVIAL = {0, 1, -1, 2, 0.5}
MOST_LINES, LONGEST_SENTENCE = 110, 25
FOLDER = Path(rules.__file__).parent
SOURCES = sorted(FOLDER.glob("*/*.py"))  # those of the packages: the modules next to them are no rules


def documented(tree):
    """The lines of docstrings."""
    holders = [one for one in ast.walk(tree) if isinstance(one, (ast.ClassDef, ast.FunctionDef, ast.Module))]
    there = [one.body[0] for one in holders if ast.get_docstring(one) is not None]
    return {line for one in there for line in range(one.lineno, one.end_lineno + 1)}


def undeclared(tree):
    """The numbers that nobody declared, each with its line."""
    thresholds = {
        line
        for one in ast.walk(tree)
        if isinstance(one, ast.AnnAssign) and "Annotated" in ast.dump(one.annotation)
        for line in range(one.lineno, one.end_lineno + 1)
    }
    indices = {id(part) for one in ast.walk(tree) if isinstance(one, ast.Subscript) for part in ast.walk(one.slice)}
    constants = {
        line
        for one in tree.body
        if isinstance(one, (ast.Assign, ast.AnnAssign))
        for line in range(one.lineno, one.end_lineno + 1)
    }
    return [
        (one.lineno, one.value)
        for one in ast.walk(tree)
        if isinstance(one, ast.Constant)
        and isinstance(one.value, (int, float))
        and not isinstance(one.value, bool)
        and id(one) not in indices
        and one.lineno not in thresholds
        and (one.lineno in constants or one.value not in TRIVIAL)
    ]


def lines_of_code(text):
    docstrings = documented(ast.parse(text))
    return sum(bool(line.strip()) and number not in docstrings for number, line in enumerate(text.splitlines(), 1))


def test_numbers_are_declared():
    found = {path.name: undeclared(ast.parse(path.read_text())) for path in SOURCES}
    assert {name: numbers for name, numbers in found.items() if numbers} == {}


def test_a_rule_can_be_seen_whole():
    lines = {path.name: lines_of_code(path.read_text()) for path in SOURCES}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_how_it_decides_names_all_that_can_decide():
    """Every threshold, by the name that a configuration has for it."""
    left_out = {
        rule.code: named
        for rule in BUILT_IN
        if (named := thresholds_of(rule).keys() - set(re.findall(r"`(\w+)`", _decides(rule))))
    }
    assert left_out == {}


def _decides(rule):
    return explanation_of(rule).sections["How it decides"]


def test_how_it_decides_is_in_short_sentences():
    decides = {rule.code: _decides(rule) for rule in BUILT_IN}
    sentences = [(code, one) for code, text in decides.items() for one in re.split(r"[.:;]\s", text)]
    assert [one for one in sentences if len(one[1].split()) > LONGEST_SENTENCE] == []


def test_the_count_sees_what_it_counts():
    tree = ast.parse("A = 3\ndef f(x):\n    return x[5] * 0.25 + 2\nclass R:\n    y: Annotated[float, T(4)] = 7.0\n")
    assert undeclared(tree) == [(1, 3), (3, 0.25)]
