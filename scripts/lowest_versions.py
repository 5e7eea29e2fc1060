"""Print what pip is to install for the lowest versions that pyproject.toml declares, each exactly.

``python scripts/lowest_versions.py charts mlflow``: those of the package itself and of these extras; with
``--extras-only`` of the extras alone.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_DECLARED = Path(__file__).parent.parent / "pyproject.toml"
_LOWEST = re.compile(r"([\w.-]+)(?:\[[^\]]*\])?>=([\w.]+)")


def lowest(project: dict[str, Any], extras: list[str]) -> Iterator[str]:
    """``NAME==VERSION`` of each requirement.

    Raises:
        ValueError: a requirement has no lowest version.
    """
    only = "--extras-only" in extras
    declared = [] if only else [*project["dependencies"]]
    for extra in (one for one in extras if one != "--extras-only"):
        declared += project["optional-dependencies"][extra]
    for requirement in declared:
        match = _LOWEST.match(requirement)
        if match is None:
            raise ValueError(f"{requirement} has no lowest version")
        yield f"{match[1]}=={match[2]}"


if __name__ == "__main__":
    print(*lowest(tomllib.loads(_DECLARED.read_text())["project"], sys.argv[1:]))
