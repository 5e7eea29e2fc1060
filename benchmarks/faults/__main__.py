"""python benchmarks/faults generate|score: how right the verdicts are, on runs whose truth is known."""

from __future__ import annotations

import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parent))

OUT = Path(__file__).parent / "out"


@click.group()
def main() -> None:
    """Train runs with and without faults, and score verdicts on them."""


@main.command()
@click.option("--size", type=click.Choice(["small", "full"]), default="small", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=OUT, show_default=True)
@click.option("--workers", type=int, help="Processes; by default one a core.")
def generate(size: str, out: Path, workers: int | None) -> None:
    """Train the runs that are not there yet. Stopped, it goes on where it was."""
    from generate import generate as run

    run(size, out, workers)


@main.command()
@click.option("--size", type=click.Choice(["small", "full"]), default="small", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=OUT, show_default=True)
@click.option("--split", type=click.Choice(["tune", "validate"]), help="One of the two alone.")
@click.option("--misses", is_flag=True, help="List every false alarm, miss and wrong name of ours.")
@click.option("--tools", default="default,dlm,runmedic", show_default=True)
@click.option("--write", is_flag=True, help="Put the scores into docs/accuracy-tables.md and the rules' pages.")
def score(size: str, out: Path, split: str | None, misses: bool, tools: str, write: bool) -> None:
    """Print recall, symptoms named, and false alarms, with the checkpoint and without it."""
    import report
    from score import disagreements, table
    from score import score as measure

    scores = [measure(size, out, one, tools.split(",")) for one in ("tune", "validate") if split in (None, one)]
    for one in scores:
        print(f"\n{one.split}: {one.summary()}\n")
        print("\n".join(table(one)))
        if misses:
            print("\n".join(disagreements(one)))
    if write:
        report.write(scores)


@main.command()
@click.option("--size", type=click.Choice(["small", "full"]), default="full", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=OUT, show_default=True)
@click.option("--split", type=click.Choice(["tune", "validate"]), default="tune", show_default=True)
@click.option("--write", is_flag=True, help="Measure both splits, and renew docs/baseline.md and the page of CMP001.")
def against(size: str, out: Path, split: str, write: bool) -> None:
    """Print, per fault, how many runs are flagged alone, and against a baseline of eight healthy ones of the task."""
    import report
    from against import against as judged

    found = {one: judged(size, out, one) for one in (("validate", "tune") if write else (split,))}
    for one, faults in found.items():
        print(f"{one}:")
        for fault, tallies in sorted(faults.items()):
            print(f"{fault:24} " + "  ".join(f"{name} {tally}" for name, tally in tallies.items()))
    if write:
        report.write_against(found["validate"], found["tune"])


@main.command()
@click.option("--size", type=click.Choice(["small", "full"]), default="full", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=OUT, show_default=True)
@click.option("--split", type=click.Choice(["tune", "validate"]), help="One of the two alone.")
@click.option("--workers", type=int, default=2, show_default=True)
@click.option("--public", type=click.Path(path_type=Path, exists=True), help="A folder of public_runs.py, too.")
@click.option("--write", is_flag=True, help="Write down how many healthy runs of the validation tasks were stopped.")
def prefixes(size: str, out: Path, split: str | None, workers: int, public: Path | None, write: bool) -> None:
    """Print what LiveHealth would have stopped of every run, and what Optuna's MedianPruner."""
    import prefixes as module

    print(module.HEAD)
    for one in ("tune", "validate"):
        if split in (None, one):
            found = module.replay(size, out, one, workers)
            for line in module.lines(f"{one}: LiveHealth", found):
                print(line, flush=True)
            if write and one == "validate":
                module.write_false_stops(found)
            for line in module.lines(f"{one}: MedianPruner", module.medians(size, out, one)):
                print(line, flush=True)
    if public is not None:
        print("\n".join(module.lines("public curves: LiveHealth", module.curves(public))))


@main.command()
@click.option("--size", type=click.Choice(["small", "full"]), default="full", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=OUT, show_default=True)
def bound(size: str, out: Path) -> None:
    """Print what a classifier finds that is fitted to all that the rules measure; after ``score``."""
    from bound import bound as lines

    for place, log in (("runs", "as logged"), ("told", "all logged")):
        for line in lines(size, out, place):
            print(f"{log:10} {line}")


