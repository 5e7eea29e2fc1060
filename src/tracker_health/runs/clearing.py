"""What is ours on runs and on models: counted, and taken off again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

from tracker_health.errors import LeftAlone
from tracker_health.judge.gate_decision import NOTE_BEGINS, ours_of_gate
from tracker_health.runs.lookup import model_named, open_model, open_run, versions_of_model
from tracker_health.stores.base import Cleared, Ours
from tracker_health.stores.common.note_block import block_of, with_note
from tracker_health.stores.found import Listed, RegisteredModel

MODEL, ARTIFACT = "model", "artifact"


class OursOn(NamedTuple):
    """What of ours is on something. ``kind``: the store of a run, as its ``RunRef`` has it, or what model it is."""

    kind: str
    ours: Ours


class _Marked(Protocol):
    def ours(self) -> Ours: ...

    def clear(self, *, acks: bool = False) -> Cleared: ...

    def close(self) -> None: ...


class _MarkedModel:
    """A model, as something that may have marks of ours: those of the gate."""

    def __init__(self, model: RegisteredModel) -> None:
        self._model = model
        self.close = model.close

    def ours(self) -> Ours:
        return Ours(tags=len(ours_of_gate(self._model.tags)))

    def clear(self, *, acks: bool = False) -> Cleared:  # noqa: ARG002  nobody answers a gate on the model itself
        found = ours_of_gate(self._model.tags)
        if found and block_of(self._model.description or "").startswith(NOTE_BEGINS):
            self._model.describe(_without_note)
        self._model.tag(dict.fromkeys(found, ""))
        return Cleared(found=bool(found))


def _without_note(text: str) -> str:
    return with_note(text, "") if block_of(text).startswith(NOTE_BEGINS) else text


def count_ours(run: str | Path | Listed, tracking_uri: str | None = None) -> OursOn:
    """What of ours is on a run or a model, as its record says. Nothing is written.

    ``run``: as for ``open_run``, or a model as for ``open_model``.

    Raises:
        RunError: it cannot be found.
    """
    kind, opened = _open(run, tracking_uri)
    with closing(opened):
        return OursOn(kind, opened.ours())


def clear_ours(run: str | Path | Listed, tracking_uri: str | None = None, *, acks: bool = False) -> Cleared:
    """Take everything tracker-health wrote off a run or a model, and nothing else. ``run``: as for ``count_ours``.

    Raises:
        RunError: it cannot be found, or not be written to.
    """
    _, opened = _open(run, tracking_uri)
    with closing(opened):
        try:
            return opened.clear(acks=acks)
        except LeftAlone:
            ours = opened.ours()
            if ours.found or (acks and ours.acks):
                raise
            return Cleared(found=False, acks=ours.acks)


def _open(run: str | Path | Listed, tracking_uri: str | None) -> tuple[str, _Marked]:
    if (named := model_named(run)) is not None:
        kind = ARTIFACT if named.shown.startswith("wandb:") else MODEL
        return kind, _MarkedModel(open_model(named, tracking_uri=tracking_uri))
    opened = open_run(run, tracking_uri=tracking_uri)
    return opened.ref.store, opened


def each_version(run: str | Path | Listed, tracking_uri: str | None = None) -> list[str | Path | Listed]:
    """The versions of a registered model that is named without one, the newest first; anything else itself.

    Raises:
        RunError: there is no such model, or the registry cannot be reached.
    """
    versions = versions_of_model(run, tracking_uri=tracking_uri)
    return [run] if versions is None else [*versions]
