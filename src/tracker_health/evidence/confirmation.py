"""What the numbers say of what was read by name: a loss that counts is a counter, and terms add up to a loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from tracker_health.evidence.series import FloatArray, Series
from tracker_health.roles import (
    BESIDE_ADVERSARIES,
    LOSS_PART,
    LOSSES,
    OBJECTIVE_LOSS,
    TERMS,
    TRAIN_LOSS,
    VAL_LOSS,
    VAL_LOSS_TERM,
    Meaning,
    MetricRoles,
    word_set,
    words_of,
)
from tracker_health.text import contrast, listing, printable

_FEWEST = 4
_MOSTLY_ABOVE, _TOGETHER = 0.9, 0.5
_EVEN = 3.0  # the largest of even steps, next to the one in the middle
_EITHER_WAY = word_set("objective elbo likelihood loglik ll")
_SPOKEN = {TRAIN_LOSS: "training loss", VAL_LOSS: "held-out loss"}
_TEST = word_set("test testing")
_STRIDES = (2, 5, 10, 20, 50, 100, 200)
_LEAST_APART = 12
_LARGE = 3.0
_TURNS_BACK = -0.25
_SHOWN = 400
_OF_STEPS, _MOST_RANKS = 0.9, 64


class Confirmed(NamedTuple):
    """The series of a run with the roles that their numbers and the other series confirm, and notes for readers of the
    verdict.

    Among series of one role, the one that is judged comes first.
    """

    series: tuple[Series, ...]
    notes: tuple[str, ...]


def confirm(series: Iterable[Series], roles: MetricRoles) -> Confirmed:
    """The series as rules are to see them. Pure; one whose name is not among the meanings keeps its role.

    Args:
        series: Series as they were read.
        roles: What all metric names of the run mean.

    Returns:
        The series that are judged, and notes.
    """
    meanings = roles.meanings
    notes: list[str] = []
    named = [_named(one, meanings[one.name]) if one.name in meanings else one for one in series]
    checked = [_checked(one, notes) if one.name in meanings else one for one in named]
    at_work = [_of_ranks_at_work(one, notes) if one.name in meanings else one for one in checked]
    apart = [_apart(one, meanings[one.name], notes) if one.name in meanings else one for one in at_work]
    found = _without_idle_ranks(apart, meanings, notes)
    for whole, term in ((TRAIN_LOSS, LOSS_PART), (VAL_LOSS, VAL_LOSS_TERM)):
        if not any(one.role == whole and len(one) for one in found):
            terms = [one for one in found if one.role == term and len(one) and meanings[one.name].part == "term"]
            found += _sum(_longest(terms, meanings), whole, notes)
    found = _with_a_distance(found, meanings)
    found = _with_the_bare_one_held_out(found)
    found.sort(key=lambda one: _preference(one, meanings))
    notes += _of_evaluation_sets(found, meanings)
    notes += _of_guesses(found)
    return Confirmed(tuple(found), tuple(printable(note, _SHOWN) for note in notes))


def _with_a_distance(found: list[Series], meanings: Mapping[str, Meaning]) -> list[Series]:
    """With a generator's distance to the data as the training loss, where there is no other one: the losses of
    adversaries need not fall, and it has to.
    """
    known = [one for one in found if one.name in meanings and meanings[one.name].why == BESIDE_ADVERSARIES and len(one)]
    if not known or any(one.role == TRAIN_LOSS and len(one) for one in found):
        return found
    longest = max(known, key=len)
    return [replace(one, role=TRAIN_LOSS, guessed=True) if one is longest else one for one in found]


def _with_the_bare_one_held_out(found: list[Series]) -> list[Series]:
    """With a bare ``loss`` as the held-out one, where a ``train_loss`` of the same steps is there, and is below it,
    and no other held-out loss.
    """
    losses = [one for one in found if one.role == TRAIN_LOSS and len(one) >= _FEWEST]
    bare = [one for one in losses if words_of(one.name) == ("loss",)]
    named = [one for one in losses if words_of(one.name) in (("train", "loss"), ("training", "loss"))]
    held_out = any(one.role in (VAL_LOSS, VAL_LOSS_TERM) and len(one) for one in found)
    if held_out or len(bare) != 1 or len(named) != 1 or not np.array_equal(bare[0].steps, named[0].steps):
        return found
    terms = any(one.role in (LOSS_PART, OBJECTIVE_LOSS) and len(one) for one in found)
    if terms or _share_their_noise(bare[0].values, named[0].values):
        return found
    half = len(bare[0]) // 2
    if np.mean(bare[0].values[half:] > named[0].values[half:]) < _MOSTLY_ABOVE:
        return found
    why = "held-out loss, guessed: next to a training loss of the same steps the bare one is the other"
    held_out_one = replace(bare[0], role=VAL_LOSS, guessed=True, understood=why)
    return [held_out_one if one is bare[0] else one for one in found]


def _share_their_noise(one: FloatArray, other: FloatArray) -> bool:
    """Whether two losses go up and down together from point to point, as a total and its main term do: by the second
    differences of their second half, which have no slope and little of a curve.
    """
    half = len(one) // 2
    first, second = np.diff(one[half:], 2), np.diff(other[half:], 2)
    sizes = float(np.sqrt((first @ first) * (second @ second)))
    return not np.isfinite(sizes) or sizes == 0.0 or float(first @ second) > _TOGETHER * sizes


def _named(series: Series, meaning: Meaning) -> Series:
    why = f"{meaning.described}: {meaning.why}"
    return replace(series, role=meaning.role, guessed=meaning.guessed, understood=why)


def _preference(series: Series, meanings: Mapping[str, Meaning]) -> tuple[bool, bool, bool, str]:
    """Of several series of a role: the plain one first, what was averaged as it went and the test samples last."""
    meaning = meanings.get(series.name, Meaning(name=series.name))
    test = not _TEST.isdisjoint(words_of(series.name))
    return bool(meaning.of), meaning.average == "running mean", test, series.name


# What the values contradict


def _checked(series: Series, notes: list[str]) -> Series:
    """The series, with another role or none where its numbers are not those of a loss that is to fall."""
    values = series.finite().values
    if series.role not in (*LOSSES, *TERMS) or len(values) < _FEWEST:
        return series
    course = "from {} to {}".format(*contrast(float(values[0]), float(values[-1])))
    if _counts(values) or (series.guessed and _adds_up(values)):
        notes.append(f"{series.name} counts up {course}: it is taken for no loss")
        return replace(series, role=None, guessed=False, understood="a counter: its values count up")
    if series.guessed and not _EITHER_WAY.isdisjoint(words_of(series.name)) and _is_raised(values):
        notes.append(f"{series.name} rises {course}, as what is maximised does: it is not judged as a loss")
        return replace(series, role=OBJECTIVE_LOSS, guessed=False, understood="an objective that rises")
    return series


def _counts(values: FloatArray) -> bool:
    """Whether values are 1, 2, 3 and so on, or 10, 20, 30."""
    steps = np.diff(values)
    return bool(values[0] >= 0 and steps[0] >= 1 and steps[0] == round(steps[0]) and (steps == steps[0]).all())


def _adds_up(values: FloatArray) -> bool:
    """Whether values only rise, and evenly, as what a training costs in money does."""
    steps = np.diff(values)
    return len(values) >= 2 * _FEWEST and bool((steps > 0).all() and steps.max() <= _EVEN * np.median(steps))


def _is_raised(values: FloatArray) -> bool:
    """Whether values are lowest in their first quarter and end above it: what diverges came down before."""
    quarter = max(1, len(values) // 4)
    ends_above = np.median(values[-quarter:]) > np.median(values[:quarter])
    return bool(ends_above and np.argmin(values) < quarter)


def _apart(series: Series, meaning: Meaning, notes: list[str]) -> Series:
    """Of a loss that is a running mean by its name, and by its values, points so far apart that they share little:
    neighbours go the same way together for as long as the mean reaches, which looks like a loss that wanders.
    """
    clean = series.clean()
    if series.role not in LOSSES or not meaning.average or len(clean) < _STRIDES[0] * _LEAST_APART:
        return series
    finite = np.flatnonzero(np.isfinite(clean.values))
    for stride in (1, *_STRIDES):
        kept = finite[::-1][::stride][::-1]
        if len(kept) < _LEAST_APART:
            break
        if _turns_back(clean.values[kept]):
            if stride == 1:
                break
            notes.append(f"{series.name} is a running mean: every {stride}th of its {len(clean)} points is judged")
            odd = np.flatnonzero(~np.isfinite(clean.values))
            return clean.at(np.union1d(kept, odd))
    return series


def _turns_back(values: FloatArray) -> bool:
    """Whether a step up is mostly followed by one down, as between values with noise of their own: the correlation of
    neighbouring differences is -1/2 then, and 0 or more where values share most of their noise. The large steps of a
    mean's beginning, over a few values, are cut off.
    """
    steps = np.diff(values) - np.mean(np.diff(values))
    middle = float(np.median(np.abs(steps)))
    steps = np.clip(steps, -_LARGE * middle, _LARGE * middle) if middle > 0 else steps
    square = float(steps @ steps)
    return bool(square > 0 and float(steps[1:] @ steps[:-1]) < _TURNS_BACK * square)


def _without_idle_ranks(series: list[Series], meanings: Mapping[str, Meaning], notes: list[str]) -> list[Series]:
    """The series, without a role for ranks that log nothing but 0 where another rank of the same metric does not."""
    groups: dict[tuple[object, ...], list[Series]] = {}
    for one in series:
        if one.role in LOSSES and one.name in meanings and meanings[one.name].one_of:
            groups.setdefault((one.role, meanings[one.name].of), []).append(one)
    idle = {
        id(one)
        for group in groups.values()
        for one in group
        if not one.values.any() and any(o.values.any() for o in group)
    }
    if idle:
        names = listing([one.name for one in series if id(one) in idle])
        notes.append(f"{names}: nothing but 0 was logged there; another rank of the metric is judged")
    why = "a rank that logs nothing but 0"
    return [replace(one, role=None, understood=why) if id(one) in idle else one for one in series]


def _of_ranks_at_work(series: Series, notes: list[str]) -> Series:
    """A loss without the zeros of ranks that had nothing to do: those that stand, at nearly every step, next to another
    value of the same step.
    """
    values = series.values
    if series.role not in LOSSES or (values != 0).all():
        return series
    told, at, points = np.unique(series.steps, return_inverse=True, return_counts=True)
    beside = np.isin(at, at[values != 0]) & (values == 0)
    shared, ranks = len(np.unique(at[beside])), float(np.median(points))
    alike = int((points == ranks).sum())
    if len(told) < _FEWEST or ranks > _MOST_RANKS or min(shared, alike) < _OF_STEPS * len(told):
        return series
    notes.append(f"{series.name}: zeros are next to other values of the same steps, as idle ranks log them: left out")
    return series.at(np.flatnonzero(~beside))


# What is made of several


def _longest(terms: Sequence[Series], meanings: Mapping[str, Meaning]) -> list[Series]:
    """Of each term its longest history: it may be there by step, by epoch and by rank."""
    best: dict[tuple[str, ...], Series] = {}
    for one in terms:
        of = meanings[one.name].of
        if of not in best or len(one) > len(best[of]):
            best[of] = one
    return list(best.values())


def _sum(terms: Sequence[Series], role: str, notes: list[str]) -> Iterator[Series]:
    """The loss of which only terms were logged: their sum, at the steps that all of them have."""
    if len(terms) < 2:
        return
    clean = [one.clean() for one in terms]
    steps = reduce(np.intersect1d, [one.steps for one in clean])
    if 2 * len(steps) < max(map(len, clean)):
        notes.append(f"{listing([one.name for one in terms])} are of other steps each: they are not summed")
        return
    common = [one.at(np.flatnonzero(np.isin(one.steps, steps))) for one in clean]
    with np.errstate(all="ignore"):
        values = np.sum([one.values for one in common], axis=0)
    name = " + ".join(one.name for one in terms)
    why = f"{_SPOKEN[role]}, guessed: the sum of its terms, as no whole was logged"
    yield replace(common[0], name=name, role=role, values=values, guessed=True, understood=why)


def _of_evaluation_sets(series: Sequence[Series], meanings: Mapping[str, Meaning]) -> Iterator[str]:
    sets: dict[tuple[object, ...], Series] = {}
    for one in sorted((one for one in series if one.role == VAL_LOSS and len(one) > 1), key=lambda one: -len(one)):
        if one.name in meanings:
            of, _, test, _ = _preference(one, meanings)
            sets.setdefault((meanings[one.name].of if of else (), test), one)
    if len(sets) > 1:
        judged, *others = (one.name for one in sets.values())
        yield f"several evaluation sets: {judged} is judged; next to it {listing(others)}"


def _of_guesses(series: Sequence[Series]) -> Iterator[str]:
    guessed = sorted((one for one in series if one.role is not None and one.guessed), key=lambda one: -len(one))
    for role in dict.fromkeys(str(one.role) for one in guessed):
        main = max((one for one in series if one.role == role), key=len)
        if main.guessed:
            why = main.understood.rpartition(": ")[2]
            yield f"{role} is guessed to be {main.name} ({why}); set roles.{role} to name one"
