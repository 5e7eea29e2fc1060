"""Disk full."""

from __future__ import annotations

from tracker_health.diagnosis._ends import EndOfProcess, end_sign


class DiskFull(EndOfProcess):
    """There was no space left on the disk."""

    name = "disk-full"
    title = "The disk was full"
    signs = (end_sign("its console ends with a full disk", ("no space left", "disk quota exceeded"), 7),)
    test = "look at the free space of the disk"
    do = "free the disk or keep fewer checkpoints, and resume: the last one may be cut short"
