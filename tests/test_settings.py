"""From the command line, the environment and files to a configuration."""

import os
import re
from itertools import permutations
from pathlib import Path

import pytest

from tracker_health.errors import ConfigError
from tracker_health.hooks.guard import TREE
from tracker_health.judge.engine import configured_probes
from tracker_health.roles import DEFAULT_PATTERNS
from tracker_health.settings.layers import SourcedValue
from tracker_health.settings.sources import ENVIRONMENT, SWITCHES, configured, effective
from tracker_health.settings.values import JUDGING, KEYS, parse_size


@pytest.mark.parametrize(
    "written", ["los001", "LOS001", "Los001", "nonfinite-loss", "Nonfinite-Loss", "NONFINITE-LOSS"]
)
def test_rules_are_named_in_any_case(written):
    assert [probe.code for probe in configured_probes(configured(select=[written]))] == ["LOS001"]
    assert "LOS001" not in [probe.code for probe in configured_probes(configured(ignore=[written]))]


def test_the_case_of_a_name_does_not_judge_a_run_again():
    assert configured(ignore=["Diverged"]).digest == configured(ignore=["diverged"]).digest


@pytest.mark.parametrize(("written", "nearest"), [("los0001", "LOS001"), ("AMP00I", "AMP001"), ("Divergd", "diverged")])
def test_a_rule_that_does_not_exist(written, nearest):
    with pytest.raises(ConfigError, match=rf"there is no rule '{written}' \(did you mean {nearest}"):
        configured_probes(configured(select=[written]))


def test_the_patterns_of_a_role_replace_its_defaults():
    config = configured(settings=["roles.train_loss=my/objective, other_*"])
    assert config.role_names(["loss", "my_objective", "Other Loss", "lr"]) == {
        "my_objective": "train_loss",
        "Other Loss": "train_loss",
        "lr": "learning_rate",
        "loss": "loss_part",
    }


def test_a_role_that_was_set_wins_over_the_defaults_of_others():
    assert configured(settings=["roles.val_loss=loss"]).role_names(["loss"]) == {"loss": "val_loss"}


def test_a_loss_can_be_said_to_be_one_that_need_not_descend():
    config = configured(settings=["roles.objective_loss=my/loss"])
    assert config.role_names(["my/loss", "loss"]) == {"my/loss": "objective_loss", "loss": "train_loss"}


def test_the_last_setting_of_a_role_holds():
    config = configured(settings=["roles.kl=a", "roles.kl=b"])
    assert config.role_names(["a", "b"]) == {"b": "kl"}


def test_the_order_of_settings_decides_nothing():
    settings = ["roles.val_loss=x", "roles.train_loss=x,y", "roles.kl=x"]
    configs = [configured(settings=order) for order in permutations(settings)]
    assert {config.digest for config in configs} == {configs[0].digest}
    assert all(config.role_names(["x"]) == {"x": "train_loss"} for config in configs)


def test_no_setting_changes_no_role():
    assert list(configured().roles.items()) == list(DEFAULT_PATTERNS.items())


@pytest.mark.parametrize("value", ["", " ", ",", " , ", "//", "損失"])
def test_patterns_that_could_name_no_metric_are_refused(value):
    with pytest.raises(ConfigError, match="names no metric"):
        configured(settings=[f"roles.train_loss={value}"])


def test_thresholds_add_up():
    config = configured(settings=["rules.diverged.sigmas=6", "rules.diverged.runaway=9"])
    assert config.thresholds == {"diverged": {"sigmas": 6, "runaway": 9}}


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("500MB", 500 * 10**6), ("2 GB", 2 * 10**9), ("1.5kib", 1500), ("0", 0)]
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "lots", "-1", "1e9", "2 XB", "1.GB", "9" * 50])
def test_what_is_no_size(text):
    with pytest.raises(ConfigError, match="is no size"):
        parse_size(text)


@pytest.fixture
def seen(tmp_path):
    """The configuration seen from a folder ``project/sub`` with these files, under this environment."""
    (tmp_path / "project" / "sub").mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir()

    def see(toml=None, pyproject=None, environ=None, config_file=None, **choices):
        for name, text in (("tracker-health.toml", toml), ("pyproject.toml", pyproject)):
            if text is not None:
                content = text if isinstance(text, bytes) else text.encode()
                (tmp_path / "project" / "sub" / name).write_bytes(content)
        return effective(choices, config_file=config_file, environ=environ or {}, folder=tmp_path / "project" / "sub")

    return see


