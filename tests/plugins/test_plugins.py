"""Rules of other packages, really installed and run in processes of their own."""

import json
import zipfile

import pytest

GOOD_SOURCE = "plugin high-end (good-plugin 1.0)"


@pytest.fixture
def report(tool, valid_report):
    """``report(*arguments, plugins=...)``: exit code and report of ``check --json run``."""

    def run(*arguments, command="check", **more):
        done = tool(command, "--json", "run", *arguments, **more)
        assert "Traceback" not in done.stderr
        document = json.loads(done.stdout)
        valid_report(document)
        return done.returncode, document

    return run


@pytest.fixture
def good(installed):
    return installed("good_plugin")


def entry(document, code, part="results"):
    return next((one for one in document[part] if one["code"] == code), None)


def errors(document):
    return {(one["source"], one["message"]) for one in document["errors"]}


# A plugin that works


@pytest.mark.slow
def test_a_plugin_rule_is_measured_and_votes(report, good):
    code, document = report(plugins=[good])
    result = entry(document, "TEA001")
    assert (code, document["verdict"], result["verdict"], result["votes"]) == (0, "pass", "pass", True)
    assert result["measured"]["last"] == pytest.approx(0.14, abs=1e-2)
    code, document = report("--set", "rules.high-end.ceiling=0.01", plugins=[good])
    assert (code, document["verdict"], document["errors"]) == (1, "fail", [])
    assert entry(document, "TEA001")["thresholds"] == {"ceiling": 0.01}


@pytest.mark.exhaustive
def test_a_preview_rule_of_a_plugin_is_shown_without_a_vote(report, good):
    code, document = report("--set", "rules.high-start.ceiling=0.001", plugins=[good])
    result = entry(document, "TEA002")
    assert (code, document["verdict"], result["verdict"], result["votes"]) == (0, "pass", "fail", False)
    code, document = report("--preset", "strict", "--set", "rules.high-start.ceiling=0.001", plugins=[good])
    assert (code, document["verdict"]) == (1, "fail")


@pytest.mark.exhaustive
@pytest.mark.parametrize("word", ["TEA001", "tea001", "high-end"])
def test_a_plugin_rule_is_selected_and_ignored(report, good, word):
    _, document = report("--select", word, plugins=[good])
    assert [one["code"] for one in document["results"]] == ["TEA001"]
    assert (document["verdict"], document["skipped"]) == ("pass", [])
    _, document = report("--ignore", word, plugins=[good])
    assert entry(document, "TEA001") is None
    assert entry(document, "TEA002") is not None


@pytest.mark.slow
def test_a_threshold_of_a_plugin_rule_is_checked(tool, good):
    for setting, told in (("ceiling=0", "must be above 0"), ("celing=2", "did you mean ceiling?")):
        done = tool("check", "run", "--set", f"rules.high-end.{setting}", plugins=[good])
        assert done.returncode == 2
        assert told in done.stderr


@pytest.mark.exhaustive
def test_a_plugin_rule_is_listed_and_explained(tool, good):
    lines = tool("probes", plugins=[good]).stdout.splitlines()
    assert lines[-2].startswith("TEA001  high-end ")
    assert lines[-2].endswith(" The loss ends above a ceiling.")
    assert "preview  informational" in lines[-1]
    records = [json.loads(line) for line in tool("probes", "--json", plugins=[good]).stdout.splitlines()]
    assert records[-2]["code"] == "TEA001"
    for word in ("TEA001", "tea001", "high-end"):
        done = tool("explain", word, "--full", plugins=[good])
        assert done.returncode == 0
        assert "The team's models are of no use above it." in done.stdout
        assert "ceiling  1.0      loss above which a model is of no use (nats; handbook)" in done.stdout


@pytest.mark.slow
def test_what_a_plugin_prints_while_it_is_imported_is_no_result(tool, good):
    done = tool("check", "--json", "run", plugins=[good])
    assert done.stdout.count("\n") == 1
    assert "a plugin that talks" in done.stderr


@pytest.mark.slow
def test_a_plugin_rule_is_written_onto_the_run(tool, tmp_path, good):
    done = tool("annotate", "run", "--metrics", "--set", "rules.high-end.ceiling=0.01", plugins=[good])
    assert done.returncode == 0
    annotation = (tmp_path / "run" / "health" / "annotation.json").read_text()
    assert "TEA001" in annotation
    assert "high_end/last" in annotation


@pytest.mark.slow
def test_a_plugin_in_a_zip_file_is_found(report, good, tmp_path):
    archive = tmp_path / "plugins.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in good.rglob("*"):
            file.write(path, path.relative_to(good))
    _, document = report(plugins=[archive])
    assert entry(document, "TEA001") is not None


