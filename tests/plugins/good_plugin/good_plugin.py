"""Two rules of another package: one that votes, one in preview."""

from dataclasses import dataclass
from typing import Annotated

from tracker_health import Evidence, Finding, Need, Probe, Symptom, Threshold, Verdict

print("a plugin that talks while it is imported")  # noqa: T201


@dataclass(frozen=True, kw_only=True)
class HighEnd(Probe):
    """The loss ends above a ceiling.

    What it finds:
        A last training loss above `ceiling`.

    Why it matters:
        The team's models are of no use above it.

    How it decides:
        The last finite training loss is compared with `ceiling`.

    Known limits:
        One point decides.

    What to do:
        Train longer.

    References:
        The team's handbook.
    """

    code = "TEA001"
    name = "high-end"
    symptom = Symptom.UNDERTRAINED
    vouches = True
    headline = ("last",)

    ceiling: Annotated[float, Threshold("loss above which a model is of no use", "nats", "handbook", gt=0)] = 1.0

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss", min_points=3),)

    def judge(self, evidence: Evidence) -> Finding:
        last = float(evidence.first("train_loss").finite().values[-1])
        high = last > self.ceiling
        return Finding(
            verdict=Verdict.FAIL if high else Verdict.PASS,
            message=f"the loss ends at {last:.3g}, the ceiling is {self.ceiling:.3g}",
            remedy="train longer" if high else "",
            measured={"last": last},
        )


@dataclass(frozen=True, kw_only=True)
class HighStart(HighEnd):
    """The loss starts above a ceiling.

    What it finds:
        A first training loss above `ceiling`.

    Why it matters:
        A bad start.

    How it decides:
        The first training loss is compared with `ceiling`.

    Known limits:
        One point decides.

    What to do:
        Look at the initialisation.

    References:
        The team's handbook.
    """

    code = "TEA002"
    name = "high-start"
    status = "preview"
    vouches = False


MORE = (HighStart,)
