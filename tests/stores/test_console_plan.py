"""A console log that says how many epochs there are to be."""

from __future__ import annotations

import math

import pytest

import tracker_health
from tracker_health.words.verdict import Verdict


def loss(epoch):
    return 0.3 + 2.0 * math.exp(-epoch / 3.0) + 0.005 * math.sin(7.0 * epoch)


def line(epoch, planned):
    return f"Epoch {epoch}/{planned} | train_loss {loss(epoch):.4f} | val_loss {loss(epoch) + 0.1:.4f}"


def outcome(folder):
    """The verdict and the message of RUN001, ``skipped`` where it could not judge."""
    report = tracker_health.check(folder)
    judged = {result.code: (result.verdict, result.message) for result in report.results}
    skipped = {one.code: ("skipped", one.reason) for one in report.skipped}
    return (judged | skipped)["RUN001"]


STYLES = {
    "pairs": line,
    "brackets": lambda epoch, planned: "\n".join(
        f"Epoch [{epoch}/{planned}], Step [{step}/300], Loss: {loss(epoch - 1 + step / 300):.4f}"
        for step in (100, 200, 300)
    ),
    "from 0": lambda epoch, planned: f"[Epoch {epoch - 1}/{planned}] [Batch 10/90] [D loss: {loss(epoch):.4f}]",
    "keras": lambda epoch, planned: (
        f"Epoch {epoch}/{planned}\n230/230 [======] - 2s 7ms/step - loss: {loss(epoch):.4f}"
    ),
    "headings": lambda epoch, planned: (
        f"Epoch {epoch - 1}/{planned - 1}\n----------\ntrain Loss: {loss(epoch):.4f} Acc: 0.9000\n"
        f"val Loss: {loss(epoch):.4f} Acc: 0.9000\n"
    ),
    "tqdm": lambda epoch, planned: (
        f"Epoch {epoch}/{planned}: 100%|████| 230/230 [00:02<00:00, 100it/s, loss={loss(epoch):.3f}]"
    ),
    "logger": lambda epoch, planned: (
        f"2024-05-01 10:00:{epoch:02d} INFO train.py:88] Epoch {epoch:03d}/{planned:03d} loss=({loss(epoch):.4f})"
    ),
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("done", "verdict"), [(12, Verdict.WARN), (26, Verdict.WARN), (28, Verdict.PASS), (30, Verdict.PASS)]
)
def test_a_run_that_ends_before_its_last_epoch(tmp_path, style, done, verdict):
    (tmp_path / "train.log").write_text("\n".join(STYLES[style](epoch, 30) for epoch in range(1, done + 1)) + "\n")
    said, message = outcome(tmp_path)
    assert said == verdict, message
    assert f"{done} of {29 if style == 'headings' else 30} planned epochs" in message


@pytest.mark.parametrize("said", [
    "Early stopping triggered after 12 epochs",
    "Epoch 12: early stopping",
    "EarlyStopping counter: 5 out of 5",
    "Monitored metric val_loss did not improve in the last 3 records. Signaling Trainer to stop.",
    "val_loss has not improved: stopping early",
])  # fmt: skip
def test_a_word_about_early_stopping_is_heard(tmp_path, said):
    lines = [line(epoch, 50) for epoch in range(1, 13)]
    (tmp_path / "train.log").write_text("\n".join([*lines, said]) + "\n")
    for config in ("{}", '{"epochs": 40}'):
        (tmp_path / "config.json").write_text(config)
        verdict, message = outcome(tmp_path)
        assert verdict == Verdict.PASS
        assert "early stopping was on" in message


@pytest.mark.parametrize(("metric", "verdict"), [("val_acc", Verdict.WARN), ("val_loss", Verdict.PASS)])
def test_early_stopping_without_its_metric_stops_nothing(tmp_path, metric, verdict):
    """Keras says the same between two evaluations, where the metric is there now and then."""
    lines = [line(epoch, 50) for epoch in range(1, 13)]
    said = f"early_stopping.py:128: RuntimeWarning: Early stopping conditioned on metric `{metric}` which is not available. "
    (tmp_path / "train.log").write_text("\n".join([*lines, f"{said}Available metrics are: loss"]) + "\n")
    (tmp_path / "config.json").write_text('{"epochs": 40}')
    assert outcome(tmp_path)[0] == verdict


