"""Two processes of torch.distributed on this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_in_two_processes(script, folder, *more, seconds=300):
    """Run ``script RANK PORT FOLDER ...`` twice at a time; whatever it writes to standard error is shown if one fails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    file = folder / "worker.py"
    file.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}")
    workers = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", file, str(rank), port, folder, *more],
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        for worker in workers:
            _, errors = worker.communicate(timeout=seconds)
            assert worker.returncode == 0, errors
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
