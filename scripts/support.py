"""Which versions were tried: the page of it, and the commands behind its cells.

python scripts/support.py KIND VERSION     try a version in an environment of its own, below .venv-support

KIND is ``mlflow-client``, ``mlflow-skinny``, ``mlflow-server`` or ``wandb-offline``. ``support.toml`` has what the page
says; ``make docs`` writes it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CELLS = Path(__file__).with_name("support.toml")
PLACE = ROOT / ".venv-support"
STATES = {"tried": "tried", "should": "should work", "no": "not tried", "refused": "refused"}
TESTS = ["graphql-core", "hypothesis", "jsonschema", "pytest", "pytest-timeout", "pytest-xdist"]
INSTALLED = {
    "mlflow-client": ["mlflow=={}", *TESTS, "--editable", str(ROOT)],
    "mlflow-skinny": ["mlflow-skinny=={}", *TESTS, "--editable", str(ROOT)],
    "mlflow-server": ["mlflow=={}", "SQLAlchemy<2.1"],  # servers of before 3.10 or so start with no newer one
    "wandb-offline": ["wandb=={}", "numpy<2", "setuptools<81"],  # what SDKs of before 0.17 need
}
VERSIONS = ["tests/stores/test_mlflow_versions.py"]
OLD_SDKS = ["tests/stores/test_wandb_local.py", "-k", "old_sdks"]
INTRO = """# What was tried

Versions of everything that tracker-health works with. **Tried** is what the command in its row ran, on the day next to
it. **Should work** is what nothing known speaks against, and nobody ran. **Not tried** is neither.
`tracker-health doctor --versions` prints yours.

`make support TRY="mlflow-server 2.22.5"` tries a version of your choice in an environment of its own. `make slow` runs
the lowest versions, old SDKs and those of trackio. [What each needs at least](upgrade.md#supported-versions) has the
lowest versions of all packages.
"""


def page(cells: Path = CELLS) -> str:
    """The page, in Markdown.

    Raises:
        ValueError: a cell says that it was tried, and not when.
    """
    parts = [INTRO]
    for group in tomllib.loads(cells.read_text(encoding="utf-8"))["group"]:
        parts.append(
            f"## {group['name']}\n\n{group['intro']}\n\n| version | | command | when | |\n|---|---|---|---|---|"
        )
        parts[-1] += "".join(f"\n{_row(cell, group['command'])}" for cell in group["cells"]) + "\n"
    return "\n".join(parts)


def _row(cell: dict[str, Any], usual: str) -> str:
    tried = cell["state"] == "tried"
    if tried and not cell.get("when"):
        raise ValueError(f"{cell['what']} was tried, and nothing says when")
    command = cell.get("command") or (usual if tried else "")
    shown = f"`{command}`" if command else ""
    return f"| {cell['what']} | {STATES[cell['state']]} | {shown} | {cell.get('when', '')} | {cell.get('note', '')} |"


def tried(kind: str, version: str) -> int:
    """Install a version and run the tests about it.

    Returns:
        The exit code of pytest, or of what could not be installed.
    """
    python = PLACE / f"{kind}-{version}" / "bin" / "python"
    packages = [one.format(version) for one in INSTALLED[kind]]
    for command in (
        [sys.executable, "-m", "venv", str(python.parent.parent)],
        [str(python), "-m", "pip", "install", "--quiet", *packages],
    ):
        if code := subprocess.run(command, check=False).returncode:  # noqa: S603  our own
            return code
    runs, environment = {
        "mlflow-client": (python, {"OTHER_MLFLOW": sys.executable}),
        "mlflow-skinny": (python, {"OTHER_MLFLOW": sys.executable}),
        "mlflow-server": (sys.executable, {"OTHER_MLFLOW": str(python)}),
        "wandb-offline": (sys.executable, {"OLD_WANDB": str(python)}),
    }[kind]
    tests = OLD_SDKS if kind == "wandb-offline" else VERSIONS
    return subprocess.run(  # noqa: S603  our own
        [str(runs), "-m", "pytest", "-q", *tests], cwd=ROOT, env=os.environ | environment, check=False
    ).returncode


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in INSTALLED:
        sys.exit(__doc__)
    sys.exit(tried(*sys.argv[1:]))