def test_a_log_of_every_tenth_epoch_may_have_gone_on_to_its_end(tmp_path):
    (tmp_path / "train.log").write_text("\n".join(line(epoch, 100) for epoch in range(0, 100, 10)) + "\n")
    assert outcome(tmp_path)[0] == Verdict.PASS


def test_a_training_that_goes_on_in_another_log_is_whole(tmp_path):
    (tmp_path / "train_1.log").write_text("\n".join(line(epoch, 50) for epoch in range(1, 31)) + "\n")
    (tmp_path / "train_2.log").write_text("\n".join(line(epoch, 50) for epoch in range(31, 51)) + "\n")
    assert outcome(tmp_path)[0] == Verdict.PASS


def test_two_plans_are_none(tmp_path):
    """Of two trainings in two logs; of two in one log the last is judged, against its own."""
    for folder, names in (("two", ("pretrain.log", "finetune.log")), ("one", ("train.log", "train.log"))):
        (tmp_path / folder).mkdir()
        for name, planned in zip(names, (50, 20), strict=True):
            with (tmp_path / folder / name).open("a") as log:
                log.writelines(line(epoch, planned) + "\n" for epoch in range(1, 13))
    assert outcome(tmp_path / "two")[0] == "skipped"
    assert outcome(tmp_path / "one")[0] == Verdict.WARN


def test_the_run_s_own_plan_counts_first(tmp_path):
    (tmp_path / "config.json").write_text('{"num_train_epochs": 12}')
    (tmp_path / "train.log").write_text("\n".join(line(epoch, 50) for epoch in range(1, 13)) + "\n")
    assert outcome(tmp_path)[0] == Verdict.PASS


def test_the_plan_in_a_banner_counts_first(tmp_path):
    rows = [f"epoch {epoch} train_loss {loss(epoch):.4f}" for epoch in range(1, 13)]
    (tmp_path / "train.log").write_text("\n".join(["epochs=30/2, batch=64, lr=0.1", *rows]) + "\n")
    assert "12 of 30 planned epochs" in outcome(tmp_path)[1]


def test_the_accuracy_behind_a_validation_loss_is_of_the_validation(tmp_path):
    rows = [f"{data} Loss: {loss(epoch):.4f} Acc: 0.{90 + epoch}" for epoch in range(5) for data in ("train", "val")]
    (tmp_path / "train.log").write_text("\n".join(rows) + "\n")
    found = {(one.role, len(one), len(set(one.steps))) for one in tracker_health.read_series(tmp_path).series}
    assert found == {(role, 5, 5) for role in ("train_loss", "val_loss", "train_accuracy", "val_accuracy")}


def test_unrelated_logs_have_no_plan(tmp_path):
    """Neither is judged, so neither says how far the run came."""
    for name, scale in (("run_1", 1.0), ("run_2", 3.0)):
        rows = [f"Epoch {epoch}/50\ntrain_loss: {scale * loss(epoch):.4f}" for epoch in range(1, 13)]
        (tmp_path / f"{name}.log").write_text("\n".join(rows) + "\n")
    report = tracker_health.check(tmp_path)
    assert "several unrelated logs" in report.summary
    assert "RUN001" not in {result.code for result in report.results}


def steps(done, total, *, every=1, form="step {step}/{total} loss={loss:.4f}"):
    rows = (form.format(step=step, total=total, loss=loss(step / 20)) for step in range(every, done + 1, every))
    return "\n".join(rows) + "\n"


