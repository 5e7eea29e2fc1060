"""What may be configured: plain values, presets, and a digest that says whether two configurations judge alike."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from tracker_health.errors import ConfigError
from tracker_health.evidence import Baseline, Sibling
from tracker_health.roles import DEFAULT_PATTERNS, OWN_PREFIXES, Meaning, Patterns, RolePlan, normal_form, understand
from tracker_health.text import printable
from tracker_health.words.retired import RULE_LISTS, current_key, living_rules, living_thresholds, remarks

ORIGINAL_RULES = frozenset({"LOS101", "OPT101"})
"""The two rules of the preset ``dlm``; elsewhere they measure without a vote."""

_ROLES_OF_THE_FIRST_DIGEST = frozenset([*DEFAULT_PATTERNS][:46])
"""The roles that the digest of a configuration has held since 0.1.0. Later ones are in it only where someone changed
them: a new role does not make an upgrade judge every run again.
"""


_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, kw_only=True)
class Override:
    """Other settings for some runs only.

    ``match``: ``experiment:PATTERN``, ``project:PATTERN`` or ``tag:NAME=PATTERN``, in which ``*``, ``?`` and ``[...]``
    are wildcards and case counts. ``changes``: as for ``changed``.
    """

    match: str
    changes: Mapping[str, Any]

    def applies(self, traits: Mapping[str, str]) -> bool:
        """Whether a run with these traits (see ``Config.for_run``) is meant."""
        trait, pattern = self.trait_and_pattern
        return trait in traits and fnmatchcase(traits[trait], pattern)

    @property
    def trait_and_pattern(self) -> tuple[str, str]:
        """The trait that is looked at, and what it must look like."""
        kind, _, rest = self.match.partition(":")
        if kind != "tag":
            return kind, rest
        name, _, pattern = rest.partition("=")
        return f"tag:{name}", pattern


MODES = ("annotate", "shadow")
"""What is done with a verdict: written onto the run, or only tried out: one tag, and nobody is notified."""

WHEN = ("findings", "always", "never")
"""When something next to the verdict is written: from warn on, with every verdict, or never."""


INCLUDABLE = ("exception", "paths", "hosts", "params")
"""What a message leaves out unless it is asked for."""
CERTAINTIES = ("certain", "likely", "possible")


@dataclass(frozen=True, kw_only=True)
class Notify:
    """Who is sent a message about a verdict, and about which. Nobody is, by default.

    ``webhook``: an address that takes JSON; ``webhook_env``: the environment variable that holds it instead.
    ``token_env``: the variable with a token for that address. ``template``: the JSON to send, by default Slack's.
    ``command``: a program and its arguments; it gets the message as JSON on standard input. ``wandb_alert``: of a run
    on a W&B server, W&B itself alerts those who asked it to. ``on``: ``fail`` or ``warn``. ``certainty``: how sure a
    cause must be at least, of ``CERTAINTIES``. ``mute``: matches as of an override, for runs that nobody is sent a
    message about. ``include``: of ``INCLUDABLE``.
    """

    webhook: str = ""
    webhook_env: str = ""
    token_env: str = ""
    template: str = ""
    command: tuple[str, ...] = ()
    wandb_alert: bool = False
    on: str = "fail"
    certainty: str = "likely"
    mute: tuple[str, ...] = ()
    include: tuple[str, ...] = ()

    @property
    def wanted(self) -> bool:
        """Whether there is anybody to send a message to."""
        return self.has_receiver or self.wandb_alert

    @property
    def has_receiver(self) -> bool:
        """Whether there is an address or a command that gets messages about any run."""
        return bool(self.webhook or self.webhook_env or self.command)

    def reaches(self, *, alerts: bool) -> bool:
        """Whether there is anybody to send a message about a run. ``alerts``: its tracker can alert people."""
        return self.has_receiver or (self.wandb_alert and alerts)

    def is_muted(self, traits: Mapping[str, str]) -> bool:
        """Whether a run with these traits is one that nobody is sent a message about."""
        return any(Override(match=one, changes={}).applies(traits) for one in self.mute)


@dataclass(frozen=True, kw_only=True)
class Config:
    """How to judge.

    ``votes``: the codes that vote, or None for every stable rule (``preview_votes``: and every preview rule).
    ``measure_only``: codes that give their measurements and nothing else. ``select`` and ``ignore``: codes or names
    of the rules to run, or not to run. ``thresholds``: by rule name, then threshold name. ``roles``: by role, the
    name patterns that have it; the names say by themselves which have a role without patterns.
    ``demote_low_confidence``: a fail that its rule is not sure of becomes a warn.
    ``checkpoint``: path, relative to the run, of the checkpoint to judge. ``segment``: which training of a log that
    holds several, from 1; the last one where it is None. ``max_download``: bytes. ``stale_after``: for
    how many seconds a run that claims to be running may be silent before it counts as dead. ``hang_after``: before it
    is said to hang, None for by its own rhythm, infinite for never. ``policy``: the digest of
    the policy that this configuration follows, empty for none. ``trusted_hosts``: servers that get credentials, and
    choose folders of this machine, as the configured ones do. ``metrics``: whether measures become metrics of the run;
    ``pages`` and ``description``: when the page with its picture, and the block in the description, are written: a word
    of ``WHEN``, ``findings`` for from warn on. ``docs_url``: where this documentation is served, the base of all links
    to pages of rules and causes; empty for no links. ``mode``: of ``MODES``; in ``shadow`` verdicts are only tried out.
    ``notify``: who is sent a message; it decides no verdict, and is in no digest.
    ``overrides``: what differs for some runs; they do nothing until ``for_run``, and the last that applies wins.
    ``notes``: what of the configuration does nothing, or means something else today; every report repeats it.

    ``baseline``: what runs are compared to, None for nothing. ``siblings``: runs that they are shown next to, where
    those are too few for a baseline; they decide no verdict.

    Rules and thresholds that were retired are understood: see ``retired``.

    Raises:
        ConfigError: a set of rules is no such set, or a role is given names under which only this tool writes.
    """

    preset: str = "default"
    votes: frozenset[str] | None = None
    preview_votes: bool = False
    measure_only: frozenset[str] = ORIGINAL_RULES
    demote_low_confidence: bool = True
    select: frozenset[str] = frozenset()
    ignore: frozenset[str] = frozenset()
    thresholds: Mapping[str, Mapping[str, float | int]] = field(default_factory=dict)
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: DEFAULT_PATTERNS)
    checkpoint: str | None = None
    segment: int | None = None
    max_download: int = 2 * 10**9
    stale_after: float = 6 * 3600.0
    hang_after: float | None = None
    policy: str = ""
    trusted_hosts: tuple[str, ...] = ()
    docs_url: str = ""
    metrics: bool = False
    pages: str = "findings"
    description: str = "findings"
    mode: str = "annotate"
    notify: Notify = field(default_factory=Notify)
    overrides: tuple[Override, ...] = ()
    baseline: Baseline | None = None
    siblings: tuple[Sibling, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        said: list[str] = []
        for name in RULE_LISTS:
            value = getattr(self, name)
            if value is not None or name != "votes":
                words = _rule_set(name, value)
                said += remarks(name, words)
                object.__setattr__(self, name, living_rules(name, words))
        for rule, values in self.thresholds.items():
            said += [remark for key in values for remark in remarks(f"rules.{rule}.{key}", None)]
        object.__setattr__(self, "thresholds", living_thresholds(self.thresholds))
        object.__setattr__(self, "notes", tuple(dict.fromkeys((*self.notes, *said))))
        for role, patterns in self.roles.items():
            if patterns is not DEFAULT_PATTERNS.get(role):
                refuse_own_names(role, patterns)

    def for_run(self, traits: Mapping[str, str]) -> Config:
        """The configuration by which one run is judged; its ``digest`` is the one that counts.

        Args:
            traits: What is known of the run: ``experiment`` and ``project`` are names, ``tag:NAME`` is a tag's value.

        Returns:
            The configuration for this run alone, without overrides.
        """
        config = replace(self, overrides=())
        for override in self.overrides:
            if override.applies(traits):
                config = changed(config, override.changes)
        return config

    def runs(self, code: str, name: str) -> bool:
        """Whether a rule runs at all.

        Args:
            code: The rule's code (``LOS001``).
            name: The rule's name.

        Returns:
            True where it does.
        """
        if self.ignore & {code, name}:
            return False
        return not self.select or bool(self.select & {code, name})

    def counts(self, code: str, status: str) -> bool:
        """Whether a rule's verdict counts towards the run's.

        Args:
            code: The rule's code (``LOS001``).
            status: The rule's status: ``stable``, ``preview`` or ``retired``.

        Returns:
            True where it does.
        """
        if code in self.measure_only:
            return False
        if self.votes is not None:
            return code in self.votes
        return status == "stable" or (self.preview_votes and status == "preview")

    def role_names(self, names: Iterable[str]) -> dict[str, str]:
        """The role of every metric name that has one under this configuration.

        Args:
            names: Every metric name of the run.

        Returns:
            The role (``train_loss``) by metric name; names without a role are left out.
        """
        return {name: one.role for name, one in self.understand(names).items() if one.role is not None}

    def understand(self, names: Iterable[str]) -> dict[str, Meaning]:
        """What every metric name of a run means under this configuration.

        Args:
            names: Every metric name of the run.

        Returns:
            The meaning by metric name: its quantity, its role, and why.
        """
        return understand(names, self._normal_forms)

    def role_plan(self, wanted: frozenset[str] | None = None, *, every: bool = False) -> RolePlan:
        """Which metrics a source reads, and as what.

        Args:
            wanted: The roles that are read; None for all.
            every: Names without a role are read too.

        Returns:
            The plan, which sources and readers are handed.
        """
        return RolePlan(self._normal_forms, wanted=wanted, every=every, segment=self.segment)

    @cached_property
    def _normal_forms(self) -> Mapping[str, tuple[str, ...]]:
        return {role: tuple(normal_form(one) for one in forms) for role, forms in self.roles.items()}

    def unmatched_roles(self, names: Iterable[str]) -> tuple[str, ...]:
        """The roles that were given patterns of their own which match none of these metric names.

        Args:
            names: Every metric name of the run.

        Returns:
            The roles, empty where all patterns match.
        """
        known = list(names)
        return tuple(
            role
            for role, patterns in self.roles.items()
            if patterns and patterns != DEFAULT_PATTERNS.get(role) and not _any_match(known, role, patterns)
        )

    @property
    def left_out(self) -> tuple[str, ...]:
        """What makes a verdict of this configuration another one than the rules' own: the rules that do not run, and
        the thresholds, roles and limits that were set.
        """
        only = [f"only {', '.join(sorted(self.select))}"] if self.select else []
        values = [f"{name}.{key}={value:g}" for name, one in self.thresholds.items() for key, value in one.items()]
        changed = {role: forms for role, forms in self.roles.items() if forms != DEFAULT_PATTERNS.get(role)}
        roles = [f"roles.{role}={'|'.join(forms)}" for role, forms in changed.items()]
        limits = [
            f"{key}={value:g}" if isinstance(value, (int, float)) else f"{key}={value}"
            for key in ("checkpoint", "segment", "max_download", "stale_after", "hang_after")
            if (value := getattr(self, key)) != getattr(Config, key)
        ]
        return (*sorted(self.ignore), *only, *sorted(values), *sorted(roles), *limits)

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that change with anything that can change a verdict, or what is written of it."""
        content: dict[str, Any] = {
            "votes": None if self.votes is None else sorted(self.votes),
            "preview_votes": self.preview_votes,
            "measure_only": sorted(self.measure_only),
            "demote_low_confidence": self.demote_low_confidence,
            "select": sorted(self.select),
            "ignore": sorted(self.ignore),
            "thresholds": {name: dict(values) for name, values in self.thresholds.items()},
            "roles": {role: list(forms) for role, forms in self.roles.items() if self._is_in_digest(role)},
            "checkpoint": self.checkpoint,
            "max_download": self.max_download,
            "stale_after": self.stale_after,
            "written": [self.metrics, self.pages, self.description, *filter(None, [self.docs_url])],
        }
        if self.hang_after is not None:
            content["hang_after"] = str(self.hang_after)
        if self.segment is not None:
            content["segment"] = self.segment
        if self.baseline is not None:
            content["baseline"] = [self.baseline.digest, self.baseline.frozen]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def _is_in_digest(self, role: str) -> bool:
        return role in _ROLES_OF_THE_FIRST_DIGEST or self.roles[role] != DEFAULT_PATTERNS.get(role)


