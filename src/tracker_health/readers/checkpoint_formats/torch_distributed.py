"""Checkpoints of ``torch.distributed.checkpoint``: ``.metadata``, and ``.distcp`` files of each process."""

from __future__ import annotations

from collections.abc import Sequence

from tracker_health.evidence import OptimizerState, Weights
from tracker_health.readers.checkpoint_formats.base import NameMatch
from tracker_health.readers.files.folder import Folder

LEAD = ".metadata"
_PART = ".distcp"
_BESIDE = "meta.pt"  # where Lightning keeps what is no tensor: the steps, the epochs


class TorchDistributed:
    """See ``CheckpointFormat``."""

    name = "torch distributed checkpoint"

    def belongs(self, name: str) -> bool:
        return name in {LEAD, _BESIDE} or name.endswith(_PART)

    def leads(self, names: Sequence[str]) -> dict[str, NameMatch]:
        # The weights alone may be saved like this; and other programs have files called .metadata.
        whole = LEAD in names and any(name.endswith(_PART) for name in names)
        return {LEAD: NameMatch.LIKELY} if whole else {}

    def why_not(self, names: Sequence[str]) -> str:
        lost = LEAD not in names and any(name.endswith(_PART) for name in names)
        return "a torch distributed checkpoint without its .metadata: it was not saved to its end" if lost else ""

    # What reads it is imported where there is such a checkpoint: most runs have none.

    def holds_state(self, folder: Folder, lead: str) -> bool:
        from tracker_health.readers.optimizers.distributed_state import has_state

        return has_state(folder, lead)

    def read(self, folder: Folder, lead: str, source: str) -> OptimizerState:
        from tracker_health.readers.optimizers.distributed_state import read_state

        return read_state(folder, lead, _BESIDE if _BESIDE in folder.names else None, source)

    def weights(self, folder: Folder, lead: str, source: str) -> Weights | None:
        from tracker_health.readers.optimizers.distributed_state import read_headers

        return read_headers(folder, lead, source)
