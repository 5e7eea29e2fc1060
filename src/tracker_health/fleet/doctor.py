"""What works with a server and an account: tried with one run that is thrown away again."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tracker_health.api import annotate, clear_annotations
from tracker_health.config import Config
from tracker_health.errors import RunError, RunNotFound, WriteError, described
from tracker_health.text import printable

if TYPE_CHECKING:
    from mlflow import MlflowClient

_NAME = "tracker-health-doctor"
_STEPS = 40
READS, WRITES, FILES, REGISTRY = "read runs", "write verdicts", "write files", "tag model versions"
"""What a step is tried for."""
_NEEDED_BY = {
    "check, report": (READS,),
    "annotate, sweep, exec": (READS, WRITES, FILES),
    "gate": (READS,),
    "gate with tags": (READS, REGISTRY),
}


class State(StrEnum):
    """How a step went."""

    WORKS = "works"
    FAILS = "fails"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One thing that was tried. ``need``: what for, empty for what no command needs by itself. ``detail``: what was
    seen, or why it does not work.
    """

    what: str
    state: State
    detail: str = ""
    need: str = ""


def commands_that_work(steps: list[Trial]) -> tuple[list[str], list[str]]:
    """The commands that work by these steps, and those that do not."""
    states = {need: [one.state for one in steps if one.need == need] for need in (READS, WRITES, FILES, REGISTRY)}
    good = [
        name
        for name, needs in _NEEDED_BY.items()
        if all(states[need] and set(states[need]) == {State.WORKS} for need in needs)
    ]
    return good, [name for name in _NEEDED_BY if name not in good]


class _Trial:
    """Tries things one after the other; what needs something that did not work is not tried."""

    def __init__(self) -> None:
        self.steps: list[Trial] = []
        self.undo: list[tuple[str, Callable[[], Any]]] = []

    def do(self, what: str, need: str, work: Callable[[], Any], *, after: bool = True) -> tuple[Trial, Any]:
        """``after``: whether what it needs has worked. ``work`` gives a detail, or a pair of it and a value."""
        value = None
        if not after:
            step = Trial(what=what, need=need, state=State.NOT_TRIED)
        else:
            try:
                made = work()
                detail, value = made if isinstance(made, tuple) else (made, True)
                step = Trial(what=what, need=need, state=State.WORKS, detail=printable(detail or "", 300))
            except Exception as error:  # noqa: BLE001  that is what is asked
                step = Trial(what=what, need=need, state=State.FAILS, detail=printable(described(error), 600))
        self.steps.append(step)
        return step, value

    def clean(self) -> Trial:
        """Take away what was made, the last first; each is tried whatever became of the others."""
        left = []
        for what, work in reversed(self.undo):
            try:
                work()
            except Exception as error:  # noqa: BLE001  the others are still taken away
                left.append(f"{what} is still there ({printable(described(error), 200)})")
        state = State.FAILS if left else State.WORKS if self.undo else State.NOT_TRIED
        return Trial(what="clean up", state=state, detail="; ".join(left))


@contextmanager
def _cleaned(trial: _Trial) -> Iterator[None]:
    try:
        yield
    except BaseException:
        trial.clean()
        raise


def examine_mlflow(experiment: str, tracking_uri: str | None, config: Config) -> Iterator[Trial]:
    """Try an MLflow server with one run in an experiment, and one registered model, which are taken away again. A
    deleted run stays in MLflow's trash until ``mlflow gc``.
    """
    from tracker_health.stores.mlflow.connection import connect
    from tracker_health.stores.mlflow.failures import shown, translated

    trial = _Trial()

    def asked(doing: str, call: Callable[..., Any], *arguments: Any, writes: bool = False, **options: Any) -> Any:
        with translated(doing, uri, otherwise=WriteError if writes else RunError):
            return call(*arguments, **options)

    with _cleaned(trial):
        step, opened = trial.do("reach the server", READS, lambda: _reached(connect(tracking_uri), shown))
        yield step
        if opened is None:
            return
        client, uri = opened
        step, place = trial.do("read runs", READS, lambda: _read_runs(client, experiment, asked))
        yield step
        step, run = trial.do(
            "make a run", WRITES, lambda: _made_run(client, place, asked, trial), after=place is not None
        )
        yield step
        step, verdict = trial.do("write a verdict", WRITES, lambda: _written(run, uri, config), after=run is not None)
        yield step
        wrote = verdict is not None
        yield trial.do("read it back", WRITES, lambda: _read_back(client, run, asked), after=wrote)[0]
        yield trial.do("write files", FILES, lambda: _files_of(client, run, asked), after=wrote)[0]
        yield trial.do("take it off again", WRITES, lambda: _cleared(run, uri), after=wrote)[0]
        yield trial.do("read the model registry", "", lambda: _read_models(client, asked))[0]
        step, _ = trial.do(
            "register and tag a model", REGISTRY, lambda: _registered(client, run, asked, trial), after=run is not None
        )
        yield step
    yield trial.clean()


def _reached(opened: tuple[MlflowClient, str], shown: Callable[[str], str]) -> tuple[str, Any]:
    return shown(opened[1]), opened


def _read_runs(client: MlflowClient, experiment: str, asked: Callable[..., Any]) -> tuple[str, str]:
    doing = f"the experiment {printable(experiment, 80)}"
    found = asked(doing, client.get_experiment_by_name, experiment)
    if found is None:
        raise RunNotFound(f"there is no experiment {printable(experiment, 80)}", "name one of yours with --experiment")
    asked(doing, client.search_runs, [found.experiment_id], max_results=1)
    return f"experiment {experiment}", found.experiment_id


