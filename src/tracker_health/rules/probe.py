"""What a rule is: a small frozen class that declares its evidence and thresholds, explains itself, and judges."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from typing import Annotated, ClassVar, Literal, get_args, get_origin, get_type_hints

from tracker_health.errors import ConfigError, named
from tracker_health.evidence import Evidence, Need
from tracker_health.report.result import Finding
from tracker_health.text import listing, printable

Status = Literal["stable", "preview", "retired"]

SECTIONS = ("What it finds", "Why it matters", "How it decides", "Known limits", "What to do", "References")
"""The sections that every rule's docstring has, in this order, below its one-line summary."""

CASES = "Special cases"
"""The section that a docstring may have between "How it decides" and "Known limits": a line ``name: sentence.`` for
each kind of run that the rule judges otherwise than by its main criterion. Longer sentences go on in indented lines.
"""
EXAMPLE = "Worked example"
"""The section, if a rule has one, with a small history to redo by hand; a test runs it."""

_OPTIONAL = (CASES, EXAMPLE)
_BEFORE_CASES = "How it decides"
_PARAM, _GIVES = "param ", "gives"
_PARTS = frozenset(
    ("optimizer", "group", "schedule", "weights", "before", "task", "gap", "odd", "resumed", "ended", "rank")
)
_CASE = re.compile(r"([a-z][a-z0-9]*(?:-[a-z0-9]+)*): (\S.*)")

WITHOUT: ContextVar[frozenset[str]] = ContextVar("special cases that are switched off", default=frozenset())
"""Special cases, as ``CODE:name``, that no rule makes: for benchmarks that measure what each is worth."""

MEASURE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
"""What a headline measure may be called: it becomes part of a metric's name in every tracker."""


class Symptom(StrEnum):
    """What can be wrong with a training run: the fixed vocabulary."""

    NONFINITE = "nonfinite"
    COLLAPSED = "collapsed"
    DIVERGED = "diverged"
    SPIKES = "spikes"
    UNSTABLE = "unstable"
    NOT_LEARNING = "not_learning"
    UNDERTRAINED = "undertrained"
    OVERFIT = "overfit"
    DEAD = "dead"
    FROZEN = "frozen"
    VANISHING = "vanishing"
    EXPLODING = "exploding"
    STALE_GRADIENT = "stale_gradient"
    UPDATE_SIZE = "update_size"
    SCHEDULE = "schedule"
    DATA_ORDER = "data_order"
    LOG_INTEGRITY = "log_integrity"
    SCALE_COLLAPSE = "scale_collapse"
    SATURATED = "saturated"
    IDLE_REGULARISER = "idle_regulariser"
    ODD_ONE_OUT = "odd_one_out"
    KILLED = "killed"
    THROUGHPUT = "throughput"


@dataclass(frozen=True)
class Threshold:
    """A rule's tunable number: its meaning, unit and source, and the values that make sense."""

    meaning: str
    unit: str = ""
    source: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None

    def problem_with(self, value: float) -> str | None:
        """Why a value makes no sense.

        Args:
            value: A value that someone set.

        Returns:
            What is wrong with it in a few words, or None.
        """
        if self.ge is not None and not value >= self.ge:
            return f"must be at least {self.ge:g}"
        if self.gt is not None and not value > self.gt:
            return f"must be above {self.gt:g}"
        if self.le is not None and not value <= self.le:
            return f"must be at most {self.le:g}"
        return None


@dataclass(frozen=True, kw_only=True)
class Probe(ABC):
    """Base of all rules. A subclass is a frozen, keyword-only dataclass whose fields are its thresholds.

    Class variables: ``code`` (three letters and three digits, never reused), ``name`` (kebab case), ``symptom``,
    ``status``, ``since`` (version). ``vouches``: it looks at whether training worked, so that its pass means something.
    ``headline``: the measures worth a tracker metric. ``fails_on_guesses``: what it finds is wrong in any series. It
    may fail a run by a series whose role is only guessed, where other rules warn. ``kinds``: what of several things it
    found, for causes, which read no message.

    The class docstring is a one-line summary followed by the sections of ``SECTIONS``, and may have ``CASES`` and
    ``EXAMPLE``.

    Raises:
        ConfigError: a threshold's value makes no sense.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    symptom: ClassVar[Symptom]
    status: ClassVar[Status] = "stable"
    since: ClassVar[str] = "0.1.0"
    vouches: ClassVar[bool] = False
    headline: ClassVar[tuple[str, ...]] = ()
    fails_on_guesses: ClassVar[bool] = False
    kinds: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name, (kind, threshold) in thresholds_of(type(self)).items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else int):
                raise ConfigError(f"rules.{self.name}.{name} = {value!r}: must be {_KINDS[kind]}")
            problem = threshold.problem_with(value)
            if problem is not None:
                raise ConfigError(f"rules.{self.name}.{name} = {value!r}: {problem}", threshold.meaning)

    @property
    @abstractmethod
    def needs(self) -> tuple[Need, ...]:
        """The evidence this rule, with these thresholds, cannot do without."""

    @abstractmethod
    def judge(self, evidence: Evidence) -> Finding:
        """The finding; called only when the needs are met. Pure: no I/O, no clock.

        Args:
            evidence: What was read of the run. Arrays in it are not to be changed.

        Returns:
            The verdict, a sentence with the numbers, what to do, and the measures.
        """

    def case(self, name: str, applies: bool) -> bool:
        """Whether a special case of this rule applies.

        Args:
            name: Of the special case, as in the docstring.
            applies: Whether this run is one.

        Returns:
            ``applies``, and False where a benchmark has switched the case off.

        Raises:
            ValueError: the docstring names no such case.
        """
        if name not in special_cases_of(type(self)):
            raise ValueError(f"{type(self).__name__} names no special case {name!r} in its docstring")
        return applies and f"{self.code}:{name}" not in WITHOUT.get()

    @property
    def thresholds(self) -> Mapping[str, float | int]:
        """The configured values, by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


