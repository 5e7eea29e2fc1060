"""How far two healthy runs of one setting come apart by their seed alone: less is no difference.

Counted on healthy runs of the benchmark and their twins, trained again with another seed
(``python benchmarks/faults twins`` counts again).
"""

from __future__ import annotations

OF_A_SETTING = 1.2
"""Times as high: what is set, as a learning rate."""

OF_A_MULTIPLE = {"grad_norm": 3.0, "loss_scale": 16.0}
"""Times as high: what varies by orders of magnitude, by role."""

OF_A_METRIC = 0.25
"""Of the descent: a level on the way, next to one run. Next to several their band has most of what seeds bring."""


def of_a_metric(runs: int) -> float:
    """The same next to a number of runs: the whole of it next to one or two, half of it next to three or four, and a
    fifth from five on.
    """
    return OF_A_METRIC * (1.0 if runs < 3 else 0.5 if runs < 5 else 0.2)


OF_AN_END = 0.1
"""Of the descent: the level at the end."""

OF_A_LOW_END = 0.4
"""Of the higher one of two levels: what ends near 0 differs by a factor, and not by a share of its descent."""

OF_A_LEVEL = 0.05
"""Of the larger of two levels: a smaller gain at the end is nobody's repair, however little noise there is."""

LASTS = 4
"""Parts of the run, of forty, that a difference lasts, or up to the end of the shorter run."""
