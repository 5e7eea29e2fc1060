"""Which modules import which: in no circle, not even for types or within functions, and no private one from outside."""

from __future__ import annotations

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


def test_every_kind_of_import_is_seen():
    # For types alone, within a function, and of a package's own.
    assert "tracker_health.annotating" in GRAPH["tracker_health.terminal"]
    assert "tracker_health.sweep" in GRAPH["tracker_health.cli.sweeping"]
    assert "tracker_health.stores.deadline" in GRAPH["tracker_health.cli.sweeping"]
    assert "tracker_health.diagnosis._facts" in GRAPH["tracker_health.diagnosis.overfitting"]


def test_circles_and_strangers_are_found():
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
    graph = {"a.b.c": {"a._own", "a.b._own"}, "a.d": {"a.b._own"}, "a.e": {"a.b._own.f"}, "a.bc": {"a.b._own"}}
    assert set(strangers(graph)) == {("a.d", "a.b._own"), ("a.e", "a.b._own.f"), ("a.bc", "a.b._own")}
