"""From the command line's words to a configuration."""

from itertools import permutations

import pytest

from tracker_health.engine import configured_probes
from tracker_health.errors import ConfigError
from tracker_health.roles import DEFAULT_PATTERNS
from tracker_health.settings import configured, parse_size


@pytest.mark.parametrize(
    "written", ["los001", "LOS001", "Los001", "nonfinite-loss", "Nonfinite-Loss", "NONFINITE-LOSS"]
)
def test_rules_are_named_in_any_case(written):
    assert [probe.code for probe in configured_probes(configured(select=[written]))] == ["LOS001"]
    assert "LOS001" not in [probe.code for probe in configured_probes(configured(ignore=[written]))]


def test_the_case_of_a_name_does_not_judge_a_run_again():
    assert configured(ignore=["Diverged"]).digest == configured(ignore=["diverged"]).digest


@pytest.mark.parametrize(("written", "nearest"), [("los0001", "LOS001"), ("Divergd", "diverged")])
def test_a_rule_that_does_not_exist(written, nearest):
    with pytest.raises(ConfigError, match=f"did you mean {nearest}"):
        configured_probes(configured(select=[written]))


def test_the_patterns_of_a_role_replace_its_defaults():
    config = configured(settings=["roles.train_loss=my/objective, other_*"])
    assert config.role_names(["loss", "my_objective", "Other Loss", "lr"]) == {
        "my_objective": "train_loss",
        "Other Loss": "train_loss",
        "lr": "learning_rate",
    }


def test_a_role_that_was_set_wins_over_the_defaults_of_others():
    assert configured(settings=["roles.val_loss=loss"]).role_names(["loss"]) == {"loss": "val_loss"}


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
    config = configured(settings=["probes.diverged.sigmas=6", "probes.diverged.min_points=9"])
    assert config.thresholds == {"diverged": {"sigmas": 6, "min_points": 9}}


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("500MB", 500 * 10**6), ("2 GB", 2 * 10**9), ("1.5kib", 1500), ("0", 0)]
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "lots", "-1", "1e9", "2 XB", "1.GB", "9" * 50])
def test_what_is_no_size(text):
    with pytest.raises(ConfigError, match="is no size"):
        parse_size(text)
