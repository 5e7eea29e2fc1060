"""``tracker-health demo``: three small models, really trained, logged to an embedded MLflow store, judged there.

The data are scikit-learn's handwritten digits, which come with that package. One run is healthy, one has a learning
rate far too high, and one meets a corrupt image half-way.
"""

from __future__ import annotations

import logging
import math
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from tracker_health.api import annotate_many
from tracker_health.errors import WriteError, optional_packages
from tracker_health.runs.outcome import Outcome
from tracker_health.text import printable
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    import torch
    from mlflow import MlflowClient

EXPERIMENT = "tracker-health-demo"
FILTER = "tags.`health.verdict` = 'fail'"
_STEPS = 300
_BATCH = 64
_EVALUATE_EVERY = 20


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One run of the demo, whose ``name`` does not say what is wrong with it. ``corrupt_at``: the step whose batch
    holds an image of NaN, or None.
    """

    name: str
    learning_rate: float
    corrupt_at: int | None = None


RECIPES = (
    Recipe(name="brisk-otter", learning_rate=1e-3),
    Recipe(name="calm-heron", learning_rate=1.0),
    Recipe(name="quiet-maple", learning_rate=1e-3, corrupt_at=_STEPS // 2),
)


@dataclass
class Trained:
    """What a run leaves: metric histories as (step, value) by name, and the final state."""

    history: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    scheduler: dict[str, Any] = field(default_factory=dict)

    def log(self, step: int, **values: float) -> None:
        for name, value in values.items():
            self.history.setdefault(name, []).append((step, value))


def run_demo(folder: str | Path) -> list[Outcome]:
    """Train, log, annotate and show; the outcomes, in the order of the recipes.

    Raises:
        MissingExtra: torch, scikit-learn or mlflow is not installed.
        WriteError: the folder cannot be made or written to.
    """
    with optional_packages("demo"):
        import safetensors.torch  # noqa: F401
        import sklearn.datasets  # noqa: F401
        import torch  # noqa: F401
        from mlflow import MlflowClient
    root = _writable(Path(folder))
    uri = f"sqlite:///{root}/mlflow.db"
    click.echo(f"making an MLflow store in {printable(root)} ...", err=True)
    client = _quietly_opened(MlflowClient, uri)
    experiment = _experiment(client, root)
    run_ids = []
    for recipe in RECIPES:
        click.echo(f"training {recipe.name} ({_STEPS} steps) ...", err=True)
        run_ids.append(_log(client, experiment, recipe, train(recipe)))
    click.echo("annotating ...", err=True)
    outcomes = list(annotate_many([f"mlflow:{run_id}" for run_id in run_ids], tracking_uri=uri))
    _show(outcomes, uri, experiment)
    return outcomes


def _writable(folder: Path) -> Path:
    """The folder, made if need be. MLflow would try for minutes to open a database where it cannot write."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise WriteError(f"{printable(folder)}: {reason}", "give a folder that can be made and written to") from error


def train(recipe: Recipe) -> Trained:
    """Train a small classifier of digits by a recipe; the same recipe gives the same run."""
    import torch

    images, labels, held_out_images, held_out_labels = _digits()
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _STEPS)
    trained = Trained()
    for step, batch in enumerate(_batches(len(images)), start=1):
        inputs = images[batch].clone()
        if step == recipe.corrupt_at:
            inputs[0] = float("nan")
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
        optimizer.step()
        trained.log(
            step, train_loss=loss.item(), grad_norm=norm.item(), learning_rate=float(scheduler.get_last_lr()[0])
        )
        scheduler.step()
        if step % _EVALUATE_EVERY == 0:
            with torch.no_grad():
                held_out = torch.nn.functional.cross_entropy(model(held_out_images), held_out_labels)
            trained.log(step, val_loss=held_out.item())
    trained.model, trained.optimizer, trained.scheduler = (
        model.state_dict(),
        optimizer.state_dict(),
        scheduler.state_dict(),
    )
    return trained


def _digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    import torch
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.data / 16.0, dtype=torch.float32)[order]
    labels = torch.tensor(digits.target)[order]
    return images[300:], labels[300:], images[:300], labels[:300]


def _batches(count: int) -> Iterator[torch.Tensor]:
    import torch

    generator = torch.Generator().manual_seed(1)
    for _ in range(_STEPS):
        yield torch.randint(count, (_BATCH,), generator=generator)


