"""What causes that end a process have in common: the finding on its end, and what its console says."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, Sign, first_message
from tracker_health.diagnosis._facts import Facts
from tracker_health.words.ending import Ended

ENDS = ("RUN003", "RUN004")


def end_says(facts: Facts, *words: str) -> bool:
    """Whether the cause that the console gives for the end, or its last line, has one of these words."""
    said = " ".join(
        str(facts.found[code].details.get(key, "")) for code in ENDS if code in facts.found for key in ("cause", "text")
    ).lower()
    return any(word in said for word in words)


def ended(facts: Facts, how: Ended) -> bool:
    """Whether the run ended in this way, and that was found bad."""
    return any(facts.found[code].measured.get("ended") == str(how) for code in ENDS if code in facts.found)


def end_sign(name: str, words: tuple[str, ...], weight: int = 6) -> Sign:
    """The console's last words as a sign."""
    return Sign(name=name, kind="finding", looks_at="RUN004", seen=lambda facts: end_says(facts, *words), judged=weight)


class EndOfProcess(Cause):
    """Base of the causes that end a process."""

    explains = frozenset((*ENDS, "RUN001", "LOS007", "OPT001"))

    def sentence(self, facts: Facts) -> str:
        said = first_message(facts, ENDS)
        return f"{self.title}: {said}" if said else self.title
