"""What works with a server and an account: tried with one run that is thrown away again; and how its runs stand."""

from __future__ import annotations

import platform
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import TYPE_CHECKING, Any

from tracker_health._version import __version__
from tracker_health.api import annotate, clear_annotations
from tracker_health.config import Config
from tracker_health.errors import RunError, RunNotFound, WriteError, described
from tracker_health.stores.common.standing import Standing
from tracker_health.text import count, listing, printable

if TYPE_CHECKING:
    from mlflow import MlflowClient

_NAME = "tracker-health-doctor"
_STEPS = 40
_MOST_RUNS = 1000
_PACKAGES = ("mlflow", "mlflow-skinny", "wandb", "trackio", "torch", "numpy", "click", "rich", "pyyaml", "matplotlib")
READS, WRITES, FILES, REGISTRY = "read runs", "write verdicts", "write files", "tag model versions"
"""What a step is tried for."""
_NEEDED_BY = {
    "check, report": (READS,),
    "annotate, sweep, exec": (READS, WRITES, FILES),
    "gate": (READS,),
    "gate with tags": (READS, REGISTRY),
}


class State(StrEnum):
    """How a step went. ``NOT_THERE``: what was named is not there, which says nothing of the account. ``SEEN``: nothing
    was tried, and this is what there is.
    """

    WORKS = "works"
    FAILS = "fails"
    NOT_THERE = "not there"
    NOT_TRIED = "not tried"
    SEEN = "seen"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing that was tried. ``need``: what for, empty for what no command needs by itself. ``detail``: what was
    seen, or why it does not work.
    """

    what: str
    state: State
    detail: str = ""
    need: str = ""


def commands_that_work(steps: list[Step]) -> Iterator[str]:
    """What the steps are enough for, and what not. Where what was named is not there, that nothing is known."""
    if missing := [one.detail for one in steps if one.state is State.NOT_THERE]:
        yield f"not known what the account is enough for: {missing[0]}"
        return
    states = {need: [one.state for one in steps if one.need == need] for need in (READS, WRITES, FILES, REGISTRY)}
    good = [
        name
        for name, needs in _NEEDED_BY.items()
        if all(states[need] and set(states[need]) == {State.WORKS} for need in needs)
    ]
    bad = [name for name in _NEEDED_BY if name not in good]
    yield f"enough for: {'; '.join(good) or 'nothing'}"
    if bad:
        yield f"not enough for: {'; '.join(bad)}"


def next_command(steps: list[Step], where: str) -> str:
    """What to call next, by what the account is enough for; empty where runs cannot be read. ``where``: the options
    that name the server and its runs.
    """
    bad = (State.FAILS, State.NOT_THERE)
    if any(step.state in bad for step in steps if step.need == READS or step.what == "runs"):
        return ""
    writes = {step.state for step in steps if step.need == WRITES}
    way = "--shadow" if writes == {State.WORKS} else "--report-to tracker-health-reports"
    return f"tracker-health sweep {where} --since 7d {way}"


def versions() -> dict[str, str]:
    """The versions of tracker-health, of Python, of the system, and of the packages that it may work with."""
    known = {"tracker-health": __version__, "python": platform.python_version(), "system": platform.platform()}
    for package in _PACKAGES:
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    return known


def document(steps: list[Step], follows: str) -> dict[str, Any]:
    """What was tried as plain data: the versions, each step, and the command that ``follows``."""
    tried = [{"what": one.what, "state": str(one.state), "detail": one.detail, "need": one.need} for one in steps]
    return {"schema": "tracker-health/doctor/1", "versions": versions(), "steps": tried, "next": follows}


class _Trials:
    """Tries things one after the other; what needs something that did not work is not tried."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.undo: list[tuple[str, Callable[[], Any]]] = []

    def do(self, what: str, need: str, work: Callable[[], Any], *, after: bool = True) -> tuple[Step, Any]:
        """``after``: whether what it needs has worked. ``work`` gives a detail, or a pair of it and a value."""
        value = None
        if not after:
            step = Step(what=what, need=need, state=State.NOT_TRIED)
        else:
            try:
                made = work()
                detail, value = made if isinstance(made, tuple) else (made, True)
                state = value if isinstance(value, State) else State.WORKS
                step = Step(what=what, need=need, state=state, detail=printable(detail or "", 300))
            except Exception as error:  # noqa: BLE001  that is what is asked
                is_there = self.undo or not isinstance(error, RunNotFound)  # what was made must be found
                state = State.FAILS if is_there else State.NOT_THERE
                step = Step(what=what, need=need, state=state, detail=printable(described(error), 600))
        self.steps.append(step)
        return step, value

    def clean(self) -> Step:
        """Take away what was made, the last first; each is tried whatever became of the others."""
        left = []
        for what, work in reversed(self.undo):
            try:
                work()
            except Exception as error:  # noqa: BLE001  the others are still taken away
                left.append(f"{what} is still there ({printable(described(error), 200)})")
        state = State.FAILS if left else State.WORKS if self.undo else State.NOT_TRIED
        return Step(what="clean up", state=state, detail="; ".join(left))


