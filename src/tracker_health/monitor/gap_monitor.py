"""What gradients, activations and parameters do while training runs: hooks on a model for one step in ``interval``."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import fields, is_dataclass
from fnmatch import fnmatchcase
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy

from tracker_health.errors import ConfigError, named
from tracker_health.gap_names import unwrapped
from tracker_health.monitor.distributed import all_have, is_first, joined, local_part, world_size
from tracker_health.monitor.dumps import GradientDumps
from tracker_health.monitor.live_judge import LiveJudge
from tracker_health.monitor.notices import tell
from tracker_health.monitor.sinks import Sink
from tracker_health.monitor.statistics import Rows, Statistics, Sums, fetched, is_sparse, rows_of

_NOT_CALLED = "the model was not called, or by code compiled around it, which measured steps have compiled once more"
_CHECKPOINTED = "the whole model runs in a checkpoint with use_reentrant=True"
_EVALUATED = "the model is in eval mode"


class _Call:
    """One forward pass of the model. ``trained``: a backward pass went through it; others are tries and evaluations."""

    def __init__(self, *, counts: bool) -> None:
        self.counts, self.trained = counts, False


class _Seen(NamedTuple):
    """One tensor's sums; ``call``: of an activation, its forward pass."""

    kind: str
    name: str
    rows: Rows
    call: _Call | None = None


