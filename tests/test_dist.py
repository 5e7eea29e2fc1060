"""What is published has the package, its data and its schemas, and nothing else of the repository."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import dist  # noqa: E402

pytestmark = pytest.mark.slow

BUILD = "import sys, setuptools.build_meta as b; getattr(b, sys.argv[1])(sys.argv[2])"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A wheel and an sdist of a copy of the repository, in which some tests stay."""
    source, out = tmp_path_factory.mktemp("source") / "copy", tmp_path_factory.mktemp("dist")
    left_out = shutil.ignore_patterns(
        "__pycache__", ".*", "*.egg-info", "build", "dist", "benchmarks", "data", "gallery", "pictures", "mlruns"
    )
    shutil.copytree(ROOT, source, symlinks=True, ignore=left_out)
    for kind in ("build_wheel", "build_sdist"):
        command = [sys.executable, "-W", "ignore", "-c", BUILD, kind, str(out)]
        subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=300)
    return out


def test_the_files_have_what_they_must_and_nothing_else(files, capsys):
    assert dist.check(files) == 0, capsys.readouterr().out


def test_what_is_stray_and_what_is_missing_is_named(files, tmp_path):
    wheel, _ = dist.built(files)
    spoilt = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(spoilt, "w") as new:
        for name in old.namelist():
            if name != "tracker_health/diagnosis/counts.csv":
                new.writestr(name, old.read(name))
        new.writestr("tests/data/outcomes.jsonl", "{}")
    wrong = dist.wrong_in_wheel(spoilt)
    assert "the wheel has tests/data/outcomes.jsonl, which does not belong there" in wrong
    assert "the wheel lacks tracker_health/diagnosis/counts.csv" in wrong
