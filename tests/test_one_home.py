"""A number of a rule stands at the rule: a cause that asks for it reads it there, as it is set."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import tracker_health.diagnosis
from tracker_health.rules.probe import thresholds_of
from tracker_health.rules.registry import BUILT_IN

FOLDER = Path(tracker_health.diagnosis.__file__).parent
CODE = re.compile(r"\b[A-Z]{3}\d{3}\b")
NUMBERS = {probe.code: {float(getattr(probe, name)) for name in thresholds_of(probe)} for probe in BUILT_IN}
EVERYWHERE = {0.0, 1.0, 2.0, 3.0, 4.0}
"""None, all of it, places and weights: what stands in any code."""


def constants_of(tree):
    """The numbers that a module's names stand for."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names = [one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)]
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            if len(names) == len(values):
                found |= {name: one.value for name, one in zip(names, values, strict=True) if is_number(one)}
    return found


def is_number(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool)


def second_homes(text):
    """Where a statement or a function names a rule, and has one of that rule's numbers as its own."""
    tree = ast.parse(text)
    constants = constants_of(tree)
    for node in tree.body:
        for part in node.body if isinstance(node, ast.ClassDef) else [node]:
            inside = list(ast.walk(part))
            texts = [str(one.value) for one in inside if isinstance(one, ast.Constant)]
            codes = {code for text in texts if len(found := CODE.findall(text)) == 1 for code in found}
            own = {float(one.value) for one in inside if is_number(one)}
            own |= {float(constants[one.id]) for one in inside if isinstance(one, ast.Name) and one.id in constants}
            for code in codes & NUMBERS.keys():
                if same := (own - EVERYWHERE) & NUMBERS[code]:
                    yield part.lineno, code, sorted(same)


def test_no_cause_has_a_number_of_a_rule():
    found = {
        f"{path.relative_to(FOLDER)}:{line}: {code} {numbers}"
        for path in FOLDER.rglob("*.py")
        for line, code, numbers in second_homes(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_a_second_home_is_found():
    assert list(second_homes('_MOST = 0.3\ndef f(x):\n    return x.has("OPT016") and x.rate > _MOST\n')) == [
        (2, "OPT016", [0.3])
    ]
    assert list(second_homes('def f(x):\n    return x.limit("OPT016", "most_rate")\n')) == []