class GapMonitor:
    """Measures a training run from outside. Made by ``watch``; a context manager, or ended by ``close``.

    Between the measured steps no hook is on the model: only the optimizer's own, which count its steps. Nothing that
    goes wrong in here stops the training: it is told once as a warning, and the measuring ends.

    ``steps``: optimizer steps done so far. ``should_stop``: a rule says that the training is better ended now, with
    ``stop_on``; in several processes all of them learn it at the same step. ``stop_reason``: which rule, and why.
    ``loss_scales``: steps that were measured, and a gradient scaler's scale there.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        sink: Sink,
        *,
        interval: int,
        kinds: Sequence[str],
        include: Sequence[str],
        exclude: Sequence[str],
        scaler: Any,
        steps_done: int,
        dumps: GradientDumps | None,
        judge: LiveJudge | None = None,
    ) -> None:
        self.steps, self._dumps = steps_done, dumps
        self._first = steps_done + 1
        self._root, self._sink, self._interval, self._scaler = unwrapped_root(model), sink, interval, scaler
        self._kinds = frozenset(kinds)
        self._judge, self._agreed_to_stop = judge, False
        self._warned: set[str] = set()
        self._pid, self._writes = os.getpid(), is_first()

        def chosen(name: str) -> bool:
            return any(fnmatchcase(name, one) for one in include) and not any(fnmatchcase(name, one) for one in exclude)

        every = [(unwrapped(name), module) for name, module in self._root.named_modules()]
        self._modules = [(name, one) for name, one in every if name and chosen(name) and _can_be_hooked(one)]
        parameters = [(unwrapped(name), parameter) for name, parameter in self._root.named_parameters()]
        self._parameters = [(name, one) for name, one in parameters if chosen(name)]
        if not self._modules and not self._parameters:
            raise ConfigError(f"nothing in the model matches {list(include)} without {list(exclude)}")
        self._sees_inside = bool(self._kinds & {"activations", "activation_grads"})
        self._tell_of_scripted([name for name, one in every if chosen(name) and not _can_be_hooked(one)])
        self._compiled = any(map(_is_compiled, model.modules()))
        self._activations: list[_Seen] = []
        self._parameter_rows: list[_Seen] = []
        self._forget()
        self._handles: list[Any] = []
        self._eager = False
        self._closed = self._failed = self._stopped_dumping = False
        self.loss_scales: list[tuple[int, float]] = []
        inner = unwrapped_optimizer(optimizer)
        self._optimized = {id(one) for group in inner.param_groups for one in group["params"]}
        self._counters = [
            inner.register_step_pre_hook(_untraced(self._before_step)),
            inner.register_step_post_hook(_untraced(self._after_step)),
        ]
        self._prepare()
        atexit.register(self.close)  # so that a training without it loses nothing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take every hook off, and finish what is written. Does nothing the second time."""
        if self._closed:
            return
        self._closed = True
        self._unhook()
        for handle in self._counters:
            handle.remove()
        self._forget()
        atexit.unregister(self.close)
        if os.getpid() != self._pid or not self._writes:
            return  # in a fork the files are the parent's
        with suppress_and_warn("the statistics could not be finished"):
            self._sink.close()

    @property
    def should_stop(self) -> bool:
        if world_size() > 1:
            return self._agreed_to_stop
        return self._judge is not None and self._judge.should_stop

    @property
    def stop_reason(self) -> str:
        return self._judge.reason if self._judge is not None else ""

    # Steps

    def is_measured(self, step: int) -> bool:
        """Whether the optimizer step of that number, from 1, is measured: the first, and every ``interval``-th."""
        return step == self._first or step % self._interval == 0

    def _dumped(self, step: int) -> bool:
        return self._dumps is not None and self._dumps.due(step)

    def _prepare(self) -> None:
        """Put the hooks on where the coming step is to be measured."""
        step = self.steps + 1
        self._measured = bool(self._kinds) and self.is_measured(step)
        if self._failed or not (self._measured or self._dumped(step)):
            return
        try:
            self._hook()
        except Exception as error:  # noqa: BLE001  the training goes on
            self._fail(error)

    def _before_step(self, _: Any, arguments: Sequence[Any] = (), options: Mapping[str, Any] | None = None) -> None:
        if self._failed or not self._handles or os.getpid() != self._pid or _only_makes_state():
            return
        # With a closure, as L-BFGS has it, the backward passes are still to come.
        closure = any(map(callable, [*arguments[1:], *(options or {}).values()]))
        try:
            if not closure and not self._went_back and ("grads" in self._kinds or self._dumps is not None):
                self._take_gradients()
                self._warn_once("gradients were measured at the optimizer's step: they may be clipped already")
            if self._measured and "params" in self._kinds:
                self._parameter_rows = self._tensors("params", self._parameters)
        except Exception as error:  # noqa: BLE001
            self._fail(error)

    def _after_step(self, *_: Any) -> None:
        if os.getpid() != self._pid:
            self.close()
            return
        if _only_makes_state():
            return
        self.steps += 1
        measured = self._measured
        if measured or self._handles:
            hooked = bool(self._handles)
            self._unhook()
            try:
                if measured:
                    self._finish(empty=not hooked or self._failed)
                self._dump()
            except Exception as error:  # noqa: BLE001
                self._fail(error)
            self._forget()
        self._prepare()

    @torch.no_grad()
    def _finish(self, *, empty: bool) -> None:
        """Fetch what was measured, add up what belongs together, and hand it on."""
        own: dict[tuple[str, str], Sums] = {}
        factor = 1.0
        try:
            if not empty:
                own, factor = self._sums()
                self._tell_of_unseen()
        except Exception as error:  # noqa: BLE001
            self._fail(error)
        if self._closed:
            return
        stop = self._judge is not None and self._judge.should_stop
        merged, self._agreed_to_stop = joined(own, self._shared, stop=stop)
        if merged is not None:
            stats = {key: _statistics(key, one, factor) for key, one in merged.items() if one.values}
            self._sink.write(self.steps, stats, {key: merged[key].values for key in stats})

    def _sums(self) -> tuple[dict[tuple[str, str], Sums], float]:
        """The sums of this process, with one transfer, and by what its gradients are to be multiplied."""
        seen = self._all_seen()
        scale = self._loss_scale() if seen else None
        sums = fetched([*(one.rows for one in seen), *([scale] if scale is not None else [])])
        factor = 1.0
        if scale is not None:
            loss_scale = sums.pop().total
            self.loss_scales.append((self.steps, loss_scale))
            factor = 1.0 / loss_scale
        parts: dict[tuple[str, str], list[Sums]] = {}
        for one, found in zip(seen, sums, strict=True):
            parts.setdefault((one.kind, one.name), []).append(found)
        return self._silent() | {key: Sums.merged(found) for key, found in parts.items()}, factor

    def _dump(self) -> None:
        if self._dumps is None or not self._dumped(self.steps) or self._stopped_dumping:
            return
        # Putting shards together takes all processes: one that has failed would keep the others waiting for ever.
        if not all_have(sorted(self._kept) if self._kept and not self._failed else None):
            self._stopped_dumping = True
            self._warn_once(f"no gradients are written from step {self.steps} on: not all processes have them")
            return
        factor = 1.0 / self._kept_scale.item() if self._kept_scale is not None else 1.0
        parts = {name: part * factor if factor != 1.0 else part for name, part in sorted(self._kept.items())}
        self._dumps.write(self.steps, parts, first_process=is_first())

    def _silent(self) -> dict[tuple[str, str], Sums]:
        """A parameter that the optimizer holds and that got no gradient has one of 0: only so it can be told from a
        frozen one.
        """
        if self._gradients is None:
            return {}
        return {
            ("grads", name): Sums(float(one.numel()), 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
            for name, one in self._without_gradient()
            if one.numel() > 1
        }

    def _without_gradient(self) -> list[tuple[str, Tensor]]:
        every = [(name, one) for name, one in self._parameters if one.requires_grad and id(one) in self._optimized]
        return [(name, one) for name, one in every if name not in self._with_gradient and not is_lazy(one)]

    def _all_seen(self) -> list[_Seen]:
        activations = [one for one in self._activations if one.call is None or (one.call.counts and one.call.trained)]
        return [*activations, *(self._gradients or ()), *self._parameter_rows]

    def _loss_scale(self) -> Rows | None:
        """By what the gradients were multiplied, as a tensor of its own: fetched together with all others."""
        return None if self._kept_scale is None else rows_of(self._kept_scale)

    def _scale_now(self) -> Tensor | None:
        if self._scaler is None or not self._scaler.is_enabled():
            return None
        scaled: Tensor = self._scaler.scale(torch.ones(1, device=next(self._root.parameters()).device))
        return scaled

    # Hooks

    def _hook(self) -> None:
        add = self._handles.append
        inside = self._sees_inside and self._measured
        if inside and self._compiled:
            # Hooks inside compiled code would be traced, or not seen: this one step runs without it.
            _Eager.begin()
            self._eager = True
        if (inside or not self._compiled) and _can_be_hooked(self._root):
            before = _Hook(self._before_forward, self._root._forward_pre_hooks)  # noqa: SLF001
            add(self._root.register_forward_pre_hook(before))
            after = _Hook(self._after_forward, self._root._forward_hooks)  # noqa: SLF001
            add(self._root.register_forward_hook(after, always_call=True))
        if inside:
            for name, module in self._modules:
                hook = _Hook(partial(self._after_module, name), module._forward_hooks)  # noqa: SLF001
                add(module.register_forward_hook(hook))
        for _, parameter in self._parameters:
            if parameter.requires_grad and parameter.is_leaf and not is_lazy(parameter):
                add(parameter.register_post_accumulate_grad_hook(self._in_backward))  # type: ignore[no-untyped-call]

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._eager:
            self._eager = False
            _Eager.end()

    def _forget(self) -> None:
        self._activations, self._parameter_rows = [], []
        self._gradients: list[_Seen] | None = None
        self._shared: set[tuple[str, str]] = set()
        self._with_gradient: set[str] = set()
        self._call: _Call | None = None
        self._elsewhere = _Call(counts=True)
        self._went_back = self._saw_inside = False
        self._why_unseen = _NOT_CALLED
        self._pass: weakref.ref[Callable[[], None]] | None = None
        self._kept: dict[str, Tensor] = {}
        self._kept_scale: Tensor | None = None

    def _before_forward(self, module: nn.Module, _: Any) -> None:
        if _is_traced():
            return
        if _in_backward():
            self._why_unseen = _CHECKPOINTED
            return
        if self._went_back and all(one.grad is None for _, one in self._parameters):
            # The step was given up: its scaled gradients overflowed, or its loss was NaN.
            self._forget()
        self._call = _Call(counts=module.training and torch.is_grad_enabled())
        if not module.training:
            self._why_unseen = _EVALUATED
        self._pass = None

    def _after_forward(self, _: nn.Module, __: Any, output: Any) -> None:
        call = self._call
        if call is None or _in_backward():
            return
        self._call = None
        if call.counts and not self._failed:
            try:
                for tensor in _tensors_in(output):
                    self._hook_tensor(tensor, partial(self._arrived, call))
            except Exception as error:  # noqa: BLE001  an output that cannot be walked through
                self._leave_out("the output", "the model", named(error))

    def _after_module(self, name: str, module: nn.Module, _: Any, output: Any) -> None:
        again = _in_backward()  # a checkpointed module runs its forward pass a second time
        call = self._call or self._elsewhere
        if self._failed or _is_traced() or not (module.training and (again or self._call is None or call.counts)):
            return
        if self._call is None and not torch.is_grad_enabled():
            return
        self._saw_inside |= not again or "activations" not in self._kinds
        try:
            tensor = next(_tensors_in(output), None)
            if tensor is None or not _is_measurable(tensor):
                return
            self._hook_tensor(tensor, partial(self._arrived_at, call, name))
        except Exception as error:  # noqa: BLE001  an output that cannot be walked through
            self._leave_out("activations", name, named(error))
            return
        if "activations" in self._kinds and not again:
            self._record("activations", name, tensor, call)

    def _hook_tensor(self, tensor: Tensor, hook: Callable[[Tensor], None]) -> None:
        # On the tensor, not on the module: a module's backward hook forbids whatever comes next to work in place.
        if tensor.requires_grad and not tensor.is_leaf:
            self._handles.append(tensor.register_hook(hook))  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def _record(self, kind: str, name: str, tensor: Tensor, call: _Call) -> None:
        try:
            rows = _rows_of_instances(tensor.detach())
        except Exception as error:  # noqa: BLE001  a kind of tensor that has no such sums: the others go on
            self._leave_out(kind, name, named(error))
            return
        if rows is not None:
            self._activations.append(_Seen(kind, name, rows, call))

    def _arrived(self, call: _Call, _: Tensor) -> None:
        """A gradient arrived at an output of the model: the forward pass was one of training."""
        call.trained = True
        self._in_backward()

    def _arrived_at(self, call: _Call, name: str, gradient: Tensor) -> None:
        """A gradient arrived at the output of a module."""
        self._arrived(call, gradient)
        if "activation_grads" in self._kinds and not self._failed:
            self._record("activation_grads", name, gradient, call)

    def _in_backward(self, *_: Any) -> None:
        """Have the gradients measured when the backward pass is over: before anybody clips them."""
        if self._failed or not _in_backward() or (self._pass is not None and self._pass() is not None):
            return

        def end() -> None:
            self._after_backward()

        # A pass that raises lets go of what was queued: the next one is not taken for it.
        self._pass = weakref.ref(end)
        engine = torch.autograd.Variable._execution_engine  # noqa: SLF001
        # Behind what DDP and FSDP still have to do at its end: they queue that during the pass.
        engine.queue_callback(lambda: engine.queue_callback(end))

    def _after_backward(self) -> None:
        self._pass = None
        if not self._failed and not self._closed:
            try:
                self._take_gradients()
            except Exception as error:  # noqa: BLE001
                self._fail(error)

    @torch.no_grad()
    def _take_gradients(self) -> None:
        """All gradients as they are now; of several micro-batches the last has the sum."""
        self._kept_scale = self._scale_now()
        gradients = [(name, one.grad) for name, one in self._parameters if one.grad is not None]
        # A pass of ``torch.autograd.grad`` leaves none: they are looked for again before the step.
        self._went_back = bool(gradients)
        self._with_gradient = {name for name, _ in gradients}
        if self._measured and "grads" in self._kinds:
            self._gradients = self._tensors("grads", gradients)
        if self._dumps is not None and self._dumps.due(self.steps + 1):
            silent = [(name, torch.zeros_like(one)) for name, one in self._without_gradient()]
            self._kept = self._dumps.kept([*gradients, *silent])

    @torch.no_grad()
    def _tensors(self, kind: str, tensors: Sequence[tuple[str, Tensor]]) -> list[_Seen]:
        seen = []
        for name, tensor in tensors:
            if is_lazy(tensor):
                self._leave_out(kind, name, "it has no values yet")
                continue
            try:
                rows = self._rows_of_all(kind, name, tensor.detach())
            except Exception as error:  # noqa: BLE001  a kind of tensor that has no such sums: the others go on
                self._leave_out(kind, name, named(error))
                continue
            if rows is not None:
                seen.append(_Seen(kind, name, rows))
        return seen

    def _rows_of_all(self, kind: str, name: str, tensor: Tensor) -> Rows | None:
        if tensor.numel() <= 1 or not _is_measurable(tensor):
            return None
        local, sharded = local_part(tensor)
        if sharded:
            self._shared.add((kind, name))
        return rows_of(local)

    # Troubles

    def _fail(self, error: BaseException) -> None:
        self._failed = True
        self._unhook()
        self._warn_once(f"the measuring of gradients and activations has ended: {named(error)}")
        if world_size() == 1:
            self.close()  # in several processes the others wait for this one's part at each measured step

    def _tell_of_unseen(self) -> None:
        if self._sees_inside and self._modules and self._with_gradient and not self._saw_inside:
            message = f"no activations were seen in step {self.steps}: {self._why_unseen}"
            self._warn_once(message, about=self._why_unseen)

    def _tell_of_scripted(self, names: Sequence[str]) -> None:
        if names and self._sees_inside:
            self._leave_out("activations", names[0] or "the model", "torch.jit takes no hooks")

    def _leave_out(self, kind: str, name: str, reason: str) -> None:
        """Tell of the first tensor that cannot be measured for a reason. It is tried again at each measured step: in
        several processes all of them have to do the same.
        """
        message = f"{kind} of {name} (and maybe of others) cannot be measured: {reason}"
        self._warn_once(message, about=f"{kind}: {reason}")

    def _warn_once(self, message: str, *, about: str = "") -> None:
        if (about or message) not in self._warned:
            self._warned.add(about or message)
            tell(message)


class suppress_and_warn(suppress):  # noqa: N801  reads like the one it extends
    """Turn an exception into a warning."""

    def __init__(self, message: str) -> None:
        super().__init__(Exception)
        self._message = message

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, Exception):
            tell(f"{self._message}: {named(error)}")
        return super().__exit__(kind, error, trace)


