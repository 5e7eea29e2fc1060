"""Runs on servers that fail at any request: what must hold of a command that met a fault, and of the next that meets none."""

from __future__ import annotations

import itertools
import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

import mlflow
import pytest
from click.testing import CliRunner, Result

from tracker_health.cli import cli
from tracker_health.stores.remote import deadline, downloads, http_parts
from tracker_health.stores.wandb import connection as wandb_connection
from tracker_health.stores.wandb import server as wandb_of

from ..wandb_server.schema import _artifact_path  # noqa: TID252  tests are no package of a name
from ..wandb_server.store import Blob  # noqa: TID252
from .faulty_proxy import FAULTS, Fault, Proxy

OPERATIONS = ("annotate", "sweep", "clear")
BEFORE = ("new", "judged")
"""What a run has before the command that meets the fault: nothing of ours, or a verdict that only its checkpoint gives."""
LASTING = ("once", "there", "on")
"""For which requests: one, all of that endpoint from then on, or all from then on."""
LOSSES = [0.1 + 2.2 * 0.98**step for step in range(200)]
_numbers = itertools.count()


@dataclass(frozen=True)
class Trial:
    """A command that meets a fault. ``at``: the number of the request, of those that it makes where nothing fails."""

    operation: str
    before: str
    fault: str
    lasting: str
    at: int


@dataclass(frozen=True)
class Whole:
    """What an operation does where nothing fails: its requests, the exit code, and the verdict and all else on the run."""

    asked: tuple[str, ...]
    code: int
    verdict: str
    view: str


class Servers(ABC):
    """A tracker behind a proxy, and runs on it. ``checkpoint``: a file with which alone a run fails."""

    def __init__(self, proxy: Proxy, checkpoint: Path) -> None:
        self.proxy, self.checkpoint = proxy, checkpoint
        self.whole = cache(self._whole)

    @abstractmethod
    def log_run(self) -> str:
        """A run that has ended, with a loss that fell and the checkpoint; as the command line names it."""

    @abstractmethod
    def log_more(self, run: str) -> None:
        """One more point of its loss: a sweep judges it again."""

    @abstractmethod
    def arguments(self, operation: str, run: str) -> list[str]:
        """Of a command line that does the operation to this run, through the proxy."""

    @abstractmethod
    def verdict(self, run: str) -> str:
        """The verdict on the run, with a ``?`` where its annotation says that it is unfinished; "" for neither."""

    @abstractmethod
    def view(self, run: str) -> str:
        """All that is ours on the run, but for times, ids and digests."""

    def new(self, before: str, operation: str) -> str:
        """A run as it is ``BEFORE`` the operation."""
        run = self.log_run()
        if before == "judged":
            assert "FAIL" in command(self.arguments("annotate", run)).output
            if operation == "sweep":
                self.log_more(run)
        return run

    def _whole(self, operation: str, before: str) -> Whole:
        run = self.new(before, operation)
        with self.proxy.failing(lambda *_: None):
            done = command(self.arguments(operation, run))
        assert (done.exit_code, self.verdict(run)) == (0, "" if operation == "clear" else "fail"), done.output
        return Whole(tuple(self.proxy.asked), done.exit_code, self.verdict(run), self.view(run))


class OfMlflow(Servers):
    """Runs of an MLflow server, each in an experiment of its own."""

    def __init__(self, uri: str, proxy: Proxy, checkpoint: Path) -> None:
        super().__init__(proxy, checkpoint)
        self.uri, self.client = uri, mlflow.MlflowClient(tracking_uri=uri)

    def log_run(self):
        experiment = self.client.create_experiment(f"of servers that fail, {next(_numbers)}")
        run = self.client.create_run(experiment, run_name="named").info.run_id
        points = [mlflow.entities.Metric("loss", loss, 10**12 + step, step) for step, loss in enumerate(LOSSES)]
        self.client.log_batch(run, metrics=points)
        self.client.log_artifact(run, str(self.checkpoint))
        self.client.set_terminated(run)
        return run

    def log_more(self, run):
        self.client.log_metric(run, "loss", LOSSES[-1], step=len(LOSSES))

    def _experiment(self, run):
        return self.client.get_experiment(self.client.get_run(run).info.experiment_id).name

    def arguments(self, operation, run):
        what = ["sweep", "--experiment", self._experiment(run)] if operation == "sweep" else [operation, run]
        return [*what, *["--force"] * (operation == "annotate"), "--tracking-uri", self.proxy.uri]

    def verdict(self, run):
        tags = self.client.get_run(run).data.tags
        return shown(tags.get("health.verdict", ""), tags.get("health.digest", ""))

    def view(self, run):
        found = self.client.get_run(run)
        tags = {key: value for key, value in found.data.tags.items() if key.startswith("health.") or "note" in key}
        values = found.data.metrics.items()
        metrics = {key: value for key, value in values if key.startswith("health/") and value == value}  # noqa: PLR0124
        files = [entry.path for folder in ("health", "images") for entry in self.client.list_artifacts(run, folder)]
        report = {}
        if "health/report.json" in files:
            place = found.info.artifact_uri.removeprefix("mlflow-artifacts:/")
            with urlopen(f"{self.uri}/api/2.0/mlflow-artifacts/artifacts/{place}/health/report.json") as answer:
                report = json.load(answer)
        return plain([tags, metrics, sorted(files), report], run, self.proxy.uri, self.uri, self._experiment(run))


