"""Settings of a run in files that nobody vouches for."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.errors import ReadError
from tracker_health.readers.run_settings import SETTINGS_FILE, read_run_settings


def read(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_run_settings(path)


@pytest.mark.parametrize("name", ["config.json", "args.yaml", "hparams.yaml", "hparams.yml", "params.json"])
def test_names_that_hold_settings(name):
    assert SETTINGS_FILE.fullmatch(name)


@pytest.mark.parametrize(
    "name", ["tokenizer_config.json", "adapter_config.json", "config.json.bak", "generation_config.json"]
)
def test_names_that_hold_others(name):
    assert not SETTINGS_FILE.fullmatch(name)


def test_json_and_yaml_say_the_same(tmp_path):
    settings = {"epochs": 20, "lr": 0.01, "model": "net", "amp": True, "layers": [1, 2], "none": None}
    expected = {"epochs": "20", "lr": "0.01", "model": "net", "amp": "True"}
    assert read(tmp_path, "config.json", json.dumps(settings)) == expected
    lines = "epochs: 20\nlr: 0.01\nmodel: net\namp: true\nlayers: [1, 2]\nnone: null\n"
    assert read(tmp_path, "config.yaml", lines) == expected


def test_a_block_about_the_training_counts_and_others_do_not(tmp_path):
    text = "trainer:\n  max_epochs: 30\nscheduler:\n  max_steps: 7\nseed: 1\n"
    assert read(tmp_path, "config.yaml", text) == {"max_epochs": "30", "seed": "1"}


def test_the_top_counts_before_a_block_and_blocks_that_disagree_do_not(tmp_path):
    blocks = {"train": {"epochs": 3, "lr": 1}, "training": {"epochs": 4, "lr": 1}}
    assert read(tmp_path, "config.json", json.dumps(blocks)) == {"lr": "1"}
    assert read(tmp_path, "config.json", json.dumps(blocks | {"epochs": 5})) == {"epochs": "5", "lr": "1"}


def test_the_configuration_of_a_pretrained_model_says_nothing_of_the_run(tmp_path):
    model = {"architectures": ["BertForSequenceClassification"], "vocab_size": 30522}
    assert read(tmp_path, "config.json", json.dumps(model)) == {}


def test_tags_of_objects_are_left_out_and_build_nothing(tmp_path):
    marker = tmp_path / "was-run"
    text = f"epochs: 3\nevil: !!python/object/apply:os.mkdir ['{marker}']\nlr: !mine 0.1\n"
    assert read(tmp_path, "hparams.yaml", text) == {"epochs": "3"}
    assert not marker.exists()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 60_000,
        "a: " * 20_000,
        "- " * 30_000,
        "x0: &x0 [1]\n" + "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 60)) + "}",
        "? " * 30_000,
        b"\xff\xfe\x00",
        "a: " + "b" * 70_000,
    ],
)
def test_a_hostile_file_is_refused_in_no_time(tmp_path, text):
    began = time.process_time()
    with pytest.raises(ReadError):
        read(tmp_path, "config.yaml", text)
    assert time.process_time() - began < 20


def test_merge_keys_are_left_out(tmp_path):
    """Each of them doubles what it merges."""
    lines = "".join(f"x{n}: &x{n} {{<<: [*x{n - 1}, *x{n - 1}], b{n}: 1}}\n" for n in range(1, 60))
    assert read(tmp_path, "config.yaml", f"x0: &x0 {{a: 1}}\n{lines}<<: *x59\nepochs: 2\n") == {"epochs": "2"}


def test_a_bomb_of_aliases_is_no_more_than_its_text(tmp_path):
    lines = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 60))
    assert read(tmp_path, "config.yaml", f"x0: &x0 [1]\n{lines}epochs: 2\n") == {"epochs": "2"}


@given(st.text(alphabet="ab:-_ \n[]{}&*!|>'\"#%@,?0123456789.+ex\t~", max_size=60))
def test_any_text_is_settings_or_refused(tmp_path_factory, text):
    try:
        settings = read(tmp_path_factory.mktemp("any"), "config.yaml", text)
    except ReadError:
        return
    assert all(isinstance(one, str) for pair in settings.items() for one in pair)


@pytest.mark.parametrize(
    ("first", "settings"),
    [
        ('#{"t_start": 1.7e9, "env_id": "CartPole-v1"}', {"env_id": "CartPole-v1"}),
        ('#{"env_id": ["CartPole-v1"]}', {}),
        ("#" + '{"a":' * 5000, {}),
        ("r,l,t", {}),
    ],
)
def test_a_monitor_names_its_environment(tmp_path, first, settings):
    assert read(tmp_path, "0.monitor.csv", first + "\nr,l,t\n1.0,2,0.1\n") == settings