def origins(one):
    return {key: setting.origin for key, setting in one.chosen.items()}


def test_nothing_configured_is_the_default(seen):
    one = seen()
    assert one.config == configured()
    assert (dict(one.chosen), one.files, one.fail_on, one.tracking_uri) == ({}, (), None, None)
    assert one.described(everything=False) == {}


def test_precedence(seen):
    sources = {
        "pyproject": '[tool.tracker-health]\npreset = "dlm"\n',
        "toml": 'preset = "strict"\n',
        "environ": {"TRACKER_HEALTH_PRESET": "default"},
        "preset_name": "dlm",
    }
    expected = [("dlm", "pyproject.toml:2"), ("strict", "tracker-health.toml:1"),
                ("default", "environment TRACKER_HEALTH_PRESET"), ("dlm", "command line")]  # fmt: skip
    given = {}
    for (name, source), (value, origin) in zip(sources.items(), expected, strict=True):
        given[name] = source
        one = seen(**given)
        assert (one.config.preset, origins(one)) == (value, {"preset": origin})


def test_every_key_of_a_file(seen):
    one = seen("""
preset = "strict"
select = ["los001", "Diverged"]
ignore = ["LOS005"]
checkpoint = "last.pt"
max_download = "5MB"
fail_on = "warn"
tracking_uri = "sqlite:///x.db"
[roles]
train_loss = ["my/loss", "b*"]
[rules.diverged]
sigmas = 6
""")
    assert one.config == configured(
        preset_name="strict", select=["LOS001", "diverged"], ignore=["LOS005"], checkpoint="last.pt", max_download="5MB",
        settings=["roles.train_loss=my/loss,b*", "rules.diverged.sigmas=6"],
    )  # fmt: skip
    assert (one.fail_on, one.tracking_uri) == ("warn", "sqlite:///x.db")
    assert origins(one)["rules.diverged.sigmas"] == "tracker-health.toml:12"
    assert origins(one)["roles.train_loss"] == "tracker-health.toml:10"


def test_every_variable(seen):
    one = seen(environ={
        "TRACKER_HEALTH_PRESET": "strict", "TRACKER_HEALTH_SELECT": "los001, Diverged", "TRACKER_HEALTH_IGNORE": "LOS005",
        "TRACKER_HEALTH_CHECKPOINT": "last.pt", "TRACKER_HEALTH_MAX_DOWNLOAD": "5MB", "TRACKER_HEALTH_FAIL_ON": "skip",
        "TRACKER_HEALTH_TRACKING_URI": "x", "TRACKER_HEALTH_SET": "rules.diverged.sigmas=6; roles.kl=a,b;",
        "TRACKER_HEALTH_PLUGINS": "1", "TRACKER_HEALTH_DISABLED": "0", "TRACKER_HEALTH_AUTO": "", "PATH": "x",
    })  # fmt: skip
    assert one.config == configured(
        preset_name="strict", select=["LOS001", "diverged"], ignore=["LOS005"], checkpoint="last.pt", max_download="5MB",
        settings=["roles.kl=a,b", "rules.diverged.sigmas=6"],
    )  # fmt: skip
    assert one.fail_on == "skip"
    assert origins(one)["roles.kl"] == "environment TRACKER_HEALTH_SET"


def test_empty_variables_are_none(seen):
    assert (
        seen(environ={"TRACKER_HEALTH_PRESET": "", "TRACKER_HEALTH_SET": " ", "TRACKER_HEALTH_CONFIG": ""}).chosen == {}
    )


def test_keys_merge_one_by_one(seen):
    one = seen(
        'ignore = ["LOS001"]\n[rules.diverged]\nsigmas = 6',
        '[tool.tracker-health]\nignore = ["LOS005"]\ncheckpoint = "a"\nprobes = { diverged = { sigmas = 1, runaway = 9 } }',
        settings=["rules.diverged.rise_share=0.5"],
    )
    assert one.config.thresholds == {"diverged": {"sigmas": 6, "runaway": 9, "rise_share": 0.5}}
    assert (one.config.ignore, one.config.checkpoint) == ({"LOS001"}, "a")
    assert origins(one)["rules.diverged.runaway"] == "pyproject.toml:4"
    assert one.files == ("tracker-health.toml", "pyproject.toml")


