"""RUN006."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Ended, Evidence, Need, Part
from tracker_health.evidence.ending import fatal_trouble
from tracker_health.facts.stuck import Stuck, ranks_in_words, stuck_in
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, number, printable
from tracker_health.words.verdict import Verdict

_ENDED_BADLY = frozenset((Ended.FAILED, Ended.KILLED, Ended.INTERRUPTED, Ended.SILENT, Ended.OUT_OF_MEMORY))


@dataclass(frozen=True, kw_only=True)
class HangInCollective(Probe):
    """Ranks waited in a collective operation that another rank did not enter.

    What it finds:
        A collective operation whose time was up, as a console or dumps of flight recorders have it. It names the rank
        that did not enter it. Or the ranks that ran another operation; or, where nothing shows more, those that waited.

    Why it matters:
        All ranks stand still until the time-out, often for half an hour, and the job then ends. Each rank that waited
        reports an error; the one to look at often reports none.

    How it decides:
        A rank did not come where its last operation has a lower number than the one in which others of its group
        waited. Or where a monitored barrier names it, or an error had ended it. Or it alone reports nothing, where
        `fewest` ranks or more, and twice as many, say that they waited: that is said with low confidence. Ranks
        differ where they ran different operations, or sizes, under one number. Dumps alone count where the operation
        had been entered for `share` of its own time-out when the late rank wrote its dump. Where all entered it, all
        of the time-out must have passed. Without these times the run must have ended badly. It is a warning: how the
        run ended is judged by `killed` and `crashed`.

    Known limits:
        Gloo numbers no operation in a console. There silence is all that names a rank, and a launcher may have ended
        it before it spoke. Of two ranks the silent one is not named. A copied file may have lost the time at which it
        was written: dumps of a healthy run that were written at different steps then look late.

    What to do:
        Look at that rank's own log and stack (`py-spy dump`). Usual reasons are batches that do not divide evenly, a
        rank that evaluates or saves alone, and a branch that not all ranks take.

    References:
        PyTorch's flight recorder (`torch.distributed.flight_recorder`), and its messages of time-outs.
    """

    code = "RUN006"
    name = "hang-in-collective"
    symptom = Symptom.KILLED
    kinds = ("did-not-come", "mismatch", "waited")
    since = "0.2.0"

    share: Annotated[
        float,
        Threshold("share of an operation's time-out after which a rank is late", "fraction", "design", gt=0, le=1),
    ] = 0.5
    fewest: Annotated[int, Threshold("ranks that waited, so that a silent one is named", "ranks", "design", ge=2)] = 2

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.COLLECTIVES, unit="reports and dumps"), *Need.beside(Part.TEXT_LOG, Part.ENDING))

    def judge(self, evidence: Evidence) -> Finding:
        ending, log = evidence.ending, evidence.text_log
        failed = ending is not None and ending.how in _ENDED_BADLY
        reports = log.reports if log is not None and not _went_on(evidence) else None
        stuck = stuck_in(reports, evidence.dumps, failed=failed, share=self.share, fewest=self.fewest)
        if stuck is None:
            if not evidence.dumps:
                return Finding.passed("ranks waited in vain, and the training went on after it")
            seen = count(len(evidence.dumps), "dump")
            return Finding.passed(f"in {seen} of flight recorders no rank is late for a collective operation")
        return Finding(
            verdict=Verdict.WARN,
            message=_message(stuck),
            remedy="look at the log and the stack (py-spy dump) of the rank that did not come",
            measured=_measured(stuck),
            details={
                "operation": stuck.operation,
                "absent": list(stuck.absent),
                "waiting": list(stuck.waiting),
                "ran": [{"what": what, "ranks": list(ranks)} for what, ranks in stuck.ran],
                "raised": stuck.raised,
                "by": stuck.by,
            },
            confidence="high" if stuck.sure else "low",
            kind=stuck.kind,
        )


def _went_on(evidence: Evidence) -> bool:
    """Whether the training went on, or was started again, after what its console reports."""
    how = evidence.ending.how if evidence.ending is not None else None
    if how is Ended.RUNNING or how is None:
        return fatal_trouble(evidence.text_log) is None
    return how in (Ended.FINISHED, Ended.PRUNED)


def _measured(stuck: Stuck) -> dict[str, float | int | str]:
    odd = stuck.absent or (stuck.ran[0][1] if stuck.ran else ())
    known = {"rank": odd[0] if odd else None, "number": stuck.number, "seconds": stuck.seconds}
    return {name: value for name, value in known.items() if value is not None}


def _message(stuck: Stuck) -> str:
    place = f" number {stuck.number}" if stuck.number is not None else ""
    what = f"{printable(stuck.operation) or 'a collective operation'}{place}"
    waited = f" {number(stuck.seconds)} s" if stuck.seconds else ""
    if stuck.kind == "mismatch":
        ran = "; ".join(f"{ranks_in_words(ranks)} ran {printable(name)}" for name, ranks in stuck.ran[:3])
        return f"ranks ran different collective operations{place and f' as{place}'}: {ran}"
    if stuck.kind == "waited":
        return (
            f"{ranks_in_words(stuck.waiting)} waited{waited} in {what}, and nothing shows which rank did not enter it"
        )
    others = f"while {ranks_in_words(stuck.waiting)} waited{waited} in {what}"
    if stuck.raised:
        return f"{ranks_in_words(stuck.absent)} had ended ({printable(stuck.raised)}) {others}"
    if not stuck.sure:
        return f"{ranks_in_words(stuck.absent)} reported nothing, {others}, and most likely did not enter it"
    return (
        f"{ranks_in_words(stuck.absent)} did not enter {what}, for which {ranks_in_words(stuck.waiting)} waited{waited}"
    )
