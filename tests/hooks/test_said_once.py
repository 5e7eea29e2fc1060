"""What keeps the hooks from judging anything is said in one line, once in a tree of processes; with real processes."""

from __future__ import annotations

import sys

import pytest

from tracker_health.hooks.guard import TREE

from .conftest import ROOT

pytestmark = pytest.mark.slow

UNABLE = "tracker-health: runs are not judged when they end: "
# As tracker-health.pth has Python do at its start.
START = "import sys; sys.path.insert(0, {src!r}); import _tracker_health_hooks\n"
TREE_OF_FOUR = """
import os, subprocess, sys
children = [subprocess.Popen([sys.executable, *sys.argv[1:]]) for _ in range(3)]
sys.exit(max(one.wait() for one in children))
"""
WANDB = """
import tracker_health, wandb
tracker_health.autolog()
for name in ("one", "two"):
    with wandb.init(project="p", name=name, settings=wandb.Settings(console="off")) as run:
        for step in range(60):
            run.log({"loss": 2.3 * 0.95**step})
"""


def start_of(src=ROOT / "src"):
    return START.format(src=str(src))


@pytest.fixture
def tree(workplace, tmp_path):
    """Runs a script in three processes at once, which a fourth starts; all lines of ours."""

    def run(script, *python, **more):
        (tmp_path / "script.py").write_text(script)
        kept = tmp_path / "kept"
        kept.mkdir(exist_ok=True)
        command = [sys.executable, *python, "-c", start_of() + TREE_OF_FOUR, *python, str(tmp_path / "script.py")]
        code, out, err = workplace.ended(workplace.start(*command, TRACKER_HEALTH_AUTO="1", TMPDIR=str(kept), **more))
        assert (code, out) == (0, "")
        assert list(kept.glob("tracker-health-*-*")) == []
        return [line for line in err.splitlines() if line.startswith("tracker-health: ")]

    return run


def test_no_tracker_is_installed(tree):
    """Without the folder of installed packages (-S) there is neither."""
    assert tree(start_of() + "import json\n", "-S") == [
        f"{UNABLE}neither mlflow, wandb nor trackio is installed for {sys.executable}"
    ]


@pytest.mark.parametrize(
    ("package", "module", "body", "reason"),
    [
        ("wandb", "wandb/sdk/wandb_run", "class Run: pass\n", "wandb 0.12 is installed, tracker-health needs >= 0.18"),
        (
            "mlflow",
            "mlflow/tracking/_tracking_service/client",
            "\n",
            "mlflow 1.2 is installed, tracker-health needs >=",
        ),
    ],
)
def test_a_tracker_that_is_too_old(tree, tmp_path, package, module, body, reason):
    file = tmp_path / "old" / f"{module}.py"
    file.parent.mkdir(parents=True)
    for folder in file.parents:
        if folder == tmp_path / "old":
            break
        (folder / "__init__.py").touch()
    (tmp_path / "old" / package / "__init__.py").write_text(f"__version__ = {reason.split()[1]!r}\n")
    file.write_text(body)
    script = f"{start_of()}sys.path.insert(0, {str(tmp_path / 'old')!r})\nimport {module.replace('/', '.')}\n"
    (line,) = tree(f"{script}import colorsys\n")  # the next import is where it is seen to be complete
    assert line.startswith(f"{UNABLE}{reason}")


@pytest.mark.parametrize(
    ("variable", "reason"),
    [
        ("TRACKER_HEALTH_CONFIG", "bad.toml:1: broken TOML"),
        ("TRACKER_HEALTH_POLICY", "the policy bad.toml cannot be used: bad.toml:1: broken TOML"),
    ],
)
def test_settings_that_cannot_be_read(tree, tmp_path, variable, reason):
    """Two runs in each of three processes."""
    pytest.importorskip("wandb")
    (tmp_path / "bad.toml").write_text("strict = = [\n")
    (line,) = tree(start_of() + WANDB, **{variable: "bad.toml"})
    assert line.startswith(f"{UNABLE}{reason}")


def test_a_package_that_is_torn(workplace, tmp_path):
    """Nothing of ours can be imported but the module beside the package; unasked it is silent."""
    (tmp_path / "torn" / "tracker_health").mkdir(parents=True)
    (tmp_path / "torn" / "tracker_health" / "__init__.py").write_text("raise ImportError('torn\\nin two')\n")
    (tmp_path / "torn" / "_tracker_health_hooks.py").write_text((ROOT / "src" / "_tracker_health_hooks.py").read_text())
    script = start_of(tmp_path / "torn") + "import os, subprocess\n"
    script += "if not sys.argv[1:]: subprocess.run([sys.executable, __file__, 'child'], check=True)\n"
    (tmp_path / "script.py").write_text(script)
    for asked, expected in (("1", f"{UNABLE}ImportError: torn in two\n"), ("", "")):
        more = {"TRACKER_HEALTH_AUTO": asked} if asked else {}
        assert workplace.ended(workplace.start(sys.executable, "script.py", **more)) == (0, "", expected)


def test_where_nothing_can_be_kept_it_is_said_all_the_same(workplace):
    script = f"{start_of()}from tracker_health.hooks.guard import UNABLE, say, say_once\n"
    script += "for _ in range(2): say(UNABLE + 'why'); say_once('other')\n"
    for place in ("/dev/null/none", "/proc"):
        _, _, err = workplace.ended(workplace.start(sys.executable, "-c", script, **{TREE: place}))
        assert err == f"{UNABLE}why\ntracker-health: other\n"


@pytest.mark.parametrize("seconds", ["0", "120"])
def test_an_offline_run_says_to_wait_unless_its_verdict_is_there(workplace, seconds):
    pytest.importorskip("wandb")
    code, _, err = workplace.ended(workplace.start(sys.executable, "-c", WANDB, TRACKER_HEALTH_HOOK_SECONDS=seconds))
    lines = [line for line in err.splitlines() if line.startswith("tracker-health: ")]
    told = "provisional: PASS" if seconds == "120" else "is being judged"
    assert code == 0
    assert len(lines) == 2, err
    assert all(told in line and line.endswith("; wait for it before wandb sync") for line in lines), err
    reports = list(workplace.folder.glob("wandb/offline-run-*/files/health/report.json"))
    assert len(reports) == 2
    assert {log.own["health/verdict"] for log in workplace.wandb_logs().values()} == {"pass"}


def test_a_hook_that_comes_after_wandb_has_started_says_to_wait_too(workplace):
    pytest.importorskip("wandb")
    script = "import wandb\nrun = wandb.init(project='p', name='late', settings=wandb.Settings(console='off'))\n"
    script += "import tracker_health; tracker_health.autolog()\nfor step in range(60): run.log({'loss': 0.95**step})\n"
    code, _, err = workplace.ended(workplace.start(sys.executable, "-c", script))
    (line,) = [line for line in err.splitlines() if line.startswith("tracker-health: ")]
    (folder,) = workplace.folder.glob("wandb/offline-run-*")
    said = f"tracker-health: late is being judged; the verdict will be on the run ({folder}); wait for it before wandb sync"
    assert (code, line) == (0, said)
