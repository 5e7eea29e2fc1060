"""Files that are broken, foreign or made to harm: what each is, how it is made, and what has to be said of it.

A sample is a folder as a run leaves it. ``make`` fills it; ``said`` is what one of the errors must say, None where the
file is odd and harmless, so that nothing may be said and its statistics must be there.
"""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import random
import struct
import tarfile
import zipfile
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
TWO = struct.pack("<2f", 0.25, 1.5)
NAME = "training_state.pt"


QUIET = ""
"""Said of what is hostile and has nothing to say: what counts is that it costs little."""


@dataclass(frozen=True)
class Sample:
    """``make`` gets the folder, and a way to write a file as torch does; ``said`` is a regular expression."""

    make: Callable[..., None]
    said: str | None


class Storage:
    def __init__(self, kind, key, count):
        self.identity = ("storage", kind, key, "cpu", count)


class Tensor:
    """Says of itself whatever it is told to."""

    def __init__(self, key="0", shape=(2,), strides=None, *, offset=0, count=2, kind=None):
        import torch

        strides = tuple(math.prod(shape[place + 1 :]) for place in range(len(shape))) if strides is None else strides
        storage = Storage(kind or torch.FloatStorage, key, count)
        self.call = torch._utils._rebuild_tensor_v2, (storage, offset, shape, strides, False, OrderedDict())

    def __reduce__(self):
        return self.call


class Call:
    """What a pickle runs where it is loaded as Python loads it."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class Pickler(pickle.Pickler):
    legacy = False

    def persistent_id(self, value):
        return (*value.identity, None)[: 6 if self.legacy else 5] if isinstance(value, Storage) else None


def pickled(value, *, legacy):
    if isinstance(value, bytes):
        return value
    buffer = io.BytesIO()
    pickler = Pickler(buffer, 2)
    pickler.legacy = legacy
    pickler.dump(value)
    return buffer.getvalue()


def save_zip(path, value, storages=None, *, compression=zipfile.ZIP_STORED, entries=()):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled(value, legacy=False))
        for key, content in (storages or {}).items():
            archive.writestr(f"archive/data/{key}", content)
        for name, content in entries:
            archive.writestr(name, content)


def save_legacy(path, value, storages=None, *, keys=None, counts=None):
    """The format before: five pickles, then each storage behind its number of values, four bytes each."""
    storages = storages or {}
    machine = {"protocol_version": VERSION, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    with Path(path).open("wb") as file:
        for one in (MAGIC, VERSION, machine):
            pickle.dump(one, file, 2)
        file.write(pickled(value, legacy=True))
        pickle.dump(sorted(storages) if keys is None else keys, file, 2)
        lengths = {key: len(content) // 4 for key, content in storages.items()} | (counts or {})
        file.writelines(struct.pack("<q", lengths[key]) + storages[key] for key in sorted(storages))


SAVE = {"zip": save_zip, "legacy": save_legacy}


def text(content):
    return b"X" + struct.pack("<I", len(content)) + content


def optimizer(*states, **beside):
    groups = [{"lr": 0.1, "params": list(range(len(states)))}]
    return {"optimizer": {"state": dict(enumerate(states)), "param_groups": groups}, "global_step": 7, **beside}


def adam(**changes):
    return {"step": 7, "exp_avg": Tensor("0"), "exp_avg_sq": Tensor("1")} | changes


STORED = {"0": TWO, "1": TWO}


def state(**changes):
    """A parameter's state with changes, in a file that is sound otherwise."""

    def make(folder, save):
        values = {key: change() if callable(change) else change for key, change in changes.items()}
        save(folder / NAME, optimizer(adam(), adam(**values)), STORED)

    return make


def stored(content):
    """Moments of these values."""

    def make(folder, save):
        both = {"exp_avg": Tensor("0"), "exp_avg_sq": Tensor("1")}
        save(folder / NAME, optimizer({"step": 7, **both}), {"0": content, "1": content})

    return make


def program(content):
    """A pickle made by hand."""
    return lambda folder, save: save(folder / NAME, content() if callable(content) else content)


def calling(place):
    """A pickle that runs a command, somewhere in a sound state."""

    def make(folder, save):
        command = Call(os.system, f"touch {folder / 'canary'}")
        root = optimizer(adam())
        inner = root["optimizer"]
        target, key = {
            "beside": (root, "evil"),
            "in the state": (inner["state"], "evil"),
            "in a group": (inner["param_groups"][0], "evil"),
            "as a step": (inner["state"][0], "step"),
            "deep": (root.setdefault("a", {"b": {"c": {"d": {}}}})["b"]["c"]["d"], "evil"),
        }[place]
        target[key] = command
        save(folder / NAME, root, STORED)

    return make


