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


@pytest.mark.parametrize("tail", ["eval", "test", "eval test"])
@pytest.mark.parametrize("mark", ["/", "_"])
def test_rows_of_other_metrics_without_a_rate(mark, tail, tmp_path):
    """As loggers fill up rows of training, of evaluations, and the last one of a test."""
    names = [f"{data}{mark}loss" for data in ("train", *tail.split())]
    rows = [(step, names[0], 1.0 / (1 + step)) for step in range(1, 41)]
    rows += [(step, f"eval{mark}loss", 1.1 / (1 + step)) for step in range(10, 41, 10)] if "eval" in tail else []
    rows += [(41, f"test{mark}loss", 0.1)] if "test" in tail else []
    lines = [",".join(["step", *names])]
    lines += [
        ",".join([str(step), *(str(loss) if one == name else "nan" for one in names)]) for step, name, loss in rows
    ]
    (tmp_path / "metrics.csv").write_text("\n".join(lines) + "\n")
    assert "LOS001" not in {finding.code for finding in check(tmp_path).findings}


@pytest.mark.parametrize("rates", [[3e-4] * 20, [3e-4] * 15 + [math.nan] * 5], ids=["with a rate", "of a rate of NaN"])
def test_a_training_that_came_to_nan(rates, tmp_path):
    losses = [1.0 - 0.01 * row for row in range(15)] + [math.nan] * 5
    report = check(table(tmp_path / "run", losses, rates))
    assert str(report.verdict) == "fail"
    assert "LOS001" in {finding.code for finding in report.findings}
