"""The settings that a line of a console log states: a banner, or what argparse prints."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tracker_health.readers.log_formats.numbers import as_written
from tracker_health.readers.log_formats.printed import Printed
from tracker_health.roles import normal_form

PLANS = {
    "total/optimization/steps": "max_steps", "max/steps": "max_steps", "total/steps": "max_steps",
    "num/train/epochs": "num_train_epochs", "num/epochs": "num_train_epochs", "max/epochs": "num_train_epochs",
}  # fmt: skip
"""What a banner calls the plan, by what a param is called."""
SETTINGS = ("Namespace(", "Config(", "Arguments(", "Args(")
"""What all of a program's settings are printed behind."""
_REGULARISER = re.compile(
    r"(?:\breg(?:ulari[sz]er)? ?[=:] ?['\"]?|\w\[(?=\w+\]))(nll|wd|kl_fwd|kl_rev)\b", re.IGNORECASE
)
_SAMPLES_AND_EPOCHS = re.compile(r"\b(\d{1,12}) (?:completions|samples|examples) [x*] (\d{1,6}) ep(?:ochs?)?\b")
# What argparse prints of a setting that is no number.
_WORDS = re.compile(r"(?<=[( ])([A-Za-z_]\w{0,60})=(?:'([^'\\]{0,100})'|(True|False))(?=[,)])")
_GLUED = re.compile(r"\S=")
_MAX_SETTINGS = 20_000
_STEPS_IN_ALL = re.compile(r"= ?(\d{1,15}) (?:optimizer |training |total )?steps\b")


def settings_in(line: str, printed: Printed | None) -> Mapping[str, str]:
    """The settings that a line of a banner states, with the plan under the names that it has elsewhere."""
    found = {}
    for one in printed.metrics if printed is not None else ():
        if as_written(one.text) is not None:
            name = PLANS.get(normal_form(one.name), one.name)
            # In "keep kl near tau. lam=2" the sign stands at one word, in "Num examples = 100" behind them all.
            glued = _GLUED.match(line, max(one.start - 2, 0), one.start) is not None
            found[name.split()[-1] if glued else name] = one.text.replace(",", "")
    if any(word in line for word in SETTINGS):
        found |= {match[1]: match[3] or match[2] for match in _WORDS.finditer(line[:_MAX_SETTINGS])}
    if (in_all := _STEPS_IN_ALL.search(line)) is not None:
        found["max_steps"] = in_all.group(1)
    if (amount := _SAMPLES_AND_EPOCHS.search(line)) is not None:
        found |= {"samples": amount.group(1), "num_train_epochs": amount.group(2)}
    if (regulariser := _REGULARISER.search(line)) is not None:
        found["reg"] = regulariser.group(1).lower()
    return found
