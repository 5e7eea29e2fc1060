"""The package as users have it: a wheel, installed into an environment of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from .conftest import ROOT

pytestmark = pytest.mark.slow

pytest.importorskip("mlflow")

SCRIPT = """
import sys, mlflow
with mlflow.start_run(run_name=sys.argv[1]):
    for step in range(60):
        mlflow.log_metric("loss", 2.3 * 0.95 ** step, step=step)
print(sys.modules["tracker_health"].__file__ if "tracker_health" in sys.modules else "not imported")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of an environment with the wheel in it; what else it needs is that of the tests' environment."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=300)
    python = environment / "bin" / "python"
    site = sysconfig.get_path("purelib", "venv", {"base": str(environment), "platbase": str(environment)})
    # Of a folder that a .pth file names no .pth files count: an editable installation there is not seen.
    Path(site, "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [*pip, "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall"]
    subprocess.run([*install, "--ignore-installed", str(wheel)], check=True, capture_output=True, timeout=300)
    return environment


@pytest.fixture
def train(installed, workplace):
    def run(*command, **more):
        workplace.environment.pop("PYTHONPATH", None)
        program = [str(installed / "bin" / one) if one in ("python", "tracker-health") else one for one in command]
        code, out, err = workplace.ended(workplace.start(*program, **more))
        assert code == 0, err
        return out, err, workplace.mlflow_runs()[command[-1]][0].get("health.verdict")

    return run


@pytest.mark.exhaustive
def test_the_plugin_of_a_wheel(train, installed):
    """Nothing without being asked; then by the variable alone."""
    _, err, verdict = train("python", "-c", SCRIPT, "unasked")
    assert (err.count("tracker-health"), verdict) == (0, None)
    out, err, verdict = train("python", "-c", SCRIPT, "installed", TRACKER_HEALTH_AUTO="1")
    assert (out.startswith(str(installed)), err.count("provisional: PASS installed: "), verdict) == (True, 1, "pass")


WANDB_SCRIPT = """
import sys, wandb
with wandb.init(mode="offline", project="p", name=sys.argv[1], settings=wandb.Settings(console="off")) as run:
    for step in range(60):
        run.log({"loss": 2.3 * 0.95 ** step})
print("tracker_health.hooks.wandb_runs" in sys.modules)
"""


@pytest.mark.parametrize(("asked", "found"), [("1", "True\n"), ("0", "False\n"), ("", "False\n")])
def test_the_variable_alone_with_wandb(installed, workplace, asked, found):
    """W&B imports nobody's plugins: Python's start does it."""
    pytest.importorskip("wandb")
    workplace.environment.pop("PYTHONPATH", None)
    python = str(installed / "bin" / "python")
    more = {"TRACKER_HEALTH_AUTO": asked} if asked else {}
    code, out, err = workplace.ended(workplace.start(python, "-c", WANDB_SCRIPT, "offline", **more))
    assert (code, out) == (0, found), err
    assert err.count("PASS offline: ") == (asked == "1"), err
    reports = list(workplace.folder.glob("wandb/offline-run-*/files/health/report.json"))
    assert len(reports) == (asked == "1")


@pytest.mark.exhaustive
def test_exec_of_a_wheel(train, installed):
    out, err, verdict = train("tracker-health", "exec", "--", "python", "-c", SCRIPT, "installed")
    assert (out.startswith(str(installed)), err.count("tracker-health: PASS installed: "), verdict) == (True, 1, "pass")
