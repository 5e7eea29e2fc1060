"""RUN006 by what ranks print: NCCL's watchdog in its several forms, Gloo, monitored barriers, torchrun's table."""

from __future__ import annotations

import pytest

from tracker_health import check
from tracker_health.rules.run.hang_in_collective import HangInCollective
from tracker_health.testing import check_probe

ROWS = "".join(f"step {step} loss {2.0 * 0.9**step + 0.1:.4f}\n" for step in range(40))
ABORTED = "terminate called after throwing an instance of 'c10::DistBackendError'\n"


def watchdog(rank, number, *, operation="ALLREDUCE", tag=True):
    before = (
        f"[rank{rank}]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] " if tag else "[E ProcessGroupNCCL.cpp:737] "
    )
    work = f"WorkNCCL(SeqNum={number}, OpType={operation}, NumelIn=98, NumelOut=98, Timeout(ms)=600000)"
    said = f"Watchdog caught collective operation timeout: {work} ran for 600029 milliseconds before timing out.\n"
    return f"{before}[Rank {rank}] {said}"


def status(rank, number, entered, completed, *, group="PG ID 0 PG GUID 0(default_pg)"):
    before = (
        f"[rank{rank}]:[E626 06:24:44.906457629 ProcessGroupNCCL.cpp:2271] [{group} Rank {rank}]  failure detected by "
    )
    work = f"watchdog at work sequence id: {number} PG status: last enqueued work: {entered}, "
    return f"{before}{work}last completed work: {completed}\n"


def older_status(rank, number, entered, completed):
    before = f"[rank{rank}]:[E321 02:07:08.465150152 ProcessGroupNCCL.cpp:1664] [PG 1 Rank {rank}] Exception (either an error "
    work = f"or timeout) detected by watchdog at work: {number}, last enqueued NCCL work: {entered}, "
    return f"{before}{work}last completed NCCL work: {completed}.\n"


def signalled(rank, source, entered, completed, *, group="PG ID 0 PG GUID 0(default_pg)"):
    before = f"[rank{rank}]:[E626 06:24:45.482119928 ProcessGroupNCCL.cpp:1746] [{group} Rank {rank}] Received a dump signal "
    why = f"due to a collective timeout from  rank {source} and we will try our best to dump the debug info. "
    return (
        f"{before}{why}Last enqueued NCCL work: {entered}, last completed NCCL work: {completed}.This is most likely\n"
    )


def gloo(rank, operation="all_reduce", *, seconds=4):
    frame = f'[rank{rank}]:   File "/lib/torch/distributed/distributed_c10d.py", line 3252, in {operation}\n'
    said = f"unbound_buffer.cc:78] Timed out waiting {seconds}000ms for recv operation to complete\n"
    return f"[rank{rank}]: Traceback (most recent call last):\n{frame}[rank{rank}]: RuntimeError: [/gloo/tcp/{said}"


def table(*codes, root=0):
    """torchrun's, with the exit code of each rank."""
    rows = [
        f"[{rank}]:\n  time      : 2026-11-29_09:03:27\n  host      : localhost\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: {500 + rank}) \n  error_file: <N/A>\n"
        for rank, code in enumerate(codes)
    ]
    first = rows.pop(root)
    line = "-" * 60
    return f"job.py FAILED\n{line}\nFailures:\n{''.join(rows)}{line}\nRoot Cause (first observed failure):\n{first}{'=' * 60}\n"


FINGERPRINT = (
    "Rank {} is running collective: CollectiveFingerPrint(SequenceNumber=6, OpType={}, TensorShape=[{}], TensorDtypes=Float, "
    "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), requires_grad=false "
    "(default), pinned_memory=false (default), memory_format=(nullopt)))"
)


def mismatch(one, other):
    said = f"{FINGERPRINT.format(*one)}, but {FINGERPRINT.format(*other)}.Collectives differ"
    begins = f"[rank{one[0]}]: Traceback (most recent call last):\n"
    return f"{begins}[rank{one[0]}]: RuntimeError: Detected mismatch between collectives on ranks. {said}\n"