@contextmanager
def _clean_on_error(trials: _Trials) -> Iterator[None]:
    try:
        yield
    except BaseException:
        trials.clean()
        raise


def look_at_mlflow(experiment: str, tracking_uri: str | None) -> Iterator[Step]:
    """What can be said of an MLflow server without changing anything there."""
    from tracker_health.stores.mlflow.connection import connect
    from tracker_health.stores.mlflow.experiment import standings
    from tracker_health.stores.mlflow.failures import shown

    trials = _Trials()
    step, opened = trials.do("reach the server", READS, lambda: _reach(connect(tracking_uri), shown))
    yield step
    found = yield from _how_runs_stand(trials, lambda: standings(experiment, tracking_uri), after=opened is not None)
    unsaid = "MLflow does not say what an account may do: without --dry-run it is tried"
    yield trials.do("may write", WRITES, lambda: (unsaid, State.NOT_TRIED), after=found)[0]


def look_at_wandb(project: str) -> Iterator[Step]:
    """What can be said of a W&B server without changing anything there."""
    from tracker_health.stores.wandb.address import project_of
    from tracker_health.stores.wandb.connection import connect
    from tracker_health.stores.wandb.project import may_write, standings

    trials = _Trials()
    step, connection = trials.do("reach the server", READS, lambda: _connect(connect(project_of(project).server)))
    yield step
    found = yield from _how_runs_stand(trials, lambda: standings(project), after=connection is not None)
    yield trials.do("may write", WRITES, lambda: _permission(may_write(project)), after=found)[0]


def _permission(may: bool | None) -> tuple[str, State]:
    if may is None:
        return "the server does not say: without --dry-run it is tried", State.NOT_TRIED
    files = "whether files and artifacts arrive is not tried"
    return (f"the server says so; {files}", State.WORKS) if may else ("the key may only read here", State.FAILS)


def _how_runs_stand(
    trials: _Trials, find: Callable[[], Iterator[tuple[str, Standing]]], *, after: bool = True
) -> Generator[Step, None, bool]:
    """How the newest runs stand, and on which of them nothing can be written; whether they could be read."""
    step, found = trials.do("runs", "", lambda: _count_runs(find()), after=after)
    yield step
    if found is not None:
        theirs = [name for name, one in found if one is Standing.THEIRS]
        said = (
            f"on {count(len(theirs), 'run')} by others, which get no verdict: {listing(theirs)}"
            if theirs
            else "on no run"
        )
        yield Step(what="names like ours", state=State.SEEN, detail=said)
    return found is not None


def _count_runs(runs: Iterator[tuple[str, Standing]]) -> tuple[str, list[tuple[str, Standing]]]:
    found = list(islice(runs, _MOST_RUNS + 1))
    shown = f"the newest {_MOST_RUNS}" if len(found) > _MOST_RUNS else str(len(found))
    del found[_MOST_RUNS:]
    counts = Counter(one for _, one in found)
    return f"{shown}: {', '.join(f'{counts[one]} {one}' for one in Standing)}", found