def million_keys():
    keys = b"".join(b"J" + struct.pack("<i", index) + b"N" for index in range(10**6))
    return b"\x80\x02}(" + text(b"state") + b"}(" + keys + b"u" + text(b"param_groups") + b"]u."


def integers(count):
    return b"".join(b"J" + struct.pack("<i", index) for index in range(count))


def group_a_hundred_thousand_times():
    group = b"}q\x01(" + text(b"params") + b"](" + integers(40_000) + b"eu"
    return b"\x80\x02}(" + text(b"state") + b"}" + text(b"param_groups") + b"](" + group + b"h\x01" * 10**5 + b"eu."


def lists_of_a_thousand_lists():
    below = (b"0]q" + bytes([depth]) + b"(" + bytes([ord("h"), depth - 1]) * 1000 + b"e" for depth in range(1, 5))
    return b"\x80\x02]q\x00" + b"".join(below) + b"."


def parameters_of(entry, count=40_000):
    """A state dict in which all parameters have the same entry, kept as 5."""
    states = b"".join(b"J" + struct.pack("<i", index) + b"h\x05" for index in range(count))
    content = text(b"state") + b"}(" + states + b"u" + text(b"param_groups") + b"]u"
    return b"\x80\x02" + entry + b"q\x050}q\x06(" + content


def same_state_a_thousand_times():
    beside = b"0](" + b"".join(b"}(" + text(b"state") + b"h\x07" + text(b"param_groups") + b"]u" for _ in range(1000))
    states = b"}q\x07(" + b"".join(b"J" + struct.pack("<i", index) + b"h\x05" for index in range(40_000)) + b"u"
    return b"\x80\x02}q\x050" + states + beside + b"e."


def entry_of_many_keys(quantised):
    keys = b"".join(b"J" + struct.pack("<i", index) + b"N" for index in range(200_000))
    inner = text(b"__bnb_optimizer_quant_state__") + b"}" if quantised else b""
    return parameters_of(b"}(" + keys + inner + b"u") + b"."


def benign(folder, save):
    import numpy as np
    import torch

    weight = torch.nn.Parameter(torch.zeros(2))
    adamw = torch.optim.AdamW([weight])
    weight.sum().backward()
    adamw.step()
    beside = {
        "args": Namespace(lr=0.1, folder=PurePosixPath("/runs")),
        "path": PurePosixPath("/runs/1"),
        "best": np.float64(0.25),
        "rng": np.random.RandomState(0).get_state(),
        "sparse": torch.eye(3).to_sparse(),
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        "size": torch.Size([2]),
        "complex": torch.zeros(2, dtype=torch.complex64),
        "set": {1, 2},
    }
    content = {"optimizer": adamw.state_dict(), "global_step": 7, **beside}
    torch.save(content, folder / NAME, _use_new_zipfile_serialization=save is save_zip)


def truncated(folder, save):
    save(folder / NAME, optimizer(adam()), STORED)
    content = (folder / NAME).read_bytes()
    (folder / NAME).write_bytes(content[:-5])


def lying(folder, save):
    save(folder / NAME, optimizer(adam(exp_avg_sq=Tensor("1", count=10**9))), STORED)


def many_on_one(folder, save):
    large = {"exp_avg": Tensor("0", (10**6,), count=10**6), "exp_avg_sq": Tensor("0", (10**6,), count=10**6)}
    root = {"state": dict.fromkeys(range(30_000), large), "param_groups": []}
    save(folder / NAME, root, {"0": bytes(4 * 10**6)})


