"""Which modules import which: in no circle, not even for types or within functions, and no private one from outside."""

from __future__ import annotations

from collections import Counter
from graphlib import CycleError, TopologicalSorter

import pytest

grimp = pytest.importorskip("grimp")

GRAPH = {
    module: graph.find_modules_directly_imported_by(module)
    for graph in [grimp.build_graph("tracker_health", cache_dir=None)]
    for module in graph.modules
}


def circle(graph):
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def strangers(graph):
    """The imports of a module ``package._name``, or of one below it, by a module that is not in that package."""
    for importer, imported in ((one, other) for one, others in graph.items() for other in others):
        parts = imported.split(".")
        for at, part in enumerate(parts):
            owner = ".".join(parts[:at])
            if part.startswith("_") and part != "__main__" and not f"{importer}.".startswith(f"{owner}."):
                yield importer, imported


def test_modules_import_each_other_in_no_circle():
    assert circle(GRAPH) is None


def test_nothing_outside_a_package_imports_its_private_modules():
    assert list(strangers(GRAPH)) == []


def room(module):
    """The package or module at the root that a module is of."""
    return module.split(".")[1] if "." in module else "__init__"


def test_the_house_stays_small_enough_to_learn():
    packages = {module for module in GRAPH if any(other.startswith(f"{module}.") for other in GRAPH)}
    rooms = {room(module) for module in GRAPH}
    arrows = {(room(one), room(other)) for one, others in GRAPH.items() for other in others}
    arrows = {(one, other) for one, other in arrows if one not in (other, "testing")}  # that is next to the house
    modules = Counter(module.rpartition(".")[0] for module in GRAPH if module not in packages)
    assert modules["tracker_health"] + 1 <= 10  # one more: the package's own __init__
    assert len(rooms) <= 32
    assert len(arrows) <= 192
    assert max(modules.values()) <= 25


def test_every_kind_of_import_is_seen():
    # For types alone, within a function, and of a package's own.
    assert "tracker_health.runs.outcome" in GRAPH["tracker_health.cli.tally"]
    assert "tracker_health.fleet.sweep" in GRAPH["tracker_health.cli.sweeping"]
    assert "tracker_health.stores.remote.deadline" in GRAPH["tracker_health.cli.sweeping"]
    assert "tracker_health.diagnosis._facts" in GRAPH["tracker_health.diagnosis.table.data"]


def test_circles_and_strangers_are_found():
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
    graph = {"a.b.c": {"a._own", "a.b._own"}, "a.d": {"a.b._own"}, "a.e": {"a.b._own.f"}, "a.bc": {"a.b._own"}}
    assert set(strangers(graph)) == {("a.d", "a.b._own"), ("a.e", "a.b._own.f"), ("a.bc", "a.b._own")}
