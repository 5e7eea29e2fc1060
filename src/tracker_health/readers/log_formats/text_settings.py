"""The settings that a line of a console log states: a banner, or what argparse prints."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tracker_health.readers.log_formats.numbers import as_written
from tracker_health.readers.log_formats.printed import Printed
from tracker_health.roles import normal_form, word_set, words_of

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

_KEY = re.compile(r"['\"]([A-Za-z_][\w. -]{0,60})['\"][ ]?:")
_WORD_AS_VALUE = re.compile(r"['\"][ ]?:[ ]?(?:['\"][A-Za-z./~]|True\b|False\b|None\b)")
_OF_SETTINGS = word_set(
    "batch seed num workers optimizer optim scheduler decay momentum dropout hidden max warmup epochs device dataset "
    "data dir path root model resume base backbone pretrained gpus save log eval test width depth heads layers size "
    "name init eps"
)
_FEWEST_SETTINGS = 3


def is_of_settings(line: str, *, has_loss: bool) -> bool:
    """Whether a line is a program's settings: behind a word for all of them, or a dictionary with words among its
    values and with several keys that settings have. That of a row has the step, the rate, and what was measured:
    one that ``has_loss`` is a row.
    """
    if "(" in line and any(word in line for word in SETTINGS):
        return True
    start = line.find("{")
    if start < 0 or has_loss or _WORD_AS_VALUE.search(line, start, _MAX_SETTINGS) is None:
        return False
    keys = _KEY.findall(line, start, _MAX_SETTINGS)
    return sum(not _OF_SETTINGS.isdisjoint(words_of(key)) for key in keys) >= _FEWEST_SETTINGS


def settings_in(line: str, printed: Printed | None) -> Mapping[str, str]:
    """The settings that a line of a banner states, with the plan under the names that it has elsewhere."""
    found = {}
    for one in printed.metrics if printed is not None else ():
        if as_written(one.text) is not None:
            name = PLANS.get(normal_form(one.name), one.name)
            # In "keep kl near tau. lam=2" the sign is at one word, in "Num examples = 100" behind them all.
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
