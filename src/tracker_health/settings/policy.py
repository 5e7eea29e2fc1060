"""One policy for a team: settings in a file or at an address that are under everybody's own, some of them locked.

``TRACKER_HEALTH_POLICY`` names it. It is a configuration file with one key more, ``locked``: a list of keys
(``ignore``, ``rules.diverged``, ``roles``, ``*``) that nobody's own settings change in what is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tracker_health.errors import ConfigError, ReadError
from tracker_health.readers.files.regular_file import open_regular
from tracker_health.settings.file import MAX_BYTES, Document, document_of
from tracker_health.settings.layers import Layer, SourcedValue, number_left_out, refuse, written_layer
from tracker_health.settings.values import FAIL_ON, JUDGING, JUDGING_SECTIONS, KEYS, OF_JUDGEMENT, SECTIONS, require_key
from tracker_health.stores.remote import hosts
from tracker_health.stores.remote.deadline import within
from tracker_health.stores.remote.web import opener
from tracker_health.text import listing, printable, without_userinfo
from tracker_health.words.retired import current_key
from tracker_health.words.retired import remarks as remarks_on

VARIABLE = "TRACKER_HEALTH_POLICY"
FRESH_SECONDS = 300.0
"""How long a copy of a policy from an address is used without asking for it again."""
AGAIN_SECONDS = 60.0
"""How long an address that did not answer is not asked again."""

_LOCKED = "locked"
_EVERYTHING = "*"
_MOST_NAMED = 20
_SECONDS = 5.0
"""How long an address may take over its whole answer."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a policy says, by dotted key, and which keys it locks. ``origin``: where it is, for messages. ``digest``: 16
    hexadecimal digits that change with what of it can change a verdict, and with nothing else. ``warning``: that an
    older copy had to do; empty otherwise. ``remarks``: which of the locked keys are of retired rules, and what does
    nothing as it came from an address.
    """

    layer: Mapping[str, SourcedValue]
    locked: tuple[str, ...]
    origin: str
    digest: str = ""
    warning: str = ""
    remarks: tuple[str, ...] = ()
    is_remote: bool = False
    """Whether it is at an address."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to say of it."""
        return (*((self.warning,) if self.warning else ()), *self.remarks)

    def locks(self, key: str) -> bool:
        """Whether nobody's own settings may change a key."""
        section = key.partition(".")[0]
        if self.is_remote and section not in OF_JUDGEMENT:
            return False
        judges = key in (*JUDGING, "match") or section in SECTIONS
        return any(one == key or key.startswith(f"{one}.") or (one == _EVERYTHING and judges) for one in self.locked)

    def under(self, chosen: Mapping[str, SourcedValue], holding: Collection[str] = ()) -> tuple[Layer, tuple[str, ...]]:
        """Someone's own settings with the policy beneath them, and a warning for each that it does not let pass.

        ``holding``: keys of theirs that hold even where they are locked, as nothing is written by them.
        """
        kept: Layer = {}
        refused = []
        shift = 1 + max((int(key.split(".")[1]) for key in self.layer if is_override(key)), default=-1)
        for key, setting in chosen.items():
            bare = _bare(key)
            if self.locks(bare) and key not in holding and not self._is_stricter(bare, setting):
                refused.append(f"{setting.origin}: {printable(bare, 80)} is locked by the policy {self.origin}")
            else:
                kept[_shifted(key, shift)] = setting
        for key, setting in self.layer.items():
            if is_override(key) and _bare(key) in holding:
                continue
            own = kept.get(key)
            joined = own is not None and (key == "ignore" or (key == "select" and key not in holding))
            kept[key] = _joined(own, setting) if own is not None and joined else own or setting
        return kept, tuple(refused)

    def _is_stricter(self, key: str, setting: SourcedValue) -> bool:
        """Whether a value of someone's own only asks for more than the policy does."""
        there = self.layer.get(key)
        return key == "fail_on" and there is not None and _strictness(setting.value) >= _strictness(there.value)


def _strictness(gate: str) -> int:
    return ("never", *(word for word in FAIL_ON if word != "never")).index(gate)


def _joined(own: SourcedValue, other: SourcedValue) -> SourcedValue:
    return SourcedValue(value=own.value | other.value, origin=f"{own.origin}, {other.origin}")


def is_override(key: str) -> bool:
    """Whether a dotted key is one of an override."""
    return key.startswith("overrides.")


