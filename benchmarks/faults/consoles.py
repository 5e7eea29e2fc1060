"""How right RUN004 is: real processes that print as trainers do, and end in many ways, some of them crashes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tracker_health import check
from tracker_health.words.verdict import Verdict

STYLES = {
    "tune": {
        "pairs": 'print(f"step {step} loss={loss:.4f} lr=1e-3")',
        "HF dictionaries": "print({'loss': round(loss, 4), 'learning_rate': 1e-3, 'epoch': round(step / 40, 3)})",
        "tqdm": 'print(f"\\r{step / 1.2:3.0f}%|{chr(61) * (step // 12):10}| {step}/120 [00:{step // 2:02d}<00:59, '
        '2.0it/s, loss={loss:.4f}]", end="", file=sys.stderr, flush=True)\n    if step == 119: print(file=sys.stderr)',
        "tqdm without a bar": 'print(f"\\r {step}/120 [00:{step // 2:02d}<00:59, 2.0it/s, loss={loss:.4f}]", end="", '
        'file=sys.stderr, flush=True)\n    if step == 119: print(file=sys.stderr)',
    },
    "validate": {
        "nanoGPT": 'print(f"iter {step}: loss {loss:.4f}, time 51.3ms, mfu 12.1%")',
        "a logger": 'logging.info("[train] step: %d | loss: %.4f | lr: 1.0e-03", step, loss)',
        "Keras": 'print(f"Epoch {step + 1}/120\\n40/40 - 1s - 9ms/step - loss: {loss:.4f}")',
    },
}  # fmt: skip
_TRAINING = """
import json, logging, os, random, resource, signal, sys, time, traceback, warnings
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s - %(message)s", stream=sys.stdout)
sys.stdout.reconfigure(line_buffering=True)
random.seed({seed})
def train(first, last):
  for step in range(first, last):
    loss = 0.4 + 2.2 / (1 + step / 15) + random.gauss(0, 0.02)
    {row}
print("loading data from ./data, 51234 samples, batch size 32")
"""
CRASHES = {
    "out of memory": "train(0, 70)\nresource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\nkept = []\n"
    "while True:\n    kept.append(bytearray(2**26))",
    "an error in a later epoch": "train(0, 80)\n{}['labels']",
    "an error that another brought on": "train(0, 80)\ntry:\n    {}['labels']\nexcept KeyError:\n"
    "    raise RuntimeError('the batch could not be made')",
    "a full disk": "train(0, 60)\nraise OSError(28, 'No space left on device', 'last.ckpt')",
    "a collective that hung": "train(0, 60)\nraise RuntimeError('[Rank 0] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE) ran for 600000 milliseconds')",
    "killed": "train(0, 60)\nos.kill(os.getpid(), signal.SIGKILL)",
    "a segfault": "import faulthandler, ctypes\nfaulthandler.enable()\ntrain(0, 60)\nctypes.string_at(0)",
    "too few samples": "min_train, kept = 30, 12\nassert kept >= min_train, f'need >= min_train ({min_train}), got "
    "{kept}'",
}
HEALTHY = {
    "it finished": "train(0, 120)",
    "it says that it is done": "train(0, 120)\nprint('Training finished.')",
    "a caught error": "train(0, 60)\ntry:\n    raise MemoryError('CUDA out of memory')\nexcept MemoryError:\n"
    "    traceback.print_exc(file=sys.stdout)\n    print('halving the batch')\ntrain(60, 120)",
    "a warning that mentions memory": "train(0, 120)\nprint('UserWarning: if you run out of memory, set a smaller "
    "batch; CUDA out of memory is likely above 64')",
    "an error logged early on": "logging.error('could not reach the metrics server: ConnectionError')\ntrain(0, 120)",
    "interrupted by hand": "train(0, 90)\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)",
    "words like those of a crash": "train(0, 120)\nprint('processes killed: 0, errors: 0, terminated early: False')",
    "a worker's retry": 'train(0, 50)\nprint(\'Traceback (most recent call last):\\n  File "loader.py", line 3, in get'
    "\\n    raise OSError\\nOSError: [Errno 5] read error\\nretrying (1 of 3)')\ntrain(50, 120)",
}


@dataclass(frozen=True)
class Console:
    """What became of one process: whether it was healthy, how it ended, and what RUN004 says of its output."""

    healthy: bool
    end: str
    style: str
    verdict: Verdict | None

    @property
    def right(self) -> bool:
        """A crash is at least warned of; anything else is not."""
        return (self.verdict in (Verdict.WARN, Verdict.FAIL)) is not self.healthy


def consoles(split: str, seeds: int) -> Iterator[Console]:
    """Runs every ending in every style of a split, so many times."""
    cases = [
        (healthy, end, code, style, row, seed)
        for healthy, endings in ((False, CRASHES), (True, HEALTHY))
        for end, code in endings.items()
        for style, row in STYLES[split].items()
        for seed in range(seeds)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        yield from executor.map(lambda case: _console(*case), cases)


def _console(healthy: bool, end: str, code: str, style: str, row: str, seed: int) -> Console:
    script = _TRAINING.replace("{seed}", str(seed)).replace("{row}", row) + code
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # As a batch system starts it: by a shell, which says what became of it.
        command = ["bash", "-c", f'"{sys.executable}" -c "$SCRIPT"; code=$?; exit $code']
        with (folder / "console.log").open("wb") as log:
            subprocess.run(
                command, stdout=log, stderr=log, env=os.environ | {"SCRIPT": script}, check=False, timeout=120,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )  # fmt: skip
        results = {result.code: result.verdict for result in check(folder).results}
    return Console(healthy, end, style, results.get("RUN004"))
