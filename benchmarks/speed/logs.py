"""How fast logs are read, beside the least that could be done with them.

    python benchmarks/speed/logs.py [--size MEGABYTES] [--runs N] [--only NAME]

A console log beside a loop over its lines with one compiled regular expression that knows the format in advance; JSON
lines beside their parsing alone. Two logs of which every thousandth line has metrics, beside the same loop: between
them lines of two characters, or a progress bar that is drawn again. Each in a fresh process, in turn; the figure to
quote is the ratio of processor time. Resident memory is the child's peak.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_RUNS = 3
_MEGABYTES = 100
_FORMATS = ("console.log", "train.jsonl", "short.log", "bars.log")

_PLAIN_TEXT = """
import re
row = re.compile(r"step (\\d+) loss=(\\S+) grad_norm=(\\S+) lr=(\\S+)")
steps, losses, norms, rates = [], [], [], []
for line in open(path):
    match = row.search(line)
    if match:
        step, loss, norm, rate = match.groups()
        steps.append(int(step)); losses.append(float(loss)); norms.append(float(norm)); rates.append(float(rate))
"""
_PLAIN_JSON = """
import json
for line in open(path, "rb"):
    json.loads(line)
"""
_OURS = """
from pathlib import Path
from tracker_health.readers.log_formats import read_log
from tracker_health.roles import assign
log, form = read_log(Path(path), Path(path).name, RolePlan())
assert len(log.series) >= 3, log
"""
_CHILD = """
import resource, sys
path = sys.argv[1]
{imports}
used = resource.getrusage(resource.RUSAGE_SELF)
before = used.ru_utime + used.ru_stime
{work}
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime - before, used.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3))
"""
_IMPORTS = "import tracker_health.readers.log_formats"


def make_text(path: Path, megabytes: int) -> None:
    """A console log with a logger's prefix."""
    values = random.Random(0)
    with path.open("w") as file:
        step = 0
        while file.tell() < megabytes * 10**6:
            time = f"2024-05-01 12:{step // 60 % 60:02d}:{step % 60:02d},{step % 1000:03d}"
            numbers = f"loss={values.random():.4f} grad_norm={values.random():.3f} lr={values.random():.3e}"
            file.write(f"{time} INFO trainer.py:88 step {step} {numbers}\n")
            step += 1


def make_json(path: Path, megabytes: int) -> None:
    """A log of JSON lines with the usual fields."""
    values = random.Random(0)
    with path.open("w") as file:
        step = 0
        while file.tell() < megabytes * 10**6:
            row = {"step": step, "loss": values.random(), "grad_norm": values.random(), "lr": values.random() / 1e4}
            row |= {"tokens": step * 4096, "tokens_per_second": 1e5 * values.random(), "time": step * 0.31}
            file.write(json.dumps(row) + "\n")
            step += 1


def make_short(path: Path, megabytes: int) -> None:
    """Lines of two characters, as of a script that prints each sample's label."""
    _make_between(path, megabytes // 10, "".join(f"{at % 10}{at // 10 % 10}\n" for at in range(1000)))


def make_bars(path: Path, megabytes: int) -> None:
    """A progress bar without metrics, drawn a thousand times between two rows."""
    bar = "\r{0:3d}%|{1:<20}| {2}/10000 [00:{0:02d}<01:{0:02d}, 45.{0:02d}it/s]"
    _make_between(
        path, megabytes, "".join(bar.format(at // 10, "\u2588" * (at // 50), at * 10) for at in range(1000)) + "\n"
    )


def _make_between(path: Path, megabytes: int, between: str) -> None:
    values = random.Random(0)
    with path.open("w") as file:
        step = 0
        while file.tell() < megabytes * 10**6:
            numbers = f"loss={values.random():.4f} grad_norm={values.random():.3f} lr={values.random():.3e}"
            file.write(f"{between}step {step} {numbers}\n")
            step += 1


def measured(path: Path, work: str, imports: str = "") -> tuple[float, float]:
    """Processor seconds and peak resident MB of a piece of work in a fresh process, imports left out."""
    script = _CHILD.format(imports=imports, work=work)
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=True, capture_output=True, text=True)
    seconds, megabytes = done.stdout.split()
    return float(seconds), float(megabytes)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=_MEGABYTES, help="megabytes of each log")
    parser.add_argument("--runs", type=int, default=_RUNS)
    parser.add_argument("--only", choices=_FORMATS)
    options = parser.parse_args()
    megabytes = options.size
    print("| log | size | plain | ours | ratio | of a line | peak memory |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, make, plain in (
            ("console.log", make_text, _PLAIN_TEXT),
            ("train.jsonl", make_json, _PLAIN_JSON),
            ("short.log", make_short, _PLAIN_TEXT),
            ("bars.log", make_bars, _PLAIN_TEXT),
        ):
            if options.only not in (None, name):
                continue
            path = Path(folder, name)
            make(path, megabytes)
            pairs = [(measured(path, plain), measured(path, _OURS, _IMPORTS)) for _ in range(options.runs)]
            ratio = statistics.median(ours[0] / theirs[0] for theirs, ours in pairs)
            theirs, ours = (statistics.median(pair[side][0] for pair in pairs) for side in (0, 1))
            peak = max(pair[1][1] for pair in pairs)
            lines = len(path.read_text().splitlines())
            figures = f"{theirs:.2f} s | {ours:.2f} s | {ratio:.2f} | {ours / lines * 1e6:.2f} µs | {peak:.0f} MB"
            print(f"| {name} | {path.stat().st_size / 1e6:.0f} MB | {figures} |")
            path.unlink()


if __name__ == "__main__":
    main()