class _Hook:
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
        # Takes anything and does nothing, and whoever loads the model needs nothing of ours.
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


class _Eager:
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


def _statistics(key: tuple[str, str], sums: Sums, factor: float) -> Statistics:
    match key[0]:
        case "params":
            return sums.of_all()
        case "grads":
            return sums.of_all(factor)
        case "activation_grads":
            return sums.of_instances(factor)
    return sums.of_instances()


def _rows_of_instances(tensor: Tensor) -> Rows | None:
    if is_sparse(tensor):
        raise TypeError("it is sparse")
    local = local_part(tensor)[0]
    return rows_of(local) if local.dim() > 1 and tensor.numel() > 1 else None


def _untraced(hook: Callable[..., None]) -> Callable[..., None]:
    """A hook on the optimizer that torch.compile leaves as it is, where somebody compiles ``optimizer.step``."""
    # It imports what every optimizer has imported already.
    untraced: Callable[..., None] = torch.compiler.disable(hook, reason="live statistics are not compiled")  # type: ignore[no-untyped-call]
    return untraced


_STATE_MAKERS = frozenset(
    {
        ("torch.distributed.checkpoint.state_dict", "_init_optim_state"),
        ("torch.distributed.optim.named_optimizer", "init_state"),
    }
)
_NEAR = 16  # frames between a call of an optimizer's step and its hooks, with wrappers of schedulers and compilers


