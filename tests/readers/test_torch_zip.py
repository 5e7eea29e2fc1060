"""The zip format of torch.save: tensors as torch reads them, and archives that cannot be trusted refused."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.errors import ReadError
from tracker_health.readers.files.zip_directory import MAX_DIRECTORY_BYTES, MAX_ENTRIES
from tracker_health.readers.tensors.tensor_values import Room, TensorStatistics
from tracker_health.readers.torch_files.safe_pickle import Opaque
from tracker_health.readers.torch_files.torch_archive import open_torch_archive
from tracker_health.readers.torch_files.torch_pickle import TensorRef
from tracker_health.text import printable

torch = pytest.importorskip("torch")

LAW = settings(deadline=None, max_examples=draws(150))
TWO = struct.pack("<2f", 1.5, -2.5)
OTHER_DTYPES = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.uint16]
DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


def save(path, value):
    torch.save(value, path)
    return path


def read(path):
    """The root of an archive, and the statistics of every tensor in it."""
    with open_torch_archive(path) as archive:
        root = archive.root
        values = root.values() if isinstance(root, dict) else []
        return root, [TensorStatistics().of(value) for value in values if isinstance(value, TensorRef)]


def zero_rows(tensor):
    """Rows of nothing but zeros; none where rows are not stored one after the other."""
    if tensor.ndim < 2 or not tensor.numel() or not tensor.is_contiguous():
        return None
    return int((tensor.flatten(1) == 0).all(dim=1).sum())


def check(stats, tensor):
    """Against the plainest computation there is: numpy in float64 on the values that torch has."""
    values = tensor.detach().to(torch.float64).numpy().ravel()
    with np.errstate(all="ignore"):
        size = float(np.abs(values).mean()) if len(values) else 0.0
        mean, rms = (float(values.mean()), float(np.sqrt((values**2).mean()))) if len(values) else (np.nan, np.nan)
    assert stats.count == tensor.numel()
    assert stats.zeros == int((values == 0).sum())
    assert stats.zero_rows == zero_rows(tensor)
    assert stats.nonfinite == int((~np.isfinite(values)).sum())
    assert stats.mean == pytest.approx(mean, rel=1e-12, abs=1e-12 * (size if np.isfinite(size) else 0.0), nan_ok=True)
    assert stats.rms == pytest.approx(rms, rel=1e-12, nan_ok=True)
    for found, expected in (
        (stats.minimum, values.min() if len(values) else np.nan),
        (stats.maximum, values.max() if len(values) else np.nan),
    ):
        assert found == expected or (np.isnan(found) and np.isnan(expected))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [0, 1, 1000, 65_536, 65_537, 200_001])
@pytest.mark.thinned(4)
def test_statistics_of_every_dtype(dtype, size, tmp_path):
    generator = torch.Generator().manual_seed(size)
    tensor = (torch.randn(size, generator=generator, dtype=torch.float64) * 20 + 1).to(dtype)
    _, (stats,) = read(save(tmp_path / "a.pt", {"a": tensor}))
    check(stats, tensor)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "special", [[float("nan")], [float("inf")], [float("-inf")], [float("nan"), float("inf"), 0.0, -0.0]]
)
def test_statistics_of_tensors_that_are_not_finite(dtype, special, tmp_path):
    for filler in (torch.ones(100, dtype=dtype), torch.zeros(70_000, dtype=dtype), torch.empty(0, dtype=dtype)):
        tensor = torch.cat([filler, torch.tensor(special, dtype=dtype), filler])
        _, (stats,) = read(save(tmp_path / "a.pt", {"a": tensor}))
        check(stats, tensor)


def test_a_square_that_overflows_makes_the_rms_infinite_and_no_warning(tmp_path):
    _, (stats,) = read(save(tmp_path / "a.pt", {"a": torch.full((3,), 1e200, dtype=torch.float64)}))
    assert (stats.rms, stats.nonfinite, stats.mean) == (float("inf"), 0, pytest.approx(1e200))


@LAW
@given(shape=st.lists(st.integers(0, 4), max_size=5), data=st.data())
def test_any_order_of_dimensions_is_dense(shape, data, tmp_path_factory):
    order = data.draw(st.permutations(range(len(shape))))
    tensor = torch.arange(float(np.prod(shape, dtype=int))).reshape(shape).permute(order)
    path = tmp_path_factory.getbasetemp() / "permuted.pt"
    root, (stats,) = read(save(path, {"a": tensor}))
    (found,) = root.values()
    assert found.shape == tuple(tensor.shape)
    check(stats, tensor)


def test_channels_last_transposed_and_sliced(tmp_path):
    storage = torch.arange(600.0)
    tensors = {
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "transposed": torch.randn(30, 7).T,
        "first part": storage[:100],
        "last part": storage[100:].view(20, 25),
        "a single value": storage[7],
        "ones": torch.randn(1, 5, 1).expand(1, 5, 1),
        "empty": torch.empty(3, 0, 2),
        "scalar": torch.tensor(4.0),
    }
    _, stats = read(save(tmp_path / "a.pt", tensors))
    for one, tensor in zip(stats, tensors.values(), strict=True):
        check(one, tensor)


def test_a_parameter_and_a_tensor_in_a_dictionary_with_metadata(tmp_path):
    module = torch.nn.Linear(3, 2)
    path = save(
        tmp_path / "a.pt", {"parameter": torch.nn.Parameter(torch.tensor([2.0, 4.0])), "module": module.state_dict()}
    )
    with open_torch_archive(path) as archive:
        assert TensorStatistics().of(archive.root["parameter"]).mean == 3.0
        assert archive.root["module"]["weight"].shape == (2, 3)
        assert archive.stubs == ()


def test_scalars(tmp_path):
    tensors = {
        "step": torch.tensor(12486.0),
        "count": torch.tensor([7]),
        "flag": torch.tensor(True),
        "two": torch.zeros(2),
    }
    with open_torch_archive(save(tmp_path / "a.pt", tensors)) as archive:
        assert [TensorStatistics().scalar(archive.root[name]) for name in ("step", "count", "flag")] == [
            12486.0,
            7.0,
            1.0,
        ]
        with pytest.raises(ReadError, match="where one number belongs"):
            TensorStatistics().scalar(archive.root["two"])


def test_tensors_of_other_kinds_are_stand_ins_and_the_rest_is_read(tmp_path):
    values = {
        "sparse": torch.eye(3).to_sparse(),
        "meta": torch.empty(3, device="meta"),
        "plain": torch.ones(2),
    }
    root, (stats,) = read(save(tmp_path / "a.pt", values))
    assert [name for name, value in root.items() if not isinstance(value, Opaque)] == ["plain"]
    assert stats.mean == 1.0


@pytest.mark.parametrize(
    "shape", [(7, 3), (300, 1000), (3, 65536), (5, 65537), (2, 200001), (65536, 2), (90000, 3), (4, 5, 6)]
)
def test_rows_of_zeros(shape, tmp_path):
    """Rows shorter, longer and as long as the blocks that are read, silent ones at every place."""
    random = torch.Generator().manual_seed(sum(shape))
    for silent in (0.0, 0.3, 0.9, 1.0):
        tensor = torch.rand(shape, generator=random) + 0.1
        tensor[torch.rand(shape[0], generator=random) < silent] = 0.0
        tensor[torch.rand(shape, generator=random) < silent] = 0.0
        tensor[-1] = 0.0
        (stats,) = read(save(tmp_path / "a.pt", {"a": tensor}))[1]
        assert stats.zero_rows == zero_rows(tensor)


@pytest.mark.parametrize("dtype", OTHER_DTYPES)
def test_every_value_of_the_rarer_dtypes(dtype, tmp_path):
    raw = torch.arange(256, dtype=torch.uint8) if dtype.itemsize == 1 else torch.arange(-500, 500, dtype=torch.int16)
    tensor = raw.view(dtype)
    with open_torch_archive(save(tmp_path / "a.pt", {"a": tensor})) as archive:
        (values,) = archive.root["a"].blocks(Room())
        assert np.array_equal(values, tensor.to(torch.float64).numpy(), equal_nan=True)


def test_a_big_endian_file(tmp_path, save_archive, tensor):
    path = save_archive(tmp_path / "a.pt", {"a": tensor()}, {"0": struct.pack(">2f", 1.5, -2.5)}, byte_order=b"big")
    _, (stats,) = read(path)
    assert (stats.minimum, stats.maximum) == (-2.5, 1.5)


def test_a_file_from_before_byte_orders_were_written(tmp_path):
    path = tmp_path / "a.pt"
    buffer = io.BytesIO()
    torch.save({"a": torch.tensor([1.5])}, buffer)
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            if not name.endswith("byteorder"):
                new.writestr(name, old.read(name))
    assert read(path)[1][0].mean == 1.5


@pytest.mark.parametrize("name", ["model..v2.pt", "gewicht-ä.pt", "a b.pt", "日本.pt"])
def test_archives_are_named_after_their_files(name, tmp_path):
    assert read(save(tmp_path / name, {"a": torch.ones(3)}))[1][0].count == 3


def test_every_zip_entry_of_torch_is_found_as_zipfile_finds_it(tmp_path):
    path = save(tmp_path / "a.pt", {str(index): torch.full((index,), float(index)) for index in range(1, 300)})
    with zipfile.ZipFile(path) as expected, open_torch_archive(path) as archive:
        entries = {info.filename: (info.header_offset, info.file_size, True) for info in expected.infolist()}
        assert archive._entries == entries


def test_sizes_and_offsets_of_64_bits(tmp_path, save_archive, tensor):
    """As in a file of more than 4 GB: the directory says 0xFFFFFFFF and an extra field says the number."""
    plain = save_archive(tmp_path / "plain.pt", {"a": tensor()}, {"0": TWO})
    content = plain.read_bytes()
    with zipfile.ZipFile(plain) as archive:
        infos, start = archive.infolist(), archive.start_dir
    directory = b""
    for info in infos:
        extra = struct.pack("<HHB", 0x5555, 1, 0) + struct.pack(
            "<HHQQQ", 1, 24, info.file_size, info.file_size, info.header_offset
        )
        sizes = struct.pack("<II", 0xFFFFFFFF, 0xFFFFFFFF)
        directory += b"PK\x01\x02" + struct.pack("<6HI", 45, 45, 0, 0, 0, 0, info.CRC) + sizes
        directory += (
            struct.pack("<5HII", len(info.filename), len(extra), 0, 0, 0, 0, 0xFFFFFFFF)
            + info.filename.encode()
            + extra
        )
    end = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, len(infos), len(infos), len(directory), start)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, start + len(directory), 1)
    end32 = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    path = tmp_path / "large.pt"
    path.write_bytes(content[:start] + directory + end + locator + end32)
    with zipfile.ZipFile(path) as valid:
        assert valid.testzip() is None
    assert read(path)[1][0].maximum == 1.5


# What cannot be trusted


def hostile_tensors(tensor):
    return {
        "stride 0": tensor(shape=(10**12,), strides=(0,), count=1),
        "stride 0 beside others": tensor(shape=(10**6, 2), strides=(0, 1), count=2),
        "overlapping strides": tensor(shape=(2, 2), strides=(1, 1), count=3),
        "strides with gaps": tensor(shape=(2,), strides=(2,), count=3),
        "negative stride": tensor(shape=(2,), strides=(-1,), offset=1),
        "negative size": tensor(shape=(-2,), strides=(1,), count=2),
        "two negative sizes": tensor(shape=(-1, -2), strides=(2, 1), count=2),
        "negative offset": tensor(offset=-1),
        "offset behind the end": tensor(offset=1),
        "offset far behind the end": tensor(offset=2**62),
        "sizes whose product overflows": tensor(shape=(2**32, 2**32), count=2),
        "sizes whose product is 2 in 64 bits": tensor(shape=(2**63 + 1, 2), strides=(2, 1), count=2),
        "a huge size": tensor(shape=(2**80,), strides=(1,), count=2),
        "more strides than dimensions": tensor(shape=(2,), strides=(2, 1)),
        "fewer strides than dimensions": tensor(shape=(2, 1), strides=(1,)),
        "thousands of dimensions": tensor(shape=(1,) * 5000, strides=(1,) * 5000, count=1),
        "a size that is no integer": tensor(shape=(2.0,), strides=(1,), count=2),
        "a shape that is text": tensor(shape="ab", strides=(1, 1), count=2),
        "an offset that is text": tensor(offset="0"),
        "larger than its storage": tensor(shape=(3,), count=2),
        "a storage shorter than it says": tensor(shape=(3,), count=3),
        "a storage longer than it says": tensor(shape=(1,), count=1),
        "a storage of another dtype": tensor(kind=torch.DoubleStorage),
        "a missing storage": tensor("1"),
        "a storage with a path": tensor("../data.pkl"),
        "a storage with a line break": tensor("\n\x1b[31m" * 1000),
        "a storage of a negative count": tensor(shape=(), count=-1),
        "a storage of a huge count": tensor(shape=(), count=2**62),
        "a storage whose key is no text": tensor(0),
    }


class Names:
    """Stands in for the fixture where only the names of the cases are wanted."""

    def __call__(self, *arguments, **keywords):
        return None


@pytest.mark.parametrize("name", list(hostile_tensors(Names())))
def test_a_tensor_that_is_not_what_its_storage_holds_is_refused(name, tmp_path, save_archive, tensor, assert_one_line):
    path = save_archive(tmp_path / "a.pt", {"a": hostile_tensors(tensor)[name]}, {"0": TWO})
    with pytest.raises(ReadError) as error:
        read(path)
    assert_one_line(str(error.value))


def test_a_tensor_without_arguments_is_refused(tmp_path, save_archive):
    path = save_archive(tmp_path / "a.pt", b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.")
    with pytest.raises(ReadError):
        read(path)


def test_many_tensors_on_one_storage_are_not_read_again_and_again(tmp_path, save_archive, tensor):
    one = tensor(shape=(500_000,))
    path = save_archive(tmp_path / "a.pt", {str(index): one for index in range(10_000)}, {"0": bytes(2_000_000)})
    with pytest.raises(ReadError, match="larger than the file"):
        read(path)


def test_a_compression_bomb_is_refused_before_inflating(tmp_path, save_archive, tensor, assert_one_line):
    path = save_archive(
        tmp_path / "a.pt", {"a": tensor(shape=(10**7,))}, {"0": bytes(4 * 10**7)}, compression=zipfile.ZIP_DEFLATED
    )
    with pytest.raises(ReadError, match="compressed") as error:
        read(path)
    assert_one_line(str(error.value))


def test_a_compressed_storage_is_refused(tmp_path, save_archive, tensor):
    path = save_archive(tmp_path / "a.pt", {"a": tensor()})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(8))
    with pytest.raises(ReadError, match="compressed"):
        read(path)


def test_a_stored_entry_whose_two_sizes_differ_is_refused(tmp_path, save_archive, tensor):
    path = save_archive(tmp_path / "a.pt", {"a": tensor()}, {"0": TWO})
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    struct.pack_into("<I", content, entry + 24, 10**9)
    path.write_bytes(content)
    with pytest.raises(ReadError):
        read(path)


@pytest.mark.parametrize("name", ["../../evil", "archive/../../evil", "/etc/evil", ".."])
def test_an_entry_that_points_out_of_the_archive_is_refused(name, tmp_path, save_archive, tensor):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    path = save_archive(inner / "a.pt", {"a": tensor()}, {"0": TWO}, entries=[(name, b"evil")])
    with pytest.raises(ReadError, match="points out"):
        read(path)
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["a.pt"]


@pytest.mark.parametrize("name", ["archive/data/0", "archive/data.pkl"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_entry_that_is_there_twice_is_refused(name, tmp_path, save_archive, tensor):
    path = save_archive(tmp_path / "a.pt", {"a": tensor()}, {"0": TWO}, entries=[(name, b"other")])
    with pytest.raises(ReadError, match="two of its entries"):
        read(path)


def test_two_archives_in_one_are_refused(tmp_path, save_archive, tensor):
    path = save_archive(tmp_path / "a.pt", {"a": tensor()}, {"0": TWO}, entries=[("other/data.pkl", b"N.")])
    with pytest.raises(ReadError, match=r"data\.pkl"):
        read(path)


def end_record(count, length, start):
    return b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, count, count, length, start, 0)


def end_record_64(at, count, length, start):
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, length, start)
    return record + b"PK\x06\x07" + struct.pack("<IQI", 0, at, 1) + end_record(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)


DIRECTORIES = {
    "a million entries announced": end_record_64(0, 10**6, 46 * 10**6, 0),
    "2**63 entries announced": end_record_64(0, 2**63, 2**63, 2**63),
    "a directory of 4 GB": end_record(1, 0xFFFFFFF0, 0),
    "a directory behind the end": end_record(1, 46, 1000),
    "a million entries in no bytes": end_record_64(0, MAX_ENTRIES, 0, 0),
    "entries without signature": bytes(100) + end_record(2, 100, 0),
    "an entry longer than the directory": b"PK\x01\x02" + b"\xff" * 42 + end_record(1, 46, 0),
    "a 64-bit record somewhere else": end_record_64(2**60, 1, 46, 0),
    "a 64-bit record that is none": bytes(60) + b"PK\x06\x07" + struct.pack("<IQI", 0, 0, 1) + end_record(0, 0, 0),
    "no entries": end_record(0, 0, 0),
    "an end record in an end record": b"PK\x05\x06" + struct.pack("<4H2I", 0, 0, 1, 1, 0, 0) + b"PK\x05\x06",
    "a comment announced": end_record(0, 0, 0)[:-2] + b"\x05\x00",
}


@pytest.mark.parametrize("name", list(DIRECTORIES))
def test_a_zip_directory_that_lies_is_refused(name, tmp_path, assert_one_line):
    path = tmp_path / "a.pt"
    path.write_bytes(DIRECTORIES[name])
    with pytest.raises(ReadError) as error:
        read(path)
    assert_one_line(str(error.value))


@pytest.mark.slow
def test_a_directory_of_more_entries_than_it_announces_costs_nothing(tmp_path, measured):
    entry = b"PK\x01\x02" + bytes(42)
    content = entry * (MAX_DIRECTORY_BYTES // len(entry))
    path = tmp_path / "a.pt"
    path.write_bytes(content + end_record(1, len(content), 0))
    assert measured("torch", path)["message"]


def test_of_two_64_bit_records_the_one_that_is_named_is_read(tmp_path, save_archive, tensor):
    path = save_archive(tmp_path / "a.pt", {"a": tensor()}, {"0": TWO})
    content = path.read_bytes()
    length, start = struct.unpack_from("<II", content, len(content) - 10)
    count = struct.unpack_from("<H", content, len(content) - 12)[0]
    named, at = end_record_64(len(content), count, length, start), len(content)
    other = b"PK\x01\x02" + bytes(42)
    nearer = end_record_64(at, 1, len(other), at + 56)
    path.write_bytes(content + named[:56] + other + nearer)
    root, (stats,) = read(path)
    assert list(root) == ["a"]
    assert stats.count == 2


@pytest.mark.slow
def test_as_many_entries_as_are_read(tmp_path, measured):
    entries = b"".join(
        b"PK\x01\x02" + bytes(24) + b"\x06\x00" + bytes(16) + b"%06d" % index for index in range(MAX_ENTRIES)
    )
    path = tmp_path / "a.pt"
    path.write_bytes(entries + end_record_64(len(entries), MAX_ENTRIES, len(entries), 0))
    assert "data.pkl" in measured("torch", path)["message"]


def foreign_files():
    buffer, archive = io.BytesIO(), io.BytesIO()
    torch.save({"a": torch.ones(2)}, buffer, _use_new_zipfile_serialization=False)
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("pickle"), io.BytesIO())
    plain = io.BytesIO()
    with zipfile.ZipFile(plain, "w") as file:
        file.writestr("hello.txt", "hello")
    return {
        "zero-length": b"",
        "one byte": b"P",
        "zeros": bytes(10_000),
        "text": b"version https://git-lfs.github.com/spec/v1\n" * 10,
        "tar": archive.getvalue(),
        "legacy torch file without its end": buffer.getvalue()[:-9],
        "plain pickle": pickle.dumps({"state": {}}),
        "another zip": plain.getvalue(),
    }


@pytest.mark.parametrize("name", list(foreign_files()))
def test_foreign_files_are_refused(name, tmp_path, assert_one_line):
    path = tmp_path / "a.pt"
    path.write_bytes(foreign_files()[name])
    with pytest.raises(ReadError) as error:
        read(path)
    assert_one_line(str(error.value))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_torchscript_program_is_refused(tmp_path):
    path = tmp_path / "a.pt"
    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)), path)
    with pytest.raises(ReadError, match="TorchScript"):
        read(path)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(OSError):
        open_torch_archive(tmp_path / "missing.pt")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return save(
        tmp_path_factory.mktemp("small") / "small.pt", {"a": torch.arange(100.0), "b": torch.tensor(3), "c": [1, "two"]}
    ).read_bytes()


def test_cut_anywhere_it_is_a_read_error(small, tmp_path, assert_one_line):
    path = tmp_path / "a.pt"
    for end in range(len(small)):
        path.write_bytes(small[:end])
        with pytest.raises(ReadError) as error:
            read(path)
        assert_one_line(str(error.value))


def test_cut_while_it_is_read(small, tmp_path):
    path = tmp_path / "a.pt"
    path.write_bytes(small)
    with open_torch_archive(path) as archive:
        path.write_bytes(small[:100])
        with pytest.raises(ReadError):
            TensorStatistics().of(archive.root["a"])


def read_or_refuse(path):
    try:
        read(path)
    except ReadError as error:
        message = str(error)
        assert message == printable(message, 500)


@settings(LAW, max_examples=draws(400))
@given(changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6))
def test_random_mutations_give_a_value_or_a_read_error(changes, small, tmp_path_factory):
    content = bytearray(small)
    # Most of a small file is padding: half of the changes go to the directory at its end.
    for position, byte in changes:
        content[position % len(content) if position % 2 else -(position % 600) - 1] = byte
    path = tmp_path_factory.getbasetemp() / "mutated.pt"
    path.write_bytes(content)
    read_or_refuse(path)


@LAW
@given(st.binary(max_size=300))
def test_random_bytes_are_a_read_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "random.pt"
    path.write_bytes(data)
    with pytest.raises(ReadError):
        read(path)