# The digest


def digest(tool, *plugins, **environment):
    code = "from tracker_health.judge.annotations import digest_of; from tracker_health import preset\n"
    done = tool(code=code + "print(digest_of('a', preset('default').digest))", plugins=plugins, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.exhaustive
def test_the_digest_changes_with_plugins_and_their_versions(tool, installed):
    without, old = digest(tool), digest(tool, installed("good_plugin"))
    new = digest(tool, installed("good_plugin", version="1.1"))
    broken = digest(tool, installed("broken_import"))
    assert len({without, old, new, broken}) == 4
    assert digest(tool, installed("good_plugin")) == old
    assert digest(tool, installed("good_plugin"), TRACKER_HEALTH_PLUGINS="0") == without


@pytest.mark.exhaustive
def test_a_run_is_judged_again_when_a_plugin_changes_its_version(tool, installed):
    said = {
        "first": tool("annotate", "run", plugins=[installed("good_plugin")]).stdout,
        "again": tool("annotate", "run", plugins=[installed("good_plugin")]).stdout,
        "newer": tool("annotate", "run", plugins=[installed("good_plugin", version="1.1")]).stdout,
    }
    assert ["written" in said["first"], "unchanged" in said["again"], "written" in said["newer"]] == [True] * 3


@pytest.mark.exhaustive
def test_a_plugin_that_works_at_last_changes_the_digest(tool, installed, tmp_path):
    (tmp_path / "more").mkdir()
    before = digest(tool, installed("broken_import"), tmp_path / "more")
    (tmp_path / "more" / "broken_no_such_module.py").write_text(
        "from broken_rules import Sound as RULES", encoding="utf-8"
    )
    rules = installed("broken_rules") / "broken_rules.py"
    (tmp_path / "more" / "broken_rules.py").write_text(rules.read_text(), encoding="utf-8")
    assert digest(tool, installed("broken_import"), tmp_path / "more") != before


# Plugins that do not work


@pytest.mark.exhaustive
def test_a_plugin_that_cannot_be_loaded_is_an_error_and_nothing_else(report, installed):
    alone = report()[1]
    code, document = report(plugins=[installed("broken_import")])
    assert (code, alone["verdict"], document["verdict"], document["score"]) == (3, "pass", "pass", alone["score"])
    assert document["results"] == alone["results"]
    assert document["skipped"] == alone["skipped"]
    assert {one["code"] for one in document["errors"]} == {one["name"] for one in document["errors"]} == {None}
    told = {source.removesuffix(" (broken-import 0.3)"): message for source, message in errors(document)}
    loading = "could not be loaded:"
    assert told["plugin raises"] == f"{loading} ZeroDivisionError: first line second line ?[31m"
    assert told["plugin leaves"] == f"{loading} SystemExit: bye"
    assert told["plugin base-exception"] == f"{loading} BaseException: the very base"
    assert told["plugin mute"] == f"{loading} Mute"
    assert told["plugin no-module"] == f"{loading} ModuleNotFoundError: No module named 'broken_no_such_module'"
    assert told["plugin no-attribute"].startswith(f"{loading} AttributeError")
    assert told["plugin breaks-off"].startswith(f"{loading} OSError: the list of rules")
    assert len(told) == 7


NOT_USED = {
    "a-sound-one-among-others": "3 is no subclass of tracker_health.Probe",
    "abstract": "Abstract: it does not define judge, needs",
    "bad-code": "BadCode: its code is 'SOUND1', not three capital letters and three digits",
    "bad-default": "BadDefault: ConfigError: rules.variant.level = -1.0: must be at least 0 (level)",
    "bad-headline": "BadHeadline: its headline is 'last', not a tuple of names",
    "bad-hint": "BadHint: NameError: name 'NoSuchType' is not defined",
    "bad-name": "BadName: its name is 'Not Kebab', not words in small letters with hyphens between them",
    "bad-needs": "BadNeeds: its needs are ['train_loss'], not a tuple of tracker_health.Need",
    "bad-status": "BadStatus: its status is 'beta', not one of stable, preview, retired",
    "breaking-needs": "BreakingNeeds: ZeroDivisionError: no needs",
    "empty": "it lists no rule",
    "no-code": "NoCode: its code is None, not three capital letters and three digits",
    "no-default": "NoDefault: the threshold level has no default",
    "no-docstring": "NoDocstring: ValueError: NoDocstring: its docstring has the sections []",
    "no-name": "NoName: its name is None",
    "no-probe": "NoProbe is no subclass of tracker_health.Probe",
    "no-section": "NoSection: ValueError: NoSection: its docstring has the sections ['What it finds', 'Why it",
    "no-source": "NoSource: the threshold level does not say its meaning and source",
    "no-symptom": "NoSymptom: its symptom is no member of tracker_health.Symptom",
    "our-code": "OurCode has the code LOS001, which a built-in rule has already",
    "our-name": "OurName has the name diverged, which a built-in rule has already",
    "text": "'SND001' is no subclass of tracker_health.Probe",
    "thing": "Sound() is no subclass of tracker_health.Probe",
    "twice": "Twice has the code SND001, which plugin a-sound-one-among-others (broken-rules 2.0) has already",
    "undecorated": "Undecorated: level: a threshold is a field of a dataclass, Annotated with a Threshold",
}


@pytest.mark.exhaustive
def test_what_is_no_sound_rule_is_named_and_the_sound_one_beside_it_runs(report, installed):
    alone = report()[1]
    code, document = report(plugins=[installed("broken_rules")])
    assert (code, document["verdict"]) == (3, "pass")
    told = {source.removesuffix(" (broken-rules 2.0)"): message for source, message in errors(document)}
    assert told.keys() == {f"plugin {name}" for name in NOT_USED}
    wrong = {
        name: told[f"plugin {name}"] for name in NOT_USED if f"not used: {NOT_USED[name]}" not in told[f"plugin {name}"]
    }
    assert wrong == {}
    assert [one["code"] for one in document["results"]] == [*(one["code"] for one in alone["results"]), "SND001"]


@pytest.mark.slow
def test_two_plugins_with_the_same_rule(report, installed, tmp_path):
    """The first by the name of its distribution stays."""
    copy = tmp_path / "copy"
    information = copy / "another_plugin-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: another-plugin\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[tracker_health.probes]\nthe-same = good_plugin:HighEnd\n")
    code, document = report(plugins=[installed("good_plugin"), copy])
    owner = "plugin the-same (another-plugin 1.0)"
    assert code == 3
    assert errors(document) == {(GOOD_SOURCE, f"not used: HighEnd has the code TEA001, which {owner} has already")}
    assert entry(document, "TEA001")["votes"]


