"""What is usual for runs of a kind: the band of those that passed, and the params in which a run differs. Pure."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tracker_health.errors import ConfigError
from tracker_health.evidence import CHARACTERS, SHARES, Baseline, Course, Sibling, Usual
from tracker_health.evidence.numerics import median
from tracker_health.text import as_written, contrast, count, number, printable, setting

SCHEMA = "tracker-health/baseline/1"
FEWEST_RUNS = 5
"""Of fewer runs there is no band."""

MOST_RUNS = 50
"""Runs are enough for a band."""

_AS_LONG = 2.0  # times the median length, or a part of it
_MOST_LEFT_OUT, _MOST_PARAMS, _MOST_VALUES = 500, 300, 20
_SHOWN = 60
_MOST_DIFFERENCES = 10
WHAT_IS_TRAINED = (
    "model", "model_name", "model_name_or_path", "base_model", "architecture", "arch", "dataset", "dataset_name",
    "task", "task_name", "num_classes", "loss", "loss_fn", "criterion",
)  # fmt: skip
"""Params that say what is trained on what: runs that differ in one of these are not meant to be alike."""

OF_THE_DATA = re.compile(
    r"(?i)(^|[._/-])(data(set)?s?([./_-](name|path|dir|root|version|files?|split|config))?|train([./_-]|ing[./_-])?(file|data|set|path|split)"
    r"|n[._-]?train|num[._-]?train[._-]?samples|corpus)$"
)
"""Params that say which samples a run is trained on."""

UNLIKE_EACH_TIME = re.compile(r"(?i)(^|[._-])(seed|id|port|pid|rank|host|hostname|time|date|name|dir|path|file)$")
"""Params that differ from run to run, and say nothing of why."""

_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A run that a baseline may be made of. ``why_not``: the reason for which it cannot be, empty for none.
    ``sibling``: the same for a comparison with it alone; None where it cannot be read.
    """

    id: str
    course: Course | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    why_not: str = ""
    sibling: Sibling | None = None


def siblings_among(candidates: Sequence[Candidate]) -> tuple[Sibling, ...]:
    """The runs of a comparison without a band.

    Args:
        candidates: The runs that were named, or those of an experiment.

    Returns:
        All of up to four, else those that passed; none where there are enough for a band, or none can be read.
    """
    if len(_comparable(candidates)[0]) >= FEWEST_RUNS:
        return ()
    passed = candidates if len(candidates) < FEWEST_RUNS else [one for one in candidates if not one.why_not]
    return tuple(one.sibling for one in passed if one.sibling is not None)[: FEWEST_RUNS - 1]


def baseline_of(candidates: Iterable[Candidate], of: str) -> Baseline:
    """What is usual for the most of these runs that are comparable to each other.

    Args:
        candidates: The runs, those first that are to be taken first.
        of: Where they are from, in words.

    Returns:
        The baseline of the first ``MOST_RUNS`` comparable ones.

    Raises:
        ConfigError: there are fewer than ``FEWEST_RUNS``.
    """
    runs, left_out = _comparable(list(candidates))
    if len(runs) < FEWEST_RUNS:
        reasons = Counter(why for _, why in left_out).most_common(3)
        said = "; ".join(f"{why} ({count(many, 'run')})" for why, many in reasons)
        message = (
            f"{printable(of)}: a baseline needs {FEWEST_RUNS} comparable runs that passed, and {len(runs)} are there"
        )
        raise ConfigError(message, said or "name other runs")
    courses = [course for _, course in runs]
    low, middle, high = _band(courses)
    ends = np.array([course.end for course in courses])
    made = Baseline(
        of=printable(of, CHARACTERS),
        metric=courses[0].metric,
        shortest=min(course.length for course in courses),
        longest=max(course.length for course in courses),
        descent=median([course.start - course.end for course in courses]),
        low=low,
        middle=middle,
        high=high,
        end=(float(ends.min()), median(ends), float(ends.max())),
        alike=_alike([one.params for one, _ in runs]),
        params=_usual_params([one.params for one, _ in runs]),
        runs=tuple(printable(one.id, CHARACTERS) for one, _ in runs),
        left_out=tuple((printable(name, CHARACTERS), printable(why, CHARACTERS)) for name, why in left_out),
    )
    return replace(made, digest=digest_of(made))