def test_the_search_goes_up_to_the_root_of_the_repository(seen, tmp_path):
    (tmp_path / "tracker-health.toml").write_text('preset = "dlm"')
    assert seen().chosen == {}
    (tmp_path / "project" / "tracker-health.toml").write_text('preset = "strict"')
    assert origins(seen()) == {"preset": f"{tmp_path}/project/tracker-health.toml:1"}
    assert origins(seen("checkpoint = 'x'")) == {"checkpoint": "tracker-health.toml:1"}


def test_the_search_ends_at_home_and_before_a_shared_folder(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "tracker-health.toml").write_text('preset = "dlm"')
    assert effective({}, environ={}, folder=tmp_path / "a" / "b").config.preset == "dlm"
    monkeypatch.setenv("HOME", str(tmp_path / "a"))
    assert effective({}, environ={}, folder=tmp_path / "a" / "b").config.preset == "default"
    monkeypatch.setenv("HOME", "/nowhere")
    tmp_path.chmod(0o1777)
    assert effective({}, environ={}, folder=tmp_path / "a" / "b").config.preset == "default"
    assert effective({}, environ={}, folder=tmp_path).config.preset == "dlm"


def test_a_pyproject_of_others_is_passed_over(seen, tmp_path):
    (tmp_path / "project" / "pyproject.toml").write_text('[tool.tracker-health]\npreset = "dlm"')
    assert seen(pyproject='[project]\ndependencies = ["tracker-health"]').config.preset == "dlm"
    assert seen(pyproject="[project\nbroken").config.preset == "dlm"


@pytest.mark.parametrize("by_variable", [True, False])
def test_a_file_that_is_named_is_read_instead(seen, tmp_path, by_variable):
    file = tmp_path / "other.toml"
    file.write_text("checkpoint = 'x'")
    named = {"environ": {"TRACKER_HEALTH_CONFIG": str(file)}} if by_variable else {"config_file": str(file)}
    one = seen('preset = "dlm"', **named)
    assert (one.config.preset, one.config.checkpoint, one.files) == ("default", "x", (str(file),))


def test_a_pipe_in_place_of_a_file_is_not_waited_for(seen, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="pipe: the configuration cannot be read: it is not a regular file"):
        seen(config_file=str(tmp_path / "pipe"))


