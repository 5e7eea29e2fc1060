"""From what a user types, exports and writes into files to a ``Config``, and where each value came from.

The command line comes before the environment, that before ``tracker-health.toml``, that before ``pyproject.toml``, that
before the policy, the preset and the defaults: key by key, but for what the policy locks.
Every value goes through ``converted``, whoever gave it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracker_health.config import PRESET_FIELDS, Config, Notify, Override, changed, did_you_mean, preset
from tracker_health.errors import ConfigError
from tracker_health.roles import DEFAULT_PATTERNS
from tracker_health.settings.layers import SourcedValue, leaving_out, located, refuse, written_layer
from tracker_health.settings.policy import is_override, policy_of
from tracker_health.settings.values import (
    JUDGING,
    KEYS,
    LISTS,
    NOTIFY_LISTS,
    SECTIONS,
    as_number,
    converted,
    is_role,
    may_send,
    plugin_errors,
    quoted,
    why_not_sent,
)
from tracker_health.text import printable, without_userinfo
from tracker_health.words.retired import current_key, living_changes, remarks, retired_threshold

if TYPE_CHECKING:
    from tracker_health.settings.file import Document

ENVIRONMENT = "TRACKER_HEALTH_"
SWITCHES = ("DISABLED", "PLUGINS", "HOOK_SECONDS", "LEDGER", "POLICY", "TOKEN_ENVS", "PLAIN_HTTP")
"""Environment variables that are no settings: others read them."""


@dataclass(frozen=True, kw_only=True)
class Effective:
    """The configuration in force. ``chosen``: what is not left to the preset and the defaults, by its dotted key;
    ``overrides.0.KEY`` is what the first override says. ``files``: those that were read. ``warnings``: what of it does
    nothing, and why.
    """

    config: Config
    chosen: Mapping[str, SourcedValue]
    files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def fail_on(self) -> str | None:
        """The exit code is 1 at this verdict or worse; None leaves it to the command."""
        return self.chosen["fail_on"].value if "fail_on" in self.chosen else None

    @property
    def tracking_uri(self) -> str | None:
        """The MLflow store of run ids; None leaves it to MLflow."""
        return self.chosen["tracking_uri"].value if "tracking_uri" in self.chosen else None

    def described(self, *, everything: bool) -> dict[str, SourcedValue]:
        """What differs from the defaults, in plain values that may be shown, and then ``everything`` else."""
        config, base = self.config, Config()
        shown = dict(self.chosen)
        for name in PRESET_FIELDS[1:]:
            if getattr(config, name) != getattr(base, name):
                shown[name] = SourcedValue(value=getattr(config, name), origin=f"preset {config.preset}")
        if everything:
            shown = {**shown, **{key: one for key, one in _defaults(base).items() if key not in shown}}
        return {key: replace(one, value=_plain(key, one.value)) for key, one in shown.items()}


def effective(
    choices: Mapping[str, Any],
    *,
    config_file: str | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    writes: bool = True,
    lenient: bool = False,
) -> Effective:
    """The configuration that is in force.

    It is made from the choices of the command line (the arguments of ``configured``, ``fail_on`` and ``tracking_uri``),
    the environment, and the policy that it names. It also has the configuration files seen from a folder, by default
    the current one.

    ``config_file``: read this file, and look for no other. ``writes``: verdicts are written with it, so what the policy
    locks holds against the command line, too. ``lenient``: a setting of the environment, a file or the policy that
    makes no sense is left out, with a warning.

    Raises:
        ConfigError: a value does not parse, a key or variable does not exist, or a file or the policy cannot be read.
    """
    given = os.environ if environ is None else environ
    if not lenient:
        return _effective(choices, config_file, given, folder, writes=writes)
    with leaving_out() as problems:
        found = _effective(choices, config_file, given, folder, writes=writes)
    return replace(found, warnings=(*found.warnings, *problems))


def _effective(
    choices: Mapping[str, Any],
    config_file: str | None,
    environ: Mapping[str, str],
    folder: Path | None,
    *,
    writes: bool,
) -> Effective:
    strong = [_typed(choices), _exported(environ)]
    found = _documents(config_file or environ.get(f"{ENVIRONMENT}CONFIG") or None, folder)
    chosen: dict[str, SourcedValue] = {}
    for layer in strong:
        chosen = {**layer, **chosen}
    pinned = frozenset(chosen)
    for document in found:
        layer = written_layer(document)
        overridden = any(is_override(key) for key in chosen)
        for key, setting in layer.items():
            # What was typed or exported for this call holds for every run of it.
            if not (is_override(key) and (overridden or key.split(".", 2)[2] in pinned)):
                chosen.setdefault(key, setting)
    policy = policy_of(environ)
    refused: tuple[str, ...] = ()
    if policy is not None:
        typed = frozenset() if writes else frozenset(strong[0])
        chosen, refused = policy.under(chosen, typed)
    chosen = dict(sorted(chosen.items(), key=lambda one: _rank(one[0])))
    config = _config(chosen)
    return Effective(
        config=config if policy is None else replace(config, policy=policy.digest),
        chosen=chosen,
        files=(*(one.shown for one in found), *(() if policy is None else (policy.origin,))),
        warnings=(
            *_warnings(chosen),
            *_unsent(chosen, environ),
            *refused,
            *(() if policy is None else policy.warnings),
        ),
    )


def under_policy(config: Config, *, writes: bool) -> Config:
    """A configuration that was not made by ``effective``, with the policy that the environment names beneath it.

    ``writes``: as there; what only judges keeps all of its own values.

    Raises:
        ConfigError: the policy cannot be read.
    """
    policy = None if config.policy else policy_of(os.environ)
    if policy is None:
        return config
    own = _chosen_in(config)
    chosen, _ = policy.under(own, () if writes else frozenset(own))
    base = preset(chosen["preset"].value) if "preset" in chosen else config
    judged = {name: getattr(base, name) for name in PRESET_FIELDS}
    notes = (*config.notes, *_remarks(policy.layer), *policy.remarks)
    made = _config(chosen)
    docs_url = config.docs_url or made.docs_url
    kept = {name: getattr(config, name) for name in ("trusted_hosts", "baseline", "siblings")}
    return replace(made, **judged, **kept, policy=policy.digest, docs_url=docs_url, notes=notes)


def _chosen_in(config: Config) -> dict[str, SourcedValue]:
    """What of a configuration is not at its default, by dotted key."""
    base = Config()
    values: dict[str, Any] = {
        key: getattr(config, key) for key in JUDGING if getattr(config, key) != getattr(base, key)
    }
    values |= {f"roles.{role}": one for role, one in config.roles.items() if one != DEFAULT_PATTERNS.get(role)}
    values |= {f"rules.{name}.{key}": one for name, found in config.thresholds.items() for key, one in found.items()}
    values |= {
        f"notify.{one.name}": value
        for one in fields(Notify)
        if (value := getattr(config.notify, one.name)) != getattr(base.notify, one.name)
    }
    for index, override in enumerate(config.overrides):
        values |= {
            f"overrides.{index}.{key}": one for key, one in {"match": override.match, **override.changes}.items()
        }
    return {key: SourcedValue(value=value, origin="the call") for key, value in values.items()}


def configured(
    *,
    preset_name: str = "default",
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    settings: Iterable[str] = (),
    checkpoint: str | None = None,
    max_download: str | None = None,
) -> Config:
    """The configuration for these choices alone. ``settings`` are texts such as ``rules.diverged.sigmas=6`` and
    ``roles.train_loss=my/loss,other/loss``: a role's patterns replace its defaults, and win over those of other roles.
    ``select`` and ``ignore`` may be written in any case.

    Raises:
        ConfigError: a setting does not parse, or names nothing that exists.
    """
    choices = {
        "preset_name": preset_name,
        "select": select,
        "ignore": ignore,
        "settings": settings,
        "checkpoint": checkpoint,
        "max_download": max_download,
    }
    return _config(_typed(choices))


# Layers: what each source says, by dotted key


def _typed(choices: Mapping[str, Any]) -> dict[str, SourcedValue]:
    """The command line's choices, of which an empty one is none."""
    given = {key: choices.get("preset_name" if key == "preset" else key) for key in KEYS}
    given = {key: list(value) if key in ("select", "ignore") and value else value for key, value in given.items()}
    layer = {
        key: SourcedValue(value=converted(key, value), origin="command line") for key, value in given.items() if value
    }
    return layer | _set(choices.get("settings", ()), "--set ", "command line")


