"""A file of ``torch.export.save`` (``model.pt2``), without torch: the weights of an exported program.

It is a zip archive. Since torch 2.9 each weight is an entry of raw bytes, and ``data/weights/NAME_weights_config.json``
says what is where; a weight of a tensor subclass is an entry of ``torch.save``. In torch 2.8 all weights are one such
entry, ``data/weights/NAME.pt``, and before that ``serialized_state_dict.pt`` (in the first versions called ``.json``).
Constants, graphs and sample inputs are not looked at, and nothing is unpickled but by ``SafePickle``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.readers.files.json_lines import parse_json
from tracker_health.readers.files.random_access import RandomAccess, Stretch
from tracker_health.readers.files.zip_directory import ZipEntry
from tracker_health.readers.tensors.weights import MAX_TENSORS
from tracker_health.readers.torch_files.torch_pickle import StorageRef, TensorRef, UnreadTensor, checked_tensor
from tracker_health.readers.torch_files.torch_zip import TorchZip, ZippedTensors
from tracker_health.text import printable

_WHOLE = re.compile(r"(?:.*/)?serialized_state_dict\.(?:pt|json)")
_CONFIG = re.compile(r"((?:[^/]+/)?)data/weights/([^/]+)_weights_config\.json")
_LEGACY = re.compile(r"((?:[^/]+/)?)data/weights/([^/]+)\.pt")
_COMPILED = re.compile(r"(?:[^/]+/)?data/aotinductor/.*")
_MARKS = ("archive_format", "serialized_state_dict.pt", "serialized_state_dict.json")
_MOST_CONFIG_BYTES = 16 * 2**20
_STRIDED = 7
# torch's numbers for dtypes (``torch._export.serde.schema.ScalarType``): our codes, and bytes of a value.
_DTYPES = {
    1: ("u1", 1), 2: ("i1", 1), 3: ("i2", 2), 4: ("i4", 4), 5: ("i8", 8), 6: ("f2", 2), 7: ("f4", 4), 8: ("f8", 8),
    10: ("unknown ComplexFloatStorage", 8), 11: ("unknown ComplexDoubleStorage", 16), 12: ("u1", 1), 13: ("bf16", 2),
    28: ("u2", 2), 29: ("f8_e4m3fn", 1), 30: ("f8_e5m2", 1), 31: ("f8_e4m3fnuz", 1), 32: ("f8_e5m2fnuz", 1),
    34: ("u4", 4), 35: ("u8", 8),
}  # fmt: skip


def is_exported(names: Collection[str]) -> bool:
    """Whether a zip archive with entries of these names is an exported program."""
    return any(name.endswith(_MARKS) and name.rpartition("/")[2] in _MARKS for name in names)


class ExportedProgram(ZippedTensors):
    """An open archive of ``torch.export.save``. ``root``: the weights by name, of several programs below their names.

    Raises:
        ReadError: not such a file, or one that cannot be trusted.
        OSError: the file cannot be read.
    """

    folder = "data/weights/"
    is_model = True

    def __init__(self, source: RandomAccess, entries: Mapping[str, ZipEntry]) -> None:
        whole = next((name for name in entries if _WHOLE.fullmatch(name)), "")
        configs, legacy = ([found for name in entries if (found := one.fullmatch(name))] for one in (_CONFIG, _LEGACY))
        named = {found[2]: found for found in (*configs, *legacy)}
        prefixes = {found[1] for found in (*configs, *legacy)}
        if any(name.rpartition("/")[2] == "data.pkl" for name in entries):
            raise ReadError("it is an exported program and a file of torch.save at once: only one of them can count")
        if not whole and not named:
            why = (
                "is compiled: its weights are not read" if any(map(_COMPILED.fullmatch, entries)) else "has no weights"
            )
            raise ReadError(f"it is an exported program that {why}")
        if len(prefixes) + bool(whole) > 1:
            raise ReadError("it is an exported program with weights in several places")
        self._inner: dict[str, TorchZip] = {}
        self._left = source.size
        super().__init__(source, entries, next(iter(prefixes), ""))
        if whole:
            programs = {"": _weights_in(self._saved(whole).root)}
        else:
            programs = {name: self._program(found) for name, found in named.items()}
        several = len(programs) > 1
        self.root = {
            f"{program}/{name}" if several else name: tensor
            for program, weights in programs.items()
            for name, tensor in weights.items()
        }
        if len(self.root) > MAX_TENSORS:
            raise ReadError(f"it has more than the {MAX_TENSORS} tensors that are read")
        self.stubs = tuple(dict.fromkeys(stub for one in self._inner.values() for stub in one.stubs))

    def begin_pass(self) -> None:
        super().begin_pass()
        for one in self._inner.values():
            one.begin_pass()

    def _program(self, found: re.Match[str]) -> Mapping[Any, Any]:
        """The weights of one of the programs."""
        path = found[0].removeprefix(self._prefix)
        if found.re is _LEGACY:
            return _weights_in(self._saved(path).root)
        try:
            config = parse_json(self._bytes(path, _MOST_CONFIG_BYTES))["config"]
            items = config.items()
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
            raise ReadError(f"its entry {printable(path, 80)} does not say where its weights are") from error
        return {name: self._tensor(name, entry) for name, entry in items}

    def _tensor(self, name: str, entry: Any) -> Any:
        """A weight, from what the configuration says of it."""
        try:
            path, is_saved, meta = entry["path_name"], entry["use_pickle"], entry["tensor_meta"]
            if is_saved:
                saved = self._saved(f"{self.folder}{path}").root
                return saved if isinstance(saved, TensorRef) else UnreadTensor("a tensor subclass")
            dtype, width = _DTYPES.get(meta["dtype"], ("unknown number", 1))
            shape, strides = ([one["as_int"] for one in meta[key]] for key in ("sizes", "strides"))
            offset, is_strided = meta["storage_offset"]["as_int"], meta["layout"] == _STRIDED
        except (KeyError, TypeError, AttributeError) as error:
            raise ReadError(f"its weight {printable(name, 80)} is described in an unknown way") from error
        there = self._entries.get(f"{self._prefix}{self.folder}{path}")
        if there is None:
            raise ReadError(f"its weight {printable(name, 80)} is missing")
        if not is_strided:
            return UnreadTensor("sparse tensors")
        storage = StorageRef(self, str(path), dtype, there.size // width)
        return checked_tensor(storage, dtype, offset, shape, strides)

    def _saved(self, name: str) -> TorchZip:
        """An entry that is a file of ``torch.save``: read once, and all together no larger than the file."""
        if name not in self._inner:
            start, length = self._extent(name)
            self._left -= length
            if self._left < 0:
                raise ReadError("its entries overlap: together they are larger than the file")
            self._inner[name] = TorchZip(Stretch(self.source, start, length))
        return self._inner[name]


def _weights_in(root: Any) -> Mapping[Any, Any]:
    """A state dict that was saved whole."""
    if not isinstance(root, Mapping) or not all(isinstance(name, str) for name in root):
        raise ReadError("its weights are no state dict")
    return root
