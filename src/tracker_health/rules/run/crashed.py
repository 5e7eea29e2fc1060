"""RUN004."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.run._ending import NEEDS, ended_well, ending_finding
from tracker_health.words.ending import Ended
from tracker_health.words.verdict import Verdict

_BY_ITSELF = frozenset({Ended.FAILED, Ended.OUT_OF_MEMORY})


@dataclass(frozen=True, kw_only=True)
class Crashed(Probe):
    """The run ended with an error, or ran out of memory.

    What it finds:
        A run whose process ended with an error: an uncaught exception, an exit code other than 0, a crash below Python,
        or a lack of memory.

    Why it matters:
        The model is the one of the last checkpoint, not of the end of training, and trackers often call such a run
        finished.

    How it decides:
        How it ended is known as for `killed`. Fail for an error of its own and for a lack of memory; warn where the
        plan was reached. Without a plan an error warns where a loss of `min_points` came down. Exit code 0 passes, and
        so does a trial that a search stopped. An exception in the console counts at the end of a traceback, if the
        history does not go on after it. It was caught where the process is still at work, or left with exit code 0.

    Known limits:
        After an exception in the console at most 200 lines may follow, and 5 where the tracker calls the run finished.
        In a console without history, next to one elsewhere, it is a warning.
        `raise SystemExit(3)`, and `sys.exit` within `asyncio.run`, are seen by `exec` alone; behind a shell, by
        nobody. A machine that lost its power prints nothing.

    Worked example:
        param max_steps: 1000
        optimizer fc 2x2: step=400 exp_avg=0.01*4 exp_avg_sq=1e-3*4
        ended: out-of-memory
        fail: it ran out of memory, after 400 of 1000 steps of its plan.

    What to do:
        Fix the cause that the message names, and resume from the last checkpoint.

    References:
        Python's format of tracebacks; the kernel's and Slurm's messages.
    """

    code = "RUN004"
    name = "crashed"
    symptom = Symptom.KILLED

    min_points: Annotated[
        int,
        Threshold("points of a falling loss that show that a run without a plan was trained", "points", "design", ge=1),
    ] = 100

    @property
    def needs(self) -> tuple[Need, ...]:
        return NEEDS

    def judge(self, evidence: Evidence) -> Finding:
        ending = evidence.ending
        if ending is None:
            return Finding(verdict=Verdict.SKIP, message="how the run ended is not known")
        if ending.how not in _BY_ITSELF:
            return ended_well(evidence, ending)
        return ending_finding(evidence, ending, self.min_points)