BARRIER = (
    "[rank0]:[E1129 09:03:50.928780166 ProcessGroupGloo.cpp:2901] [Rank 0]: Rank 1 failed to pass monitoredBarrier in 2000 ms\n"
    "[rank0]:[E1129 09:03:50.928854526 ProcessGroupGloo.cpp:67] [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 2000 ms\n"
    "[rank2]:[E1129 09:03:50.929201206 ProcessGroupGloo.cpp:67] Rank 2 successfully reached monitoredBarrier, but received errors\n"
)
OWN_ERROR = "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: no sample 17\n"
BROKEN_PIPE = "[rank1]: Traceback (most recent call last):\n[rank1]: BrokenPipeError: [Errno 32] Broken pipe\n"
WAITING = "".join(watchdog(rank, 15) + status(rank, 15, 17, 14) for rank in (0, 2))

NAMED = {
    "a rank whose last operation comes before": (
        WAITING + signalled(1, 0, 14, 14),
        "rank 1 did not enter all_reduce number 15, for which ranks 0 and 2 waited 600 s",
    ),
    "the same, as older versions write it": (
        "".join(watchdog(rank, 15) + older_status(rank, 15, 17, 14) for rank in (0, 2)) + older_status(1, 14, 14, 13),
        "rank 1 did not enter all_reduce number 15, for which ranks 0 and 2 waited 600 s",
    ),
    "a barrier": (BARRIER, "ranks 1 and 3 did not enter a collective operation, for which ranks 0 and 2 waited 2 s"),
    "a rank that had ended": (OWN_ERROR + watchdog(0, 15), "rank 1 had ended (ValueError: no sample 17) while rank 0 waited"),
    "silence in torchrun's table": (
        gloo(2) + gloo(0) + table(1, -15, 1, root=2),
        "rank 1 reported nothing, while ranks 0 and 2 waited 4 s in all_reduce, and most likely did not enter it",
    ),
    "silence of one of many, before processes had tags": (
        "".join(watchdog(rank, 469508, tag=False) for rank in (1, 2, 3, 5, 6, 7, 0)),
        "rank 4 reported nothing, while ranks 0, 1, 2, 3, 5 and 2 more waited 600 s in all_reduce number 469508",
    ),
}  # fmt: skip


def judged(text, **parts):
    return check_probe(HangInCollective, text_log=ROWS + text, **({"status": "FAILED"} | parts))


@pytest.mark.parametrize("name", list(NAMED))
def test_the_rank_that_did_not_come_is_named(name):
    text, said = NAMED[name]
    result = judged(text + ABORTED)
    assert (result.verdict, result.kind) == ("warn", "did-not-come"), result.message
    assert said in result.message
    assert result.confidence == ("low" if name.startswith("silence") else "high")


DIFFER = {
    "fingerprints of operations": (
        mismatch((2, "ALLREDUCE", 8), (1, "BROADCAST", 8)) + mismatch((0, "ALLREDUCE", 8), (1, "BROADCAST", 8)),
        "ranks ran different collective operations as number 6: rank 1 ran broadcast; ranks 0 and 2 ran all_reduce",
    ),
    "fingerprints of sizes": (
        mismatch((2, "ALLREDUCE", 8), (1, "ALLREDUCE", 16)),
        "as number 6: rank 1 ran all_reduce [16]; rank 2 ran all_reduce [8]",
    ),
    "all waited, in different ones": (
        gloo(0) + gloo(1, "broadcast") + gloo(2) + table(1, -15, 1),
        "ranks ran different collective operations: rank 1 ran broadcast; ranks 0 and 2 ran all_reduce",
    ),
}


@pytest.mark.parametrize("name", list(DIFFER))
def test_ranks_that_ran_something_else_are_told_apart(name):
    text, said = DIFFER[name]
    result = judged(text)
    assert (result.verdict, result.kind, result.measured["rank"]) == ("warn", "mismatch", 1), result.message
    assert said in result.message


