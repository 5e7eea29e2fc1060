"""DeepSpeed's ZeRO. ``data/deepspeed`` was written by DeepSpeed 0.19.8 on two processes (bf16, AdamW with two groups),

and ``truth.pt`` is what its own ``safe_get_full_optimizer_state`` gave of each parameter. What else there is (missing
ranks, several model ranks, older and damaged files) is made from these by hand.
"""

from __future__ import annotations

import shutil
from collections import OrderedDict
from pathlib import Path

import pytest

from tracker_health.errors import ReadError
from tracker_health.evidence import Attribution
from tracker_health.readers.checkpoint_formats import NameMatch
from tracker_health.readers.checkpoint_formats.deepspeed import DeepSpeedZero
from tracker_health.readers.files.folder import LocalFolder
from tracker_health.text import printable

torch = pytest.importorskip("torch")

FORMAT = DeepSpeedZero()
DATA = Path(__file__).parents[1] / "data" / "deepspeed"
RANK = "bf16_zero_pp_rank_{}_mp_rank_00_optim_states.pt"


def read(folder):
    files = LocalFolder(folder)
    (lead,) = FORMAT.leads(files.names)
    return FORMAT.read(files, lead, "file")


@pytest.fixture
def copied(tmp_path):
    def copy(stage):
        return Path(shutil.copytree(DATA / stage / "global_step3", tmp_path / stage))

    return copy


def refused(folder):
    with pytest.raises(ReadError) as caught:
        read(folder)
    message = str(caught.value)
    assert message == printable(message, 500)
    return message


@pytest.mark.parametrize("stage", ["zero2", "zero3"])
def test_each_parameter_is_put_together_from_all_ranks(stage):
    truth = torch.load(DATA / stage / "truth.pt", weights_only=True)
    found = read(DATA / stage / "global_step3")
    assert {one.name for one in found.tensors} == set(truth)
    for tensor in found.tensors:
        for stats, key in ((tensor.first_moment, "exp_avg"), (tensor.second_moment, "exp_avg_sq")):
            values = truth[tensor.name][key].double()
            assert (tensor.shape, stats.count) == (tuple(values.shape), values.numel())
            assert (stats.minimum, stats.maximum) == (float(values.min()), float(values.max()))
            assert stats.zeros == int((values == 0).sum())
            assert stats.mean == pytest.approx(float(values.mean()), rel=1e-9, abs=1e-15)
            assert stats.rms == pytest.approx(float(values.square().mean().sqrt()), rel=1e-12)
        assert (tensor.step, tensor.kind, tensor.group) == (3.0, "adam", 0 if len(tensor.shape) == 2 else 1)
        assert (tensor.first_moment.zero_rows is None) == (len(tensor.shape) == 1)
    assert [group["weight_decay"] for group in found.groups] == [0.1, 0.0]
    assert (found.global_step, found.attribution, found.extras["mine"]) == (3, Attribution.NAMED, 5)


def test_the_weights_of_stage_two_are_told_by_name_and_shape():
    files = LocalFolder(DATA / "zero2" / "global_step3")
    (lead,) = FORMAT.leads(files.names)
    weights = FORMAT.weights(files, lead, "file")
    assert [(one.name, one.shape, one.dtype) for one in weights.tensors][:2] == [
        ("0.weight", (11, 7), "BF16"),
        ("0.bias", (11,), "BF16"),
    ]
    assert FORMAT.weights(LocalFolder(DATA / "zero3" / "global_step3"), lead, "file") is None


@pytest.mark.parametrize("stage", ["zero2", "zero3"])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_ranks_that_are_missing_are_named(copied, stage, rank):
    folder = copied(stage)
    (folder / RANK.format(rank)).unlink()
    assert refused(folder) == (f"of 2 ranks' files those of rank {rank} are missing; each has a part of every layer")


def test_without_shapes_a_parameter_of_stage_two_is_flat(copied):
    folder = copied("zero2")
    (folder / "mp_rank_00_model_states.pt").unlink()
    found = {one.name: one for one in read(folder).tensors}
    assert found["0.weight"].shape == (77,)
    assert found["0.weight"].step == 3.0


