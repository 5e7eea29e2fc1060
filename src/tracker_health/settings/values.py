"""What each key of the configuration may be, whoever gives it: the command line, the environment, a file, a policy."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tracker_health.config import (
    CERTAINTIES,
    INCLUDABLE,
    MODES,
    WHEN,
    did_you_mean,
    parse_duration,
    preset,
    refuse_own_names,
)
from tracker_health.errors import ConfigError
from tracker_health.roles import DEFAULT_PATTERNS, OWN_PREFIXES, normal_form
from tracker_health.text import printable, without_userinfo
from tracker_health.words.retired import current_key, retired_rule, retired_threshold, retired_words

if TYPE_CHECKING:
    from tracker_health.rules.probe import Threshold

FAIL_ON = ("fail", "warn", "skip", "never")
JUDGING_SECTIONS = ("rules", "roles")
SECTIONS = (*JUDGING_SECTIONS, "notify")

_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_CODE = re.compile(r"[a-z]{3}\d+", re.IGNORECASE)
_HOST = re.compile(r"(?:[a-z0-9_.-]{1,253}|\[[0-9a-f:.]{2,50}\])(?::\d{1,5})?", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[a-z0-9.:\[\]-]{1,253}(?:/[a-z0-9._~%/+-]{0,500})?", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
LISTS = ("select", "ignore", "trusted_hosts")
"""Keys that the environment gives with commas between."""

_MAX_PATTERN = 500
_MOST_DIGITS = 7
MATCHES = 'write "experiment:rl-*", "project:NAME" or "tag:NAME=VALUE"'


def parse_size(text: str) -> int:
    """Bytes from ``500MB``, ``2 GB`` or ``1000``.

    Raises:
        ConfigError: it is no size.
    """
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*+([kmgt]?)i?b?\s*", text, re.IGNORECASE)
    if match is None:
        raise ConfigError(f"{quoted(text)} is no size", "write 500MB or 2GB")
    return int(float(match.group(1)) * _SIZES[match.group(2).lower()])


def converted(key: str, raw: Any) -> Any:
    """The value of a key, from what a TOML file can hold.

    Raises:
        ConfigError: there is no such key, or the value makes no sense.
    """
    section, _, name = key.partition(".")
    if section == "rules":
        return _threshold(name, raw)
    if section == "roles":
        return _patterns(name, raw)
    if section == "notify":
        _require_of_notify(name)
        return _OF_NOTIFY[name](key, raw)
    return _CONVERTERS[key](key, raw)


def require_key(key: str) -> None:
    """Raises unless there is such a key, or table of keys: ``ignore``, ``rules``, ``rules.NAME``, ``roles.ROLE``.

    Raises:
        ConfigError: there is not.
    """
    section, dot, name = current_key(key).partition(".")
    if section in (*KEYS, *SECTIONS) and not dot:
        return
    if section == "roles":
        _require_role(name)
    elif section == "notify":
        _require_of_notify(name)
    elif section == "rules":
        rule, dot, threshold = name.partition(".")
        if dot:
            _about(rule, threshold)
        else:
            _thresholds_of(rule)
    else:
        raise ConfigError(f"there is no key {quoted(key)}", did_you_mean(section, (*KEYS, *SECTIONS)))


def _text(key: str, raw: Any) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ConfigError(f"{key} must be text, not {_kind(raw)}")
    return raw


def _preset(key: str, raw: Any) -> str:
    return preset(_text(key, raw)[:_MAX_PATTERN]).preset


def _fail_on(key: str, raw: Any) -> str:
    if _text(key, raw) not in FAIL_ON:
        raise ConfigError(f"{key} cannot be {quoted(raw)}", did_you_mean(raw, FAIL_ON))
    return str(raw)


def _when(key: str, raw: Any) -> str:
    if _text(key, raw) not in WHEN:
        raise ConfigError(f"{key} cannot be {quoted(raw)}", did_you_mean(raw, WHEN))
    return str(raw)


def _mode(key: str, raw: Any) -> str:
    if _text(key, raw) not in MODES:
        raise ConfigError(f"{key} cannot be {quoted(raw)}", did_you_mean(raw, MODES))
    return str(raw)


def _size(key: str, raw: Any) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        if not 0 <= raw < 2**63:
            raise ConfigError(f"{key} must be a number of bytes", "write 500MB or 2GB")
        return raw
    return parse_size(_text(key, raw))


def _segment(key: str, raw: Any) -> int:
    number = int(raw) if isinstance(raw, str) and raw.isdecimal() and len(raw) < _MOST_DIGITS else raw
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ConfigError(f"{key} must be the number of a training in a log, from 1", f"write {key}=2 for the second")
    return number


def _duration(key: str, raw: Any) -> float:
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        if not 0 < raw < math.inf:
            raise ConfigError(f"{key} must be a number of seconds above 0", "write 30m, 6h or 7d")
        return float(raw)
    return parse_duration(_text(key, raw))


def _hang_after(key: str, raw: Any) -> float | None:
    """Seconds, infinite for ``off``, and None for ``auto``: by a run's own rhythm."""
    words = {"off": math.inf, "auto": None}
    return words[raw.strip().lower()] if isinstance(raw, str) and raw.strip().lower() in words else _duration(key, raw)


