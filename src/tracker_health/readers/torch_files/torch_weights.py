"""Weights inside a file of ``torch.save``: a state dict of its own, or the model's next to an optimizer's state."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tracker_health.readers.tensors.weights import DTYPES, MAX_TENSORS, StoredTensor
from tracker_health.readers.torch_files.torch_pickle import TensorRef, UnreadTensor

_WORDS = {
    "f8": "F64", "f4": "F32", "f2": "F16", "bf16": "BF16", "f8_e4m3fn": "F8_E4M3", "f8_e5m2": "F8_E5M2",
    "f8_e4m3fnuz": "F8_E4M3FNUZ", "f8_e5m2fnuz": "F8_E5M2FNUZ", "i8": "I64", "i4": "I32", "i2": "I16", "i1": "I8",
    "u8": "U64", "u4": "U32", "u2": "U16", "u1": "U8",
}  # fmt: skip
assert set(_WORDS) <= set(DTYPES.values())  # noqa: S101  two tables that must fit
_KEYS = (
    "state_dict", "model_state_dict", "model_state", "model", "module", "net", "network", "weights", "params",
)  # fmt: skip


_AVERAGE = re.compile(r"(model_)?ema(_model|_state_dict|_state|_weights|_params)?")


def torch_average(root: Any) -> tuple[str, list[StoredTensor]]:
    """The moving average of the model that is next to it in a saved structure, and its key; none where there is none
    by one of the usual names.
    """
    if not isinstance(root, Mapping):
        return "", []
    keys = [key for key in root if isinstance(key, str) and _AVERAGE.fullmatch(key.lower()[:100])]
    known = ((key, torch_weights(root[key])) for key in keys)
    return next(((key, tensors) for key, tensors in known if tensors), ("", []))


def torch_weights(root: Any) -> list[StoredTensor]:
    """The tensors of the model in a saved structure, in its order; none where there is no single model.

    A tensor that is there under two names (tied weights) is there once, under the first.
    """
    found = _state_dict(root)
    if found is None:
        return []
    tensors: dict[object, StoredTensor] = {}
    for name, value in found.items():
        if isinstance(value, TensorRef):
            storage = (id(value.storage.file), value.storage.key)  # an exported program has files of torch.save in it
            place = (storage, value.offset, value.shape, value.strides) if value.numel else name
            tensors.setdefault(place, StoredTensor(name, value.shape, _WORDS.get(value.dtype, "?"), value))
    return list(tensors.values())


def unread_weights(root: Any) -> int:
    """How many of the model's tensors have values that are not read: quantised, sparse, of an unknown dtype."""
    return sum(isinstance(one, UnreadTensor) for one in (_state_dict(root) or {}).values())


def is_in_order(tensors: list[StoredTensor]) -> bool:
    """Whether a state dict can be in the order of its model's definition. One sorted by name was sorted by someone:
    a weight comes before its bias, and the third layer before the tenth.
    """
    names = [tensor.name for tensor in tensors]
    return names != sorted(names) or len(names) < 2


def _state_dict(root: Any) -> Mapping[Any, Any] | None:
    if _is_state_dict(root):
        return root  # type: ignore[no-any-return]
    if not isinstance(root, Mapping):
        return None
    known = [root[key] for key in _KEYS if key in root]
    for value in known:
        if _is_state_dict(value):
            return value  # type: ignore[no-any-return]
    return None


def _is_state_dict(value: Any) -> bool:
    """Whether it is tensors by their names, and little else (a module's extra state, a version)."""
    if not isinstance(value, Mapping) or not 0 < len(value) <= MAX_TENSORS or "param_groups" in value:
        return False
    if not all(isinstance(key, str) for key in value):
        return False
    tensors = sum(isinstance(one, (TensorRef, UnreadTensor)) for one in value.values())
    return tensors >= 0.8 * len(value)
