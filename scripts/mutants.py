"""How much of the code that judges is protected by tests: ``make mutants``, or ``python scripts/mutants.py``.

One small change is made in a copy of the sources (a comparison turned round, a number moved by one, an ``and`` made an
``or``), and the tests that reach its line are run: the change should make one of them fail. Changes are drawn by a
seed, as many of each package, until the time is up. Operators: Cosmic Ray. Lines and tests: coverage.py.
"""

from __future__ import annotations

import argparse
import ast
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from coverage import CoverageData

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "mutation-score.md"
PACKAGES = ("rules", "diagnosis", "roles", "judge", "facts", "evidence")
OWNERSHIP = (
    "stores/common/ownership.py", "stores/common/record.py", "run_files/history_agreement.py",
    "stores/mlflow/acknowledgement_tags.py", "stores/mlflow/note_block.py", "stores/mlflow/writer.py",
    "words/acknowledgements.py",
)  # fmt: skip
REPORTS = ("tests/test_outcomes.py", "tests/test_headlines.py", "tests/test_headline_laws.py")
TESTS = (
    *REPORTS, "tests/rules", "tests/test_ack.py", "tests/test_acknowledged.py", "tests/test_annotations.py",
    "tests/test_causes_of_posttraining.py", "tests/test_comparing.py", "tests/test_confirmation.py",
    "tests/test_coverage.py", "tests/test_curve_parts.py", "tests/test_diagnosis.py", "tests/test_engine.py",
    "tests/test_evidence.py", "tests/test_gate.py", "tests/test_names.py", "tests/test_notices.py",
    "tests/test_parameters.py", "tests/test_result.py", "tests/test_retired.py", "tests/test_rewind.py",
    "tests/test_roles.py", "tests/test_series.py", "tests/test_steps_at_least.py", "tests/test_verdict.py",
    "tests/stores/test_annotating_mlflow.py", "tests/stores/test_whose_tags.py", "tests/stores/test_logs.py",
)  # fmt: skip
MARKS = "not slow and not trains and not hypothesis"
# A boundary moved, or the opposite; one arithmetic neighbour. The others change too much (``<`` to ``is``).
OPERATORS = re.compile(
    r"core/(?:ReplaceComparisonOperator_(?:Lt_LtE|Lt_GtE|LtE_Lt|LtE_Gt|Gt_GtE|Gt_LtE|GtE_Gt|GtE_Lt|Eq_NotEq|NotEq_Eq"
    r"|Is_IsNot|IsNot_Is)|ReplaceBinaryOperator_(?:Add_Sub|Sub_Add|Mul_Div|Div_Mul|Pow_Mul|BitOr_BitAnd|BitAnd_BitOr"
    r"|FloorDiv_Mul|Mod_Mul)|ReplaceUnaryOperator_Delete_(?:Not|USub)|AddNot|ReplaceTrueWithFalse|ReplaceFalseWithTrue"
    r"|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceBreakWithContinue|ReplaceContinueWithBreak|ExceptionReplacer"
    r"|NumberReplacer|ZeroIterationForLoop)"
)
NOT_JUDGED = {"__all__", "message", "remedy", "COUNTS"}  # names of what is said; and of counts, which are measured
OF_WORDS = {"_message", "sentence", "summary", "about", "text"}
WORKERS, MOST_SECONDS = 2, 25.0  # as measured with coverage, which takes three times as long
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["__main__", "pytest", "numpy", "hypothesis", "jsonschema"])

Span = tuple[tuple[int, int], tuple[int, int]]


class Mutant(NamedTuple):
    """``module``: relative to the package; ``occurrence``: which of the operator's places in the module."""

    package: str
    module: str
    operator: str
    occurrence: int
    line: int


class Reach(NamedTuple):
    """Which tests execute which line of each module, and how many seconds each test takes."""

    lines: dict[str, dict[int, set[str]]]
    seconds: dict[str, float]

    def of(self, mutant: Mutant, importers: dict[str, set[str]]) -> list[str]:
        """The tests of a line: of whole reports, then the others, the fastest first. What runs at import reaches
        whatever uses the module.
        """
        found = self.lines.get(mutant.module, {}).get(mutant.line, set())
        if "" in found:
            found = found | self._of_module(mutant.module, importers, depth=3)
        chosen, total = list[str](), 0.0
        known = [one for one in found if one in self.seconds]
        for test in sorted(known, key=lambda one: (not one.startswith(REPORTS), self.seconds[one], one)):
            total += self.seconds[test]
            if total > MOST_SECONDS and chosen:
                break
            chosen.append(test)
        return chosen

    def _of_module(self, module: str, importers: dict[str, set[str]], depth: int) -> set[str]:
        own = set(chain.from_iterable(self.lines.get(module, {}).values())) - {""}
        if own or not depth:
            return own
        return set(chain.from_iterable(self._of_module(one, importers, depth - 1) for one in importers[module]))


