"""Tables that were filled up with NaN, as a data frame is: a row without a group of metrics has no NaN of them."""

import math

import pytest

from tracker_health import check

HEADER = "time/total_timesteps,rollout/ep_rew_mean,train/learning_rate,train/loss,train/value_loss"


def table(path, losses, rates):
    rows = [HEADER]
    for at, (loss, rate) in enumerate(zip(losses, rates, strict=True), 1):
        rows.append(f"{at * 1000},{20 + 10 * at},{rate},{loss},{loss}")
    path.mkdir()
    (path / "progress.csv").write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("at", [0, 10, 19])
def test_a_row_of_an_evaluation(at, tmp_path):
    losses, rates = [1.0 - 0.01 * row for row in range(20)], [3e-4] * 20
    losses[at] = rates[at] = math.nan
    assert str(check(table(tmp_path / "run", losses, rates)).verdict) == "pass"


@pytest.mark.parametrize("rates", [[3e-4] * 20, [3e-4] * 15 + [math.nan] * 5], ids=["with a rate", "of a rate of NaN"])
def test_a_training_that_came_to_nan(rates, tmp_path):
    losses = [1.0 - 0.01 * row for row in range(15)] + [math.nan] * 5
    report = check(table(tmp_path / "run", losses, rates))
    assert str(report.verdict) == "fail"
    assert "LOS001" in {finding.code for finding in report.findings}
