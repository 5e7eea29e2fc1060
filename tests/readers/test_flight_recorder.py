"""Dumps of flight recorders: as torch writes them, by synthetic ones for what a CPU cannot do, and hostile ones."""

from __future__ import annotations

import json
import os
import pickle
import struct
from types import SimpleNamespace

import pytest

from tracker_health import check
from tracker_health.errors import ReadError
from tracker_health.evidence import Ended, Ending, Evidence, RunInfo, RunRef
from tracker_health.readers.flight_recorder import DUMP, read_dump, together
from tracker_health.rules.run.hang_in_collective import HangInCollective
from tracker_health.testing import check_probe

T0 = 1_795_942_999  # seconds


def entry(
    number, *, operation="nccl:all_reduce", sizes=((8,),), state="completed", group=("0", "default_pg"), at=None, **more
):
    """An entry as version 2.10 has it."""
    created = T0 + number if at is None else at
    return {
        "record_id": number, "pg_id": int(group[0]), "process_group": group, "collective_seq_id": number, "p2p_seq_id": 0,
        "op_id": number, "profiling_name": operation, "time_created_ns": int(created * 1e9),
        "input_sizes": [list(one) for one in sizes], "output_sizes": [list(one) for one in sizes], "state": state,
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": state == "completed",
        "timeout_ms": 600_000, "is_p2p": False,
    } | more  # fmt: skip


def dump(*entries, ranks=(0, 1, 2), names=("0",)):
    config = {name: {"name": name, "desc": "default_pg", "ranks": f"[{', '.join(map(str, ranks))}]"} for name in names}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": list(entries)}


def done(last):
    return [entry(number) for number in range(1, last + 1)]


def waiting(number, **more):
    return [*done(number - 1), entry(number, state="started", **more)]


def read(tmp_path, dumps, *, form=pickle.dumps, written=T0 + 15 + 600):
    found = []
    for rank, document in dumps.items():
        path = tmp_path / f"nccl_trace_rank_{rank}"
        path.write_bytes(form(document))
        found.append(read_dump(path, path.name, rank, written))
    return together(found)


def judged(make, dumps, **parts):
    return check_probe(HangInCollective, evidence=make.evidence(dumps=dumps, **parts))


@pytest.fixture
def make():
    run = RunRef(store="directory", id="run", name="run")
    return SimpleNamespace(evidence=lambda **parts: Evidence(run=run, **parts))


def as_json(document):
    return json.dumps(document).encode()


@pytest.mark.parametrize("form", [pickle.dumps, as_json], ids=["pickle", "json"])
def test_the_rank_whose_last_operation_comes_before_is_named(make, tmp_path, form):
    dumps = {0: dump(*waiting(15)), 1: dump(*done(14)), 2: dump(*waiting(15))}
    result = judged(make, read(tmp_path, dumps, form=form))
    assert (result.verdict, result.kind, result.confidence) == ("warn", "did-not-come", "high")
    assert result.message == "rank 1 did not enter all_reduce number 15, for which ranks 0 and 2 waited 600 s"
    assert dict(result.measured) == {"rank": 1, "number": 15, "seconds": 600.0}


def test_ranks_that_ran_something_else_are_named(make, tmp_path):
    other = waiting(15, operation="nccl:_all_gather_base")
    result = judged(make, read(tmp_path, {0: dump(*waiting(15)), 1: dump(*other), 2: dump(*waiting(15))}))
    assert result.kind == "mismatch"
    assert "as number 15: rank 1 ran all_gather_base; ranks 0 and 2 ran all_reduce" in result.message
    larger = waiting(15, sizes=((4, 4),))
    result = judged(make, read(tmp_path, {0: dump(*waiting(15)), 1: dump(*larger), 2: dump(*waiting(15))}))
    assert "rank 1 ran all_reduce of 16 values; ranks 0 and 2 ran all_reduce of 8 values" in result.message


def test_a_rank_that_waits_in_a_smaller_group_is_not_the_one_that_hangs(make, tmp_path):
    """Rank 1 does not come to the others since it waits for rank 3 in another group."""
    small = {"group": ("5", "tensor"), "pg_id": 5}
    tensor = {"5": {"name": "5", "desc": "tensor", "ranks": "[1, 3]"}}
    dumps = {rank: dump(*waiting(15), ranks=range(4)) for rank in (0, 2)}
    dumps[1] = dump(
        *done(14), *(entry(one, **small) for one in (1, 2)), entry(3, state="started", **small), ranks=range(4)
    )
    dumps[3] = dump(*done(14), *(entry(one, **small) for one in (1, 2)), ranks=range(4))
    for rank in (1, 3):
        dumps[rank]["pg_config"] |= tensor
    result = judged(make, read(tmp_path, dumps))
    assert result.message.startswith("rank 3 did not enter all_reduce number 3, for which rank 1 waited")


HEALTHY = {
    "all done": {0: done(20), 1: done(20), 2: done(20)},
    "the last one in flight on all, a moment ago": {rank: waiting(20, at=T0 + 600) for rank in range(3)},
    "done on two, and noted late on one": {0: done(20), 1: waiting(20), 2: done(20)},
    "one a step behind, a moment ago": {0: waiting(20, at=T0 + 600), 1: done(19), 2: waiting(20, at=T0 + 600)},
    "gathers of other sizes": {rank: [*done(9), entry(10, operation="nccl:all_gather", sizes=((rank,),))] for rank in range(3)},
    "one that ran ahead": {0: [*done(14), *(entry(n, state="scheduled", at=T0 + 610) for n in (15, 16, 17))], 1: waiting(15, at=T0 + 610)},
    "pairs of ranks alone": {0: [entry(n, is_p2p=True, operation="nccl:send 0->1") for n in range(9)], 1: done(3), 2: done(3)},
}  # fmt: skip


