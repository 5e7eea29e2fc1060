"""Every reader on spoilt files: ``python -m tests.fuzz --attempts 20000``. Prints what came of it, by target.

Exit code 1 where something else than a refusal was raised, something hung, or too much memory was taken.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from .running import HANG_SECONDS, MEMORY, Outcome, spoilt, target_named
from .targets import TARGETS, Target, files_of

ROOT = Path(__file__).parents[2]
SILENCE_SECONDS = (
    12 * HANG_SECONDS
)  # without progress, after which a child is given up: not all code can be interrupted


def main() -> int:
    """Run what was asked for; the exit code."""
    options = _options()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    targets = [target_named(name) for name in options.target] or list(TARGETS)
    each = max(1, options.attempts // len(targets))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        root = Path(name)
        subprocess.run([sys.executable, "-m", "tests.fuzz.seeds", str(root / "seeds")], cwd=ROOT, check=True)
        if options.show is not None:
            return _show(targets[0], root / "seeds", seed, options.show, options.into)
        start = time.monotonic()
        with ThreadPoolExecutor(options.workers) as pool:
            outcomes = list(pool.map(lambda one: _all_attempts(one, root, seed, each), targets))
    print(_table(outcomes))
    print(f"seed {seed}, {time.monotonic() - start:.0f} s")
    found = [one for one in outcomes if one.foreign or one.hangs or one.peak > MEMORY]
    for one in found:
        for what, (first, count) in one.foreign.items():
            print(
                f"{one.target}: {count} times {what}\n  python -m tests.fuzz --seed {seed} --target '{one.target}' --show {first}"
            )
        for attempt in one.hangs:
            print(f"{one.target}: hangs\n  python -m tests.fuzz --seed {seed} --target '{one.target}' --show {attempt}")
    return int(bool(found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--attempts", type=int, default=20_000, help="over all targets")
    parser.add_argument("--seed", type=int, help="by default another each time")
    parser.add_argument("--target", action="append", default=[], choices=[one.name for one in TARGETS])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--show", type=int, metavar="ATTEMPT", help="write the file of one attempt of a target, and read it"
    )
    parser.add_argument("--into", type=Path, default=Path("fuzz-found"), help="where to")
    return parser.parse_args()


def _all_attempts(target: Target, root: Path, seed: int, attempts: int) -> Outcome:
    """The attempts of a target, in a child of its own; a child that hangs is replaced behind that attempt."""
    whole, first = Outcome(target.name), 0
    place = root / target.name.replace(" ", "-").replace(",", "")
    place.mkdir()
    while first < attempts:
        progress = place / "progress"
        progress.write_text(str(first))
        asked = {"target": target.name, "seed": seed, "first": first, "last": attempts, "seeds": str(root / "seeds")}
        asked |= {"scratch": str(place / "scratch"), "progress": str(progress)}
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "2"}
        command = [sys.executable, "-W", "error", "-m", "tests.fuzz.running", json.dumps(asked)]
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            done = _waited(child, progress)
        at = int(progress.read_text() or first)
        if done is not None:
            whole.add(Outcome(**json.loads(done)))
            return whole
        whole.add(replace(Outcome(target.name), attempts=at + 1 - first, hangs=[at]))
        first = at + 1
    return whole


def _waited(child: subprocess.Popen[str], progress: Path) -> str | None:
    """The line that a child prints; None where it made no progress for long, and was stopped."""
    seen, since = "", time.monotonic()
    while True:
        try:
            out, error = child.communicate(timeout=1)
        except subprocess.TimeoutExpired:
            now = progress.read_text()
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > SILENCE_SECONDS:
                child.kill()
                child.communicate()
                return None
            continue
        if child.returncode < 0:  # a crash of the interpreter's: the attempt counts as one that hung
            return None
        if child.returncode:
            raise RuntimeError(f"the seeds of {child.args} are not read:\n{error[-2000:]}")
        return out.splitlines()[-1]


def _table(outcomes: list[Outcome]) -> str:
    lines = [
        f"{'target':24} {'attempts':>8} {'read':>7} {'refused':>7} {'foreign':>7} {'hangs':>5} {'slowest':>8} {'memory':>8}"
    ]
    total = Outcome("all")
    for one in [*outcomes, total]:
        if one is not total:
            total.add(one)
        foreign = sum(count for _, count in one.foreign.values())
        lines.append(
            f"{one.target:24} {one.attempts:8} {one.read:7} {one.refused:7} {foreign:7} {len(one.hangs):5} "
            f"{one.slowest:6.2f} s {one.peak / 2**20:5.0f} MB"
        )
    return "\n".join(lines)


def _show(target: Target, seeds: Path, seed: int, attempt: int, into: Path) -> int:
    """Write a folder with the file that an attempt reads, and read it here."""
    import shutil

    shutil.copytree(seeds / target.seeds, into, dirs_exist_ok=True)
    files = files_of(target, into)
    place, content = spoilt(target, [path.read_bytes() for path in files], seed, attempt)
    files[place].write_bytes(content)
    print(f"{files[place]}: {len(content)} bytes")
    print(target.read(files[place]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
