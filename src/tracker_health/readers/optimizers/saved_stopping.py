"""Signs in a saved structure that the training was set up to stop early."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from tracker_health.readers.optimizers.saved_mappings import mappings_in
from tracker_health.text import short_name

_SETTING = re.compile(r"early_?stop|^(es_)?patience$", re.IGNORECASE)
_COUNTER = re.compile(r"^(patience_counter|(epochs|steps|evals?|rounds)_(no|without)_improve(ment)?|wait_count)$")
_OFF = frozenset(("", "none", "null", "false", "no", "off", "0", "0.0"))
_MOST_KEYS = 100
_OF_A_SCHEDULE = ("num_bad_epochs", "factor")  # which has a patience of its own


def early_stopping_in(root: Any) -> str:
    """The name of a setting, a callback (Lightning's) or a counter that stands for early stopping; empty for none."""
    for mapping in mappings_in(root):
        if any(key in mapping for key in _OF_A_SCHEDULE):
            continue
        for key, value in islice(mapping.items(), _MOST_KEYS):
            if isinstance(key, str) and len(key) < 200 and _is_sign(key, value):
                return short_name(key)
    return ""


def _is_sign(key: str, value: Any) -> bool:
    if _COUNTER.fullmatch(key):
        return isinstance(value, int) and not isinstance(value, bool)
    off = value.strip().lower() in _OFF if isinstance(value, str) else isinstance(value, (int, float)) and not value
    return bool(_SETTING.search(key)) and isinstance(value, (bool, int, float, str, dict)) and not off and value != {}
