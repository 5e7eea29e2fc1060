"""OPT013."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.facts.applied import epochs_not_applied, rate_not_applied, warm_up_not_applied
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class SettingNotApplied(Probe):
    """A setting is another one in the log than in the params.

    What it finds:
        A learning rate, a warm-up or a number of epochs that the params name, where the log shows another one.

    Why it matters:
        The training is not the one that was asked for. A second configuration (a DeepSpeed file, a default, a scheduler
        of its own) was used, and the params on the run's page are wrong.

    How it decides:
        Warn when the highest logged rate of every group is `times` the param's or more, or that part of it or
        less. Rates that still rise at the end are not compared, and none is where a param scales or chooses the
        rate. A multiple by the number of devices passes. Warn when the rate is at nine tenths of its top within
        a quarter of the warm-up steps. The log must have twice as many steps. Warn when the console counts up
        to `times` as many epochs, or that part of them.

    Known limits:
        It reads the params and the settings files next to the log, not the code. Batch sizes are not compared.

    Worked example:
        learning_rate: 0.01 0.01 0.01 0.01 0.01 0.01
        param learning_rate: 0.00005
        gives: set 5e-05, logged 0.01, ratio 200
        warn: 0.01 is 200 times 0.00005, and `times` is 2.

    What to do:
        Find which file or default the value comes from, and set it in one place.

    References:
        DeepSpeed's configuration: an optimizer or a scheduler in it replaces that of the trainer.
    """

    code = "OPT013"
    name = "setting-not-applied"
    symptom = Symptom.SCHEDULE
    since = "0.2.0"
    kinds = ("rate", "warm-up", "epochs")

    times: Annotated[float, Threshold("ratio of the logged value to the set one", "ratio", "design", gt=1)] = 2.0

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="learning_rate", any_of=("train_loss",)), *Need.beside(Part.OPTIMIZER_STATE, "epoch"))

    def judge(self, evidence: Evidence) -> Finding:
        found = (
            rate_not_applied(evidence, self.times)
            or warm_up_not_applied(evidence)
            or epochs_not_applied(evidence, self.times)
        )
        if found is None:
            return Finding.passed("no setting of the params differs from what was logged")
        return Finding(
            verdict=Verdict.WARN,
            message=found.said,
            remedy="find which file or default that comes from, and set it in one place",
            measured={"set": found.set_to, "logged": found.logged, "ratio": found.ratio},
            kind=found.kind,
        )
