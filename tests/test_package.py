"""The package as a whole: what importing costs, what is public, and that everything is documented."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tracker_health
from tracker_health.rules.registry import BUILT_IN
from tracker_health.words.retired import RETIRED

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


def test_codes_and_names_are_unique():
    assert len({probe.code for probe in BUILT_IN}) == len({probe.name for probe in BUILT_IN}) == len(BUILT_IN)


def test_the_changelog_knows_the_version():
    assert f"## {tracker_health.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_a_rule_is_since_a_version_that_there_is_or_the_next_one():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    major, minor, *_ = tracker_health.__version__.split(".")
    known = {*re.findall(r"^## ([\d.]+)", text, re.MULTILINE), f"{major}.{int(minor) + 1}.0"}
    assert {rule.code: rule.since for rule in BUILT_IN if rule.since not in known} == {}
    assert {one.code: one.since for one in RETIRED if one.since not in known} == {}