def _exported(environ: Mapping[str, str]) -> dict[str, SourcedValue]:
    """The environment's settings, of which an empty one is none."""
    known = {f"{ENVIRONMENT}{key.upper()}": key for key in KEYS}
    others = {f"{ENVIRONMENT}{name}" for name in ("SET", "CONFIG", *SWITCHES)}
    layer: dict[str, SourcedValue] = {}
    for name, text in environ.items():
        if not name.startswith(ENVIRONMENT):
            continue
        if name not in known and name not in others:
            hint = did_you_mean(name, known.keys() | others)
            refuse(ConfigError(f"there is no environment variable {printable(name, 80)}", hint))
        if name in known and text.strip():
            key = known[name]
            raw = [part.strip() for part in text.split(",") if part.strip()] if key in LISTS else text
            if (setting := located(key, raw, name, f"environment {name}")) is not None:
                layer[key] = setting
    name = f"{ENVIRONMENT}SET"
    settings = [part.strip() for part in environ.get(name, "").split(";") if part.strip()]
    return layer | _set(settings, f"{name}: ", f"environment {name}")


def _set(settings: Iterable[str], where: str, origin: str) -> dict[str, SourcedValue]:
    """Settings such as ``rules.diverged.sigmas=6`` or ``pages=always``; the last of a key holds."""
    layer: dict[str, SourcedValue] = {}
    for setting in settings:
        try:
            key, raw = _assignment(setting, where)
        except ConfigError as error:
            refuse(error)
            continue
        if origin == "command line":
            layer[key] = SourcedValue(value=converted(key, raw), origin=origin)
        elif (found := located(key, raw, where.rstrip(": "), origin)) is not None:
            layer[key] = found
    return layer


