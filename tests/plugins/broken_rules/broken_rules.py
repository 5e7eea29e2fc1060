"""Every way in which a rule can be no rule, each an entry point of its own; and one sound rule among them."""

from dataclasses import dataclass
from typing import Annotated

from tracker_health import Evidence, Finding, Need, Probe, Symptom, Threshold, Verdict

DOCUMENT = """One line.

What it finds:
    A.

Why it matters:
    B.

How it decides:
    C.

Known limits:
    D.

What to do:
    E.

References:
    F.
"""


@dataclass(frozen=True, kw_only=True)
class Sound(Probe):
    __doc__ = DOCUMENT

    code = "SND001"
    name = "sound"
    symptom = Symptom.UNSTABLE

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss"),)

    def judge(self, evidence: Evidence) -> Finding:
        return Finding(verdict=Verdict.PASS, message="sound")


def variant(title, /, document=DOCUMENT, **more):
    return type(title, (Sound,), {"__doc__": document, "code": "VAR001", "name": "variant", **more})


def annotated(title, hint, *default):
    space = {"__annotations__": {"level": hint}, **({"level": default[0]} if default else {})}
    return dataclass(frozen=True, kw_only=True)(variant(title, **space))


MIXED = [Sound, 3]
EMPTY = ()
TEXT = "SND001"
thing = Sound()


class NoProbe:
    pass


class Abstract(Probe):
    __doc__ = DOCUMENT
    code = "VAR001"
    name = "variant"
    symptom = Symptom.UNSTABLE


def breaking(self):
    raise ZeroDivisionError("no needs")


BadCode = variant("BadCode", code="SOUND1")
BadName = variant("BadName", name="Not Kebab")
BadStatus = variant("BadStatus", status="beta")
BadHeadline = variant("BadHeadline", headline="last")
BadNeeds = variant("BadNeeds", needs=property(lambda self: ["train_loss"]))
BreakingNeeds = variant("BreakingNeeds", needs=property(breaking))
NoCode = variant("NoCode", code=None)
NoName = variant("NoName", name=None)
NoSymptom = variant("NoSymptom", symptom="unstable")
NoDocstring = variant("NoDocstring", document=None)
NoSection = variant("NoSection", document=DOCUMENT.replace("Known limits:\n    D.\n\n", ""))
OurCode = variant("OurCode", code="LOS001")
OurName = variant("OurName", name="diverged")
Twice = variant("Twice", code="SND001", name="sound-again")
BadDefault = annotated("BadDefault", Annotated[float, Threshold("level", "", "handbook", ge=0)], -1.0)
NoDefault = annotated("NoDefault", Annotated[float, Threshold("level", "", "handbook")])
NoSource = annotated("NoSource", Annotated[float, Threshold("level")], 1.0)
BadHint = annotated("BadHint", "NoSuchType", 1.0)
Undecorated = variant(
    "Undecorated", __annotations__={"level": Annotated[float, Threshold("level", "", "handbook")]}, level=1.0
)
