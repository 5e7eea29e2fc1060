"""From what a user gives to the run: ids, addresses and folders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from tracker_health.errors import MissingExtra, RunNotFound, StoreRefused
from tracker_health.evidence import RunRef
from tracker_health.judge.annotations import PICTURE_FILE
from tracker_health.stores.common.ownership import HEALTH_FOLDER
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.found import Listed, RegisteredModel
from tracker_health.stores.named import named_in, word_of
from tracker_health.stores.remote import hosts
from tracker_health.stores.wandb.address import address_of, hint_on_name, is_of_wandb
from tracker_health.text import printable, without_userinfo
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    from tracker_health.stores.mlflow.database_file import DatabaseFile
    from tracker_health.stores.mlflow.registry import ModelName
    from tracker_health.stores.wandb.artifact import ArtifactName

_MLFLOW_RUN = re.compile(r"(?:mlflow:|runs:/)?([A-Za-z0-9_-]{1,250})/?|runs:/([A-Za-z0-9_-]{1,250})/.*", re.DOTALL)
# The run's page, or one of its tabs. What is before the fragment is the server, a query aside.
_MLFLOW_PAGE = re.compile(
    r"((?i:https?)://[^#?\s]+?)/(?:\?[^#\s]*)?#/experiments/([^/?#\s]+)/runs/([A-Za-z0-9_-]{1,250})(?:[/?].*)?"
)
_EXPERIMENT_PAGE = re.compile(r"(?i:https?)://[^#\s]+#/experiments/[^/?#\s]+(?:/(?:runs/?)?)?(?:\?.*)?")
_MOST_ALIKE = 5
_NO_RUNS = {
    "models": ("a registered model, not a run", "gate judges it; else give the id of the run that logged the model"),
    "mlflow-artifacts": (
        "a place where artifacts are, not a run",
        "give the run's id: in the path it comes before /artifacts",
    ),
}


def open_run(
    run: str | Path | Listed,
    *,
    tracking_uri: str | None = None,
    sidecar: bool = False,
    over: bool = False,
    last_step: int | None = None,
) -> TrackedRun:
    """The run of a path, an id or an address.

    A path is a folder with checkpoints and logs, a W&B run on this machine, or a single log or checkpoint. A W&B run is
    given by its folder, its ``.wandb`` file, or a folder that has nothing but one run below ``wandb/``. A SQLite
    database of MLflow's, or the folder that it is in, stands for its run where it has one. MLflow's runs
    have an id (``ID``, ``mlflow:ID``, ``runs:/ID``) or the address of the run's page, which names the server as well.
    Of an id its first six characters will do, or more, where no other begins so. A
    path of artifacts behind ``runs:/ID`` is ignored. Runs of Weights & Biases have both, too
    (``wandb:ENTITY/PROJECT/RUN``, or ``wandb:PROJECT/RUN`` for one's own). Those of trackio, and of stores of other
    packages, are named by a word: ``trackio:PROJECT/RUN``. The address of one checkpoint
    (``https://host/last.ckpt``, ``s3://bucket/last.ckpt``) is a run as well. A single file can be judged, but not
    written onto.

    Args:
        run: What names it, without regard to spaces around it.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.
        sidecar: Of a W&B run on this machine write only the files, and leave its log alone.
        over: The run has ended, whatever its server says.
        last_step: The last step of its history on W&B's server, which may not have it yet.

    Returns:
        The run, open: to be closed again.

    Raises:
        RunNotFound: there is no such folder, run or file, or there are several.
        RunError: the store cannot be reached or refuses; a folder on the way may not be looked into.
    """
    if not isinstance(run, (str, Path)):
        return run.open()
    run = _trim(run)
    text = str(run)
    if _is_there(text):
        from tracker_health.stores.folder.directory import DirectoryRun
        from tracker_health.stores.folder.one_file import OneFileRun
        from tracker_health.stores.mlflow.folder import open_run_below, open_run_folder, refuse_store
        from tracker_health.stores.wandb.folders import open_local_run

        refuse_store(run)
        found = open_run_folder(run) or open_run_below(run)
        if found is None or not sidecar:
            alone = OneFileRun if Path(run).is_file() else DirectoryRun
            return found or open_local_run(run, sidecar=sidecar) or _open_run_of_database(run) or alone(run)
    if sidecar:
        what = printable(shown_name(run))
        raise RunNotFound(f"{what} is no run of which only files can be written", "leave out --sidecar")
    _refuse_what_is_no_run(text)
    if isinstance(run, str) and (found := _open_address(text, tracking_uri, over=over, last_step=last_step)):
        return found
    if (shown := without_userinfo(text)) != text or "://" in text:
        hint = "give the run id, and the server as --tracking-uri"
        raise RunNotFound(f"{printable(shown)} is not the address of an MLflow run page", hint)
    return _open_named(run, tracking_uri)


def _open_address(text: str, tracking_uri: str | None, *, over: bool, last_step: int | None) -> TrackedRun | None:
    """The run of a page, of a checkpoint's address, or of a store that is named in it; None for a mere id or name."""
    if found := named_in(text):
        return found.open(over=over)
    if page := _MLFLOW_PAGE.fullmatch(text):
        from tracker_health.stores.mlflow.run import open_mlflow_run

        hosts.trust(tracking_uri or "")
        return open_mlflow_run(page.group(3), page.group(1), page.group(2), pasted=True)
    if "://" in text:
        from tracker_health.stores.remote.url import is_checkpoint_url, open_url

        if is_checkpoint_url(text):
            return open_url(text)
    if address := address_of(text):
        from tracker_health.stores.wandb.online import open_online_run

        return open_online_run(address, over=over, last_step=last_step)
    return None


def _open_run_of_database(run: str | Path) -> TrackedRun | None:
    from tracker_health.stores.mlflow.database_file import open_run_of
    from tracker_health.stores.trackio.database import is_of_trackio
    from tracker_health.stores.trackio.store import open_file

    if Path(run).is_file() and is_of_trackio(Path(run)):
        return open_file(Path(run))

    database = database_of(run)
    return None if database is None else open_run_of(database)


def database_of(run: str | Path) -> DatabaseFile | None:
    """The SQLite database of MLflow's that a path leads to, as a file or as the only thing of a run in a folder; None
    where there is none.

    Raises:
        RunNotFound: the folder has several.
        ReadError: it cannot be read.
    """
    from tracker_health.run_files.reading import relevant_files
    from tracker_health.stores.folder.directory import DirectoryRun
    from tracker_health.stores.mlflow.database_file import database_at, holds_databases, is_of_a_store

    if Path(run).is_dir() and (
        not holds_databases(Path(run))
        or any(not is_of_a_store(file.path) for file in relevant_files(DirectoryRun(run)))
    ):
        return None
    return database_at(run)


def newest_runs(run: str | Path, *, most: int = 20) -> tuple[list[Listed], int] | None:
    """The newest runs of the database that a path leads to, and how many it has; None where it leads to no database,
    or to one with less than two runs.

    Args:
        run: A path.
        most: How many runs.

    Returns:
        The runs, the newest first, and the number of all.

    Raises:
        RunError: the database cannot be opened.
    """
    text = str(run)
    if not _is_there(text):
        return None
    from tracker_health.stores.mlflow.folder import open_run_below, open_run_folder
    from tracker_health.stores.wandb.folders import open_local_run

    database = database_of(run)
    if database is None or database.runs <= 1 or open_run_folder(run) or open_run_below(run) or open_local_run(run):
        return None
    from tracker_health.stores.mlflow.experiment import listed_runs

    return list(islice(listed_runs([], database.uri), most)), database.runs


def parse_model_name(text: str) -> ModelName | ArtifactName:
    """What names a model, from ``models:/NAME/VERSION``, ``models:/NAME@ALIAS``, ``models:/m-...``,
    ``wandb:ENTITY/PROJECT/ARTIFACT:v3``, or the address of its page. Nothing is asked.

    Raises:
        RunNotFound: it names none.
    """
    from tracker_health.stores.mlflow.registry import model_name_of
    from tracker_health.stores.wandb.artifact import artifact_name_of

    text = text.strip()
    if named := model_name_of(text) or artifact_name_of(text):
        return named
    hint = "give models:/NAME/VERSION, models:/NAME@ALIAS, models:/m-..., or wandb:ENTITY/PROJECT/ARTIFACT:v3"
    raise RunNotFound(f"{printable(shown_name(text))} names no version of a model", hint)


def model_named(run: str | Path | Listed) -> ModelName | ArtifactName | None:
    """The model that stands where a run may stand; None where that is a run, or there is something of such a path.

    Raises:
        RunNotFound: it is meant for a model, and names none.
    """
    from tracker_health.stores.mlflow.registry import model_name_of
    from tracker_health.stores.wandb.artifact import artifact_name_of

    if not isinstance(run, str) or _is_there(text := str(_trim(run))):
        return None
    return model_name_of(text) or artifact_name_of(text)


def versions_of_model(run: str | Path | Listed, *, tracking_uri: str | None = None) -> Iterator[str] | None:
    """The versions of a registered model that is named without one (``models:/NAME``), the newest first; None for
    anything else.

    Raises:
        RunError: there is none, or the registry cannot be reached.
    """
    from tracker_health.stores.mlflow.registry import versions_of

    if not isinstance(run, str) or _is_there(text := str(_trim(run))):
        return None
    return versions_of(text, tracking_uri)


def open_model(model: str | ModelName | ArtifactName, *, tracking_uri: str | None = None) -> RegisteredModel:
    """A version of a registered model, a model that a run logged, or a version of a W&B artifact.

    ``model``: what ``parse_model_name`` takes, or gives.

    Raises:
        RunNotFound: there is none.
        RunError: the registry cannot be reached or refuses.
    """
    from tracker_health.stores.mlflow.registry import ModelName, open_mlflow_model
    from tracker_health.stores.wandb.artifact import open_artifact

    named = parse_model_name(model) if isinstance(model, str) else model
    return open_mlflow_model(named, tracking_uri) if isinstance(named, ModelName) else open_artifact(named)


def mlflow_id_of(text: str) -> str:
    """The id of the MLflow run that a text names, whatever server a page's address is of; "" where it names none.

    ``mlflow:ID``, ``runs:/ID``, the address of a page, and what looks like an id or the beginning of one.
    """
    if page := _MLFLOW_PAGE.fullmatch(text):
        return page.group(3)
    match = _MLFLOW_RUN.fullmatch(text)
    found = "" if match is None else match.group(1) or match.group(2)
    return found if found != text.rstrip("/") or re.fullmatch(r"[0-9a-f]{6,32}", found) else ""


def _refuse_what_is_no_run(text: str) -> None:
    """Say of what is known to be something else what it is."""
    if not text:
        raise RunNotFound("an empty name is no folder and no run id", "give a folder, or an MLflow run id")
    shown, kind = printable(without_userinfo(text)), text.partition(":/")[0]
    if kind in _NO_RUNS and kind != text:
        what, hint = _NO_RUNS[kind]
        raise RunNotFound(f"{shown} is {what}", hint)
    if _EXPERIMENT_PAGE.fullmatch(text):
        hint = "give the page of one of its runs, or the run's id; for all of them --experiment and this address"
        raise RunNotFound(f"{shown} is not the address of an MLflow run page but of an experiment's", hint)


def _open_named(run: str | Path, tracking_uri: str | None) -> TrackedRun:
    text = str(run)
    match = _MLFLOW_RUN.fullmatch(text)
    if isinstance(run, Path) or match is None:
        of_wandb = "" if isinstance(run, Path) else hint_on_name(text)
        hint = "give a folder, a log, a checkpoint, or an MLflow run id"
        hint = f"{hint}; of W&B: {of_wandb}" if of_wandb else hint
        raise RunNotFound(f"there is no folder or file {printable(text)}", hint)
    if match.group(1) == text and not re.fullmatch(r"[0-9a-f]{32}", text):
        from tracker_health.stores.mlflow.run import hint_on_id

        if found := _run_beginning(text, tracking_uri):
            return found
        of_wandb = hint_on_name(text)
        hint = hint_on_id(text) or f"a run with such an id is written mlflow:{printable(text)}"
        hint = f"{hint}; of W&B: {of_wandb}" if of_wandb else hint
        raise RunNotFound(f"{printable(text)} is neither a folder here nor an MLflow run id", hint)
    from tracker_health.stores.mlflow.folder import lone_run
    from tracker_health.stores.mlflow.run import open_mlflow_run

    run_id = match.group(1) or match.group(2)
    try:
        return open_mlflow_run(run_id, tracking_uri)
    except RunNotFound:
        if found := lone_run(run_id, tracking_uri) or _run_beginning(run_id, tracking_uri):
            return found
        raise


def _run_beginning(text: str, tracking_uri: str | None) -> TrackedRun | None:
    """MLflow's only run whose id begins so; None where that is too little to ask for, or nothing begins so.

    Raises:
        RunNotFound: several begin so.
        RunError: the store cannot be reached or refuses.
    """
    if not re.fullmatch(r"[0-9a-f]{6,31}", text):
        return None
    from tracker_health.stores.mlflow.experiment import listed_runs

    found = []
    with suppress(RunNotFound, MissingExtra):  # there is no store at all
        found = list(islice(listed_runs([], tracking_uri, f"attributes.run_id LIKE '{text}%'"), _MOST_ALIKE + 1))
    if len(found) > 1:
        more = ", ..." if len(found) > _MOST_ALIKE else ""
        hint = f"give more of its characters: {', '.join(map(str, found[:_MOST_ALIKE]))}{more}"
        raise RunNotFound(f"{text} is how the ids of several runs begin", hint)
    return found[0].open() if found else None


def filter_link(ref: RunRef, verdict: Verdict) -> str:
    """The address of the list of all runs with this verdict next to a run in MLflow; empty where it has no address.

    A link, since the box for filters in MLflow's page takes the first Enter for the choice of a suggestion.
    """
    page = _MLFLOW_PAGE.fullmatch(ref.url or "")
    if page is None:
        return ""
    server, experiment, _ = page.groups()
    condition = quote(f"tags.`health.verdict` = '{verdict}'", safe="")
    return f"{server}/#/experiments/{experiment}/runs?searchFilter={condition}"


def picture_link(ref: RunRef) -> str:
    """The address of the picture next to a run's report on an MLflow server; empty where the run has no address."""
    page = _MLFLOW_PAGE.fullmatch(ref.url or "")
    if page is None:
        return ""
    path = quote(f"{HEALTH_FOLDER}/{PICTURE_FILE}", safe="")
    return f"{page.group(1)}/get-artifact?path={path}&run_uuid={quote(ref.id, safe='')}"


def _trim(run: str | Path) -> str | Path:
    """The run without the spaces that copying left around it, unless there is something of exactly that name."""
    return run.strip() if isinstance(run, str) and not _is_there(run) else run


def shown_name(run: str | Path | Listed) -> str:
    """The run as it was given, a URL without its secrets."""
    return without_userinfo(str(run))


def _is_there(text: str) -> bool:
    """Whether there is something at that path.

    Raises:
        StoreRefused: a folder on the way to it may not be looked into.
    """
    try:
        return bool(text) and bool(Path(text).stat())
    except PermissionError as error:
        if _MLFLOW_RUN.fullmatch(text):  # what the current folder forbids says nothing about a run in MLflow
            return False
        raise StoreRefused(f"{printable(shown_name(text))}: no permission to look there") from error
    except (OSError, ValueError):  # also a name too long, or with a null byte: no path of anything
        return False


def store_of(text: str) -> str:
    """The kind of store that a run is looked for in."""
    named = _MLFLOW_RUN.fullmatch(text) or _MLFLOW_PAGE.fullmatch(text)
    store = "mlflow" if named else "wandb" if is_of_wandb(text) else "url" if "://" in text else word_of(text)
    return "directory" if not store or _is_there(text) else store
