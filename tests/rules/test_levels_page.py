"""docs/levels.md: the example that a reader redoes by hand has the numbers that come out."""

from pathlib import Path

import pytest

from tracker_health.evidence import Curve

PAGE = (Path(__file__).parents[2] / "docs" / "levels.md").read_text()


def test_the_example_has_the_numbers_that_come_out(make, judge):
    (line,) = [line for line in PAGE.splitlines() if line.strip().startswith("train_loss:")]
    values = [float(one) for one in line.split()[1:]]
    curve = Curve.of(make.series(values))
    half, kept = curve.between(0.5, 1.0), curve.kept
    said = {
        "noise is 0.021": (curve.noise, 0.021),
        "1.367": (1.0 + 8.3 * 9**-1.42, 1.367),
        "0.0287": (curve.start.error, 0.0287),
        "median is 2.11": (half.value, 2.11),
        "= 0.0147": (half.error, 0.0147),
        "= 0.19": (kept.value, 0.19),
        "= 0.0322": (kept.error, 0.0322),
        "5.9 errors": (kept.value / kept.error, 5.9),
        "two levels, 2.11": (curve.best.value, 2.11),
        "descent is 0.19": (curve.descent.value, 0.19),
        "0.115": (0.05 * curve.start.value, 0.115),
    }
    for words, (number, shown) in said.items():
        assert words in PAGE
        assert number == pytest.approx(shown, rel=0.01), words
    assert (len(curve.levels), judge("LOS005", make.evidence(values)).verdict) == (12, "pass")


def test_the_factor_for_few_values():
    for points, factor in ((4, 9.3), (8, 1.84), (12, 1.37), (100, 1.01)):
        assert f"{factor} for {points}" in PAGE
        assert 1.0 + 8.3 * (points - 3) ** -1.42 == pytest.approx(factor, rel=0.01)