def _assignment(setting: str, where: str) -> tuple[str, Any]:
    """The dotted key and the raw value of ``KEY=VALUE``.

    Raises:
        ConfigError: it does not parse.
    """
    key, equals, text = setting.partition("=")
    section, _, rest = current_key(key.strip()).partition(".")
    plain = key.strip() in KEYS
    if not equals or not (plain or (section in SECTIONS and rest)):
        known = "rules.NAME.THRESHOLD=NUMBER, roles.ROLE=NAME, or a key of a configuration file"
        raise ConfigError(f"{where}{quoted(setting)} does not parse", f"write {known}")
    raw: Any = text
    if section in ("roles", *LISTS) or key.strip() in NOTIFY_LISTS:
        raw = [part.strip() for part in text.split(",") if part.strip()]
    elif section == "rules" and (raw := as_number(text)) is None:
        raise ConfigError(f"{where}{quoted(setting)}: {quoted(text)} is no number")
    return key.strip() if plain else f"{section}.{rest}", raw


def _documents(config_file: str | None, folder: Path | None) -> list[Document]:
    from tracker_health.settings.file import documents

    try:
        start = Path.cwd() if folder is None else folder
        home = Path.home()
    except (OSError, RuntimeError):  # the current folder was deleted, or the user has no home
        return documents(config_file, None, Path())
    return documents(config_file, start, home)


# The whole


def _config(chosen: Mapping[str, SourcedValue]) -> Config:
    own = living_changes({key: one.value for key, one in chosen.items() if not is_override(key)})
    by_index: dict[int, dict[str, Any]] = {}
    for key, one in chosen.items():
        if is_override(key):
            _, index, inner = key.split(".", 2)
            by_index.setdefault(int(index), {})[inner] = one.value
    overrides = tuple(
        Override(match=values.pop("match"), changes=living_changes(values)) for _, values in sorted(by_index.items())
    )
    return replace(changed(_base(chosen), own), overrides=overrides)


