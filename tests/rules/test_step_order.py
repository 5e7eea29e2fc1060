"""RUN002."""

import numpy as np
import pytest

CODE = "RUN002"


def joined(*parts):
    """Histories one after the other: (values, first step)."""
    steps = np.concatenate([first + np.arange(len(values)) for values, first in parts])
    return np.concatenate([values for values, _ in parts]), steps


def verdict(judge, make, history):
    values, steps = history
    return judge(CODE, make.evidence(values, steps=steps))


@pytest.mark.parametrize("seed", range(3))
def test_healthy(healthy_name, seed, healthy, make, judge):
    losses = getattr(healthy, healthy_name)(seed)
    assert judge(CODE, make.evidence(losses)).verdict in ("pass", "SkippedProbe")


@pytest.mark.parametrize("seed", range(5))
def test_a_clean_resume_passes(seed, healthy, make, judge):
    losses = healthy.descent(seed)
    again = healthy.descent(seed + 100)
    result = verdict(judge, make, joined((losses[:250], 0), (again[200:], 200)))
    assert (result.verdict, result.measured["went_back"]) == ("pass", 1)


def test_what_the_loss_does_after_a_resume_is_for_the_rules_on_losses(healthy, make, judge):
    losses = healthy.descent(0)
    assert verdict(judge, make, joined((losses[:300], 0), (losses[200:] + 1.5, 200))).verdict == "pass"


@pytest.mark.parametrize("folds", [2, 3, 5])
def test_folds_under_one_name(folds, healthy, make, judge):
    result = verdict(judge, make, joined(*((healthy.descent(seed), 0) for seed in range(folds))))
    assert result.verdict == "warn"
    assert f"{folds} runs or folds" in result.message


def test_two_writers(healthy, make, judge):
    one, other = healthy.descent(0), healthy.descent(1)
    values, steps = (
        np.ravel(np.column_stack([one, other])),
        np.ravel(np.column_stack([np.arange(400) + 50, np.arange(400)])),
    )
    assert "two writers" in verdict(judge, make, (values, steps)).message
    values, steps = np.ravel(np.column_stack([one, other])), np.repeat(np.arange(400), 2)
    assert "400 points of 800" in verdict(judge, make, (values, steps)).message


def test_near_misses(healthy, make, judge):
    losses = healthy.descent(0)
    twice = np.repeat(losses, 2), np.repeat(np.arange(400), 2)  # the same value twice, as a bar prints it
    assert verdict(judge, make, twice).verdict == "pass"
    summary = np.append(losses, losses.mean()), np.append(np.arange(1, 401), 0)
    assert verdict(judge, make, summary).verdict == "pass"
