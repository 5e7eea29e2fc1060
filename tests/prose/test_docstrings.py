"""What is public is documented: what it takes, gives and raises; each rule declares and explains itself."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

from tracker_health.errors import MissingExtra
from tracker_health.rules.probe import SECTIONS, Symptom, explanation_of, thresholds_of
from tracker_health.rules.registry import BUILT_IN

ROOT = Path(__file__).parent.parent.parent


pytestmark = pytest.mark.prose


def public_objects():
    for path in sorted((ROOT / "src" / "tracker_health").rglob("*.py")):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        if "__main__" in parts:
            continue
        try:
            module = importlib.import_module(".".join(part for part in parts if part != "__init__"))
        except MissingExtra:  # its classes are of a package that is not installed: make frameworks
            continue
        yield module.__name__, module
        for name, value in vars(module).items():
            if (
                not name.startswith("_")
                and getattr(value, "__module__", "") == module.__name__
                and (inspect.isclass(value) or inspect.isfunction(value))
            ):
                yield f"{module.__name__}.{name}", value


def test_everything_public_has_a_docstring():
    missing = [
        name
        for name, value in public_objects()
        if not (value.__doc__ or "").strip() or value.__doc__.startswith(f"{getattr(value, '__name__', '')}(")
    ]
    assert missing == []


PUBLIC_PACKAGES = ("", ".evidence", ".probe", ".testing", ".result", ".monitor")


def exported():
    """What the package, and its public ones, are there to be imported for: those with ``__all__`` say so."""
    for module in (importlib.import_module(f"tracker_health{name}") for name in PUBLIC_PACKAGES):
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        for name in getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
            yield f"{module.__name__}.{name}", getattr(module, name)


def exported_functions():
    """The functions among them, and the methods of the classes: each once."""
    found = {}
    for name, value in exported():
        if inspect.isclass(value):
            bases = [one for one in value.__mro__ if one.__module__.startswith("tracker_health")]
            members = {key: member for base in reversed(bases) for key, member in vars(base).items()}
            named = {f"{name}.{key}": member for key, member in members.items() if not key.startswith("_")}
        else:
            named = {name: value}
        for key, member in named.items():
            function = inspect.unwrap(getattr(member, "__func__", member)) if callable(member) else None
            function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else function
            if inspect.isfunction(function) and function.__module__.startswith("tracker_health"):
                found.setdefault(function, key)
    return sorted(found.items(), key=lambda pair: pair[1])


def section(function, title):
    """The lines of a section of a docstring, without what goes on in the next line; none where there is no section."""
    document = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    texts = [text for text in document if text.startswith(f"{title}:\n")]
    return [line.strip() for text in texts for line in text.splitlines()[1:] if not line.startswith(" " * 5)]


def test_what_is_exported_has_functions():
    names = {name for _, name in exported_functions()}
    assert {"tracker_health.check", "tracker_health.Curve.of", "tracker_health.CurveRule.judge_curve"} <= names
    assert {"tracker_health.evidence.Estimate.surely_above", "tracker_health.probe.thresholds_of"} <= names


def test_an_exported_function_says_what_it_takes_gives_and_raises():
    for function, name in exported_functions():
        signature = inspect.signature(function)
        prefix = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
        taken = [f"{prefix.get(one.kind, '')}{one.name}" for one in signature.parameters.values()]
        described = [line.partition(":")[0] for line in section(function, "Args")]
        assert described == [one for one in taken if one not in ("self", "cls")], name
        gives = signature.return_annotation not in (None, "None")
        assert bool(section(function, "Returns") or section(function, "Yields")) is gives, name
        raised = set(re.findall(r"^ +raise (\w+)\(", inspect.getsource(function), re.MULTILINE))
        assert raised <= {line.partition(":")[0] for line in section(function, "Raises")}, name


def test_a_rule_declares_and_explains_itself():
    for probe in BUILT_IN:
        assert re.fullmatch(r"[A-Z]{3}\d{3}", probe.code)
        assert re.fullmatch(r"[a-z]+(-[a-z0-9]+)*", probe.name)
        assert isinstance(probe.symptom, Symptom)
        assert tuple(explanation_of(probe).sections) == SECTIONS
        assert all(explanation_of(probe).sections.values())
        for threshold_name, (kind, threshold) in thresholds_of(probe).items():
            assert kind in (int, float)
            assert threshold.meaning
            assert threshold.source
            assert threshold.problem_with(getattr(probe, threshold_name)) is None
        cited = set(re.findall(r"`(\w+)`", explanation_of(probe).sections["How it decides"]))
        assert cited >= set(thresholds_of(probe)) - {
            "min_points",
            "min_steps",
            "assert_smoothness_gte",
            "assert_convergence_ratio_lte",
            "assert_instability_events_lte",
        }
        assert probe().needs