def _only_makes_state() -> bool:
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


def _in_backward() -> bool:
    # What torch's own checkpointing asks. Compiled code cannot ask, and is compiled in the forward pass.
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1  # noqa: SLF001


def _is_traced() -> bool:
    """Whether the forward pass only records what it does: what is added to it would be recorded as well."""
    return torch.compiler.is_compiling() or torch._C._is_tracing()  # noqa: SLF001


def _is_measurable(tensor: Tensor) -> bool:
    """Whether there are floating-point values behind a tensor, now and here."""
    if not tensor.is_floating_point() or tensor.is_meta or isinstance(tensor, FakeTensor):
        return False
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # noqa: SLF001  of vmap and grad


def _tensors_in(output: Any) -> Iterator[Tensor]:
    """The tensors of an output in order: of a tuple, a dictionary or a dataclass."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for one in output.values():
            yield from _tensors_in(one)
    elif isinstance(output, (tuple, list)):
        for one in output:
            yield from _tensors_in(one)
    elif is_dataclass(output) and not isinstance(output, type):
        for field in fields(output):
            yield from _tensors_in(getattr(output, field.name))


def refuse_others(model: Any, optimizer: Any) -> None:
    """Refuse what is no model of torch, or no optimizer.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model is {type(model).__name__}: it must be a torch.nn.Module")
    needed = ("param_groups", "register_step_pre_hook", "register_step_post_hook")
    if not all(hasattr(unwrapped_optimizer(optimizer), name) for name in needed):
        raise ConfigError(f"optimizer is {type(optimizer).__name__}: it must be a torch.optim.Optimizer")


def unwrapped_root(model: nn.Module) -> nn.Module:
    """A model out of torch.compile, DDP and DataParallel."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def unwrapped_optimizer(optimizer: Any) -> Any:
    """The optimizer that a trainer's wrapper holds."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = inner
    return optimizer


def _is_compiled(module: nn.Module) -> bool:
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    wrapped = dynamo is not None and isinstance(module, dynamo.OptimizedModule)
    return wrapped or getattr(module, "_compiled_call_impl", None) is not None


def _can_be_hooked(module: nn.Module) -> bool:
    return not isinstance(module, torch.jit.ScriptModule)