@main.command()
@click.option("--out", type=click.Path(path_type=Path), default=OUT, show_default=True)
@click.option("--split", type=click.Choice(["tune", "validate"]), default="tune", show_default=True)
@click.option("--place", type=click.Choice(["runs", "told"]), default="runs", show_default=True)
@click.option("--collect", is_flag=True, help="Write down what the tuning runs show, for the counts.")
@click.option("--count", is_flag=True, help="Count the signs again, from what was written down; reads no run.")
@click.option("--without-judged", is_flag=True, help="As if no weight was a judgement.")
def causes(out: Path, split: str, place: str, collect: bool, count: bool, without_judged: bool) -> None:
    """Print how often the right cause comes first, and how often each certainty is right."""
    import causes as module

    if count:
        print(f"written: {module.write_counts()}")
        return
    for cause in module.CAUSES if without_judged else ():
        object.__setattr__(cause, "judged", dict.fromkeys(cause.judged, 0.0))
    found = module.shown(out, split, place)
    for line in module.by_fault(found):
        print(line)
    print(f"{split}: {len(found)} flagged faulty runs")
    for word, share in module.shares(found).items():
        print(f"{word:10} {share:.3f}")
    for sure, runs, hits, least in module.calibration(found):
        print(f"{sure:10} {hits} of {runs} right, at least {least:.3f}")
    if collect and split == "tune":
        print(f"written: {module.write_findings(found)}")


@main.command()
@click.option("--out", type=click.Path(path_type=Path), default=OUT, show_default=True)
@click.option("--split", type=click.Choice(["tune", "validate"]), default="tune", show_default=True)
@click.option("--margins", is_flag=True, help="Train nothing: count what there is.")
@click.option("--compared", is_flag=True, help="Train nothing: print which healthy pairs part.")
def twins(out: Path, split: str, margins: bool, compared: bool) -> None:
    """Train runs again by another seed, and print by which factors healthy pairs differ."""
    import twins as module

    if compared:
        found = module.parted(out, split)
        for pair, said in found:
            print(f"{pair.original} {pair.twin}: {said or 'nothing clearly parts'}")
        print(f"{split}: of {len(found)} healthy pairs {sum(not said for _, said in found)} do not part")
        return
    for number, pair in enumerate(() if margins else module.train(out), 1):
        print(f"{number} {pair.original} {pair.twin} {pair.split} {'healthy' if pair.healthy else '-'}", flush=True)
    print("\n".join(module.table(module.spreads(out, split))))


@main.command()
@click.option("--out", type=click.Path(path_type=Path), default=OUT, show_default=True)
@click.option("--split", type=click.Choice(["tune", "validate"]), default="tune", show_default=True)
@click.option("--score", "scores", is_flag=True, help="Train nothing: judge what there is.")
@click.option("--misses", is_flag=True, help="With --score: list every wrong answer.")
@click.option("--write", is_flag=True, help="With --score: put the table into docs/accuracy-tables.md.")
@click.option("--workers", type=int, default=1, show_default=True)
def repairs(out: Path, split: str, scores: bool, misses: bool, write: bool, workers: int) -> None:
    """Follow the advice on faulty runs, and train them again. Stopped, it goes on where it was."""
    import repairs as module

    if scores:
        _print_repairs(out, workers, misses=misses, write=write)
        return
    for number, line in enumerate(module.follow(out, split), 1):
        became = "still faulty" if line["still_faulty"] else "repaired"
        print(f"{number} {line['fault']} {line['cause']} {line['kind']} {line['seed']} {became}", flush=True)


def _print_repairs(out: Path, workers: int, *, misses: bool, write: bool) -> None:
    import repairs_score as module
    import report

    pairs = module.answered(out, workers)
    lines = [*module.table(pairs), "", *(f"- {line}" for line in module.errors(pairs))]
    print("\n".join(lines))
    print("\n".join(("", "Advice that is known to repair fewer than half:", *module.weak(pairs))))
    if misses:
        print("\n".join(module.disagreements(pairs)))
    if write:
        report.write_repairs(lines)


@main.command()
@click.option("--split", type=click.Choice(["tune", "validate"]), default="tune", show_default=True)
@click.option("--seeds", type=int, default=2, show_default=True, help="So many processes of each kind.")
def consoles(split: str, seeds: int) -> None:
    """Print how often RUN004 takes the end of a console log for what it is; runs a process for each."""
    from consoles import consoles as run

    found = list(run(split, seeds))
    for healthy in (False, True):
        some = [one for one in found if one.healthy is healthy]
        print(f"{'healthy' if healthy else 'crashed':8} {sum(one.right for one in some)} of {len(some)} right")
    for one in found:
        if not one.right:
            print(f"  {one.style}: {one.end}: {one.verdict}")


if __name__ == "__main__":
    main()