def test_a_named_pyproject_must_have_our_table(seen, tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text("[project]")
    with pytest.raises(ConfigError, match=r"no \[tool.tracker-health\]"):
        seen(config_file=str(file))
    with pytest.raises(ConfigError, match="there is no configuration file"):
        seen(config_file=str(tmp_path / "missing.toml"))
    with pytest.raises(ConfigError, match="cannot be read"):
        seen(config_file=str(tmp_path))


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("\npresett = 'dlm'", "tracker-health.toml:2: there is no key 'presett' (did you mean preset"),
        ("preset = 'dlmm'", ":1: there is no preset 'dlmm' (did you mean dlm"),
        ("preset = 1", ":1: preset must be text, not a number"),
        ("checkpoint = ''", ":1: checkpoint must be text, not empty"),
        ("checkpoint = 2020-01-01", "not a date or time"),
        ("select = 'LOS001'", "select must be a list of texts, not text"),
        ("ignore = [\n'LOS001', 3]", ":1: ignore must be a list"),
        ("select = ['LOS0001']", "there is no rule 'LOS0001' (did you mean LOS001"),
        ("max_download = true", "max_download must be text, not true or false"),
        ("max_download = 'lots'", ":1: 'lots' is no size"),
        ("max_download = -1", "must be a number of bytes"),
        ("fail_on = 'fial'", "fail_on cannot be 'fial' (did you mean fail"),
        ("probes = 3", ":1: probes must be a table"),
        ("[rules]\ndiverged = 3", ":2: rules.diverged must be a table"),
        ("[rules.divergd]\nsigmas = 3", ":2: rules.divergd: there is no such rule (did you mean diverged"),
        ("[rules.diverged]\nsigma = 3", ":2: rules.diverged.sigma: there is no such threshold (did you mean sigmas"),
        ("[rules.diverged]\nsigmas = '3'", ":2: rules.diverged.sigmas must be a number, not text"),
        ("[rules.diverged]\nsigmas = nan", "must be a number"),
        ("[rules.diverged]\nsigmas = -1", "rules.diverged.sigmas = -1: must be at least 0"),
        ("[rules.diverged]\nsigmas = true", "not true or false"),
        ("[rules.diverged]\nsigmas = 0x" + "f" * 5000, "must be a number"),
        ("[rules.diverged]\nsigmas = " + "9" * 5000, "broken TOML"),
        ("[rules.unstable-loss]\nrepeated = 8.5", "must be a whole number"),
        ("[roles]\ntrain_los = ['x']", ":2: there is no role 'train_los' (did you mean train_loss"),
        ("[roles]\ntrain_loss = 'x'", "roles.train_loss must be a list"),
        ("[roles]\ntrain_loss = ['/']", "names no metric"),
        ("[roles]\ntrain_loss = ['a', ' health/b']", ":2: roles.train_loss = 'health/b': names under health/ are this"),
        (
            "[[overrides]]\nmatch = 'project:a'\nroles.kl = ['health.*']",
            ":3: roles.kl = 'health.*': names under health.",
        ),
        ("overrides = 3", "overrides must be tables"),
        ("[[overrides]]\npreset = 'dlm'", ":1: this override does not say which runs"),
        ("[[overrides]]\nmatch = 'project:a'\n[[overrides]]\nmatch = 'run:x'", ":4: match = 'run:x' does not parse"),
        ("[[overrides]]\nmatch = 'tag:x'", "does not parse"),
        ("[[overrides]]\nmatch = 'experiment:'", "does not parse"),
        ("[[overrides]]\nmatch = 'tag:health.verdict=fail'", "what the last one wrote"),
        ("[[overrides]]\nmatch = 'project:a'\nfail_on = 'warn'", ":3: there is no key 'fail_on' in an override"),
        ("[[overrides]]\nmatch = 'project:a'\n[overrides.rules.divergd]\nx = 1", ":4: rules.divergd"),
        ("a = 1\nb = = 2", "tracker-health.toml:2: broken TOML"),
        ("a = [\n", "broken TOML"),
        (b"a = 1\nb = '\xff'", ":2: broken TOML: this is no UTF-8"),
        ("a = " + "[" * 100_000, "nested too deeply"),
        ("a = " + "{a=" * 50_000, "nested too deeply"),
        (".".join("a" * 50_000) + " = 1", "a line with more than 300 dots"),
        (("a." * 299 + "a = 1\n") * 430, "broken TOML"),
        (".".join("a" * 250) + " = 1", "there is no key 'a'"),
        ("#" * 2_000_000, "larger than"),
        ("a\\u001b = 1", "broken TOML"),
        ('"a\\u001b[2J" = 1', "there is no key 'a?[2J'"),
    ],
    ids=lambda text: repr(text[:40]),
)
def test_files_that_are_refused(seen, toml, said):
    with pytest.raises(ConfigError) as caught:
        seen(toml)
    assert said in str(caught.value)
    assert str(caught.value).startswith("tracker-health.toml")
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"TRACKER_HEALTH_PRESETS": "x"}, "did you mean TRACKER_HEALTH_PRESET"),
        ({"TRACKER_HEALTH_PRESET": "dlmm"}, "TRACKER_HEALTH_PRESET: there is no preset 'dlmm'"),
        (
            {"TRACKER_HEALTH_SET": "roles.kl=health/kl"},
            "TRACKER_HEALTH_SET: roles.kl = 'health/kl': names under health/",
        ),
        ({"TRACKER_HEALTH_IGNORE": "LOS001,LOS0001"}, "TRACKER_HEALTH_IGNORE: there is no rule 'LOS0001'"),
        (
            {"TRACKER_HEALTH_SET": "rules.diverged.sigmas"},
            "TRACKER_HEALTH_SET: 'rules.diverged.sigmas' does not parse",
        ),
        ({"TRACKER_HEALTH_SET": "rules.diverged.sigmas=x"}, "TRACKER_HEALTH_SET: "),
        (
            {"TRACKER_HEALTH_SET": "rules.diverged.sigma=1"},
            "TRACKER_HEALTH_SET: rules.diverged.sigma: there is no such",
        ),
    ],
)
def test_variables_that_are_refused(seen, environ, said):
    with pytest.raises(ConfigError) as caught:
        seen(environ=environ)
    assert said in str(caught.value)


OVERRIDES = """
[[overrides]]
match = "experiment:rl-*"
preset = "dlm"
[overrides.rules.diverged]
sigmas = 9
runaway = 7
[[overrides]]
match = "tag:team=red"
checkpoint = "red.pt"
"""


def test_overrides(seen):
    one = seen(OVERRIDES)
    assert [override.match for override in one.config.overrides] == ["experiment:rl-*", "tag:team=red"]
    assert one.config.for_run({"experiment": "rl-x"}).thresholds == {"diverged": {"sigmas": 9, "runaway": 7}}
    assert one.config.for_run({"tag:team": "red"}).checkpoint == "red.pt"
    assert origins(one)["overrides.0.rules.diverged.sigmas"] == "tracker-health.toml:6"
    assert origins(one)["overrides.1.checkpoint"] == "tracker-health.toml:10"


