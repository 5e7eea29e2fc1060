"""docs/add-a-rule.md and add-a-store.md do what they say: files are written, commands run, their output compared."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tracker_health.roles import DEFAULT_PATTERNS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "add-a-rule.md"
KINDS = {
    "add-a-rule.md": ["toml", "python", "python", "sh", "sh", "text", "python", "sh", "text"],
    "add-a-store.md": ["toml", "python", "python", "sh", "text", "sh", "text"],
}
_BLOCK = re.compile(
    r"(?:^`(?P<file>[\w./]+)`:\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@pytest.fixture
def shell(tmp_path):
    """Runs a block of commands as a reader would, with a ``pip`` that installs without network and beside the tests'
    own packages.
    """
    commands, target, work = tmp_path / "bin", tmp_path / "target", tmp_path / "work"
    for folder in (commands, target, work):
        folder.mkdir()
    pip = f"exec {sys.executable} -m pip --quiet $@ --no-deps --no-index --no-build-isolation --target {target}"
    programs = {
        "pip": pip,
        "python": f'exec {sys.executable} "$@"',
        "tracker-health": f'exec {sys.executable} -m tracker_health "$@"',
    }
    for name, script in programs.items():
        (commands / name).write_text(f"#!/bin/sh\n{script}\n")
        (commands / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(target), os.environ.get("PYTHONPATH")])),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def run(script):
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    run.folder = work
    return run


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", KINDS)
def test_the_page_does_what_it_says(shell, page):
    output, kinds = "", []
    for block in _BLOCK.finditer((DOCS / page).read_text(encoding="utf-8")):
        kinds.append(block["language"])
        if block["file"]:
            (shell.folder / block["file"]).write_text(block["text"], encoding="utf-8")
        elif block["language"] == "sh":
            output = shell(block["text"])
        else:
            assert block["language"] == "text"
            missing = [line for line in block["text"].splitlines() if line not in output]
            assert missing == [], output
    assert kinds == KINDS[page]


def test_the_page_names_every_role():
    assert re.search(rf"\({', '.join(f'`{role}`' for role in DEFAULT_PATTERNS)}\)", PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", KINDS)
def test_the_page_is_linked(page):
    for name in ("README.md", "CONTRIBUTING.md"):
        assert f"docs/{page}" in (DOCS.parent / name).read_text(encoding="utf-8")