def _rule_set(name: str, value: Any) -> frozenset[str]:
    example = f'write {name}=("LOS001", "diverged")'
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"{name} must be several codes or names of rules, not {printable(repr(value), 80)}", example)
    rules = list(value)
    for rule in rules:
        if not isinstance(rule, str):
            raise ConfigError(f"{name} must hold codes or names of rules, not {printable(repr(rule), 80)}", example)
    return frozenset(rules)


def refuse_own_names(role: str, patterns: Iterable[str]) -> None:
    """Refuse a pattern that asks for metrics which this tool itself wrote: it would silently find none.

    Raises:
        ConfigError: there is such a pattern.
    """
    for pattern in patterns:
        own = next((prefix for prefix in OWN_PREFIXES if pattern.startswith(prefix)), None)
        if own is not None:
            why = f"names under {own} are this tool's own and are never read back"
            hint = f"log what the training measures under a name that does not begin with {own}"
            raise ConfigError(f"roles.{printable(role, 80)} = {printable(pattern, 80)!r}: {why}", hint)


def _any_match(names: Iterable[str], role: str, patterns: Iterable[str]) -> bool:
    fitting = Patterns({role: tuple(normal_form(one) for one in patterns)})
    return any(fitting.role(normal_form(name)) == role for name in names if not name.startswith(OWN_PREFIXES))


