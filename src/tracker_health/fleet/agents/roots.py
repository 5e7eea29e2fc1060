"""What a server for agents may look at: the folders, the MLflow store and the W&B projects that were given to it.

A model asks for what it likes, and may have been talked into it by the text of a run. So what it names is only looked
up among these, and files are read from nowhere else, wherever links lead.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tracker_health.errors import ConfigError, RunNotFound, StoreRefused
from tracker_health.stores.common.boundary import read_only_from
from tracker_health.stores.wandb.address import Project, address_of, project_of
from tracker_health.text import listing, printable

_MOST_CHARACTERS = 1_000


@dataclass(frozen=True, kw_only=True)
class Roots:
    """``folders``: resolved. ``tracking_uri``: of MLflow, "" for none. ``projects``: of W&B, each with its entity."""

    folders: tuple[Path, ...] = ()
    tracking_uri: str = ""
    projects: tuple[Project, ...] = ()

    @classmethod
    def of(cls, folders: tuple[str, ...], tracking_uri: str, projects: tuple[str, ...]) -> Roots:
        """The roots as they were given.

        Raises:
            ConfigError: none was given, a folder is not there, or a project has no entity.
        """
        if not (folders or tracking_uri or projects):
            hint = "give --root DIR, --tracking-uri URI or --project ENTITY/PROJECT"
            raise ConfigError("nothing was given that may be looked at", hint)
        for folder in folders:
            if not Path(folder).is_dir():
                raise ConfigError(f"--root {printable(folder)} is not a folder", "give one that is there")
        named = tuple(_project(one) for one in projects)
        return cls(folders=tuple(Path(one).resolve() for one in folders), tracking_uri=tracking_uri, projects=named)

    def confine(self) -> None:
        """From now on this process reads files of runs from these folders alone, and from those of a store that is on
        this machine.
        """
        read_only_from(self.folders, self.tracking_uri)

    def run(self, text: str) -> str:
        """The name of a run, as it is looked up: a path below a folder, ``mlflow:ID`` or ``wandb:ENTITY/PROJECT/RUN``.
        Of a page's address only what it says of the run counts, and never its server.

        Raises:
            RunNotFound: it names nothing that is there.
            StoreRefused: it names something outside.
        """
        from tracker_health.runs.lookup import mlflow_id_of  # here, since roots are known before the library is loaded

        text = text.strip()
        if not text or len(text) > _MOST_CHARACTERS or not text.isprintable():
            raise RunNotFound("that is no name of a run", f"one of: {self.said}")
        if path := self._path(text):
            return str(path)
        if (address := address_of(text)) is not None:
            if not self._has_project(address.entity, address.project):
                raise self._outside(text)
            return f"wandb:{address.entity}/{address.project}/{address.run}"
        if run_id := mlflow_id_of(text):
            if not self.tracking_uri:
                raise self._outside(text)
            return f"mlflow:{run_id}" if len(run_id) == 32 or ":" in text else run_id
        if "://" in text:
            raise self._outside(text)
        raise RunNotFound(f"there is no {printable(text)} here", f"a run is one of: {self.said}")

    def project(self, text: str) -> str:
        """A W&B project as it is looked up, perhaps with a sweep.

        Raises:
            RunNotFound: it names none.
            StoreRefused: it is outside.
        """
        found = project_of(text.strip())
        if not self._has_project(found.entity, found.name):
            raise self._outside(text)
        return f"{found.entity}/{found.name}" + (f"/sweeps/{found.sweep}" if found.sweep else "")

    @property
    def said(self) -> str:
        """What may be named, in words."""
        ways = ["the id of an MLflow run"] * bool(self.tracking_uri)
        ways += [f"wandb:{one.entity}/{one.name}/RUN" for one in self.projects[:3]]
        if self.folders:
            ways.append(f"a path in {listing([str(one) for one in self.folders], 3)}")
        return "; ".join(ways)

    def _path(self, text: str) -> Path | None:
        """The path that is meant, with all links followed; None where there is nothing.

        Raises:
            StoreRefused: it is there, and not below any of the folders.
        """
        outside = False
        for folder in self.folders:
            try:
                place = (folder / text).resolve(strict=True)
            except (OSError, RuntimeError, ValueError):
                continue
            if any(place.is_relative_to(one) for one in self.folders):
                return place
            outside = True
        if outside or Path(text).is_absolute():  # one that is not there is called the same: neither may be looked for
            raise self._outside(text)
        return None

    def _has_project(self, entity: str, name: str) -> bool:
        return any((one.entity, one.name) == (entity, name) for one in self.projects)

    def _outside(self, text: str) -> StoreRefused:
        said = f"{printable(text)} is outside of what this server may look at"
        return StoreRefused(said, f"a run is one of: {self.said}; whoever starts the server can give it more roots")


def _project(text: str) -> Project:
    found = project_of(text.strip())
    if not found.entity or found.sweep:
        raise ConfigError(f"--project {printable(text)} is no ENTITY/PROJECT", "write both, as in my-team/my-project")
    return found