BOTH = {
    **{f"os.system {place}": Sample(calling(place), "asks to call posix.system") for place in
       ("beside", "in the state", "in a group", "as a step", "deep")},
    "memo index of two billion": Sample(program(b"\x80\x02Nr\xff\xff\xff\x7f0N."), "no optimizer state"),
    "memo index never set": Sample(program(b"\x80\x02j\xff\xff\xff\x7f."), "malformed"),
    "BYTEARRAY8 of a terabyte": Sample(program(b"\x80\x05\x96" + struct.pack("<Q", 10**12) + b"abc."), "announces"),
    "text of 4 GB": Sample(program(b"\x80\x02X\xff\xff\xff\xffabc."), "announces"),
    "lists nested a million deep": Sample(program(b"\x80\x02" + b"]" * 10**6 + b"a" * (10**6 - 1) + b"."), "more than"),
    "marks nested a million deep": Sample(program(b"\x80\x02" + b"(" * 10**6 + b"t" * 10**6 + b"."), "nested more"),
    "tuples nested a million deep": Sample(program(b"\x80\x02)" + b"\x85" * 10**6 + b"."), "no optimizer state"),
    "a million keys": Sample(program(million_keys), "more than the"),
    "tuples of 2**60 paths": Sample(program(b"\x80\x02)\x85" + b"2\x86" * 60 + b"."), "no optimizer state"),
    "tuples of 2**60 paths as a key": Sample(program(b"\x80\x02})\x85" + b"2\x86" * 60 + b"Ns."), "no optimizer state"),
    "a dictionary in itself": Sample(program(b"\x80\x02}q\x00" + text(b"me") + b"h\x00s."), "no optimizer state"),
    "a list in itself": Sample(program(b"\x80\x02]q\x00h\x00a."), "no optimizer state"),
    "opcodes without end": Sample(program(lambda: b"\x80\x02" + b"N0" * 3 * 10**6 + b"N."), "opcodes"),
    "an integer of a million bytes": Sample(program(b"\x80\x02\x8b" + struct.pack("<I", 10**6) + bytes(10**6) + b"."), "integer"),
    "a group a hundred thousand times": Sample(program(group_a_hundred_thousand_times), "more than the"),
    "lists of a thousand lists": Sample(program(lists_of_a_thousand_lists), "no optimizer state"),
    "a state a thousand times": Sample(program(same_state_a_thousand_times), "more than the"),
    "parameters that share 200,000 keys": Sample(program(lambda: entry_of_many_keys(quantised=False)), QUIET),
    "parameters that share 200,000 quantised keys": Sample(program(lambda: entry_of_many_keys(quantised=True)), QUIET),
    "a stride of 0": Sample(state(exp_avg_sq=lambda: Tensor("1", (10**12,), (0,))), "densely"),
    "a negative stride": Sample(state(exp_avg_sq=lambda: Tensor("1", (2,), (-1,), offset=1)), "densely"),
    "a negative size": Sample(state(exp_avg_sq=lambda: Tensor("1", (-2,), (1,))), "negative"),
    "a negative offset": Sample(state(exp_avg_sq=lambda: Tensor("1", offset=-1)), "negative"),
    "sizes whose product overflows": Sample(state(exp_avg_sq=lambda: Tensor("1", (2**32, 2**32))), "beyond its storage"),
    "a size of 2**80": Sample(state(exp_avg_sq=lambda: Tensor("1", (2**80,), (1,))), "no file holds"),
    "thousands of dimensions": Sample(state(exp_avg_sq=lambda: Tensor("1", (1,) * 5000)), "shape"),
    "a storage shorter than its tensor": Sample(state(exp_avg_sq=lambda: Tensor("1", (3,))), "beyond its storage"),
    "a storage shorter than it says": Sample(lying, "instead of|beyond the end"),
    "a missing storage": Sample(state(exp_avg_sq=lambda: Tensor("3")), "storage|missing"),
    "a step of -3": Sample(state(step=-3), None),
    "a step of 10**400": Sample(state(step=10**400), None),
    "a step that is NaN": Sample(state(step=math.nan), None),
    "a step that is a text": Sample(state(step="12"), None),
    "a step of two numbers": Sample(state(step=lambda: Tensor("0")), "where one number belongs"),
    "moments that are all NaN": Sample(stored(struct.pack("<2f", math.nan, math.nan)), None),
    "moments that are all infinite": Sample(stored(struct.pack("<2f", math.inf, -math.inf)), None),
    "second moments below 0": Sample(stored(struct.pack("<2f", -1.0, -2.0)), None),
    "what training states hold besides": Sample(benign, None),
    "cut short": Sample(truncated, "truncated|cut short"),
    "a large storage of 30,000 parameters": Sample(many_on_one, "larger than the file"),
}  # fmt: skip


def written(content, name=NAME):
    return lambda folder, save: (folder / name).write_bytes(content() if callable(content) else content)


