"""What each rule, and each of its special cases, is worth: verdicts on runs whose truth is known, without it.

    python benchmarks/ablate.py --cache CACHE --faults OUT --public FOLDER
    python benchmarks/ablate.py CACHE [--rule CODE] [--case CODE:name] [--split tune]

The first makes the cache: what was read of each generated run in OUT (of benchmarks/faults, with its checkpoint) and of
each public curve in FOLDER (of benchmarks/public_runs.py). The second judges that by today's rules, all of them, and
then without one rule or case at a time; it prints which verdicts change, by the runs' labels. Without --rule and --case
it takes every rule and every case in turn.

A cache holds what today's readers give, statistics of tensors included, and nothing that rules have worked out of it.
Make it again when readers or the classes of the evidence have changed. It is a pickle: read none that is not your own.
"""

from __future__ import annotations

import csv
import json
import pickle
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from tracker_health import Config
from tracker_health.evidence import Evidence
from tracker_health.judge.engine import configured_probes, diagnose
from tracker_health.report.result import Report
from tracker_health.rules.probe import WITHOUT, Probe, special_cases_of
from tracker_health.rules.registry import BUILT_IN
from tracker_health.runs.judging import judge_run
from tracker_health.runs.lookup import open_run

PUBLIC = "public"
_SUFFIX = ".pickle"
_CHUNK = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Cached:
    """A run of the cache: its label ("healthy", or what is wrong with it), and what was read of it."""

    label: str
    evidence: Evidence


class Change(NamedTuple):
    """What taking something out does to a run's verdict. ``without``: a rule's code, or ``CODE:name`` of a case."""

    without: str
    split: str
    label: str
    before: str
    after: str


class Judged(NamedTuple):
    """What came of a run: its changes, and what could have made one: rules with a result, cases that applied."""

    changes: tuple[Change, ...]
    applied: frozenset[str]


# The cache


def bare(value: Any) -> Any:
    """The same without what is worked out of it and kept beside its fields, which belongs to the rules' own code."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: bare(getattr(value, one.name)) for one in fields(value) if one.init})
    return tuple(map(bare, value)) if type(value) is tuple else value


def keep(cache: Path, split: str, name: str, cached: Cached) -> None:
    """Put a run into the cache."""
    path = cache / split / f"{name}{_SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps((cached.label, bare(cached.evidence))))


def kept(path: Path) -> Cached:
    """A run of the cache."""
    return Cached(*pickle.loads(path.read_bytes()))


def cache_generated(cache: Path, out: Path, workers: int = 1) -> int:
    """Put the generated runs that are there into the cache; how many. Labels are those of the score."""
    sys.path.insert(0, str(Path(__file__).parent / "faults"))
    from oracle import labels

    truths = {path.stem: json.loads(path.read_text()) for path in sorted((out / "truth").glob("*.json"))}
    found = labels(truths)
    todo = [(name, str(truth["split"]), _label(truth, found[name])) for name, truth in truths.items()]
    return sum(_spread(partial(_cache_run, cache, out / "runs"), todo, workers))


def _cache_run(cache: Path, runs: Path, run: tuple[str, str, str]) -> int:
    name, split, label = run
    with closing(open_run(runs / name)) as opened:
        _, evidence = judge_run(opened, Config())
    keep(cache, split, name, Cached(label, evidence))
    return 1


def _label(truth: dict[str, Any], found: Any) -> str:
    fault = str(truth["fault"])
    if fault == "none":
        return "healthy" if found.certified else "(not certified)"
    return fault if truth["structural"] or found.manifested else f"({fault}, not manifested)"


def cache_public(cache: Path, folder: Path) -> int:
    """Put the public curves into the cache; how many. Labels that the expert was not sure of are in parentheses."""
    from public_runs import evidence_of

    with (folder / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    groups: set[str] = set()
    for row in rows:
        group = row["same_run_group"]
        sure = row["confidence"] == "high" and group not in groups
        groups |= {group} if sure and group else set()
        curve = json.loads((folder / "curves" / f"{row['id']}.json").read_text())
        keep(cache, PUBLIC, row["id"], Cached(row["label"] if sure else f"({row['label']})", evidence_of(curve)))
    return len(rows)


# Judging without something


class _Asked(frozenset[str]):
    """Switches nothing off, and notes which special cases apply: a rule asks of no other."""

    def __init__(self) -> None:
        self.cases: set[str] = set()

    def __contains__(self, case: object) -> bool:
        self.cases.add(str(case))
        return False


@contextmanager
def without(cases: frozenset[str]) -> Iterator[None]:
    """Judge within this as if there were no such special cases."""
    token = WITHOUT.set(cases)
    try:
        yield
    finally:
        WITHOUT.reset(token)


def judge(path: Path, wanted: frozenset[str], config: Config | None = None) -> Judged:
    """What of the wanted, when it is taken out, changes the verdict on a run of the cache."""
    settings, cached, split, asked = config or Config(), kept(path), path.parent.name, _Asked()
    with without(asked):
        report = diagnose(cached.evidence, settings)
    matters = {one.code for one in report.results} | _broken(report) | asked.cases
    changes = []
    for one in sorted(wanted & matters):
        if ":" in one:
            after = _without_case(one, cached.evidence, settings, report)
        else:
            after = _without_rule(one, cached.evidence, settings, report)
        if after != report.verdict:
            changes.append(Change(one, split, cached.label, str(report.verdict), after))
    return Judged(tuple(changes), wanted & matters)


def _without_rule(code: str, evidence: Evidence, config: Config, report: Report) -> str:
    """The verdict without a rule. One that passes is missed only where nothing else shows that training worked."""
    passed = code not in {one.code for one in report.findings} | _broken(report)
    vouching = {one.code for one in report.results if one.votes} & {one.code for one in BUILT_IN if one.vouches}
    if passed and vouching != {code}:
        return str(report.verdict)
    return str(diagnose(evidence, replace(config, ignore=config.ignore | {code})).verdict)


def _broken(report: Report) -> set[str]:
    return {one.code for one in report.errors if one.code is not None}


def _without_case(case: str, evidence: Evidence, config: Config, report: Report) -> str:
    """The verdict without a special case; where its rule says the same as with it, the other rules are not asked."""
    rule = _rule(case.partition(":")[0], config)
    with without(frozenset({case})):
        alone = diagnose(evidence, config, probes=(rule,))
        if _said(alone, rule) == _said(report, rule):
            return str(report.verdict)
        return str(diagnose(evidence, config).verdict)


def _rule(code: str, config: Config) -> Probe:
    return next(one for one in configured_probes(config) if one.code == code)


def _said(report: Report, rule: Probe) -> str:
    """A rule's verdict in a report; none where it found nothing to judge."""
    return next((str(one.verdict) for one in report.results if one.code == rule.code), "")