FORMS = {
    "pairs": "step {step}/{total} loss={loss:.4f}",
    "brackets": "Step [{step}/{total}], Loss: {loss:.4f}",
    "iterations": "iter {step}/{total}: loss {loss:.4f}",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(("done", "verdict"), [(60, Verdict.WARN), (449, "skipped"), (450, "skipped")])
def test_a_run_that_ends_before_its_last_step(tmp_path, form, done, verdict):
    """What it counts up to may be all steps or those of an epoch: once it came there, nothing is known."""
    (tmp_path / "train.log").write_text(steps(done, 450, form=form))
    said, message = outcome(tmp_path)
    assert said == verdict, message
    assert verdict == "skipped" or "60 of 450 planned steps" in message


def test_steps_that_are_printed_now_and_then(tmp_path):
    (tmp_path / "train.log").write_text(steps(400, 450, every=50))
    assert outcome(tmp_path)[0] == "skipped"
    (tmp_path / "train.log").write_text(steps(300, 450, every=50))
    assert outcome(tmp_path)[0] == Verdict.WARN


NOT_CUT = {
    "epochs that are not named": steps(90, 90) + steps(60, 90),
    "epochs that are": steps(60, 450) + "Epoch 2\n" + steps(60, 450),
    "episodes that end before": "".join(f"Episode {n}\n" + steps(30 + n, 450) for n in range(9)),
    "the same on the line": "".join(
        steps(30, 450, form=f"Round {n} step {{step}}/{{total}} loss={{loss:.4f}}") for n in range(9)
    ),
    "no counter beside them": steps(60, 450) * 4,
    "two totals": steps(60, 450) + steps(50, 300),
    "batches": steps(60, 450, form="batch {step}/{total} loss={loss:.4f}"),
    "batches that make an update": steps(112, 448),
    "tokens": steps(60, 450, form="step {step}/{total} tokens (M) loss={loss:.4f}"),
    "validation": steps(60, 450, form="val step {step}/{total} val_loss={loss:.4f}"),
    "powers of two": "".join(f"step {2**n}/1000 loss={loss(n):.4f}\n" for n in range(10)),
    "no digits enough": steps(60, 10**19),
}
for _end in ("Converged: gradient norm below 1e-7", "Target accuracy 0.95 reached at step 60, stopping training",
             "No improvement for 20 evaluations, stopping.", "Reached max_train_time of 4h, exiting normally.",
             "Training finished, saving final model", "step 450/450 done", "Early stopping: no improvement"):  # fmt: skip
    NOT_CUT[_end] = steps(60, 450) + _end + "\n"


@pytest.mark.parametrize("text", NOT_CUT.values(), ids=NOT_CUT)
def test_no_plan_in_steps(tmp_path, text):
    (tmp_path / "train.log").write_text(text)
    assert outcome(tmp_path)[0] == "skipped"


def test_a_plan_elsewhere_counts_for_more(tmp_path):
    (tmp_path / "train.log").write_text(steps(60, 450))
    (tmp_path / "config.json").write_text('{"max_steps": 60}')
    assert outcome(tmp_path)[0] == "skipped"


@pytest.mark.parametrize(("done", "verdict"), [(77, Verdict.WARN), (219, "skipped")])
def test_steps_that_are_counted_up_to_beside_a_plan_in_epochs(tmp_path, done, verdict):
    """Of the whole training, or of the first epoch: either way it broke off."""
    lines = [f"step {step}/219: train/loss={loss(step / 8):.4f}, lr=3.00e-02" for step in range(1, done + 1, 4)]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "config.json").write_text('{"epochs": 73, "learning_rate": 0.03}')
    said, message = outcome(tmp_path)
    assert said == verdict, message


@pytest.mark.parametrize(("name", "first", "verdict"), [
    ("train_resumed.log", 4, Verdict.PASS),
    ("train-restarted.log", 4, Verdict.PASS),
    ("train_continued.log", 4, Verdict.WARN),  # a second stage, perhaps, with another loss
    ("other_resumed.log", 4, Verdict.WARN),  # of another run, as far as is known
    ("warm_restarts.log", 4, Verdict.WARN),
    ("train_resumed.log", 3, Verdict.WARN),  # not from the end on
    ("train_resumed.log", 20, Verdict.WARN),
])  # fmt: skip
def test_a_restart_that_writes_a_log_of_its_own(tmp_path, name, first, verdict):
    (tmp_path / "train.log").write_text("".join(f"epoch {at} | loss {loss(at):.4f}\n" for at in (1, 2, 3)))
    (tmp_path / name).write_text("".join(f"epoch {at} | loss {loss(at):.4f}\n" for at in range(first, first + 3)))
    (tmp_path / "config.json").write_text('{"epochs": 6}')
    said, message = outcome(tmp_path)
    points = {one.name: len(one) for one in tracker_health.read_series(tmp_path).series}
    assert points["loss"] == (6 if verdict == Verdict.PASS else 3)
    assert said == verdict or first == 20, message


def test_a_plan_that_is_none_in_a_banner_is_no_plan(tmp_path):
    """What argparse prints where nothing was given."""
    lines = ["Namespace(lr=0.001, max_steps=None, total=5)", *(line(epoch, 10) for epoch in range(1, 6))]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    assert outcome(tmp_path)[0] == Verdict.WARN
