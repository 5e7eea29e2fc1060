"""Fine-tune a small language model with LoRA and a barrier on its divergence from the original; log it to MLflow.

    pip install mlflow torch
    python examples/heal_barrier.py                      # the barrier acts
    python examples/heal_barrier.py --tau 5              # it never has to: the run equals --reg nll
    python examples/heal_barrier.py --adapter-stays-on   # a mistake: the reference is the model itself

The loss is nll + lam * relu(kl - tau), with the KL in nats a token against the original, which is the same model with
its adapters switched off. The model is a transformer of a few hundred thousand parameters; it first learns from the
standard library's source, and is then tuned to write docstrings. The table that is printed is a log of the run as well:
the last lines are the commands that judge it, from MLflow and from the table alone.
"""

from __future__ import annotations

import argparse
import ast
import math
import re
import statistics
import sys
import sysconfig
import time
from collections import Counter
from pathlib import Path

import mlflow
import torch
from mlflow.entities import Metric
from torch import Tensor, nn
from torch.nn import functional

CONTEXT = 64
MODULES = (
    "argparse",
    "ast",
    "calendar",
    "configparser",
    "datetime",
    "decimal",
    "difflib",
    "inspect",
    "statistics",
    "typing",
)
UNKNOWN = 0
MASKED = -100


class Lora(nn.Module):
    """A linear layer and a low-rank change of it, which can be switched off. It begins as no change."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base, self.on = base, True
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, hidden: Tensor) -> Tensor:
        change = 2.0 * (hidden @ self.lora_a.T @ self.lora_b.T) if self.on else 0.0
        return self.base(hidden) + change


class Block(nn.Module):
    """A transformer layer with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        parts = self.qkv(self.before_attention(hidden)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return hidden + self.down(functional.gelu(self.up(self.before_mlp(hidden))))


class Model(nn.Module):
    """A decoder of a few layers."""

    def __init__(self, vocabulary: int, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(CONTEXT, width)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))


class Tokens:
    """The most frequent words, spaces and signs of a text, by number; all others are unknown."""

    def __init__(self, text: str, size: int = 600) -> None:
        self.of = {word: i for i, (word, _) in enumerate(Counter(_words(text)).most_common(size), UNKNOWN + 1)}

    def __call__(self, text: str) -> list[int]:
        return [self.of.get(word, UNKNOWN) for word in _words(text)]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|[ ]+|\n|[^\w\s]", text)


def completions(sources: list[str]) -> list[tuple[str, str]]:
    """Prompts and completions: the name and arguments of every documented function, and its docstring's first line."""
    found = []
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and (documentation := ast.get_docstring(node)):
                arguments = ", ".join(one.arg for one in node.args.args)
                found.append((f'def {node.name}({arguments}):\n    """', documentation.split("\n")[0] + '"""'))
    return found


def masked(tokens: Tokens, prompt: str, completion: str) -> tuple[Tensor, Tensor] | None:
    """A sample's tokens and its targets, of which those in the prompt are masked; None where no target is left.

    Raises:
        ValueError: the prompt's tokens are not how the whole text begins, so that the mask would be off.
    """
    whole, before = tokens(prompt + completion), tokens(prompt)
    if whole[: len(before)] != before:
        raise ValueError("the prompt is not a token-prefix of prompt+completion")
    whole = whole[: CONTEXT + 1]
    if len(whole) <= len(before):
        return None
    targets = [MASKED] * (len(before) - 1) + whole[len(before) :]
    padding = CONTEXT - len(targets)
    return torch.tensor(whole[:-1] + [UNKNOWN] * padding), torch.tensor(targets + [MASKED] * padding)


def pretrain(model: Model, tokens: Tensor, steps: int) -> None:
    """Let the model learn what comes next in a text."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        starts = torch.randint(len(tokens) - CONTEXT - 1, (8, 1))
        rows = tokens[starts + torch.arange(CONTEXT + 1)]
        loss = functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.param_groups[0]["lr"] = 3e-3 * (1.0 - step / steps)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def add_lora(model: Model, rank: int) -> list[Lora]:
    """Freeze the model and put an adapter beside each layer's projections."""
    model.requires_grad_(requires_grad=False)
    adapters = []
    for layer in model.layers:
        for name in ("qkv", "out", "up", "down"):
            adapters.append(Lora(getattr(layer, name), rank))
            setattr(layer, name, adapters[-1])
    return adapters


def reference(model: Model, adapters: list[Lora], tokens: Tensor, *, stays_on: bool) -> Tensor:
    """The original's log-probabilities."""
    for adapter in adapters:
        adapter.on = stays_on
    with torch.no_grad():
        logits = model(tokens)
    for adapter in adapters:
        adapter.on = True
    return logits.log_softmax(-1)


