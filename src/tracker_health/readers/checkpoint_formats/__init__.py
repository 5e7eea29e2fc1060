"""The checkpoint formats that are read, one a file."""

from __future__ import annotations

from tracker_health.readers.checkpoint_formats.base import CheckpointFormat, NameMatch
from tracker_health.readers.checkpoint_formats.deepspeed import DeepSpeedZero
from tracker_health.readers.checkpoint_formats.torch_distributed import TorchDistributed
from tracker_health.readers.checkpoint_formats.torch_file import TorchFile

# Those that know their files by name before the one that looks into every file of torch.save.
FORMATS: tuple[CheckpointFormat, ...] = (TorchDistributed(), DeepSpeedZero(), TorchFile())

__all__ = ["FORMATS", "CheckpointFormat", "NameMatch"]
