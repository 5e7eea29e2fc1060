"""Variational autoencoders of three kinds of data, trained rightly or with a fault that makes their code useless."""

from __future__ import annotations

import numpy as np
import torch
from logs import Log
from settings import Params, outcome
from torch import nn
from torch.nn import functional

_LOGGED = ("loss", "recon", "kl")


class Vae(nn.Module):
    """A small variational autoencoder; by mistake its decoder may see the encoder's input, or its code be detached."""

    def __init__(self, run: Params, size: int) -> None:
        super().__init__()
        self.run, hidden = run, run["hidden"]
        self.encoder = nn.Sequential(nn.Linear(size, hidden), nn.ReLU())
        self.code = nn.Linear(hidden, 2 * run["latent_dim"])
        extra = hidden if run["fault"] == "skip" else 0
        self.decoder = nn.Sequential(
            nn.Linear(run["latent_dim"] + extra, hidden), nn.ReLU(), nn.Linear(hidden, size), nn.Sigmoid()
        )
        self.log_sigma = nn.Parameter(torch.tensor(-1.0))

    def forward(self, image: torch.Tensor, mix: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """The reconstruction (from the codes of other images where `mix` orders them anew), and KL per dimension."""
        hidden = self.encoder(image)
        mean, variance = self.code(hidden).chunk(2, dim=1)
        divergence = 0.5 * (mean**2 + variance.exp() - 1 - variance)
        code = mean + torch.randn_like(mean) * (variance / 2).exp() if self.training else mean
        code = code.detach() if self.run["fault"] == "detached" else code
        code = code if mix is None else code[mix]
        return self.decoder(torch.cat([code, hidden], 1) if self.run["fault"] == "skip" else code), divergence

    def losses(self, image: torch.Tensor, beta: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The loss, and the reconstruction and KL as they are logged."""
        made, divergence = self(image)
        error = (made - image) ** 2
        if self.run["reconstruction"] == "bce":
            error = functional.binary_cross_entropy(made.clamp(1e-6, 1 - 1e-6), image, reduction="none")
        elif self.run["reconstruction"] == "gaussian":
            error = error / (2 * (2 * self.log_sigma).exp()) + self.log_sigma
        recon, dims = error.sum(1).mean(), divergence.mean(0).clamp(min=self.run["free_bits"])
        size = image.shape[1] if self.run["reduction"] == "mean" else 1
        kl = divergence.mean(0).mean() if self.run["kl_logged"] == "mean" else divergence.mean(0).sum()
        kl = kl * beta if self.run["kl_logged"] == "weighted" else kl
        kl = -kl if self.run["names"] == "negated" else kl
        return (recon + beta * dims.sum()) / size, recon / size, kl


def _images(name: str) -> np.ndarray:
    """Digits of scikit-learn; waves of three numbers; or points of five clouds in a plane, bent into 32 dimensions."""
    rng = np.random.default_rng(8)
    if name == "digits":
        from sklearn.datasets import load_digits

        return rng.permutation(load_digits().data / 16).astype(np.float32)
    if name == "sinusoids":
        pace, shift, height = rng.uniform((1, 0, 0.2), (3, 2 * np.pi, 0.5), (1800, 3)).T[..., None]
        return (0.5 + height * np.sin(pace * np.linspace(0, 6, 48) + shift)).astype(np.float32)
    points = rng.normal(0, 1.5, (5, 2))[rng.integers(0, 5, 1800)] + rng.normal(0, 0.3, (1800, 2))
    return (1 / (1 + np.exp(-points @ rng.normal(0, 1, (2, 32)) + rng.normal(0, 0.1, (1800, 32))))).astype(np.float32)


def _beta(run: Params, share: float) -> float:
    """The weight of the KL term when this share of the run is over."""
    if run["fault"] == "endless_annealing":
        return float(run["beta"] * max(0.02, 800 * max(0.0, share - 0.3)))
    ways = {"linear": min(1.0, share / 0.4), "cyclic": min(1.0, 2 * (share * 4 % 1.0)) if share < 1 else 1.0}
    return float(run["beta"] * ways.get(run["annealing"], 1.0))


def train_vae(run: Params, log: Log) -> str:
    """Train; healthy or collapsed by what the code tells of held-out images."""
    torch.manual_seed(run["seed"])
    data = torch.from_numpy(_images(run["task"]))
    train, held = data[:-400], data[-400:]
    net, step = Vae(run, data.shape[1]), 0
    optimizer = torch.optim.Adam(net.parameters(), lr=run["lr"], fused=True)
    for epoch in range(1, run["epochs"] + 1):
        beta, rows = _beta(run, epoch / run["epochs"]), []
        for batch in train[torch.randperm(len(train))].split(run["batch_size"]):
            step += 1
            rows.append(_step(net, optimizer, batch, beta))
            if run["per_step"] and step % 5 == 0:
                log.write(step, **dict(zip(_LOGGED, rows[-1], strict=True)))
        shown = {} if run["per_step"] else dict(zip(_LOGGED, np.mean(rows, axis=0), strict=True))
        shown |= _validated(net, held, beta) if run["validated"] else {}
        if shown:
            log.write(step if run["per_step"] else epoch, **shown, beta=beta)
    error, run["measured"] = _told(net, train, held)
    return outcome(run, healthy=error < 0.7 and run["measured"] > 0.3, sick=run["measured"] < 0.03)


def _step(net: Vae, optimizer: torch.optim.Adam, batch: torch.Tensor, beta: float) -> tuple[float, float, float]:
    """One step on a batch; its losses as they are logged."""
    loss, recon, kl = net.losses(batch, beta)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item(), recon.item(), kl.item()


@torch.no_grad()
def _validated(net: Vae, held: torch.Tensor, beta: float) -> dict[str, float]:
    """The losses on held-out images."""
    losses = net.eval().losses(held, beta)
    net.train()
    return {f"val_{key}": loss.item() for key, loss in zip(_LOGGED, losses, strict=True)}


@torch.no_grad()
def _told(net: Vae, train: torch.Tensor, held: torch.Tensor) -> tuple[float, float]:
    """The error on held-out images as a share of their variance, and by how much the codes of others raise it."""
    net.eval()
    spread = ((held - train.mean(0)) ** 2).mean()
    own, other = (((net(held, mix)[0] - held) ** 2).mean() / spread for mix in (None, torch.randperm(len(held))))
    return float(own), round(float(other - own), 3)
