"""Gradients as files: at some steps, whole or a corner of each. Torch is imported when there is something to write."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from tracker_health.errors import ConfigError, optional_packages

if TYPE_CHECKING:
    from torch import Tensor

SAMPLED, FULL = "sampled_gradients", "full_gradients"
"""What the folder of a step holds: one file a parameter, or a checkpoint of torch.distributed.checkpoint."""


@dataclass(frozen=True, kw_only=True)
class GradientDumps:
    """Which gradients ``watch`` writes to ``folder``/gradients/step<N>.

    At ``start`` and every ``step_interval``-th step from there up to and including ``end`` (None: to the end).
    ``save_first_n``: only the first n entries of every dimension of each gradient, a corner and no random sample. There
    is one file of safetensors per parameter, with the one key ``gradient``. None: all gradients whole, as a distributed
    checkpoint. Gradients are those before clipping, without the scale of a gradient scaler. They are kept a second time
    in memory until the step is over. A parameter that the optimizer holds and that got no gradient has zeros. ``log``:
    the active W&B or MLflow run gets them as artifacts at the end.

    Raises:
        ConfigError: a number makes no sense, or the folder has gradients already.
    """

    folder: str | Path
    start: int = 0
    end: int | None = None
    step_interval: int = 1
    save_first_n: int | None = None
    log: bool = False

    def __post_init__(self) -> None:
        if self.start < 0:
            raise ConfigError(f"start={self.start}: it must be at least 0")
        if self.step_interval < 1:
            raise ConfigError(f"step_interval={self.step_interval}: it must be at least 1")
        if self.save_first_n is not None and self.save_first_n < 1:
            raise ConfigError(f"save_first_n={self.save_first_n}: it must be at least 1, or None for whole gradients")
        if self.end is not None and self.end < self.start:
            raise ConfigError(f"end={self.end}: it must not be before start={self.start}")
        with optional_packages("torch"):
            import safetensors.torch  # noqa: F401  asked for now, not after hours of training

    def due(self, step: int) -> bool:
        """Whether the gradients of an optimizer step are written.

        Args:
            step: Of the optimizer, from 1.

        Returns:
            True where they are.
        """
        inside = step >= self.start and (self.end is None or step <= self.end)
        return inside and (step - self.start) % self.step_interval == 0

    def refuse_old_steps(self) -> None:
        """Refuse a folder that has gradients.

        Raises:
            ConfigError: it does.
        """
        if any(self.root.glob("step*")):
            raise ConfigError(f"{self.root} has gradients already", "give another folder")

    @property
    def root(self) -> Path:
        return Path(self.folder) / "gradients"

    def kept(self, gradients: Sequence[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """What will be written, copied: clipping changes gradients in place. Of those that are sharded, this process's
        part: nothing here waits for other processes.

        Args:
            gradients: Names and gradients, each of its parameter's shape.

        Returns:
            Copies by name, each of the gradient's shape, or of a corner of it: see ``save_first_n``.
        """
        return {name: self._part(gradient.detach()).clone() for name, gradient in gradients}

    def _part(self, gradient: Tensor) -> Tensor:
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        return gradient if self.save_first_n is None or hasattr(gradient, "full_tensor") else self._corner(gradient)

    def _corner(self, gradient: Tensor) -> Tensor:
        return gradient[tuple(slice(self.save_first_n) for _ in gradient.shape)] if gradient.dim() else gradient

    def write(self, step: int, kept: dict[str, Tensor], *, first_process: bool) -> None:
        """Write what was kept of a step, in the same order in all processes: all of them have to call it.

        Args:
            step: Of the optimizer, from 1.
            kept: What ``kept`` gave.
            first_process: Whether this process writes what only one of them writes.
        """
        folder = self.root / f"step{step}"
        if self.save_first_n is None:
            from torch.distributed.checkpoint.filesystem import FileSystemWriter
            from torch.distributed.checkpoint.state_dict_saver import save

            with _quiet():
                writer = FileSystemWriter(folder / FULL, single_file_per_rank=False)  # as newer ones make by themselves
                save(dict(kept), storage_writer=writer)  # alone, where this process is in no group
            return
        for name, part in kept.items():
            whole = self._corner(part.full_tensor()) if hasattr(part, "full_tensor") else part
            if first_process:
                kept[name] = whole.cpu()
        if first_process:
            from safetensors.torch import save_file

            (folder / SAMPLED).mkdir(parents=True, exist_ok=True)
            for name, part in kept.items():
                file = folder / SAMPLED / f"{quote(name, safe='')}.safetensors"
                save_file({"gradient": part.contiguous()}, str(file))


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch warns of itself while it saves: none of that is the training's business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
