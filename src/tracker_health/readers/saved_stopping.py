"""Signs in a saved structure that the training was set up to stop early."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from tracker_health.readers.saved_mappings import mappings_in
from tracker_health.text import printable

_SETTING = re.compile(r"early_?stop|^(es_)?patience$", re.IGNORECASE)
_COUNTER = re.compile(r"^(patience_counter|(epochs|steps|evals?|rounds)_(no|without)_improve(ment)?|wait_count)$")
_MOST_KEYS = 100
_OF_A_SCHEDULE = "num_bad_epochs"  # which has a patience of its own


def early_stopping_in(root: Any) -> str:
    """The name of a setting, a callback (Lightning's) or a counter that stands for early stopping; empty for none."""
    for mapping in mappings_in(root):
        if _OF_A_SCHEDULE in mapping:
            continue
        for key, value in islice(mapping.items(), _MOST_KEYS):
            if isinstance(key, str) and len(key) < 200 and _is_sign(key, value):
                return printable(key, 60)
    return ""


def _is_sign(key: str, value: Any) -> bool:
    if _COUNTER.fullmatch(key):
        return isinstance(value, int) and not isinstance(value, bool)
    off = value is None or value is False or value in ("", "none", "None", "False", "false", "0") or value == 0
    return bool(_SETTING.search(key)) and isinstance(value, (bool, int, float, str, dict)) and not off
