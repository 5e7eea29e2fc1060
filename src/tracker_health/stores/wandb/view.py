"""A saved view of a W&B project with the verdicts: their columns, the runs that failed, and their reports.

It is made by W&B's own ``wandb-workspaces``, which says what a view's description looks like on the server.
"""

from __future__ import annotations

import json
from typing import Any

from tracker_health.errors import ConfigError, optional_packages
from tracker_health.stores.wandb.address import Project, project_of
from tracker_health.stores.wandb.connection import connect
from tracker_health.stores.wandb.values import OWN_KEY
from tracker_health.text import printable
from tracker_health.words.verdict import Verdict

NAME = "Training health"
COLUMNS = tuple(f"{OWN_KEY}{name}" for name in ("verdict", "cause", "open", "action", "codes", "summary"))
"""The keys of a run's summary that the table of runs shows."""

VERDICTS = (Verdict.FAIL, Verdict.WARN)
"""Of which runs."""

_SEVERITY = f"{OWN_KEY}severity"
_PANELS = {"picture": "Loss curves", "report": "Reports"}
"""The keys of media, as ``media.MEDIA_KEYS`` has them, and what their panels are called."""


class UnsavedView:
    """A view that is not saved yet."""

    def __init__(self, project: Project, name: str) -> None:
        """Raises: MissingExtra: ``wandb-workspaces`` is not installed; ConfigError: a view cannot have that name."""
        self._project, self._name = project, name
        self._workspace = _workspace(project, name)

    @property
    def spec(self) -> dict[str, Any]:
        """What would be sent, as plain values."""
        model = self._workspace._to_model()  # noqa: SLF001  the only place that has it before it is sent
        spec: dict[str, Any] = json.loads(model.spec.model_dump_json(by_alias=True, exclude_none=True))
        return spec

    def lines(self) -> list[str]:
        """The same in words."""
        place = "/".join(filter(None, (self._project.entity or "(your entity)", self._project.name)))
        return [
            f"view {printable(self._name)!r} of {printable(place)}",
            f"columns: {', '.join(COLUMNS)}",
            f"runs: whose {COLUMNS[0]} is {' or '.join(VERDICTS)}, the worst first, then the newest",
            f"panels: {', '.join(_PANELS.values())}, and in what the runs differ",
        ]

    def save(self) -> str:
        """Make the view; its address.

        Raises:
            RunError: the server cannot be asked, or does not make it.
        """
        connection = connect(self._project.server)
        entity, name = self._project.entity or connection.own_entity(), self._project.name
        self._workspace.entity = entity

        def saved() -> str:
            self._workspace.save()
            return str(self._workspace.url)

        return str(connection.changed(f"the view of the W&B project {printable(f'{entity}/{name}', 200)}", saved))


def view_of(project: str, name: str = NAME) -> UnsavedView:
    """The view of a project.

    Args:
        project: ``ENTITY/PROJECT``, ``PROJECT`` of the user's own, or the address of its page.
        name: What W&B's pages call it.

    Returns:
        A view to look at, or to save.

    Raises:
        RunNotFound: that names no project.
        ConfigError: it names a sweep, or a view cannot have that name.
        MissingExtra: ``wandb-workspaces`` is not installed.
    """
    found = project_of(project)
    if found.sweep:
        raise ConfigError("a view is of a whole project, and this names a sweep", "leave out /sweeps/ID")
    return UnsavedView(found, name)


def _workspace(project: Project, name: str) -> Any:
    with optional_packages("wandb-view"):
        from wandb_workspaces import expr, workspaces
        from wandb_workspaces.reports import v2

    panels: Any = v2  # whose names a type checker does not see
    shown = [panels.MediaBrowser(title=title, media_keys=[f"{OWN_KEY}{key}"]) for key, title in _PANELS.items()]
    runs = workspaces.RunsetSettings(
        filters=expr.And(expr.Summary(COLUMNS[0]).isin(list(map(str, VERDICTS)))),
        order=[
            expr.Ordering(expr.Summary(_SEVERITY), ascending=False),
            expr.Ordering(expr.Metric("CreatedTimestamp"), ascending=False),
        ],
        pinned_columns=[f"summary:{key}" for key in COLUMNS],
    )
    sections = [workspaces.Section(name=NAME, panels=[*shown, panels.RunComparer(diff_only=True)], is_open=True)]
    try:
        return workspaces.Workspace(
            entity=project.entity, project=project.name, name=name, sections=sections, runset_settings=runs
        )
    except ValueError:  # pydantic's, of many lines
        raise ConfigError(f"a view cannot have the name {printable(name)!r}", "use letters and digits") from None