def test_without_shapes_stage_three_has_whole_partitions(copied):
    folder = copied("zero3")
    for rank in (0, 1):
        (folder / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt").unlink()
    found = read(folder)
    assert {one.optimizer for one in found.tensors} == {"rank_0", "rank_1"}
    assert found.attribution is Attribution.UNATTRIBUTED
    assert all(one.second_moment is not None for one in found.tensors)


def test_ranks_in_model_parallelism_are_kept_apart(copied):
    folder = copied("zero2")
    for name in (RANK.format(0), RANK.format(1), "mp_rank_00_model_states.pt"):
        shutil.copy(folder / name, folder / name.replace("mp_rank_00", "mp_rank_01"))
    found = read(folder)
    assert {one.optimizer for one in found.tensors} == {"mp_rank_00", "mp_rank_01"}
    assert len(found.tensors) == 14


@pytest.fixture
def changed(copied, tmp_path, monkeypatch):
    """Change what one rank's file of stage 2 says; without deepspeed, so that its classes are stood in for."""
    import sys
    import types

    for name in ("deepspeed", "deepspeed.utils", "deepspeed.utils.tensor_fragment"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))

    class fragment_address:  # noqa: N801  # DeepSpeed's
        __module__ = "deepspeed.utils.tensor_fragment"
        __qualname__ = "fragment_address"

        def __init__(self, start, numel):
            self.numel, self.start = numel, start

    sys.modules["deepspeed.utils.tensor_fragment"].fragment_address = fragment_address

    def make(ranks=1, slices=((0, 6),), moments=6, times=1, **beside):
        folder = tmp_path / "made"
        folder.mkdir()
        for rank in range(ranks):
            values = torch.arange(1.0, moments + 1) + rank * moments
            state = {"step": torch.tensor(2.0), "exp_avg": values, "exp_avg_sq": values}
            mapping = OrderedDict((f"w{at}", fragment_address(*one)) for at, one in enumerate(slices))
            saved = {
                "base_optimizer_state": {"state": {0: state}, "param_groups": [{"lr": 0.1, "params": [0]}]},
                "partition_count": [ranks],
                "param_slice_mappings": [mapping] * times,
                **beside,
            }
            torch.save({"optimizer_state_dict": saved}, folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
        return folder

    return make


def test_a_parameter_lies_across_ranks(changed):
    (tensor,) = read(changed(ranks=3)).tensors
    assert (tensor.name, tensor.shape, tensor.second_moment.mean) == ("w0", (18,), 9.5)


def test_an_elastic_checkpoint_has_a_list_of_groups(changed):
    values = torch.tensor([1.0, 2.0])
    folder = changed(slices=((0, 2),), base_optimizer_state=[{"exp_avg": values, "exp_avg_sq": values, "step": 2}])
    (tensor,) = read(folder).tensors
    assert (tensor.second_moment.mean, tensor.step) == (1.5, 2.0)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"slices": ((0, 7),)}, "7 values from 0 on are not in a partition of shape [6]"),
        ({"slices": ((-1, 2),)}, "are not in a partition"),
        ({"slices": ((0, -2),)}, "are not in a partition"),
        ({"slices": ((0, 10**15),)}, "are not in a partition"),
        ({"slices": ((0, 6000),) * 30, "moments": 6000}, "overlap"),
        ({"slices": ((0, 4), (2, 4))}, "two parts of the parameters overlap in the file of rank 0"),
        ({"slices": ((0, 0),) * 1000, "times": 100}, "cuts the parameters into more than"),
        ({"base_optimizer_state": {"state": {0: {}}, "param_groups": [{"params": [0] * 1000}] * 3000}}, "list more than"),
        ({"partition_count": []}, "does not say how many ranks"),
        ({"partition_count": [10**9]}, "does not say how many ranks"),
        ({"partition_count": ["2"]}, "does not say how many ranks"),
        ({"partition_count": [3]}, "those of rank 1, 2 are missing"),
        ({"param_slice_mappings": None}, "does not say which part belongs to which parameter"),
        ({"param_slice_mappings": [{"w": 5}]}, "in an unknown way"),
        ({"base_optimizer_state": None}, "no optimizer state"),
        ({"base_optimizer_state": {"state": {}, "param_groups": []}}, "lacks the state of a group"),
    ],
)  # fmt: skip
def test_a_file_that_lies_is_refused_in_one_line(changed, how, told):
    assert told in refused(changed(**how))


@pytest.mark.slow
def test_shapes_of_too_many_parameters_are_refused(changed):
    folder = changed()
    shapes = {f"w{one}": torch.Size([2]) for one in range(40_001)}
    torch.save({"param_shapes": [shapes]}, folder / "mp_rank_00_model_states.pt")
    assert "shapes of more than" in refused(folder)


@pytest.mark.exhaustive
def test_what_is_kept_for_a_parameter_is_bounded(changed):
    values = torch.tensor([1.0, 2.0])
    entry = {"exp_avg": values, "exp_avg_sq": values} | dict.fromkeys(range(100_000))
    shared = {"state": {0: entry}, "param_groups": []}
    folder = changed(slices=((0, 2), *((0, 0),) * 10_000), base_optimizer_state=shared)
    assert len(read(folder).tensors) == 10_001


def test_a_cut_file_is_named(copied):
    folder = copied("zero2")
    (folder / RANK.format(1)).write_bytes((folder / RANK.format(1)).read_bytes()[:3000])
    assert refused(folder).startswith(f"{RANK.format(1)}: ")


def test_the_lowest_rank_leads():
    names = [RANK.format(10), RANK.format(2), "mp_rank_00_model_states.pt", "other.pt"]
    assert FORMAT.leads(names) == {RANK.format(2): NameMatch.SURE}
    assert FORMAT.belongs("zero_pp_rank_0_mp_rank_00_model_states.pt")
    assert not FORMAT.belongs("other.pt")
