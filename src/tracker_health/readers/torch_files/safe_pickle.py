"""A pickle machine that can only build plain data.

Python's own unpickler resolves names to live objects and calls them; restricting it means to guard every way in. This
machine has no way in: it interprets the opcodes that trainers write, and knows just numbers, strings, containers and
inert ``Opaque`` stand-ins. A ``REDUCE`` calls nothing but the few builders that its caller hands it. What it allocates
is bounded by the size of the input and by the limits below: lengths are checked before anything is read, memo indices
are dictionary keys, and keys are hashed only if that is cheap.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.text import printable

# AdamW takes 93 opcodes, 7 containers and 230 bytes a parameter. An opcode can cost 90 bytes of memory and a set 220,
# and a text with one rare character takes four times its length: the limits keep the worst of each below 256 MB.
MAX_BYTES = 32 * 2**20
MAX_OPCODES = 2_500_000
MAX_CONTAINERS = 300_000
MAX_STUB_NAMES = 1000
_MAX_DEPTH = 100_000
_MAX_NAME_CHARACTERS = 1000
_GETATTR = frozenset({"builtins.getattr", "__builtin__.getattr"})
_MAX_INTEGER_BYTES = 1024


class Opaque:
    """Stands where the pickle had an object that is not rebuilt. Takes any item or state, and keeps nothing."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Opaque({self.name})"


