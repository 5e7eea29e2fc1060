"""The pickle machine: as Python's own on plain data, and inert on everything else."""

from __future__ import annotations

import inspect
import math
import pickle
import struct
from collections import ChainMap, Counter, OrderedDict, defaultdict
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.errors import ReadError
from tracker_health.readers.torch_files.safe_pickle import (
    MAX_BYTES,
    MAX_CONTAINERS,
    MAX_OPCODES,
    MAX_STUB_NAMES,
    Global,
    Opaque,
    SafePickle,
)
from tracker_health.text import printable

LAW = settings(deadline=None, max_examples=draws(150))

NUMBERS = st.integers(-(2**200), 2**200) | st.floats(allow_nan=False)
KEYS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.floats(allow_nan=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=300)


def nested(leaves, keys):
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=6)
            | st.tuples()
            | st.tuples(inner)
            | st.tuples(inner, inner)
            | st.lists(inner, max_size=6).map(tuple)
            | st.dictionaries(keys, inner, max_size=6)
        ),
        max_leaves=30,
    )


# Python writes bytes in protocol 2, and sets before protocol 4, as calls of functions; those are stand-ins here.
PLAIN = {
    2: nested(SCALARS, KEYS),
    3: nested(SCALARS | st.binary(max_size=300), KEYS | st.binary()),
    4: nested(SCALARS | st.binary(max_size=300) | st.sets(KEYS) | st.frozensets(KEYS), KEYS | st.binary()),
    5: nested(
        SCALARS | st.binary(max_size=300).map(bytearray) | st.sets(KEYS) | st.frozensets(KEYS), KEYS | st.binary()
    ),
}

CALL_OS = b"cposix\nsystem\n"


def load(data):
    return SafePickle(data).load()


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value


