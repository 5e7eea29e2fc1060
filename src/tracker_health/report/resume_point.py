"""Where a run went wrong, the checkpoints that it left, and the one to go on from. Plain data, and its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tracker_health.evidence import Series, StepUnit, place_of
from tracker_health.text import count

OF_STEPS = frozenset({StepUnit.OPTIMIZER_STEP, StepUnit.UNKNOWN})
"""What an axis counts that may be one of optimizer steps."""


@dataclass(frozen=True, kw_only=True)
class Onset:
    """From where on a run was wrong, in a way that going on from an earlier checkpoint undoes.

    ``step``: the first point that was wrong, on the step axis of the series judged; ``unit``: what that axis counts.
    ``what``: what happened there, in words that follow "before", as in "the loss rose". ``is_best``: ``step`` is the
    last point that was good, as that of the best validation; ``what`` then names it: "the best validation loss".
    ``place``: the same step in words, where the owner of the run counts something else.
    """

    step: int
    what: str
    unit: StepUnit = StepUnit.UNKNOWN
    is_best: bool = False
    place: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", int(self.step))  # a rule may have it from an array

    @classmethod
    def on(cls, series: Series, step: float, what: str, *, is_best: bool = False) -> Onset:
        """An onset at a step of a series.

        Args:
            series: By which it was found.
            step: As in its ``steps``.
            what: What happened there, in words that follow "before".
            is_best: Whether it is the last point that was good.

        Returns:
            The onset, on the series' axis.
        """
        place = series.place(step)
        own = "" if place == place_of(step, series.step_unit) else place
        return cls(step=int(step), what=what, unit=series.step_unit, is_best=is_best, place=own)

    @property
    def last_good(self) -> int:
        """The last step on the same axis that is not yet wrong."""
        return self.step if self.is_best else self.step - 1

    def is_comparable(self, other: Onset) -> bool:
        """Whether both are on the same axis, as far as that is known.

        Args:
            other: Of the same run.

        Returns:
            True where their steps can be compared.
        """
        return self.unit is other.unit or {self.unit, other.unit} <= OF_STEPS

    @property
    def where(self) -> str:
        """``step 620``, ``epoch 12``, or what the owner of the run counts, in words."""
        return self.place or place_of(self.step, self.unit)

    def to_json(self) -> dict[str, Any]:
        """The onset as strict JSON values.

        Returns:
            Plain values, as a result of the report has them under ``onset``.
        """
        document = {"step": self.step, "unit": str(self.unit), "what": self.what, "is_best": self.is_best}
        return {**document, "place": self.place} if self.place else document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Onset:
        """The onset that ``to_json`` gave.

        Args:
            document: What ``to_json`` gave.

        Returns:
            The onset.

        Raises:
            KeyError: a key is missing.
        """
        return cls(
            step=document["step"],
            what=document["what"],
            unit=StepUnit(document.get("unit", "unknown")),
            is_best=document.get("is_best", False),
            place=document.get("place", ""),
        )


class Counted(NamedTuple):
    """When a checkpoint was saved, as its name or its contents say: a step, an epoch, a number of which no word says
    what it counts, and the step of the tracker's own axis.
    """

    step: int | None = None
    epoch: int | None = None
    number: int | None = None
    logged: int | None = None

    def __bool__(self) -> bool:
        return any(one is not None for one in self)

    def over(self, other: Counted) -> Counted:
        """What this says, and where it says nothing what the other does."""
        return Counted(*(mine if mine is not None else theirs for mine, theirs in zip(self, other, strict=True)))


NOTHING = Counted()


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A checkpoint of a run. ``key``: what its store knows it by; ``path``: as people name it, fit to be shown.
    ``modified``: in seconds since 1970.
    """

    key: str
    path: str
    counted: Counted = NOTHING
    modified: float | None = None


