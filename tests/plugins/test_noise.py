"""Plugins that print where reports stand, that ask for roles of their own, and that are configured and do not load."""

import json

import pytest

RULE = """
from dataclasses import dataclass
from typing import Annotated
from tracker_health import Finding, Need, Probe, Symptom, Threshold, Verdict

print("printed on import")


@dataclass(frozen=True, kw_only=True)
class Loud(Probe):
    '''Prints wherever it can.

    What it finds:
        Nothing.

    Why it matters:
        It does not.

    How it decides:
        It passes.

    Known limits:
        All.

    What to do:
        Nothing.

    References:
        None.
    '''

    code = "LUD001"
    name = "loud"
    symptom = Symptom.UNSTABLE
    level: Annotated[float, Threshold("how loud", "dB", "test", gt=0)] = 1.0

    def __post_init__(self):
        print("printed while made")
        super().__post_init__()

    @property
    def needs(self):
        print("printed while asked for needs")
        return (Need(role="perplexity", optional=True), Need(role="train_loss"))

    def judge(self, evidence):
        print("printed while judging")
        measured = {role: len(evidence.find(role) or ()) for role in ("perplexity", "train_loss")}
        return Finding(verdict=Verdict.PASS, message="loud", measured=measured)
"""


@pytest.fixture
def plugin(tmp_path):
    """``plugin(source)``: a folder with the package ``loud 1.0``, whose rule is ``loud:Loud``."""

    def install(source=RULE):
        folder = tmp_path / "site"
        information = folder / "loud-1.0.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text("[tracker_health.probes]\nloud = loud:Loud\n")
        (folder / "loud.py").write_text(source)
        return folder

    return install


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "annotate"])
def test_what_a_plugin_prints_never_stands_among_the_reports(tool, plugin, valid_report, command):
    done = tool(command, "--json", "run", plugins=[plugin()])
    (line,) = done.stdout.splitlines()
    valid_report(json.loads(line))
    assert "LUD001" in {one["code"] for one in json.loads(line)["results"]}
    for when in ("on import", "while made", "while asked for needs", "while judging"):
        assert f"printed {when}" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["probes", "--json"], ["config", "--json", "--all", "--set", "roles.perplexity=ppl"]]
)
@pytest.mark.thinned(2)
def test_nor_among_the_results_of_other_commands(tool, plugin, arguments):
    done = tool(*arguments, plugins=[plugin()])
    assert done.returncode == 0, done.stderr
    assert all(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.exhaustive
def test_a_role_that_a_plugin_asks_for_can_be_set(tool, plugin, tmp_path):
    rows = [json.dumps({"step": step, "loss": 2.0 * 0.97**step, "ppl": 3.0}) for step in range(50)]
    (tmp_path / "run" / "train_log.jsonl").write_text("\n".join(rows))
    folder = plugin()
    done = tool("check", "--json", "run", "--set", "roles.perplexity=ppl", plugins=[folder])
    (loud,) = [one for one in json.loads(done.stdout)["results"] if one["code"] == "LUD001"]
    assert loud["measured"] == {"perplexity": 50, "train_loss": 50}
    (tmp_path / "tracker-health.toml").write_text("[[overrides]]\nmatch = 'project:x'\nroles.perplexity = ['ppl']\n")
    assert tool("check", "run", plugins=[folder]).returncode == 0
    (tmp_path / "tracker-health.toml").unlink()
    done = tool("check", "run", "--set", "roles.perplexty=ppl", plugins=[folder])
    assert done.returncode == 2
    assert "there is no role 'perplexty'" in done.stderr
    assert "did you mean perplexity?" in done.stderr
    assert tool("check", "run", "--set", "roles.perplexity=ppl").returncode == 2


# Configured, and not there


BROKEN = "raise ImportError('no such library')"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["--set", "rules.loud.level=2"], "command line: rules.loud.level does nothing, there is no such rule; "),
        (
            ["--set", "roles.perplexity=ppl"],
            "command line: roles.perplexity does nothing, no rule asks for this role; ",
        ),
        ([], "tracker-health.toml:2: rules.loud.level does nothing, there is no such rule; "),
    ],
)
@pytest.mark.thinned(3)
def test_what_is_configured_for_a_plugin_that_does_not_load_is_a_warning(tool, plugin, tmp_path, settings, said):
    folder = plugin(BROKEN)
    if not settings:
        (tmp_path / "tracker-health.toml").write_text("[rules.loud]\nlevel = 2\n")
    done = tool("check", "--json", "run", *settings, plugins=[folder])
    assert done.returncode == 3, "a plugin that does not load is an error of every report"
    assert json.loads(done.stdout)["verdict"] == "pass"
    why = "plugin loud (loud 1.0): could not be loaded: ImportError: no such library"
    assert f"tracker-health: {said}{why}\n" in done.stderr
    shown = tool("config", *settings, plugins=[folder])
    assert (shown.returncode, said in shown.stderr) == (0, True)


@pytest.mark.slow
def test_such_a_role_and_an_override_of_it_change_no_verdict(tool, plugin, tmp_path):
    text = "[[overrides]]\nmatch = 'project:x'\nrules.loud.level = 2\nroles.perplexity = ['ppl']\n"
    (tmp_path / "tracker-health.toml").write_text(text)
    done = tool("check", "--json", "run", plugins=[plugin(BROKEN)])
    assert json.loads(done.stdout)["verdict"] == "pass"
    assert json.loads(done.stdout)["notes"] == []
    assert done.stderr.count("does nothing") == 2


@pytest.mark.slow
@pytest.mark.parametrize("broken", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        ["--select", "LUD001"],
        ["--set", "rules.loud.level=much"],
        ["--set", "rules.diverged.level=2"],
    ],
)
@pytest.mark.thinned(6)
def test_what_no_broken_plugin_explains_is_refused(tool, plugin, settings, broken):
    done = tool("check", "run", *settings, plugins=[plugin(BROKEN)] if broken else [])
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["rules.loud.level=2", "roles.perplexity=ppl"])
@pytest.mark.thinned(2)
def test_without_a_broken_plugin_an_unknown_name_is_refused(tool, setting):
    assert tool("check", "run", "--set", setting).returncode == 2