def _base(chosen: Mapping[str, SourcedValue]) -> Config:
    """The defaults, in which the roles that only a rule of a plugin knows are there to be set."""
    unusual = {role for section, role in map(_section, chosen) if section == "roles"} - DEFAULT_PATTERNS.keys()
    return Config(roles={**DEFAULT_PATTERNS, **dict.fromkeys(sorted(unusual), ())}) if unusual else Config()


def _warnings(chosen: Mapping[str, SourcedValue]) -> Iterator[str]:
    """What of the settings names a retired rule or threshold. Then thresholds and roles that only a plugin which does
    not work could know: they were let through, and do nothing.
    """
    from tracker_health.rules.registry import probe_classes

    yield from _remarks(chosen)
    for key, setting in chosen.items():
        section, name = _section(key)
        rule, _, threshold = name.partition(".")
        if section == "rules" and retired_threshold(rule, threshold) is not None:
            continue
        if section == "rules" and rule not in {probe.name for probe in probe_classes()}:
            lacks = "there is no such rule"
        elif section == "roles" and not is_role(name):
            lacks = "no rule asks for this role"
        else:
            continue
        why = plugin_errors()
        more = f" (+{len(why) - 1} more)" if len(why) > 1 else ""
        yield f"{setting.origin}: {printable(key, 80)} does nothing, {lacks}; {why[0]}{more}"


def _unsent(chosen: Mapping[str, SourcedValue], environ: Mapping[str, str]) -> Iterator[str]:
    """That a token will not be sent, said before a message has to wait for it."""
    named, webhook = chosen.get("notify.token_env"), chosen.get("notify.webhook")
    address = webhook.value if webhook is not None and "notify.webhook_env" not in chosen else ""
    if named is not None and not may_send(environ, named.value, address):
        yield f"{named.origin}: {'; '.join(why_not_sent(named.value, address))}"


def _remarks(layer: Mapping[str, SourcedValue]) -> Iterator[str]:
    for key, setting in layer.items():
        bare = key.split(".", 2)[2] if is_override(key) else key
        yield from (f"{setting.origin}: {remark}" for remark in remarks(bare, setting.value))


def _section(key: str) -> tuple[str, str]:
    """The table that a dotted key, in an override or not, is in, and its name there."""
    section, _, name = (key.split(".", 2)[2] if is_override(key) else key).partition(".")
    return section, name


def _rank(key: str) -> tuple[int, int, int, str]:
    """The order in which keys are shown: as in the documentation, overrides last and one after the other."""
    if is_override(key):
        _, index, inner = key.split(".", 2)
        return (2, int(index), -1 if inner == "match" else _rank(inner)[0], inner)
    return (0, KEYS.index(key), 0, "") if key in KEYS else (1, 0, 0, key)


def _defaults(base: Config) -> dict[str, SourcedValue]:
    from tracker_health.rules.probe import thresholds_of
    from tracker_health.rules.registry import probe_classes

    values = {key: getattr(base, key, None) for key in (*KEYS, *PRESET_FIELDS)}
    values |= {f"notify.{one.name}": getattr(base.notify, one.name) for one in fields(Notify)}
    values |= {f"roles.{role}": patterns for role, patterns in DEFAULT_PATTERNS.items()}
    for probe in probe_classes():
        values |= {f"rules.{probe.name}.{name}": getattr(probe, name) for name in thresholds_of(probe)}
    return {key: SourcedValue(value=value, origin="default") for key, value in values.items()}


def _plain(key: str, value: Any) -> Any:
    """As strict JSON can hold it, and without the secrets of a URL."""
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if key == "notify.webhook" and value:  # whoever knows the whole of it may write there
        return re.sub(r"(?<=[^/:])/.*", "/…", without_userinfo(value))
    return without_userinfo(value) if key == "tracking_uri" and value else value
