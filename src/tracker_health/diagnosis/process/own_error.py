"""An error of the program."""

from __future__ import annotations

from tracker_health.diagnosis._base import Sign
from tracker_health.diagnosis._ends import ENDS, EndOfProcess, end_says, ended
from tracker_health.diagnosis._facts import Facts
from tracker_health.text import printable
from tracker_health.words.diagnosis import Action
from tracker_health.words.ending import Ended

_OTHERS = ("loss scale", "out of memory", "memoryerror", "no space left", "worker", "collective operation", "nccl")


class OwnError(EndOfProcess):
    """The program ended with an error of its own."""

    name = "own-error"
    title = "The program ended with an error"
    signs = (
        Sign(
            name="it failed, and its console shows no lack of memory, disk or connection",
            kind="finding",
            looks_at="RUN004",
            seen=lambda facts: ended(facts, Ended.FAILED) and not end_says(facts, *_OTHERS),
            judged=5,
        ),
    )
    test = "run it again with the same batch: an error of the program comes back"

    def action(self, facts: Facts) -> Action:
        texts = [facts.found[code].details.get("text") for code in ENDS if code in facts.found]
        error = next((printable(text, 120) for text in texts if text), "")
        return Action(text=f"fix the error that ended it{': ' + error if error else ''}; then resume")
