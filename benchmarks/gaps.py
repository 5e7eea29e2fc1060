"""How often a healthy run would be said to stand still, by the times of its points; and how soon one that does.

    python benchmarks/gaps.py train build/gaps --minutes 30       # small trainings that log event files
    python benchmarks/gaps.py score build/gaps ../shared/real_runs/raw

``score`` walks through each run's points as they came. A gap above the limit that all earlier points give is a false
alarm, and so is the time from the last point to the recorded end. As logged the floor covers most of what short runs
do. So each log is walked through again, stretched to a usual gap of 10 s and of 60 s: the proportions of evaluations
and checkpoints to steps stay as they are. What came after the last point is not stretched: a model is saved once.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from tracker_health.config import Config
from tracker_health.evidence import Request
from tracker_health.evidence.rhythm import Pace, Rhythm, rhythm_of
from tracker_health.rules.run.stands_still import StandsStill
from tracker_health.runs.lookup import open_run

STRETCHES = (None, 10.0, 60.0)
"""To which usual gap in seconds a log is stretched; None: as logged."""
FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0)
FLOORS = (300.0, 600.0, 900.0, 1200.0, 1800.0)
PASSED = 1.0  # false alarms in 1,000 hours of logged time
_LOOKED_AT = 100  # of the longest gaps of a log: no other is above a limit
_FEWEST = 3  # times that a run must have to be walked through
_KINDS = ("steps", "epochs", "evaluates", "saves", "lazy", "all")


@dataclass(frozen=True, kw_only=True)
class Log:
    """The times of a healthy run's points, and when it ended where that is recorded."""

    source: str
    name: str
    rhythm: Rhythm
    ended: float | None

    def stretched(self, usual: float | None) -> tuple[np.ndarray, float]:
        """Gaps in seconds in the order of time, and what came after the last point."""
        factor = 1.0 if usual is None else usual / self.rhythm.usual
        tail = 0.0 if self.ended is None else max(0.0, self.ended - self.rhythm.last)
        return np.diff(self.rhythm.times) * factor, tail


def train(folder: Path, number: int, seconds: float) -> None:
    """One small training, which logs steps, evaluations and checkpoints in its own way for so many seconds."""
    draw = np.random.default_rng(number)
    kind = _KINDS[number % len(_KINDS)]
    width, batch = int(draw.choice([32, 128, 512])), int(draw.choice([16, 64, 256]))
    every, epoch = int(draw.choice([1, 5, 20])), int(draw.choice([50, 200, 800]))
    held_out = torch.randn(int(draw.choice([2_000, 20_000, 100_000])), 32)
    model = nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8))
    optimizer, teacher = torch.optim.AdamW(model.parameters(), lr=1e-3), nn.Linear(32, 8)
    measure = nn.MSELoss()
    place = folder / f"{kind}-{number:03d}"
    step, end = 0, time.monotonic() + seconds
    with SummaryWriter(str(place), flush_secs=5) as writer:
        waiting: list[tuple[int, float]] = []
        while time.monotonic() < end:
            inputs = torch.randn(batch, 32)
            loss = measure(model(inputs), teacher(inputs).detach())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if kind != "epochs" and step % every == 0:
                waiting.append((step, float(loss)))
            if kind != "lazy" or len(waiting) >= 50:
                for at, value in waiting:
                    writer.add_scalar("loss", value, at)
                waiting.clear()
            if step % epoch == 0:
                if kind == "epochs":
                    writer.add_scalar("loss", float(loss), step)
                if kind in ("evaluates", "epochs", "all"):
                    with torch.no_grad():
                        parts = [measure(model(part), teacher(part)) for part in held_out.split(500)]
                    writer.add_scalar("val_loss", float(torch.stack(parts).mean()), step)
                if kind in ("saves", "all"):
                    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, place / "last.pt")


def logs(folder: Path) -> Iterator[Log]:
    """The runs below a folder, as a tool would read them: folders of event files, and of MLflow's."""
    request = Request(roles=Config().role_plan(every=True), parts=frozenset())
    found = {path.parent for path in folder.rglob("*tfevents*")} | {path.parent for path in folder.rglob("metrics")}
    for place in sorted(found):
        evidence = open_run(str(place)).read(request)
        rhythm = rhythm_of(evidence.series)
        if rhythm is not None and len(rhythm.times) >= _FEWEST:
            source = place.name.partition("__")[0].removeprefix("mlflow-").removeprefix("tfevents-")
            source = source if "__" in place.name else f"own, {place.name.partition('-')[0]}"
            yield Log(source=source, name=place.name, rhythm=rhythm, ended=evidence.info.ended)


