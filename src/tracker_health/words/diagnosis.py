"""What a diagnosis says of a run: one cause, how sure it is, what it explains, and one thing to do. Plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from tracker_health.text import printable, sentence, setting

Certainty = Literal["certain", "likely", "possible", "unknown"]
Value = float | str


@dataclass(frozen=True, kw_only=True)
class Action:
    """One thing to do: a setting from what to what, or what to look at.

    ``text``: in words, always there. ``setting``: its name, empty where no setting is at fault. ``old`` and ``new``:
    its values, None where they are not known. ``param``: what the run's own params call it, empty where they do not
    have it.
    """

    text: str
    setting: str = ""
    old: Value | None = None
    new: Value | None = None
    param: str = ""

    @property
    def change(self) -> str:
        """``learning_rate: 3 -> 0.01``; empty where not both values of a setting are known."""
        if not self.setting or self.old is None or self.new is None:
            return ""
        return f"{printable(self.param, 60) or self.setting}: {_shown(self.old)} -> {_shown(self.new)}"

    @property
    def in_short(self) -> str:
        """The change of a setting where there is one, else the text."""
        return self.change or self.text

    @property
    def explained(self) -> str:
        """What the text says besides the change; empty where that is all."""
        values = [_shown(one) for one in (self.old, self.new) if one is not None]
        return "" if not self.change or all(one in self.text for one in values) else self.text

    def to_json(self) -> dict[str, Any]:
        known = {"from": _finite(self.old), "to": _finite(self.new), "param": self.param}
        return {"text": self.text, "setting": self.setting, **known}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Action:
        return cls(
            text=document["text"],
            setting=document.get("setting", ""),
            old=document.get("from"),
            new=document.get("to"),
            param=document.get("param", ""),
        )


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """Another cause that could explain the run, and what would distinguish the two."""

    cause: str
    test: str
    score: float = 0


@dataclass(frozen=True, kw_only=True)
class SignSeen:
    """A sign of the cause that the run shows: its name, what it looks at, and its weight."""

    name: str
    looks_at: str
    weight: float


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The cause that explains a run best.

    ``sentence``: what clearly happened, and the cause in words that are as sure as it is. ``about``: the code of the
    finding that heads it. ``explains``: the codes of the findings that are its evidence, in
    the order of time. ``others``: what else could explain them, the most likely first. ``signs``: by what the cause is
    known here; their weights add up to ``score``.
    """

    cause: str
    certainty: Certainty
    sentence: str
    action: Action
    about: str = ""
    explains: tuple[str, ...] = ()
    others: tuple[Alternative, ...] = ()
    signs: tuple[SignSeen, ...] = ()
    score: float = 0

    @property
    def named(self) -> str:
        """The cause where it is certain or likely, so that filters by it stay clean; else empty."""
        return self.cause if self.certainty in ("certain", "likely") else ""

    @property
    def headline(self) -> str:
        """``learning-rate-too-high (likely): A learning rate of ...``."""
        return f"{self.cause} ({self.certainty}): {self.sentence}"

    def to_json(self) -> dict[str, Any]:
        """The diagnosis as strict JSON values.

        Returns:
            Plain values, as the report has them under ``diagnosis``.
        """
        return {
            "cause": self.cause,
            "certainty": self.certainty,
            "sentence": self.sentence,
            "action": self.action.to_json(),
            "about": self.about,
            "explains": list(self.explains),
            "others": [{"cause": one.cause, "test": one.test, "score": one.score} for one in self.others],
            "signs": [{"name": one.name, "looks_at": one.looks_at, "weight": one.weight} for one in self.signs],
            "score": self.score,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Diagnosis:
        """The diagnosis that ``to_json`` gave.

        Args:
            document: What ``to_json`` gave.

        Returns:
            The diagnosis.

        Raises:
            KeyError: a key is missing.
        """
        return cls(
            cause=document["cause"],
            certainty=cast("Certainty", document["certainty"]),
            sentence=document["sentence"],
            action=Action.from_json(document["action"]),
            about=document.get("about", ""),
            explains=tuple(document.get("explains", ())),
            others=tuple(
                Alternative(cause=one["cause"], test=one["test"], score=one.get("score", 0))
                for one in document.get("others", ())
            ),
            signs=tuple(
                SignSeen(name=one["name"], looks_at=one["looks_at"], weight=one["weight"])
                for one in document.get("signs", ())
            ),
            score=document.get("score", 0),
        )


def in_words(fact: str, clause: str, certainty: str) -> str:
    """What clearly happened, and its cause: stated where it is certain, else as likely as it is.

    Args:
        fact: Of a finding, without a full stop.
        clause: The cause, as a main clause.
        certainty: Of ``Certainty``.

    Returns:
        A sentence or two.
    """
    match certainty:
        case "certain":
            return f"{sentence(fact)} {sentence(clause)}"
        case "likely":
            return f"{sentence(fact)} {sentence(f'most likely {clause}')}"
        case "possible":
            return f"{sentence(fact)} {sentence(f'it may be that {clause}')}"
    return sentence(f"{fact}; {clause}")


def _shown(value: Value) -> str:
    return printable(value, 60) if isinstance(value, str) else setting(value)


def _finite(value: Value | None) -> Value | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value
