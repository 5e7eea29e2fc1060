"""A file of ``torch.save`` or ``torch.export.save``, without torch: a structure, and tensors that are read in place."""

from __future__ import annotations

from pathlib import Path

from tracker_health.readers.files.random_access import LocalFile, RandomAccess, read_bytes
from tracker_health.readers.files.zip_directory import zip_directory
from tracker_health.readers.torch_files.exported_program import ExportedProgram, is_exported
from tracker_health.readers.torch_files.torch_legacy import LegacyTorchArchive, is_legacy
from tracker_health.readers.torch_files.torch_storages import TorchArchive
from tracker_health.readers.torch_files.torch_zip import TorchZip


def open_torch_archive(source: Path | RandomAccess) -> TorchArchive:
    """A file of ``torch.save``, in its zip format or in the one before, or of ``torch.export.save``.

    Raises:
        ReadError: not such a file, or one that cannot be trusted.
        OSError: the file cannot be read.
    """
    file = LocalFile(source) if isinstance(source, Path) else source
    try:
        start = read_bytes(file, 0, min(file.size, 64))
        if is_legacy(start):
            return LegacyTorchArchive(file)
        entries = zip_directory(file)
        return ExportedProgram(file, entries) if is_exported(entries) else TorchZip(file, entries)
    except BaseException:
        file.close()
        raise
