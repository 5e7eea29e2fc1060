"""Headers of safetensors files: the safetensors library is the oracle for valid ones."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.errors import ReadError
from tracker_health.readers.tensors.safetensors_header import MAX_HEADER_BYTES
from tracker_health.text import printable

from .conftest import read_safetensors as read

LAW = settings(deadline=None, max_examples=draws(150))


def write(path, header, values=b"", *, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + values)
    return path


def entry(start=0, end=8, shape=(2,), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


def check_against_the_library(path):
    safetensors = pytest.importorskip("safetensors")
    pytest.importorskip("torch")
    with safetensors.safe_open(path, "pt") as expected:
        truth = {name: expected.get_slice(name) for name in expected.keys()}  # noqa: SIM118 - it is no mapping
        truth = {name: (tuple(one.get_shape()), one.get_dtype()) for name, one in truth.items()}
    found = read(path)
    assert {tensor.name: (tensor.shape, tensor.dtype) for tensor in found.tensors} == truth
    return found


@pytest.mark.parametrize(
    "name",
    [
        "mixed_dtype.safetensors",
        "accelerate_ckpt/model.safetensors",
        "hf_full_sgd/checkpoint-4/model.safetensors",
        *(
            f"hf_lora_{kind}/checkpoint-4/adapter_model.safetensors"
            for kind in ("adamw8bit", "all_mts_12L", "layers_2_5_11", "plus", "qv_12L")
        ),
    ],
)
def test_every_sample_is_read_as_the_library_reads_it(name, samples):
    found = check_against_the_library(samples / name)
    assert found.is_adapter == ("lora" in name)
    assert found.has_adapter == ("lora" in name or "accelerate" in name)  # the latter is a model with its adapter


@pytest.mark.parametrize(
    ("since", "dtypes"),
    [
        ((0, 4), "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 int64 int32 int16 int8 uint8 bool"),
        ((0, 6), "uint64 uint32 uint16"),
        ((0, 7), "complex64"),
    ],
)
def test_every_dtype(since, dtypes, tmp_path):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors")
    from safetensors.torch import save_file

    if tuple(int(part) for part in safetensors.__version__.split(".")[:2]) < since:
        pytest.skip(f"safetensors {safetensors.__version__} writes no {dtypes}")
    tensors = {name: torch.zeros(3, 2).to(getattr(torch, name)) for name in dtypes.split()}
    tensors |= {"empty": torch.zeros(0, 5), "scalar": torch.tensor(1.0), "": torch.zeros(1), "ä\n<b>": torch.zeros(1)}
    save_file(tensors, tmp_path / "a.safetensors", metadata={"format": "pt"})
    assert len(check_against_the_library(tmp_path / "a.safetensors").tensors) == len(tensors)


def test_a_file_without_tensors(tmp_path):
    assert read(write(tmp_path / "a", {})).tensors == ()
    assert read(write(tmp_path / "a", {"__metadata__": {"a": "b"}})).tensors == ()


def test_a_header_padded_with_spaces(tmp_path):
    header = json.dumps({"a": entry()}).encode() + b"   "
    assert len(read(write(tmp_path / "a", header, bytes(8))).tensors) == 1


REFUSED = {
    "empty file": b"",
    "seven bytes": bytes(7),
    "header length of 2**64 - 1": b"\xff" * 8 + b"{}",
    "header length of a terabyte": (10**12).to_bytes(8, "little") + b"{}",
    "header longer than the file": (100).to_bytes(8, "little") + b"{}",
    "header over the limit": (MAX_HEADER_BYTES + 1).to_bytes(8, "little") + bytes(MAX_HEADER_BYTES + 1),
    "no header": bytes(8),
    "a pickle": b"\x80\x02}q\x00.",
    "text": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64,
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_files_that_are_none(name, tmp_path, assert_one_line):
    path = tmp_path / "a.safetensors"
    path.write_bytes(REFUSED[name])
    with pytest.raises(ReadError) as error:
        read(path)
    assert_one_line(str(error.value))


HEADERS = {
    "not JSON": b"{",
    "a list": b"[]",
    "a number": b"7",
    "not UTF-8": b'{"\xff": 1}',
    "an integer of a million digits": b'{"a": ' + b"9" * 10**6 + b"}",
    "nested a million deep": b'{"a": ' + b"[" * 10**6 + b"]" * 10**6 + b"}",
    "duplicate tensor": b'{"a": 1, "a": 2}',
    "duplicate key in a tensor": b'{"a": {"dtype": "F32", "dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}',
    "entry that is no object": {"a": 1},
    "entry that is null": {"a": None},
    "no dtype": {"a": {"shape": [2], "data_offsets": [0, 8]}},
    "no shape": {"a": {"dtype": "F32", "data_offsets": [0, 8]}},
    "no offsets": {"a": {"dtype": "F32", "shape": [2]}},
    "unknown dtype": {"a": entry(dtype="X1\x1b[31m\n")},
    "dtype that is a list": {"a": entry(dtype=[1])},
    "three offsets": {"a": entry() | {"data_offsets": [0, 4, 8]}},
    "offsets that are floats": {"a": entry(0.0, 8.0)},
    "offsets that are text": {"a": entry("0", "8")},
    "offsets that are NaN": b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [NaN, NaN]}}',
    "negative offset": {"a": entry(-8, 0)},
    "offsets the wrong way round": {"a": entry(8, 0)},
    "out of bounds": {"a": entry(8, 24)},
    "far out of bounds": {"a": entry(10**20, 10**20 + 8)},
    "negative size": {"a": entry(shape=(-2, -1))},
    "size that is a truth value": {"a": entry(0, 4, shape=(True,))},
    "shape that is text": {"a": entry() | {"shape": "12"}},
    "shape that is a number": {"a": entry() | {"shape": 2}},
    "shape that overflows": {"a": entry(shape=(2**32, 2**32))},
    "shape of a hundred dimensions": {"a": entry(0, 4, shape=(1,) * 100)},
    "more bytes than the shape": {"a": entry(0, 12)},
    "fewer bytes than the shape": {"a": entry(0, 4)},
    "no bytes for a shape": {"a": entry(0, 0)},
    "overlap": {"a": entry(0, 8), "b": entry(4, 12)},
    "one inside another": {"a": entry(0, 16, (4,)), "b": entry(4, 8, (1,))},
    "the same bytes twice": {"a": entry(0, 8), "b": entry(0, 8)},
    "name of a megabyte": {"\u202e<script>\n" + "x" * 10**6: entry(8, 24)},
}


@pytest.mark.parametrize("name", list(HEADERS))
def test_headers_that_contradict_themselves(name, tmp_path, assert_one_line):
    path = write(tmp_path / "a.safetensors", HEADERS[name], bytes(16))
    with pytest.raises(ReadError) as error:
        read(path)
    assert_one_line(str(error.value))


@pytest.mark.slow
def test_a_million_empty_tensors_are_refused(tmp_path, measured):
    header = (
        "{"
        + ",".join(f'"{index:07d}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for index in range(10**6))
        + "}"
    )
    assert "header" in measured("safetensors", write(tmp_path / "a", header.encode()))["message"]


COSTLY = {
    "empty lists": b'{"a":[' + b"[]," * (MAX_HEADER_BYTES // 3 - 10) + b"[]]}",
    "small objects": b'{"a":[' + b'{"":1},' * (MAX_HEADER_BYTES // 7 - 10) + b"1]}",
    "short texts": b'{"a":[' + b'"ab",' * (MAX_HEADER_BYTES // 5 - 10) + b"1]}",
    "numbers": b'{"a":[' + b"0.1," * (MAX_HEADER_BYTES // 4 - 10) + b"1]}",
    "small objects as many as are read": b'{"a":[' + b'{"":1},' * 740_000 + b"1]}",
    "one text": '{"a":"\U0001f600'.encode() + b"a" * (MAX_HEADER_BYTES - 100) + b'"}',
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(COSTLY))
@pytest.mark.thinned(3)
def test_the_costliest_headers_stay_within_time_and_memory(name, tmp_path, measured):
    assert measured("safetensors", write(tmp_path / "a", COSTLY[name]))["message"]


@pytest.mark.exhaustive
def test_a_header_of_fifty_thousand_tensors_is_read(tmp_path, measured):
    header = {f"model.layers.{index}.mlp.experts.7.weight": entry(8 * index, 8 * index + 8) for index in range(50_000)}
    path = write(tmp_path / "a", header, bytes(400_000))
    assert measured("safetensors", path)["value"] == 50_000


def test_cut_anywhere_it_is_a_read_error(tmp_path):
    whole = write(tmp_path / "whole", {"a": entry(), "b": entry(8, 16)}, bytes(16)).read_bytes()
    path = tmp_path / "cut"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(ReadError):
            read(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "dtype", "shape", "data_offsets"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@LAW
@given(
    st.dictionaries(
        st.text(max_size=3) | st.just("__metadata__"),
        JSON | st.fixed_dictionaries({"dtype": st.just("F32"), "shape": JSON, "data_offsets": JSON}),
        max_size=3,
    )
)
def test_any_header_gives_tensors_or_a_read_error(tmp_path_factory, header):
    path = write(tmp_path_factory.getbasetemp() / "random.safetensors", header, bytes(16))
    try:
        read(path)
    except ReadError as error:
        message = str(error)
        assert message == printable(message, 500)


def test_nothing_in_it_is_run(tmp_path):
    canary = tmp_path / "canary"
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"cposix\nsystem\nX\x20\x00\x00\x00touch " + str(canary).encode() + b"\x85R.")
    with pytest.raises(ReadError):
        read(path)
    assert not canary.exists()