def _quietly_opened(client_class: type[MlflowClient], uri: str) -> MlflowClient:
    """The client, without the dozens of lines in which a new database reports its migrations."""
    loggers = [logging.getLogger(name) for name in ("alembic", "mlflow.store.db.utils")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.WARNING)
        client = client_class(tracking_uri=uri)
        client.search_experiments(max_results=1)
        return client
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _experiment(client: MlflowClient, root: Path) -> str:
    existing = client.get_experiment_by_name(EXPERIMENT)
    if existing is not None:
        return str(existing.experiment_id)
    return str(client.create_experiment(EXPERIMENT, artifact_location=(root / "artifacts").resolve().as_uri()))


def _log(client: MlflowClient, experiment: str, recipe: Recipe, trained: Trained) -> str:
    """Log a run as a trainer would: params, metrics, and the state and weights as artifacts."""
    from mlflow.entities import Metric, Param

    run_id = str(client.create_run(experiment, run_name=recipe.name).info.run_id)
    now = int(time.time() * 1000)
    points = [
        Metric(name, value, now + step, step) for name, history in trained.history.items() for step, value in history
    ]
    params = [
        Param("max_steps", str(_STEPS)),
        Param("learning_rate", str(recipe.learning_rate)),
        Param("batch_size", str(_BATCH)),
    ]
    client.log_batch(run_id, params=params)
    for start in range(0, len(points), 1000):
        client.log_batch(run_id, metrics=points[start : start + 1000])
    with tempfile.TemporaryDirectory() as folder:
        _save(Path(folder), trained)
        client.log_artifacts(run_id, folder, "checkpoint")
    client.set_terminated(run_id)
    return run_id


def _save(folder: Path, trained: Trained) -> None:
    import torch
    from safetensors.torch import save_file

    state = {
        "optimizer_state_dict": trained.optimizer,
        "scheduler_state_dict": trained.scheduler,
        "global_step": _STEPS,
        "best_val_loss": min(
            (value for _, value in trained.history["val_loss"] if math.isfinite(value)), default=float("inf")
        ),
        "torch_rng_state": torch.get_rng_state(),
    }
    torch.save(state, folder / "training_state.pt")
    save_file(trained.model, folder / "model.safetensors")


def _show(outcomes: list[Outcome], uri: str, experiment: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title="tracker-health demo", show_lines=True)
    for column in ("run", "verdict", "why", "try"):
        table.add_column(column)
    colours = {"pass": "green", "warn": "yellow", "fail": "red", "skip": "cyan", "error": "magenta"}
    for outcome in outcomes:
        report = outcome.report
        diagnosis = report.diagnosis
        table.add_row(
            Text(printable(report.run.name, 40)),
            Text(report.verdict.upper(), style=f"bold {colours[report.verdict]}"),
            Text(printable(diagnosis.sentence if diagnosis is not None else report.summary, 300)),
            Text(printable(diagnosis.action.in_short, 200) if diagnosis is not None else ""),
        )
    console = Console()
    with console.capture() as captured:  # printed by rich, it would end the process when nobody reads
        console.print(table)
    click.echo(captured.get(), nl=False)
    failed = next((one.report.run for one in outcomes if one.report.verdict is Verdict.FAIL), outcomes[0].report.run)
    pages = f"http://127.0.0.1:5000/#/experiments/{experiment}/runs"
    click.echo(f"To see the report of {printable(failed.name, 40)}:")
    click.echo(f"  {_command()} report mlflow:{failed.id} --tracking-uri {shlex.quote(uri)} --open")
    click.echo("To see the runs with their verdicts, start MLflow:")
    click.echo(f"  {_python()} -m mlflow ui --backend-store-uri {shlex.quote(uri)}")
    click.echo("and open")
    click.echo(f"  {pages}/{failed.id} ({printable(failed.name, 40)})")
    click.echo(f"  {pages}?searchFilter={quote(FILTER)} (all that failed: {FILTER})")


def _command() -> str:
    """How this program is called from here."""
    return "tracker-health" if shutil.which("tracker-health") else f"{_python()} -m tracker_health"


def _python() -> str:
    """The Python that runs, as it is typed from here: its environment may not be on the path."""
    here = Path(sys.executable)
    return shlex.quote(str(here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here))
