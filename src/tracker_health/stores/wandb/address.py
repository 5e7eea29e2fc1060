"""Which run of which W&B server a text names; nothing is asked, and the SDK is not imported."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from tracker_health.errors import RunNotFound
from tracker_health.text import decoded_once, printable, without_userinfo

CLOUD_API = "https://api.wandb.ai"

# What W&B permits in the names of entities and projects, and in ids of runs.
_NAME = r"[^/\\#?%:\x00-\x1f]{1,128}"
_SHORT = re.compile(rf"wandb:(?:/{{0,2}}({_NAME})/)?({_NAME})/(?:runs/)?({_NAME})/?", re.IGNORECASE)
_PROJECT = re.compile(rf"(?:wandb:/{{0,2}})?(?:({_NAME})/)?({_NAME})(?:/sweeps/({_NAME}))?/?", re.IGNORECASE)
_SWEEP = re.compile(rf"(?:wandb:/{{0,2}}|(?i:https?)://[^/?#\s@]+/)?(?:{_NAME}/){{1,2}}sweeps/{_NAME}(?:[/?#].*)?")
# Without "wandb:" before it.
_BARE_RUN = re.compile(rf"(?![.~]){_NAME}/(?:{_NAME}/)?(?:runs/)?{_NAME}/?")
_BARE_ID = re.compile(r"[a-z0-9]{8}")
_PAGE = re.compile(
    r"((?i:https?)://[^/?#\s@]+(?:/[^/?#\s]+)*?)/([^/?#\s]+)/([^/?#]+)/runs/([^/?#\s]+)(?:/[^?#]*)?(?:[?#].*)?"
)
_PROJECT_PAGE = re.compile(
    r"((?i:https?)://[^/?#\s@]+)/([^/?#\s]+)/([^/?#]+?)(?:/sweeps/([^/?#\s]+)|/\w+)?/?(?:[?#].*)?"
)
_CLOUD_HOST = re.compile(r"(\w[\w-]*\.)*(wandb\.(ai|io)|forge\.coreweave\.com)(:\d+)?", re.IGNORECASE)
_HINT = "give wandb:ENTITY/PROJECT/RUN, or the address of the run's page"


class Address(NamedTuple):
    """A run of W&B. ``entity``: empty for the user's own. ``server``: what its page's address begins with, or empty."""

    entity: str
    project: str
    run: str
    server: str = ""

    @property
    def shown(self) -> str:
        """As it is printed: what ``address_of`` makes this of again, where W&B permits such an id."""
        entity = f"{self.entity}/" if self.entity else ""
        return f"wandb:{entity}{self.project}/{self.run}"


class Project(NamedTuple):
    """A project of W&B. ``entity``: empty for the user's own. ``sweep``: the id of the one of its sweeps that is meant,
    empty for all runs. ``server``: as in ``Address``.
    """

    entity: str
    name: str
    sweep: str = ""
    server: str = ""


def address_of(text: str) -> Address | None:
    """The run that a text names; None where it names none of W&B's.

    Raises:
        RunNotFound: it is meant for W&B, and names no run.
    """
    page = _PAGE.fullmatch(text)
    if page is not None:
        server, *names = page.groups()
        decoded = [decoded_once(name) or "" for name in names]
        if all(re.fullmatch(_NAME, name) for name in decoded):
            entity, project, run = decoded
            return Address(entity, project, run, server)
    if _SWEEP.fullmatch(text) and (is_of_wandb(text) or "://" not in text):
        shown = printable(without_userinfo(text))
        raise RunNotFound(f"{shown} is a sweep of W&B, not a run", "annotate --project ENTITY/PROJECT/sweeps/ID")
    if short := _SHORT.fullmatch(text):
        return Address(short.group(1) or "", short.group(2), short.group(3))
    if text.lower().startswith("wandb:") or _is_of_cloud(text):
        raise RunNotFound(f"{printable(without_userinfo(text))} does not name a run of Weights & Biases", _HINT)
    return None


def project_of(text: str) -> Project:
    """What ``ENTITY/PROJECT`` names, ``PROJECT`` of the user's own, with ``/sweeps/ID`` behind it, or a page's address.

    Raises:
        RunNotFound: it cannot be the name of a project.
    """
    if page := _PROJECT_PAGE.fullmatch(text):
        server, *names = page.groups()
        decoded = [decoded_once(one) or "" for one in names if one is not None]
        if all(re.fullmatch(_NAME, one) for one in decoded):
            return Project(decoded[0], decoded[1], "".join(decoded[2:]), server)
    named = _PROJECT.fullmatch(text)
    if named is None:
        hint = "ENTITY/PROJECT, or ENTITY/PROJECT/sweeps/ID"
        raise RunNotFound(f"{printable(without_userinfo(text))} names no project of Weights & Biases", hint)
    return Project(named.group(1) or "", named.group(2), named.group(3) or "")


def hint_on_name(text: str) -> str:
    """How the run of W&B is written that a text without ``wandb:`` may mean; empty where it cannot mean one."""
    if _BARE_RUN.fullmatch(text):
        return f"wandb:{printable(text, 200)}"
    return f"wandb:ENTITY/PROJECT/{text}" if _BARE_ID.fullmatch(text) else ""


def is_of_wandb(text: str) -> bool:
    """Whether a text is meant to name something of W&B's."""
    return text.lower().startswith("wandb:") or bool(_PAGE.fullmatch(text)) or _is_of_cloud(text)


def _is_of_cloud(url: str) -> bool:
    """Whether an address is of W&B's own cloud."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    host = parts.netloc.rpartition("@")[2]
    return parts.scheme.lower() in ("http", "https") and bool(_CLOUD_HOST.fullmatch(host))
