"""Rules and thresholds that were retired: still understood wherever they are named, with one warning, never an error.

``select`` and ``votes`` mean the rules that replaced a retired one. ``ignore``, ``measure_only`` and thresholds of a
retired rule do nothing: the rule that took it over judges more than it did, and would be lost without being named.
A retired rule that nothing replaced selects nothing. Codes and names are never used again.

A rule that was split is another matter: its parts judge what it did, and nothing else. Whatever names the old rule
means its parts as well (``PARTS_OF``): lists, answers to verdicts, and thresholds, which have moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Retired:
    """A rule that is no longer there. ``since``: the version without it; ``replaced_by``: codes of rules that are
    there, empty for none; ``why``: one sentence.
    """

    code: str
    name: str
    since: str
    replaced_by: tuple[str, ...] = ()
    why: str

    @property
    def fate(self) -> str:
        """When it was retired, and what replaced it."""
        successor = f"replaced by {_joined(self.replaced_by)}" if self.replaced_by else "nothing replaced it"
        return f"{self.code} {self.name} was retired in {self.since}, {successor}"


@dataclass(frozen=True, kw_only=True)
class RetiredThreshold:
    """A threshold that its rule, by name, no longer has. ``replaced_by``: another threshold of the rule, or None."""

    rule: str
    threshold: str
    replaced_by: str | None = None
    why: str

    @property
    def fate(self) -> str:
        """What replaced it, and why."""
        successor = f"replaced by {self.replaced_by}" if self.replaced_by else "nothing replaced it"
        return f"this threshold was retired, {successor}: {self.why}"


RETIRED: tuple[Retired, ...] = (
    Retired(
        code="LOS011",
        name="slow-descent",
        since="0.1.1",
        replaced_by=("LOS007",),
        why="a small descent that continues to the end is one way of still descending",
    ),
    Retired(
        code="LOS014",
        name="too-good",
        since="0.1.1",
        why="it flagged a healthy model that rightly learnt to copy, and found a missing mask in no training",
    ),
    Retired(
        code="LOS016",
        name="term-not-learnt",
        since="0.1.1",
        why="of 42 healthy trainings with two terms it found ten, of 18 with a term that was not learnt six",
    ),
    Retired(
        code="LRS002",
        name="plateau-at-constant-lr",
        since="0.1.1",
        why="of 110 healthy runs it found four, of faults only two by chance, and no cause was known by it",
    ),
    Retired(
        code="GAP007",
        name="gap-outliers",
        since="0.1.1",
        why="no training is known in which outliers did harm, and large language models have them while healthy",
    ),
    Retired(
        code="OPT008",
        name="layer-outlier",
        since="0.1.1",
        why="it found no fault whose truth is known, and few optimizers name their parameters for sure",
    ),
    Retired(
        code="RUN002",
        name="step-order",
        since="0.1.1",
        why="processes of a distributed training that log into one run look like two writers, and may be healthy",
    ),
    Retired(
        code="SYS003",
        name="slowdown",
        since="0.1.1",
        replaced_by=("SYS005",),
        why="it looked at two halves of a run, and another program on the machine was enough for it",
    ),
    Retired(
        code="OPT012",
        name="settings-out-of-range",
        since="0.2.0",
        replaced_by=("OPT014", "OPT015", "OPT016", "OPT017", "OPT018"),
        why="it was five rules in one, which nobody could switch off by themselves",
    ),
)

PARTS_OF: Mapping[str, tuple[str, ...]] = {
    "OPT012": ("OPT014", "OPT015", "OPT016", "OPT017", "OPT018"),
    "LRS001": ("LRS003", "LRS004", "LRS005", "LRS006"),
    "GEN003": ("GEN007",),
    "OPT003": ("OPT019",),
}
"""What a rule judged that others judge today, by its code. It may be there itself, and judge the rest."""

_NAME_OF = {
    "settings-out-of-range": "OPT012",
    "schedule": "LRS001",
    "accuracy-at-chance": "GEN003",
    "no-gradient": "OPT003",
}

MOVED: Mapping[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("settings-out-of-range", "least_clip"): (("clip-too-tight", "least_clip"),),
    ("settings-out-of-range", "most_rate"): (("rate-too-large", "most_rate"),),
    ("settings-out-of-range", "most_dropout"): (("dropout-too-high", "most_dropout"),),
    ("settings-out-of-range", "least_way"): (("way-too-short", "least_way"),),
    ("settings-out-of-range", "least_descent"): (("way-too-short", "least_descent"),),
    ("settings-out-of-range", "min_steps"): (("way-too-short", "min_steps"),),
    ("settings-out-of-range", "most_decay"): (("decay-too-strong", "most_decay"),),
    ("settings-out-of-range", "least_decay"): (("decay-too-strong", "least_decay"),),
    ("settings-out-of-range", "healthy_descent"): tuple(
        (rule, "healthy_descent") for rule in ("decay-too-strong", "rate-too-large", "dropout-too-high")
    ),
    ("schedule", "least_rate"): (("rate-too-small", "least_rate"),),
    ("schedule", "groups_apart"): (("groups-apart", "groups_apart"),),
    ("schedule", "most_waves"): (("schedule-length", "most_waves"),),
    ("schedule", "least_stepped"): (("schedule-length", "least_stepped"),),
    ("accuracy-at-chance", "constant_above"): (("score-stands-still", "constant_above"),),
    ("accuracy-at-chance", "constant_below"): (("score-stands-still", "constant_below"),),
    ("accuracy-at-chance", "still"): (("score-stands-still", "still"),),
    ("accuracy-at-chance", "min_still"): (("score-stands-still", "min_still"),),
    ("no-gradient", "still_coming"): (("gradient-stopped", "still_coming"),),
}
"""The thresholds of rules that were split: where each is today."""

SHARED: Mapping[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("schedule", "min_points"): (("rate-too-small", "min_points"), ("schedule-waits-in-vain", "min_points")),
    ("schedule", "late_share"): (("schedule-length", "late_share"),),
    ("no-gradient", "min_steps"): (("gradient-stopped", "min_steps"),),
}
"""The thresholds of rules that were split which a rule still has, and its parts as well: one value is meant for all."""

_FEW = "few points make large errors, which counts for more than their number"
_CLAUSE = "the case that it was for is gone"
_GUESSED = "which number of answers a level may be that of is answered once, for all rules"
_BASELINE_ONLY = "a run is compared with a baseline alone: other runs of an experiment may differ on purpose"
_ONE_FACT = "what says that a policy learnt is one fact for all rules"
_SHARED = "one table of parameters answers for all rules what was left out on purpose"

RETIRED_THRESHOLDS: tuple[RetiredThreshold, ...] = tuple(
    RetiredThreshold(rule=rule, threshold=threshold, replaced_by=replaced_by, why=why)
    for rule, threshold, replaced_by, why in (
        ("missing-from-optimizer", "max_share", None, _SHARED),
        ("unchanged-weights", "max_share", None, _SHARED),
        ("unchanged-weights", "min_siblings", None, _SHARED),
        ("diverged", "min_points", None, _FEW),
        ("diverged", "sure_runaway", "runaway", _CLAUSE),
        ("diverged", "steady_runaway", "runaway", _CLAUSE),
        ("loss-spike", "single_tail_factor", "tail_factor", _CLAUSE),
        ("no-progress", "min_points", None, _FEW),
        ("no-progress", "min_descent_fine_tuning", "least_descent", "it holds for all runs now"),
        ("still-descending", "min_points", None, _FEW),
        ("unstable-loss", "min_points", None, _FEW),
        ("unstable-loss", "sigmas", None, "an excursion counts when it is sure, by three standard errors"),
        ("unstable-loss", "validation_share", "rise_share", "the validation loss is judged like the training loss"),
        ("overfit", "min_points", None, _FEW),
        ("overfit", "steady_rise_share", "rise_share", _CLAUSE),
        ("overfit", "memorised_share", "gap_share", _CLAUSE),
        ("validation-flat", "min_points", None, _FEW),
        ("chance-level", "min_points", None, _FEW),
        ("chance-level", "unlearnt", None, _GUESSED),
        ("chance-level", "coincidence", None, _GUESSED),
        ("chance-level", "most_guessed", None, _GUESSED),
        ("underconfident", "min_points", None, _FEW),
        ("underconfident", "least_sum", "slack", _CLAUSE),
        ("evaluation-stands-still", "min_points", None, _FEW),
        ("validation-flat", "small_descent", "train_descent", _CLAUSE),
        ("odd-one-out", "deviations", None, _BASELINE_ONLY),
        ("odd-one-out", "worse", None, _BASELINE_ONLY),
        ("reward-lost", "rise_share", None, _ONE_FACT),
        ("memory-growth", "late_share", None, "that memory still rises is asked of its levels and their errors"),
    )
)

_MEANS_SUCCESSORS = ("select", "votes")
RULE_LISTS = (*_MEANS_SUCCESSORS, "ignore", "measure_only")
"""The keys of a configuration whose values are codes or names of rules."""


def retired_rule(word: str) -> Retired | None:
    """The retired rule of this code or name."""
    return next((one for one in RETIRED if word in (one.code, one.name)), None)


def parts_of(word: str) -> frozenset[str]:
    """The codes of the rules that judge a part of what this one did, by its code or name; empty for most."""
    return frozenset(PARTS_OF.get(_NAME_OF.get(word, word), ()))


def retired_words() -> frozenset[str]:
    """The codes and names of all retired rules."""
    return frozenset(word for one in RETIRED for word in (one.code, one.name))


def retired_threshold(rule: str, threshold: str) -> Retired | RetiredThreshold | None:
    """What is known of a retired threshold: that its whole rule was retired, or it alone."""
    moved = MOVED.get((rule, threshold))
    if moved and retired_rule(rule) is None:
        part, name = moved[0]
        return RetiredThreshold(rule=rule, threshold=threshold, replaced_by=name, why=f"the rule {part} has it")
    alone = (one for one in RETIRED_THRESHOLDS if (one.rule, one.threshold) == (rule, threshold))
    return retired_rule(rule) or next(alone, None)


def living_rules(key: str, words: Iterable[str]) -> frozenset[str]:
    """The rules that a list means today; ``key``: of ``RULE_LISTS``."""
    living: set[str] = set()
    for word in words:
        rule = retired_rule(word)
        living |= parts_of(word)
        if rule is None:
            living.add(word)
        elif key in _MEANS_SUCCESSORS:
            # A selection of nothing must not become the empty one, which means every rule.
            living |= set(rule.replaced_by) or {word}
    return frozenset(living)


def living_thresholds(thresholds: Mapping[str, Mapping[str, float | int]]) -> dict[str, dict[str, float | int]]:
    """The thresholds, by rule name, that are still there."""
    living: dict[str, dict[str, float | int]] = {}
    for rule, values in thresholds.items():
        kept = {name: value for name, value in values.items() if retired_threshold(rule, name) is None}
        if retired_rule(rule) is None and (kept or not values):
            living[rule] = {**living.get(rule, {}), **kept}
        for name, value in values.items():
            for part, threshold in (*MOVED.get((rule, name), ()), *SHARED.get((rule, name), ())):
                # What is set of the part itself counts.
                if threshold not in thresholds.get(part, {}):
                    living.setdefault(part, {})[threshold] = value
    return living


def current_key(key: str) -> str:
    """A dotted key of a configuration under its present name: ``probes.NAME`` was that of ``rules.NAME``."""
    section, dot, rest = key.partition(".")
    return f"rules{dot}{rest}" if section == "probes" else key


def living_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes to a configuration, by dotted key, in today's rules and thresholds."""
    living = {}
    changes = {current_key(key): value for key, value in changes.items()}
    for key, value in changes.items():
        section, _, rest = key.partition(".")
        rule, _, threshold = rest.partition(".")
        if section == "rules" and retired_threshold(rule, threshold) is not None:
            moved = (f"rules.{part}.{name}" for part, name in MOVED.get((rule, threshold), ()))
            living.update({at: value for at in moved if at not in changes})
            continue
        living[key] = living_rules(key, value) if key in RULE_LISTS and value is not None else value
        shared = (f"rules.{part}.{name}" for part, name in SHARED.get((rule, threshold), ()) if section == "rules")
        living.update({at: value for at in shared if at not in changes})
    return living


def remarks(key: str, value: Any) -> list[str]:
    """What to say of a setting, by its dotted key, that names what was retired: one sentence each."""
    section, _, rest = current_key(key).partition(".")
    if section == "rules":
        rule, _, threshold = rest.partition(".")
        found, moved = retired_threshold(rule, threshold), MOVED.get((rule, threshold), ())
        if moved:
            return [f"{key} has moved: it is taken as {' and '.join(f'rules.{part}.{name}' for part, name in moved)}"]
        return [] if found is None else [f"{key} does nothing: {found.fate}"]
    if key not in RULE_LISTS or value is None:
        return []
    rules = dict.fromkeys(filter(None, map(retired_rule, sorted(value))))
    return [f"{key}: {rule.fate}; {_effect(key, rule)}" for rule in rules]


def _effect(key: str, rule: Retired) -> str:
    successors = _joined(rule.replaced_by)
    if key in _MEANS_SUCCESSORS or rule.code in PARTS_OF:
        return f"taken as {successors}" if successors else "it selects nothing"
    return f"naming it does nothing; name {successors} if you mean that" if successors else "naming it does nothing"


def _joined(codes: Sequence[str]) -> str:
    *others, last = codes or ("",)
    return f"{', '.join(others)} and {last}" if others else last
