"""Models and optimizers of torch out of what compilers, trainers and processes wrap them in."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from tracker_health.errors import ConfigError


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


def is_compiled(module: nn.Module) -> bool:
    """Whether ``torch.compile`` was applied to the module."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    wrapped = dynamo is not None and isinstance(module, dynamo.OptimizedModule)
    return wrapped or getattr(module, "_compiled_call_impl", None) is not None


def can_be_hooked(module: nn.Module) -> bool:
    """Whether the module takes hooks: one of TorchScript does not."""
    return not isinstance(module, torch.jit.ScriptModule)
