"""The package as a whole: what importing costs, what is public, and that everything is documented."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tracker_health
from tracker_health.errors import MissingExtra
from tracker_health.rules.probe import SECTIONS, Symptom, explanation_of, thresholds_of
from tracker_health.rules.registry import BUILT_IN

ROOT = Path(__file__).parent.parent
HEAVY = {"mlflow", "wandb", "torch", "pydantic", "matplotlib", "sklearn", "pandas", "scipy", "safetensors"}


def imported_by(code: str) -> set[str]:
    script = f"{code}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return {name.partition(".")[0] for name in done.stdout.splitlines()}


def test_importing_the_package_imports_no_tracker_and_no_numpy():
    assert not imported_by("import tracker_health") & (HEAVY | {"numpy", "click", "rich"})


def test_judging_a_folder_imports_nothing_heavy(write_log, healthy_losses):
    run = write_log(healthy_losses)
    assert not imported_by(f"import tracker_health; tracker_health.check({str(run)!r})") & (HEAVY | {"rich"})


def test_help_imports_neither_numpy_nor_rich():
    code = "import sys; sys.argv = ['x', '--help']\nfrom tracker_health.cli import cli\ncli(standalone_mode=False)"
    assert not imported_by(code) & (HEAVY | {"numpy", "rich"})


def test_every_public_name_resolves():
    for name in tracker_health.__all__:
        assert getattr(tracker_health, name) is not None
    assert dir(tracker_health) == tracker_health.__all__
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tracker_health.no_such_name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("clear", "clear_annotations"),
        ("series", "read_series"),
        ("tensors", "read_tensors"),
        ("worst", "worst_verdict"),
    ],
)
def test_an_old_name_goes_on_for_a_version_with_a_warning(old, new):
    assert old not in tracker_health.__all__
    with pytest.warns(DeprecationWarning, match=rf"tracker_health\.{new}\b.*0\.3") as caught:
        assert getattr(tracker_health, old) is getattr(tracker_health, new)
    assert caught[0].filename == __file__, "it names the line that has to change"


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


@pytest.mark.parametrize(
    ("function", "name"), exported_functions(), ids=lambda one: one if isinstance(one, str) else ""
)
def test_an_exported_function_says_what_it_takes_gives_and_raises(function, name):
    signature = inspect.signature(function)
    prefix = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    taken = [f"{prefix.get(one.kind, '')}{one.name}" for one in signature.parameters.values()]
    described = [line.partition(":")[0] for line in section(function, "Args")]
    assert described == [one for one in taken if one not in ("self", "cls")]
    gives = signature.return_annotation not in (None, "None")
    assert bool(section(function, "Returns") or section(function, "Yields")) is gives
    raised = set(re.findall(r"^ +raise (\w+)\(", inspect.getsource(function), re.MULTILINE))
    assert raised <= {line.partition(":")[0] for line in section(function, "Raises")}


@pytest.mark.parametrize("probe", BUILT_IN, ids=lambda probe: probe.code)
def test_a_rule_declares_and_explains_itself(probe):
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


def test_codes_and_names_are_unique():
    assert len({probe.code for probe in BUILT_IN}) == len({probe.name for probe in BUILT_IN}) == len(BUILT_IN)


def test_the_generated_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate_docs.py", "--check"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_changelog_knows_the_version():
    assert f"## {tracker_health.__version__}" in (ROOT / "CHANGELOG.md").read_text()