def _bare(key: str) -> str:
    return key.split(".", 2)[2] if is_override(key) else key


def _shifted(key: str, by: int) -> str:
    """The key of an override behind those of the policy: the last that applies wins."""
    if not is_override(key):
        return key
    head, index, rest = key.split(".", 2)
    return f"{head}.{int(index) + by}.{rest}"


def policy_of(environ: Mapping[str, str]) -> Policy | None:
    """The policy that the environment names; None for none.

    Raises:
        ConfigError: it cannot be read or is none, and no copy of it was kept; a file on this machine that is none.
    """
    place = environ.get(VARIABLE, "").strip()
    if not place:
        return None
    shown = printable(without_userinfo(place))
    if _is_address(place) and "@" in place.split("/", 3)[2]:
        message = f"the policy {shown} cannot be used: its address has a user name or a password in it"
        raise ConfigError(message, f"give {VARIABLE} without them: a policy is no secret")
    if _is_address(place) and "?" in place and not hosts.may_carry_secrets(place):
        message = (
            f"the policy {shown} cannot be used: the query in its address may be a secret, and goes over plain http"
        )
        raise ConfigError(message, hosts.encrypt_hint(place))
    copy = _copy_of(place)
    try:
        content = _content(place, copy)
    except (OSError, ValueError, ReadError) as error:
        return _from_copy(copy, shown, error)
    flaws = number_left_out()
    try:
        policy = _parsed(content, shown)
    except ConfigError as error:
        # Whoever writes a file here is to see what is wrong with it; who is at an address may be nobody's to fix.
        return _from_copy(copy if _is_address(place) else None, shown, error)
    if number_left_out() == flaws:
        _keep(copy, content)
    return policy


def _parsed(content: bytes, shown: str) -> Policy:
    document, unheard = document_of(content, shown), list[str]()
    if _is_address(shown):
        document, unheard = _of_judgement(document)
    locked = document.table.get(_LOCKED, [])
    if not isinstance(locked, list) or not all(isinstance(one, str) for one in locked):
        raise ConfigError(
            f"{document.where((_LOCKED,))}: {_LOCKED} must be a list of keys", 'write locked = ["ignore"]'
        )
    where, remarks = document.where((_LOCKED,)), _remarks_on(unheard, document.shown)
    for key in locked:
        try:
            if key != _EVERYTHING:
                require_key(key)
        except ConfigError as error:
            refuse(ConfigError(f"{where}: {error.message}", error.hint))
        remarks += [f"policy {where}: {_LOCKED}: {remark}" for remark in remarks_on(key, None)]
    layer = {
        key: replace(setting, origin=f"policy {setting.origin}")
        for key, setting in written_layer(document, but=(_LOCKED,)).items()
    }
    policy = Policy(
        layer=layer,
        locked=tuple(map(current_key, locked)),
        origin=document.shown,
        remarks=tuple(dict.fromkeys(remarks)),
        is_remote=_is_address(shown),
    )
    return replace(policy, digest=_digest_of(policy))