@pytest.mark.slow
def test_a_broken_plugin_never_hides_a_verdict(tool, installed, write_log):
    write_log([2.0] * 40 + [float("nan")] * 60, folder="sick")
    done = tool("check", "sick", plugins=[installed("broken_import")])
    assert done.returncode == 3
    assert done.stdout.startswith("FAIL")
    assert "ERROR plugin leaves (broken-import 0.3)" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.exhaustive
def test_the_other_commands_work_beside_a_broken_plugin(tool, installed):
    plugins = [installed("broken_import"), installed("broken_rules")]
    for arguments in (["rules"], ["explain", "LOS004"], ["explain", "SND001"], ["--help"]):
        done = tool(*arguments, plugins=plugins)
        assert "Traceback" not in done.stderr
        assert done.stdout
    assert tool("annotate", "run", plugins=plugins).returncode == 3


@pytest.mark.slow
def test_ctrl_c_while_a_plugin_is_imported_ends_the_command(tool, installed):
    done = tool("check", "run", plugins=[installed("broken_interrupt")])
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_an_unreadable_list_of_entry_points_is_an_error(report, tmp_path):
    information = tmp_path / "odd" / "odd-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_bytes(b"\xff\xfe")
    (information / "entry_points.txt").write_bytes(b"[tracker_health.probes]\nthis is no entry point\n\xff")
    code, document = report(plugins=[tmp_path / "odd"])
    assert (code, document["verdict"], len(document["errors"])) == (3, "pass", 1)
    assert "plugin" in document["errors"][0]["source"]


# No plugins


SEEN = """
import sys, tracker_health
print(tracker_health.check("run").verdict, sorted({"good_plugin", "importlib.metadata"} & set(sys.modules)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("word", ["0", "false", " OFF "])
@pytest.mark.thinned(3)
def test_nothing_of_a_plugin_is_imported_when_plugins_are_switched_off(tool, good, installed, word):
    done = tool(code=SEEN, plugins=[good, installed("broken_interrupt")], TRACKER_HEALTH_PLUGINS=word)
    assert done.stdout == "pass []\n"
    assert done.stderr == ""


@pytest.mark.slow
def test_a_plugin_is_imported_when_rules_are_asked_for_and_not_before(tool, good):
    done = tool(code="import sys, tracker_health.rules.registry\nprint('good_plugin' in sys.modules)", plugins=[good])
    assert done.stdout == "False\n"
    assert tool(code=SEEN, plugins=[good]).stdout == "pass ['good_plugin', 'importlib.metadata']\n"


@pytest.mark.slow
def test_without_plugins_nothing_is_imported_to_look_for_them(tool):
    assert tool(code=SEEN).stdout == "pass []\n"
