"""An epoch under way is not done: how far a run came by what its console or its rows say of the last epoch."""

import json
import math

import pytest

from tracker_health import check

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 42, in <module>\n    main()\n'
BROKE = f"{TRACEBACK}RuntimeError: CUDA error: device-side assert triggered\n"


def loss(step, of=600):
    return 2.3 * math.exp(-3 * step / of) + 0.3 + 0.02 * math.sin(7 * step)


def steps_of(form, epochs, last, *, first=1, of=500):
    """The lines of a console that says the step of each epoch, up to a step of the last."""
    return "".join(
        form.format(epoch=epoch, epochs=first + len(epochs) - 1, step=step, of=of, loss=loss(step + of * at))
        for at, epoch in enumerate(epochs)
        for step in range(10, (last if epoch == epochs[-1] else of) + 1, 10)
    )


BRACKETS = "Epoch [{epoch}/{epochs}], Step [{step}/{of}], Loss: {loss:.4f}\n"
PLAIN = "Epoch {epoch}/3 | step {step} | loss {loss:.4f}\n"


@pytest.mark.parametrize(
    ("log", "verdict", "says"),
    [
        (steps_of(BRACKETS, [1], 100) + BROKE, "fail", "after 0.2 of 1 planned epochs"),
        (steps_of(BRACKETS, [1, 2], 100) + BROKE, "fail", "after 1.2 of 2 planned epochs"),
        (steps_of(PLAIN, [0, 1, 2], 50) + BROKE, "fail", "after 2.1 of 3 planned epochs"),
        (steps_of(BRACKETS, [1, 2], 500) + BROKE, "warn", "training finished after 2 of 2 planned epochs"),
        (steps_of(PLAIN, [0, 1, 2], 500) + BROKE, "warn", "training finished after 3 of 3 planned epochs"),
        (steps_of(BRACKETS, [1], 500), "pass", ""),
    ],
)
def test_the_console_breaks_off_in_an_epoch(tmp_path, log, verdict, says):
    (tmp_path / "train.log").write_text(log)
    report = check(tmp_path)
    assert str(report.verdict) == verdict
    assert says in report.summary


@pytest.mark.parametrize(("epochs", "planned", "verdict"), [(1, 1, "pass"), (3, 3, "pass"), (3, 5, "warn")])
def test_rows_that_name_their_epoch(tmp_path, epochs, planned, verdict):
    """Of a lone epoch with many rows nobody knows how many it is to have: that is no plan that was not done."""
    rows = [{"epoch": step // 17, "step": 10 * step, "loss": loss(10 * step)} for step in range(17 * epochs)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "config.json").write_text(json.dumps({"epochs": planned, "dropout": 0.1}))
    assert str(check(tmp_path).verdict) == verdict


def test_a_metric_that_stops_a_run_as_it_is_not_there(tmp_path):
    said = "RuntimeError: Early stopping conditioned on metric `val_loss` which is not available.\n"
    (tmp_path / "train.log").write_text("".join(f"Epoch {e}: train_loss={loss(e, 10):.4f}\n" for e in range(5)) + said)
    assert str(check(tmp_path).verdict) == "fail"


def test_a_metric_that_no_rule_asks_for_and_that_is_nan(tmp_path):
    rows = [
        {"step": step, "loss": loss(step), "grad_norm_square": 1.0 if step < 300 else math.nan, "lr_note": 0.5}
        for step in range(0, 600, 10)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    report = check(tmp_path)
    (finding,) = [one for one in report.findings if one.code == "LOS019"]
    assert "grad_norm_square is NaN or infinite from step 300 to the end" in finding.message
    assert [one.name for one in report.series if one.name == "grad_norm_square"] == []
