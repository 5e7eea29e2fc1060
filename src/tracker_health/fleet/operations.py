"""What the commands on models, servers and answers do, for Python. Each returns the document that ``--json --all``
prints.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tracker_health import api
from tracker_health.config import Config, parse_duration
from tracker_health.runs.run_config import resolve_config

if TYPE_CHECKING:
    from tracker_health.stores.found import Listed


def acknowledge(
    run: str | Path | Listed,
    *names: str,
    because: str = "",
    who: str = "",
    wrong: bool = False,
    lasts: str = "",
    undo: bool = False,
    config: Config | str = "default",
    tracking_uri: str | None = None,
) -> dict[str, Any]:
    """Answer the verdict on a run, as ``tracker-health ack`` does; the verdict stays.

    Args:
        run: As for ``check``.
        *names: Codes or names of rules, or the cause, that are meant; without any all that was found.
        because: Why; needed unless ``undo``.
        who: Who says so; by default the login of this process.
        wrong: It is a false alarm.
        lasts: How long it counts, as ``14d``; empty for until it is taken back.
        undo: Take back what was answered before.
        config: A ``Config``, or the name of a preset; only its trusted hosts count.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.

    Returns:
        The entry that was added, the run with its verdict, and which findings are ``open``.

    Raises:
        ConfigError: no reason was given, or the run has no such finding or cause.
        RunError: the run cannot be found or written to, or has no whole verdict of its present data.
    """
    until = time.time() + parse_duration(lasts) if lasts else None
    options: dict[str, Any] = {"because": because, "who": who or login(), "wrong": wrong, "until": until, "undo": undo}
    return api.acknowledge(run, names, **options, config=config, tracking_uri=tracking_uri).to_json()


def login() -> str:
    """Who runs this process; "" for a container's user without a name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


def gate(
    model: str,
    *,
    fail_on: str = "fail",
    allow_unfinished: bool = False,
    require_files: bool = False,
    accept_ack: bool = False,
    tags: bool = True,
    promote: str = "",
    timeout: str = "10m",
    config: Config | str = "default",
    tracking_uri: str | None = None,
) -> dict[str, Any]:
    """Say whether a registered model may go on, as ``tracker-health gate`` does.

    Args:
        model: ``models:/NAME/VERSION``, ``models:/NAME@ALIAS``, ``models:/m-...``, the address of a version's page, or
            ``wandb:ENTITY/PROJECT/ARTIFACT:v3``.
        fail_on: It may not with this verdict or a worse one: ``fail``, ``warn``, ``skip`` or ``never``.
        allow_unfinished: It may go on while its run does.
        require_files: It may not where its files could not be judged.
        accept_ack: What somebody has acknowledged on the run may pass.
        tags: Write the verdict and its cause onto the version.
        promote: The alias that it gets in MLflow's registry if it may go on.
        timeout: For the whole answer, as ``10m``.
        config: A ``Config``, or the name of a preset.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.

    Returns:
        The answer with its reasons. Whatever keeps the model from being judged is in it.

    Raises:
        ConfigError: a setting makes no sense.
    """
    from tracker_health.fleet.gate import gate as answer
    from tracker_health.judge.gate_decision import Rule

    rule = Rule(fail_on=fail_on, allow_unfinished=allow_unfinished, require_files=require_files)
    options: dict[str, Any] = {"accept_ack": accept_ack, "tags": tags, "promote": promote}
    seconds = parse_duration(timeout)
    return answer(model, config=config, tracking_uri=tracking_uri, rule=rule, timeout=seconds, **options).to_json()


def sweep(
    *,
    experiments: Sequence[str] = (),
    project: str = "",
    since: str = "7d",
    by: Literal["group", "parent"] | None = None,
    rejudge: bool = False,
    workers: int = 4,
    report_to: str | Path | None = None,
    config: Config | str = "default",
    tracking_uri: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Judge runs that ended without a verdict or stopped without an end, as ``tracker-health sweep`` does once.

    Args:
        experiments: Names or ids in MLflow; without any, and without ``project``, all of the server.
        project: A W&B project (``ENTITY/PROJECT``) or sweep, or ``trackio:PROJECT``, instead.
        since: Runs that ended no longer ago, as ``7d``.
        by: Also one verdict on the ranks of one training, by W&B's groups or MLflow's parent runs.
        rejudge: Judge ended runs again whose verdict is of another version of the rules.
        workers: Threads.
        report_to: Write nothing onto the runs, and the reports below this folder.
        config: A ``Config``, or the name of a preset.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.

    Returns:
        The report of each run that was judged, as it comes, and behind that of a group's head the group's verdict.
        Messages that are due are sent at the end.

    Raises:
        ConfigError: a setting makes no sense.
        RunError: the store cannot be reached, or there is no such experiment or project.
    """
    from tracker_health.fleet.sweep import Sweep

    swept = Sweep(
        config=resolve_config(config, writes=True),
        experiments=tuple(experiments),
        project=project,
        tracking_uri=tracking_uri,
        since=parse_duration(since),
        rejudge=rejudge,
        workers=workers,
        report_to=None if report_to is None else Path(report_to),
        by=by,
    )
    for one in swept.annotate(swept.candidates()):
        if one.kind not in ("taken", "unchanged"):
            yield from one.documents()
    swept.send_messages(whole=True)


def summary(
    *,
    experiment: str = "",
    project: str = "",
    where: str = "",
    since: str = "",
    by: Sequence[str] = (),
    tracking_uri: str | None = None,
) -> dict[str, Any]:
    """The verdicts over many runs from their tags alone, as ``tracker-health summary`` shows them.

    Args:
        experiment: Of MLflow; without it, and without ``project``, all of the server.
        project: A W&B project (``ENTITY/PROJECT``) or sweep, or ``trackio:PROJECT``, instead.
        where: A filter in the tracker's own language.
        since: Only runs that ended no longer ago, as ``30d``, or are still running.
        by: Also in groups: ``user``, ``experiment``, ``week``, ``code``, ``cause``, ``group``, ``sweep``, ``parent``.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.

    Returns:
        Counts of verdicts, rules and causes, the groups, and the worst runs.

    Raises:
        RunError: the store cannot be reached, or there is no such experiment or project.
    """
    moment = time.time() - parse_duration(since) if since else None
    chosen: dict[str, Any] = {"experiment": experiment, "project": project, "where": where, "since": moment}
    return api.overview_of(**chosen, by=by, tracking_uri=tracking_uri).to_json()


def baseline(
    *runs: str | Path | Listed,
    path: str | Path | None = None,
    of: str = "",
    config: Config | str = "default",
    tracking_uri: str | None = None,
) -> dict[str, Any]:
    """Freeze what is usual for runs, as ``tracker-health baseline save`` does; nothing is written onto them.

    Args:
        *runs: Each as for ``check``; those that come first are preferred.
        path: Where to keep it; None for nowhere.
        of: Where they are from, in words.
        config: A ``Config``, or the name of a preset.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.

    Returns:
        The baseline, as the file has it.

    Raises:
        ConfigError: too few runs passed and are comparable.
        OSError: the file cannot be written.
    """
    from tracker_health.report.baseline import as_text, to_json

    found = api.baseline_from(runs, of=of or "the runs that were given", config=config, tracking_uri=tracking_uri)
    if path is not None:
        Path(path).write_text(as_text(found), encoding="utf-8")
    return to_json(found)
