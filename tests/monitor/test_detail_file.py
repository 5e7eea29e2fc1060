"""The file of all statistics: what is written is what is read, and no file harms its reader."""

from __future__ import annotations

import json
import math

import pytest

from tracker_health.config import Config
from tracker_health.errors import ConfigError, ReadError
from tracker_health.judge.engine import needs_of
from tracker_health.monitor.sinks import DetailFile, Metrics, layer_summaries
from tracker_health.readers.log_formats import read_log
from tracker_health.readers.log_formats.gap_log import GapLog
from tracker_health.roles import RolePlan, assign
from tracker_health.words.gap_names import layer_of, parsed, unwrapped

EVERY = RolePlan(every=True)


def read(path, roles=EVERY):
    log, form = read_log(path, path.name, roles)
    assert type(form).__name__ == "GapLog"
    return log, {one.name: (one.steps.tolist(), one.values.tolist()) for one in log.series}


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "new" / "gap.jsonl"
    file = DetailFile(path)
    file.write(1, {("grads", "a.weight"): (1.5, 1.2345678e-7, 0.25)}, {})
    file.write(100, {("grads", "a.weight"): (math.inf, math.nan, 0.0), ("activations", "b/c"): (2.0, 1.0, None)}, {})
    file.write(200, {("activations", "b/c"): (3.0, 1.0, None)}, {})
    file.close()
    log, found = read(path)
    assert found["gap/grads/a.weight/mean"][0] == [1, 100]
    assert found["gap/grads/a.weight/mean"][1][0] == pytest.approx(1.2345678e-7, rel=1e-6)
    assert math.isnan(found["gap/grads/a.weight/mean"][1][1])
    assert found["gap/grads/a.weight/max"][1] == [1.5, math.inf]
    assert found["gap/activations/b/c/max"] == ([100, 200], [2.0, 3.0])
    assert "gap/activations/b/c/var" not in found
    assert not log.problem
    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    assert path.read_text().count("schema") == 2


def test_a_run_that_goes_on_adds_to_its_file(tmp_path):
    path = tmp_path / "gap.jsonl"
    for start in (1, 10):
        file = DetailFile(path, continued=start > 1)
        file.write(start, {("params", "w"): (1.0, 0.5, 0.1)}, {})
        file.close()
    assert read(path)[1]["gap/params/w/var"] == ([1, 10], [0.1, 0.1])
    with pytest.raises(ConfigError):
        DetailFile(path)


HEAD = '{"schema":"tracker-health/gap/1","statistics":["max","mean","var"],"columns":["grads/a"]}\n'


@pytest.mark.parametrize(
    "line",
    [
        '{"step":2,"values":[1,2]}',
        '{"step":2,"values":"abc"}',
        '{"step":"x","values":[1,2,3]}',
        "[1]",
        '{"step":2,"val',
        '{"step":2,"values":[1,2,{}]}',
    ],
)
def test_a_broken_line_is_told(tmp_path, line):
    path = tmp_path / "gap.jsonl"
    path.write_text(HEAD + '{"step":1,"values":[1,2,3]}\n' + line + "\n" + '{"step":3,"values":[1,2,3]}\n')
    log, found = read(path)
    assert found["gap/grads/a/mean"][0] == [1, 3]
    assert "1 line of 4" in log.problem


@pytest.mark.parametrize(
    "columns",
    [
        "[1]",
        '["loss"]',
        '"grads/a"',
        json.dumps([f"grads/{n}" for n in range(7000)]),
        json.dumps(["grads/" + "a" * 2000]),
    ],
)
def test_a_hostile_head_is_refused(tmp_path, columns):
    path = tmp_path / "gap.jsonl"
    path.write_text('{"schema":"tracker-health/gap/1","columns":' + columns + "}\n")
    with pytest.raises(ReadError):
        GapLog().read(path, path.name, EVERY)


def test_names():
    assert parsed("gap/activation_grads/a/b.c/var") == ("activation_grads", "a/b.c", "var")
    assert parsed("train/gap/grads/w/max") == ("grads", "w", "max")
    assert parsed("gap/grads/max") is None
    assert parsed("train/loss") is None
    assert [layer_of(one) for one in ("model.layers.3.mlp.up.weight", "layer1.0.conv2.weight", "0.weight", "head.weight", "fc2.bias", "embed")] == [
        "model.layers.3", "layer1.0", "0", "head", "fc2", "embed"
    ]  # fmt: skip
    assert unwrapped("_orig_mod.layers.0._checkpoint_wrapped_module.fc") == "layers.0.fc"


def test_names_of_modules_do_not_make_reinforcement_learning():
    names = [
        "loss",
        "gap/activations/policy.critic.value/max",
        "gap/activations/q/mean",
        "gap/grads/discriminator.loss/var",
    ]
    assert assign(names) == {
        "loss": "train_loss", names[1]: "gap_activations", names[2]: "gap_activations", names[3]: "gap_grads",
    }  # fmt: skip
    assert needs_of(Config()).roles.needed(names)["loss"] == "train_loss"


def test_a_layer_is_all_of_its_values_together():
    found = {
        ("grads", "layers.0.a"): (3.0, 1.0, 2.0), ("grads", "layers.0.b"): (5.0, 4.0, 0.5), ("grads", "head.w"): (1.0, 0.0, None),
        ("activations", "layers.0"): (7.0, 0.1, 0.2), ("activations", "layers.0.a"): (9.0, 0.3, 0.4),
    }  # fmt: skip
    counts = dict.fromkeys(found, 3.0)
    summary = layer_summaries(found, counts)
    # of 1 - s, 1, 1 + s with variance 2 and 4 - t, 4, 4 + t with variance 0.5
    values = [1 - 2**0.5, 1, 1 + 2**0.5, 4 - 0.5**0.5, 4, 4 + 0.5**0.5]
    mean = sum(values) / 6
    assert summary["grads", "layers.0"] == pytest.approx((5.0, mean, sum((one - mean) ** 2 for one in values) / 5))
    assert summary["grads", "head"] == (1.0, 0.0, None)
    assert summary["activations", "layers.0"] == (7.0, 0.1, 0.2)


def test_a_tracker_out_of_reach_is_told_once():
    def refuse(step, metrics):
        raise ConnectionError

    metrics = Metrics(refuse, layers=False)
    with pytest.warns(RuntimeWarning, match="step 1 was not logged"):
        metrics.write(1, {}, {})
    metrics.write(2, {}, {})
