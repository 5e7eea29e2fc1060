"""The command that gives agents the skill of judging runs: skill."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from tracker_health.cli.group import cli
from tracker_health.errors import ConfigError, described
from tracker_health.terminal import say
from tracker_health.text import count, printable

_MAIN, _OURS = "SKILL.md", "name: tracker-health\n"
_LONGEST = 100_000


@cli.command()
@click.option(
    "--install", "folder", metavar="DIR", help="Write it into this folder, such as .claude/skills/tracker-health."
)
def skill(folder: str | None) -> None:
    """Print the skill for agents: when to check, how to read a verdict, how to prove that it is fixed.

    With --install it is written as SKILL.md with its references, in the place of an older version of ours.
    """
    source = files("tracker_health").joinpath("skill")
    if folder is None:
        say(source.joinpath(_MAIN).read_text(encoding="utf-8").rstrip())
        return
    target = Path(folder)
    _refuse_others(target / _MAIN)
    try:
        written = [_copied(one, target / name) for name, one in _pages(source)]
    except OSError as error:
        raise ConfigError(
            f"{printable(folder)} cannot be written: {described(error)}", "name another folder"
        ) from error
    say(f"wrote {count(len(written), 'file')} into {printable(folder)}")


def _pages(source: Traversable, above: str = "") -> list[tuple[str, Traversable]]:
    """Its pages, by their places in the folder."""
    found = []
    for one in sorted(source.iterdir(), key=lambda one: one.name):
        if one.is_dir():
            found += _pages(one, f"{above}{one.name}/")
        elif one.name.endswith(".md"):
            found.append((f"{above}{one.name}", one))
    return found


def _copied(one: Traversable, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(one.read_text(encoding="utf-8"), encoding="utf-8")
    return target


def _refuse_others(page: Path) -> None:
    """Leave a skill of somebody else's alone.

    Raises:
        ConfigError: another skill is there, or something that is no file.
    """
    if not page.exists() and not page.is_symlink():
        return
    if page.is_file() and not page.is_symlink() and page.stat().st_size < _LONGEST:
        head = page.read_text(encoding="utf-8", errors="replace")[:2000]
        if _OURS in head:
            return
    raise ConfigError(f"{printable(page)} is another skill", "name another folder, or remove it")
