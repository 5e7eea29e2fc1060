"""Build the documentation as a site: ``make site``, or ``python scripts/build_site.py``; pages land in build/site.

docs/ is copied to build/docs first. The changelog and the page for contributors, which are at the root of the
repository, are copied next to it, and links to files that are no pages become their names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent
DOCS, STAGE = ROOT / "docs", ROOT / "build" / "docs"
FROM_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "README.md": "index.md"}
"""Pages at the root of the repository, and what stands for them in the site."""

_LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)


def stage() -> None:
    """Copy the pages, with links as the site needs them."""
    shutil.rmtree(STAGE, ignore_errors=True)
    shutil.copytree(DOCS, STAGE)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        (STAGE / FROM_ROOT[name]).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    sources = {STAGE / FROM_ROOT[name]: PurePosixPath(name) for name in ("CHANGELOG.md", "CONTRIBUTING.md")}
    for page in STAGE.rglob("*.md"):
        source = sources.get(page) or PurePosixPath("docs", page.relative_to(STAGE).as_posix())
        page.write_text(staged(page.read_text(encoding="utf-8"), source), encoding="utf-8")


def staged(text: str, source: PurePosixPath) -> str:
    """A page's text with links as the site needs them. ``source``: the page, relative to the repository."""
    parts = _CODE.split(text)
    return "".join(
        part if place % 2 else _LINK.sub(lambda one: _link(one, source), part) for place, part in enumerate(parts)
    )


def _link(found: re.Match[str], source: PurePosixPath) -> str:
    text, target = found.groups()
    path, _, anchor = target.partition("#")
    if not path or ":" in target:
        return found.group()
    place = _resolved(source.parent, path)
    place = PurePosixPath("docs", FROM_ROOT[str(place)]) if str(place) in FROM_ROOT else place
    if place.parts[:1] != ("docs",):
        return text if "`" in text else f"`{text}`"
    own = source.parent if source.parts[0] == "docs" else PurePosixPath("docs")
    up = len(own.parts) - 1
    relative = "../" * up + str(PurePosixPath(*place.parts[1:]))
    return f"[{text}]({relative}{'#' if anchor else ''}{anchor})"


def _resolved(folder: PurePosixPath, path: str) -> PurePosixPath:
    """A relative path without its dots."""
    parts = list(folder.parts)
    for part in PurePosixPath(path).parts:
        if part == "..":
            parts = parts[:-1]
        else:
            parts.append(part)
    return PurePosixPath(*parts)


def main() -> int:
    stage()
    command = [sys.executable, "-m", "mkdocs", "build", "--clean", "--strict"]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # Material's advice on what comes after it
    done = subprocess.run(command, cwd=ROOT, check=False, env=quiet)  # noqa: S603  our own command
    if not done.returncode:
        print(f"built: {ROOT / 'build' / 'site' / 'index.html'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
