"""Plain configuration values: changes, overrides for some runs, and the digest."""

from dataclasses import fields

import pytest

from tracker_health.config import PRESET_FIELDS, PRESETS, Config, Override, changed, did_you_mean, preset
from tracker_health.errors import ConfigError
from tracker_health.judge.engine import configured_probes
from tracker_health.roles import DEFAULT_PATTERNS

RL = {"experiment": "rl-ppo", "project": "games", "tag:team": "red"}


def overridden(match="experiment:rl-*", **changes):
    return Config(overrides=(Override(match=match, changes=changes),))


def test_presets_differ_only_in_what_presets_decide():
    for one in PRESETS.values():
        for field in fields(Config):
            assert field.name in PRESET_FIELDS or getattr(one, field.name) == getattr(Config(), field.name)


def test_no_change_is_no_change():
    assert changed(Config(), {}) == Config()
    assert changed(Config(), {}).digest == Config().digest


@pytest.mark.parametrize(
    ("match", "applies"),
    [
        ("experiment:rl-*", True),
        ("experiment:rl-ppo", True),
        ("experiment:RL-*", False),
        ("experiment:ppo", False),
        ("project:game?", True),
        ("project:rl-*", False),
        ("tag:team=[rg]ed", True),
        ("tag:team=blue", False),
        ("tag:absent=*", False),
    ],
)
def test_which_runs_an_override_is_for(match, applies):
    config = overridden(match, checkpoint="x").for_run(RL)
    assert (config.checkpoint == "x") is applies
    assert config.overrides == ()


def test_a_tag_may_have_equals_signs_in_its_value():
    assert overridden("tag:cmd=a=b", checkpoint="x").for_run({"tag:cmd": "a=b"}).checkpoint == "x"


def test_an_upgrade_alone_leaves_the_digest_of_the_default_settings():
    assert Config().digest == "77ec96604bbd1a6a", "as version 0.1.0 wrote it onto runs, whose verdicts would not hold"


def test_the_digest_is_that_of_the_run():
    config = overridden(**{"rules.diverged.sigmas": 6})
    assert config.for_run({"experiment": "lm"}).digest == Config().digest
    assert config.for_run({}).digest == Config().digest
    assert config.for_run(RL).digest == Config(thresholds={"diverged": {"sigmas": 6}}).digest != Config().digest


def test_overrides_apply_in_order_key_by_key():
    first = Override(match="experiment:*", changes={"rules.diverged.sigmas": 6, "checkpoint": "a"})
    second = Override(match="tag:team=red", changes={"rules.unstable-loss.repeated": 9, "checkpoint": "b"})
    config = Config(thresholds={"diverged": {"rise_share": 0.5}}, overrides=(first, second)).for_run(RL)
    assert config.thresholds == {"diverged": {"rise_share": 0.5, "sigmas": 6}, "unstable-loss": {"repeated": 9}}
    assert config.checkpoint == "b"


def test_a_preset_in_an_override_leaves_the_rest_alone():
    config = changed(overridden(preset="dlm"), {"rules.diverged.sigmas": 6, "ignore": frozenset({"LOS001"})})
    assert config.for_run(RL) == changed(preset("dlm"), {"rules.diverged.sigmas": 6, "ignore": frozenset({"LOS001"})})


def test_a_configuration_is_not_changed_by_asking_it():
    config = overridden(**{"roles.kl": ("x",), "rules.diverged.sigmas": 6})
    before = (config.digest, dict(config.roles), dict(config.thresholds))
    config.for_run(RL)
    assert (config.digest, dict(config.roles), dict(config.thresholds)) == before


def test_configurations_with_one_digest_give_the_same_roles():
    one = changed(changed(Config(), {"roles.val_loss": ("x",)}), {"roles.train_loss": ("x",)})
    other = changed(changed(Config(), {"roles.train_loss": ("x",)}), {"roles.val_loss": ("x",)})
    default = changed(Config(), {"roles.val_loss": DEFAULT_PATTERNS["val_loss"]})
    assert one.digest == other.digest
    assert one.role_names(["x"]) == other.role_names(["x"]) == {"x": "train_loss"}
    assert list(default.roles) == list(DEFAULT_PATTERNS)


@pytest.mark.parametrize("changes", [{"preset": "dlmm"}, {"roles.train_los": ("x",)}])
def test_changes_that_name_nothing(changes):
    with pytest.raises(ConfigError, match="did you mean"):
        changed(Config(), changes)


@pytest.mark.parametrize("rules", [("OPT002",), ["OPT002"], {"OPT002"}, iter(["OPT002"])])
def test_a_set_of_rules_may_come_as_any_iterable(rules):
    assert Config(select=rules) == Config(select=frozenset({"OPT002"}))
    assert [probe.code for probe in configured_probes(Config(ignore=["LOS001"], select=("LOS001", "LOS004")))] == [
        "LOS004"
    ]


@pytest.mark.parametrize("name", ["select", "ignore", "votes", "measure_only"])
@pytest.mark.parametrize("rules", ["OPT002", 3, [3], [["OPT002"]]])
def test_what_is_no_set_of_rules_is_a_wrong_configuration(name, rules):
    with pytest.raises(ConfigError, match=rf"{name} must (be several|hold) codes or names of rules, not"):
        Config(**{name: rules})


@pytest.mark.parametrize("pattern", ["health/loss", "health.loss", "health/*"])
def test_names_of_our_own_have_no_role(pattern):
    for make in (
        lambda roles: Config(roles={**DEFAULT_PATTERNS, **roles}),
        lambda roles: changed(Config(), {f"roles.{role}": one for role, one in roles.items()}),
        lambda roles: overridden(**{f"roles.{role}": one for role, one in roles.items()}).for_run(RL),
    ):
        with pytest.raises(ConfigError, match="are this tool's own and are never read back"):
            make({"train_loss": ("my/loss", pattern)})
        assert make({"train_loss": ("health_loss",)}).role_names(["health_loss"]) == {"health_loss": "train_loss"}


def test_hints_look_past_case():
    assert did_you_mean("los0o1", ["LOS001", "diverged"]) == "did you mean LOS001?"


def test_what_makes_a_verdict_another_one_than_the_rules_own():
    assert Config().left_out == ()
    changes = {
        "ignore": frozenset({"LOS004"}),
        "select": frozenset({"LOS"}),
        "rules.diverged.sigmas": 9,
        "roles.train_loss": ("zorp", "loss"),
        "checkpoint": "last.pt",
        "max_download": 1000,
        "stale_after": 3600.0,
    }
    assert changed(Config(), changes).left_out == (
        "LOS004",
        "only LOS",
        "diverged.sigmas=9",
        "roles.train_loss=zorp|loss",
        "checkpoint=last.pt",
        "max_download=1000",
        "stale_after=3600",
    )