@pytest.mark.parametrize("name", list(HEALTHY))
def test_healthy_jobs_are_not_flagged(make, tmp_path, name):
    dumps = read(tmp_path, {rank: dump(*entries) for rank, entries in HEALTHY[name].items()})
    assert judged(make, dumps).verdict == "pass"


def test_without_times_the_end_of_the_run_decides(make, tmp_path):
    dumps = read(tmp_path, {0: dump(*waiting(15)), 1: dump(*done(14)), 2: dump(*waiting(15))}, written=None)
    assert judged(make, dumps).verdict == "pass"
    failed = RunInfo(seen=Ending(how=Ended.FAILED, by="exit code 1"))
    assert judged(make, dumps, info=failed).kind == "did-not-come"


def test_where_all_entered_it_none_is_named(make, tmp_path):
    result = judged(make, read(tmp_path, {rank: dump(*waiting(15)) for rank in range(3)}))
    assert (result.kind, "rank" in result.measured) == ("waited", False)
    result = judged(make, read(tmp_path, {rank: dump(*waiting(15)) for rank in (0, 2)}))
    assert (result.kind, result.confidence) == ("waited", "low"), "rank 1 left no dump"


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_0", "0"), ("comm_lib_trace_rank_17", "17"), ("job7_nccl_trace_rank_3", "3"), ("fr_trace_4.json", "4"),
        ("flight_recorder_dump_rank_5.pkl", "5"), ("trace_rank_0.json", None), ("events.pt.trace.json", None),
        ("data_fr_12.json", None), ("nccl_trace_rank_0.txt", None), ("rank_0", None),
    ],
)  # fmt: skip
def test_names_of_dumps(name, rank):
    found = DUMP.fullmatch(name)
    assert (found["rank"] if found else None) == rank


class Call:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def shared(depth):
    value = [8]
    for _ in range(depth):
        value = [value] * 8
    return value


# What each is, and whether it can be read all the same.
HOSTILE = {
    "a call": (lambda path: pickle.dumps({**dump(*done(3)), "x": Call(os.system, (f"touch {path}",))}), True),
    "a call for a document": (lambda path: pickle.dumps(Call(os.system, (f"touch {path}",))), False),
    "a call for an entry": (lambda path: pickle.dumps(dump(Call(os.system, (f"touch {path}",)), *done(3))), True),
    "nested calls": (lambda path: pickle.dumps(dump(entry(1, sizes=()), {"a": [Call(eval, (f"open({str(path)!r}, 'w')",))]})), True),
    "lists in lists": (lambda _: pickle.dumps(dump(entry(1, input_sizes=shared(200)))), True),
    "marks without end": (lambda _: b"\x80\x02" + b"(" * 200_000 + b".", False),
    "JSON in JSON": (lambda _: b'{"version": "2", "entries": ' + b"[" * 100_000, False),
    "a length beyond the file": (lambda _: b"\x80\x02X" + struct.pack("<I", 2**31) + b"x", False),
    "no mapping": (lambda _: pickle.dumps([1, 2]), False),
    "another mapping": (lambda _: pickle.dumps({"model": {}}), False),
    "entries of other types": (lambda _: pickle.dumps(dump(1, None, [], {"collective_seq_id": "x"}, {"collective_seq_id": True})), True),
    "fields of other types": (
        lambda _: pickle.dumps(dump(entry(3, profiling_name=7, time_created_ns="x", timeout_ms=[], input_sizes={1: 2}, state=[]))),
        True,
    ),
    "numbers beyond all": (lambda _: pickle.dumps(dump(entry(2**900, time_created_ns=2**900), entry(2, timeout_ms=-5, at=2))), True),
    "configuration of other types": (lambda _: pickle.dumps({**dump(*done(3)), "pg_config": 7, "pg_status": {"0": [1]}}), True),
    "text": (lambda _: b"hello", False),
    "nothing": (lambda _: b"", False),
}  # fmt: skip


@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_dumps_are_read_or_refused_and_nothing_is_executed(tmp_path, name):
    make, readable = HOSTILE[name]
    made = tmp_path / "made by a call"
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(make(made))
    if readable:
        read_dump(path, path.name, 0, None)
    else:
        with pytest.raises(ReadError):
            read_dump(path, path.name, 0, None)
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps(dump(*done(3))))
    check(tmp_path)
    assert not made.exists()


def test_a_dump_larger_than_any_is_refused_unread(tmp_path):
    path = tmp_path / "nccl_trace_rank_0"
    with path.open("wb") as file:
        file.truncate(2**36)
    with pytest.raises(ReadError, match="larger than"):
        read_dump(path, path.name, 0, None)


def test_the_largest_dump_stays_small_in_memory(tmp_path):
    """Of a buffer of 4,000 entries those near the last one that was done are kept."""
    content = pickle.dumps(dump(*waiting(4_000)))
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(content)
    (group,) = read_dump(path, path.name, 0, None).groups
    assert (group.last, group.completed) == (4_000, 3_999)
    assert len(group.entered) < 100


def test_a_dump_that_cannot_be_read_is_a_note_next_to_a_log(tmp_path):
    (tmp_path / "train.log").write_text(
        "".join(f"step {step} loss {2.0 * 0.9**step + 0.1:.4f}\n" for step in range(60))
    )
    (tmp_path / "nccl_trace_rank_0").write_bytes(b"hello")
    report = check(tmp_path)
    assert report.verdict == "pass"
    assert any("nccl_trace_rank_0: it is not read" in note for note in report.notes)
