"""What all agents share: networks, one step of Adam with the faults built into it, and how actions are chosen."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import numpy as np
import torch
from environments import Policy
from settings import Params
from torch import nn


def mlp(inputs: int, hidden: int, outputs: int, bend: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden), bend(), nn.Linear(hidden, hidden), bend(), nn.Linear(hidden, outputs)
    )


def adam(run: Params, nets: Iterable[nn.Module]) -> torch.optim.Adam:
    """Adam on these networks, or by mistake on a copy of them."""
    held = [copy.deepcopy(net) for net in nets] if run["fault"] == "frozen" else nets
    return torch.optim.Adam([weight for net in held for weight in net.parameters()], lr=run["lr"], fused=True)


def set_rate(optimizer: torch.optim.Adam, run: Params, share: float) -> float:
    """The learning rate when this share of the run is over."""
    rate = run["lr"] * (1 - 0.9 * share if run["schedule"] == "linear" else 1.0)
    if run["schedule"] == "warmup":  # so long a one that for a third of the run nothing seems to happen
        rate *= min(1.0, max(0.001, (share / 0.4) ** 4))
    if run["fault"] == "late_jump" and share > run["jump_at"]:
        rate *= run["jump"]
    optimizer.param_groups[0]["lr"] = rate
    return float(rate)


def learn(optimizer: torch.optim.Adam, nets: Iterable[nn.Module], loss: torch.Tensor, clip: float) -> float:
    """One step of the optimizer; the norm of the gradient before it is clipped."""
    for net in nets:
        net.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_([weight for net in nets for weight in net.parameters()], clip)
    optimizer.step()
    return float(norm)


def sampled(actor: nn.Module, rng: np.random.Generator) -> Policy:
    """Choices drawn with a policy's probabilities (the Gumbel trick)."""

    @torch.no_grad()
    def choose(seen: np.ndarray) -> np.ndarray:
        logits = actor(torch.from_numpy(seen)).numpy()
        return (logits + rng.gumbel(size=logits.shape)).argmax(1)

    return choose


def greedy(net: nn.Module) -> Policy:
    """The choices of the highest value."""

    @torch.no_grad()
    def choose(seen: np.ndarray) -> np.ndarray:
        return net(torch.from_numpy(seen)).numpy().argmax(1)

    return choose