def _rules(key: str, raw: Any) -> frozenset[str]:
    """Codes and names of rules, as the registry writes them: codes in capitals, names in small letters."""
    from tracker_health.rules.registry import probe_classes

    known = {word for probe in probe_classes() for word in (probe.code, probe.name)}
    rules = {text.upper() if _CODE.fullmatch(text) else text.lower(): text for text in _texts(key, raw)}
    for rule in sorted(rules.keys() - known - retired_words()):
        raise ConfigError(f"there is no rule {quoted(rules[rule])}", did_you_mean(rule, known))
    return frozenset(rules)


def _texts(key: str, raw: Any) -> list[str]:
    if not isinstance(raw, list) or not all(isinstance(one, str) for one in raw):
        raise ConfigError(f"{key} must be a list of texts, not {_kind(raw)}", f'write {key} = ["..."]')
    return raw


def _hosts(key: str, raw: Any) -> tuple[str, ...]:
    for host in _texts(key, raw):
        if not _HOST.fullmatch(host):
            raise ConfigError(f"{key}: {quoted(host)} is no host", 'write "mlflow.example.com" or "10.0.0.7:5000"')
    return tuple(host.lower() for host in raw)


def _docs_url(key: str, raw: Any) -> str:
    """An address that may be in HTML and Markdown, and shows nobody a password."""
    text = _text(key, raw).strip()
    if not _ADDRESS.fullmatch(text):
        raise ConfigError(
            f"{key}: {quoted(without_userinfo(text))} is no address", 'write "https://docs.example.com/tracker-health"'
        )
    return text.rstrip("/")


def _require_of_notify(name: str) -> None:
    if name not in _OF_NOTIFY:
        raise ConfigError(f"there is no key notify.{printable(name, 80)}", did_you_mean(name, _OF_NOTIFY))


def _webhook(key: str, raw: Any) -> str:
    """An address without a password or a query: a secret one is in the environment."""
    text = _text(key, raw).strip()
    if not _ADDRESS.fullmatch(text):
        hint = 'write "https://hooks.example.com/health", or name the variable with it: webhook_env = "NAME"'
        raise ConfigError(f"{key} is no address without a password or a query", hint)
    return text


def _variable(key: str, raw: Any) -> str:
    """The name of an environment variable. What else is there may be the secret itself, and is not repeated."""
    if not _VARIABLE.fullmatch(_text(key, raw)):
        raise ConfigError(f"{key} must be the name of an environment variable", f'write {key} = "SLACK_WEBHOOK"')
    return str(raw)


def _template(key: str, raw: Any) -> str:
    """A JSON document as text."""
    try:
        json.loads(_text(key, raw))
    except (ValueError, RecursionError):
        raise ConfigError(f"{key} is no JSON", """write template = '{"text": "{text}"}'""") from None
    return str(raw)


def _one_of(*words: str) -> Callable[[str, Any], str]:
    def chosen(key: str, raw: Any) -> str:
        if _text(key, raw) not in words:
            raise ConfigError(f"{key} cannot be {quoted(raw)}", did_you_mean(raw, words))
        return str(raw)

    return chosen


def _some_of(key: str, raw: Any) -> tuple[str, ...]:
    return tuple(_one_of(*INCLUDABLE)(key, one) for one in _texts(key, raw))


def _matches(key: str, raw: Any) -> tuple[str, ...]:
    return tuple(_match(key, one) for one in _texts(key, raw))


def _program(key: str, raw: Any) -> tuple[str, ...]:
    return tuple(_text(key, one) for one in _texts(key, raw))


def _require_role(role: str) -> None:
    if not is_role(role) and not plugin_errors():
        from tracker_health.judge.engine import known_roles

        raise ConfigError(f"there is no role {quoted(role)}", did_you_mean(role, known_roles()))


def _patterns(role: str, raw: Any) -> tuple[str, ...]:
    _require_role(role)
    patterns = tuple(part.strip() for part in _texts(f"roles.{role}", raw) if normal_form(part))
    if not patterns:
        raise ConfigError(f"roles.{role} names no metric", f"write roles.{role}=my/metric")
    refuse_own_names(role, patterns)
    return patterns


def is_role(role: str) -> bool:
    """Whether a metric may be given this role. Rules, and so plugins, are looked at only for an unusual one."""
    if role in DEFAULT_PATTERNS:
        return True
    from tracker_health.judge.engine import known_roles

    return role in known_roles()


def _thresholds_of(name: str) -> Mapping[str, tuple[type, Threshold]] | None:
    """The thresholds of a rule; None of one that was retired, or may be a plugin's which does not load."""
    from tracker_health.rules.probe import thresholds_of
    from tracker_health.rules.registry import probe_classes

    classes = {probe.name: probe for probe in probe_classes()}
    if name in classes:
        return thresholds_of(classes[name])
    if retired_rule(name) is not None or plugin_errors():
        return None
    raise ConfigError(f"rules.{printable(name, 80)}: there is no such rule", did_you_mean(name, classes))


