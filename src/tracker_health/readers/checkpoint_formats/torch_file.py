"""Single files of ``torch.save`` with an optimizer's state: ``training_state.pt``, ``optimizer.pt``, a ``.ckpt``.

Accelerate saves each optimizer of several in a file of its own: ``optimizer.bin``, ``optimizer_1.bin``, ... Next to
``optimizer.pt`` or ``.bin`` are ``scheduler.pt`` or ``.bin``, and ``scaler.pt`` where training was in half precision.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tracker_health.evidence import OptimizerState, Weights
from tracker_health.readers.checkpoint_formats.base import NameMatch
from tracker_health.readers.files.folder import Folder
from tracker_health.readers.optimizers.aside import aside
from tracker_health.readers.optimizers.optimizer_state import has_optimizer_state, joined, read_optimizer_state
from tracker_health.readers.optimizers.saved_scaler import saved_loss_scale
from tracker_health.readers.optimizers.saved_schedule import saved_schedules
from tracker_health.readers.tensors.tensor_values import TensorStatistics
from tracker_health.readers.torch_files.torch_archive import open_torch_archive

_KNOWN = re.compile(r"(training_state\.pt|optimizer\.(pt|bin))", re.IGNORECASE)
_FURTHER = re.compile(r"optimizer_(\d{1,4})\.bin", re.IGNORECASE)
_POSSIBLE = re.compile(r".*\.(pt2?|pth|ckpt|bin|tar)", re.IGNORECASE)
_NEVER = re.compile(
    r"(rng_state.*|random_states.*|training_args\.bin|scheduler(_\d+)?\..*|scaler\..*|pytorch_model.*"
    r"|adapter_model\..*|consolidated.*|sampler.*\.bin|dl_state_dict.*\.bin)",
    re.IGNORECASE,
)
_ALONE = re.compile(r"optimizer\.(pt|bin)", re.IGNORECASE)
_SCALER = "scaler.pt"
_SCHEDULERS = ("scheduler.pt", "scheduler.bin")


_Found = TypeVar("_Found")


class TorchFile:
    """See ``CheckpointFormat``."""

    name = "file of torch.save"

    def belongs(self, name: str) -> bool:
        return _may_lead(name) or name == _SCALER or name in _SCHEDULERS

    def leads(self, names: Sequence[str]) -> dict[str, NameMatch]:
        first = any(name.lower() == "optimizer.bin" for name in names)
        found = [name for name in names if _may_lead(name) and not (first and _FURTHER.fullmatch(name))]
        return {name: NameMatch.SURE if _KNOWN.fullmatch(name) else NameMatch.POSSIBLE for name in found}

    def why_not(self, names: Sequence[str]) -> str:
        del names
        return ""

    def holds_state(self, folder: Folder, lead: str) -> bool:
        return has_optimizer_state(folder.open(lead))

    def read(self, folder: Folder, lead: str, source: str) -> OptimizerState:
        first = read_optimizer_state(folder.open(lead), source)
        if _ALONE.fullmatch(lead):
            first = _with_what_lies_beside(first, folder)
        further = _further(folder.names) if lead.lower() == "optimizer.bin" else []
        if not further:
            return first
        states = {"optimizer": first}
        states |= {name.rpartition(".")[0]: read_optimizer_state(folder.open(name), source) for name in further}
        stubs = dict.fromkeys(stub for state in states.values() for stub in state.stubs)
        together = joined([named(state, name) for name, state in states.items()])
        return replace(
            together,
            source=source,
            stubs=tuple(stubs),
            loss_scale=first.loss_scale,
            schedules=first.schedules,
            notes=first.notes,
        )

    def weights(self, folder: Folder, lead: str, source: str) -> Weights | None:
        del folder, lead, source  # weights of such a checkpoint are in files of their own
        return None


def _may_lead(name: str) -> bool:
    return bool(_POSSIBLE.fullmatch(name)) and not _NEVER.fullmatch(name)


def _with_what_lies_beside(state: OptimizerState, folder: Folder) -> OptimizerState:
    """The state with the loss scale and the schedule that have files of their own."""
    notes = list[str]()
    if state.loss_scale is None and _SCALER in folder.names:
        scale = _beside(folder, _SCALER, lambda root: saved_loss_scale(root, TensorStatistics()), notes)
        state = replace(state, loss_scale=scale)
    name = next((name for name in _SCHEDULERS if name in folder.names), None)
    if not state.schedules and name is not None:
        schedules = _beside(folder, name, lambda root: saved_schedules(root, state.groups), notes)
        state = replace(state, schedules=schedules or ())
    return replace(state, notes=(*state.notes, *notes))


def _beside(folder: Folder, name: str, read: Callable[[Any], _Found], notes: list[str]) -> _Found | None:
    """What a file next to the optimizer's holds; None where that cannot be read: no other evidence depends on it."""

    def found() -> _Found:
        with open_torch_archive(folder.open(name)) as archive:
            return read(archive.root)

    return aside(name, found, notes)


def named(state: OptimizerState, optimizer: str) -> OptimizerState:
    """The state of one optimizer of several, with its name at each tensor; of an optimizer in it behind that."""
    return replace(
        state,
        tensors=tuple(
            replace(one, optimizer=f"{optimizer}.{one.optimizer}" if one.optimizer else optimizer)
            for one in state.tensors
        ),
        stateless=tuple(f"{optimizer}/{label}" for label in state.stateless),
    )


def _further(names: Sequence[str]) -> list[str]:
    found = [(int(match[1]), name) for name in names if (match := _FURTHER.fullmatch(name))]
    return [name for _, name in sorted(found)]