def module_files(package: Path) -> dict[str, str]:
    """The modules that are mutated, each with the package that it counts for."""
    files = {file.relative_to(package).as_posix(): name for name in PACKAGES for file in (package / name).rglob("*.py")}
    files.pop("rules/plugins.py", None)  # loads what others installed; its tests start processes
    return files | dict.fromkeys(OWNERSHIP, "ownership in stores")


def importers_of(package: Path) -> dict[str, set[str]]:
    """Which modules import each."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in package.rglob("*.py"):
        for name in re.findall(r"^from tracker_health\.(\S+) import", file.read_text(encoding="utf-8"), re.MULTILINE):
            path = name.replace(".", "/")
            target = f"{path}.py" if (package / f"{path}.py").exists() else f"{path}/__init__.py"
            found[target].add(file.relative_to(package).as_posix())
    return found


def left_out(source: str) -> Iterator[Span]:
    """Places where a change is none of judgement: annotations, decorators, words for people."""
    for node in ast.walk(ast.parse(source)):
        for part in _not_judged(node):
            if isinstance(part, ast.expr | ast.stmt):
                yield (part.lineno, part.col_offset), (part.end_lineno or 0, part.end_col_offset or 0)


def _not_judged(node: ast.AST) -> Sequence[ast.AST | None]:
    match node:
        case ast.FunctionDef(name=name, body=body, decorator_list=decorators, returns=returns):
            return [returns, *decorators, *(body if name in OF_WORDS else ())]
        case ast.ClassDef(decorator_list=decorators):
            return decorators
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if name in NOT_JUDGED:
            return [node]
        case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
            return [annotation]
        case ast.keyword(arg=str(name), value=value) if name in NOT_JUDGED:
            return [value]
        case ast.IfExp(body=ast.Constant(value=str()), orelse=ast.Constant(value=str()) | ast.JoinedStr()):
            return [node]  # "layer has" or "layers have"
        case ast.JoinedStr() | ast.Raise() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return [node]
    return ()


def mutants_of(package: Path, module: str, counted_for: str) -> list[Mutant]:
    """All changes of a module. Columns are of ASCII, as the sources are where they judge."""
    source = (package / module).read_text(encoding="utf-8")
    spans, nodes, found = list(left_out(source)), list(ast_nodes(get_ast(source))), []
    for name in filter(OPERATORS.fullmatch, operator_names()):
        operator = get_operator(name)()
        positions = [place for node in nodes for place in operator.mutation_positions(node)]
        found += [
            Mutant(counted_for, module, name, occurrence, start[0])
            for occurrence, (start, _) in enumerate(positions)
            if not any(begin <= start < end for begin, end in spans)
        ]
    return found


def sample(package: Path, only: str, seed: int) -> list[Mutant]:
    """The changes in the order in which they are tried: drawn, and one of each package in turn."""
    by_package: dict[str, list[Mutant]] = defaultdict(list)
    for module, name in sorted(module_files(package).items()):
        if only in module:
            by_package[name] += mutants_of(package, module, name)
    draw = random.Random(seed)  # noqa: S311  no secret
    for found in by_package.values():
        draw.shuffle(found)
    return [one for turn in zip_longest(*by_package.values()) for one in turn if one is not None]


def reach(copy: Path, folder: Path) -> Reach:
    """Run the tests on the unchanged sources.

    Raises:
        SystemExit: a test fails.
    """
    setup, package = folder / "coveragerc", copy / "tracker_health"
    setup.write_text(f"[run]\nsource = {package}\n", encoding="utf-8")
    paths = [name for name in TESTS if (ROOT / name).exists()]
    asked = [f"--cov={package}", f"--cov-config={setup}", "--cov-context=test", "--cov-report=", "--durations=0", "-vv"]
    command = [sys.executable, "-m", "pytest", "-m", MARKS, "-n", str(WORKERS), *asked, *paths]
    environment = {**os.environ, "PYTHONPATH": str(copy), "COVERAGE_FILE": str(folder / "coverage")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    said = done.stdout
    if done.returncode:
        sys.exit(f"{said[-5000:]}\nthe tests fail on the sources as they are")
    seconds: dict[str, float] = defaultdict(float)
    for duration, test in re.findall(r"^(\d+\.\d+)s (?:call|setup|teardown) +(\S.*?) *$", said, re.MULTILINE):
        seconds[test] += float(duration)
    data = CoverageData(str(folder / "coverage"))
    data.read()
    lines = {
        module: {
            line: {context.partition("|")[0] for context in contexts}
            for line, contexts in data.contexts_by_lineno(str(package / module)).items()
        }
        for module in module_files(package)
    }
    return Reach(lines, seconds)


def is_killed(copy: Path, mutant: Mutant, tests: list[str], seconds: float) -> bool:
    """Whether one of these tests fails, or never ends, once the change is made in a copy of the sources."""
    file = copy / "tracker_health" / mutant.module
    source = file.read_text(encoding="utf-8")
    file.write_text(changed(source, mutant), encoding="utf-8")
    passed = pass_on(copy, tests, seconds)
    file.write_text(source, encoding="utf-8")
    return not passed


def pass_on(copy: Path, tests: list[str], seconds: float) -> bool:
    """Whether all of these tests pass on a copy of the sources, in some times the seconds that they take."""
    listed = copy.with_suffix(".tests")
    listed.write_text("\n".join(tests), encoding="utf-8")
    options = ["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", f"@{listed}"]
    process = FORKS.Process(target=_test, args=(str(copy), options))
    process.start()
    process.join(20 + 5 * seconds)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode == 0


def _test(copy: str, arguments: list[str]) -> None:
    """Run tests in a process that has pytest and numpy already, and the sources not yet."""
    os.environ["PYTHONPATH"] = copy
    sys.path.insert(0, copy)
    os.chdir(ROOT)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.exit(pytest.main(arguments))


def changed(source: str, mutant: Mutant) -> str:
    """The source with a change."""
    return str(mutate_code(source, get_operator(mutant.operator)(), mutant.occurrence))


def tried(mutants: list[Mutant], known: Reach, copies: list[Path], deadline: float) -> dict[Mutant, bool]:
    """Which of the changes were found, for as many as there is time for."""
    importers = importers_of(copies[0] / "tracker_health")
    left, found = iter(mutants), dict[Mutant, bool]()
    lock = threading.Lock()

    def work(copy: Path) -> None:
        while time.monotonic() < deadline:
            with lock:
                mutant = next(left, None)
            if mutant is None:
                return
            tests = known.of(mutant, importers)
            seconds = sum(known.seconds[one] for one in tests)
            found[mutant] = bool(tests) and is_killed(copy, mutant, tests, seconds)
            state = "killed" if found[mutant] else "survived" if tests else "unreached"
            print(f"{state:9} {mutant.module}:{mutant.line} {mutant.operator.removeprefix('core/')}", flush=True)

    threads = [threading.Thread(target=work, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def shown(mutant: Mutant, package: Path) -> str:
    """A change as one line of a page."""
    source = (package / mutant.module).read_text(encoding="utf-8")
    pairs = zip(source.splitlines(), changed(source, mutant).splitlines(), strict=False)
    before, after = next(((one, other) for one, other in pairs if one != other), ("", ""))
    words = [re.sub(r"\s+", " ", one).strip().replace("|", "\\|").replace("`", "'") for one in (before, after)]
    return f"| {mutant.module}:{mutant.line} | `{words[0]}` | `{words[1]}` |"


def page(found: dict[Mutant, bool], seed: int, package: Path) -> str:
    """The score and what survived, as a page."""
    of, killed = Counter(one.package for one in found), Counter(one.package for one, dead in found.items() if dead)
    rows = [f"| {name} | {of[name]} | {killed[name]} | {killed[name] / of[name]:.0%} |" for name in of]
    survivors = sorted((one for one, dead in found.items() if not dead), key=lambda one: (one.module, one.line))
    return "\n".join([
        "# How well tests protect judgement", "",
        "`make mutants` changes one small thing in the code that judges, and runs the tests that reach it. A change",
        "that no test notices survives. Left out are annotations, decorators, words for people and counts. A change",
        "that no test reaches counts as one that survived; some survivors change nothing that a run could show.", "",
        f"{datetime.now(UTC):%d %B %Y}, seed {seed}: {len(found)} changes, drawn from each package in turn.", "",
        "| package | changes | found | share |", "|---|---:|---:|---:|", *rows, "",
        "## What survived", "", "| where | line | changed to |", "|---|---|---|",
        *(shown(one, package) for one in survivors), "",
    ])  # fmt: skip


def main() -> None:
    """Draw, try, and write the page; with ``--only`` nothing is written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=15.0, help="how long changes are tried")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="MODULE", help="part of a module's path, such as curves/diverged")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before the forks' numpy
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copies = [folder / str(number) for number in range(WORKERS)]
        for copy in copies:
            shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            compiled = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", str(copy)]
            subprocess.run([sys.executable, *compiled], check=True)  # noqa: S603
        known = reach(copies[0], folder)
        control = sorted(known.seconds, key=lambda one: known.seconds[one])[:500]
        if not all(pass_on(copy, control, MOST_SECONDS) for copy in copies):
            sys.exit("tests that pass together fail in a process of their own")
        print(f"{len(known.seconds)} tests reach {len(known.lines)} modules", flush=True)
        mutants = sample(copies[0] / "tracker_health", options.only, options.seed)
        found = tried(mutants, known, copies, time.monotonic() + 60 * options.minutes)
        text = page(found, options.seed, copies[0] / "tracker_health")
    print(text)
    if not options.only:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
