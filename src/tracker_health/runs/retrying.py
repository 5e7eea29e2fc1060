"""Work on a run that another annotator may stop."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from tracker_health.stores.base import Overtaken

Result = TypeVar("Result")


def retry_while_overtaken(
    work: Callable[[], Result], pauses: Iterable[float], is_overtaken: Callable[[Result], bool] = lambda _: False
) -> Result:
    """Do the work again, a little later and a few times, where another annotator has stopped it: of two at once each
    may stop the other, and leave the run unfinished.

    ``pauses``: seconds at most, by chance, before each further try: both would meet again at once. ``is_overtaken``:
    whether a result says that it was stopped, where that is no exception.
    """
    for pause in pauses:
        with suppress(Overtaken):
            result = work()
            if not is_overtaken(result):
                return result
        time.sleep(pause * random.uniform(0.2, 1.0))  # noqa: S311  no secret
    return work()
