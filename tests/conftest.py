"""What several tests share: folders as trainers leave them, and a report's schema."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, settings
from tests.laws import FEW

ROOT = Path(__file__).parent.parent

# Before torch or numpy is imported: workers beside each other that each take all cores wait for one another. Tiny
# trainings took seventy times as long.
for library in ("OMP", "MKL", "OPENBLAS"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# A commit passes or fails for what it changed, not for what was drawn this time: the same draws for the same test.
# `make fuzz` draws anew; what it finds becomes an @example of its test. How long a draw takes is no test of anything on a
# machine that may be busy with others.
_ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", _ANY_SPEED, derandomize=True, max_examples=FEW)
settings.register_profile("fuzz", _ANY_SPEED, print_blob=True)
settings.load_profile("repeatable")

ALL_LEFT_OUT = re.compile(r"^pytestmark = pytest\.mark\.(?:slow|exhaustive)$", re.MULTILINE)
SERVERS = {"server_uri", "direct_server", "auth_server_uri", "remote", "server", "offline_runs"}
"""Fixtures that start a server of MLflow or let W&B's SDK log, and the parameters of fixtures that ask for a server."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A module all of whose tests are left out is not even imported: it is these that import most."""
    left_out = "not slow" in config.option.markexpr and "not exhaustive" in config.option.markexpr
    if left_out and collection_path.name.startswith("test_") and collection_path.suffix == ".py":
        return ALL_LEFT_OUT.search(collection_path.read_text(encoding="utf-8")) is not None or None
    return None


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes long: tests with a real server or SDK, those that disturb a database at each of its writes, and
    the cells of a matrix that walk the same path as others.
    """
    cells: Counter[object] = Counter()
    for item in items:
        params = getattr(item, "callspec", None)
        values = {one for one in params.params.values() if isinstance(one, str)} if params else set()
        if not SERVERS.isdisjoint({*item.fixturenames, *values}):
            item.add_marker("slow")
        for node, thinned in item.iter_markers_with_node("thinned"):
            matrix = item.function if node is item else node  # of a class: all its tests, in the order they are written
            cells[matrix] += 1
            if (cells[matrix] - 1) % thinned.args[0]:
                item.add_marker("exhaustive")
        if item.get_closest_marker("one_cell"):
            cells[item.function] += 1
            if cells[item.function] > 1:
                item.add_marker("exhaustive")
        if item.get_closest_marker("costly_writes") and not item.get_closest_marker("exhaustive"):
            name = item.name.partition("[")[0]
            cells[name] += 1
            if item.get_closest_marker("every_write") or cells[name] > 1:
                item.add_marker("slow")


@pytest.fixture(scope="session")
def valid_report() -> Callable[[Any], None]:
    """Raises unless a document fits the published schema, as strict JSON."""
    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)

    def validate(document: Any) -> None:
        json.dumps(document, allow_nan=False)
        validator.validate(document)

    return validate


@pytest.fixture
def write_log(tmp_path: Path) -> Callable[..., Path]:
    """Writes a JSON lines step log of losses into a run folder, and gives the folder."""

    def write(losses: Iterable[float], folder: str = "run", name: str = "train_log.jsonl", **more: Any) -> Path:
        run = tmp_path / folder
        run.mkdir(exist_ok=True)
        lines = [json.dumps({"step": step, "loss": loss, **more}) for step, loss in enumerate(losses, start=1)]
        (run / name).write_text("\n".join(lines) + "\n")
        return run

    return write


@pytest.fixture
def healthy_losses() -> list[float]:
    """A clean descent from 2.3 to 0.1 in 200 steps, with a little wobble."""
    return [0.1 + 2.2 * 0.98**step + 0.01 * (step % 3 - 1) for step in range(200)]
