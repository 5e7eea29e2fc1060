"""DeepSpeed's ZeRO: each rank saves its partition of the optimizer's state, flattened, in a file of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tracker_health.evidence import OptimizerState, Weights
from tracker_health.readers.checkpoint_formats.base import NameMatch
from tracker_health.readers.files.folder import Folder

_STATES = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d{1,6})_mp_rank_(\d{1,6})_optim_states\.pt")
_MODEL = re.compile(r"(?:(?:bf16_|fp16_)?zero_pp_rank_\d{1,6}_)?mp_rank_(\d{1,6})_model_states\.pt")


class DeepSpeedZero:
    """See ``CheckpointFormat``."""

    name = "DeepSpeed ZeRO checkpoint"

    def belongs(self, name: str) -> bool:
        return bool(_STATES.fullmatch(name) or _MODEL.fullmatch(name))

    def leads(self, names: Sequence[str]) -> dict[str, NameMatch]:
        files = _ranks(names)
        return {files[min(files)]: NameMatch.SURE} if files else {}

    def why_not(self, names: Sequence[str]) -> str:
        lost = any(_MODEL.fullmatch(name) for name in names)
        return (
            "a DeepSpeed checkpoint without the ranks' optimizer states (zero_pp_rank_*_optim_states.pt)"
            if lost
            else ""
        )

    def holds_state(self, folder: Folder, lead: str) -> bool:
        del folder
        return bool(_STATES.fullmatch(lead))

    def read(self, folder: Folder, lead: str, source: str) -> OptimizerState:
        del lead  # one rank's, as good as any
        # Imported where there is such a checkpoint: most runs have none.
        from tracker_health.readers.optimizers.zero_partitions import read_partitions

        return read_partitions(folder, _ranks(folder.names), _models(folder.names), source)

    def weights(self, folder: Folder, lead: str, source: str) -> Weights | None:
        del lead
        from tracker_health.readers.optimizers.zero_partitions import read_module

        return read_module(folder, _models(folder.names).get(min(_ranks(folder.names))[0]), source)


def _ranks(names: Sequence[str]) -> dict[tuple[int, int], str]:
    """The files of optimizer state by the rank in model and data parallelism."""
    found = ((_STATES.fullmatch(name), name) for name in names)
    return {(int(match[2]), int(match[1])): name for match, name in found if match}


def _models(names: Sequence[str]) -> dict[int, str]:
    """A file of what was saved of the model, by the rank in model parallelism: of several the first."""
    found = ((_MODEL.fullmatch(name), name) for name in sorted(names, reverse=True))
    return {int(match[1]): name for match, name in found if match}