@dataclass(frozen=True, kw_only=True)
class CheckpointContents:
    """What is in a checkpoint. ``tensors``: so many were read, ``in_part`` of them not to their end. ``nonfinite``: one
    holds NaN or infinity. ``unchecked``: why that is not known, empty where it is; ``is_broken``: since it cannot be
    read. ``is_none``: it is no checkpoint of a model.
    """

    tensors: int = 0
    in_part: int = 0
    nonfinite: bool = False
    unchecked: str = ""
    is_broken: bool = False
    is_none: bool = False

    @property
    def said(self) -> str:
        """``no NaN in 148 tensors``; or ``not checked: ...``."""
        if self.unchecked:
            return f"not checked: {self.unchecked}"
        sampled = f", {self.in_part} of them in part" if self.in_part else ""
        return f"no NaN in {count(self.tensors, 'tensor')}{sampled}"


class Shelf(Protocol):
    """The checkpoints of a run, wherever they are. What goes wrong with one is in what is said of it."""

    @property
    def listed(self) -> Sequence[Saved]:
        """All of them."""

    def counted(self, saved: Saved) -> Counted:
        """When it was saved, as its contents say; a small read."""

    def look(self, saved: Saved) -> CheckpointContents:
        """Whether it holds NaN."""


@dataclass(frozen=True, kw_only=True)
class Rewind:
    """The newest checkpoint from before a run went wrong; or that there is none.

    ``path``: where it is, as the run's store names it; "" where there is none. ``step``, ``epoch``: when it was
    saved, as far as that is known. ``before``: where the run went wrong. ``checked``: "no NaN in 148 tensors", or why
    that is not known. ``passed_over``: newer ones from before, each with what is wrong with it.
    ``is_too_early``: of none: the run went wrong before a first checkpoint could have been saved.
    """

    before: Onset
    path: str = ""
    step: int | None = None
    epoch: int | None = None
    checked: str = ""
    passed_over: tuple[str, ...] = ()
    is_too_early: bool = False

    @property
    def label(self) -> str:
        """What is before it: ``go back to: ``; nothing before the sentence that there is none."""
        return "go back to: " if self.path else ""

    @property
    def said(self) -> str:
        """``outputs/checkpoint-500 (step 500, before the loss rose at step 620; no NaN in 148 tensors)``; or a sentence
        that there is none.
        """
        return f"{self.path} ({self.about})" if self.path else self._why_none

    @property
    def about(self) -> str:
        """``step 500, before the loss rose at step 620; no NaN in 148 tensors``: what there is to say of the path."""
        words = (f"{self._saved_at}{self._relation}", self.checked, *self.passed_over)
        return "; ".join(one for one in words if one)

    @property
    def _saved_at(self) -> str:
        by_epoch = self.epoch is not None and (self.before.unit is StepUnit.EPOCH or self.step is None)
        saved = f"epoch {self.epoch}" if by_epoch else f"step {self.step}" if self.step is not None else ""
        return f"{saved}, " if saved else ""

    @property
    def _relation(self) -> str:
        if self.before.is_best:
            own = self.epoch if self.before.unit is StepUnit.EPOCH else self.step
            if own == self.before.step:
                return self.before.what
            return f"not after {self.before.what} at {self.before.where}"
        return f"before {self.before.what} at {self.before.where}"

    @property
    def _why_none(self) -> str:
        since = f"{'up to' if self.before.is_best else 'from before'} {self.before.where}"
        if self.passed_over:
            return f"no checkpoint {since} is known to be good: {', '.join(self.passed_over)}"
        if self.is_too_early:
            return f"no checkpoint is {since}: it went wrong before a first one was due, so start again"
        return f"no checkpoint {since} is left; save them more often"

    def to_json(self) -> dict[str, Any]:
        """The checkpoint as strict JSON values.

        Returns:
            Plain values, as the report has them under ``rewind``.
        """
        return {
            "path": self.path or None,
            "step": self.step,
            "epoch": self.epoch,
            "before": self.before.to_json(),
            "checked": self.checked,
            "passed_over": list(self.passed_over),
            "is_too_early": self.is_too_early,
            "said": self.said,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Rewind:
        """The checkpoint that ``to_json`` gave.

        Args:
            document: What ``to_json`` gave.

        Returns:
            The checkpoint.

        Raises:
            KeyError: a key is missing.
        """
        return cls(
            before=Onset.from_json(document["before"]),
            path=document.get("path") or "",
            step=document.get("step"),
            epoch=document.get("epoch"),
            checked=document.get("checked", ""),
            passed_over=tuple(document.get("passed_over", ())),
            is_too_early=document.get("is_too_early", False),
        )