PRESETS: Mapping[str, Config] = {
    "default": Config(),
    "strict": Config(preset="strict", preview_votes=True),
    "dlm": Config(preset="dlm", votes=ORIGINAL_RULES, measure_only=frozenset(), demote_low_confidence=False),
}


PRESET_FIELDS = ("preset", "votes", "preview_votes", "measure_only", "demote_low_confidence")
"""What a preset decides."""

_PLAIN_KEYS = frozenset(
    {
        "select", "ignore", "checkpoint", "segment", "max_download", "stale_after", "hang_after",
        "trusted_hosts", "docs_url", "metrics", "pages", "description", "mode",
    }
)  # fmt: skip


def preset(name: str) -> Config:
    """The configuration of that name.

    Args:
        name: ``default``, ``strict`` or ``dlm``.

    Returns:
        The configuration of that name.

    Raises:
        ConfigError: there is no such preset.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise ConfigError(f"there is no preset {name!r}", did_you_mean(name, PRESETS)) from None


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """A configuration with other values, by the keys of a configuration file. These are ``preset`` (a name), ``select``
    and ``ignore`` (frozensets), ``checkpoint``, ``segment`` (a number), ``max_download`` (bytes), ``stale_after`` and
    ``hang_after`` (seconds). What is written is decided by ``metrics`` (whether), ``pages`` and ``description`` (of
    ``WHEN``) and ``mode`` (of ``MODES``). Then there are ``trusted_hosts`` (texts), ``docs_url`` (an address) and
    ``notify.KEY``. Last come ``rules.NAME.THRESHOLD`` (a number) and ``roles.ROLE`` (a tuple of patterns). A preset
    takes the place of the one before and leaves all other values alone.

    Raises:
        ConfigError: there is no such preset or role.
    """
    plain = {key: value for key, value in changes.items() if key in _PLAIN_KEYS}
    if "preset" in changes:
        base = preset(changes["preset"])
        plain |= {name: getattr(base, name) for name in PRESET_FIELDS}
    thresholds = {name: dict(values) for name, values in config.thresholds.items()}
    roles = dict(config.roles)
    told = {key.removeprefix("notify."): value for key, value in changes.items() if key.startswith("notify.")}
    plain |= {"notify": replace(config.notify, **told)} if told else {}
    for key, value in changes.items():
        section, _, name = current_key(key).partition(".")
        if section == "rules":
            probe, _, threshold = name.partition(".")
            thresholds.setdefault(probe, {})[threshold] = value
        elif section == "roles":
            if name not in roles:
                raise ConfigError(f"there is no role {name!r}", did_you_mean(name, roles))
            roles[name] = value
    return replace(config, **plain, thresholds=thresholds, roles=_arranged(roles))


def _arranged(roles: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The first role that matches a name has it, so those that were changed come first. The order follows from the
    patterns alone: the digest, which knows no order, stays true, and the order of settings decides nothing.
    """
    known = [
        *(role for role in DEFAULT_PATTERNS if role in roles),
        *(role for role in roles if role not in DEFAULT_PATTERNS),
    ]
    return {role: roles[role] for role in sorted(known, key=lambda role: roles[role] == DEFAULT_PATTERNS.get(role))}


def parse_duration(text: str) -> float:
    """Seconds from ``90s``, ``30m``, ``6h``, ``7d`` or ``2w``.

    Raises:
        ConfigError: it is no duration.
    """
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,6})?)\s*([smhdw])\s*", text, re.IGNORECASE)
    if match is None:
        raise ConfigError(f"{printable(text, 60)!r} is no duration", "write 30m, 6h or 7d")
    return float(match.group(1)) * _SECONDS[match.group(2).lower()]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint with the nearest known names, or with all of them."""
    names = sorted(known)
    spelled = {name.lower(): name for name in names}
    near = [spelled[one] for one in get_close_matches(word.lower(), spelled, n=2)]
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