def _digest_of(policy: Policy) -> str:
    judging = {_in_digest(key): _plain(one.value) for key, one in policy.layer.items() if _judges(_bare(key))}
    locked = sorted({_in_digest(key) for key in policy.locked if key == _EVERYTHING or _judges(key)})
    content = json.dumps([judging, locked], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _in_digest(key: str) -> str:
    """A key as digests have always had it, so that a new name judges no run again."""
    return re.sub(r"(^|\.)rules(?=\.|$)", r"\1probes", key, count=1)


def _judges(key: str) -> bool:
    """Whether a key, of an override without that, decides how a run is judged and what is written."""
    return key in (*JUDGING, "match") or key.partition(".")[0] in JUDGING_SECTIONS


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value


def _of_judgement(document: Document) -> tuple[Document, list[str]]:
    """What a policy from an address may say, and the keys that it says besides: it may be anybody who answers there."""
    unheard: list[str] = []
    heard: dict[str, Any] = {}
    for key, value in document.table.items():
        if key == "overrides" and isinstance(value, list):
            heard[key] = [_heard(one, unheard) if isinstance(one, dict) else one for one in value]
        elif key == _LOCKED and isinstance(value, list):
            foreign = [one for one in value if isinstance(one, str) and _is_foreign(one)]
            unheard += [f"{_LOCKED}: {one}" for one in foreign]
            heard[key] = [one for one in value if one not in foreign]
        else:
            heard |= _heard({key: value}, unheard)
    return replace(document, table=heard), unheard


def _heard(table: Mapping[str, Any], unheard: list[str]) -> dict[str, Any]:
    for key, value in table.items():
        if _is_foreign(key):
            unheard += [f"{key}.{name}" for name in value] if isinstance(value, dict) else [key]
    return {key: value for key, value in table.items() if not _is_foreign(key)}


def _is_foreign(key: str) -> bool:
    """Whether there is such a key, and it is none of judgement. What is no key at all is an error, as everywhere."""
    section = current_key(key).partition(".")[0]
    return section in (*KEYS, *SECTIONS) and section not in OF_JUDGEMENT


def _remarks_on(unheard: Sequence[str], shown: str) -> list[str]:
    if not unheard:
        return []
    names = listing(list(dict.fromkeys(unheard)), _MOST_NAMED)
    instead = "set it in a configuration file or the environment of this machine"
    return [f"policy {shown}: from an address only what judges runs counts, so {names} does nothing; {instead}"]


def _is_address(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def _content(place: str, copy: Path | None) -> bytes:
    """What is there now, or was there a few minutes ago.

    Raises:
        OSError, ValueError, ReadError: it cannot be read, or is too large.
    """
    if not _is_address(place):
        with open_regular(Path(place)) as file:
            return _bounded(file.read(MAX_BYTES + 1) or b"")
    if copy is None:
        return bytes(within(_SECONDS, _fetched, place))
    with suppress(OSError):
        if _is_younger(copy, FRESH_SECONDS):
            return copy.read_bytes()
    failure = copy.with_suffix(".failed")
    with suppress(OSError):
        if _is_younger(failure, AGAIN_SECONDS):
            raise ValueError(failure.read_text(errors="replace"))
    try:
        return bytes(within(_SECONDS, _fetched, place))
    except OSError as error:
        _put(failure, _reason(error).encode())
        raise


def _fetched(place: str) -> bytes:
    from http.client import HTTPException
    from urllib.error import HTTPError

    try:
        with opener().open(place, timeout=_SECONDS) as answer:
            content = _bounded(answer.read(MAX_BYTES + 1))
            if answer.length:  # of what it had announced
                raise ValueError(f"the answer ends {answer.length} bytes too early")
            return content
    except HTTPError as error:
        error.close()
        raise
    except HTTPException as error:  # whose text may have the address in it, and a secret in that
        raise ValueError(f"it is asked for, or answers, as HTTP does not allow ({type(error).__name__})") from None


def _is_younger(path: Path, seconds: float) -> bool:
    return 0 <= time.time() - path.stat().st_mtime < seconds


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _bounded(content: bytes) -> bytes:
    if len(content) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    return content


# The last good copy


def _copy_of(place: str) -> Path | None:
    """Where the copy of a policy is kept; None where this user has no such place."""
    name = hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(base) / "tracker-health" / "policies" / f"{name}.toml"


def _keep(copy: Path | None, content: bytes) -> None:
    """Keep what is known to be good. Its time says when the policy was last seen."""
    if copy is None:
        return
    with suppress(OSError):
        if copy.is_file() and copy.read_bytes() == content:
            if not _is_younger(copy, FRESH_SECONDS):
                os.utime(copy)
            return
    _put(copy, content)


def _put(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(OSError):  # nowhere to keep it: the next call asks again
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.write_bytes(content)
        temporary.replace(path)


def _from_copy(copy: Path | None, shown: str, error: Exception) -> Policy:
    """The last good copy, in place of a policy that cannot be read.

    Raises:
        ConfigError: there is none.
    """
    why = error.message if isinstance(error, (ConfigError, ReadError)) else _reason(error)
    message = f"the policy {shown} cannot be used: {printable(why)}"
    if copy is not None:
        with suppress(OSError, ConfigError):
            seen = time.strftime("%Y-%m-%d %H:%M", time.localtime(copy.stat().st_mtime))
            policy = _parsed(copy.read_bytes(), shown)
            return replace(policy, warning=f"{message}; the copy of {seen} is used")
    hint = error.hint if isinstance(error, ConfigError) and error.hint else f"check {VARIABLE}, or unset it"
    raise ConfigError(message, hint)
