"""Torch's distributed checkpoints: torch itself is the oracle, and whatever lies is told in one line."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tracker_health.errors import ReadError
from tracker_health.evidence import Attribution
from tracker_health.readers.checkpoint_formats import NameMatch
from tracker_health.readers.checkpoint_formats.torch_distributed import LEAD, TorchDistributed
from tracker_health.readers.files.folder import LocalFolder
from tracker_health.readers.optimizers.optimizer_state import read_optimizer_state
from tracker_health.text import printable

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")
filesystem = pytest.importorskip("torch.distributed.checkpoint.filesystem")
meta = pytest.importorskip("torch.distributed.checkpoint.metadata")

pytestmark = pytest.mark.filterwarnings("ignore")

FORMAT = TorchDistributed()


def read(folder):
    return FORMAT.read(LocalFolder(folder), LEAD, "file")


def trained(make=torch.optim.AdamW, **settings):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(7, 11), torch.nn.LayerNorm(11), torch.nn.Linear(11, 5, bias=False))
    matrices = [one for one in model.parameters() if one.dim() > 1]
    vectors = [one for one in model.parameters() if one.dim() == 1]
    optimizer = make([{"params": matrices}, {"params": vectors, "lr": 0.5}], **{"lr": 1e-3, **settings})
    for _ in range(3):
        model(torch.randn(4, 7)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def save(state, folder):
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, sync_files=False))


def saved(folder, *, flat=False, make=torch.optim.AdamW, **beside):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    model, optimizer = trained(make)
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    weights, state = get_state_dict(model, optimizer, options=options)
    save({"model": weights, "optim": state, **beside}, folder)
    return model, optimizer


def expected(optimizer, tmp_path):
    """What the reader of plain files makes of the same optimizer."""
    torch.save(optimizer.state_dict(), tmp_path / "plain.pt")
    return read_optimizer_state(tmp_path / "plain.pt", "file")


def statistics(state):
    return [
        (one.shape, one.step, one.first_moment, one.second_moment, one.moment_ratio, one.kind) for one in state.tensors
    ]


OPTIMIZERS = [
    torch.optim.AdamW, torch.optim.Adam, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax, torch.optim.RMSprop,
    torch.optim.Adagrad, torch.optim.Adafactor, torch.optim.Adadelta, torch.optim.ASGD, torch.optim.Rprop,
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "flat"), [*((one, False) for one in OPTIMIZERS), (torch.optim.AdamW, True), (torch.optim.Adafactor, True)]
)
def test_an_optimizer_saved_in_parts_is_the_same_as_saved_whole(tmp_path, make, flat):
    model, optimizer = saved(tmp_path / "dcp", flat=flat, make=make, global_step=3)
    found, whole = read(tmp_path / "dcp"), expected(optimizer, tmp_path)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    order = [names[id(one)] for group in optimizer.param_groups for one in group["params"]]
    by_name = {one.name: one for one in found.tensors}
    assert sorted(by_name) == sorted(order)
    ordered = [by_name[name] for name in order]
    assert statistics(type(found)(source="", tensors=tuple(ordered))) == statistics(whole)
    assert [one.group for one in ordered] == [one.group for one in whole.tensors]
    assert [group["lr"] for group in found.groups] == [group["lr"] for group in whole.groups]
    assert (found.global_step, found.attribution, found.source) == (3, Attribution.NAMED, "file")


def test_a_plain_state_dict_has_ids(tmp_path):
    _, optimizer = trained()
    save({"optimizer": optimizer.state_dict(), "step": 3}, tmp_path / "dcp")
    found, whole = read(tmp_path / "dcp"), expected(optimizer, tmp_path)
    assert statistics(found) == statistics(whole)
    assert [one.id for one in found.tensors] == [one.id for one in whole.tensors]
    assert (found.attribution, found.global_step) == (Attribution.UNATTRIBUTED, 3)


def test_several_optimizers_are_kept_apart_and_a_step_may_lie_one_level_below(tmp_path):
    (_, one), (_, two) = trained(), trained(torch.optim.Adamax)
    state = {"optim": {"gen": one.state_dict(), "disc": two.state_dict()}, "train_state": {"step": torch.tensor(8)}}
    save(state, tmp_path)
    found = read(tmp_path)
    assert {(tensor.optimizer, tensor.kind) for tensor in found.tensors} == {
        ("optim.gen", "adam"),
        ("optim.disc", "adamax"),
    }
    assert len(found.groups) == 4
    assert found.global_step == 8


def test_a_step_may_lie_in_a_file_beside_it(tmp_path):
    saved(tmp_path)
    assert read(tmp_path).global_step is None
    torch.save({"global_step": 12, "epoch": 1, "loops": {}}, tmp_path / "meta.pt")
    found = read(tmp_path)
    assert (found.global_step, found.extras) == (12, {"global_step": 12, "epoch": 1})


def test_the_weights_are_told_by_name_and_shape(tmp_path):
    model, _ = saved(tmp_path)
    weights = FORMAT.weights(LocalFolder(tmp_path), LEAD, "file")
    assert [(one.name, one.shape, one.dtype) for one in weights.tensors] == [
        (name, tuple(one.shape), "F32") for name, one in model.state_dict().items()
    ]


def test_weights_alone_hold_no_state(tmp_path):
    model, _ = trained()
    save({"model": model.state_dict()}, tmp_path)
    assert not FORMAT.holds_state(LocalFolder(tmp_path), LEAD)
    with pytest.raises(ReadError, match="no optimizer state"):
        read(tmp_path)


def test_the_sample_is_read_as_torch_reads_it(samples, tmp_path):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    folder = samples / "dcp_flat_olmo_style"
    dcp_to_torch_save(folder, tmp_path / "whole.pt")
    truth = torch.load(tmp_path / "whole.pt", weights_only=False)["optim"]
    found = read(folder)
    assert len(found.tensors) == 50
    for tensor in found.tensors:
        for stats, key in ((tensor.first_moment, "exp_avg"), (tensor.second_moment, "exp_avg_sq")):
            values = truth[f"state.{tensor.name}.{key}"].double()
            assert tensor.shape == tuple(values.shape)
            assert stats.rms == pytest.approx(float(values.square().mean().sqrt()), rel=1e-12)
            assert (stats.maximum, stats.zeros) == (float(values.max()), int((values == 0).sum()))
        assert tensor.step == float(truth[f"state.{tensor.name}.step"])
    assert found.global_step == 7
    assert [group["lr"] for group in found.groups] == [0.001]


# Several processes

SHARDED = """
import os, sys, torch
import torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
rank, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
store = dist.FileStore(folder + "/store", 2)
dist.init_process_group("gloo", rank=rank, world_size=2, store=store)
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
state, whole = {}, {}
for name, shape, place in (
    ("rows", (6, 5), Shard(0)), ("uneven", (5, 4), Shard(0)), ("columns", (4, 6), Shard(1)),
    ("one", (1, 3), Shard(0)), ("same", (3, 3), Replicate()),
):
    whole[name] = {"exp_avg": torch.randn(shape), "exp_avg_sq": torch.rand(shape) + 0.1, "step": torch.tensor(4.0)}
    whole[name]["exp_avg"][0] = 0
    state[name] = {key: value if key == "step" else distribute_tensor(value, mesh, [place])
                   for key, value in whole[name].items()}
