"""What watching a training costs: python benchmarks/speed/watch.py [STEPS].

A small transformer on one core of the processor, trained in one process: without, watched in every step, in every 10th
and every 100th, and with the usual way of doing it by hand (a hook on every module and a number fetched for every
statistic, in every step). The variants take turns, a few steps each, so that what else the machine does meets all of
them; the figure to quote is the ratio of the mean processor times of a step.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from tracker_health.monitor import watch

_STEPS = 100
_TURNS = 4


class Block(nn.Module):
    """A block of a transformer, normalised first."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.gelu, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(self.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """A language model of 3.5 million parameters."""

    def __init__(self, width: int = 256, layers: int = 4, words: int = 512) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.head = nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(x)))


class ByHand:
    """What is usually written: every statistic of every tensor fetched by itself."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.found: dict[str, list[float]] = {}
        for name, module in model.named_modules():
            if name:
                module.register_forward_hook(lambda _, __, output, name=name: self.take(f"activations/{name}", output))
                module.register_full_backward_hook(
                    lambda _, __, output, name=name: self.take(f"activation_grads/{name}", output[0])
                )

        def measure(*_: object) -> None:
            for name, parameter in model.named_parameters():
                self.take(f"params/{name}", parameter)
                self.take(f"grads/{name}", parameter.grad)

        optimizer.register_step_pre_hook(measure)

    def take(self, name: str, tensor: Tensor) -> None:
        values = tensor.detach()
        self.found[name] = [values.abs().max().item(), values.mean().item(), values.var().item()]


class Training:
    """A model with its data, and how long its steps took."""

    def __init__(self, watched: Callable[[nn.Module, torch.optim.Optimizer], object]) -> None:
        torch.manual_seed(0)
        self.model = Model()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.monitor = watched(self.model, self.optimizer)
        self.seconds = 0.0
        self.steps(2)
        self.seconds = 0.0

    def steps(self, count: int) -> None:
        words = torch.randint(512, (8, 129))
        for _ in range(count):
            start = time.process_time()
            logits = self.model(words[:, :-1])
            nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten()).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.seconds += time.process_time() - start


def every(interval: int) -> Callable[[nn.Module, torch.optim.Optimizer], AbstractContextManager[object]]:
    return lambda model, optimizer: watch(model, optimizer, interval=interval, detail=lambda *_: None)


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else _STEPS
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "Full backward hook is firing")  # the hooks by hand, at the embedding
    trainings = {
        "not watched": Training(lambda *_: nullcontext()),
        "every step": Training(every(1)),
        "every 10th": Training(every(10)),
        "every 100th": Training(every(100)),
        "by hand, every step": Training(ByHand),
    }
    turns = max(1, steps // _TURNS)
    for _ in range(turns):
        for training in trainings.values():
            training.steps(_TURNS)
    done = turns * _TURNS
    alone = trainings["not watched"].seconds / done
    for name, training in trainings.items():
        mean = training.seconds / done
        print(f"{name:20} {1e3 * mean:8.2f} ms a step {100 * (mean / alone - 1):+7.1f} %")


if __name__ == "__main__":
    main()