def in_zip(**options):
    return lambda folder, save: save_zip(folder / NAME, optimizer(adam()), STORED, **options)


def in_legacy(**options):
    return lambda folder, save: save_legacy(folder / NAME, optimizer(adam()), STORED, **options)


def inflated(folder, save):
    """What inflates to 10 GB, were it inflated: announced and not all there."""
    states = optimizer({"exp_avg_sq": Tensor("0", (10**7,), count=10**7)})
    save_zip(folder / NAME, states, {"0": bytes(4 * 10**7)}, compression=zipfile.ZIP_DEFLATED)
    content = bytearray((folder / NAME).read_bytes())
    struct.pack_into("<I", content, content.rindex(b"PK\x01\x02") + 24, 0xFFFFFFF0)
    (folder / NAME).write_bytes(content)


def tar():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("pickle"), io.BytesIO())
    return buffer.getvalue()


def torchscript(folder, save):
    with zipfile.ZipFile(folder / NAME, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}, 2))
        archive.writestr("archive/constants.pkl", pickle.dumps((), 2))
        archive.writestr("archive/code/__torch__.py", "class Module: pass")


def twice(folder, save):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save_zip(folder / NAME, optimizer(adam()), STORED, entries=[("archive/data/0", bytes(8))])


def views(folder, save):
    """Storages that are parts of others: what the sixth part of their identity is for."""

    class View(Storage):
        def __init__(self):
            self.identity = ("storage", Tensor("0").call[1][0].identity[1], "0", "cpu", 2, ("1", 0, 2))

    tensor = Tensor("0")
    tensor.call = tensor.call[0], (View(), *tensor.call[1][1:])
    save_legacy(folder / NAME, optimizer(adam(exp_avg=tensor)), STORED)


ONE_FORMAT = {
    "nothing": Sample(written(b""), "empty"),
    "one byte": Sample(written(b"P"), "too short"),
    "random bytes": Sample(written(random.Random(0).randbytes(10**6)), "not a whole zip file"),
    "a tar file": Sample(written(tar), "not a whole zip file"),
    "a plain pickle": Sample(written(pickle.dumps({"state": {}})), "not a whole zip file"),
    "TorchScript": Sample(torchscript, "TorchScript"),
    "compressed entries": Sample(in_zip(compression=zipfile.ZIP_DEFLATED), "compressed"),
    "a compression bomb": Sample(inflated, "compressed"),
    "an entry above the archive": Sample(in_zip(entries=[("../../evil", b"evil")]), "points out"),
    "an entry at the root": Sample(in_zip(entries=[("/etc/evil", b"evil")]), "points out"),
    "an entry twice": Sample(twice, "two of its entries"),
    "legacy: a million keys of storages": Sample(in_legacy(keys=list(map(str, range(10**6)))), "list its storages"),
    "legacy: keys that are no list": Sample(in_legacy(keys={"0": 1}), "list its storages"),
    "legacy: a storage twice": Sample(in_legacy(keys=["0", "0"]), "or twice"),
    "legacy: a storage that nothing names": Sample(in_legacy(keys=["0", "9"]), "nothing refers to"),
    "legacy: a negative count": Sample(in_legacy(counts={"1": -1}), "another size"),
    "legacy: a count of 2**62": Sample(in_legacy(counts={"1": 2**62}), "another size"),
    "legacy: storages that are views": Sample(views, "views of each other|unknown way"),
    "legacy: only its beginning": Sample(written(lambda: pickle.dumps(MAGIC, 2)), "cut short"),
    "legacy: version a million digits": Sample(
        written(
            lambda: pickle.dumps(MAGIC, 2) + b"\x80\x02\x8b" + struct.pack("<I", 400_000) + b"\x7f" * 400_000 + b"."
        ),
        "integer",
    ),
}


# Weights beside a sound checkpoint


