"""Rules and thresholds that were retired: understood wherever they are named, with one warning, never an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracker_health import check
from tracker_health.cli import cli
from tracker_health.config import Config, Override
from tracker_health.errors import ConfigError
from tracker_health.judge.engine import configured_probes
from tracker_health.render.docs import explain_retired
from tracker_health.report.result import Report
from tracker_health.rules import registry
from tracker_health.rules.curves.still_descending import StillDescending
from tracker_health.rules.plugins import _taken, load_plugins
from tracker_health.rules.probe import thresholds_of
from tracker_health.settings.policy import VARIABLE
from tracker_health.settings.sources import configured, effective
from tracker_health.words import retired
from tracker_health.words.acknowledgements import Acknowledgement, open_codes
from tracker_health.words.retired import Retired, RetiredThreshold, remarks

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from gallery.indexes import index, retired_page

MERGED = Retired(
    code="LOS011", name="slow-descent", since="0.1.1", replaced_by=("LOS007",), why="Both looked at one descent."
)
GONE = Retired(code="OLD001", name="gone-away", since="0.1.1", why="It found nothing.")
REAL = retired.RETIRED
RENAMED = RetiredThreshold(rule="still-descending", threshold="patience", replaced_by="little", why="one was meant")
DROPPED = RetiredThreshold(rule="diverged", threshold="window", why="it follows from the length")


class SlowDescent(StillDescending):
    code, name = "LOS011", "slow-descent"


@pytest.fixture(autouse=True)
def _table(monkeypatch):
    monkeypatch.setattr(retired, "RETIRED", (MERGED, GONE))
    monkeypatch.setattr(retired, "RETIRED_THRESHOLDS", (RENAMED, DROPPED))


@pytest.fixture
def read(tmp_path):
    """What is in force for this file and environment."""

    def effective_of(text="", *, choices=None, lenient=False, **environ):
        (tmp_path / "tracker-health.toml").write_text(text)
        return effective(choices or {}, environ=environ, folder=tmp_path, lenient=lenient)

    return effective_of


def codes(config):
    return {probe.code for probe in configured_probes(config)}


# What each place makes of it


@pytest.mark.parametrize("word", ["LOS011", "slow-descent"])
def test_a_selection_means_the_successor(word):
    config = Config(select=frozenset({word}))
    assert codes(config) == {"LOS007"}
    assert config.notes == ("select: LOS011 slow-descent was retired in 0.1.1, replaced by LOS007; taken as LOS007",)
    assert config.digest == Config(select=frozenset({"LOS007"})).digest


def test_a_selection_of_what_nothing_replaced_selects_nothing():
    config = Config(select=frozenset({"OLD001"}))
    assert codes(config) == set()
    assert config.notes == ("select: OLD001 gone-away was retired in 0.1.1, nothing replaced it; it selects nothing",)


@pytest.mark.parametrize("key", ["ignore", "measure_only"])
def test_the_successor_is_not_ignored_without_being_named(key):
    config = Config(**{key: Config().measure_only | {"LOS011"} if key == "measure_only" else frozenset({"LOS011"})})
    assert codes(config) == codes(Config())
    assert config.digest == Config().digest
    (note,) = config.notes
    assert note.startswith(
        f"{key}: LOS011 slow-descent was retired in 0.1.1, replaced by LOS007; naming it does nothing"
    )


def test_votes_mean_the_successor():
    assert Config(votes=frozenset({"LOS011"})).votes == {"LOS007"}


def test_thresholds_are_dropped():
    config = Config(
        thresholds={
            "slow-descent": {"margin": 1.0},
            "diverged": {"window": 4, "sigmas": 6},
            "still-descending": {"patience": 3},
        }
    )
    assert config.thresholds == {"diverged": {"sigmas": 6}}
    assert config.notes == (
        "rules.slow-descent.margin does nothing: LOS011 slow-descent was retired in 0.1.1, replaced by LOS007",
        "rules.diverged.window does nothing: this threshold was retired, nothing replaced it: it follows from the length",
        "rules.still-descending.patience does nothing: this threshold was retired, replaced by little: one was meant",
    )


def test_an_override_of_python_is_understood():
    override = Override(
        match="experiment:a", changes={"ignore": frozenset({"LOS011"}), "rules.slow-descent.margin": 2.0}
    )
    config = Config(overrides=(override,)).for_run({"experiment": "a"})
    assert (config.ignore, config.thresholds, len(config.notes)) == (frozenset(), {}, 2)


@pytest.mark.parametrize("rule", REAL, ids=lambda rule: rule.code)
def test_settings_that_name_what_was_really_retired_go_on(rule, monkeypatch):
    monkeypatch.setattr(retired, "RETIRED", REAL)
    config = Config(ignore=frozenset({rule.code}), thresholds={rule.name: {"anything": 1.0}})
    assert codes(config) == codes(Config()) - retired.parts_of(rule.code)
    assert len(config.notes) == 2
    assert codes(Config(select=frozenset({rule.name}))) == set(rule.replaced_by)


@pytest.mark.parametrize("old", sorted(retired.PARTS_OF))
def test_whatever_names_a_rule_that_was_split_means_its_parts(old):
    parts = set(retired.PARTS_OF[old])
    for key in ("ignore", "measure_only", "votes"):
        assert parts <= getattr(Config(**{key: frozenset({old})}), key)
    ack = Acknowledgement(id="0" * 16, who="me", when=1.0, because="known", codes=(old,))
    assert open_codes([*parts, "LOS004"], [ack]) == ("LOS004",)


def test_thresholds_of_a_rule_that_was_split_have_moved():
    given = {"settings-out-of-range": {"most_rate": 0.7, "healthy_descent": 0.5}, "schedule": {"least_rate": 1e-9}}
    config = Config(thresholds=given)
    assert config.thresholds["rate-too-large"] == {"most_rate": 0.7, "healthy_descent": 0.5}
    assert config.thresholds["rate-too-small"] == {"least_rate": 1e-9}
    assert "rules.schedule.least_rate has moved: it is taken as rules.rate-too-small.least_rate" in config.notes
    own = {**given, "rate-too-small": {"least_rate": 1e-7}}
    assert Config(thresholds=own).thresholds["rate-too-small"] == {"least_rate": 1e-7}
    rules = {rule.name: rule for rule in registry.BUILT_IN}
    shared = Config(thresholds={"no-gradient": {"min_steps": 9}}).thresholds
    assert shared["no-gradient"] == shared["gradient-stopped"] == {"min_steps": 9}
    for places in (*retired.MOVED.values(), *retired.SHARED.values()):
        assert all(name in thresholds_of(rules[part]) for part, name in places)


def test_what_never_was_stays_an_error():
    with pytest.raises(ConfigError, match="there is no rule 'LOS911'"):
        configured_probes(Config(ignore=frozenset({"LOS911"})))
    with pytest.raises(ConfigError, match="no such threshold"):
        configured_probes(Config(thresholds={"diverged": {"windows": 4}}))


# Settings: one warning each, with the place where it stands


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('ignore = ["los011"]', "tracker-health.toml:1: ignore: LOS011"),
        ('select = ["Slow-Descent"]', "tracker-health.toml:1: select: LOS011"),
        ("[rules.slow-descent]\nmargin = 3", "tracker-health.toml:2: rules.slow-descent.margin does nothing: LOS011"),
        ("[rules.diverged]\nwindow = 3", "tracker-health.toml:2: rules.diverged.window does nothing: this threshold"),
        (
            '[[overrides]]\nmatch = "experiment:a"\nignore = ["slow-descent"]',
            "tracker-health.toml:3: ignore: LOS011",
        ),
    ],
)
def test_a_file_is_warned_about_once(read, text, where):
    settings = read(text)
    (warning,) = settings.warnings
    assert warning.startswith(where)
    config = settings.config.for_run({"experiment": "a"})
    assert config.notes == (), "the report does not say it again"
    configured_probes(config)


def test_the_environment_and_the_command_line(read):
    settings = read(TRACKER_HEALTH_IGNORE="LOS011,LOS004", TRACKER_HEALTH_SET="rules.slow-descent.margin=3")
    assert settings.config.ignore == {"LOS004"}
    assert [warning.partition(":")[0] for warning in settings.warnings] == [
        "environment TRACKER_HEALTH_IGNORE",
        "environment TRACKER_HEALTH_SET",
    ]
    settings = read(choices={"select": ["los011"], "settings": ["rules.diverged.window=4"]})
    assert settings.config.select == {"LOS007"}
    assert [warning.partition(":")[0] for warning in settings.warnings] == ["command line", "command line"]
    assert configured(select=["LOS011"]).select == {"LOS007"}


def test_a_policy(read, tmp_path, monkeypatch):
    policy = tmp_path / "policy.toml"
    policy.write_text('ignore = ["LOS011"]\nlocked = ["rules.slow-descent", "rules.diverged.window", "ignore"]\n')
    settings = read(**{VARIABLE: str(policy)})
    assert len(settings.warnings) == 3
    assert all("policy.toml" in warning for warning in settings.warnings)
    monkeypatch.setenv(VARIABLE, str(policy))
    from tracker_health.runs.run_config import resolve_config

    assert len(resolve_config(Config(), writes=True).notes) == 3, "a caller from Python hears of it in the report"


# Commands


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(cli, [str(one) for one in arguments])


def test_check_warns_on_one_line_and_judges(run, write_log, healthy_losses):
    folder = write_log(healthy_losses)
    result = run("check", folder, "--ignore", "LOS011")
    assert (result.exit_code, result.output.count("LOS011")) == (0, 1)
    assert "LOS011" in result.stderr


def test_a_report_for_python_says_it_in_a_note(write_log, healthy_losses):
    report = check(write_log(healthy_losses), config=Config(ignore=frozenset({"LOS011"})))
    assert [note for note in report.notes if "LOS011" in note] == list(Config(ignore=frozenset({"LOS011"})).notes)


@pytest.mark.parametrize("word", ["LOS011", "los011", "slow-descent"])
def test_explain_says_what_became_of_it(run, word):
    result = run("explain", word)
    assert result.exit_code == 0
    assert "LOS011 slow-descent was retired in 0.1.1, replaced by LOS007: Both looked at one descent." in result.stdout


def test_its_page_stays():
    page = retired_page(MERGED, {"LOS007": "still-descending"})
    assert page.startswith("# LOS011 slow-descent\n")
    assert "[LOS007 still-descending](LOS007.md)" in page
    assert "nothing replaced it: It found nothing." in retired_page(GONE, {})
    assert "| [LOS011 slow-descent](LOS011.md) | LOS007 | 0.1.1 |" in index((), (MERGED,))
    assert "It found nothing." in explain_retired(GONE)


def test_a_report_of_an_earlier_version_is_read(write_log, healthy_losses, valid_report):
    document = check(write_log(healthy_losses)).to_json()
    document["results"].append({**document["results"][0], "code": "LOS011", "name": "slow-descent"})
    assert Report.from_json(document).results[-1].code == "LOS011"
    valid_report(Report.from_json(document).to_json())


# Plugins


def test_a_plugin_takes_no_code_or_name_of_a_retired_rule():
    owners = dict.fromkeys(retired.retired_words(), "a retired rule")
    assert _taken(SlowDescent, owners) == "not used: SlowDescent has the code LOS011, which a retired rule has already"
    assert load_plugins(registry.BUILT_IN).rules == ()


# What never was, where nobody is at hand


UNKNOWN = """
ignore = ["LOS911", "LOS004", "no-such-rule"]
stale_after = "soon"
colour = "blue"
[rules.diverged]
sigmas = 7
windows = 3
[rules.no-such-rule]
a = 1
[[overrides]]
match = "nonsense"
ignore = ["LOS005"]
"""


def test_a_lenient_reading_leaves_out_what_makes_no_sense(read):
    with pytest.raises(ConfigError):
        read(UNKNOWN)
    settings = read(UNKNOWN, lenient=True, TRACKER_HEALTH_COLOUR="blue", TRACKER_HEALTH_SET="a; rules.diverged.x=1")
    config = settings.config
    assert (config.ignore, config.thresholds, config.overrides) == ({"LOS004"}, {"diverged": {"sigmas": 7}}, ())
    assert len(settings.warnings) == 10
    assert all(warning.startswith("left out: ") for warning in settings.warnings)
    assert any("tracker-health.toml:2: there is no rule 'LOS911'" in warning for warning in settings.warnings)
    configured_probes(config)


def test_a_policy_with_a_word_of_a_later_version_is_not_kept_as_good(read, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    policy = tmp_path / "policy.toml"
    policy.write_text('ignore = ["LOS911"]\nlocked = ["rules.later-rule", "ignore"]\n')
    settings = read(lenient=True, **{VARIABLE: str(policy)})
    assert len(settings.warnings) == 2
    assert not (tmp_path / "cache").exists()
    with pytest.raises(ConfigError):
        read(**{VARIABLE: str(policy)})


JUDGE = """
import json, sys
from pathlib import Path
from tracker_health.hooks.exec_log import RunToJudge
from tracker_health.hooks.judge_process import _told

