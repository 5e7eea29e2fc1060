"""The skill for agents: its commands run as they are written, and it is installed over nobody's."""

import re
import shlex
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracker_health import cli
from tracker_health.diagnosis import CAUSES

SKILL = files("tracker_health").joinpath("skill")
TEXT = SKILL.joinpath("SKILL.md").read_text(encoding="utf-8")
COMMANDS = [
    line.partition("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]
EXPECTED = {"check": 1}
"""Exit codes of the others are 0: a FAIL is an answer, too."""

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a run that broke and one that went well, and an MLflow store with an experiment ``nightly``."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        from example_runs import make_folders, make_store
    finally:
        sys.path.remove(str(SCRIPTS))
    folder = tmp_path_factory.mktemp("skill")
    make_folders(folder)
    (folder / "runs").mkdir()
    (folder / "outputs" / "run-12").rename(folder / "runs" / "bad")
    (folder / "outputs" / "run-5").rename(folder / "runs" / "good")
    make_store(folder, f"sqlite:///{folder}/mlflow.db")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_run(command, place, monkeypatch):
    import mlflow

    uri = f"sqlite:///{place}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(place)
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("nightly").experiment_id
    run = client.search_runs([experiment])[0].info.run_id
    program, *arguments = shlex.split(command.replace("RUN_ID", run))
    assert program == "tracker-health"
    done = subprocess.run(
        [sys.executable, "-m", "tracker_health", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == EXPECTED.get(arguments[0], 0), done.stderr
    assert done.stdout.strip() or arguments[0] == "follow"


def test_it_fits_and_names_what_there_is():
    assert len(TEXT.splitlines()) <= 150
    assert TEXT.startswith("---\nname: tracker-health\ndescription: ")
    named = set(re.findall(r"references/\w+\.md", TEXT))
    there = {f"references/{one.name}" for one in SKILL.joinpath("references").iterdir()}
    assert named == there
    causes = SKILL.joinpath("references").joinpath("causes.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^- `([\w-]+)`", causes, re.MULTILINE)) == {one.name for one in CAUSES}


def install(folder):
    return CliRunner().invoke(cli.cli, ["skill", "--install", str(folder)])


def test_it_is_installed_again_over_itself(tmp_path):
    assert install(tmp_path / "a" / "b").exit_code == 0
    assert install(tmp_path / "a" / "b").exit_code == 0
    assert (tmp_path / "a" / "b" / "SKILL.md").read_text() == TEXT
    assert (tmp_path / "a" / "b" / "references" / "causes.md").is_file()


@pytest.mark.parametrize("content", ["---\nname: deploy\n---\n", ""])
def test_it_is_installed_over_nobody_elses(tmp_path, content):
    (tmp_path / "SKILL.md").write_text(content)
    result = CliRunner().invoke(cli.cli, ["skill", "--install", str(tmp_path)])
    assert isinstance(result.exception, SystemExit)
    assert "is another skill" in result.output
    assert (tmp_path / "SKILL.md").read_text() == content
    assert not (tmp_path / "references").exists()


def test_a_link_is_not_written_through(tmp_path):
    (tmp_path / "theirs.md").write_text(TEXT)
    (tmp_path / "skill").mkdir()
    (tmp_path / "skill" / "SKILL.md").symlink_to(tmp_path / "theirs.md")
    assert install(tmp_path / "skill").exit_code == 2