def divergence(mine: Tensor, original: Tensor, reg: str) -> Tensor:
    """KL(original || mine) for kl_fwd, KL(mine || original) for kl_rev; the mean over the rows."""
    of, against = (original, mine) if reg == "kl_fwd" else (mine, original)
    return (of.exp() * (of - against)).sum(-1).mean()


def heal(model: Model, samples: list[tuple[Tensor, Tensor]], options: argparse.Namespace) -> None:
    """Tune the adapters, a batch a step; print the table and log to MLflow."""
    adapters = add_lora(model, options.rank)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    inputs, wanted = (torch.stack(part) for part in zip(*samples, strict=True))
    a_pass = len(samples) // options.batch_size
    steps = a_pass * options.epochs
    decay = options.lam if options.reg == "wd" else 0.0
    optimizer = torch.optim.AdamW(trained, lr=options.learning_rate, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 10, 1 - step / steps))
    print(
        f"heal[{options.reg}] {len(samples)} completions x {options.epochs} ep = {steps} steps; lora r={options.rank}"
    )
    print(f"base_model=small batch_size={options.batch_size}")
    print(f"SHOULD: keep kl near tau. lam={options.lam} tau={options.tau} min_train={options.min_train}")
    print(f"{'step':>5} {'nll↓':>7} {'kl':>6} {'loss↓':>7} {'gnorm':>7}")
    order, losses, now = torch.randperm(len(samples)), [], int(time.time() * 1000)
    for step in range(steps):
        order = torch.randperm(len(samples)) if step % a_pass == 0 else order
        batch = order[step % a_pass * options.batch_size :][: options.batch_size]
        tokens, targets = inputs[batch], wanted[batch]
        rows = targets != MASKED
        mine = model(tokens)[rows].log_softmax(-1)
        nll, kl = functional.nll_loss(mine, targets[rows]), torch.zeros(())
        if options.reg.startswith("kl"):
            original = reference(model, adapters, tokens, stays_on=options.adapter_stays_on)[rows]
            kl = divergence(mine, original, options.reg)
        loss = nll + options.lam * functional.relu(kl - options.tau) if options.reg.startswith("kl") else nll
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(trained, 1.0)
        values = {"nll": nll.item(), "kl": kl.item(), "loss": loss.item(), "grad_norm": norm.item()}
        values["lr"] = schedule.get_last_lr()[0]
        optimizer.step()
        schedule.step()
        losses += [Metric(name, value, now + step, step) for name, value in values.items()]
        if step % math.ceil(steps / 40) == 0 or step == steps - 1:
            print(f"{step:>5} {nll:>7.3f} {kl:>6.3f} {loss:>7.3f} {norm:>7.3f}")
    client = mlflow.MlflowClient()
    for first in range(0, len(losses), 1000):
        client.log_batch(mlflow.active_run().info.run_id, metrics=losses[first : first + 1000])
    last = [metric.value for metric in losses if metric.key == "nll"][-5:]
    error = statistics.stdev(last) / math.sqrt(len(last))
    print(f"converged: {statistics.mean(last):.3f} +- {error:.3f} nats a token over the last {len(last)} steps")


def parsed() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--reg", choices=("nll", "wd", "kl_fwd", "kl_rev"), default="kl_rev")
    parser.add_argument("--lam", type=float, default=2.0, help="weight of the barrier, or of weight decay")
    parser.add_argument("--tau", type=float, default=0.2, help="nats a token from where on the barrier acts")
    parser.add_argument("--adapter-stays-on", action="store_true", help="forget to switch it off for the reference")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=320)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--min-train", type=int, default=30)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Train the model, tune it, and say how to judge it."""
    options = parsed()
    torch.manual_seed(options.seed)
    library = Path(sysconfig.get_paths()["stdlib"])
    sources = [(library / f"{name}.py").read_text(encoding="utf-8") for name in MODULES]
    tokens = Tokens("\n".join(sources))
    found = [masked(tokens, *one) for one in completions(sources)]
    samples = [one for one in found if one is not None]
    samples = [samples[i] for i in torch.randperm(len(samples))[: options.samples].tolist()]
    if len(samples) < options.min_train:
        raise ValueError(f"{len(samples)} samples were kept: need >= min_train ({options.min_train})")
    model = Model(len(tokens.of) + 1)
    pretrain(model, torch.tensor(tokens("\n".join(sources))), steps=150)
    mlflow.set_experiment("heal")
    with mlflow.start_run(run_name=f"heal-{options.reg}") as run:
        settings = {name: value for name, value in vars(options).items() if name != "samples"}
        mlflow.log_params(settings | {"kept_samples": len(samples), "base_model": "a small transformer"})
        heal(model, samples, options)
    print(f"tracker-health check {run.info.run_id}", file=sys.stderr)


if __name__ == "__main__":
    main()
