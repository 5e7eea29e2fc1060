"""Write the three files of a new rule: the rule in its package, its tests and its page. ``make new-rule NAME=...``.

What it writes works and passes everything that a rule must pass: a criterion to replace, as a preview, without a vote.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from string import Template

import click

from tracker_health._version import __version__
from tracker_health.rules.registry import BUILT_IN, WINGS
from tracker_health.words import retired

ROOT = Path(__file__).parent.parent
TEMPLATES = Path(__file__).parent / "rule_templates"
PACKAGES = tuple(wing.__name__.rpartition(".")[2] for wing in WINGS)
_FIRST_OF_OTHERS = 100
"""From this number on codes belong to rules that compare with another program, bit by bit."""

# What the first version of a rule looks at, by package: a metric and its role, and which way is the wrong one.
_CURVES = {
    "curves": ("train_loss", "train/loss", "rise"),
    "schedules": ("learning_rate", "train/lr", "rise"),
    "validation": ("val_loss", "eval/loss", "rise"),
    "reinforcement": ("train_reward", "train/reward", "fall"),
    "gradients": ("grad_norm", "grad_norm", "rise"),
    "system": ("step_time", "step_time", "rise"),
    "fine_tune": ("train_loss", "train/loss", "rise"),
    "live": ("gap_grads", "gap/grads/fc.weight/var", "rise"),
}
_PARTS = {"optimizer": "optimizer", "weights": "weights", "run": "text_log"}


def letters_of(package: str) -> str:
    """The letters that most codes of a package begin with."""
    wing = WINGS[PACKAGES.index(package)].__name__
    letters = Counter(rule.code[:3] for rule in BUILT_IN if rule.__module__.startswith(f"{wing}."))
    return letters.most_common(1)[0][0]


def next_code(letters: str, taken: Iterable[str]) -> str:
    """The code behind the last one of these letters: never one that is, or was, another rule's.

    Raises:
        click.ClickException: there is no number left.
    """
    numbers = [int(code[3:]) for code in taken if code.startswith(letters)]
    number = max((one for one in numbers if one < _FIRST_OF_OTHERS), default=0) + 1
    if number >= _FIRST_OF_OTHERS:
        raise click.ClickException(
            f"{letters} has no number left below {_FIRST_OF_OTHERS}: choose others (LETTERS=ABC)"
        )
    return f"{letters}{number:03d}"


def files_of(name: str, package: str, code: str) -> dict[Path, str]:
    """The rule and its tests, each by its path."""
    module = name.replace("-", "_")
    role, metric, way = _CURVES.get(package, ("", "", ""))
    words = {
        "name": name,
        "module": module,
        "package": package,
        "code": code,
        "cls": "".join(word.capitalize() for word in name.split("-")),
        "since": _next_version(),
        "role": role,
        "quantity": role.replace("val_", "validation ").replace("train_", "training ").replace("_", " "),
        "metric": metric,
        "way": way,
        "moved": {"rise": "rose", "fall": "fell"}.get(way, ""),
        "difference": {"rise": "curve.end - best", "fall": "best - curve.end"}.get(way, ""),
        "best": {"rise": "best", "fall": "peak"}.get(way, ""),
        "bad": {"rise": "0.5", "fall": "-0.5"}.get(way, ""),
        "good": {"rise": "-0.5", "fall": "0.5"}.get(way, ""),
        "slight": {"rise": "0.05", "fall": "-0.05"}.get(way, ""),
    }
    template = "curve" if role else _PARTS[package]
    return {
        ROOT / "src" / "tracker_health" / "rules" / package / f"{module}.py": _filled(f"{template}_rule", words),
        ROOT / "tests" / "rules" / f"test_{module}.py": _filled(f"{template}_tests", words),
    }


def _next_version() -> str:
    """The minor release that the rule will be in."""
    major, minor, *_ = __version__.split(".")
    return f"{major}.{int(minor) + 1}.0"


def _filled(template: str, words: dict[str, str]) -> str:
    return Template((TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")).substitute(words)


def _refuse(name: str, package: str, files: Iterable[Path]) -> None:
    if not re.fullmatch(r"[a-z]+(-[a-z0-9]+)+", name):
        raise click.ClickException(f"{name!r} is no name of a rule: two or more words in small letters, with hyphens")
    if package not in PACKAGES:
        raise click.ClickException(f"{package!r} is no package of rules: PACKAGE= one of {', '.join(PACKAGES)}")
    if any(rule.name == name for rule in BUILT_IN) or name in retired.retired_words():
        raise click.ClickException(f"{name} is, or was, the name of another rule: names are never used again")
    for path in files:
        if path.exists():
            raise click.ClickException(f"{path.relative_to(ROOT)} is there already: nothing was written")


def _run(*arguments: str) -> None:
    """Python with these arguments, at the root.

    Raises:
        click.ClickException: it failed; what it printed says why.
    """
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise click.ClickException(f"python {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


@click.command()
@click.argument("name")
@click.option(
    "--package", default="", help="Package of the rule, by what it reads; asked for where there is a terminal."
)
@click.option("--letters", default="", help="First three letters of its code, if not the package's usual ones.")
def main(name: str, package: str, letters: str) -> None:
    """Write the files of the rule NAME, and print what they are."""
    if not package and sys.stdin.isatty():
        package = click.prompt("What does the rule read", type=click.Choice(PACKAGES))
    _refuse(name, package, ())
    letters = letters or letters_of(package)
    if not re.fullmatch("[A-Z]{3}", letters):
        raise click.ClickException(f"{letters!r}: LETTERS= three capital letters")
    code = next_code(letters, [*(rule.code for rule in BUILT_IN), *(one.code for one in retired.RETIRED)])
    files = files_of(name, package, code)
    _refuse(name, package, files)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
        click.echo(path.relative_to(ROOT))
    # How long a line is depends on the name.
    _run("-m", "ruff", "format", "--quiet", *map(str, files))
    # A process of its own: the registry of this one was made without the rule.
    _run("scripts/generate_docs.py")
    click.echo(Path("docs", "rules", f"{code}.md"))
    click.echo(f"{code} {name} is a preview: it is measured and shown, without a vote. Next: its criterion, make check")


if __name__ == "__main__":
    main()
