"""What a Python pays that is started with the hooks, and whether they are there once a tracker is."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import _tracker_health_hooks
from tracker_health.cli import cli
from tracker_health.hooks import _is_wanted, startup_path

from .conftest import ROOT

STARTED = (ROOT / "src" / "tracker-health.pth").read_text()
MOST_MODULES = 6
"""Of ours: the package, its version, and four of the hooks."""
COSTLY = {"typing", "re", "dataclasses", "json", "pathlib", "inspect", "enum", "threading", "weakref"}
TRAINING = """
import mlflow
mlflow.start_run(run_name="r")
for step in range(12):
    mlflow.log_metric("loss", 2.3 * 0.9 ** step, step=step)
"""


def modules_after(code, **environment):
    """Those that such a start has imported, without the site packages, of which others do anything at the start."""
    script = f"import sys; sys.path[:0] = {[str(ROOT / 'src'), *sys.path]}; {code}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(("said", "most"), [(None, 0), ("0", 0), ("off", 0), ("1", MOST_MODULES)])
def test_a_start_imports_next_to_nothing(said, most):
    environment = {} if said is None else {"TRACKER_HEALTH_AUTO": said}
    before, after = modules_after("pass"), modules_after(STARTED, **environment)
    ours = {name for name in after if name.partition(".")[0] == "tracker_health"}
    assert (len(ours) <= most, (after - before) & COSTLY) == (True, set()), ours


def test_mlflows_plugin_is_one_module_for_who_did_not_ask(tmp_path):
    found = modules_after(f"import os; os.chdir({str(tmp_path)!r}); import _tracker_health_hooks")
    assert {name for name in found if "tracker_health" in name} == {"_tracker_health_hooks"}


TEXTS = st.sampled_from(["", "auto = true", "auto = false", "[tool.tracker-health]\nauto = true", "[tool.other]\nauto = true", "[", "a"])  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(["tracker-health.toml", "pyproject.toml", "a/tracker-health.toml"]), TEXTS),
    st.sampled_from([None, "", " ", "1", "0", "no", "yes"]),
    st.booleans(),
)
def test_what_the_package_wants_the_plugin_asks_it_about(tmp_path_factory, files, said, below):
    folder = tmp_path_factory.mktemp("configured")
    (folder / "a").mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "a" if below else folder)
        patch.delenv("TRACKER_HEALTH_CONFIG", raising=False)
        patch.delenv("TRACKER_HEALTH_AUTO", raising=False)
        if said is not None:
            patch.setenv("TRACKER_HEALTH_AUTO", said)
        assert _tracker_health_hooks._may_be_wanted() or not _is_wanted()


def started(workplace, script):
    site = workplace.folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(STARTED)
    path = f"{site}:{ROOT / 'src'}"
    code, _, err = workplace.ended(
        workplace.start(sys.executable, "-c", script, TRACKER_HEALTH_AUTO="1", PYTHONPATH=path)
    )
    return code, workplace.mlflow_runs()["r"][0], err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "code", "ended"),
    [
        ("from sys import exit\n" + TRAINING + "exit(3)", 3, "failed"),
        (TRAINING + "raise ValueError('mine')", 1, "failed"),
        ("import atexit\n" + TRAINING + "atexit.register(print, 'late')", 0, "finished"),
    ],
)
def test_an_end_is_seen_by_what_was_there_before_the_tracker(workplace, script, code, ended):
    pytest.importorskip("mlflow")
    found, tags, err = started(workplace, script)
    assert (found, tags.get("health.ended")) == (code, ended), err


FORKED = """
import os
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
def test_a_fork_that_imports_the_tracker_answers_for_its_own_run(workplace):
    pytest.importorskip("mlflow")
    code, tags, err = started(workplace, FORKED + TRAINING)
    assert (code, tags.get("health.ended")) == (0, "finished"), err


def test_where_no_variable_reaches_wandb_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(startup_path.site, "getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.setattr(startup_path.site, "ENABLE_USER_SITE", False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKER_HEALTH_AUTO", "1")
    shown = lambda: CliRunner().invoke(cli, ["config"]).output  # noqa: E731
    assert "none of W&B" in shown()
    monkeypatch.setenv("TRACKER_HEALTH_AUTO", "0")
    assert "none of W&B" not in shown()
    monkeypatch.setenv("TRACKER_HEALTH_AUTO", "1")
    (tmp_path / "tracker-health.pth").touch()
    assert "none of W&B" not in shown()
