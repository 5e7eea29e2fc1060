"""From what a user types to a ``Config``: presets, chosen rules, single values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tracker_health.config import Config, did_you_mean, preset
from tracker_health.errors import ConfigError
from tracker_health.roles import normal_form

_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SECTIONS = ("probes", "roles")
_CODE = re.compile(r"[a-z]{3}\d+", re.IGNORECASE)


def configured(
    *,
    preset_name: str = "default",
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    settings: Iterable[str] = (),
    checkpoint: str | None = None,
    max_download: str | None = None,
) -> Config:
    """The configuration for these choices. ``settings`` are texts such as ``probes.diverged.sigmas=6`` and
    ``roles.train_loss=my/loss,other/loss``: a role's patterns replace its defaults, and win over those of other roles.
    ``select`` and ``ignore`` may be written in any case.

    Raises:
        ConfigError: a setting does not parse, or names nothing that exists.
    """
    config = replace(
        preset(preset_name),
        select=frozenset(map(_rule, select)),
        ignore=frozenset(map(_rule, ignore)),
        checkpoint=checkpoint,
    )
    if max_download is not None:
        config = replace(config, max_download=parse_size(max_download))
    roles: dict[str, tuple[str, ...]] = {}
    for setting in settings:
        section, key, value = _parsed(setting)
        if section == "roles":
            roles[key] = _patterns(config, setting, key, value)
        else:
            config = _with_threshold(config, setting, key, value)
    return _with_roles(config, roles)


def parse_size(text: str) -> int:
    """Bytes from ``500MB``, ``2 GB`` or ``1000``.

    Raises:
        ConfigError: it is no size.
    """
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)i?b?\s*", text, re.IGNORECASE)
    if match is None:
        raise ConfigError(f"{text!r} is no size", "write 500MB or 2GB")
    return int(float(match.group(1)) * _SIZES[match.group(2).lower()])


def _rule(text: str) -> str:
    """A rule's code or name as the registry writes it: codes in capitals, names in small letters."""
    return text.upper() if _CODE.fullmatch(text) else text.lower()


def _parsed(setting: str) -> tuple[str, str, str]:
    """Section, key below it, and value."""
    key, equals, value = setting.partition("=")
    section, _, rest = key.strip().partition(".")
    if not equals or section not in _SECTIONS or not rest:
        known = "probes.NAME.THRESHOLD=NUMBER or roles.ROLE=NAME"
        raise ConfigError(f"--set {setting!r} does not parse", f"write {known}")
    return section, rest, value


def _with_threshold(config: Config, setting: str, key: str, value: str) -> Config:
    name, _, threshold = key.partition(".")
    values = {**config.thresholds.get(name, {}), threshold: _number(setting, value)}
    return replace(config, thresholds={**config.thresholds, name: values})


def _patterns(config: Config, setting: str, role: str, value: str) -> tuple[str, ...]:
    if role not in config.roles:
        raise ConfigError(f"there is no role {role!r}", did_you_mean(role, config.roles))
    patterns = tuple(part.strip() for part in value.split(",") if normal_form(part))
    if not patterns:
        raise ConfigError(f"--set {setting!r} names no metric", f"write roles.{role}=my/metric")
    return patterns


def _with_roles(config: Config, chosen: Mapping[str, tuple[str, ...]]) -> Config:
    """The first role that matches a name has it, so the chosen ones come first; among themselves in the order of the
    defaults, so that the order of the settings decides nothing.
    """
    first = {role: chosen[role] for role in config.roles if role in chosen}
    rest = {role: patterns for role, patterns in config.roles.items() if role not in chosen}
    return replace(config, roles={**first, **rest})


def _number(setting: str, value: str) -> float | int:
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        raise ConfigError(f"--set {setting!r}: {value!r} is no number") from None