class OfWandb(Servers):
    """Runs of a W&B server, each in a project of its own; ``in_artifact``: the checkpoint is no file of the run's."""

    def __init__(self, server: Any, proxy: Proxy, checkpoint: Path, *, in_artifact: bool) -> None:
        super().__init__(proxy, checkpoint)
        self.server, self.in_artifact = server, in_artifact

    def log_run(self):
        number = next(_numbers)
        run = self.server.store.new_run("team", f"proj{number}", f"run{number}")
        run.history = [
            json.dumps({"_step": step, "_timestamp": 1.0 * step, "loss": loss}) for step, loss in enumerate(LOSSES)
        ]
        run.state, run.tags, run.summary = "finished", ["mine"], {"loss": LOSSES[-1]}
        content = Blob(self.checkpoint.read_bytes())
        if self.in_artifact:
            self._log_artifact(run, content)
        else:
            run.files["optimizer.pt"] = content
        return f"wandb:team/proj{number}/run{number}"

    def _log_artifact(self, run, content):
        store = self.server.store
        made = store.new_artifact(run, "model", f"{run.name}-model", f"of {run.name}", ["latest"])
        store.blobs[_artifact_path(content.md5)] = content
        entry = {"digest": content.md5, "birthArtifactID": made.id, "size": len(content.content)}
        made.manifest = Blob(json.dumps({"contents": {"optimizer.pt": entry}}).encode())
        made.state = "COMMITTED"

    def log_more(self, run):
        row = {"_step": len(LOSSES), "_timestamp": 1.0 * len(LOSSES), "loss": LOSSES[-1]}
        self._run(run).history.append(json.dumps(row))

    def _run(self, name):
        return self.server.run(name.removeprefix("wandb:"))

    def arguments(self, operation, run):
        if operation == "sweep":
            return ["sweep", "--project", run.removeprefix("wandb:").rpartition("/")[0]]
        return [operation, run, *["--force"] * (operation == "annotate")]

    def verdict(self, run):
        summary, tags = self._run(run).summary, self._run(run).tags
        verdict = shown(summary.get("health/verdict", ""), summary.get("health/digest", ""))
        is_tagged = [tag for tag in tags if tag.startswith("health:")] == [f"health:{verdict}"] * bool(verdict)
        return verdict if verdict.endswith("?") or is_tagged else f"{verdict}?"

    def view(self, run):
        kept = self._run(run)
        ours = {key: value for key, value in kept.summary.items() if key.startswith("health/")}
        files = sorted(name for name in kept.files if "health" in name)
        report = json.loads(kept.files["health/report.json"].content) if "health/report.json" in files else {}
        return plain([kept.tags, ours, files, report], kept.name, kept.project, self.server.url)


def shown(verdict: str, digest: str) -> str:
    return f"{verdict}{'?' * (digest.startswith('pending') or bool(verdict) != bool(digest))}"


_OF_ONE_RUN = (
    r'"(health.(digest|written|settings)|sha256|md5|size|path|_latest_artifact_path)": ("[^"]*"|\d+)',
    r'"health.(picture|report)": \{[^}]*\}',
    r'\\*"run\\*": \\*"[0-9a-f]{8}\\*"',
    r"/experiments/\d+",
    r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)?|[0-9a-f]{16,}",
)


def plain(found: Any, *names: str) -> str:
    """The same without what differs from run to run."""
    text = json.dumps(found, sort_keys=True, default=str)
    for name in names:
        text = text.replace(name, "…")
    return re.sub("|".join(_OF_ONE_RUN), "", text)


def command(arguments: list[str]) -> Result:
    for noted in (deadline._answered, deadline._slow, deadline._silent):
        noted.clear()
    return CliRunner().invoke(cli, arguments)


def little_patience(patch: Any, seconds: float = 2.0) -> None:
    """Give up what hangs after so long."""
    patch.setattr(deadline, "REQUEST_SECONDS", seconds)
    for module in ("wandb.connection", "wandb.online_files", "mlflow.stored_files.artifacts"):
        patch.setattr(f"tracker_health.stores.{module}.REQUEST_SECONDS", seconds + 1)
    patch.setattr("tracker_health.stores.mlflow.connection.ANSWER_SECONDS", seconds / 2)
    patch.setattr(wandb_of, "ANSWER_SECONDS", seconds / 2)
    patch.setattr(wandb_connection, "PATIENCE_SECONDS", seconds + 1)
    patch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "3")


