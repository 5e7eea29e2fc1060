"""Runs next to each other: where they part, what is set otherwise, on which axis."""

import json
import math
import re

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tracker_health import api
from tracker_health.cli import cli
from tracker_health.errors import ConfigError, RunError
from tracker_health.judge.compare import NOTHING_PARTS


def rows_of(seed, *, steps=400, breaks=None, floor=0.3, every=1, epoch=None):
    draw = np.random.default_rng(seed)
    for step in range(0, steps, every):
        loss = floor + 2 * math.exp(-step / (steps / 6)) + 0.03 * draw.normal()
        norm = math.exp(0.2 * draw.normal())
        if breaks is not None and step >= breaks:
            loss, norm = 2.5 + 0.1 * draw.normal(), 40 * norm
        row = {"step": step, "loss": loss, "grad_norm": norm}
        if epoch is not None:
            row["epoch"] = step / epoch
        yield row


def run(folder, rows, **params):
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "config.json").write_text(json.dumps({"optimizer": "adamw", **params}))
    return str(folder)


def test_the_gradient_norm_parts_where_it_grew_and_before_the_loss(tmp_path):
    bad = run(tmp_path / "bad", rows_of(1, breaks=200), learning_rate=0.3)
    good = run(tmp_path / "good", rows_of(2), learning_rate=0.001)
    found = api.compare(bad, [good])
    assert [one.name for one in found.partings.found] == ["grad_norm", "loss"]
    assert abs(found.first.position - 200) <= 10  # a fortieth of the run
    assert found.first.there == pytest.approx(1, rel=0.5)
    assert [(one.name, one.own, one.others) for one in found.changes] == [("learning_rate", "0.3", ("0.001",))]
    assert "LOS004" in found.only_own
    assert not found.only_there


def test_another_seed_and_a_little_noise_part_nothing(tmp_path):
    runs = [run(tmp_path / f"seed-{seed}", rows_of(seed, floor=0.3 + seed / 100)) for seed in range(3)]
    assert api.compare(runs[0], runs[1:]).headline == NOTHING_PARTS
    assert api.compare(runs[0], runs[1:2]).headline == NOTHING_PARTS


def test_several_good_runs_make_a_band(tmp_path):
    goods = [run(tmp_path / f"good-{end}", rows_of(seed, floor=end)) for seed, end in enumerate((0.2, 0.9))]
    between = run(tmp_path / "between", rows_of(7, floor=0.55))
    above = run(tmp_path / "above", rows_of(8, floor=1.9))
    assert not api.compare(between, goods).partings.found
    assert [one.name for one in api.compare(above, goods).partings.found] == ["loss"]


def test_a_run_with_the_same_epochs_of_more_steps_is_compared_by_epochs(tmp_path):
    long = run(tmp_path / "long", rows_of(1, steps=800, epoch=80))
    short = run(tmp_path / "short", rows_of(2, steps=200, epoch=20))
    found = api.compare(long, [short])
    assert found.alignment.by == "epoch"
    assert found.headline == NOTHING_PARTS


def test_runs_of_unlike_plans_are_compared_by_the_share_of_the_plan(tmp_path):
    long = run(tmp_path / "long", rows_of(1, steps=800), max_steps=800)
    short = run(tmp_path / "short", rows_of(2, steps=200), max_steps=200)
    found = api.compare(long, [short])
    assert found.alignment.by == "share of the plan"
    assert found.headline == NOTHING_PARTS
    assert any("799 and 199 steps" in one for one in found.unsure)


def test_what_becomes_nan_parts_there(tmp_path):
    def broken():
        for row in rows_of(1):
            yield row if row["step"] < 100 else {**row, "loss": math.nan}

    found = api.compare(run(tmp_path / "nan", broken()), [run(tmp_path / "good", rows_of(2))])
    assert [one.name for one in found.partings.found] == ["loss"]
    assert abs(found.first.position - 100) <= 10
    assert found.to_json()["parted"][0]["own"] is None


def test_what_only_one_logs_is_said(tmp_path):
    without = [{key: value for key, value in row.items() if key != "grad_norm"} for row in rows_of(1)]
    found = api.compare(run(tmp_path / "a", without), [run(tmp_path / "b", rows_of(2))])
    assert any(one.startswith("not logged by all: grad_norm") for one in found.unsure)