folder = sys.argv[1]
found = _told(RunToJudge(run=folder, folder=folder), quick=False, last_step=None)
print(json.dumps([found.text, json.loads((Path(folder) / "health" / "report.json").read_text())["notes"]]))
"""


def test_the_hook_judges_without_it_and_says_so(tmp_path, write_log, healthy_losses):
    folder = write_log(healthy_losses)
    (tmp_path / "tracker-health.toml").write_text('ignore = ["LOS911"]\n')
    command = [sys.executable, "-c", JUDGE, str(folder)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    text, notes = json.loads(done.stdout)
    assert text.startswith("PASS run")
    assert "settings: left out: tracker-health.toml:1: there is no rule 'LOS911'" in text
    assert any("there is no rule 'LOS911'" in note for note in notes)


# The table itself


def test_the_table_names_what_is_gone_and_what_is_there(monkeypatch):
    monkeypatch.undo()
    living = {probe.code: probe for probe in registry.BUILT_IN}
    names = {probe.name: probe for probe in registry.BUILT_IN}
    words = [word for one in retired.RETIRED for word in (one.code, one.name)]
    assert len(words) == len(set(words))
    for one in retired.RETIRED:
        assert one.code not in living
        assert one.name not in names
        assert set(one.replaced_by) <= living.keys(), "a successor that was retired later is replaced in the table"
        assert one.why
        assert one.since
    for one in retired.RETIRED_THRESHOLDS:
        known = thresholds_of(names[one.rule])
        assert one.threshold not in known
        assert one.replaced_by is None or one.replaced_by in known
        assert one.why


def test_nothing_is_said_of_what_is_there():
    assert remarks("ignore", frozenset({"LOS004"})) == []
    assert remarks("rules.diverged.sigmas", 3) == []
    assert remarks("stale_after", 3.0) == []
    assert Config().notes == ()