def few_tries(patch: Any) -> None:
    """Make requests that fail once more, at once; leave no server alone for what it did before; and fetch checkpoints in
    parts.
    """
    patch.setattr(deadline, "AGAIN_SECONDS", 0)
    patch.setattr(deadline, "TRUST_SECONDS", 0)
    patch.setattr(downloads, "SMALLEST", 1000)
    patch.setattr(http_parts, "pause_before", lambda *_: 0.0)
    patch.setattr(wandb_connection, "_RETRIES", 1)
    for name, value in {"MAX_RETRIES": "1", "BACKOFF_FACTOR": "0", "BACKOFF_JITTER": "0"}.items():
        patch.setenv(f"MLFLOW_HTTP_REQUEST_{name}", value)
    for kind in ("GRAPHQL", "FILE_TRANSFER"):
        patch.setenv(f"WANDB_X_{kind}_RETRY_WAIT_MIN_SECONDS", "1")


def broken_laws(servers: Servers, trial: Trial) -> list[str]:
    """What of this does not hold, in words: no verdict that stood is replaced by what a fault makes of the run; what is
    not whole says so; a line names the endpoint and the status; and the next command finds nothing in its way.
    """
    whole = servers.whole(trial.operation, trial.before)
    run = servers.new(trial.before, trial.operation)
    with servers.proxy.failing(plan_of(trial, len(whole.asked))) as proxy, pytest.MonkeyPatch.context() as patch:
        few_tries(patch)
        if FAULTS[trial.fault].hangs:
            little_patience(patch)
        done = command(servers.arguments(trial.operation, run))
        failed = list(proxy.failed)
    if not failed:
        return []
    laws = [f"an exception: {done.exception!r}"] * (
        done.exception is not None and not isinstance(done.exception, SystemExit)
    )
    after, seen = servers.verdict(run), servers.view(run)
    # Who is not let in to the files of a run that has no verdict yet judges the rest of it, and says so.
    may_be_unread = trial.before == "new" and done.exit_code == 3 and FAULTS[trial.fault].status in (401, 403)
    before = "fail" if trial.before == "judged" else ""
    if after.removesuffix("?") not in {"", before, whole.verdict} | {"error"} & {"error" * may_be_unread}:
        laws.append(f"the verdict was {before!r}, and is {after!r} instead of {whole.verdict!r}")
    if done.exit_code == 3:
        # A sweep also says what kept it from looking for more runs.
        laws += unsaid(done, FAULTS[trial.fault], failed, proxy.uri, 1 + (trial.operation == "sweep"))
    elif done.exit_code != whole.code:
        laws.append(f"exit code {done.exit_code}")
    elif (after, seen) != (whole.verdict, whole.view) and "could not be deleted" not in done.stdout:
        laws.append(f"exit code {done.exit_code}, and it is not whole: {after!r}\n{seen}\n{whole.view}")
    again = command(servers.arguments(trial.operation, run))
    if (again.exit_code, servers.verdict(run), servers.view(run)) != (whole.code, whole.verdict, whole.view):
        laws.append(f"the second try: {again.output}\n{servers.verdict(run)!r}\n{servers.view(run)}\n{whole.view}")
    return laws


def plan_of(trial: Trial, count: int):
    """What becomes of each request, of as many as there would be."""
    at, fault, there = trial.at % count, FAULTS[trial.fault], set()

    def plan(number, asked):
        there.update({endpoint_of(asked)} if number == at else ())
        is_meant = {"once": number == at, "there": endpoint_of(asked) in there, "on": number >= at}[trial.lasting]
        return fault if is_meant and not is_taken_for_done(asked, fault) else None

    return plan


def unsaid(done: Result, fault: Fault, failed: list[str], uri: str, most: int) -> list[str]:
    """What of a failure is not in its line; of lines there are so many at most."""
    laws = []
    lines = [line for line in done.stderr.splitlines() if line.startswith("tracker-health: ")]
    said = " ".join((done.stderr + done.stdout).split())  # the terminal's width cuts lines
    if len(lines) > most or "Traceback" in said or not said:
        laws.append(f"not in one line: {said!r}")
    closed = said.replace(" ", "")  # a long address is cut as well
    if not any(place_of(asked) in closed for asked in failed) or urlsplit(uri).netloc not in closed:
        laws.append(f"no endpoint of {[*map(place_of, failed)]} in {said!r}")
    if fault.status not in (0, 200) and str(fault.status) not in said:
        laws.append(f"no status {fault.status} in {said!r}")
    return laws


def is_taken_for_done(asked: str, fault: Fault) -> bool:
    """Whether nobody can tell that this is no answer to what was asked: an upload, and what changes a run of MLflow's,
    is answered with a status and nothing else of a meaning.
    """
    method, _, path = asked.partition(" ")
    changes = re.search(r"/(log-batch|set-tag|delete-tag)$", path) and fault.body.startswith(b"{")
    return fault.status == 200 and (method in ("PUT", "DELETE") or bool(changes))


def endpoint_of(asked: str) -> str:
    """Method and path, without ids."""
    return re.sub(r"[0-9a-f]{32}.*", "", asked.partition("?")[0])


def place_of(asked: str) -> str:
    """The beginning of the path, as far as it is of any run."""
    return re.sub(r"/(\d+|run)/.*", "", unquote(asked.partition(" ")[2].partition("?")[0])).rstrip("/")
