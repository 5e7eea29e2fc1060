"""Which files hold a checkpoint's weights, what is read of them, and how far they moved since the one before."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tracker_health.api import check
from tracker_health.evidence import Attribution, Part, Request, TensorHeader, Weights
from tracker_health.roles import RolePlan
from tracker_health.run_files import weights
from tracker_health.run_files.reading import read_files, relevant_files
from tracker_health.stores.folder.directory import DirectoryRun

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402

ADAPTER = Path(__file__).parent.parent / "data" / "attribution" / "lora_layers"


def read(folder, *, parts=frozenset(Part)):
    return read_files(DirectoryRun(folder), Request(roles=RolePlan(), parts=frozenset(parts)))


def save_optimizer(folder, *shapes, steps=3, **beside):
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        key: {"step": torch.tensor(float(steps)), "exp_avg": torch.ones(shape), "exp_avg_sq": torch.ones(shape)}
        for key, shape in enumerate(shapes)
    }
    document = {"state": state, "param_groups": [{"lr": 0.1, "params": list(range(len(shapes)))}]}
    torch.save({"optimizer_states": [document], **beside} if beside else document, folder / "optimizer.pt")


def name_of_all(found):
    return [tensor.name for tensor in found.optimizer.tensors]


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
     torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool],
)  # fmt: skip
def test_statistics_against_torch(dtype, tmp_path):
    values = (torch.arange(70_000).reshape(7, 10_000) % 7).to(torch.float32)
    values[2] = 0.0
    tensor = values.to(dtype)
    save_optimizer(tmp_path, (7, 10_000))
    save_file({"a.weight": tensor}, tmp_path / "model.safetensors")
    (one,) = read(tmp_path).weights.tensors
    exact = tensor.to(torch.float64)
    assert one.stats.count == 70_000
    assert one.stats.mean == pytest.approx(float(exact.mean()), rel=1e-12)
    assert one.stats.rms == pytest.approx(float(exact.pow(2).mean().sqrt()), rel=1e-12)
    assert (one.stats.minimum, one.stats.maximum) == (float(exact.min()), float(exact.max()))
    assert one.stats.zeros == int((exact == 0).sum())
    assert one.stats.zero_rows == 1
    assert one.stats.nonfinite == 0
    assert (one.rms is not None) == (dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16))


def test_what_is_not_finite_is_counted(tmp_path):
    save_optimizer(tmp_path, (3,))
    save_file({"a": torch.tensor([1.0, float("nan"), float("inf")])}, tmp_path / "model.safetensors")
    (one,) = read(tmp_path).weights.tensors
    assert one.stats.nonfinite == 2


def save_shards(folder, *, count=3, index=True):
    folder.mkdir(parents=True, exist_ok=True)
    listed = {}
    for number in range(1, count + 1):
        name = f"model-{number:05d}-of-{count:05d}.safetensors"
        save_file({f"layers.{number}.weight": torch.full((2, number), float(number))}, folder / name)
        listed[f"layers.{number}.weight"] = name
    if index:
        document = {"metadata": {}, "weight_map": listed}
        (folder / "model.safetensors.index.json").write_text(json.dumps(document))


@pytest.mark.parametrize("index", [True, False])
def test_shards_are_one_model(tmp_path, index):
    save_optimizer(tmp_path, (2, 1), (2, 2), (2, 3))
    save_shards(tmp_path, index=index)
    found = read(tmp_path)
    assert [tensor.name for tensor in found.weights.tensors] == [f"layers.{number}.weight" for number in (1, 2, 3)]
    assert found.problems == []
    assert name_of_all(found) == ["layers.1.weight", "layers.2.weight", "layers.3.weight"]


@pytest.mark.parametrize("index", [True, False])
def test_a_missing_shard_is_told_and_the_rest_used(tmp_path, index):
    save_optimizer(tmp_path, (2, 1), (2, 2), (2, 3))
    save_shards(tmp_path, index=index)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    found = read(tmp_path)
    assert [tensor.name for tensor in found.weights.tensors] == ["layers.1.weight", "layers.3.weight"]
    (problem,) = found.problems
    assert "model-00002-of-00003.safetensors of the weights is missing; the rest is used" in problem.message
    assert not problem.roles
    assert found.optimizer.attribution is Attribution.UNATTRIBUTED


def test_the_index_says_which_shards_count(tmp_path):
    save_optimizer(tmp_path, (2, 1), (2, 2))
    save_shards(tmp_path, count=2)
    save_file({"old": torch.zeros(2)}, tmp_path / "model-00001-of-00009.safetensors")
    assert [one.name for one in read(tmp_path).weights.tensors] == ["layers.1.weight", "layers.2.weight"]


def test_an_index_cannot_point_out_of_its_folder(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    save_optimizer(folder, (2, 1))
    save_shards(folder, count=1)
    save_file({"other": torch.zeros(2)}, tmp_path / "other.safetensors")
    listed = {"layers.1.weight": "model-00001-of-00001.safetensors", "other": "../other.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    found = read(folder)
    assert [one.name for one in found.weights.tensors] == ["layers.1.weight"]
    assert "../other.safetensors of the weights is missing" in found.problems[0].message


def test_shards_of_more_tensors_than_any_model_has_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "MAX_TENSORS", 2)
    save_optimizer(tmp_path, (2, 1))
    save_shards(tmp_path)
    found = read(tmp_path)
    assert found.weights is None
    assert "more than the 2 tensors" in found.problems[0].message


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": {"a": "../../etc/passwd"}}', "[" * 100_000, '{"a"'])
def test_an_index_that_makes_no_sense_is_passed_over(tmp_path, content):
    save_optimizer(tmp_path, (2, 1), (2, 2))
    save_shards(tmp_path, count=2, index=False)
    (tmp_path / "model.safetensors.index.json").write_text(content)
    assert len(read(tmp_path).weights.tensors) == 2


def test_the_index_is_part_of_the_fingerprint(tmp_path):
    save_shards(tmp_path, count=2)
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    relevant = {file.name for file in relevant_files(DirectoryRun(tmp_path))}
    assert {"model.safetensors.index.json", "pytorch_model.bin"} <= relevant


def test_torch_weights_beside_the_state(tmp_path):
    save_optimizer(tmp_path, (3, 2), (3,), (4, 3))
    model = {"zeta.weight": torch.ones(3, 2), "zeta.bias": torch.zeros(3), "alpha.weight": torch.ones(4, 3)}
    torch.save(model, tmp_path / "pytorch_model.bin")
    found = read(tmp_path)
    assert found.weights.in_order
    assert name_of_all(found) == list(model)
    assert found.weights.tensors[1].stats.zeros == 3


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
def test_weights_in_the_same_file(tmp_path, key):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    torch.save({key: model.state_dict(), "optimizer_states": [optimizer.state_dict()]}, tmp_path / "epoch=1.ckpt")
    found = read(tmp_path)
    assert name_of_all(found) == [name for name, _ in model.named_parameters()]
    assert found.optimizer.attribution is Attribution.ASSUMED_ORDER


def test_tied_weights_in_the_same_file_are_one(tmp_path):
    shared = torch.ones(5, 2)
    save = {"model": {"embed.weight": shared, "body.weight": torch.ones(2, 2), "head.weight": shared}}
    save_optimizer(tmp_path, (5, 2), (2, 2), **save)
    (tmp_path / "optimizer.pt").rename(tmp_path / "last.ckpt")
    assert name_of_all(read(tmp_path)) == ["embed.weight", "body.weight"]


def test_a_state_dict_that_was_sorted_is_in_no_order(tmp_path):
    model = {f"{letter}.weight": torch.ones(2, 2) for letter in "abc"}
    save_optimizer(tmp_path, *[(2, 2)] * 3, model=model)
    (tmp_path / "optimizer.pt").rename(tmp_path / "last.ckpt")
    found = read(tmp_path)
    assert not found.weights.in_order
    assert name_of_all(found) == [None] * 3


def test_an_adapter_early_in_training_is_checked_by_its_contents():
    found = read(ADAPTER)
    assert found.optimizer.attribution is Attribution.CONTENT_CHECKED
    assert name_of_all(found)[0] == "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight"


def test_contents_that_contradict_take_the_names_away(tmp_path):
    shutil.copytree(ADAPTER, tmp_path / "run")
    path = tmp_path / "run" / "optimizer.pt"
    document = torch.load(path, weights_only=True)
    state = document["state"]
    state[1], state[5] = state[5], state[1]
    path.unlink()
    torch.save(document, path)
    found = read(tmp_path / "run")
    assert found.optimizer.attribution is Attribution.UNATTRIBUTED
    assert name_of_all(found) == [None] * 12


def test_a_family_that_misleads_is_known_by_the_adapters_configuration(tmp_path):
    shutil.copytree(ADAPTER, tmp_path / "run")
    config = {"base_model_name_or_path": "facebook/xglm-564M"}
    (tmp_path / "run" / "adapter_config.json").write_text(json.dumps(config))
    assert read(tmp_path / "run").optimizer.attribution is Attribution.UNATTRIBUTED


@pytest.mark.parametrize(
    ("config", "task", "beside"),
    [
        ({"task_type": "SEQ_CLS", "modules_to_save": None}, "SEQ_CLS", ()),
        ({"task_type": "SEQ_CLS", "modules_to_save": ["score"]}, "SEQ_CLS", ("score",)),
        ({"task_type": ["x"], "modules_to_save": "score"}, "", ()),
        ([], "", ()),
    ],
)
def test_what_the_adapters_configuration_says(tmp_path, config, task, beside):
    shutil.copytree(ADAPTER, tmp_path / "run")
    (tmp_path / "run" / "adapter_config.json").write_text(json.dumps(config))
    weights = read(tmp_path / "run").weights
    assert (weights.task, weights.saved_beside) == (task, beside)
    found = [one for one in check(tmp_path / "run").findings if one.code == "WGT008"]
    assert bool(found) == (task == "SEQ_CLS" and not beside)


def save_pair(folder, before, after):
    for step, tensors in ((2, before), (4, after)):
        save_optimizer(folder / f"checkpoint-{step}", (2,), steps=step)
        save_file(tensors, folder / f"checkpoint-{step}" / "model.safetensors")


def test_changes_since_the_checkpoint_before(tmp_path):
    nan = float("nan")
    before = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([nan, 1.0]), "c": torch.ones(3), "gone": torch.ones(2)}
    after = {"a": torch.tensor([1.0, 5.0]), "b": torch.tensor([nan, 1.0]), "c": torch.ones(2), "new": torch.ones(2)}
    save_pair(tmp_path, before, after)
    weights = read(tmp_path).weights
    assert weights.previous == "checkpoint-2/model.safetensors"
    found = {one.name: one for one in weights.changes}
    assert set(found) == {"a", "b"}
    assert found["a"].rms == pytest.approx(3.0 / np.sqrt(2.0))
    assert not found["a"].unchanged
    assert found["b"].unchanged
    assert found["b"].rms == 0.0


def test_changes_are_read_only_where_they_are_needed(tmp_path):
    save_pair(tmp_path, {"a": torch.ones(2)}, {"a": torch.zeros(2)})
    weights = read(tmp_path, parts={Part.OPTIMIZER_STATE, Part.WEIGHTS}).weights
    assert weights.changes == ()
    assert weights.previous == ""
    assert read(tmp_path, parts={Part.OPTIMIZER_STATE}).weights.tensors[0].stats is None


@pytest.mark.parametrize(
    ("others", "previous"),
    [
        ({"epoch_2": 2.0, "epoch_3": 3.0}, "epoch_3.pt"),
        ({"epoch_2": 2.0, "epoch_3": 4.0}, "epoch_2.pt"),  # the last one may be a copy of the newest
        ({"epoch_3": 4.0}, "epoch_3.pt"),
        ({"best": 3.0}, "best.pt"),
        ({"best": 2.0, "epoch_3": 3.0}, "epoch_3.pt"),
    ],
)
def test_the_last_checkpoint_is_compared_with_what_lies_beside_it(others, previous, tmp_path):
    for name, value in (others | {"last": 4.0}).items():
        save_optimizer(
            tmp_path / "new", (4, 2), model={"a.weight": torch.full((4, 2), value), "b.weight": torch.ones(4)}
        )
        (tmp_path / "new" / "optimizer.pt").rename(tmp_path / f"{name}.pt")
    weights = read(tmp_path).weights
    assert (weights.source, weights.previous) == ("last.pt", previous)


def test_changes_between_files_of_different_kinds(tmp_path):
    save_pair(tmp_path, {"a": torch.ones(2)}, {"a": torch.ones(2)})
    (tmp_path / "checkpoint-2" / "model.safetensors").unlink()
    torch.save({"a": torch.full((2,), 3.0)}, tmp_path / "checkpoint-2" / "pytorch_model.bin")
    (change,) = read(tmp_path).weights.changes
    assert change.rms == 2.0


def test_an_earlier_checkpoint_that_cannot_be_read_is_told(tmp_path):
    save_pair(tmp_path, {"a": torch.ones(2)}, {"a": torch.zeros(2)})
    (tmp_path / "checkpoint-2" / "model.safetensors").write_bytes(b"broken")
    found = read(tmp_path)
    assert found.weights.changes == ()
    (problem,) = found.problems
    assert problem.roles == {Part.WEIGHT_CHANGES}


def test_names_in_the_file_are_the_best(tmp_path):
    moments = {"step": torch.tensor(3.0), "exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)}
    by_name = {"state": {"layers.1.w": moments}, "param_groups": [{"lr": 0.1, "params": ["layers.1.w"]}]}
    given = {"state": {0: moments}, "param_groups": [{"lr": 0.1, "params": [0], "param_names": ["layers.1.w"]}]}
    for number, document in enumerate((by_name, given)):
        folder = tmp_path / f"seed{number}"
        folder.mkdir()
        torch.save(document, folder / "optimizer.pt")
        save_file({"other": torch.ones(2)}, folder / "model.safetensors")
        found = read(folder)
        assert found.optimizer.attribution is Attribution.NAMED
        assert name_of_all(found) == ["layers.1.w"]
        assert all(one.certain_name is not None for one in found.optimizer.tensors)


def test_an_id_that_was_made_a_text_is_no_name(tmp_path):
    moments = {"step": torch.tensor(3.0), "exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)}
    torch.save({"state": {"0": moments}, "param_groups": [{"lr": 0.1, "params": ["0"]}]}, tmp_path / "optimizer.pt")
    assert read(tmp_path).optimizer.attribution is Attribution.UNATTRIBUTED


# Weights without an optimizer's state


def network(nan=False):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    if nan:
        model[1].weight.data[0, 0] = float("nan")
    return model.state_dict()


ALONE = {
    "model.safetensors": lambda path, weights: save_file(weights, path),
    "checkpoint-300/model.safetensors": lambda path, weights: save_file(weights, path),
    "pytorch_model.bin": lambda path, weights: torch.save(weights, path),
    "best.pt": lambda path, weights: torch.save(weights, path),
    "net_epoch_5.pth": lambda path, weights: torch.save({"model": weights, "epoch": 5}, path),
    "final.ckpt": lambda path, weights: torch.save({"state_dict": weights}, path),
}


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("nan", [False, True])
def test_weights_alone_are_read_and_judged(name, nan, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    ALONE[name](tmp_path / name, network(nan))
    (tmp_path / "log.jsonl").write_text("".join(f'{{"step": {step}, "loss": {9 / (step + 1)}}}\n' for step in range(9)))
    assert read(tmp_path).weights.source == name
    report = check(tmp_path)
    (result,) = [one for one in report.results if one.code == "WGT001"]
    assert (result.verdict, report.verdict) == (("fail", "fail") if nan else ("pass", "pass"))


def test_weights_alone_are_those_of_the_newest_checkpoint(tmp_path):
    for step in (90, 100, 20):
        (tmp_path / f"checkpoint-{step}").mkdir()
        save_file(network(), tmp_path / f"checkpoint-{step}" / "model.safetensors")
    found = read(tmp_path).weights
    assert (found.source, found.previous) == (
        "checkpoint-100/model.safetensors",
        "checkpoint-90/model.safetensors",
    )


def test_several_unrelated_weights_are_told(tmp_path):
    for part in ("unet", "vae"):
        (tmp_path / part).mkdir()
        save_file(network(), tmp_path / part / "model.safetensors")
    found = read(tmp_path)
    assert found.weights is None
    assert "unrelated weights: unet/model.safetensors, vae/model.safetensors" in found.missing[Part.WEIGHTS]


def test_the_last_weights_are_taken_and_not_compared_with_the_best(tmp_path):
    """They may well be the same: that is no model that stood still."""
    for name in ("best.safetensors", "last.safetensors"):
        save_file(network(), tmp_path / name)
    found = read(tmp_path).weights
    assert (found.source, found.previous) == ("last.safetensors", "")


def test_torch_files_of_the_best_and_the_last_model_belong_together(tmp_path):
    for name in ("best.pt", "last.pt"):
        torch.save(network(), tmp_path / name)
    assert read(tmp_path).weights.source == "last.pt"


def test_data_in_tensors_are_no_weights(tmp_path):
    data = {"images": torch.full((4, 4), float("nan")), "weight": torch.ones(4)}
    torch.save(data, tmp_path / "train.pt")
    assert read(tmp_path).weights is None
    save_file(data, tmp_path / "train.safetensors")
    found = read(tmp_path)
    assert (found.weights, found.problems) == (None, [])
    assert "holds no model's weights" in found.missing[Part.WEIGHTS]


def test_one_shard_alone_is_no_error(tmp_path):
    save_file(network(), tmp_path / "model-00001-of-00002.safetensors")
    found = read(tmp_path)
    assert (found.weights, found.problems) == (None, [])
    assert "is missing" in found.missing[Part.WEIGHTS]


def test_the_models_own_weights_come_before_others(tmp_path):
    save_optimizer(tmp_path, (8, 8), (8,), (2, 8), (2,))
    for name in ("init", "model"):
        save_file(network(), tmp_path / f"{name}.safetensors")
    assert read(tmp_path).weights.source == "model.safetensors"


def test_weights_alone_are_not_opened_where_no_rule_needs_them(tmp_path):
    save_file(network(), tmp_path / "model.safetensors")
    assert read(tmp_path, parts={Part.OPTIMIZER_STATE}).weights is None


# Adapters


def header(name, *shape):
    return TensorHeader(name=name, shape=shape, dtype="F32")


@pytest.mark.parametrize(
    ("more", "is_adapter"),
    [
        ([], True),
        ([("base_model.model.q.bias", 8), ("base_model.model.classifier.weight", 2, 8)], True),
        ([("base_model.model.q.base_layer.weight", 8, 8)], False),
        ([("base_model.model.q.weight", 8, 8)], False),
    ],
)
def test_a_model_with_its_adapter_is_no_adapter_file(more, is_adapter):
    factors = [("base_model.model.q.lora_A.weight", 2, 8), ("base_model.model.q.lora_B.weight", 8, 2)]
    found = Weights(source="a", tensors=tuple(header(*one) for one in (*factors, *more)))
    assert (found.is_adapter, found.has_adapter) == (is_adapter, True)
