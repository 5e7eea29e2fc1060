"""What a release consists of: checked, tried, and with the licences of what it needs (``make dist``).

python scripts/dist.py check dist                      the wheel and the sdist have what they must, and nothing else
python scripts/dist.py try dist PYTHON...              each is installed into a new environment, and judges two runs
python scripts/dist.py licences dist/sbom.json         the licences of a list of parts, as a table
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MOST_BYTES = 4_000_000
LEFT_OUT = {"__pycache__"}
ABOUT = {"LICENSE", "METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt"}
OF_THE_ROOT = {"CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"}
MADE = {"PKG-INFO", "setup.cfg"}
MUST_HAVE = (
    "tracker_health/py.typed",
    "tracker_health/diagnosis/counts.csv",
    "tracker_health/live/false_stops.json",
    "tracker_health/render/calibration.json",
    "tracker_health/render/templates/report.html",
    "tracker_health/schemas/report.schema.json",
    "tracker_health/skill/SKILL.md",
    "tracker_health/skill/references/causes.md",
    "tracker-health.pth",
    "_tracker_health_hooks.py",
)


def sources() -> set[str]:
    """The files below src/, as a wheel has them."""
    found = (path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*") if path.is_file())
    return {path.as_posix() for path in found if not LEFT_OUT & set(path.parts) and ".egg-info" not in str(path)}


def schemas() -> set[str]:
    """The names of the schemas."""
    return {path.name for path in (ROOT / "docs").glob("*.schema.json")}


def differences(kind: str, names: set[str], wanted: set[str]) -> list[str]:
    """What a file of the release has too much of, or too little."""
    return [f"{kind} has {name}, which does not belong there" for name in sorted(names - wanted)] + [
        f"{kind} lacks {name}" for name in sorted(wanted - names)
    ]


def wrong_in_wheel(path: Path) -> list[str]:
    """What is wrong with a wheel, a line for each thing."""
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(wheel.read(about).decode())
    wanted = sources() | {f"tracker_health/schemas/{name}" for name in schemas()}
    own = {name for name in names if ".dist-info/" not in name}
    wrong = differences("the wheel", own, wanted)
    wrong += [f"the wheel lacks {name}" for name in MUST_HAVE if name not in own]
    wrong += differences("its metadata", {Path(name).name for name in names - own}, ABOUT)
    needs = metadata.get_all("Requires-Dist") or []
    wrong += [f"an index refuses what is needed from an address: {need}" for need in needs if " @ " in need]
    return wrong + too_large(path)


def wrong_in_sdist(path: Path) -> list[str]:
    """What is wrong with an sdist, a line for each thing."""
    with tarfile.open(path) as sdist:
        names = {one.name.partition("/")[2] for one in sdist.getmembers() if one.isfile()}
    own = {name for name in names if ".egg-info/" not in name}
    wanted = {f"src/{name}" for name in sources()} | {f"docs/{name}" for name in schemas()} | OF_THE_ROOT | MADE
    return differences("the sdist", own, wanted) + too_large(path)


def too_large(path: Path) -> list[str]:
    size = path.stat().st_size
    return [f"{path.name} has {size:,} bytes, more than {MOST_BYTES:,}"] if size > MOST_BYTES else []


def built(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist in a folder.

    Raises:
        SystemExit: there are none, or several.
    """
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        sys.exit(f"{folder} has {len(wheels)} wheels and {len(sdists)} sdists: make dist makes one of each")
    return wheels[0], sdists[0]


def check(folder: Path) -> int:
    wheel, sdist = built(folder)
    wrong = wrong_in_wheel(wheel) + wrong_in_sdist(sdist)
    print("\n".join(wrong) or f"{wheel.name} and {sdist.name} have what they must, and nothing else")
    return bool(wrong)


LOGS = {
    "healthy": [{"step": step, "train_loss": 0.1 + 2.2 * 0.98**step} for step in range(200)],
    "diverged": [{"step": step, "train_loss": 2.3 - 0.01 * step + 4 * (step > 99)} for step in range(200)],
}


def try_out(folder: Path, pythons: list[str]) -> int:
    """Install each file of the release with each Python, and judge and annotate two runs, outside of the repository."""
    failed = 0
    for python in pythons:
        for file in built(folder):
            with tempfile.TemporaryDirectory() as place:
                said = tried(python, file.resolve(), Path(place))
            failed += not said.endswith("works")
            print(f"{python}: {file.name}: {said}", flush=True)
    return bool(failed)


def tried(python: str, file: Path, place: Path) -> str:
    """``PYTHON'S VERSION: works``, or what did not."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def ran(*command: str, codes: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(command, cwd=place, env=bare, capture_output=True, text=True, check=False)  # noqa: S603  our own
        if done.returncode not in codes:
            raise RuntimeError(f"{' '.join(command[:3])} exited with {done.returncode}: {done.stderr[-800:]}")
        return done.stdout

    try:
        ran(python, "-m", "venv", "environment")
        inside = place / "environment" / "bin"
        ran(str(inside / "python"), "-m", "pip", "install", "--quiet", str(file))
        version = ran(str(inside / "python"), "--version").strip()
        tool = str(inside / "tracker-health")
        for name, rows in LOGS.items():
            (place / name).mkdir()
            (place / name / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        verdicts = [ran(tool, "check", name, codes=(0, 1))[:4] for name in LOGS]
        if verdicts != ["PASS", "FAIL"]:
            return f"{version}: the verdicts are {verdicts}"
        ran(tool, "annotate", *LOGS)
        if not all((place / name / "health" / "annotation.json").exists() for name in LOGS):
            return f"{version}: a run was not annotated"
        ran(tool, "explain", "LOS004", "--full")
        ran(tool, "skill", "--install", "skills")
        ran(str(inside / "python"), "-c", "import tracker_health as t; print(t.check('healthy').to_json())")
        ran(tool, "clear", *LOGS)
    except RuntimeError as error:
        return str(error)
    return f"{version}: works"


LICENCES = """# What it needs, and under which licences

tracker-health itself is under Apache-2.0. Alone it needs click, numpy, PyYAML and rich, and what these need.
The table lists all packages of its extras `charts`, `mlflow`, `wandb-server` and `remote`, with what their own
metadata says. `make dist` writes it, and a list of the same parts for programs: `dist/sbom.cdx.json`, in the
format of CycloneDX.

| package | version | licence |
|---|---|---|"""


def licences(sbom: Path) -> int:
    """Print a table of the parts that a CycloneDX file lists."""
    parts = json.loads(sbom.read_text())["components"]
    print(LICENCES)
    for part in sorted((one for one in parts if one["name"] != "tracker-health"), key=lambda one: one["name"].lower()):
        print(f"| {part['name']} | {part['version']} | {licence_of(part)} |")
    return 0


def licence_of(part: dict[str, Any]) -> str:
    """What a part says of its licence, in one line; a text of a licence by its first line alone."""
    found = []
    for one in part.get("licenses", []):
        said = one.get("expression") or one["license"].get("id") or one["license"].get("name")
        if said and not said.startswith("License ::") and said not in found:
            found.append(said.strip().splitlines()[0][:60])
    found = found or [
        one["license"]["name"].rpartition(" :: ")[2] for one in part.get("licenses", []) if "license" in one
    ]
    return " or ".join(dict.fromkeys(found)) or "not said"


def main(words: list[str]) -> int:
    match words:
        case ["check", folder]:
            return check(Path(folder))
        case ["try", folder, *pythons] if pythons:
            return try_out(Path(folder), pythons)
        case ["licences", sbom]:
            return licences(Path(sbom))
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