def _comparable(
    candidates: Sequence[Candidate],
) -> tuple[list[tuple[Candidate, Course]], list[tuple[str, str]]]:
    """The runs that are comparable to most of the others, and why the rest is not."""
    left_out: list[tuple[str, str]] = []
    kept: list[tuple[Candidate, Course]] = []
    for one in candidates:
        why = one.why_not or ("" if one.course is not None else "it has no loss with enough points")
        if not why and one.course is not None and math.isfinite(one.course.start - one.course.end):
            kept.append((one, one.course))
        else:
            left_out.append((one.id, why or "its loss is not finite"))

    def keep(value: Callable[[Candidate, Course], str], word: str) -> None:
        """Leave out the runs whose value is not the most frequent one."""
        nonlocal kept
        usual = _most_frequent([value(*pair) for pair in kept])
        odd = [pair for pair in kept if value(*pair) != usual]
        left_out.extend((one.id, f"its {word} is not {printable(usual, _SHOWN) or 'unset'}") for one, _ in odd)
        kept = [pair for pair in kept if value(*pair) == usual]

    keep(lambda _, course: course.metric, "loss")
    for name in WHAT_IS_TRAINED:
        keep(lambda one, _, name=name: one.params.get(name, ""), name)  # type: ignore[misc]
    if kept:
        usual = median([float(course.length) for _, course in kept])
        far = [one for one in kept if not usual / _AS_LONG <= one[1].length <= usual * _AS_LONG]
        left_out += [(one.id, f"it has {course.length} steps, the others about {number(usual)}") for one, course in far]
        kept = [one for one in kept if one not in far]
    left_out += [(one.id, f"{MOST_RUNS} others are enough") for one, _ in kept[MOST_RUNS:]]
    return kept[:MOST_RUNS], left_out[:_MOST_LEFT_OUT]


def _most_frequent(values: Sequence[str]) -> str:
    return Counter(values).most_common(1)[0][0] if values else ""


def _band(courses: Sequence[Course]) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """The lowest, median and highest level at each part of the plan that enough runs reached."""
    table = np.array([course.levels for course in courses])
    found = np.full((3, SHARES), np.nan)
    for at, column in enumerate(table.T):
        there = column[np.isfinite(column)]
        if len(there) >= FEWEST_RUNS:
            found[:, at] = there.min(), median(there), there.max()
    low, middle, high = (tuple(row.tolist()) for row in found)
    return low, middle, high


