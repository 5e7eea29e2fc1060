"""Communication failed."""

from __future__ import annotations

from tracker_health.diagnosis._ends import EndOfProcess, end_sign


class CommunicationFailed(EndOfProcess):
    """Processes lost each other."""

    name = "communication-failed"
    title = "The processes lost each other"
    signs = (
        end_sign(
            "its console ends with a failed collective operation",
            ("collective operation", "nccl", "connection reset by peer", "gloo"),
            7,
        ),
    )
    test = "look in the logs of the other ranks"
    do = "look in the logs of the other ranks for the one that stopped first"