def _about(name: str, threshold: str) -> tuple[type, Threshold] | None:
    """What is known of a threshold; None of one that was retired, or may be a plugin's."""
    known = _thresholds_of(name)
    if retired_threshold(name, threshold) is not None:
        return None
    if known is not None and threshold not in known:
        hint = did_you_mean(threshold, known)
        raise ConfigError(f"rules.{name}.{printable(threshold, 80)}: there is no such threshold", hint)
    return None if known is None else known[threshold]


def _threshold(key: str, raw: Any) -> float | int:
    name, _, threshold = key.partition(".")
    found, value = _about(name, threshold), _finite(raw)
    if found is None:
        if value is None:
            raise ConfigError(f"rules.{key} must be a number, not {_kind(raw)}")
        return value
    kind, about = found
    if value is None:
        raise ConfigError(f"rules.{key} must be a number, not {_kind(raw)}", about.meaning)
    if kind is int and not isinstance(value, int):
        raise ConfigError(f"rules.{key} = {value!r}: must be a whole number", about.meaning)
    problem = about.problem_with(value)
    if problem is not None:
        raise ConfigError(f"rules.{key} = {value!r}: {problem}", about.meaning)
    return value


def plugin_errors() -> tuple[str, ...]:
    """What is wrong with plugins. While something is, a rule or role that is not there may be one of theirs."""
    from tracker_health.rules.registry import plugins

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
        raise ConfigError(f"{key} = {quoted(text)} does not parse", MATCHES)
    if name.startswith(OWN_PREFIXES):
        raise ConfigError(f"{key} = {quoted(text)}: a verdict cannot depend on what the last one wrote")
    return text


def as_number(text: str) -> float | int | None:
    """The number that a text is; None for what is none."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


_OF_NOTIFY: Mapping[str, Callable[[str, Any], Any]] = {
    "webhook": _webhook,
    "webhook_env": _variable,
    "token_env": _variable,
    "template": _template,
    "command": _program,
    "wandb_alert": _switch,
    "on": _one_of("fail", "warn"),
    "certainty": _one_of(*CERTAINTIES),
    "mute": _matches,
    "include": _some_of,
}
NOTIFY_LISTS = ("notify.command", "notify.mute", "notify.include")

_CONVERTERS: Mapping[str, Callable[[str, Any], Any]] = {
    "preset": _preset,
    "select": _rules,
    "ignore": _rules,
    "checkpoint": _text,
    "segment": _segment,
    "max_download": _size,
    "stale_after": _duration,
    "hang_after": _hang_after,
    "metrics": _switch,
    "pages": _when,
    "description": _when,
    "mode": _mode,
    "fail_on": _fail_on,
    "tracking_uri": _text,
    "trusted_hosts": _hosts,
    "docs_url": _docs_url,
    "auto": _switch,
    "match": _match,
}
KEYS = tuple(_CONVERTERS)[:-1]
"""The keys of a configuration file that are in no table; in capitals, after ``TRACKER_HEALTH_``, the environment's."""

JUDGING = KEYS[:12]
"""Those of them that decide how a run is judged, and what is written: an override may have them."""

OF_JUDGEMENT = frozenset({
    "preset", "select", "ignore", "checkpoint", "stale_after", "hang_after", "mode", "fail_on", "metrics", "pages",
    "description", "rules", "roles", "overrides", "match",
})  # fmt: skip
"""What a policy from an address may say: how runs are judged, and which verdicts are written. Nothing else, and so no
new key by itself: whoever answers there chooses no server, no receiver, no program and no credentials of this machine.
"""

TOKEN_ENVS = "TRACKER_HEALTH_TOKEN_ENVS"  # noqa: S105 - no password: a name
"""The variable that says which variables hold tokens for receivers of messages: ``NAME@HOST``, with commas between."""


def may_send(environ: Mapping[str, str], variable: str, address: str) -> bool:
    """Whether the environment allows that the token in this variable is sent to that address. ``address``: empty where
    it is not known yet.
    """
    host = urlsplit(address).netloc.lower() if address else ""
    for one in environ.get(TOKEN_ENVS, "").split(","):
        name, _, at = one.strip().partition("@")
        if name == variable and (not at or not host or at.lower() in (host, host.rpartition(":")[0])):
            return True
    return False


def why_not_sent(variable: str, address: str = "") -> tuple[str, str]:
    """That the environment does not allow it, and how it would."""
    host = printable(urlsplit(address).netloc, 100) if address else "HOST"
    message = f"notify.token_env: the environment does not allow that the token in {variable} is sent to {host}"
    return message, f"if the receiver is yours: export {TOKEN_ENVS}={variable}@{host}"


def quoted(text: Any) -> str:
    """What someone wrote, for a message: short, and nothing that moves the cursor."""
    return repr(printable(text, 80))


def _kind(raw: Any) -> str:
    """What a value is, without the value: it may be a secret in the wrong place, or a megabyte."""
    names = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return "empty" if raw == "" else names.get(type(raw), "text" if isinstance(raw, str) else "a date or time")