def examine_mlflow(experiment: str, tracking_uri: str | None, config: Config) -> Iterator[Step]:
    """Try an MLflow server with one run in an experiment, and one registered model, which are taken away again. A
    deleted run stays in MLflow's trash until ``mlflow gc``. At last how the runs there stand.
    """
    from tracker_health.stores.mlflow.connection import connect
    from tracker_health.stores.mlflow.experiment import standings
    from tracker_health.stores.mlflow.failures import shown, translated

    trials = _Trials()

    def asked(doing: str, call: Callable[..., Any], *arguments: Any, writes: bool = False, **options: Any) -> Any:
        with translated(doing, uri, otherwise=WriteError if writes else RunError):
            return call(*arguments, **options)

    with _clean_on_error(trials):
        step, opened = trials.do("reach the server", READS, lambda: _reach(connect(tracking_uri), shown))
        yield step
        if opened is None:
            return
        client, uri = opened
        step, place = trials.do("read runs", READS, lambda: _read_runs(client, experiment, asked))
        yield step
        step, run = trials.do(
            "make a run", WRITES, lambda: _make_run(client, place, asked, trials), after=place is not None
        )
        yield step
        step, verdict = trials.do(
            "write a verdict", WRITES, lambda: _write_verdict(run, uri, config), after=run is not None
        )
        yield step
        wrote = verdict is not None
        yield trials.do("read it back", WRITES, lambda: _read_back(client, run, asked), after=wrote)[0]
        yield trials.do("write files", FILES, lambda: _read_files(client, run, asked), after=wrote)[0]
        yield trials.do("take it off again", WRITES, lambda: _clear_run(run, uri), after=wrote)[0]
        yield trials.do("read the model registry", "", lambda: _read_models(client, asked))[0]
        step, _ = trials.do(
            "register and tag a model", REGISTRY, lambda: _register(client, run, asked, trials), after=run is not None
        )
        yield step
    yield trials.clean()
    yield from _how_runs_stand(trials, lambda: standings(experiment, uri), after=place is not None)


def _reach(opened: tuple[MlflowClient, str], shown: Callable[[str], str]) -> tuple[str, Any]:
    return shown(opened[1]), opened


def _read_runs(client: MlflowClient, experiment: str, asked: Callable[..., Any]) -> tuple[str, str]:
    doing = f"the experiment {printable(experiment, 80)}"
    found = asked(doing, client.get_experiment_by_name, experiment)
    if found is None:
        hint = "name one of yours with --experiment, or log the first run there"
        raise RunNotFound(f"there is no experiment {printable(experiment, 80)}", hint)
    asked(doing, client.search_runs, [found.experiment_id], max_results=1)
    return f"experiment {experiment}", found.experiment_id


def _make_run(client: MlflowClient, place: str, asked: Callable[..., Any], trials: _Trials) -> tuple[str, str]:
    from mlflow.entities import Metric

    doing, now = "a run could not be made", int(time.time() * 1000)
    made = asked(doing, client.create_run, place, run_name=_NAME, writes=True)
    run = str(made.info.run_id)
    trials.undo.append((f"the run {run}", lambda: asked("the run", client.delete_run, run, writes=True)))
    points = [Metric("train/loss", 2.0 * 0.9**step + 0.1, now, step) for step in range(_STEPS)]
    asked(doing, client.log_batch, run, metrics=points, writes=True)
    asked(doing, client.update_run, run, status="FINISHED", writes=True)  # set_terminated prints
    return run, run


def _write_verdict(run: str, uri: str, config: Config) -> str:
    """By the rules and names as they come: what is tried is the account, and no setting."""
    plain = replace(Config(), trusted_hosts=config.trusted_hosts, policy=config.policy)
    outcome = annotate(run, config=plain, tracking_uri=uri, force=True)
    return str(outcome.report.verdict)


def _read_back(client: MlflowClient, run: str, asked: Callable[..., Any]) -> str:
    tags = asked("the run", client.get_run, run).data.tags
    if "health.verdict" not in tags:
        raise WriteError("the tag health.verdict is not on the run", "does something take tags away?")
    return f"health.verdict = {tags['health.verdict']}"


def _read_files(client: MlflowClient, run: str, asked: Callable[..., Any]) -> str:
    found = asked("the artifacts of the run", client.list_artifacts, run, "health")
    if not found:
        raise WriteError("no file of the verdict is among the run's artifacts", "may this machine write artifacts?")
    return f"{len(found)} in the artifact store"


