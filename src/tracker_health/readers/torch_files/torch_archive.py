"""A file of ``torch.save``, without torch: the pickled structure, and tensors that are read in place."""

from __future__ import annotations

from pathlib import Path

from tracker_health.readers.files.random_access import LocalFile, RandomAccess, read_bytes
from tracker_health.readers.torch_files.torch_legacy import LegacyTorchArchive, is_legacy
from tracker_health.readers.torch_files.torch_storages import TorchArchive
from tracker_health.readers.torch_files.torch_zip import TorchZip


def open_torch_archive(source: Path | RandomAccess) -> TorchArchive:
    """A file of ``torch.save``, in its zip format or in the one before.

    Raises:
        ReadError: not such a file, or one that cannot be trusted.
        OSError: the file cannot be read.
    """
    file = LocalFile(source) if isinstance(source, Path) else source
    try:
        start = read_bytes(file, 0, min(file.size, 64))
        return LegacyTorchArchive(file) if is_legacy(start) else TorchZip(file)
    except BaseException:
        file.close()
        raise