_KINDS: Mapping[type, str] = {float: "a number", int: "a whole number"}


@cache
def thresholds_of(probe: type[Probe]) -> Mapping[str, tuple[type, Threshold]]:
    """The thresholds of a rule.

    Args:
        probe: The rule's class.

    Returns:
        By name the type (int or float) and the description, in the order of their declaration.
    """
    found = {}
    for name, hint in get_type_hints(probe, include_extras=True).items():
        if get_origin(hint) is Annotated:
            kind, *metadata = get_args(hint)
            found[name] = (kind, next(one for one in metadata if isinstance(one, Threshold)))
    return found


@dataclass(frozen=True)
class WorkedExample:
    """A small run to redo by hand: the values of each role, the run's params, the verdict, and the sum in words.

    ``parts``: what else the run left, each line by what comes before its colon. Of the optimizer: ``optimizer NAME``,
    ``group NAME`` (settings of the parameters whose names begin so), ``schedule`` (a saved scheduler). Of the weights:
    ``weights NAME``, ``before NAME`` (of the checkpoint before), ``task`` (of an adapter). Of a tensor's statistics:
    ``gap KIND/NAME``. Of the log: ``odd NAME`` (a metric that no other rule looks at), ``resumed`` (steps), ``ended``.
    Of a training of several ranks: ``rank NUMBER`` (the training loss that it logged), or ``rank NUMBER ROLE``.
    ``gives``: measures of the finding, with the numbers that come out.
    """

    series: Mapping[str, tuple[float, ...]]
    params: Mapping[str, str]
    parts: Mapping[str, str]
    gives: Mapping[str, float]
    verdict: str
    why: str


@dataclass(frozen=True)
class Explanation:
    """A rule's docstring, taken apart: the summary, the text of each section, the sentence on each special case, and
    the worked example.
    """

    summary: str
    sections: Mapping[str, str]
    cases: Mapping[str, str] = field(default_factory=dict)
    example: WorkedExample | None = None


@cache
def explanation_of(probe: type[Probe]) -> Explanation:
    """The one source of ``explain`` and of the generated pages.

    Args:
        probe: The rule's class.

    Returns:
        The docstring, taken apart.

    Raises:
        ValueError: the docstring lacks a section, or its special cases are not written as such.
    """
    document = inspect.cleandoc(probe.__doc__ or "")
    head, *parts = re.split(rf"^({'|'.join((*SECTIONS, *_OPTIONAL))}):?$\n", document, flags=re.MULTILINE)
    sections = {title: inspect.cleandoc(body).strip() for title, body in zip(parts[::2], parts[1::2], strict=True)}
    titles = list(sections)
    cases, example = sections.pop(CASES, None), sections.pop(EXAMPLE, None)
    if tuple(sections) != SECTIONS:
        raise ValueError(f"{probe.__name__}: its docstring has the sections {list(sections)}, not {list(SECTIONS)}")
    if cases is not None and titles[titles.index(CASES) - 1] != _BEFORE_CASES:
        raise ValueError(f'{probe.__name__}: "{CASES}" does not come after "{_BEFORE_CASES}"')
    return Explanation(
        head.strip(),
        sections,
        _cases_in(cases, probe.__name__) if cases is not None else {},
        _example_in(example, probe.__name__) if example is not None else None,
    )


