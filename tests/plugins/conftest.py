"""Installs the plugin packages of this folder for real, each into a folder of its own that PYTHONPATH names."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parent
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]


def pip_install(source, target):
    environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        [*PIP, "--target", str(target), str(source)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return target


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """``installed(name, version=...)``: the folder into which a package of this folder was installed, once a session.

    It is built from a copy: setuptools leaves its build folder beside the sources.
    """
    done = {}

    def install(name, version=None):
        if (name, version) not in done:
            folder = tmp_path_factory.mktemp(name)
            source = shutil.copytree(PLUGINS / name, folder / "source")
            if version is not None:
                project = source / "pyproject.toml"
                project.write_text(project.read_text().replace('version = "1.0"', f'version = "{version}"'))
            done[name, version] = pip_install(source, folder / "target")
        return done[name, version]

    return install


@pytest.fixture
def tool(write_log, healthy_losses, tmp_path):
    """``tool(*arguments, plugins=(folder, ...))``: the command line as a process, in a folder with the healthy ``run``
    in it.
    """
    write_log(healthy_losses)

    def run(*arguments, plugins=(), code=None, **environment):
        path = os.pathsep.join(map(str, plugins))
        command = ["-m", "tracker_health", *arguments] if code is None else ["-c", code]
        return subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )

    return run
