"""The table of tensors: as a document, for people, and on the command line."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

import tracker_health
from tracker_health.cli import cli
from tracker_health.evidence import (
    Attribution,
    Evidence,
    MomentStats,
    OptimizerState,
    Problem,
    RunRef,
    TensorHeader,
    TensorState,
    Weights,
)
from tracker_health.render.tensors import remark_of, tensor_lines, tensor_table

ROOT = Path(__file__).parent.parent
ADAPTER = ROOT / "tests" / "data" / "attribution" / "lora_layers"
NAN = float("nan")


def validated(document):
    schema = json.loads((ROOT / "docs" / "tensors.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    text = json.dumps(document, allow_nan=False)
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    return document


def moment(value=1e-4, *, count=6, zeros=0, nonfinite=0, zero_rows=0):
    return MomentStats(
        count=count, mean=value, rms=value, minimum=value, maximum=value, zeros=zeros, nonfinite=nonfinite,
        zero_rows=zero_rows,
    )  # fmt: skip


def tensor(key, name, **parts):
    known = {"shape": (2, 3), "step": 20.0, "first_moment": moment(), "second_moment": moment(), "kind": "adam"}
    return TensorState(id=key, name=name, group=0, **(known | parts))


def evidence(*tensors, weights=(), problems=(), **state):
    optimizer = OptimizerState(source="optimizer.pt", tensors=tensors, groups=({"lr": 0.1},), **state)
    return Evidence(
        run=RunRef(store="directory", id="runs/a", name="a"),
        optimizer=optimizer if tensors else None,
        weights=Weights(source="model.safetensors", tensors=tuple(weights)) if weights else None,
        problems=tuple(problems),
    )


def text_of(found, **options):
    return "\n".join(tensor_lines(tensor_table(found), **options))


def test_the_document_has_every_key_of_the_schema():
    weight = TensorHeader(name="h.3.w", shape=(2, 3), dtype="F32", rms=0.5, stats=moment(0.5))
    alone = TensorHeader(name="frozen", shape=(4,), dtype="F16", rms=0.1, stats=None)
    found = evidence(tensor(0, "h.3.w", moment_ratio=0.25), weights=[weight, alone], attribution=Attribution.NAMED)
    document = validated(tensor_table(found).to_json())
    (one,) = document["tensors"]
    assert (one["name"], one["layer"], one["role"], one["numel"], one["step"]) == ("h.3.w", 3, "w", 6, 20)
    assert one["snr"] == pytest.approx(0.25 * (1 - 0.999**20) / (1 - 0.9**20) ** 2)
    assert one["update_ratio"] == pytest.approx(0.1 * math.sqrt(one["snr"]) / 0.5)
    assert one["weight"]["rms"] == 0.5
    assert [other["name"] for other in document["weights"]] == ["frozen"]
    assert document["attribution"] == "named"


def test_what_is_not_finite_is_null_and_counted():
    sick = tensor(0, "a", first_moment=moment(NAN, nonfinite=2), second_moment=moment(math.inf, nonfinite=1), step=NAN)
    (one,) = validated(tensor_table(evidence(sick)).to_json())["tensors"]
    assert (one["m_rms"], one["v_mean"], one["v_max"], one["step"]) == (None, None, None, None)
    assert one["nonfinite"] == 3


def test_an_optimizer_without_such_moments_has_nulls():
    plain = TensorState(id=0, shape=(2,), first_moment=moment(), kind="lion")
    (one,) = validated(tensor_table(evidence(plain)).to_json())["tensors"]
    assert (one["v_mean"], one["snr"], one["zeros"], one["name"]) == (None, None, None, None)


def test_the_worst_come_first_layer_by_layer():
    rows = [
        tensor(0, "layers.0.a", moment_ratio=0.1),
        tensor(1, "layers.0.b", moment_ratio=0.9),
        tensor(2, "layers.1.a", second_moment=moment(zero_rows=1, zeros=3)),
        tensor(3, "layers.2.a", second_moment=moment(0.0, zeros=6)),
        tensor(4, "layers.2.b", moment_ratio=0.5),
        tensor(5, "layers.3.a", first_moment=moment(NAN, nonfinite=1)),
    ]
    table = tensor_table(evidence(*rows))
    assert [row.name for row in table.rows] == [
        "layers.3.a", "layers.2.a", "layers.2.b", "layers.1.a", "layers.0.b", "layers.0.a",
    ]  # fmt: skip
    assert [remark_of(row) for row in table.rows] == ["nonfinite", "dead", "", "1 zero row", "", ""]


def test_the_table_is_bounded_unless_all_is_asked_for():
    found = evidence(*[tensor(key, f"layers.{key}.a") for key in range(100)])
    assert text_of(found).count("\n  a ") == 40
    assert "60 more of 100 tensors (--all shows them)" in text_of(found)
    assert text_of(found, everything=True).count("\n  a ") == 100


def test_what_was_left_out_is_told():
    header = TensorHeader(name="head.w", shape=(2, 3), dtype="F32", rms=0.5)
    found = evidence(tensor(0, "h.3.w"), tensor(1, "h.4.w"), weights=[header], attribution=Attribution.NAMED)
    document = validated(tensor_table(found).to_json())
    assert document["groups"] == [{"lr": 0.1}]
    found = evidence(tensor(0, "h.3.w"), tensor(1, "h.4.w"), stateless=("h.5.w", "h.6.w", "h.7.w"))
    document = validated(tensor_table(found).to_json())
    (left,) = document["left_out"]
    assert (left["how"], left["meant"], left["parameters"]) == ("without-state", False, ["h.5.w", "h.6.w", "h.7.w"])
    assert "3 parameters without state, by mistake?" in text_of(found).replace("\x1b[33m\x1b[1m", "").replace(
        "\x1b[0m", ""
    )


HOSTILE = ["\x1b[31mred\x1b]0;x\x07", "a\nPASS  everything", "\u202egnp.exe", "<script>alert(1)</script>", "x" * 10_000]


def test_of_amsgrad_no_step_is_told():
    header = TensorHeader(name="a", shape=(2, 3), dtype="F32", rms=0.1, stats=moment())
    rows = [
        tensor_table(evidence(tensor(0, "a", kind=kind, moment_ratio=0.5), weights=[header])).rows[0]
        for kind in ("adam", "amsgrad")
    ]
    assert rows[0].update_ratio > 0
    assert rows[1].update_ratio is None
    assert rows[1].snr == rows[0].snr


@pytest.mark.parametrize(
    "name", [*HOSTILE, *(f"layers.1.{one}" for one in HOSTILE), *(f"{one}.layers.1.a" for one in HOSTILE)]
)
def test_hostile_names_are_inert(name):
    header = TensorHeader(name=f"w{name}", shape=(2,), dtype="F32", stats=moment(NAN, nonfinite=1))
    found = evidence(tensor(0, name), weights=[header])
    lines = list(tensor_lines(tensor_table(found), everything=True))
    for line in lines:
        shown = line.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[31m", "").replace("\x1b[0m", "")
        assert shown.isprintable()
        assert len(shown) < 300
    assert not any(line.startswith("PASS") for line in lines)
    validated(tensor_table(found).to_json())


@pytest.fixture
def run():
    def invoke(*arguments):
        return CliRunner().invoke(cli, ["tensors", *map(str, arguments)], catch_exceptions=False)

    return invoke


def test_a_checkpoint_on_the_command_line(run):
    result = run(ADAPTER)
    assert result.exit_code == 0
    assert "names by an assumed order of the parameters, which their contents confirm" in result.stdout
    assert "base_model.model.model.layers.11" in result.stdout
    assert "self_attn.v_proj.lora_B.weight" in result.stdout
    assert result.stderr == ""


def test_a_checkpoint_as_json(run):
    result = run(ADAPTER, "--json")
    document = validated(json.loads(result.stdout))
    assert document["attribution"] == "content-checked"
    assert document["optimizer"] == "adam"
    assert sorted(one["id"] for one in document["tensors"]) == list(range(12))
    assert {one["layer"] for one in document["tensors"]} == {2, 5, 11}
    assert document["weights"] == []


def test_the_library_gives_the_same_table():
    table = tracker_health.read_tensors(ADAPTER)
    assert table.attribution is Attribution.CONTENT_CHECKED
    assert len(table.rows) == 12


def test_a_run_without_a_checkpoint_says_so(run, write_log, healthy_losses):
    result = run(write_log(healthy_losses))
    assert result.exit_code == 0
    assert "no optimizer state or weights were found" in result.stderr
    assert "give the folder" in result.stderr
    document = validated(json.loads(run(write_log(healthy_losses), "--json").stdout))
    assert document["tensors"] == []


def test_an_optimizer_that_keeps_nothing_is_no_missing_checkpoint():
    nothing = OptimizerState(source="optimizer.pt", tensors=(), groups=({"lr": 0.1},))
    table = tensor_table(replace(evidence(), optimizer=nothing))
    assert table.missing == ""
    assert "optimizer.pt: no moments that are read, 0 tensors" in "\n".join(tensor_lines(table))


def test_what_cannot_be_read_is_told(run, tmp_path):
    (tmp_path / "optimizer.pt").write_bytes(b"broken")
    result = run(tmp_path, "--json")
    assert result.exit_code == 3
    assert "optimizer.pt" in result.stderr
    (error,) = validated(json.loads(result.stdout))["errors"]
    assert error["source"] == "optimizer.pt"


def test_a_run_that_is_not_there(run, tmp_path):
    assert run(tmp_path / "none").exit_code == 3
    assert run(ADAPTER, "--max-download", "much").exit_code == 2


def test_of_several_checkpoints_one_is_chosen(run, tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "optimizer.pt").write_bytes((ADAPTER / "optimizer.pt").read_bytes())
    assert "several unrelated checkpoints" in run(tmp_path).stderr
    assert json.loads(run(tmp_path, "--json", "--checkpoint", "first").stdout)["source"] == "first/optimizer.pt"


def test_a_problem_beside_what_was_read(run):
    found = evidence(tensor(0, "a"), problems=[Problem(source="w", message="gone")])
    assert tensor_table(found).problems == (("w", "gone"),)
