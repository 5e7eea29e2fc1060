"""Configuration files and variables as the command line meets them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracker_health.cli import cli, options
from tracker_health.settings.values import FAIL_ON


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command in an empty repository."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments):
        return CliRunner().invoke(cli, [str(one) for one in arguments], catch_exceptions=False)

    return invoke


@pytest.fixture
def healthy(write_log, healthy_losses):
    return write_log(healthy_losses)


def test_config_without_any(run):
    result = run("config")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "# read: no configuration file",
        "# everything is at its default; --all shows it",
    ]


def test_config_shows_where_values_came_from(run, monkeypatch):
    Path("tracker-health.toml").write_text("[rules.diverged]\nsigmas = 6\n")
    monkeypatch.setenv("TRACKER_HEALTH_PRESET", "strict")
    lines = run("config", "--fail-on", "warn").stdout.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "# read: tracker-health.toml",
        'preset = "strict" environment TRACKER_HEALTH_PRESET',
        'fail_on = "warn" command line',
        "rules.diverged.sigmas = 6 tracker-health.toml:2",
        "preview_votes = true preset strict",
    ]
    everything = run("config", "--all").stdout
    assert "tracking_uri = (not set)" in everything
    assert "rules.unstable-loss.repeated = 2" in everything


def test_config_as_json(run):
    Path("tracker-health.toml").write_text('[[overrides]]\nmatch = "project:x"\nignore = ["LOS001"]\n')
    document = json.loads(run("config", "--json").stdout)
    assert document["files"] == ["tracker-health.toml"]
    assert document["settings"]["overrides.0.ignore"] == {"value": ["LOS001"], "origin": "tracker-health.toml:3"}
    assert len(json.loads(run("config", "--json", "--all").stdout)["settings"]) > 30


def test_check_reads_the_configuration(run, healthy):
    Path("tracker-health.toml").write_text('select = ["LOS001"]\n')
    document = json.loads(run("check", "--json", healthy).stdout)
    assert [one["code"] for one in document["results"]] == ["LOS001"]
    document = json.loads(run("check", "--json", healthy, "--select", "LOS004").stdout)
    assert [one["code"] for one in document["results"]] == ["LOS004"]
    Path("other.toml").write_text('select = ["LOS005"]\n')
    document = json.loads(run("check", "--json", healthy, "--config", "other.toml").stdout)
    assert [one["code"] for one in document["results"]] == ["LOS005"]


def test_fail_on_of_the_configuration(run, write_log, healthy_losses):
    sick = write_log([*healthy_losses[:100], *[float("nan")] * 100])
    assert [run("check", sick).exit_code, run("annotate", sick).exit_code] == [1, 0]
    Path("tracker-health.toml").write_text('fail_on = "never"\n')
    assert [run("check", sick).exit_code, run("check", sick, "--fail-on", "fail").exit_code] == [0, 1]
    Path("tracker-health.toml").write_text('fail_on = "fail"\n')
    assert run("annotate", sick, "--force").exit_code == 1


@pytest.mark.parametrize("command", ["check", "annotate", "clear", "config"])
@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("presett = 1", "tracker-health.toml:1: there is no key 'presett'"),
        ("x = [", "tracker-health.toml:1: broken TOML"),
        ("#" * 2_000_000, "larger than"),
        ("x = " + "[" * 100_000, "nested too deeply"),
        ('"\\u001b[2J" = 1', "there is no key '?[2J'"),
    ],
    ids=["unknown", "broken", "large", "deep", "hostile"],
)
def test_a_bad_file_is_one_line_and_exit_code_2(run, healthy, command, toml, said):
    Path("tracker-health.toml").write_text(toml)
    result = run(command, *([] if command == "config" else [healthy]))
    assert (result.exit_code, result.stdout) == (2, "")
    first, *hint = result.stderr.splitlines()
    assert said in first
    assert all(line.startswith("  try: ") for line in hint)
    assert "\x1b" not in result.stderr


def test_a_threshold_on_the_command_line_of_config_is_checked(run):
    assert run("config", "--set", "rules.divergd.sigmas=4").exit_code == 2


def test_the_words_for_fail_on_are_the_same():
    assert options._FAIL_ON == FAIL_ON


@pytest.mark.slow
def test_a_folder_that_was_deleted_has_no_configuration(healthy, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    code = (
        "import os, sys; os.rmdir(os.getcwd()); from tracker_health.cli import main; "
        f"sys.argv = ['x', 'check', {str(healthy)!r}]; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=gone, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("configured", [False, True])
def test_what_a_configuration_costs(healthy, configured):
    folder = healthy.parent
    (folder / ".git").mkdir()
    if configured:
        (folder / "tracker-health.toml").write_text('preset = "strict"')
    code = (
        f"import sys; from tracker_health.cli import cli; cli(['check', '-q', {str(healthy)!r}], standalone_mode=False)"
    )
    script = f"try:\n    {code}\nexcept SystemExit:\n    pass\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    modules = set(done.stdout.split())
    assert ("tomllib" in modules) is configured
    assert not {"pydantic", "mlflow", "torch", "importlib.metadata"} & modules