def known() -> frozenset[str]:
    """Everything that can be taken out."""
    cases = {f"{rule.code}:{name}" for rule in BUILT_IN for name in special_cases_of(rule)}
    return frozenset({rule.code for rule in BUILT_IN} | cases)


def ablated(paths: Iterable[Path], wanted: frozenset[str], workers: int = 1) -> Iterator[Judged]:
    """What comes of each run."""
    return _spread(partial(judge, wanted=wanted), paths, workers)


def _spread(work: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """What ``work`` gives for each item, in order; done by so many processes."""
    if workers <= 1:
        yield from map(work, items)
        return
    with ProcessPoolExecutor(workers) as executor:
        yield from executor.map(work, items, chunksize=_CHUNK)


def told(found: Iterable[Judged], wanted: Iterable[str]) -> Iterator[str]:
    """The changes in lines, by what was taken out: of how many verdicts that it may have to do with how many change."""
    applied: Counter[str] = Counter()
    changes: dict[str, Counter[Change]] = defaultdict(Counter)
    for one in found:
        applied.update(one.applied)
        for change in one.changes:
            changes[change.without][change] += 1
    names = {rule.code: rule.name for rule in BUILT_IN}
    for taken in sorted(wanted):
        code, _, case = taken.partition(":")
        what = f"without {code} {names[code]}" + (f", special case {case}" if case else "")
        yield f"{what}: {changes[taken].total()} of {applied[taken]} verdicts change"
        for change, runs in sorted(changes[taken].items(), key=lambda item: (item[0].split, -item[1], item[0])):
            yield f"  {change.split:<9} {change.label:<36} {change.before} -> {change.after}  {runs}"


@click.command()
@click.argument("read", metavar="CACHE", required=False, type=click.Path(path_type=Path, exists=True))
@click.option("--cache", metavar="CACHE", type=click.Path(path_type=Path), help="Make this cache.")
@click.option("--faults", metavar="OUT", type=click.Path(path_type=Path, exists=True), help="Generated runs for it.")
@click.option("--public", metavar="FOLDER", type=click.Path(path_type=Path, exists=True), help="Public curves for it.")
@click.option("--rule", "rules", metavar="CODE", multiple=True, help="Take out this rule alone; may be repeated.")
@click.option("--case", "cases", metavar="CODE:name", multiple=True, help="Take out this case alone; may be repeated.")
@click.option("--split", "splits", multiple=True, metavar="SPLIT", help="Only of tune, validate or public.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Processes.")
def main(
    *,
    read: Path | None,
    cache: Path | None,
    faults: Path | None,
    public: Path | None,
    rules: tuple[str, ...],
    cases: tuple[str, ...],
    splits: tuple[str, ...],
    workers: int,
) -> None:
    """Make a cache of evidence, or judge one without a rule or a special case."""
    if cache is not None and read is None:
        runs = cache_generated(cache, faults, workers) if faults else 0
        curves = cache_public(cache, public) if public else 0
        click.echo(f"{runs} generated runs and {curves} public curves are in {cache}")
        return
    if read is None or cache is not None:
        raise click.UsageError("name a cache to read, or one to make with --cache")
    wanted = frozenset((*rules, *cases)) or known()
    if unknown := wanted - known():
        raise click.UsageError(f"there is no such rule or special case: {', '.join(sorted(unknown))}")
    paths = sorted(path for path in read.glob(f"*/*{_SUFFIX}") if not splits or path.parent.name in splits)
    click.echo(f"{len(paths)} runs")
    for line in told(ablated(paths, wanted, workers), wanted):
        click.echo(line)


if __name__ == "__main__":
    main()
