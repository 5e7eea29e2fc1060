"""What one step did inside a model: hooks that are on it for that step, and the sums of the tensors that they saw."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tracker_health.errors import named
from tracker_health.monitor.distributed import local_part
from tracker_health.monitor.dumps import GradientDumps
from tracker_health.monitor.models import can_be_hooked, is_compiled
from tracker_health.monitor.statistics import RowSums, Sums, is_sparse, rows_of
from tracker_health.monitor.torch_hooks import Eager, Hook, in_backward, is_measurable, is_traced, tensors_in

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
    rows: RowSums
    call: _Call | None = None


class Observer:
    """Sees the steps of a model that it is hooked onto, one at a time.

    ``modules`` and ``parameters``: by name, those that are measured. ``fail`` is called with an error after which
    nothing more can be measured, ``warn`` with a sentence and what it is about, which is said once.

    ``kept``: the gradients that ``dumps`` takes, and ``kept_scale`` what
    they were multiplied by. ``shared``: what several processes have parts of. ``ended``: nothing is looked at any more.
    """

    def __init__(
        self,
        model: nn.Module,
        root: nn.Module,
        modules: Sequence[tuple[str, nn.Module]],
        parameters: Sequence[tuple[str, Tensor]],
        *,
        kinds: frozenset[str],
        optimized: frozenset[int],
        scaler: Any,
        dumps: GradientDumps | None,
        fail: Callable[[BaseException], None],
        warn: Callable[[str, str], None],
    ) -> None:
        self._root, self._modules, self._parameters, self._kinds = root, modules, parameters, kinds
        self._optimized, self._scaler, self._dumps = optimized, scaler, dumps
        self._fail, self._warn, self._step = fail, warn, 0
        self._sees_inside = bool(kinds & {"activations", "activation_grads"})
        self._compiled = any(map(is_compiled, model.modules()))
        self._handles: list[Any] = []
        self._eager = self.ended = self._measured = False
        self.forget()

    @property
    def is_hooked(self) -> bool:
        return bool(self._handles)

    def hook(self, step: int, *, measured: bool) -> None:
        """Put the hooks on for one step, of which statistics are taken (``measured``), or only gradients dumped."""
        self._step, self._measured = step, measured
        add = self._handles.append
        inside = self._sees_inside and measured
        if inside and self._compiled:
            # Hooks inside compiled code would be traced, or not seen: this one step runs without it.
            Eager.begin()
            self._eager = True
        if (inside or not self._compiled) and can_be_hooked(self._root):
            before = Hook(self._before_forward, self._root._forward_pre_hooks)  # noqa: SLF001
            add(self._root.register_forward_pre_hook(before))
            after = Hook(self._after_forward, self._root._forward_hooks)  # noqa: SLF001
            add(self._root.register_forward_hook(after, always_call=True))
        if inside:
            for name, module in self._modules:
                hook = Hook(partial(self._after_module, name), module._forward_hooks)  # noqa: SLF001
                add(module.register_forward_hook(hook))
        for _, parameter in self._parameters:
            if parameter.requires_grad and parameter.is_leaf and not is_lazy(parameter):
                add(parameter.register_post_accumulate_grad_hook(self._went_into_backward))  # type: ignore[no-untyped-call]

    def unhook(self) -> None:
        """Take the hooks off until the next ``hook``."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._eager:
            self._eager = False
            Eager.end()

    def end(self) -> None:
        """Take every hook off for good."""
        self.ended = True
        self.unhook()
        self.forget()

    def forget(self) -> None:
        """Begin with nothing seen."""
        self._activations: list[_Seen] = []
        self._parameter_rows: list[_Seen] = []
        self._gradients: list[_Seen] | None = None
        self.shared: set[tuple[str, str]] = set()
        self._with_gradient: set[str] = set()
        self._call: _Call | None = None
        self._elsewhere = _Call(counts=True)
        self._went_back = self._saw_inside = False
        self._why_unseen = _NOT_CALLED
        self._pass: weakref.ref[Callable[[], None]] | None = None
        self.kept: dict[str, Tensor] = {}
        self.kept_scale: Tensor | None = None

    def before_step(self, *, closure: bool) -> None:
        """What is to be taken as the optimizer's step begins; with a closure the backward passes are still to come."""
        if not closure and not self._went_back and ("grads" in self._kinds or self._dumps is not None):
            self._take_gradients()
            self._warn("gradients were measured at the optimizer's step: they may be clipped already", "")
        if self._measured and "params" in self._kinds:
            self._parameter_rows = self._tensors("params", self._parameters)

    def all_seen(self) -> list[_Seen]:
        """What counts: of forward passes those that a backward pass went through."""
        activations = [one for one in self._activations if one.call is None or (one.call.counts and one.call.trained)]
        return [*activations, *(self._gradients or ()), *self._parameter_rows]

    def silent(self) -> dict[tuple[str, str], Sums]:
        """A parameter that the optimizer holds and that got no gradient has a gradient of 0. That distinguishes it from
        a frozen one.
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

    def _scale_now(self) -> Tensor | None:
        if self._scaler is None or not self._scaler.is_enabled():
            return None
        scaled: Tensor = self._scaler.scale(torch.ones(1, device=next(self._root.parameters()).device))
        return scaled

    def tell_of_unseen(self, step: int) -> None:
        """Warn where modules were to be measured and none was called."""
        if self._sees_inside and self._modules and self._with_gradient and not self._saw_inside:
            self._warn(f"no activations were seen in step {step}: {self._why_unseen}", self._why_unseen)

    def tell_of_scripted(self, names: Sequence[str]) -> None:
        """Warn of modules that cannot be hooked."""
        if names and self._sees_inside:
            self._leave_out("activations", names[0] or "the model", "torch.jit takes no hooks")

    def _leave_out(self, kind: str, name: str, reason: str) -> None:
        """Report the first tensor that cannot be measured for a reason. It is tried again at each measured step: in
        several processes all of them have to do the same.
        """
        message = f"{kind} of {name} (and maybe of others) cannot be measured: {reason}"
        self._warn(message, f"{kind}: {reason}")

    def _before_forward(self, module: nn.Module, _: Any) -> None:
        if is_traced():
            return
        if in_backward():
            self._why_unseen = _CHECKPOINTED
            return
        if self._went_back and all(one.grad is None for _, one in self._parameters):
            # The step was given up: its scaled gradients overflowed, or its loss was NaN.
            self.forget()
        self._call = _Call(counts=module.training and torch.is_grad_enabled())
        if not module.training:
            self._why_unseen = _EVALUATED
        self._pass = None

    def _after_forward(self, _: nn.Module, __: Any, output: Any) -> None:
        call = self._call
        if call is None or in_backward():
            return
        self._call = None
        if call.counts and not self.ended:
            try:
                for tensor in tensors_in(output):
                    self._hook_tensor(tensor, partial(self._arrived, call))
            except Exception as error:  # noqa: BLE001  an output that cannot be walked through
                self._leave_out("the output", "the model", named(error))

    def _after_module(self, name: str, module: nn.Module, _: Any, output: Any) -> None:
        again = in_backward()  # a checkpointed module runs its forward pass a second time
        call = self._call or self._elsewhere
        if self.ended or is_traced() or not (module.training and (again or self._call is None or call.counts)):
            return
        if self._call is None and not torch.is_grad_enabled():
            return
        self._saw_inside |= not again or "activations" not in self._kinds
        try:
            tensor = next(tensors_in(output), None)
            if tensor is None or not is_measurable(tensor):
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
        self._went_into_backward()

    def _arrived_at(self, call: _Call, name: str, gradient: Tensor) -> None:
        """A gradient arrived at the output of a module."""
        self._arrived(call, gradient)
        if "activation_grads" in self._kinds and not self.ended:
            self._record("activation_grads", name, gradient, call)

    def _went_into_backward(self, *_: Any) -> None:
        """Have the gradients measured when the backward pass is over: before anybody clips them."""
        if self.ended or not in_backward() or (self._pass is not None and self._pass() is not None):
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
        if not self.ended:
            try:
                self._take_gradients()
            except Exception as error:  # noqa: BLE001
                self._fail(error)

    @torch.no_grad()
    def _take_gradients(self) -> None:
        """All gradients as they are now; of several micro-batches the last has the sum."""
        self.kept_scale = self._scale_now()
        gradients = [(name, one.grad) for name, one in self._parameters if one.grad is not None]
        # A pass of ``torch.autograd.grad`` leaves none: they are looked for again before the step.
        self._went_back = bool(gradients)
        self._with_gradient = {name for name, _ in gradients}
        if self._measured and "grads" in self._kinds:
            self._gradients = self._tensors("grads", gradients)
        if self._dumps is not None and self._dumps.due(self._step):
            silent = [(name, torch.zeros_like(one)) for name, one in self._without_gradient()]
            self.kept = self._dumps.kept([*gradients, *silent])

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

    def _rows_of_all(self, kind: str, name: str, tensor: Tensor) -> RowSums | None:
        if tensor.numel() <= 1 or not is_measurable(tensor):
            return None
        local, sharded = local_part(tensor)
        if sharded:
            self.shared.add((kind, name))
        return rows_of(local)


def _rows_of_instances(tensor: Tensor) -> RowSums | None:
    if is_sparse(tensor):
        raise TypeError("it is sparse")
    local = local_part(tensor)[0]
    return rows_of(local) if local.dim() > 1 and tensor.numel() > 1 else None
