"""RUN003."""

from __future__ import annotations

from dataclasses import dataclass

from tracker_health.evidence import Evidence, Need
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom
from tracker_health.rules.run._ending import NEEDS, ended_well, ending_finding
from tracker_health.words.ending import Ended
from tracker_health.words.verdict import Verdict

_FROM_OUTSIDE = frozenset({Ended.KILLED, Ended.INTERRUPTED, Ended.PREEMPTED, Ended.SILENT})


@dataclass(frozen=True, kw_only=True)
class Killed(Probe):
    """Something outside of the script ended the run.

    What it finds:
        A run that was killed, interrupted or preempted, or that claims to be running and has been silent for hours.

    Why it matters:
        Trackers show such a run as running, or as one that just stopped. Its last checkpoint and its last metrics are
        from an arbitrary moment.

    How it decides:
        `tracker-health exec` or the hook saw the end. Else W&B's exit code says it, or the
        tracker's status. Fail for a kill: SIGKILL, exit code 137; warn where the plan was reached. Warn for Ctrl-C,
        SIGTERM, a time limit or a preemption; pass where the plan was reached. Warn for a run that nobody closed: W&B
        calls it crashed, or it was silent for `stale_after`, 6 hours; pass where the plan was reached. A plan is
        reached from 99 % on, or where the console says so.

    Known limits:
        A run that logs less often than every `stale_after` is flagged until it logs again. Without `exec` nothing sees
        a signal. The run then claims to be running, and is found silent later. A run that lost its connection to W&B
        looks like one that was killed.

    Worked example:
        param max_steps: 1000
        optimizer fc 2x2: step=400 exp_avg=0.01*4 exp_avg_sq=1e-3*4
        ended: killed
        fail: it was killed, after 400 of 1000 steps of its plan.

    What to do:
        Look for the reason outside of the script: the scheduler's log, the kernel's (`dmesg`) on a lack of memory, the
        time limit of the job. Then resume from the last checkpoint.

    References:
        None: what the operating system and the tracker say of a process.
    """

    code = "RUN003"
    name = "killed"
    symptom = Symptom.KILLED

    @property
    def needs(self) -> tuple[Need, ...]:
        return NEEDS

    def judge(self, evidence: Evidence) -> Finding:
        ending = evidence.ending
        if ending is None:
            return Finding(verdict=Verdict.SKIP, message="how the run ended is not known")
        if ending.how not in _FROM_OUTSIDE:
            return ended_well(evidence, ending)
        return ending_finding(evidence, ending, min_points=0)