def _example_in(text: str, where: str) -> WorkedExample:
    """The worked example in the section's text: a line ``role: values`` for each series (``role name: values`` where
    the name counts), ``param NAME: value`` for each param, a line for each other part, ``gives: measure number, ...``,
    and last ``verdict: why``.

    Raises:
        ValueError: it is not written so.
    """
    entries = [line.partition(": ") for line in re.sub(r"\n[ \t]+", " ", text).splitlines()]
    *lines, (verdict, _, why) = entries
    parts = {key: value for key, _, value in lines if key.partition(" ")[0] in _PARTS}
    params = {key.removeprefix(_PARAM): value for key, _, value in lines if key.startswith(_PARAM)}
    said = next((value for key, _, value in lines if key == _GIVES), "")
    try:
        gives = {name: float(value) for name, value in (one.split() for one in said.split(", ") if one)}
        values = {
            key: tuple(float(one) for one in numbers.split())
            for key, _, numbers in lines
            if key not in parts and key != _GIVES and not key.startswith(_PARAM)
        }
    except ValueError as error:
        raise ValueError(f'{where}: under "{EXAMPLE}" stands no number: {error}') from error
    if not (values or parts) or verdict not in ("pass", "warn", "fail") or not why.endswith("."):
        raise ValueError(f'{where}: "{EXAMPLE}" is not "role: values", and at last "pass, warn or fail: why."')
    return WorkedExample(values, params, parts, gives, verdict, why)


def special_cases_of(probe: type[Probe]) -> Mapping[str, str]:
    """The special cases of a rule.

    Args:
        probe: The rule's class.

    Returns:
        By name the sentence on it, in the order of the docstring.
    """
    return explanation_of(probe).cases


def _cases_in(text: str, where: str) -> dict[str, str]:
    """The special cases in the section's text.

    Raises:
        ValueError: a line is none, a sentence does not end, a name comes twice, or there is none.
    """
    cases: dict[str, str] = {}
    # A line that is indented continues the one before.
    for entry in re.sub(r"\n[ \t]+", " ", text).splitlines():
        found = _CASE.fullmatch(entry.strip())
        if found is None or not entry.endswith("."):
            raise ValueError(f'{where}: under "{CASES}" stands {entry[:80]!r}, not "name: sentence."')
        if found.group(1) in cases:
            raise ValueError(f"{where}: the special case {found.group(1)!r} is there twice")
        cases[found.group(1)] = found.group(2)
    if not cases:
        raise ValueError(f'{where}: its docstring says nothing under "{CASES}"')
    return cases


def flaw_in(candidate: object) -> str | None:
    """What keeps a thing from being a rule that can be listed, explained, configured and run.

    Args:
        candidate: Anything, mostly a class.

    Returns:
        What is wrong in a few words, or None for a sound rule.
    """
    if not (isinstance(candidate, type) and issubclass(candidate, Probe)):
        return f"{getattr(candidate, '__qualname__', repr(candidate))} is no subclass of tracker_health.Probe"
    try:
        found = _flaw_in_class(candidate) or _flaw_in_thresholds(candidate) or _flaw_in_defaults(candidate)
    except Exception as error:  # noqa: BLE001  type hints that do not resolve, a docstring without its sections, ...
        found = named(error)
    return f"{candidate.__qualname__}: {found}" if found else None


def _flaw_in_class(probe: type[Probe]) -> str | None:
    if inspect.isabstract(probe):
        return f"it does not define {listing(sorted(probe.__abstractmethods__))}"
    for name, form, example in (
        ("code", r"[A-Z]{3}[0-9]{3}", "three capital letters and three digits"),
        ("name", r"[a-z]+(-[a-z0-9]+)*", "words in small letters with hyphens between them"),
    ):
        value = getattr(probe, name, None)
        if not isinstance(value, str) or not re.fullmatch(form, value):
            return f"its {name} is {value!r}, not {example}"
    if not isinstance(getattr(probe, "symptom", None), Symptom):
        return "its symptom is no member of tracker_health.Symptom"
    if probe.status not in get_args(Status):
        return f"its status is {probe.status!r}, not one of {', '.join(get_args(Status))}"
    if not isinstance(probe.headline, tuple) or not all(map(_is_measure, probe.headline)):
        given = printable(repr(probe.headline))
        return f"its headline is {given}, not a tuple of names (100 letters, digits and underscores at most)"
    empty = [title for title, text in explanation_of(probe).sections.items() if not text]
    return f"its docstring says nothing under {listing(empty)}" if empty else None


def _is_measure(name: object) -> bool:
    return isinstance(name, str) and bool(MEASURE_NAME.fullmatch(name))


def _flaw_in_thresholds(probe: type[Probe]) -> str | None:
    known = thresholds_of(probe)
    missing = known.keys() ^ {one.name for one in fields(probe)}
    if missing:
        return f"{listing(sorted(missing))}: a threshold is a field of a dataclass, Annotated with a Threshold"
    for name, (kind, threshold) in known.items():
        if kind not in _KINDS:
            return f"the threshold {name} is neither a float nor an int"
        if not hasattr(probe, name):
            return f"the threshold {name} has no default"
        if not (threshold.meaning and threshold.source):
            return f"the threshold {name} does not say its meaning and source"
    return None


def _flaw_in_defaults(probe: type[Probe]) -> str | None:
    needs = probe().needs
    if not isinstance(needs, tuple) or not all(isinstance(one, Need) for one in needs):
        return f"its needs are {needs!r}, not a tuple of tracker_health.Need"
    return None
