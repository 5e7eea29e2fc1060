"""Files of torch.export.save: weights as torch loads them, in every layout that torch still loads; hostile ones refused."""

from __future__ import annotations

import io
import json
import zipfile
from copy import copy

import numpy as np
import pytest

from tracker_health.errors import ReadError
from tracker_health.readers.tensors.weights import Budget, described
from tracker_health.readers.torch_files.torch_archive import open_torch_archive
from tracker_health.readers.torch_files.torch_weights import torch_weights, unread_weights

torch = pytest.importorskip("torch")
pytest.importorskip("torch.export.pt2_archive")

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, on what it exports
NAN = float("nan")


class Net(torch.nn.Module):
    """Tied, transposed and half weights, a view of a larger storage, buffers, an empty tensor, a complex one."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.last, self.tied = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.tied.weight = self.last.weight
        self.turned = torch.nn.Parameter(torch.randn(3, 5).t())
        self.narrow = torch.nn.Parameter(torch.randn(4).to(torch.bfloat16))
        self.part = torch.nn.Parameter(torch.randn(10, 3)[4:])
        self.register_buffer("none", torch.zeros(0))
        self.register_buffer("waves", torch.randn(3, dtype=torch.complex64))
        self.register_buffer("flags", torch.tensor([True, False]))

    def forward(self, x):
        more = self.turned.sum() + self.narrow.sum() + self.part.sum() + self.none.sum() + self.waves.abs().sum()
        return self.tied(self.last(self.norm(self.first(x)))) + more + self.flags.sum()


def exported(model=None):
    return torch.export.export((model or Net()).eval(), (torch.randn(2, 4),))


def today(program, path):
    torch.export.save(program, path)


def of_2_8(program, path):
    """All weights are one file of torch.save within the archive."""
    from torch._export.serde.serialize import serialize
    from torch.export.pt2_archive._package import PT2ArchiveWriter

    parts = serialize(program)
    with PT2ArchiveWriter(str(path)) as archive:
        archive.write_bytes("data/weights/model.pt", parts.state_dict)
        archive.write_bytes("data/constants/model.pt", parts.constants)
        archive.write_bytes("models/model.json", parts.exported_program)
        archive.write_bytes("data/sample_inputs/model.pt", parts.example_inputs)


def of_2_7(program, path, name="serialized_state_dict.pt"):
    from torch._export.serde.schema import SCHEMA_VERSION
    from torch._export.serde.serialize import serialize

    parts = serialize(program)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", ".".join(map(str, SCHEMA_VERSION)))
        archive.writestr("serialized_exported_program.json", parts.exported_program)
        archive.writestr(name, parts.state_dict)
        archive.writestr("serialized_constants.pt", parts.constants)
        archive.writestr("serialized_example_inputs.pt", parts.example_inputs)


def of_2_1(program, path):
    of_2_7(program, path, "serialized_state_dict.json")


LAYOUTS = [today, of_2_8, of_2_7, of_2_1]


def read(path):
    with open_torch_archive(path) as archive:
        return {one.name: one for one in described(torch_weights(archive.root), Budget())}


@pytest.mark.parametrize("write", LAYOUTS)
def test_weights_are_those_that_torch_loads(tmp_path, write):
    torch.manual_seed(3)
    program, path = exported(), tmp_path / "model.pt2"
    write(program, path)
    expected, found = torch.export.load(path).state_dict, read(path)
    assert set(expected) - set(found) == {"tied.weight"}  # the same bytes as last.weight
    for name, header in found.items():
        tensor = expected[name].detach()
        values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        assert header.shape == tuple(values.shape)
        if values.numel():
            plain = values.to(torch.float64).numpy()
            assert header.stats.count == plain.size
            assert header.stats.rms == pytest.approx(float(np.sqrt((plain**2).mean())), rel=1e-12)
            assert header.stats.minimum == plain.min()


@pytest.mark.parametrize("write", LAYOUTS)
@pytest.mark.parametrize("place", ["first.weight", "turned", "narrow", "part", "norm.running_var"])
def test_a_nan_is_found_wherever_it_lies(tmp_path, write, place):
    model = Net()
    with torch.no_grad():
        model.state_dict()[place][-1] = NAN
    write(exported(model), tmp_path / "model.pt2")
    assert [name for name, one in read(tmp_path / "model.pt2").items() if one.stats and one.stats.nonfinite] == [place]


class Marked(torch.Tensor):
    """A tensor subclass: torch pickles it, and does not write its bytes."""


def test_pickled_weights_are_read_in_place(tmp_path):
    program, path = exported(), tmp_path / "model.pt2"
    weights = {f"{at}.weight": torch.full((2, 3), float(at)) for at in range(3)}
    weights["1.weight"][1, 2] = NAN
    program.state_dict.update({name: one.as_subclass(Marked) for name, one in weights.items()})
    torch.export.save(program, path)
    found = read(path)
    assert [found[name].stats.nonfinite for name in weights] == [0, 1, 0]  # one of them is not taken for another


def changed(path, **entries):
    """The archive with other entries: by the end of a name its new bytes, None for none."""
    with zipfile.ZipFile(path) as archive:
        kept = {name: archive.read(name) for name in archive.namelist()}
    for end, content in entries.items():
        (name,) = [name for name in kept if name.endswith(end)] or [end]
        kept.pop(name, None)
        if content is not None:
            kept[name] = content
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in kept.items():
            archive.writestr(name, content)
    return path


def config_of(path):
    with zipfile.ZipFile(path) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("model_weights_config.json")]
        return json.loads(archive.read(name))


@pytest.fixture
def saved(tmp_path):
    torch.export.save(exported(torch.nn.Linear(4, 2)), tmp_path / "model.pt2")
    return tmp_path / "model.pt2"


CONFIG = "model_weights_config.json"


def test_one_layer_alone_is_a_model(saved):
    assert list(read(saved)) == ["weight", "bias"]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("path_name", "weight_99", "is missing"),
        ("path_name", "../../model.json", "is missing"),
        ("tensor_meta", None, "described in an unknown way"),
        ("use_pickle", True, "torch.save"),
        ("sizes", [{"as_int": 2**62}, {"as_int": 4}], "size that no file holds"),
        ("sizes", [{"as_expr": "s0"}], "described in an unknown way"),
        ("sizes", [{"as_int": 20}, {"as_int": 4}], "beyond its storage"),
        ("strides", [{"as_int": 0}, {"as_int": 0}], "densely"),
        ("storage_offset", {"as_int": -1}, "negative offset"),
        ("dtype", 8, "beyond its storage"),
    ],
)
def test_a_description_that_cannot_be_trusted_is_refused(saved, key, value, reason):
    config = config_of(saved)
    entry = config["config"]["weight"]
    (entry if key in entry else entry["tensor_meta"])[key] = value
    with pytest.raises(ReadError, match=reason):
        read(changed(saved, **{CONFIG: json.dumps(config).encode()}))


def test_what_is_not_read_is_counted(saved):
    for key, value in (("dtype", 33), ("layout", 1)):
        config = config_of(saved)
        config["config"]["weight"]["tensor_meta"][key] = value
        with open_torch_archive(changed(saved, **{CONFIG: json.dumps(config).encode()})) as archive:
            assert (unread_weights(archive.root), len(torch_weights(archive.root))) == (1, 1)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({CONFIG: b"[" * 10**6}, "does not say where"),
        ({CONFIG: b'{"config": 3}'}, "does not say where"),
        ({CONFIG: b" " * (16 * 2**20 + 1)}, "more than the"),
        ({CONFIG: None}, "has no weights"),
        ({CONFIG: None, "data/aotinductor/model/a.so": b"x"}, "is compiled"),
        ({"model/data.pkl": b"N."}, "at once"),
        ({"other/data/weights/model.pt": b"x"}, "several places"),
    ],
)
def test_an_archive_that_cannot_be_trusted_is_refused(saved, entries, reason):
    with pytest.raises(ReadError, match=reason):
        read(changed(saved, **entries))


class Runs:
    """What runs something when it is unpickled."""

    def __reduce__(self):
        return print, ("it was run",)


def test_nothing_in_it_is_run(saved, capfd):
    file = io.BytesIO()
    torch.save({"weight": torch.ones(2, 2), "evil": Runs()}, file)
    config = config_of(saved)
    config["config"]["weight"]["use_pickle"] = True
    path = changed(saved, weight_0=file.getvalue(), **{CONFIG: json.dumps(config).encode()})
    with open_torch_archive(path) as archive:
        assert unread_weights(archive.root) == 1
        assert archive.stubs
    assert "run" not in "".join(capfd.readouterr())


def test_entries_that_lie_upon_each_other_are_not_read_over_and_over(saved):
    """A directory with many names for one entry of torch.save, which would be interpreted once for each."""
    file = io.BytesIO()
    torch.save({str(at): torch.ones(2) for at in range(500)}, file)
    entry = {**config_of(saved)["config"]["weight"], "use_pickle": True}
    config = {"config": {str(at): {**entry, "path_name": f"weight_{at}"} for at in range(50)}}
    with zipfile.ZipFile(saved, "w") as archive:
        archive.writestr("m/archive_format", b"pt2")
        archive.writestr(f"m/data/weights/{CONFIG}", json.dumps(config))
        archive.writestr("m/data/weights/weight_0", file.getvalue())
        one = archive.getinfo("m/data/weights/weight_0")
        for at in range(1, 50):
            again = copy(one)
            again.filename = f"m/data/weights/weight_{at}"
            archive.filelist.append(again)
    with pytest.raises(ReadError, match="overlap"):
        read(saved)