def _alike(params: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {name: params[0][name][:CHARACTERS] for name in WHAT_IS_TRAINED if params[0].get(name)}


def _usual_params(params: Sequence[Mapping[str, str]]) -> dict[str, Usual]:
    """The values of each param that most runs have."""
    names = Counter(name for one in params for name in one)
    told = sorted(name for name, many in names.items() if 2 * many > len(params))[:_MOST_PARAMS]
    return {name[:CHARACTERS]: _usual([one[name] for one in params if name in one]) for name in told}


def _usual(values: Sequence[str]) -> Usual:
    often = Counter(value[:CHARACTERS] for value in values)
    shown = tuple(sorted(often.items(), key=lambda one: (-one[1], one[0]))[:_MOST_VALUES])
    numbers = [_number(value) for value in values]
    known = [one for one in numbers if one is not None]
    return Usual(values=shown, low=min(known), high=max(known)) if len(known) == len(values) else Usual(values=shown)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


class Difference(NamedTuple):
    """A param in which a run differs from healthy ones, in words. ``telling``: how much that says."""

    name: str
    own: str
    usual: str
    telling: float

    def __str__(self) -> str:
        return f"{self.name} is {self.own}, in healthy runs {self.usual}"


def differences(params: Mapping[str, str], baseline: Baseline) -> list[Difference]:
    """The params in which a run differs from healthy ones.

    A number outside of theirs is as telling as it is far away, in powers of ten. Another value is as telling as they
    agree.

    Args:
        params: The run's.
        baseline: Of the healthy runs.

    Returns:
        The differences, most telling first, ten at most.
    """
    found = []
    for name, usual in baseline.params.items():
        if UNLIKE_EACH_TIME.search(name):
            continue
        telling = _telling(params.get(name), usual)
        if telling > 0:
            own = printable(params[name], _SHOWN) if name in params else "not set"
            found.append(Difference(printable(name, _SHOWN), own, in_words(usual), telling))
    return sorted(found, key=lambda one: (-one.telling, one.name))[:_MOST_DIFFERENCES]


class SettingBeside(NamedTuple):
    """A setting of a run, and the same of others, as text."""

    name: str
    own: str
    others: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} is {self.own}, there {' and '.join(self.others)}"


def settings_beside(own: Mapping[str, str], others: Sequence[Mapping[str, str]]) -> tuple[list[SettingBeside], int]:
    """The settings in which a run differs from any of some others.

    Args:
        own: The run's settings.
        others: Those of the other runs.

    Returns:
        The settings that differ, most telling first; then those that one run lacks, and last those that differ each
        time. And how many are the same.
    """
    names = sorted({*own, *(name for one in others for name in one)})
    found = [name for name in names if any(_differ(own.get(name), one.get(name)) for one in others)]

    def order(name: str) -> tuple[bool, bool, float, str]:
        there = [one[name] for one in others if name in one]
        telling = _telling(own.get(name), _usual(there)) if there else 0.0
        return bool(UNLIKE_EACH_TIME.search(name)), name not in own or len(there) < len(others), -telling, name

    def shown(settings: Mapping[str, str], name: str) -> str:
        return printable(as_written(settings[name]), _SHOWN) if name in settings else "not set"

    rows = [
        SettingBeside(printable(name, _SHOWN), shown(own, name), tuple(shown(one, name) for one in others))
        for name in sorted(found, key=order)
    ]
    return rows, len(names) - len(found)


def _differ(one: str | None, other: str | None) -> bool:
    """Whether two values are unlike, as numbers where both are."""
    if one is None or other is None:
        return one is not other
    numbers = _number(one), _number(other)
    return one != other if None in numbers else numbers[0] != numbers[1]


def _telling(own: str | None, usual: Usual) -> float:
    total = sum(many for _, many in usual.values)
    agree = usual.values[0][1] / total if total else 0.0
    value = None if own is None else _number(own)
    if value is None or usual.low is None or usual.high is None:
        known = {text for text, _ in usual.values}
        return agree if (own is None or own[:CHARACTERS] not in known) and 2 * agree > 1 else 0.0
    if usual.low <= value <= usual.high:
        return 0.0
    bound = usual.low if value < usual.low else usual.high
    if value > 0 and bound > 0:
        return 1.0 + abs(math.log10(value / bound))
    return 1.0


def in_words(usual: Usual) -> str:
    """``0.001 to 0.003``, or the most frequent values."""
    if usual.low is not None and usual.high is not None:
        low, high = contrast(usual.low, usual.high, show=setting)
        return low if low == high else f"{low} to {high}"
    return " or ".join(printable(text, _SHOWN) for text, _ in usual.values[:3])


# As a document


def as_text(baseline: Baseline) -> str:
    """The file of a baseline."""
    return f"{json.dumps(to_json(baseline), indent=1, allow_nan=False)}\n"