def _made_run(client: MlflowClient, place: str, asked: Callable[..., Any], trial: _Trial) -> tuple[str, str]:
    from mlflow.entities import Metric

    doing, now = "a run could not be made", int(time.time() * 1000)
    made = asked(doing, client.create_run, place, run_name=_NAME, writes=True)
    run = str(made.info.run_id)
    trial.undo.append((f"the run {run}", lambda: asked("the run", client.delete_run, run, writes=True)))
    points = [Metric("train/loss", 2.0 * 0.9**step + 0.1, now, step) for step in range(_STEPS)]
    asked(doing, client.log_batch, run, metrics=points, writes=True)
    asked(doing, client.update_run, run, status="FINISHED", writes=True)  # set_terminated prints
    return run, run


def _written(run: str, uri: str, config: Config) -> str:
    outcome = annotate(run, config=config, tracking_uri=uri, force=True)
    return str(outcome.report.verdict)


def _read_back(client: MlflowClient, run: str, asked: Callable[..., Any]) -> str:
    tags = asked("the run", client.get_run, run).data.tags
    if "health.verdict" not in tags:
        raise WriteError("the tag health.verdict is not on the run", "does something take tags away?")
    return f"health.verdict = {tags['health.verdict']}"


def _files_of(client: MlflowClient, run: str, asked: Callable[..., Any]) -> str:
    found = asked("the artifacts of the run", client.list_artifacts, run, "health")
    if not found:
        raise WriteError("no file of the verdict is among the run's artifacts", "may this machine write artifacts?")
    return f"{len(found)} in the artifact store"


def _cleared(run: str, uri: str) -> str:
    cleared = clear_annotations(run, tracking_uri=uri)
    return f"kept: {', '.join(cleared.kept)}" if cleared.kept else ""


def _read_models(client: MlflowClient, asked: Callable[..., Any]) -> str:
    asked("the model registry", client.search_registered_models, max_results=1)
    return ""


def _registered(client: MlflowClient, run: str, asked: Callable[..., Any], trial: _Trial) -> str:
    name, doing = f"{_NAME}-{uuid.uuid4().hex[:8]}", "a model could not be registered"
    asked(doing, client.create_registered_model, name, writes=True)
    trial.undo.append((f"the model {name}", lambda: asked("", client.delete_registered_model, name, writes=True)))
    source = f"{asked(doing, client.get_run, run).info.artifact_uri}/model"
    version = asked(doing, client.create_model_version, name, source, run_id=run, writes=True).version
    asked(doing, client.set_model_version_tag, name, version, "health.verdict", "pass", writes=True)
    return name


def examine_wandb(project: str) -> Iterator[Trial]:
    """Try a W&B server with one run in a project, which is deleted again. Whether artifacts can be logged is not tried:
    that takes a run of the SDK's own.
    """
    from tracker_health.stores.wandb.address import Address, project_of
    from tracker_health.stores.wandb.connection import connect

    trial, named = _Trial(), project_of(project)
    with _cleaned(trial):
        step, connection = trial.do("reach the server", READS, lambda: _connected(connect(named.server)))
        yield step
        if connection is None:
            return
        entity = named.entity or connection.own_entity()
        path = f"{entity}/{named.name}"
        yield trial.do("read runs", READS, lambda: _read_project(connection, path))[0]
        address = Address(entity, named.name, f"doctor{uuid.uuid4().hex[:8]}")
        step, run = trial.do("make a run", WRITES, lambda: _made_online(connection, address, trial))
        yield step
        after = run is not None
        yield trial.do("write tags and summary", WRITES, lambda: _changed(connection, address, run), after=after)[0]
        yield trial.do("write files", FILES, lambda: _uploaded(connection, address, run), after=after)[0]
        yield trial.do("tag an artifact", REGISTRY, str, after=False)[0]
    yield trial.clean()


def _connected(connection: Any) -> tuple[str, Any]:
    return connection.server, connection


def _read_project(connection: Any, path: str) -> str:
    doing = f"the runs of {printable(path, 200)}"
    found = connection.asked(doing, connection.api.runs, path, per_page=1)
    connection.asked(doing, lambda: next(iter(found), None))
    return path


def _made_online(connection: Any, address: Any, trial: _Trial) -> tuple[str, Any]:
    options = {"run_id": address.run, "project": address.project, "entity": address.entity}
    doing = "a run could not be made"
    connection.changed(doing, lambda: connection.api.create_run(**options))
    run = connection.run(address)
    doing = "the run could not be deleted"
    trial.undo.append((f"the run {address.run}", lambda: connection.changed(doing, run.delete)))
    return address.run, run


def _changed(connection: Any, address: Any, run: Any) -> str:
    connection.change(run, summary={_NAME: True}, tags=[_NAME])
    fresh = connection.run(address)
    if _NAME not in fresh.tags or not fresh.summary_metrics.get(_NAME):
        raise WriteError("what was written is not on the run", "does something take tags away?")
    return ""


def _uploaded(connection: Any, address: Any, run: Any) -> str:
    from tracker_health.stores.wandb.connection import files_of

    name = f"health/{_NAME}.txt"
    connection.upload(run, {name: b"ok\n"})
    fresh = connection.run(address, (name,))
    if not files_of(fresh):
        raise WriteError("the file is not among the run's", "W&B's cloud lists files a little later: try again")
    return ""
