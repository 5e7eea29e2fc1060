"""What is said of a run of which no metric is understood."""

import numpy as np
import pytest

from tracker_health.evidence import Series
from tracker_health.facts.likely_roles import likely_roles

NOISE = np.random.default_rng(0).normal(0.0, 0.01, 60)
FALLS = 2.3 * 0.95 ** np.arange(60) + 0.05 + NOISE


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"zq": FALLS, "vv": NOISE}, "zq falls as a loss does: set roles.train_loss to it"),
        ({"val/zq": FALLS, "zq": FALLS + 1.0}, "zq falls as a loss does: set roles.train_loss to it"),
        ({"val/zq": FALLS}, "val/zq falls as a loss does: set roles.val_loss to it"),
        ({"zq": 3.0 - FALLS}, "zq rises as a reward does: set roles.train_reward to it"),
        ({"zq": NOISE}, ""),
        ({"zq": FALLS[:4], "vv": np.full(60, np.nan)}, ""),
        ({}, ""),
        ({"\x1b[31mzq": FALLS}, "?[31mzq falls as a loss does: set roles.train_loss to it"),
    ],
)
def test_the_metric_that_goes_as_a_loss_does_is_named(metrics, said):
    series = [Series(name=name, steps=np.arange(len(one)), values=one) for name, one in metrics.items()]
    assert likely_roles(series) == said
