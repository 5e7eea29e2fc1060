"""Reading the moments of checkpoints of 50 MB, 500 MB and (``--size 3000``) 3 GB, from the page cache and from disk.

Beside each other, in fresh processes and in turn: this package; torch.load, whole and mapped, with the means of the
second moments; one pass of numpy over the same bytes for the same statistics; and the bare read of the bytes. Seconds
are those of the work (imports aside) and of the whole process; resident memory is the child's peak. On a machine that
does other things as well, the ratios say more than the seconds.

Last, a Lightning checkpoint that is mostly frozen weights, behind a web server: the bytes and requests that it takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_MAKE = """
import sys, torch
path, megabytes = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
side = 256 if megabytes < 200 else 1024
count = max(1, megabytes * 10**6 // (8 * side * side))
moments = lambda: {"step": torch.tensor(500.0), "exp_avg": torch.randn(side, side) * 1e-3,
                   "exp_avg_sq": torch.rand(side, side) * 1e-6}
state = {index: moments() for index in range(count)}
groups = [{"lr": 1e-3, "betas": (0.9, 0.999), "params": list(state)}]
torch.save({"optimizer_state_dict": {"state": state, "param_groups": groups}, "global_step": 500}, path)
"""

_MAKE_LIGHTNING = """
import sys, torch
path, megabytes = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
weights = {f"layers.{index}.weight": torch.zeros(1024, 1024) for index in range(megabytes * 4 // 5 // 4)}
count = megabytes // 5 // 2
state = {index: {"step": torch.tensor(500.0), "exp_avg": torch.randn(256, 1024), "exp_avg_sq": torch.rand(256, 1024)}
         for index in range(count)}
groups = [{"lr": 1e-3, "params": list(state)}]
content = {"epoch": 1, "global_step": 500, "state_dict": weights, "loops": {}, "callbacks": {}}
torch.save({**content, "optimizer_states": [{"state": state, "param_groups": groups}], "lr_schedulers": []}, path)
"""

_REST = 2.0  # seconds in which a virtual disk regains the burst that it lets through

_WORKS = {
    "tracker-health": """
from pathlib import Path
from tracker_health.readers.optimizers.optimizer_state import read_optimizer_state
def work(path):
    return len(read_optimizer_state(Path(path), "file").tensors)
""",
    "one numpy pass": """
import json, sys
import numpy as np
N = 1 << 16
def work(path):
    extents = json.loads(open(sys.argv[2]).read())
    raw, a, b, r = bytearray(4 * N), np.empty(N), np.empty(N), np.empty(N)
    def fill(file, at, size, out):
        file.seek(at)
        view = memoryview(raw)[:size]
        file.readinto(view)
        out[:size // 4] = np.frombuffer(view, dtype="<f4")
        return out[:size // 4]
    def add(x):
        low, high = x.min(), x.max()
        return x.sum(), x.dot(x), low, high, 0 if low > 0 else np.count_nonzero(x == 0.0)
    found = []
    with open(path, "rb", buffering=0) as file:
        for (first, length), (second, _) in extents:
            for at in range(0, length, 4 * N):
                size = min(4 * N, length - at)
                x, y = fill(file, first + at, size, a), fill(file, second + at, size, b)
                z = r[:len(x)]
                np.multiply(x, x, out=z)
                with np.errstate(all="ignore"):
                    np.divide(z, y, out=z)
                found = add(x), add(y), z.sum(), np.count_nonzero(z > 60.0)
    return len(extents)
""",
    "bare read": """
import json, sys
def work(path):
    extents = json.loads(open(sys.argv[2]).read())
    view = memoryview(bytearray(1 << 20))
    with open(path, "rb", buffering=0) as file:
        for pair in extents:
            for start, length in pair:
                file.seek(start)
                while length:
                    length -= file.readinto(view[:min(length, 1 << 20)])
    return len(extents)
""",
    "torch.load": """
import torch
def work(path):
    state = torch.load(path, weights_only=True)
    return len([entry["exp_avg_sq"].mean().item() for entry in state["optimizer_state_dict"]["state"].values()])
""",
    "torch.load mapped": """
import torch
def work(path):
    state = torch.load(path, weights_only=True, mmap=True)
    return len([entry["exp_avg_sq"].mean().item() for entry in state["optimizer_state_dict"]["state"].values()])
""",
}
_TIMED = """
import sys, time
start = time.perf_counter()
count = work(sys.argv[1])
print(time.perf_counter() - start, count)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, action="append", help="MB of a checkpoint; 50 and 500 without any")
    parser.add_argument("--remote-size", type=int, default=500, help="MB of the one behind a web server; 0 for none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where the files are made; cold reads need a disk below it")
    given = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled, as torch is here
    if given.folder is not None:
        Path(given.folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        for size in given.size or (50, 500):
            _local(Path(name), size, given.rounds)
        if given.remote_size:
            _remote(Path(name), given.remote_size)


# Files of this machine


def _local(folder: Path, size: int, rounds: int) -> None:
    path, places = folder / "training_state.pt", folder / "places.json"
    subprocess.run([sys.executable, "-c", _MAKE, str(path), str(size)], check=True)
    os.sync()
    places.write_text(json.dumps(_places(path)))
    for cold in (False, True):
        print(
            f"\n{path.stat().st_size / 1e6:.0f} MB, {'from disk' if cold else 'from the page cache'}, {rounds} rounds"
        )
        measured: dict[str, list[tuple[float, float, float]]] = {name: [] for name in _WORKS}
        for round_ in range(rounds):
            # Each in its turn first: how fast a virtual disk is depends on what was read before.
            for place in range(len(_WORKS)):
                name = list(_WORKS)[(round_ + place) % len(_WORKS)]
                _prepare(path, cold=cold)
                measured[name].append(_run(_WORKS[name], path, places))
        _print(measured)
    path.unlink()


def _places(path: Path) -> list[Any]:
    """Where the two moments of each parameter lie."""
    from tracker_health.readers.torch_files.torch_archive import open_torch_archive

    with open_torch_archive(path) as archive:
        entries = archive.root["optimizer_state_dict"]["state"].values()
        keys = ("exp_avg", "exp_avg_sq")
        return [[archive.storage_extent(entry[key].storage.key) for key in keys] for entry in entries]


def _prepare(path: Path, *, cold: bool) -> None:
    with path.open("rb", buffering=0) as file:
        if cold:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            time.sleep(_REST)
            return
        view = bytearray(1 << 20)
        while file.readinto(view):
            pass


def _run(work: str, path: Path, places: Path) -> tuple[float, float, float]:
    """Seconds of the work, seconds of the process, and its peak resident MB."""
    read_end, write_end = os.pipe()
    # One core for each: the loop's dot product would keep all of them busy, to no one's gain.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", work + _TIMED, str(path), str(places)]
    started = time.perf_counter()
    child = os.posix_spawn(command[0], command, environment, file_actions=[(os.POSIX_SPAWN_DUP2, write_end, 1)])
    os.close(write_end)
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - started
    with os.fdopen(read_end) as output:
        printed = output.read().split()
    if os.waitstatus_to_exitcode(status):
        raise SystemExit("a child failed")
    scale = 1 if sys.platform == "darwin" else 1024
    return float(printed[0]), seconds, usage.ru_maxrss * scale / 1e6


def _print(measured: dict[str, list[tuple[float, float, float]]]) -> None:
    ours = measured["tracker-health"]
    print(f"{'':18} {'work':>9} {'process':>9} {'resident':>9}   ratio of ours to it: work, process")
    for name, found in measured.items():
        work, whole = (statistics.median(one[column] for one in found) for column in (0, 1))
        ratios = [
            statistics.median(own[column] / other[column] for own, other in zip(ours, found, strict=True))
            for column in (0, 1)
        ]
        resident = max(one[2] for one in found)
        print(f"{name:18} {work:8.3f}s {whole:8.3f}s {resident:6.0f} MB   {ratios[0]:5.2f}  {ratios[1]:5.2f}")


# A file on a web server


class _Handler(BaseHTTPRequestHandler):
    requests, sent = 0, 0
    path_served: Path

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's
        """Nothing: requests are counted."""

    def do_GET(self) -> None:
        size = self.path_served.stat().st_size
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        start, length = int(first), min(int(last), size - 1) - int(first) + 1
        type(self).requests += 1
        type(self).sent += length
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{start + length - 1}/{size}")
        self.send_header("Content-Length", str(length))
        self.end_headers()
        with self.path_served.open("rb") as file:
            file.seek(start)
            while length:
                chunk = file.read(min(length, 1 << 20))
                self.wfile.write(chunk)
                length -= len(chunk)


def _remote(folder: Path, size: int) -> None:
    path = folder / "last.ckpt"
    subprocess.run([sys.executable, "-c", _MAKE_LIGHTNING, str(path), str(size)], check=True)
    _Handler.path_served = path
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [sys.executable, "-m", "tracker_health", "check", f"http://127.0.0.1:{server.server_port}/last.ckpt"]
        started = time.perf_counter()
        child = os.posix_spawn(
            command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        )
        _, status, usage = os.wait4(child, 0)
        seconds = time.perf_counter() - started
        server.shutdown()
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit("the check failed")
    needed = size // 5 // 2 * 2 * 2**20
    resident = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
    print(f"\n{path.stat().st_size / 1e6:.0f} MB behind a web server, of which {needed / 1e6:.0f} MB are moments")
    fetched = f"{_Handler.sent / 1e6:.1f} MB fetched ({_Handler.sent / needed:.3f} x), {_Handler.requests} requests"
    print(f"{fetched}, {seconds:.2f} s, {resident:.0f} MB resident")


if __name__ == "__main__":
    main()