dcp.save({"optim": {"state": state, "param_groups": [{"lr": 0.1, "params": list(state)}]}, "step": 4},
         checkpoint_id=folder + "/dcp")
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from torch.distributed.fsdp import fully_shard
model = torch.nn.Sequential(torch.nn.Linear(7, 11), torch.nn.LayerNorm(11), torch.nn.Linear(11, 5))
for layer in (*model, model):
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(4, 7)).square().mean().backward()
    optimizer.step()
for flat in (False, True):
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    dcp.save({"optim": get_optimizer_state_dict(model, optimizer, options=options)},
             checkpoint_id=folder + ("/fsdp_flat" if flat else "/fsdp"))
full = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if rank == 0:
    torch.save(full, folder + "/fsdp.pt")
    torch.save({"state": whole, "param_groups": [{"lr": 0.1, "params": list(whole)}]}, folder + "/whole.pt")
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # a thread of gloo that still lets go of a tensor while Python ends would abort the process
"""


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """The checkpoint of two processes, and the same tensors whole."""
    folder = tmp_path_factory.mktemp("sharded")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SHARDED, str(rank), str(folder)], env=environment, stderr=subprocess.PIPE
        )
        for rank in (0, 1)
    ]
    errors = [one.communicate(timeout=120)[1].decode() for one in ranks]
    if any(one.returncode for one in ranks):
        pytest.skip(f"torch could not save from two processes here: {errors[0][-200:]}")
    return folder


@pytest.mark.exhaustive
@pytest.mark.parametrize(("parts", "whole"), [("dcp", "whole.pt"), ("fsdp", "fsdp.pt"), ("fsdp_flat", "fsdp.pt")])
def test_pieces_of_two_processes_are_the_whole(sharded, parts, whole):
    """Of tensors sharded by hand in every way, and of a model under FSDP2."""
    assert len(list((sharded / parts).glob("*.distcp"))) == 2
    found = {one.name: one for one in read(sharded / parts).tensors}
    expected = read_optimizer_state(sharded / whole, "file").tensors
    assert sorted(found) == sorted(one.name for one in expected)
    for one in expected:
        ours = found[one.name]
        assert (ours.shape, ours.step, ours.kind) == (one.shape, one.step, one.kind)
        assert ours.moment_ratio == pytest.approx(one.moment_ratio, rel=1e-12)
        for mine, theirs in ((ours.first_moment, one.first_moment), (ours.second_moment, one.second_moment)):
            assert (mine.count, mine.zeros, mine.minimum, mine.maximum) == (
                theirs.count, theirs.zeros, theirs.minimum, theirs.maximum
            )  # fmt: skip
            assert (mine.mean, mine.rms) == pytest.approx((theirs.mean, theirs.rms), rel=1e-12, abs=1e-15)
            assert mine.zero_rows == (None if one.name == "columns" else theirs.zero_rows)


@pytest.mark.slow
def test_the_file_of_a_rank_that_is_missing_is_named(sharded, tmp_path):
    for one in (sharded / "dcp").iterdir():
        if not one.name.startswith("__1"):
            (tmp_path / one.name).symlink_to(one)
    with pytest.raises(ReadError, match=r"__1_0\.distcp: this file of the checkpoint is missing"):
        read(tmp_path)


# What lies


def index(folder):
    return pickle.loads((folder / LEAD).read_bytes())


@pytest.fixture
def lying(tmp_path):
    """Change what a checkpoint says of itself, and give the message with which it is refused."""

    def change(how):
        saved(tmp_path, flat=True)
        metadata = index(tmp_path)
        how(metadata)
        (tmp_path / LEAD).write_bytes(pickle.dumps(metadata))
        with pytest.raises(ReadError) as caught:
            read(tmp_path)
        message = str(caught.value)
        assert message == printable(message, 500)
        return message

    return change


MOMENT = "optim.state.0.weight.exp_avg"


def info_of(metadata, name=MOMENT):
    return next(info for where, info in metadata.storage_data.items() if where.fqn == name)


def chunks_of(metadata):
    return metadata.state_dict_metadata[MOMENT].chunks


def set_info(**values):
    return lambda metadata: vars(info_of(metadata)).update(values)


def set_chunk(offsets, sizes):
    def change(metadata):
        chunks_of(metadata)[:] = [meta.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))]
        where = next(one for one in metadata.storage_data if one.fqn == MOMENT)
        metadata.storage_data[meta.MetadataIndex(MOMENT, offsets)] = metadata.storage_data.pop(where)

    return change


def huge(metadata):
    metadata.state_dict_metadata[MOMENT].size = torch.Size([10**9, 10**9])
    set_chunk((0, 0), (10**9, 10**9))(metadata)


def twice(metadata):
    chunks_of(metadata).append(chunks_of(metadata)[0])


def nowhere(metadata):
    del metadata.storage_data[next(one for one in metadata.storage_data if one.fqn == MOMENT)]


def upon_each_other(metadata):
    other = info_of(metadata, "optim.state.0.weight.exp_avg_sq")
    vars(info_of(metadata)).update(offset=other.offset + 8)


def swapped(metadata):
    vars(info_of(metadata)).update(vars(info_of(metadata, "optim.state.1.weight.exp_avg")))
    del metadata.storage_data[next(one for one in metadata.storage_data if one.fqn == "optim.state.1.weight.exp_avg")]
    del metadata.state_dict_metadata["optim.state.1.weight.exp_avg"]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (set_info(offset=10**9), "reaches beyond its end"),
        (set_info(length=10**9), "overlap|reaches beyond its end"),
        (set_info(offset=-1), "says in an unknown way where"),
        (set_info(length=10**400), "says in an unknown way where|malformed"),
        (set_info(relative_path="../other.distcp"), "outside of the folder"),
        (set_info(relative_path="/etc/passwd"), "outside of the folder"),
        (set_info(relative_path="__9_0.distcp"), "__9_0.distcp: this file of the checkpoint is missing"),
        (set_info(transform_descriptors=["zstd"]), "compressed or encrypted"),
        (set_chunk((0, 0), (10, 7)), "cover 10 of 11 in dimension 0"),
        (set_chunk((1, 0), (11, 7)), "overlap, or leave gaps"),
        (set_chunk((0, -1), (11, 7)), "negative offset or size"),
        (set_chunk((0, 0), (11, -7)), "negative offset or size"),
        (set_chunk((0,), (77,)), "another number of dimensions"),
        (huge, "where a piece of shape"),
        (twice, "in 2 pieces, where 1 would cover it once"),
        (nowhere, "does not say where a piece"),
        (upon_each_other, "overlap"),
        (swapped, "where a piece of shape"),
    ],
)  # fmt: skip
def test_an_index_that_lies_is_refused_in_one_line(lying, how, told):
    import re

    assert re.search(told, lying(how))


def test_a_cut_file_is_named(tmp_path):
    saved(tmp_path)
    (file,) = tmp_path.glob("*.distcp")
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(ReadError, match=r"__0_0\.distcp: a part of it.* reaches beyond its end"):
        read(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 100, 1000])
def test_a_cut_index_is_told(tmp_path, size):
    saved(tmp_path)
    (tmp_path / LEAD).write_bytes((tmp_path / LEAD).read_bytes()[:size])
    with pytest.raises(ReadError, match=r"cut short|ends before"):
        read(tmp_path)


class _Calls:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def test_an_index_that_calls_runs_nothing_and_is_reported(tmp_path):
    marker = tmp_path / "ran"
    saved(tmp_path / "dcp")
    metadata = index(tmp_path / "dcp")
    metadata.planner_data = _Calls(marker)
    (tmp_path / "dcp" / LEAD).write_bytes(pickle.dumps(metadata))
    found = read(tmp_path / "dcp")
    assert not marker.exists()
    assert any(stub.endswith(".system") for stub in found.stubs)
    assert len(found.tensors) == 5


def test_an_item_that_calls_runs_nothing_and_is_reported(tmp_path):
    marker = tmp_path / "ran"
    saved(tmp_path / "dcp", flat=True, evil=_Calls(marker))
    found = read(tmp_path / "dcp")
    assert not marker.exists()
    assert any(stub.endswith(".system") for stub in found.stubs)


@pytest.mark.parametrize("value", [None, 5, {}, [], {"state_dict_metadata": {}}, _Calls(Path("never"))])
def test_a_pickle_that_is_no_index_is_refused(tmp_path, value):
    (tmp_path / LEAD).write_bytes(pickle.dumps(value))
    with pytest.raises(ReadError, match="does not describe"):
        read(tmp_path)
    assert not Path("never").exists()


def test_a_record_is_inert_and_takes_any_state():
    from tracker_health.readers.torch_files.safe_pickle import PickledObject, SafePickle

    data = pickle.dumps({meta.MetadataIndex("a", (1, 2)): meta.BytesStorageMetadata()})
    names = {f"torch.distributed.checkpoint.metadata.{name}" for name in ("MetadataIndex", "BytesStorageMetadata")}
    ((key, value),) = SafePickle(data, records=names).load().items()
    assert isinstance(key, PickledObject)
    assert key.get("fqn") == "a"
    assert (key.get("nothing"), value.get("anything"), value.state) == (None, None, None)


def written(folder, tensors, storage):
    (folder / LEAD).write_bytes(pickle.dumps(meta.Metadata(tensors, None, storage)))
    return folder


def described(chunks, size=(4,)):
    return meta.TensorStorageMetadata(meta.TensorProperties(), torch.Size(size), chunks)


def piece(offsets=(0,), sizes=(4,)):
    return meta.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))


def shared_pieces():
    """A list of 30,000 pieces that 10,000 tensors share: 300 million of them."""
    chunks = [piece()] * 30_000
    return {f"optim.state.w{one}.exp_avg": described(chunks) for one in range(10_000)}


def many_optimizers():
    return {f"o{one}.state.w.exp_avg": described([piece()]) for one in range(10_000)}


def winding_names():
    return {"state." * 160 + f"{one}.": described([piece()]) for one in range(10_000)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "told"),
    [(shared_pieces, "more pieces than it has places for"), (many_optimizers, "10000 optimizers, more than"), (winding_names, "no optimizer state")],
)  # fmt: skip
@pytest.mark.thinned(3)
def test_what_would_take_for_ever_is_refused_soon(tmp_path, measured, make, told):
    tensors = make()
    storage = {
        meta.MetadataIndex(name, (0,)): filesystem._StorageInfo("__0_0.distcp", 10 * at, 10)
        for at, name in enumerate(tensors)
    }
    outcome = measured("distributed", written(tmp_path, tensors, storage))
    assert told in outcome["message"]


@pytest.mark.slow
def test_a_tensor_of_half_a_gigabyte_takes_no_memory(tmp_path, measured):
    name = "optim.state.w.exp_avg_sq"
    value = torch.zeros(64 * 2**20, dtype=torch.float64)
    save({"optim": {"state": {"w": {"exp_avg_sq": value}}, "param_groups": [{"lr": 0.1}]}}, tmp_path)
    assert name in index(tmp_path).state_dict_metadata
    del value
    assert measured("distributed", tmp_path)["value"] == 1


@pytest.mark.parametrize(("count", "told"), [(5, None), (10, "larger than the")])
@pytest.mark.exhaustive
def test_values_that_are_no_settings_cost_little(tmp_path, measured, count, told):
    lists = {f"setting{one}": tuple([] for _ in range(250_000)) for one in range(count)}
    state = {"w": {"exp_avg_sq": torch.ones(2)}}
    save({"optim": {"state": state, "param_groups": [{"lr": 0.1, **lists}]}}, tmp_path)
    outcome = measured("distributed", tmp_path)
    assert outcome["value"] == 1 if told is None else told in outcome["message"]


@pytest.mark.slow
def test_an_index_with_tens_of_thousands_of_pieces_is_read(tmp_path):
    name, ranks = "optim.state.w.exp_avg", 10_000
    chunks = [meta.ChunkStorageMetadata(torch.Size([one, 0]), torch.Size([1, 4])) for one in range(ranks)]
    storage = {
        meta.MetadataIndex(name, (one, 0)): filesystem._StorageInfo(f"__{one}_0.distcp", 0, 1000)
        for one in range(ranks)
    }
    tensor = meta.TensorStorageMetadata(meta.TensorProperties(), torch.Size([ranks, 4]), chunks)
    (tmp_path / LEAD).write_bytes(pickle.dumps(meta.Metadata({name: tensor}, None, storage)))
    assert FORMAT.holds_state(LocalFolder(tmp_path), LEAD)
    with pytest.raises(ReadError, match=r"__0_0\.distcp: this file of the checkpoint is missing"):
        read(tmp_path)


def test_only_the_index_leads():
    assert FORMAT.leads([".metadata", "__0_0.distcp"]) == {LEAD: NameMatch.LIKELY}
    assert FORMAT.leads(["__0_0.distcp"]) == FORMAT.leads([".metadata"]) == {}
    assert "without its .metadata" in FORMAT.why_not(["__0_0.distcp"])
    assert not FORMAT.why_not([".metadata"])  # other programs have files of this name
    assert FORMAT.belongs("__0_0.distcp")
