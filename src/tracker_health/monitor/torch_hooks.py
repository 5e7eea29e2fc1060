"""Hooks on models and optimizers of torch, and what torch is doing while they are called."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import nullcontext
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from tracker_health.monitor.older_torch import uncompiled


class Hook:
    """A hook that a copy of its module does not take along: models are copied and saved while they are watched.

    ``hooks``: those of the module, where this one will be.
    """

    def __init__(self, call: Callable[..., None], hooks: MutableMapping[int, Any]) -> None:
        self._call, self._hooks = call, hooks

    def __call__(self, *arguments: Any) -> None:
        self._call(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name == "__name__":  # what torch.jit.script asks for first
            raise AttributeError("a watched model cannot be compiled by torch.jit.script, but a copy of it can")
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        # Takes anything and does nothing, and whoever loads the model does not need tracker-health.
        return getattr, (nullcontext(), "__exit__")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        nothing = nullcontext().__exit__
        hooks = memo.get(id(self._hooks))
        if hooks is not None:
            # It has no hook yet, and gets this one when it is returned. The memo ends with the copying.
            ends = _Ends()
            memo[id(ends)] = ends
            weakref.finalize(ends, _take_out, nothing, hooks)
        return nothing


class _Ends:
    """Something whose end is noticed."""


def _take_out(hook: Any, hooks: MutableMapping[int, Any]) -> None:
    for key in [key for key, one in hooks.items() if one is hook]:
        del hooks[key]


class Eager:
    """Runs compiled code as it is written while some monitor measures; there may be several."""

    _users = 0
    _stance: Any = None

    @classmethod
    def begin(cls) -> None:
        if not cls._users:
            cls._stance = torch.compiler.set_stance("force_eager")
        cls._users += 1

    @classmethod
    def end(cls) -> None:
        cls._users -= 1
        if not cls._users:
            cls._stance.__exit__(None, None, None)
            cls._stance = None


def untraced_hook(hook: Callable[..., None]) -> Callable[..., None]:
    """A hook on the optimizer that torch.compile leaves as it is, where someone compiles ``optimizer.step``."""
    # It imports what every optimizer has imported already.
    return uncompiled(hook, "live statistics are not compiled")


_STATE_MAKERS = frozenset(
    {
        ("torch.distributed.checkpoint.state_dict", "_init_optim_state"),
        ("torch.distributed.optim.named_optimizer", "init_state"),
    }
)
_NEAR = 16  # frames between a call of an optimizer's step and its hooks, with wrappers of schedulers and compilers


def only_makes_state() -> bool:
    """Whether a step is none of the training: distributed checkpoints call it with gradients and rates of 0, so that
    the optimizer has a state. Neither can tell it from a first step of a warm-up, but who calls it can.
    """
    frame = sys._getframe(1)  # noqa: SLF001
    for _ in range(_NEAR):
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) in _STATE_MAKERS:
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def in_backward() -> bool:
    """Whether a backward pass is running in this thread."""
    # What torch's own checkpointing asks. Compiled code cannot ask, and is compiled in the forward pass.
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1  # noqa: SLF001


def is_traced() -> bool:
    """Whether the forward pass only records what it does: what is added to it would be recorded as well."""
    return torch.compiler.is_compiling() or torch._C._is_tracing()  # noqa: SLF001


def is_measurable(tensor: Tensor) -> bool:
    """Whether there are floating-point values behind a tensor, now and here."""
    if not tensor.is_floating_point() or tensor.is_meta or isinstance(tensor, FakeTensor):
        return False
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # noqa: SLF001  of vmap and grad


def tensors_in(output: Any) -> Iterator[Tensor]:
    """The tensors of an output in order: of a tuple, a dictionary or a dataclass."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for one in output.values():
            yield from tensors_in(one)
    elif isinstance(output, (tuple, list)):
        for one in output:
            yield from tensors_in(one)
    elif is_dataclass(output) and not isinstance(output, type):
        for field in fields(output):
            yield from tensors_in(getattr(output, field.name))
