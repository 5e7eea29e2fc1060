"""RUN003."""

from __future__ import annotations

from dataclasses import dataclass

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.probe import Probe, Symptom
from tracker_health.result import Finding
from tracker_health.text import number, printable
from tracker_health.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Killed(Probe):
    """The run's process died without ending the run.

    What it finds:
        A run that nobody ended: its process was killed (SIGKILL, SIGTERM, out of memory), crashed below Python
        (segmentation fault), or left by `os._exit`.

    Why it matters:
        Trackers show such a run as running for ever, or as one that just stopped; its last checkpoint and its last
        metrics are wherever they happened to be.

    How it decides:
        Fail where the launcher (`tracker-health exec`) saw the process end and the run was not ended, where the tracker
        itself calls the run crashed, or where `tracker-health sweep` found that nothing came for hours
        (`--stale-after`) from a run that claims to go on. Pass where the tracker saw the run end.

    Known limits:
        Without launcher and sweep, a run that its tracker calls running is not judged: nothing tells it from one that
        goes on. One that logs more seldom than a sweep allows is failed, until it logs again. That a run was ended says
        nothing about how: MLflow calls a script that raised an exception finished.

    What to do:
        Look for the reason outside of the script: the scheduler's log, the kernel's (`dmesg`) on a lack of memory, the
        time limit of the job. Then resume from the last checkpoint.

    References:
        None: what the operating system says of a process.
    """

    code = "RUN003"
    name = "killed"
    symptom = Symptom.KILLED

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.ENDING),)

    def judge(self, evidence: Evidence) -> Finding:
        info = evidence.info
        if not info.killed:
            return Finding(verdict=Verdict.PASS, message=f"the run was ended: {printable(info.status.lower(), 40)}")
        cause = printable(info.ended_by or f"the tracker says {info.status.lower()}")
        steps = evidence.optimizer_steps
        reached = f", after {number(steps)} optimizer steps" if steps is not None else ""
        return Finding(
            verdict=Verdict.FAIL,
            message=f"the run was not ended, its process died ({cause}){reached}",
            remedy="look in the log of the scheduler or the kernel for the reason, and resume from the last checkpoint",
            measured={"ended_by": cause},
        )