def limits(gaps: np.ndarray, pace: Pace) -> Iterator[tuple[float, float]]:
    """Before each of the longest gaps, and after the last point: the gap to come (-1 at the end), and the limit that
    the points before give.
    """
    times = np.concatenate(([1.5e9], 1.5e9 + np.cumsum(gaps)))
    longest = np.argsort(gaps)[-_LOOKED_AT:] + 1
    for until in sorted({*map(int, longest[gaps[longest - 1] > pace.floor]), len(times)} - {1}):
        limit = Rhythm(times[:until]).limit(pace)
        if limit is not None:
            yield (float(gaps[until - 1]) if until - 1 < len(gaps) else -1.0), limit


def alarms(log: Log, usual: float | None, pace: Pace) -> tuple[int, float, float]:
    """False alarms in one log, its hours, and its limit at the end in seconds (NaN without one)."""
    gaps, tail = log.stretched(usual)
    false, last = 0, float("nan")
    for gap, limit in limits(gaps, pace):
        false += (tail if gap < 0 else gap) > limit
        last = limit
    return false, float(gaps.sum() + tail) / 3600, last


def score(found: list[Log], pace: Pace) -> None:
    """Print the table by source, the choice of the factor, and that choice with each source left out."""
    for usual in STRETCHES:
        print(f"\n{'as logged' if usual is None else f'stretched to a usual gap of {usual:g} s'}")
        rows: Mapping[str, list[tuple[int, float, float, float]]] = defaultdict(list)
        for log in found:
            own = log.rhythm.usual if usual is None else usual
            rows[log.source].append((*alarms(log, usual, pace), own))
        for source, every in rows.items():
            said = [(limit / 60, limit / own) for _, _, limit, own in every if np.isfinite(limit)]
            minutes, gaps = np.median(said, axis=0) if said else (np.nan, np.nan)
            false, hours = sum(one[0] for one in every), sum(one[1] for one in every)
            print(f"  {source:24} {len(every):3} runs {hours:9.2f} h  {false} false  "
                  f"a hang said after {minutes:6.1f} min, {gaps:7.1f} usual gaps")  # fmt: skip
        false, hours = (sum(one[at] for every in rows.values() for one in every) for at in (0, 1))
        print(f"  {'all':24} {len(found):3} runs {hours:9.2f} h  {false} false, {1000 * false / hours:.2f} in 1,000 h")
    bare = replace(pace, floor=0.0)
    print(
        "\nwithout the floor, by factor (once: half of it, at least 1): false alarms in 1,000 h of the stretched logs"
    )
    rates = {factor: rates_of(found, at_factor(bare, factor)) for factor in FACTORS}
    for factor, by_source in rates.items():
        print(f"  {factor:4g}: {overall(by_source):8.2f}  {'<- as set' if pace.factor == factor else ''}")
    floors = {floor: overall(rates_of(found, replace(pace, floor=floor))) for floor in FLOORS}
    print("by floor: " + ", ".join(f"{floor / 60:g} min {rate:.2f}" for floor, rate in floors.items()))
    print("\nthe smallest factor that keeps to the rate, with a source left out, and its rate there (with the floor)")
    floored = {factor: rates_of(found, at_factor(pace, factor)) for factor in FACTORS}
    for source in sorted({log.source for log in found}):
        others = {factor: {key: one for key, one in each.items() if key != source} for factor, each in floored.items()}
        chosen = next((factor for factor in FACTORS if overall(others[factor]) <= PASSED), FACTORS[-1])
        print(f"  {source:24} {chosen:g}: {overall({source: floored[chosen][source]}):.2f}")


def at_factor(pace: Pace, factor: float) -> Pace:
    """A pace with another factor, and the one for the longest gap in proportion."""
    return replace(pace, factor=factor, once=max(1.0, factor / 2))


def rates_of(found: list[Log], pace: Pace) -> dict[str, tuple[int, float]]:
    """By source the false alarms and hours of its logs, stretched in both ways."""
    by_source: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for log in found:
        for usual in STRETCHES[1:]:
            false, hours, _ = alarms(log, usual, pace)
            before = by_source[log.source]
            by_source[log.source] = before[0] + false, before[1] + hours
    return dict(by_source)


def overall(by_source: Mapping[str, tuple[int, float]]) -> float:
    """False alarms in 1,000 hours."""
    false, hours = (sum(one[at] for one in by_source.values()) for at in (0, 1))
    return 1000 * false / hours if hours else 0.0


def main() -> None:
    """Train, or score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("train", "score"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--minutes", type=float, default=30.0)
    given = parser.parse_args()
    if given.what == "train":
        torch.set_num_threads(1)
        for number in range(2 * len(_KINDS)):
            train(given.folders[0], number, 60 * given.minutes / (2 * len(_KINDS)))
        return
    score([log for folder in given.folders for log in logs(folder)], StandsStill().pace)


if __name__ == "__main__":
    main()
