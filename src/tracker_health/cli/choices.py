"""What the options of a call come to: the configuration in force, and the runs that it is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from tracker_health.errors import ConfigError, RunError
from tracker_health.terminal import lines_of_input, say_error
from tracker_health.text import printable

if TYPE_CHECKING:
    from tracker_health.settings.sources import Effective
    from tracker_health.stores.found import Listed

_BRIEF_ABOVE = 5
WORKERS_OF_BATCH = 4


def settings_of(choices: dict[str, Any], fail_on: str = "never", *, writes: bool = False) -> Effective:
    """The configuration in force; what it says of ``fail_on``, or else this, is put into the choices, and so is
    ``docs_url``. ``writes``: verdicts are written by it.
    """
    from tracker_health.settings.sources import effective

    settings = effective(choices, config_file=choices["config_file"], writes=writes)
    for warning in settings.warnings:
        say_error(warning)
    choices["fail_on"] = settings.fail_on or fail_on
    choices["docs_url"] = settings.config.docs_url
    return settings


def _listed(runs: Iterable[str]) -> list[str]:
    """The runs as given, with - replaced by the lines of standard input."""
    listed: list[str] = []
    for run in runs:
        listed += lines_of_input() if run == "-" else [run]
    if not listed:
        raise ConfigError("no run was given", "name a folder or a run id")
    return listed


def only_run(run: str, command: str) -> str:
    """The one run that was named.

    Raises:
        ConfigError: there are several.
    """
    listed = _listed([run])
    if len(listed) > 1:
        raise ConfigError(f"{command} shows one run at a time", "name one run")
    return listed[0]


class RunQuery(NamedTuple):
    """Runs that are named together."""

    experiment: str
    project: str
    where: str

    @property
    def name(self) -> str:
        """What they are the runs of, empty for nothing."""
        if self.experiment:
            return f"Experiment {self.experiment}"
        return f"Project {self.project}" if self.project else ""


def refuse_both(experiment: object, project: object) -> None:
    """One of the two is enough.

    Raises:
        ConfigError: both are named.
    """
    if experiment and project:
        raise ConfigError("an experiment is of MLflow and a project of W&B", "name one of the two")


def batch_of(choices: dict[str, Any], *, needs_name: bool = True) -> RunQuery:
    """What of the choices names many runs at once, which is taken out of them. ``needs_name``: a filter without one
    makes no sense.
    """
    batch = RunQuery(*(choices.pop(name) or "" for name in ("experiment", "project", "where")))
    refuse_both(batch.experiment, batch.project)
    if needs_name and batch.where and not batch.name:
        hint = "name one with --experiment or --project"
        raise ConfigError("--where filters the runs of an experiment or a project", hint)
    return batch


class ChosenRuns(NamedTuple):
    """The runs that a command is about. ``total``: how many, None where that is seen at the end. ``named``: it is one
    run, and was named as such.
    """

    runs: Iterable[str | Listed]
    total: int | None
    named: bool = False

    @property
    def many(self) -> bool:
        return self.total is None or self.total > _BRIEF_ABOVE

    def kept(self) -> ChosenRuns:
        """The same, to be gone through more than once."""
        return self._replace(runs=list(self.runs))


def chosen_runs(runs: Iterable[str], batch: RunQuery, settings: Effective, *, newest: bool = False) -> ChosenRuns:
    """The runs as given, and those of the batch, which are found while the first of them are done. ``newest``: the file
    of a database stands for its newest runs.
    """
    from tracker_health.api import runs_of_experiment, runs_of_project

    given = tuple(runs)
    listed: list[str | Listed] = [*_listed(given)] if given or not batch.name else []
    if newest:
        listed = [one for run in listed for one in _newest_of(run)]
    found: Iterator[str | Listed] = iter(())
    if batch.experiment:
        found = runs_of_experiment(batch.experiment, tracking_uri=settings.tracking_uri, where=batch.where)
    elif batch.project:
        found = runs_of_project(batch.project, where=batch.where)
    listed += islice(found, _BRIEF_ABOVE + 1)
    more = list(islice(found, 1))
    named = len(given) == 1 and given[0] != "-" and len(listed) == 1
    return ChosenRuns(chain(listed, more, found), None if more else len(listed), named)


def _newest_of(run: str | Listed) -> list[str | Listed]:
    """The newest runs of a database; of all else itself, also where the database cannot be opened: that is then said of
    it as of any run.
    """
    from tracker_health.runs.lookup import newest_runs

    try:
        found = newest_runs(run) if isinstance(run, str) else None
    except RunError:
        found = None
    if found is None:
        return [run]
    runs, total = found
    if total > len(runs):
        hint = "name others by their id, or all of an experiment, with --tracking-uri"
        say_error(f"{printable(str(run))} has {total} runs: the newest {len(runs)} are judged", hint)
    return [*runs]


def workers_of(choices: dict[str, Any], batch: RunQuery) -> int:
    """How many threads: several where there are many runs, most likely of a server, one for folders named singly."""
    wanted: int | None = choices.pop("workers")
    return wanted or (WORKERS_OF_BATCH if batch.name else 1)
