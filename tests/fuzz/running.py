"""Attempts, one after the other: a spoilt file, its reader, and what came of it. The same seed gives the same files."""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tracker_health.errors import RunError

from .mutations import mutated
from .targets import TARGETS, Target, files_of

HANG_SECONDS = 10.0  # of processor time
MEMORY = 256 * 2**20  # above what it takes to read the files that are in order
_MARGIN = 64 * 2**20


@dataclass
class Outcome:
    """What came of a target's attempts. ``foreign``: by what was raised, how often, and the first attempt of each."""

    target: str
    attempts: int = 0
    read: int = 0
    refused: int = 0
    foreign: dict[str, list[int]] = field(default_factory=dict)
    hangs: list[int] = field(default_factory=list)
    slowest: float = 0.0
    peak: int = 0

    def add(self, other: Outcome) -> None:
        """Count another part of the same attempts in."""
        self.attempts += other.attempts
        self.read += other.read
        self.refused += other.refused
        for name, (first, count) in other.foreign.items():
            known = self.foreign.setdefault(name, [first, 0])
            known[1] += count
        self.hangs += other.hangs
        self.slowest = max(self.slowest, other.slowest)
        self.peak = max(self.peak, other.peak)


class _Hang(BaseException):
    """An attempt took too long; no reader catches this."""


def target_named(name: str) -> Target:
    """The target of this name."""
    return next(one for one in TARGETS if one.name == name)


def spoilt(target: Target, contents: list[bytes], seed: int, attempt: int) -> tuple[int, bytes]:
    """Which of the files is spoilt in an attempt, and what it is then."""
    rng = random.Random(f"{seed}/{target.name}/{attempt}")
    place = rng.randrange(len(contents))
    content = contents[place]
    if target.framing is None or rng.random() < 0.3:
        return place, mutated(content, contents, rng)
    records = target.framing.split(content)
    others = [record for one in contents for record in target.framing.split(one)]
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(records))
        match rng.randrange(5):
            case 0 if len(records) > 1:
                del records[at]
            case 1:
                records.insert(at, rng.choice(others))
            case _:
                records[at] = mutated(records[at], others, rng)
    return place, target.framing.join(records, content)


def run(target: Target, seeds: Path, scratch: Path, *, seed: int, first: int, last: int, progress: Path) -> Outcome:
    """The attempts from ``first`` up to ``last`` of a target."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(seeds / target.seeds, scratch)
    files = files_of(target, scratch)
    contents = [path.read_bytes() for path in files]
    for path in files:
        target.read(path)  # what is in order is read
        _restore(seeds / target.seeds, scratch)
    start = _resident()
    _limit_memory()
    outcome = Outcome(target.name)
    for attempt in range(first, last):
        progress.write_text(str(attempt))
        place, content = spoilt(target, contents, seed, attempt)
        files[place].write_bytes(content)
        _attempt(target, files[place], attempt, outcome)
        _restore(seeds / target.seeds, scratch, files[place])
    outcome.peak = max(0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - start)
    return outcome


def _attempt(target: Target, path: Path, attempt: int, outcome: Outcome) -> None:
    outcome.attempts += 1
    start = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG_SECONDS)
    try:
        target.read(path)
        outcome.read += 1
    except (RunError, OSError) as error:
        outcome.refused += 1
        str(error)
    except _Hang:
        outcome.hangs.append(attempt)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        outcome.foreign.setdefault(_named(error), [attempt, 0])[1] += 1
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    outcome.slowest = max(outcome.slowest, time.process_time() - start)


def _named(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "tracker_health" in frame.filename] or list(frames)
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    return f"{type(error).__name__} at {place}: {str(error)[:100]}"


def _restore(seeds: Path, scratch: Path, spoilt_file: Path | None = None) -> None:
    """Put the folder back as it was."""
    if spoilt_file is not None and spoilt_file.parent.exists():
        spoilt_file.write_bytes((seeds / spoilt_file.relative_to(scratch)).read_bytes())
    for path in seeds.rglob("*"):
        place = scratch / path.relative_to(seeds)
        if not place.exists():  # clearing takes it away
            shutil.copytree(path, place) if path.is_dir() else shutil.copy(path, place)


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _limit_memory() -> None:
    statm = Path("/proc/self/statm")
    if statm.exists():
        addresses = int(statm.read_text().split()[0]) * resource.getpagesize() + MEMORY + _MARGIN
        resource.setrlimit(resource.RLIMIT_AS, (addresses, addresses))


def _give_up(*_: Any) -> None:
    raise _Hang


def main() -> None:
    """The attempts that a parent asks for, as one line of JSON."""
    asked = json.loads(sys.argv[1])
    signal.signal(signal.SIGVTALRM, _give_up)
    paths = {name: Path(asked.pop(name)) for name in ("seeds", "scratch", "progress")}
    print(json.dumps(asdict(run(target_named(asked.pop("target")), **paths, **asked))))


if __name__ == "__main__":
    main()
