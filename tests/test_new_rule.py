"""``make new-rule``: what it writes passes what a rule must pass, in every package, and no code is used again."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tracker_health.rules.registry import BUILT_IN, WINGS
from tracker_health.words.retired import RETIRED

ROOT = Path(__file__).parent.parent
PACKAGES = [wing.__name__.rpartition(".")[2] for wing in WINGS]
COPIED = ("src", "scripts", "docs", "tests/conftest.py", "tests/laws.py", "tests/rules", "tests/prose", "pyproject.toml",
          "CHANGELOG.md", "mkdocs.yml", "README.md", "benchmarks/faults/findings.jsonl")  # fmt: skip


def run(copy, *command, okay=True):
    done = subprocess.run(
        [sys.executable, *command],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode == 0) is okay, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """What a rule is written into, without the other rules' tests."""
    folder = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, folder / name)
    known = ROOT / ".mypy_cache"
    if known.exists():  # what mypy knows of all other files
        shutil.copytree(known, folder / known.name)
    return folder


@pytest.fixture(scope="module")
def written(copy):
    """What the script said of a new rule, one in each package."""
    names = {package: f"brand-new-{package.replace('_', '-')}" for package in PACKAGES}
    return {names[one]: run(copy, "scripts/new_rule.py", names[one], "--package", one).splitlines() for one in PACKAGES}


@pytest.mark.exhaustive
def test_a_new_rule_is_green_at_once(copy, written):
    files = [copy / line for lines in written.values() for line in lines[:3]]
    assert len(files) == 3 * len(PACKAGES)
    sources = [str(file) for file in files if file.suffix == ".py"]
    tests = [one for one in sources if Path(one).name.startswith("test_")]
    run(copy, "-m", "ruff", "check", *sources)
    run(copy, "-m", "ruff", "format", "--check", *sources)
    run(copy, "-m", "mypy", *(one for one in sources if one not in tests))
    run(copy, "scripts/generate_docs.py", "--check")
    told = run(copy, "-m", "pytest", "-q", *tests)
    assert int(re.search(r"(\d+) passed", told).group(1)) >= 5 * len(PACKAGES)
    run(copy, "-m", "pytest", "-q", "-m", "prose", "tests/prose/test_budget.py", "tests/prose/test_docstrings.py")


@pytest.mark.slow
def test_its_code_is_the_next_free_one_and_it_has_no_vote(copy, written):
    used = {rule.code for rule in BUILT_IN} | {one.code for one in RETIRED}
    listed = [line.split()[:3] for line in run(copy, "-m", "tracker_health", "probes").splitlines()]
    for name, lines in written.items():
        code, *words = lines[3].split()
        assert words[:4] == [name, "is", "a", "preview:"]
        assert code not in used
        assert f"{code[:3]}{int(code[3:]) - 1:03d}" in used, "no number is left out"
        assert [code, name, "preview"] in listed


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["slow-descent", "--package", "curves"], "names are never used again"),
        (["diverged-again", "--package", "no-such"], "PACKAGE= one of curves,"),
        (["diverged-again"], "PACKAGE= one of curves,"),
        (["Diverged", "--package", "curves"], "two or more words in small letters"),
        (["loss-spike", "--package", "curves"], "names are never used again"),
        (["diverged-again", "--package", "curves", "--letters", "x"], "three capital letters"),
        (["curve-rule", "--package", "curves"], "curve_rule.py is there already"),
    ],
)
@pytest.mark.one_cell
@pytest.mark.slow
def test_what_cannot_be_written_is_refused_before_anything_is(copy, arguments, told):
    before = sorted(copy.rglob("*.py"))
    assert told in run(copy, "scripts/new_rule.py", *arguments, okay=False)
    assert sorted(copy.rglob("*.py")) == before


def test_a_code_is_never_one_that_was_retired():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import new_rule
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    assert new_rule.next_code("ABC", ["ABC001", "ABC007", "ABC101", "XYZ009"]) == "ABC008"
    assert new_rule.next_code("ABC", []) == "ABC001"
    assert {new_rule.letters_of(package) for package in PACKAGES} <= {rule.code[:3] for rule in BUILT_IN}
    with pytest.raises(Exception, match="no number left"):
        new_rule.next_code("ABC", ["ABC099"])


@pytest.mark.parametrize("words", [["brand-new"], ["NAME=brand-new"]])
def test_make_takes_the_name_as_a_word_or_by_name(words, tmp_path):
    (tmp_path / ".dev-installed").touch()
    done = subprocess.run(
        ["make", "-n", "new-rule", *words, "PACKAGE=curves", f"VENV={tmp_path}", "-o", f"{tmp_path}/.dev-installed"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "scripts/new_rule.py 'brand-new' --package 'curves'" in done.stdout