def test_a_tensor_that_did_not_move_in_one_is_named(tmp_path):
    def checkpoints(folder, seed, frozen):
        run(folder, rows_of(seed))
        draw = np.random.default_rng(0)
        first = {name: draw.normal(size=(16, 16)).astype(np.float32) for name in ("body.weight", "head.weight")}
        for step in (100, 200):
            target = folder / f"checkpoint-{step}"
            target.mkdir()
            moved = {n: t if n == frozen else t + step * 1e-3 * (1 + seed) for n, t in first.items()}
            save_file(moved, target / "model.safetensors")
        return str(folder)

    bad, good = checkpoints(tmp_path / "bad", 1, "head.weight"), checkpoints(tmp_path / "good", 2, "")
    found = api.compare(bad, [good])
    assert found.tensors.stood_own == ("head.weight",)
    assert not found.tensors.stood_there
    assert "1 tensor did not move here, and did there: head.weight" in found.tensors.lines()


def test_settings_come_from_the_saved_optimizer_as_well(tmp_path):
    def trained(folder, decay):
        run(folder, rows_of(1))
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=decay)
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        torch.save({"optimizer": optimizer.state_dict(), "model": model.state_dict()}, folder / "last.pt")
        return str(folder)

    found = api.compare(trained(tmp_path / "a", 0.5), [trained(tmp_path / "b", 0.01)])
    assert ("weight decay, as saved", "0.5", "checkpoint") in [(x.name, x.own, x.source) for x in found.changes]


def test_the_brief_answer_fits_whatever_the_names_are(tmp_path):
    long = {f"{'x' * 300}-{at}": at for at in range(50)}
    other = {name: value + 1 for name, value in long.items()}
    found = api.compare(
        run(tmp_path / ("b" * 200), rows_of(1, breaks=100), **long), [run(tmp_path / ("g" * 200), rows_of(2), **other)]
    )
    assert len(json.dumps(found.brief())) <= 2000


def test_a_run_is_not_compared_with_itself_nor_with_nothing(tmp_path):
    one = run(tmp_path / "one", rows_of(1))
    with pytest.raises(ConfigError, match="named twice"):
        api.compare(one, [one])
    with pytest.raises(ConfigError, match="no run to compare with"):
        api.compare(one, [])
    with pytest.raises(RunError):
        api.compare(one, [str(tmp_path / "nowhere")])


def test_the_page_shows_both_curves_and_escapes_what_runs_are_called(tmp_path):
    bad = run(tmp_path / "<b>bad", rows_of(1, breaks=200), **{"<script>alert(1)</script>": "1"})
    good = run(tmp_path / "good", rows_of(2), **{"<script>alert(1)</script>": "2"})
    page = tmp_path / "page.html"
    result = CliRunner().invoke(cli, ["compare", bad, good, "-o", str(page)])
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert "<script>alert" not in text
    assert "<b>bad" not in text
    assert re.findall(r'data-title="([^"]+)"', text) == ["grad_norm", "loss"]
    assert "parts here" in text


def test_commands_print_one_document_each(tmp_path):
    bad, good = run(tmp_path / "bad", rows_of(1, breaks=200)), run(tmp_path / "good", rows_of(2))
    whole = json.loads(CliRunner().invoke(cli, ["compare", bad, good, "--json"]).output)
    assert whole["schema"] == "tracker-health/compare/1"
    assert whole["parted"][0]["metric"] == "grad_norm"
    brief = json.loads(CliRunner().invoke(cli, ["compare", bad, good, "--json", "--brief"]).output)
    assert brief["schema"] == "tracker-health/compare-brief/1"


@settings(max_examples=25, deadline=None)
@given(scale=st.floats(1e-6, 1e6), shift=st.integers(0, 10_000), place=st.integers(60, 300))
def test_the_place_does_not_depend_on_units(tmp_path_factory, scale, shift, place):
    def changed(rows):
        return ({"step": row["step"] + shift, "loss": row["loss"] * scale} for row in rows)

    folder = tmp_path_factory.mktemp("runs")
    bad, good = run(folder / "bad", changed(rows_of(1, breaks=place))), run(folder / "good", changed(rows_of(2)))
    found = api.compare(bad, [good])
    assert abs(found.first.position - shift - place) <= 10
