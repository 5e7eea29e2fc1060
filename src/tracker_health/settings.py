"""From what a user types, exports and writes into files to a ``Config``, and where each value came from.

The command line comes before the environment, that before ``tracker-health.toml``, that before ``pyproject.toml``, that
before the preset and the defaults: key by key. Every value goes through ``_converted``, whoever gave it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracker_health.config import PRESET_FIELDS, Config, Override, changed, did_you_mean, preset, refuse_own_names
from tracker_health.errors import ConfigError
from tracker_health.roles import DEFAULT_PATTERNS, OWN_PREFIXES, normal_form
from tracker_health.text import printable, without_userinfo

if TYPE_CHECKING:
    from tracker_health.settings_file import Document, KeyPath

FAIL_ON = ("fail", "warn", "skip", "never")
ENVIRONMENT = "TRACKER_HEALTH_"
SWITCHES = ("DISABLED", "PLUGINS", "HOOK_SECONDS", "LEDGER")
"""Environment variables that are no settings: others read them."""

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SECTIONS = ("probes", "roles")
_CODE = re.compile(r"[a-z]{3}\d+", re.IGNORECASE)
_HOST = re.compile(r"(?:[a-z0-9_.-]{1,253}|\[[0-9a-f:.]{2,50}\])(?::\d{1,5})?", re.IGNORECASE)
_LISTS = ("select", "ignore", "trusted_hosts")
_MAX_PATTERN = 500
_MATCHES = 'write "experiment:rl-*", "project:NAME" or "tag:NAME=VALUE"'


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A value and where it came from: ``command line``, ``environment NAME``, ``FILE:LINE``, ``preset NAME`` or
    ``default``.
    """

    value: Any
    origin: str


@dataclass(frozen=True, kw_only=True)
class Effective:
    """The configuration in force. ``chosen``: what is not left to the preset and the defaults, by its dotted key;
    ``overrides.0.KEY`` is what the first override says. ``files``: those that were read. ``warnings``: what of it does
    nothing, and why.
    """

    config: Config
    chosen: Mapping[str, Setting]
    files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def fail_on(self) -> str | None:
        """The verdict from which on the exit code is 1; None leaves it to the command."""
        return self.chosen["fail_on"].value if "fail_on" in self.chosen else None

    @property
    def tracking_uri(self) -> str | None:
        """The MLflow store of run ids; None leaves it to MLflow."""
        return self.chosen["tracking_uri"].value if "tracking_uri" in self.chosen else None

    def described(self, *, everything: bool) -> dict[str, Setting]:
        """What differs from the defaults, in plain values that may be shown, and then ``everything`` else."""
        config, base = self.config, Config()
        shown = dict(self.chosen)
        for name in PRESET_FIELDS[1:]:
            if getattr(config, name) != getattr(base, name):
                shown[name] = Setting(value=getattr(config, name), origin=f"preset {config.preset}")
        if everything:
            shown = {**shown, **{key: one for key, one in _defaults(base).items() if key not in shown}}
        return {key: replace(one, value=_plain(key, one.value)) for key, one in shown.items()}