def _clear_run(run: str, uri: str) -> str:
    cleared = clear_annotations(run, tracking_uri=uri)
    return f"kept: {', '.join(cleared.kept)}" if cleared.kept else ""


def _read_models(client: MlflowClient, asked: Callable[..., Any]) -> str:
    asked("the model registry", client.search_registered_models, max_results=1)
    return ""


def _register(client: MlflowClient, run: str, asked: Callable[..., Any], trials: _Trials) -> str:
    name, doing = f"{_NAME}-{uuid.uuid4().hex[:8]}", "a model could not be registered"
    asked(doing, client.create_registered_model, name, writes=True)
    trials.undo.append((f"the model {name}", lambda: asked("", client.delete_registered_model, name, writes=True)))
    source = f"{asked(doing, client.get_run, run).info.artifact_uri}/model"
    now = {"run_id": run, "await_creation_for": 0}  # who waits is told so by MLflow, in the midst of our lines
    version = asked(doing, client.create_model_version, name, source, **now, writes=True).version
    asked(doing, client.set_model_version_tag, name, version, "health.verdict", "pass", writes=True)
    return name


def examine_wandb(project: str) -> Iterator[Step]:
    """Try a W&B server with one run in a project, which is deleted again. Whether artifacts can be logged is not tried:
    that takes a run of the SDK's own. At last how the runs there stand.
    """
    from tracker_health.stores.wandb.address import Address, project_of
    from tracker_health.stores.wandb.connection import connect
    from tracker_health.stores.wandb.project import listed_runs, standings

    trials, named = _Trials(), project_of(project)
    with _clean_on_error(trials):
        step, connection = trials.do("reach the server", READS, lambda: _connect(connect(named.server)))
        yield step
        if connection is None:
            return
        entity = named.entity or connection.own_entity()
        step, there = trials.do("read runs", READS, lambda: _read_project(listed_runs(project), entity, named.name))
        yield step
        address = Address(entity, named.name, f"doctor{uuid.uuid4().hex[:8]}")
        make = partial(_make_online_run, connection, address, trials)
        step, run = trials.do("make a run", WRITES, make, after=there is not None)
        yield step
        after = run is not None
        yield trials.do("write tags and summary", WRITES, lambda: _change_run(connection, address, run), after=after)[0]
        yield trials.do("write files", FILES, lambda: _upload_file(connection, address, run), after=after)[0]
        yield trials.do("tag an artifact", REGISTRY, str, after=False)[0]
    yield trials.clean()
    yield from _how_runs_stand(trials, lambda: standings(project), after=there is not None)


def _connect(connection: Any) -> tuple[str, Any]:
    return connection.server, connection


def _read_project(runs: Iterator[object], entity: str, name: str) -> str:
    try:
        next(runs, None)
    except RunNotFound as error:
        raise RunNotFound(error.message, "check entity and project; W&B makes a project with its first run") from error
    return f"{entity}/{name}"


def _make_online_run(connection: Any, address: Any, trials: _Trials) -> tuple[str, Any]:
    options = {"run_id": address.run, "project": address.project, "entity": address.entity}
    doing = "a run could not be made"
    connection.changed(doing, lambda: connection.api.create_run(**options))
    run = connection.run(address)
    doing = "the run could not be deleted"
    trials.undo.append((f"the run {address.run}", lambda: connection.changed(doing, run.delete)))
    return address.run, run


def _change_run(connection: Any, address: Any, run: Any) -> str:
    connection.change(run, summary={_NAME: True}, tags=[_NAME])
    fresh = connection.run(address)
    if _NAME not in fresh.tags or not fresh.summary_metrics.get(_NAME):
        raise WriteError("what was written is not on the run", "does something take tags away?")
    return ""


def _upload_file(connection: Any, address: Any, run: Any) -> str:
    from tracker_health.stores.wandb.connection import files_of

    name = f"health/{_NAME}.txt"
    connection.upload(run, {name: b"ok\n"})
    fresh = connection.run(address)
    if name not in {file.name for file in files_of(fresh) or ()}:
        raise WriteError("the file is not among the run's", "W&B's cloud lists files a little later: try again")
    return ""