def test_what_was_typed_or_exported_holds_for_every_run(seen):
    one = seen(OVERRIDES, preset_name="strict", environ={"TRACKER_HEALTH_SET": "rules.diverged.sigmas=5"})
    config = one.config.for_run({"experiment": "rl-x"})
    assert config.preset == "strict"
    assert config.thresholds == {"diverged": {"sigmas": 5, "runaway": 7}}


def test_overrides_of_the_stronger_file_replace_the_others(seen):
    weaker = '[tool.tracker-health]\ncheckpoint = "a"\n[[tool.tracker-health.overrides]]\nmatch = "project:x"\npreset = "dlm"'
    one = seen(pyproject=weaker)
    assert one.config.for_run({"project": "x"}).preset == "dlm"
    assert origins(one)["overrides.0.preset"] == "pyproject.toml:5"
    one = seen(OVERRIDES, weaker)
    assert [override.match for override in one.config.overrides] == ["experiment:rl-*", "tag:team=red"]
    assert one.config.checkpoint == "a"


def test_described(seen):
    one = seen('preset = "dlm"\ntracking_uri = "http://me:secret@host/x?token=1"')
    shown = one.described(everything=False)
    assert shown["tracking_uri"] == SourcedValue(value="http://host/x", origin="tracker-health.toml:2")
    assert shown["votes"] == SourcedValue(value=["LOS101", "OPT101"], origin="preset dlm")
    everything = one.described(everything=True)
    assert list(everything)[: len(shown)] == list(shown)
    assert everything["rules.diverged.sigmas"] == SourcedValue(value=3.0, origin="default")
    assert everything["max_download"].origin == "default"


def test_what_a_hook_hands_to_the_processes_of_a_training_is_no_setting():
    """A training may start the command itself."""
    assert effective({}, environ={TREE: "/tmp/tree"}).config == effective({}, environ={}).config


def test_every_key_is_documented_and_every_documented_key_exists():
    text = (Path(__file__).parent.parent / "docs" / "configuration.md").read_text()
    rows = [row.split("|")[1:-1] for row in text.splitlines() if row.startswith("| `")]
    keys = {row[0].strip().strip("`"): row for row in rows}
    assert set(keys) == {*KEYS, "roles.ROLE", "rules.NAME.THRESHOLD", "notify.KEY", "overrides"}
    assert {key for key in KEYS if keys[key][2].strip() == "yes"} == set(JUDGING)
    assert all(keys[key][3].strip() == f"`{ENVIRONMENT}{key.upper()}`" for key in KEYS)
    documented = set(re.findall(rf"{ENVIRONMENT}([A-Z_]+)", text))
    assert documented == {*map(str.upper, KEYS), "SET", "CONFIG", *SWITCHES}
    roles = re.search(r"^The roles: ([^.]*)\.", text, re.MULTILINE).group(1)
    assert set(re.findall(r"`(\w+)`", roles)) == set(DEFAULT_PATTERNS)


def test_the_documented_example_is_a_configuration(seen):
    text = (Path(__file__).parent.parent / "docs" / "configuration.md").read_text()
    one = seen(re.search(r"```toml\n(.*?)```", text, re.DOTALL).group(1))
    assert one.config.for_run({"experiment": "rl-1"}).ignore == {"diverged", "no-progress"}


def test_thresholds_have_an_older_name_that_means_the_same(tmp_path, monkeypatch):
    """In a file, in an override, in the environment, on the command line; and digests do not know the difference."""
    seen = []
    for name in ("probes", "rules"):
        (tmp_path / "tracker-health.toml").write_text(
            f"[{name}.diverged]\nsigmas = 7\n[[overrides]]\nmatch = 'project:a'\n[overrides.{name}.diverged]\nsigmas = 8\n"
        )
        found = effective(
            {"settings": [f"{name}.diverged.runaway=9"]},
            environ={"TRACKER_HEALTH_SET": f"{name}.loss-spike.tail_factor=7"},
            folder=tmp_path,
        )
        seen.append(
            (
                found.config.digest,
                found.config.thresholds,
                found.config.overrides,
                set(found.described(everything=False)),
            )
        )
    assert seen[0] == seen[1]
    assert "rules.diverged.sigmas" in seen[0][3]