def effective(
    choices: Mapping[str, Any],
    *,
    config_file: str | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Effective:
    """The configuration for these choices of the command line (the arguments of ``configured``, ``fail_on`` and
    ``tracking_uri``), the environment, and the configuration files seen from a folder (by default the current one).

    ``config_file``: read this file, and look for no other.

    Raises:
        ConfigError: a value does not parse, a key or variable does not exist, or a file cannot be read.
    """
    environ = os.environ if environ is None else environ
    strong = [_typed(choices), _exported(environ)]
    found = _documents(config_file or environ.get(f"{ENVIRONMENT}CONFIG") or None, folder)
    chosen: dict[str, Setting] = {}
    for layer in strong:
        chosen = {**layer, **chosen}
    pinned = frozenset(chosen)
    for document in found:
        layer = _written(document)
        overridden = any(_is_override(key) for key in chosen)
        for key, setting in layer.items():
            # What was typed or exported for this call holds for every run of it.
            if not (_is_override(key) and (overridden or key.split(".", 2)[2] in pinned)):
                chosen.setdefault(key, setting)
    chosen = dict(sorted(chosen.items(), key=lambda one: _rank(one[0])))
    return Effective(
        config=_config(chosen),
        chosen=chosen,
        files=tuple(one.shown for one in found),
        warnings=tuple(_warnings(chosen)),
    )


def configured(
    *,
    preset_name: str = "default",
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    settings: Iterable[str] = (),
    checkpoint: str | None = None,
    max_download: str | None = None,
) -> Config:
    """The configuration for these choices alone. ``settings`` are texts such as ``probes.diverged.sigmas=6`` and
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


def parse_size(text: str) -> int:
    """Bytes from ``500MB``, ``2 GB`` or ``1000``.

    Raises:
        ConfigError: it is no size.
    """
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*+([kmgt]?)i?b?\s*", text, re.IGNORECASE)
    if match is None:
        raise ConfigError(f"{_quoted(text)} is no size", "write 500MB or 2GB")
    return int(float(match.group(1)) * _SIZES[match.group(2).lower()])


def parse_duration(text: str) -> float:
    """Seconds from ``90s``, ``30m``, ``6h``, ``7d`` or ``2w``.

    Raises:
        ConfigError: it is no duration.
    """
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,6})?)\s*([smhdw])\s*", text, re.IGNORECASE)
    if match is None:
        raise ConfigError(f"{_quoted(text)} is no duration", "write 30m, 6h or 7d")
    return float(match.group(1)) * _SECONDS[match.group(2).lower()]


# Layers: what each source says, by dotted key


def _typed(choices: Mapping[str, Any]) -> dict[str, Setting]:
    """The command line's choices, of which an empty one is none."""
    given = {key: choices.get("preset_name" if key == "preset" else key) for key in KEYS}
    given = {key: list(value) if key in ("select", "ignore") and value else value for key, value in given.items()}
    layer = {key: Setting(value=_converted(key, value), origin="command line") for key, value in given.items() if value}
    return layer | _set(choices.get("settings", ()), "--set ", "command line")


def _exported(environ: Mapping[str, str]) -> dict[str, Setting]:
    """The environment's settings, of which an empty one is none."""
    known = {f"{ENVIRONMENT}{key.upper()}": key for key in KEYS}
    others = {f"{ENVIRONMENT}{name}" for name in ("SET", "CONFIG", *SWITCHES)}
    layer: dict[str, Setting] = {}
    for name, text in environ.items():
        if not name.startswith(ENVIRONMENT):
            continue
        if name not in known and name not in others:
            hint = did_you_mean(name, known.keys() | others)
            raise ConfigError(f"there is no environment variable {printable(name, 80)}", hint)
        if name in known and text.strip():
            key = known[name]
            raw = [part.strip() for part in text.split(",") if part.strip()] if key in _LISTS else text
            layer[key] = Setting(value=_located(key, raw, name), origin=f"environment {name}")
    name = f"{ENVIRONMENT}SET"
    settings = [part.strip() for part in environ.get(name, "").split(";") if part.strip()]
    return layer | _set(settings, f"{name}: ", f"environment {name}")


def _set(settings: Iterable[str], where: str, origin: str) -> dict[str, Setting]:
    """Settings such as ``probes.diverged.sigmas=6``; the last of a key holds."""
    layer = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        section, _, rest = key.strip().partition(".")
        if not equals or section not in _SECTIONS or not rest:
            known = "probes.NAME.THRESHOLD=NUMBER or roles.ROLE=NAME"
            raise ConfigError(f"{where}{_quoted(setting)} does not parse", f"write {known}")
        raw: Any = text
        if section == "roles":
            raw = [part.strip() for part in text.split(",") if part.strip()]
        elif (raw := _as_number(text)) is None:
            raise ConfigError(f"{where}{_quoted(setting)}: {_quoted(text)} is no number")
        dotted = f"{section}.{rest}"
        value = _converted(dotted, raw) if origin == "command line" else _located(dotted, raw, where.rstrip(": "))
        layer[dotted] = Setting(value=value, origin=origin)
    return layer


def _documents(config_file: str | None, folder: Path | None) -> list[Document]:
    from tracker_health.settings_file import documents

    try:
        start = Path.cwd() if folder is None else folder
        home = Path.home()
    except (OSError, RuntimeError):  # the current folder was deleted, or the user has no home
        return documents(config_file, None, Path())
    return documents(config_file, start, home)


def _written(document: Document) -> dict[str, Setting]:
    """The settings of a configuration file.

    Raises:
        ConfigError: it has keys that do not exist, or values that are none; with file and line.
    """
    layer = dict(_table(document, document.table, (), (*KEYS, *_SECTIONS, "overrides")))
    overrides = document.table.get("overrides", [])
    if not isinstance(overrides, list) or not all(isinstance(one, dict) for one in overrides):
        raise ConfigError(f"{document.where(('overrides',))}: overrides must be tables, each headed [[overrides]]")
    for index, override in enumerate(overrides):
        path = ("overrides", str(index))
        if "match" not in override:
            raise ConfigError(f"{document.where(path)}: this override does not say which runs it is for", _MATCHES)
        layer |= _table(document, override, path, (*JUDGING, *_SECTIONS, "match"))
    return layer


def _table(
    document: Document, table: Mapping[str, Any], path: KeyPath, known: tuple[str, ...]
) -> Iterator[tuple[str, Setting]]:
    for key, value in table.items():
        if key not in known:
            hint = did_you_mean(key, known)
            raise ConfigError(f"{document.where((*path, key))}: there is no key {_quoted(key)}{_inside(path)}", hint)
        for inner, raw in _leaves(document, path, key, value):
            where = document.where((*path, *inner))
            dotted = ".".join(inner)
            yield ".".join((*path, dotted)), Setting(value=_located(dotted, raw, where), origin=where)


def _inside(path: KeyPath) -> str:
    return " in an override" if path else ""


def _leaves(document: Document, path: KeyPath, key: str, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    """The values below a top-level key, each by its path."""
    if key == "overrides":
        return
    if key not in _SECTIONS:
        yield (key,), value
        return
    for name, inner in _items(document, path, (key,), value):
        if key == "roles":
            yield (key, name), inner
            continue
        for threshold, number in _items(document, path, (key, name), inner):
            yield (key, name, threshold), number


def _items(document: Document, path: KeyPath, key: KeyPath, value: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, dict):
        name = printable(".".join(key), 80)
        raise ConfigError(f"{document.where((*path, *key))}: {name} must be a table", f"write [{name}] above its keys")
    return value.items()


def _located(key: str, raw: Any, where: str) -> Any:
    """The value of a key; what is wrong with it is said with the place where it stands."""
    try:
        return _converted(key, raw)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", error.hint) from None


# Values: what each key may be


def _converted(key: str, raw: Any) -> Any:
    """The value of a key, from what a TOML file can hold.

    Raises:
        ConfigError: there is no such key, or the value makes no sense.
    """
    section, _, name = key.partition(".")
    if section == "probes":
        return _threshold(name, raw)
    if section == "roles":
        return _patterns(name, raw)
    return _CONVERTERS[key](key, raw)


def _text(key: str, raw: Any) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ConfigError(f"{key} must be text, not {_kind(raw)}")
    return raw


def _preset(key: str, raw: Any) -> str:
    return preset(_text(key, raw)[:_MAX_PATTERN]).preset


def _fail_on(key: str, raw: Any) -> str:
    if _text(key, raw) not in FAIL_ON:
        raise ConfigError(f"{key} cannot be {_quoted(raw)}", did_you_mean(raw, FAIL_ON))
    return str(raw)


def _size(key: str, raw: Any) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        if not 0 <= raw < 2**63:
            raise ConfigError(f"{key} must be a number of bytes", "write 500MB or 2GB")
        return raw
    return parse_size(_text(key, raw))


def _rules(key: str, raw: Any) -> frozenset[str]:
    """Codes and names of rules, as the registry writes them: codes in capitals, names in small letters."""
    from tracker_health.registry import probe_classes

    known = {word for probe in probe_classes() for word in (probe.code, probe.name)}
    rules = {text.upper() if _CODE.fullmatch(text) else text.lower(): text for text in _texts(key, raw)}
    for rule in sorted(rules.keys() - known):
        raise ConfigError(f"there is no rule {_quoted(rules[rule])}", did_you_mean(rule, known))
    return frozenset(rules)


def _texts(key: str, raw: Any) -> list[str]:
    if not isinstance(raw, list) or not all(isinstance(one, str) for one in raw):
        raise ConfigError(f"{key} must be a list of texts, not {_kind(raw)}", f'write {key} = ["..."]')
    return raw


def _hosts(key: str, raw: Any) -> tuple[str, ...]:
    for host in _texts(key, raw):
        if not _HOST.fullmatch(host):
            raise ConfigError(f"{key}: {_quoted(host)} is no host", 'write "mlflow.example.com" or "10.0.0.7:5000"')
    return tuple(host.lower() for host in raw)


def _patterns(role: str, raw: Any) -> tuple[str, ...]:
    if not _is_role(role) and not _plugin_errors():
        from tracker_health.engine import known_roles

        raise ConfigError(f"there is no role {_quoted(role)}", did_you_mean(role, known_roles()))
    patterns = tuple(part.strip() for part in _texts(f"roles.{role}", raw) if normal_form(part))
    if not patterns:
        raise ConfigError(f"roles.{role} names no metric", f"write roles.{role}=my/metric")
    refuse_own_names(role, patterns)
    return patterns


def _is_role(role: str) -> bool:
    """Whether a metric may be given this role. Rules, and so plugins, are looked at only for an unusual one."""
    if role in DEFAULT_PATTERNS:
        return True
    from tracker_health.engine import known_roles

    return role in known_roles()


def _threshold(key: str, raw: Any) -> float | int:
    from tracker_health.probe import thresholds_of
    from tracker_health.registry import probe_classes

    name, _, threshold = key.partition(".")
    classes = {probe.name: probe for probe in probe_classes()}
    if name not in classes and _plugin_errors() and (number := _finite(raw)) is not None:
        return number
    if name not in classes:
        raise ConfigError(f"probes.{printable(name, 80)}: there is no such rule", did_you_mean(name, classes))
    known = thresholds_of(classes[name])
    if threshold not in known:
        hint = did_you_mean(threshold, known)
        raise ConfigError(f"probes.{name}.{printable(threshold, 80)}: there is no such threshold", hint)
    kind, about = known[threshold]
    value = _finite(raw)
    if value is None:
        raise ConfigError(f"probes.{key} must be a number, not {_kind(raw)}", about.meaning)
    if kind is int and not isinstance(value, int):
        raise ConfigError(f"probes.{key} = {value!r}: must be a whole number", about.meaning)
    problem = about.problem_with(value)
    if problem is not None:
        raise ConfigError(f"probes.{key} = {value!r}: {problem}", about.meaning)
    return value


def _plugin_errors() -> tuple[str, ...]:
    """What is wrong with plugins. While something is, a rule or role that is not there may be one of theirs."""
    from tracker_health.registry import plugins

    return tuple(f"{error.source}: {error.message}" for error in plugins().errors)


def _finite(raw: Any) -> float | int | None:
    """The number, if it is one that can be compared with; infinity, which switches a threshold off, can."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return None
    try:
        return None if math.isnan(raw) else raw
    except OverflowError:  # a whole number beyond every float
        return None


def _switch(key: str, raw: Any) -> bool:
    """Whether something is on: true or false in a file, 1 or 0 in the environment."""
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    value = words.get(raw.strip().lower()) if isinstance(raw, str) else raw
    if not isinstance(value, bool):
        raise ConfigError(f"{key} must be true or false, not {_kind(raw)}")
    return value


def _match(key: str, raw: Any) -> str:
    text = _text(key, raw)
    kind, _, rest = text.partition(":")
    name, equals, pattern = rest.partition("=") if kind == "tag" else ("-", "=", rest)
    if kind not in ("experiment", "project", "tag") or not (name and equals and pattern) or len(text) > _MAX_PATTERN:
        raise ConfigError(f"{key} = {_quoted(text)} does not parse", _MATCHES)
    if name.startswith(OWN_PREFIXES):
        raise ConfigError(f"{key} = {_quoted(text)}: a verdict cannot depend on what the last one wrote")
    return text


def _as_number(text: str) -> float | int | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


_CONVERTERS: Mapping[str, Callable[[str, Any], Any]] = {
    "preset": _preset,
    "select": _rules,
    "ignore": _rules,
    "checkpoint": _text,
    "max_download": _size,
    "fail_on": _fail_on,
    "tracking_uri": _text,
    "trusted_hosts": _hosts,
    "auto": _switch,
    "match": _match,
}
KEYS = tuple(_CONVERTERS)[:-1]
"""The keys of a configuration file that are in no table; in capitals, after ``TRACKER_HEALTH_``, the environment's."""

JUDGING = KEYS[:5]
"""Those of them that decide how a run is judged: an override may have them."""


# The whole


def _config(chosen: Mapping[str, Setting]) -> Config:
    own = {key: one.value for key, one in chosen.items() if not _is_override(key)}
    by_index: dict[int, dict[str, Any]] = {}
    for key, one in chosen.items():
        if _is_override(key):
            _, index, inner = key.split(".", 2)
            by_index.setdefault(int(index), {})[inner] = one.value
    overrides = tuple(
        Override(match=values["match"], changes={key: value for key, value in values.items() if key != "match"})
        for _, values in sorted(by_index.items())
    )
    return replace(changed(_base(chosen), own), overrides=overrides)


def _base(chosen: Mapping[str, Setting]) -> Config:
    """The defaults, in which the roles that only a rule of a plugin knows are there to be set."""
    unusual = {role for section, role in map(_section, chosen) if section == "roles"} - DEFAULT_PATTERNS.keys()
    return Config(roles={**DEFAULT_PATTERNS, **dict.fromkeys(sorted(unusual), ())}) if unusual else Config()


def _warnings(chosen: Mapping[str, Setting]) -> Iterator[str]:
    """Thresholds and roles that only a plugin which does not work could know: they were let through, and do nothing."""
    from tracker_health.registry import probe_classes

    for key, setting in chosen.items():
        section, name = _section(key)
        if section == "probes" and name.partition(".")[0] not in {probe.name for probe in probe_classes()}:
            lacks = "there is no such rule"
        elif section == "roles" and not _is_role(name):
            lacks = "no rule asks for this role"
        else:
            continue
        why = _plugin_errors()
        more = f" (+{len(why) - 1} more)" if len(why) > 1 else ""
        yield f"{setting.origin}: {printable(key, 80)} does nothing, {lacks}; {why[0]}{more}"


def _section(key: str) -> tuple[str, str]:
    """The table that a dotted key, in an override or not, is in, and its name there."""
    section, _, name = (key.split(".", 2)[2] if _is_override(key) else key).partition(".")
    return section, name


def _is_override(key: str) -> bool:
    return key.startswith("overrides.")


def _rank(key: str) -> tuple[int, int, int, str]:
    """The order in which keys are shown: as in the documentation, overrides last and one after the other."""
    if _is_override(key):
        _, index, inner = key.split(".", 2)
        return (2, int(index), -1 if inner == "match" else _rank(inner)[0], inner)
    return (0, KEYS.index(key), 0, "") if key in KEYS else (1, 0, 0, key)


def _defaults(base: Config) -> dict[str, Setting]:
    from tracker_health.probe import thresholds_of
    from tracker_health.registry import probe_classes

    values = {key: getattr(base, key, None) for key in (*KEYS, *PRESET_FIELDS)}
    values |= {f"roles.{role}": patterns for role, patterns in DEFAULT_PATTERNS.items()}
    for probe in probe_classes():
        values |= {f"probes.{probe.name}.{name}": getattr(probe, name) for name in thresholds_of(probe)}
    return {key: Setting(value=value, origin="default") for key, value in values.items()}


def _plain(key: str, value: Any) -> Any:
    """As strict JSON can hold it, and without the secrets of a URL."""
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return without_userinfo(value) if key == "tracking_uri" and value else value


def _quoted(text: Any) -> str:
    return repr(printable(text, 80))


def _kind(raw: Any) -> str:
    """What a value is, without the value: it may be a secret in the wrong place, or a megabyte."""
    names = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return "empty" if raw == "" else names.get(type(raw), "text" if isinstance(raw, str) else "a date or time")