def digest_of(baseline: Baseline) -> str:
    """Sixteen hexadecimal digits of all that a baseline says."""
    content = {key: value for key, value in to_json(baseline).items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def to_json(baseline: Baseline) -> dict[str, Any]:
    """A baseline as a document of strict JSON.

    Args:
        baseline: What to write.

    Returns:
        Plain values; levels that are not there are null.
    """

    def plain(levels: Iterable[float]) -> list[float | None]:
        return [one if math.isfinite(one) else None for one in levels]

    return {
        "schema": SCHEMA,
        "digest": baseline.digest,
        "of": baseline.of,
        "metric": baseline.metric,
        "steps": [baseline.shortest, baseline.longest],
        "descent": baseline.descent,
        "end": list(baseline.end),
        "low": plain(baseline.low),
        "middle": plain(baseline.middle),
        "high": plain(baseline.high),
        "alike": dict(baseline.alike),
        "params": {
            name: {"values": [list(one) for one in usual.values], "low": usual.low, "high": usual.high}
            for name, usual in baseline.params.items()
        },
        "runs": list(baseline.runs),
        "left_out": [list(one) for one in baseline.left_out],
    }


def from_json(document: Any) -> Baseline:
    """The baseline that ``to_json`` wrote. It is frozen: it may change a verdict.

    Args:
        document: What a JSON file holds, whoever wrote it.

    Returns:
        The baseline.

    Raises:
        ValueError: it is none, or was changed.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"it has not the schema {SCHEMA}")
    try:
        shortest, longest = _of(int, document["steps"][0]), _of(int, document["steps"][1])
        end = [_finite(one) for one in document["end"]]
        made = Baseline(
            of=_text(document["of"]),
            metric=_of(str, document["metric"])[:1000],
            shortest=shortest,
            longest=longest,
            descent=_finite(document["descent"]),
            end=(end[0], end[1], end[2]),
            low=_levels(document["low"]),
            middle=_levels(document["middle"]),
            high=_levels(document["high"]),
            alike={_text(name): _text(value) for name, value in _of(dict, document["alike"]).items()},
            params={_text(name): _usual_from(one) for name, one in _of(dict, document["params"]).items()},
            runs=tuple(_text(one) for one in _of(list, document["runs"])),
            left_out=tuple((_text(one[0]), _text(one[1])) for one in _of(list, document["left_out"])),
        )
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError("a part of it is missing or is of another kind") from error
    band = np.array([made.low, made.middle, made.high])
    if not (0 < made.shortest <= made.longest and (np.isnan(band) == np.isnan(band[0])).all()):
        raise ValueError("its numbers contradict each other")
    if (band[0] > band[1]).any() or (band[1] > band[2]).any() or not made.end[0] <= made.end[1] <= made.end[2]:
        raise ValueError("its band is upside down")
    if digest_of(made) != document.get("digest"):
        raise ValueError("it was changed since it was saved: its digest is another one")
    return replace(made, digest=document["digest"], frozen=True)


def _usual_from(document: Any) -> Usual:
    low, high = document["low"], document["high"]
    return Usual(
        values=tuple(
            (_of(str, text)[:CHARACTERS], _of(int, many)) for text, many in map(_pair, _of(list, document["values"]))
        ),
        low=None if low is None else _finite(low),
        high=None if high is None else _finite(high),
    )


def _pair(value: Any) -> tuple[Any, Any]:
    return value[0], value[1]


def _levels(values: Any) -> tuple[float, ...]:
    if len(_of(list, values)) != SHARES:
        raise ValueError(f"its band has not {SHARES} levels")
    return tuple(math.nan if one is None else _finite(one) for one in values)


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError("one of its numbers is none")
    return value  # as it is there: the digest is of its digits


def _text(value: Any) -> str:
    return _of(str, value)[:CHARACTERS]


def _of(kind: type[_Value], value: Any) -> _Value:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError("it is of another kind")
    return value