def assert_same(loaded, value):
    """Equal, and of the same types all the way down (1 == 1.0 == True)."""
    assert loaded == value
    assert type(loaded) is (bytes if isinstance(value, bytearray) else type(value))
    if isinstance(value, dict):
        assert list(map(type, loaded)) == list(map(type, value))
        for key, inner in value.items():
            assert_same(loaded[key], inner)
    elif isinstance(value, (list, tuple)):
        for one, other in zip(loaded, value, strict=True):
            assert_same(one, other)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_comes_back_as_python_reads_it(protocol):
    @LAW
    @given(PLAIN[protocol])
    def round_trip(value):
        assert_same(load(pickle.dumps(value, protocol)), value)

    round_trip()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, -0.0, 10**400, -(10**400), 2**31, -(2**31), 255, 256, 65535, 65536]
)
def test_numbers_at_the_edges(value, protocol):
    assert load(pickle.dumps(value, protocol)) == value
    assert math.isnan(load(pickle.dumps(math.nan, protocol)))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_long_containers_are_read_in_all_their_batches(protocol):
    value = {index: [str(index)] for index in range(2500)} | {"list": list(range(2500)), "tuple": tuple(range(2500))}
    assert load(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_shared_objects_stay_shared(protocol):
    shared = {"a": 1}
    first, second = load(pickle.dumps([shared, shared], protocol))
    assert first is second


def test_ordered_and_default_dictionaries_are_dictionaries():
    machine = SafePickle(pickle.dumps([OrderedDict(a=1, b=[2]), defaultdict(list, {"c": [3]})], 2))
    assert machine.load() == [{"a": 1, "b": [2]}, {"c": [3]}]
    assert machine.stubs == ()


def test_other_objects_are_stand_ins_and_named():
    odd = {"before": 1, "odd": Fraction(1, 3), "chain": ChainMap({"a": 1}), "after": 2}
    machine = SafePickle(pickle.dumps(odd, 2))
    value = machine.load()
    assert (value["before"], value["after"]) == (1, 2)
    assert isinstance(value["odd"], Opaque)
    assert isinstance(value["chain"], Opaque)
    assert machine.stubs[0] == "fractions.Fraction"
    assert any("ChainMap" in stub or "copyreg" in stub for stub in machine.stubs[1:])


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_counter_is_the_mapping_it_was_made_of(protocol):
    machine = SafePickle(pickle.dumps({"count": Counter("aab"), "none": Counter()}, protocol))
    assert machine.load() == {"count": {"a": 2, "b": 1}, "none": {}}
    assert machine.stubs == ()


@pytest.mark.parametrize("argument", [b"K\x07", b"]", b"N"])
def test_a_counter_of_something_else_is_empty(argument):
    assert load(b"ccollections\nCounter\n" + argument + b"\x85R.") == {}


def test_keys_that_can_be_made_to_collide_become_stand_ins():
    prime = 2**61 - 1
    keys = [prime * step for step in (2**10, 2**10 + 1)]
    value = load(pickle.dumps({"plain": 1, (1, 2): 2, keys[0]: 3, keys[1]: 4, 2**64 - 1: 5}, 2))
    assert len(value) == 5
    assert (value["plain"], value[2**64 - 1]) == (1, 5)
    assert sum(isinstance(key, Opaque) for key in value) == 3


# Nothing runs


class Reduced:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def hostile_pickles(command):
    argument = text(command)
    system = CALL_OS
    stacked = text(b"posix") + text(b"system") + b"\x93"
    return {
        "REDUCE": b"\x80\x02" + system + argument + b"\x85R.",
        "REDUCE of a STACK_GLOBAL": b"\x80\x04" + stacked + argument + b"\x85R.",
        "NEWOBJ": b"\x80\x02" + system + argument + b"\x85\x81.",
        "NEWOBJ_EX": b"\x80\x04" + system + argument + b"\x85}\x92.",
        "INST": b"(" + argument + b"iposix\nsystem\n.",
        "OBJ": b"(" + system + argument + b"o.",
        "BUILD": b"\x80\x02ctypes\nSimpleNamespace\n)\x81}" + text(b"__setstate__") + system + b"sb" + argument + b"b.",
        "REDUCE of a getattr": b"\x80\x02cbuiltins\ngetattr\ncos\npath\n"
        + text(b"system")
        + b"\x86R"
        + argument
        + b"\x85R.",
        "eval": b"\x80\x02cbuiltins\neval\n"
        + text(b"__import__('os').system(" + repr(command).encode() + b")")
        + b"\x85R.",
        "in a dictionary": b"\x80\x02}" + text(b"a") + b"}" + text(b"b") + system + argument + b"\x85Rss.",
        "in a list in a tuple": b"\x80\x02](" + system + argument + b"\x85Re\x85.",
        "as a key": b"\x80\x02}" + system + argument + b"\x85RNs.",
        "as the callable": b"\x80\x02" + system + argument + b"\x85R" + argument + b"\x85R.",
        "in an ordered dictionary's arguments": b"\x80\x02ccollections\nOrderedDict\n"
        + system
        + argument
        + b"\x85R\x85R.",
    }


@pytest.mark.parametrize("way", list(hostile_pickles(b"")))
def test_no_call_is_made(way, tmp_path):
    canary = tmp_path / "canary"
    data = hostile_pickles(f"touch {canary}".encode())[way]
    machine = SafePickle(data)
    machine.load()
    assert machine.stubs
    assert not canary.exists()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_no_call_that_python_wrote_is_made(protocol, tmp_path):
    canary = tmp_path / "canary"
    payload = {"state": {0: [Reduced(open, str(canary), "w")]}, "epoch": 3}
    machine = SafePickle(pickle.dumps(payload, protocol))
    assert machine.load()["epoch"] == 3
    assert machine.stubs == ("io.open" if protocol > 2 else "__builtin__.open",) or machine.stubs[0].endswith(".open")
    assert not canary.exists()


def test_a_name_alone_is_never_resolved():
    value = load(b"\x80\x02cno_such_module\nno_such_name\n.")
    assert isinstance(value, Global)
    assert value.path == "no_such_module.no_such_name"


class Attribute:
    """What pickles as ``getattr(owner, name)``: so do the members of enums before Python 3.11.4."""

    def __init__(self, owner, name):
        self.arguments = owner, name

    def __reduce__(self):
        return getattr, self.arguments


@pytest.mark.parametrize("protocol", range(2, 6))
def test_the_member_of_an_enum_is_no_call(protocol):
    machine = SafePickle(
        pickle.dumps(Attribute(inspect.Parameter, "VAR_KEYWORD"), protocol), records={"inspect.Parameter"}
    )
    found = machine.load()
    assert (found.path, machine.stubs) == ("inspect.Parameter", ())
    machine = SafePickle(pickle.dumps(Attribute(inspect.Parameter, "VAR_KEYWORD"), protocol))
    machine.load()
    assert machine.stubs == ("inspect.Parameter.VAR_KEYWORD",)


@pytest.mark.parametrize("owner", [b"cos\npath\n", b"cinspect\nParameter\n"])
@pytest.mark.parametrize("name", [b"system", b"__class__", b"_PRIVATE", b"Replace"])
def test_any_other_attribute_is_told(owner, name):
    data = b"\x80\x02c__builtin__\ngetattr\n" + owner + text(name) + b"\x86R."
    machine = SafePickle(data, records={"inspect.Parameter"})
    machine.load()
    assert machine.stubs == ("__builtin__.getattr",)


def test_a_dangerous_name_cannot_hide_behind_many_harmless_ones():
    calls = b"".join(b"cmodule\nname%d\n)R0" % index for index in range(MAX_STUB_NAMES + 1))
    with pytest.raises(ReadError, match="different objects"):
        load(b"\x80\x02" + calls + CALL_OS + b")R.")


# Nothing breaks


def tuple_graph(depth):
    """A tuple of 2**depth paths, in a few bytes a level."""
    return b"\x80\x02)\x85" + b"2\x86" * depth


@cache
def refused():
    return {
        "memo index never set": b"\x80\x02j\xff\xff\xff\x7f.",
        "BYTEARRAY8 of a terabyte": b"\x80\x05\x96" + struct.pack("<Q", 10**12) + b"abc.",
        "BINBYTES8 of 2**64 - 1": b"\x80\x04\x8e" + b"\xff" * 8 + b"abc.",
        "BINUNICODE8 of a terabyte": b"\x80\x04\x8d" + struct.pack("<Q", 10**12) + b"abc.",
        "BINUNICODE of 4 GB": b"\x80\x02X\xff\xff\xff\xffabc.",
        "FRAME of a terabyte": b"\x80\x04\x95" + struct.pack("<Q", 10**12) + b"N",
        "integer of a million bytes": b"\x80\x02\x8b" + struct.pack("<I", 10**6) + b"\x01" * 10**6 + b".",
        "integer of negative length": b"\x80\x02\x8b\xff\xff\xff\xff.",
        "decimal integer of a million digits": b"I" + b"9" * 10**6 + b"\n.",
        "decimal long": b"L123L\n.",
        "deep lists": b"\x80\x02" + b"]" * 10**6 + b"a" * (10**6 - 1) + b".",
        "deep marks": b"\x80\x02" + b"(" * 10**6 + b"t" * 10**6 + b".",
        "extension code": b"\x80\x02\x82\x01.",
        "persistent id as text": b"P0\n.",
        "persistent id": b"\x80\x02NQ.",
        "out-of-band buffer": b"\x80\x05\x97.",
        "protocol 6": b"\x80\x06N.",
        "unknown opcode": b"\x80\x02\xff.",
        "empty": b"",
        "only STOP": b".",
        "no STOP": b"\x80\x02N",
        "name that is no text": b"\x80\x04NN\x93.",
        "name of a megabyte": b"\x80\x04" + text(b"a" * 10**6) + text(b"b") + b"\x93)R.",
        "name without end": b"\x80\x02c" + b"a" * 10**6,
        "items of a number": b"\x80\x02K\x01K\x02K\x03s.",
        "appends to a dictionary": b"\x80\x02}Na.",
        "adds to a list": b"\x80\x04](N\x90.",
        "key without a value": b"\x80\x02}(Nu.",
        "tuple of more than there is": b"\x80\x02N\x87.",
        "text that is not UTF-8": b"\x80\x02X\x02\x00\x00\x00\xff\xfe.",
        "OBJ of nothing": b"\x80\x02(o.",
        "BUILD of nothing": b"\x80\x02Nb.",
        "MARK never closed": b"\x80\x02(.",
        "POP of nothing": b"\x80\x020N.",
        "DUP of nothing": b"\x80\x022.",
        "MEMOIZE of nothing": b"\x80\x04\x94.",
        "too many opcodes": b"\x80\x02" + b"N0" * (MAX_OPCODES // 2) + b"N.",
        "too many containers": b"\x80\x02" + b"}0" * MAX_CONTAINERS + b"}.",
        "too many sets": b"\x80\x04" + b"\x8f" * 10**6 + b".",
        "too many objects": b"\x80\x02cm\nn\nq\x00" + b"h\x00)R0" * (MAX_CONTAINERS + 1) + b".",
    }


@pytest.mark.parametrize("name", list(refused()))
@pytest.mark.thinned(3)
def test_malformed_and_oversized_pickles_are_refused(name, assert_one_line):
    with pytest.raises(ReadError) as error:
        load(refused()[name])
    assert_one_line(str(error.value))


def test_a_pickle_longer_than_the_limit_is_refused_unread():
    with pytest.raises(ReadError, match="more than"):
        SafePickle(bytes(MAX_BYTES + 1))


def program(*parts):
    return b"\x80\x04" + b"".join(parts) + b"."


def numbers(amount):
    return (b"J" + struct.pack("<i", index) for index in range(amount))


# Each is made when its test runs: together they are large.
COSTLY = {
    "sets": lambda: program(b"\x8f" * (MAX_CONTAINERS - 1), b"N" * (MAX_OPCODES - MAX_CONTAINERS - 2)),
    "dictionaries of one": lambda: program(b"}K\x01Ns" * (MAX_CONTAINERS - 1)),
    "memo": lambda: program(b"N\x94" * (MAX_OPCODES // 2 - 2)),
    "texts": lambda: program(b"\x8c\x03\xe2\x82\xac" * (MAX_OPCODES - 3)),
    "floats": lambda: program(b"G\x3f\xf0\x00\x00\x00\x00\x00\x01" * (MAX_OPCODES - 3)),
    "tuples of one": lambda: program(b"N", b"\x85" * (MAX_OPCODES - 4)),
    "wide text": lambda: program(
        b"X", struct.pack("<I", MAX_BYTES - 100), b"a" * (MAX_BYTES - 104), "\U0001f600".encode()
    ),
    "million keys": lambda: program(b"}(", *(key + b"N" for key in numbers(10**6)), b"u"),
    "keys one by one": lambda: program(b"}", *(key + b"Ns" for key in numbers(MAX_OPCODES // 4))),
    "colliding keys": lambda: program(
        b"}(", *(pickle.dumps((2**61 - 1) * factor, 2)[2:-1] + b"N" for factor in range(200_000)), b"u"
    ),
    "long names": lambda: program(b"\x8c\xff", b"a" * 255, b"q\x00", b"h\x00h\x00\x93)R0" * (MAX_OPCODES // 7)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(COSTLY))
@pytest.mark.thinned(3)
def test_the_costliest_pickles_stay_within_time_and_memory(name, tmp_path, measured):
    path = tmp_path / "data.pkl"
    path.write_bytes(COSTLY[name]())
    measured("pickle", path)


def test_shared_tuples_of_many_paths_are_a_value_and_no_key():
    value = load(tuple_graph(60) + b".")
    for _ in range(60):
        assert len(value) == 2
        assert value[0] is value[1]
        value = value[0]
    (key,) = load(b"\x80\x02}" + tuple_graph(60)[2:] + b"Ns.")
    assert isinstance(key, Opaque)
    (item,) = load(b"\x80\x04\x8f(" + tuple_graph(60)[2:] + b"\x90.")
    assert isinstance(item, Opaque)


def test_a_memo_index_of_two_billion_costs_nothing():
    assert load(b"\x80\x02Nr\xff\xff\xff\x7f0j\xff\xff\xff\x7f.") is None


def test_a_list_in_itself_and_a_dictionary_in_itself():
    value = load(b"\x80\x02]q\x00h\x00a.")
    assert value[0] is value
    value = load(b"\x80\x02}q\x00" + text(b"me") + b"h\x00s.")
    assert value["me"] is value


SMALL = pickle.dumps(
    {
        "state": {0: {"step": 4, "exp_avg": [0.5, -0.25], "big": 10**30}},
        "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.999)}],
        "odd": Fraction(1, 2),
    },
    2,
)


@pytest.mark.parametrize("protocol", [2, 4])
def test_cut_anywhere_it_is_a_read_error(protocol, assert_one_line):
    whole = pickle.dumps(pickle.loads(SMALL), protocol)
    for end in range(len(whole)):
        with pytest.raises(ReadError) as error:
            load(whole[:end])
        assert_one_line(str(error.value))


def read_or_refuse(data):
    try:
        load(data)
    except ReadError as error:
        message = str(error)
        assert message == printable(message, 500)


@LAW
@given(st.binary(max_size=200))
@example(b"\x80\x02}q\x00(K\x01h\x00u.")
def test_random_bytes_give_a_value_or_a_read_error(data):
    read_or_refuse(data)


@settings(LAW, max_examples=draws(400))
@given(
    st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=5),
    st.sampled_from([2, 4]),
)
def test_random_mutations_give_a_value_or_a_read_error(changes, protocol):
    data = bytearray(pickle.dumps(pickle.loads(SMALL), protocol))
    for position, byte in changes:
        data[position % len(data)] = byte
    read_or_refuse(bytes(data))


OPERATIONS = [
    *(bytes([code]) for code in b"N]}()\x85\x86\x87tldsuae012\x94R\x81\x92ob\x8f\x90\x91\x93Q"),
    *(b"K\x01", b"q\x00", b"h\x00", b"cm\nn\n", b"im\nn\n", text(b"a"), b"ccollections\nOrderedDict\n"),
]


@settings(LAW, max_examples=draws(400))
@given(st.lists(st.sampled_from(OPERATIONS), max_size=40))
def test_random_programs_give_a_value_or_a_read_error(operations):
    read_or_refuse(b"\x80\x04" + b"".join(operations) + b".")