# Where nothing shows which rank did not come, none is named.
WAITED = {
    "all of them": "".join(watchdog(rank, 15) + status(rank, 15, 17, 14) for rank in range(3)),
    "one alone": watchdog(0, 15) + status(0, 15, 17, 14),
    "one of two": gloo(0) + table(1, -15),
    "half of them": gloo(0) + gloo(1) + table(1, 1, -15, -15),
    "a rank that is behind in another group": WAITING + signalled(1, 0, 3, 3, group="PG ID 4 PG GUID 9(TENSOR)") + watchdog(1, 15),
    "a rank that broke off since others were gone": BROKEN_PIPE + watchdog(0, 15),
    "of a pipeline": gloo(0, "recv") + gloo(1) + table(1, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", list(WAITED))
def test_without_evidence_no_rank_is_named(name):
    result = judged(WAITED[name] + ABORTED)
    assert (result.verdict, result.kind) == ("warn", "waited"), result.message
    assert "rank" not in result.measured


def test_a_training_that_went_on_is_not_flagged(tmp_path):
    """A launcher starts all again, or the program caught it."""
    again = "".join(f"step {step} loss 0.1{step}\n" for step in range(40, 90))
    (tmp_path / "train.log").write_text(ROWS + WAITING + again + "training complete\n")
    report = check(tmp_path)
    assert (report.verdict, report.ended) == ("pass", "finished"), report.summary
    (tmp_path / "train.log").write_text(ROWS + WAITING + again)
    assert check(tmp_path).verdict == "pass"
    assert judged(WAITING + "caught it\n" * 10, status="FINISHED").verdict == "pass"


def test_a_lost_connection_alone_is_none_of_it():
    closed = "[rank0]: Traceback (most recent call last):\n[rank0]: RuntimeError: [/gloo/tcp/pair.cc:553] Connection closed by peer\n"
    assert judged(closed + table(1, -15)).reason.startswith("no rank reported")


@pytest.mark.parametrize(
    ("text", "cause", "action"),
    [
        (NAMED["a rank whose last operation comes before"][0] + ABORTED, "hang-in-collective", "stack of rank 1 (py-spy dump)"),
        (NAMED["a rank that had ended"][0] + ABORTED, "hang-in-collective", "fix the error that ended rank 1: ValueError"),
        (DIFFER["fingerprints of operations"][0], "hang-in-collective", "look at rank 1"),
        (WAITED["all of them"] + ABORTED, "hang-in-collective", "TORCH_FR_BUFFER_SIZE"),
        (
            gloo(0).replace("Timed out waiting 4000ms for recv operation to complete", "Connection closed by peer"),
            "communication-failed",
            "logs of the other ranks",
        ),
        (watchdog(0, 15) + "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch.\n", "out-of-memory", "smaller batch"),
    ],
)  # fmt: skip
def test_the_headline_has_the_cause(tmp_path, text, cause, action):
    (tmp_path / "train.log").write_text(ROWS + text)
    report = check(tmp_path)
    assert report.verdict == "fail"
    assert report.diagnosis.cause == cause, report.summary
    assert action in report.diagnosis.action.text


def test_consoles_of_several_ranks_are_read_together(tmp_path):
    """As torchrun leaves them with --log-dir."""
    for rank, said in ((0, watchdog(0, 15) + status(0, 15, 17, 14)), (1, signalled(1, 0, 14, 14)), (2, "")):
        (tmp_path / "attempt_0" / str(rank)).mkdir(parents=True)
        (tmp_path / "attempt_0" / str(rank) / "stderr.log").write_text(said + ABORTED)
    (tmp_path / "train.log").write_text(ROWS)
    assert "Rank 1 did not enter all_reduce number 15, for which rank 0 waited 600 s" in check(tmp_path).summary
