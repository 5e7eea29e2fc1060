"""From what a user types to a ``Config``: presets, chosen rules, single values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from tracker_health.config import Config, did_you_mean, preset
from tracker_health.errors import ConfigError

_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SECTIONS = ("probes", "roles")


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
    ``roles.train_loss=my/loss``.

    Raises:
        ConfigError: a setting does not parse, or names nothing that exists.
    """
    config = replace(
        preset(preset_name),
        select=frozenset(select),
        ignore=frozenset(ignore),
        checkpoint=checkpoint,
    )
    if max_download is not None:
        config = replace(config, max_download=parse_size(max_download))
    for setting in settings:
        config = _with(config, setting)
    return config


def parse_size(text: str) -> int:
    """Bytes from ``500MB``, ``2 GB`` or ``1000``.

    Raises:
        ConfigError: it is no size.
    """
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)i?b?\s*", text, re.IGNORECASE)
    if match is None:
        raise ConfigError(f"{text!r} is no size", "write 500MB or 2GB")
    return int(float(match.group(1)) * _SIZES[match.group(2).lower()])


def _with(config: Config, setting: str) -> Config:
    key, equals, value = setting.partition("=")
    section, _, rest = key.strip().partition(".")
    if not equals or section not in _SECTIONS or not rest:
        known = "probes.NAME.THRESHOLD=NUMBER or roles.ROLE=NAME"
        raise ConfigError(f"--set {setting!r} does not parse", f"write {known}")
    if section == "roles":
        return _with_role(config, rest, value)
    name, _, threshold = rest.partition(".")
    values = {**config.thresholds.get(name, {}), threshold: _number(setting, value)}
    return replace(config, thresholds={**config.thresholds, name: values})


def _with_role(config: Config, role: str, value: str) -> Config:
    if role not in config.roles:
        raise ConfigError(f"there is no role {role!r}", did_you_mean(role, config.roles))
    patterns = tuple(part.strip() for part in value.split(",") if part.strip())
    return replace(config, roles={**config.roles, role: (*patterns, *config.roles[role])})


def _number(setting: str, value: str) -> float | int:
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        raise ConfigError(f"--set {setting!r}: {value!r} is no number") from None