class Global:
    """A name that the pickle refers to. Never resolved."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


class PickledObject:
    """An object of a class that its caller knows: what the class was given, and the state that was set. Inert."""

    __slots__ = ("arguments", "path", "state")

    def __init__(self, path: str, arguments: tuple[Any, ...]) -> None:
        self.path = path
        self.arguments = arguments
        self.state: Any = None

    def get(self, name: str) -> Any:
        """What its state has under a name; None where it has nothing."""
        return self.state.get(name) if isinstance(self.state, dict) else None


Builder = Callable[[tuple[Any, ...]], Any]

_ORDERED_DICTS = frozenset({"collections.OrderedDict", "collections.defaultdict"})
_COUNTER = "collections.Counter"  # of a schedule's milestones
_PLAIN_KEYS = frozenset({str, float, bool, bytes, type(None), Opaque, Global, PickledObject})


class _Stop(Exception):
    """The STOP opcode was reached."""


def _member_of_enum(target: Global, arguments: Any) -> tuple[Global | None, str]:
    """The class and the name of an enum's member, as Python before 3.11.4 writes it: ``getattr(Colour, "RED")``. Other
    attributes than names in capitals may be functions, and are left to be reported.
    """
    if target.path not in _GETATTR or not isinstance(arguments, tuple) or len(arguments) != 2:
        return None, ""
    owner, name = arguments
    if not isinstance(owner, Global) or not isinstance(name, str) or len(name) > _MAX_NAME_CHARACTERS:
        return None, ""
    is_constant = name.isidentifier() and name.isupper() and not name.startswith("_")
    return (owner, name) if is_constant else (None, "")


class SafePickle:
    """Interprets one pickle.

    ``builders`` make values for the named callables (``torch._utils._rebuild_tensor_v2``); every other callable becomes
    an ``Opaque`` and is listed in ``stubs``. ``persistent`` makes a value of a persistent id. ``records`` are classes
    whose objects are kept as a ``PickledObject`` of their plain state. ``at`` is where the pickle begins in the data.
    """

    def __init__(
        self,
        data: bytes,
        builders: Mapping[str, Builder] | None = None,
        persistent: Callable[[Any], Any] | None = None,
        *,
        records: Collection[str] = (),
        at: int = 0,
    ) -> None:
        if len(data) > MAX_BYTES:
            raise ReadError(f"its pickle is {len(data)} bytes long, more than the {MAX_BYTES} that are read")
        self._data = data
        self._at = at
        self._builders = builders or {}
        self._persistent = persistent
        self._records = records
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._stubs: dict[str, str] = {}
        self._containers = 0
        self._result: Any = None

    @property
    def stubs(self) -> tuple[str, ...]:
        """The names of callables that were not called and classes that were not built, in order of appearance."""
        return tuple(self._stubs.values())

    @property
    def end(self) -> int:
        """Where the pickle ends in the data, once it is loaded."""
        return self._at

    def load(self) -> Any:
        """The pickled value.

        Raises:
            ReadError: it is cut short, malformed, or uses what trainers do not write.
        """
        data, dispatch = self._data, _DISPATCH
        try:
            for _ in range(MAX_OPCODES):
                operation = dispatch[data[self._at]]
                if operation is None:
                    raise ReadError(f"its pickle uses opcode {data[self._at]:#04x}, which trainers do not write")
                self._at += 1
                operation(self)
        except _Stop:
            return self._result
        except (IndexError, KeyError, struct.error) as error:
            raise ReadError(f"its pickle is cut short or malformed at byte {self._at}") from error
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ReadError(f"its pickle is malformed at byte {self._at}: {printable(error)}") from error
        raise ReadError(f"its pickle has more than {MAX_OPCODES} opcodes")

    # Input

    def _take(self, size: int) -> bytes:
        start = self._at
        if size < 0 or size > len(self._data) - start:
            raise ReadError(f"its pickle announces {size} bytes at byte {start} and ends before")
        self._at = start + size
        return self._data[start : self._at]

    def _unpack(self, layout: struct.Struct) -> Any:
        (value,) = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return value

    def _line(self) -> str:
        end = self._data.index(b"\n", self._at, self._at + _MAX_NAME_CHARACTERS)
        line = self._data[self._at : end]
        self._at = end + 1
        return line.decode("utf-8", "replace")

    def _pop_mark(self) -> list[Any]:
        items = self._stack
        self._stack = self._marks.pop()
        return items

    # Constants

    def _stop(self) -> None:
        self._result = self._stack.pop()
        raise _Stop

    def _protocol(self) -> None:
        version = self._unpack(_U8)
        if version > 5:
            raise ReadError(f"its pickle has protocol {version}; the newest known is 5")

    def _frame(self) -> None:
        self._unpack(_U64)

    def _text(self, layout: struct.Struct) -> None:
        self._stack.append(self._take(self._unpack(layout)).decode("utf-8", "surrogatepass"))

    def _bytes(self, layout: struct.Struct) -> None:
        self._stack.append(self._take(self._unpack(layout)))

    def _number(self, layout: struct.Struct) -> None:
        self._stack.append(self._unpack(layout))

    def _integer(self, layout: struct.Struct) -> None:
        size = self._unpack(layout)
        if size > _MAX_INTEGER_BYTES:
            raise ReadError(f"its pickle holds an integer of {size} bytes")
        self._stack.append(int.from_bytes(self._take(size), "little", signed=True))

    # Memo and stack

    def _put(self, layout: struct.Struct) -> None:
        self._memo[self._unpack(layout)] = self._stack[-1]

    def _memoize(self) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _get(self, layout: struct.Struct) -> None:
        self._stack.append(self._memo[self._unpack(layout)])

    def _mark(self) -> None:
        if len(self._marks) >= _MAX_DEPTH:
            raise ReadError(f"its pickle is nested more than {_MAX_DEPTH} deep")
        self._marks.append(self._stack)
        self._stack = []

    def _pop(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._pop_mark()

    def _drop_mark(self) -> None:
        self._pop_mark()

    def _duplicate(self) -> None:
        self._stack.append(self._stack[-1])

    # Containers

    def _new(self, container: Any) -> None:
        """Push a dictionary, list, set or built object."""
        self._containers += 1
        if self._containers > MAX_CONTAINERS:
            raise ReadError(f"its pickle has more than {MAX_CONTAINERS} dictionaries, lists, sets and objects")
        self._stack.append(container)

    def _tuple(self, size: int) -> None:
        if len(self._stack) < size:
            raise IndexError
        self._stack[-size:] = [tuple(self._stack[-size:])]

    def _tuple_from_mark(self) -> None:
        items = self._pop_mark()
        self._stack.append(tuple(items))

    def _list_from_mark(self) -> None:
        items = self._pop_mark()
        self._new(items)

    def _dict_from_mark(self) -> None:
        items = self._pop_mark()
        self._new({})
        self._set_items(items)

    def _append(self) -> None:
        self._extend([self._stack.pop()])

    def _appends(self) -> None:
        items = self._pop_mark()
        self._extend(items)

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif not isinstance(target, Opaque):
            raise ReadError(f"its pickle appends to a {type(target).__name__}")

    def _set_item(self) -> None:
        value = self._stack.pop()
        key = self._stack.pop()
        self._set_items([key, value])

    def _set_items_from_mark(self) -> None:
        items = self._pop_mark()
        self._set_items(items)

    def _set_items(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, Opaque):
            return
        if not isinstance(target, dict) or len(items) % 2:
            raise ReadError(f"its pickle sets items of a {type(target).__name__}")
        for index in range(0, len(items), 2):
            key = items[index]
            target[key if key.__class__ is str else _key(key)] = items[index + 1]

    def _add_items(self) -> None:
        items = self._pop_mark()
        target = self._stack[-1]
        if isinstance(target, Opaque):
            return
        if not isinstance(target, set):
            raise ReadError(f"its pickle adds to a {type(target).__name__}")
        target.update(map(_key, items))

    def _frozenset(self) -> None:
        items = self._pop_mark()
        self._new(frozenset(map(_key, items)))

    # Names and calls

    def _global(self) -> None:
        module = self._line()
        self._stack.append(Global(module, self._line()))

    def _stack_global(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise ReadError("its pickle names an object by something that is not text")
        if len(module) + len(name) > _MAX_NAME_CHARACTERS:
            raise ReadError(f"its pickle names an object in {len(module) + len(name)} characters")
        self._stack.append(Global(module, name))

    def _persistent_id(self) -> None:
        identity = self._stack.pop()
        if self._persistent is None:
            raise ReadError("its pickle refers to data outside of itself")
        self._stack.append(self._persistent(identity))

    def _reduce(self) -> None:
        arguments = self._stack.pop()
        self._new(self._built(self._stack.pop(), arguments))

    def _newobj(self) -> None:
        self._reduce()

    def _newobj_ex(self) -> None:
        self._stack.pop()
        self._reduce()

    def _obj(self) -> None:
        items = self._pop_mark()
        self._new(self._built(items[0], tuple(items[1:])))

    def _inst(self) -> None:
        module = self._line()
        target = Global(module, self._line())
        arguments = self._pop_mark()
        self._new(self._built(target, tuple(arguments)))

    def _built(self, target: Any, arguments: Any) -> Any:
        if not isinstance(target, Global):
            return Opaque("object")
        if target.path in _ORDERED_DICTS:
            return {}
        if target.path == _COUNTER:
            counts = arguments[0] if isinstance(arguments, tuple) and arguments else None
            return counts if isinstance(counts, dict) else {}
        builder = self._builders.get(target.path)
        if builder is not None and isinstance(arguments, tuple):
            return builder(arguments)
        if target.path in self._records and isinstance(arguments, tuple):
            return PickledObject(target.path, arguments)
        path = target.path
        owner, member = _member_of_enum(target, arguments)
        if owner is not None:
            if owner.path in self._records:
                return PickledObject(owner.path, (member,))
            path = f"{owner.path}.{member}"
        if path not in self._stubs:
            self._stubs[path] = printable(path, 120)
            if len(self._stubs) > MAX_STUB_NAMES:
                # Not cut off: behind a thousand harmless names the dangerous one would go unreported.
                raise ReadError(f"its pickle calls more than {MAX_STUB_NAMES} different objects")
        return Opaque(self._stubs[path])

    def _build(self) -> None:
        # State for an object: dictionaries keep their items without it (torch's `_metadata`), stand-ins keep nothing.
        state = self._stack.pop()
        target = self._stack[-1]
        if isinstance(target, PickledObject):
            target.state = state


def _key(key: Any) -> Any:
    """The key itself where hashing it is cheap, else a stand-in.

    Nested tuples that share parts take exponentially long; tuples and long integers can be chosen so that all collide.
    """
    kind = key.__class__
    if kind in _PLAIN_KEYS or (kind is int and -(2**63) <= key < 2**64):
        return key
    return Opaque(f"{kind.__name__} as a key")


_U8, _U16, _U32, _U64 = (struct.Struct(f"<{code}") for code in "BHIQ")
_I32, _FLOAT = struct.Struct("<i"), struct.Struct(">d")


def _table() -> list[Callable[[SafePickle], None] | None]:
    machine = SafePickle
    operations: dict[int, Callable[[SafePickle], None]] = {
        ord("."): machine._stop,
        0x80: machine._protocol,
        0x95: machine._frame,
        ord("N"): lambda m: m._stack.append(None),
        0x88: lambda m: m._stack.append(True),
        0x89: lambda m: m._stack.append(False),
        ord("K"): lambda m: m._number(_U8),
        ord("M"): lambda m: m._number(_U16),
        ord("J"): lambda m: m._number(_I32),
        ord("G"): lambda m: m._number(_FLOAT),
        0x8A: lambda m: m._integer(_U8),
        0x8B: lambda m: m._integer(_U32),
        ord("X"): lambda m: m._text(_U32),
        0x8C: lambda m: m._text(_U8),
        0x8D: lambda m: m._text(_U64),
        ord("B"): lambda m: m._bytes(_U32),
        ord("C"): lambda m: m._bytes(_U8),
        0x8E: lambda m: m._bytes(_U64),
        0x96: lambda m: m._bytes(_U64),
        ord("T"): lambda m: m._bytes(_U32),
        ord("U"): lambda m: m._bytes(_U8),
        ord("q"): lambda m: m._put(_U8),
        ord("r"): lambda m: m._put(_U32),
        0x94: machine._memoize,
        ord("h"): lambda m: m._get(_U8),
        ord("j"): lambda m: m._get(_U32),
        ord("("): machine._mark,
        ord("0"): machine._pop,
        ord("1"): machine._drop_mark,
        ord("2"): machine._duplicate,
        ord("}"): lambda m: m._new({}),
        ord("]"): lambda m: m._new([]),
        ord(")"): lambda m: m._stack.append(()),
        0x8F: lambda m: m._new(set()),
        0x85: lambda m: m._tuple(1),
        0x86: lambda m: m._tuple(2),
        0x87: lambda m: m._tuple(3),
        ord("t"): machine._tuple_from_mark,
        ord("l"): machine._list_from_mark,
        ord("d"): machine._dict_from_mark,
        ord("a"): machine._append,
        ord("e"): machine._appends,
        ord("s"): machine._set_item,
        ord("u"): machine._set_items_from_mark,
        0x90: machine._add_items,
        0x91: machine._frozenset,
        ord("c"): machine._global,
        0x93: machine._stack_global,
        ord("Q"): machine._persistent_id,
        ord("R"): machine._reduce,
        0x81: machine._newobj,
        0x92: machine._newobj_ex,
        ord("o"): machine._obj,
        ord("i"): machine._inst,
        ord("b"): machine._build,
    }
    return [operations.get(code) for code in range(256)]


_DISPATCH = _table()