def weights(header, data=b"", length=None):
    def make(folder, save):
        save_zip(folder / NAME, optimizer(adam()), STORED)
        content = header() if callable(header) else header
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        size = len(content) if length is None else length
        (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", size) + content + data)

    return make


def tensor_entry(start=0, end=8, shape=(2,), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


def million_empty():
    entries = (f'"{index:07d}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for index in range(10**6))
    return f"{{{','.join(entries)}}}".encode()


def names_of_many_modules():
    """Whose tree would have 400,000 modules."""
    names = (".".join((f"m{index}", *("module",) * 39)) for index in range(10_000))
    return {name: tensor_entry(8 * place, 8 * place + 8) for place, name in enumerate(names)}


def many_modules(folder, save):
    states = [adam() for _ in range(10_000)]
    weights(names_of_many_modules(), bytes(8 * 10_000))(folder, save)
    save_zip(folder / NAME, optimizer(*states), STORED)


WEIGHTS = {
    "weights: names of 400,000 modules": Sample(many_modules, QUIET),
    "weights: a header of 2**64 - 1 bytes": Sample(weights(b"{}", length=2**64 - 1), "announces a header"),
    "weights: a header of a terabyte": Sample(weights(b"{}", length=10**12), "announces a header"),
    "weights: two that overlap": Sample(weights({"a": tensor_entry(), "b": tensor_entry(4, 12)}, bytes(16)), "overlap"),
    "weights: out of bounds": Sample(weights({"a": tensor_entry(8, 16)}, bytes(8)), "beyond the end"),
    "weights: far out of bounds": Sample(weights({"a": tensor_entry(2**70, 2**70 + 8)}, bytes(8)), "beyond the end"),
    "weights: a shape that overflows": Sample(weights({"a": tensor_entry(shape=(2**32, 2**32))}, bytes(8)), "contradict"),
    "weights: a million empty tensors": Sample(weights(million_empty), "announces a header|not JSON"),
    "weights: a name twice": Sample(weights(b'{"a": {}, "a": {}}'), "same key twice"),
    "weights: nested a million deep": Sample(weights(b"[" * 10**6 + b"]" * 10**6), "not JSON"),
    "weights: an integer of a million digits": Sample(weights(b'{"a": ' + b"9" * 10**6 + b"}"), "not JSON"),
}  # fmt: skip


# Logs


GOOD = b"".join(b'{"step": %d, "loss": %f}\n' % (step, 2.0 / step) for step in range(1, 40))


def log(line):
    return lambda folder, save: (folder / "metrics.jsonl").write_bytes(
        GOOD + (line() if callable(line) else line) + b"\n"
    )


def trainer(content):
    return written(content, "trainer_state.json")


LOGS = {
    "a line nested a million deep": Sample(log(b"[" * 10**6 + b"]" * 10**6), "line"),
    "objects nested a million deep": Sample(log(b'{"a":' * 10**6), "line"),
    "an integer of a million digits": Sample(log(b'{"step": 40, "loss": ' + b"9" * 10**6 + b"}"), "line"),
    "a line of 100 MB": Sample(log(lambda: b'{"step": 40, "a": "' + b"x" * 10**8 + b'"}'), "line"),
    "NaN and Infinity": Sample(log(b'{"step": 40, "loss": NaN}\n{"step": 41, "loss": -Infinity}'), None),
    "lone surrogates": Sample(log(b'{"step": 40, "\\ud800": 1, "loss": 0.1}'), None),
    "a trainer state nested a million deep": Sample(
        trainer(b'{"log_history": ' + b"[" * 10**6 + b"]" * 10**6 + b"}"), "not JSON"
    ),
    "a trainer state of a million digits": Sample(
        trainer(b'{"log_history": [], "global_step": ' + b"9" * 10**6 + b"}"), "not JSON"
    ),
    "a trainer state of 100 MB": Sample(trainer(lambda: b'{"log_history": "' + b"x" * 10**8 + b'"}'), "larger than"),
}


# Names


NAMES = {
    "a script": "<script>alert(1)</script>",
    "escapes": "\x1b[2J\x1b[31mred\x9b0m",
    "line ends": "a\nPASS  all is well\r\n\tb",
    "ten kilobytes": "n" * 10_000,
    "direction marks": "\u202egnp.\u2066exe\u200b\u200f",
    "a link": "[x](javascript:alert(1))",
}


def named(name):
    """A parameter, a group, a metric, a text and a tensor that bear the name, in a state that says something of them."""

    def make(folder, save):
        parameters = [adam(exp_avg_sq=Tensor("2")), adam()]
        root = optimizer(*parameters)
        root["optimizer"]["param_groups"][0]["param_names"] = [name, f"{name}.1"]
        root["optimizer"]["param_groups"][0][name] = name
        root[name] = name
        save(folder / NAME, root, {**STORED, "2": struct.pack("<2f", math.nan, 1.0)})
        rows = [{"step": step, name: math.nan, "loss": 2.0 / step, "note": name} for step in range(1, 40)]
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")

    return make
