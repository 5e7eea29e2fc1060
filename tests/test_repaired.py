"""Whether a run repairs another: the four answers, each with its reason and exit code."""

import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from tracker_health import api
from tracker_health.cli import cli
from tracker_health.errors import ConfigError
from tracker_health.words.repairs import Answer


def rows_of(seed, *, steps=400, breaks=None, floor=0.3, noise=0.02, val=True, last=None):
    draw = np.random.default_rng(seed)
    for step in range(last or steps):
        loss = floor + 2 * math.exp(-step / (steps / 6)) + noise * draw.normal()
        if breaks is not None and step >= breaks:
            loss = 3 + (step - breaks) / 50 + noise * draw.normal()
        row = {"step": step, "loss": loss, "grad_norm": math.exp(0.2 * draw.normal())}
        if val and step % 20 == 19:
            row["val_loss"] = loss + 0.1 + noise * draw.normal()
        yield row


def run(folder, rows, **params):
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "config.json").write_text(json.dumps({"optimizer": "adamw", "max_steps": 400, **params}))
    return str(folder)


@pytest.fixture
def diverged(tmp_path):
    return run(tmp_path / "old", rows_of(1, breaks=150), learning_rate=0.3)


def answer(old, new, **more):
    found = api.repaired(old, new, **more)
    return found.answer, found.because


def test_a_run_that_comes_down_repairs_one_that_diverged(tmp_path, diverged):
    found = api.repaired(diverged, run(tmp_path / "new", rows_of(2), learning_rate=0.001))
    assert found.answer is Answer.REPAIRED
    assert found.cause == "learning-rate-too-high"
    assert found.change == "learning_rate 0.3 -> 0.001"
    assert [one.outcome for one in found.ends] == ["better", "better"]
    assert "LOS004 diverged is gone" in found.because


def test_one_that_diverges_again_does_not(tmp_path, diverged):
    new = run(tmp_path / "new", rows_of(2, breaks=300), learning_rate=0.2)
    found, because = answer(diverged, new)
    assert found is Answer.NOT_REPAIRED
    assert "LOS004 diverged is still there" in because


def test_a_shorter_run_cannot_tell(tmp_path, diverged):
    new = run(tmp_path / "new", rows_of(2, last=100), learning_rate=0.001)
    assert answer(diverged, new) == (
        Answer.CANNOT_TELL,
        "The new run is shorter: it ends at step 99, the old one at step 399.",
    )


def test_other_data_cannot_tell(tmp_path):
    old = run(tmp_path / "old", rows_of(1, breaks=150), dataset="a")
    new = run(tmp_path / "new", rows_of(2), dataset="b")
    assert answer(old, new) == (Answer.CANNOT_TELL, "Other data or another model: dataset is a and b.")


def test_another_metric_cannot_tell(tmp_path):
    old = run(tmp_path / "old", rows_of(1, breaks=150, val=False))
    new = run(tmp_path / "new", ({"step": r["step"], "train/nll_loss": r["loss"]} for r in rows_of(2, val=False)))
    found = api.repaired(old, new)
    assert found.answer is Answer.CANNOT_TELL
    assert "train_loss: loss and train/nll_loss are two metrics" in found.not_compared


def test_nothing_was_wrong_cannot_tell(tmp_path):
    old, new = run(tmp_path / "old", rows_of(1)), run(tmp_path / "new", rows_of(2))
    assert answer(old, new) == (Answer.CANNOT_TELL, "Nothing was found in the old run: there is nothing to repair.")


def test_what_is_as_severe_and_new_is_said(tmp_path, diverged):
    new = tmp_path / "new"
    run(new, rows_of(2), learning_rate=0.001)
    (new / "train.log").write_text(
        "step 399 loss 0.31\nTraceback (most recent call last):\n  File 'train.py', line 9, in <module>\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    found = api.repaired(diverged, str(new))
    assert found.answer is Answer.SOMETHING_NEW
    assert found.added == ("RUN004 crashed",)
    assert found.because.endswith("new is RUN004 crashed.")


def test_a_run_that_no_longer_diverges_and_ends_worse_repairs_nothing(tmp_path):
    old = run(tmp_path / "old", rows_of(1, breaks=380, floor=0.3), learning_rate=0.01)
    worse = ({**row, "val_loss": 9.0} if "val_loss" in row else row for row in rows_of(2, floor=1.9))
    found, because = answer(old, run(tmp_path / "new", worse, learning_rate=1e-7))
    assert found is Answer.NOT_REPAIRED
    assert "val_loss ends worse" in because


def test_the_scatter_of_seeds_is_the_noise_where_they_are_given(tmp_path):
    """A gain of 0.25 is clear of one run's own scatter, and is not of seeds that end 0.1 to 0.7."""
    old = run(tmp_path / "old", ({**r, "grad_norm": 1e9 if r["step"] > 300 else 1} for r in rows_of(1, floor=0.6)))
    new = run(tmp_path / "new", rows_of(2, floor=0.35))
    seeds = [run(tmp_path / f"seed-{at}", rows_of(3 + at, floor=end)) for at, end in enumerate((0.1, 0.7))]
    assert {one.outcome for one in api.repaired(old, new).ends} == {"better"}
    assert {one.outcome for one in api.repaired(old, new, seeds=seeds).ends} == {"as before"}


def test_a_longer_plan_is_compared_at_the_same_share(tmp_path):
    old = run(tmp_path / "old", rows_of(1, steps=200, breaks=80), max_steps=200)
    new = run(tmp_path / "new", rows_of(2, steps=800), max_steps=800)
    found = api.repaired(old, new)
    assert found.answer is Answer.REPAIRED
    assert "of the plan" in found.ends[0].place


def test_where_nothing_is_known_to_differ_that_is_said(tmp_path):
    old = run(tmp_path / "old", rows_of(1, breaks=150), seed=1)
    found = api.repaired(old, run(tmp_path / "new", rows_of(2), seed=2))
    assert found.answer is Answer.REPAIRED
    assert any(one.startswith("the code: no setting is known to differ") for one in found.not_compared)
    other = api.repaired(old, run(tmp_path / "other", rows_of(3), seed=2, batch_size=64))
    assert not other.not_compared


def test_a_run_that_ends_before_the_fault_cannot_tell(tmp_path):
    """Also where its plan is done: NaN at step 200 does not come in a run of 190."""
    nan = ({**row, "loss": math.nan} if row["step"] >= 200 else row for row in rows_of(1))
    old = run(tmp_path / "old", nan)
    found, because = answer(old, run(tmp_path / "new", rows_of(1, steps=190), max_steps=190))
    assert found is Answer.CANNOT_TELL
    assert because == "The new run ends at step 189, before the old one went wrong, at step 200."


@pytest.mark.parametrize("name", ["data_dir", "train_file", "dataset_path", "data_version", "n_train", "data/path"])
def test_a_param_that_says_which_samples_there_are_is_data(tmp_path, diverged, name):
    old = run(tmp_path / "a", rows_of(1, breaks=150), **{name: "one"})
    assert answer(old, run(tmp_path / "b", rows_of(2), **{name: "two"}))[0] is Answer.CANNOT_TELL


def test_a_seed_that_is_set_otherwise_is_refused(tmp_path, diverged):
    new = run(tmp_path / "new", rows_of(2), learning_rate=0.001, seed=2)
    with pytest.raises(ConfigError, match="is no other seed of"):
        api.repaired(diverged, new, seeds=[run(tmp_path / "third", rows_of(3), learning_rate=0.3, seed=3)])


def test_an_end_that_is_not_finite_has_no_level(tmp_path, diverged):
    late = ({**row, "val_loss": math.nan} if row["step"] > 390 and "val_loss" in row else row for row in rows_of(2))
    found = api.repaired(diverged, run(tmp_path / "new", late))
    assert found.ends[0].said.startswith("val_loss ends worse: not finite at step 399")


def test_the_exit_code_stays_where_nobody_reads_on(tmp_path, diverged):
    new = run(tmp_path / "new", rows_of(2, breaks=300))
    command = (
        f"{sys.executable} -m tracker_health repaired {diverged} {new} | head -c 1 > /dev/null; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_more_steps_in_shorter_epochs_are_no_shorter_run(tmp_path):
    def epochs(rows, steps):
        return ({**row, "epoch": row["step"] / steps} for row in rows)

    old = run(tmp_path / "old", epochs(rows_of(1, breaks=20, steps=40), 4), max_steps=40)
    new = run(tmp_path / "new", epochs(rows_of(2, steps=400), 50), max_steps=400)
    assert api.repaired(old, new).answer is Answer.REPAIRED


@pytest.mark.parametrize(
    ("new", "code", "word"),
    [
        ({"seed": 2}, 0, "REPAIRED"),
        ({"seed": 2, "breaks": 300}, 1, "NOT REPAIRED"),
        ({"seed": 2, "last": 100}, 4, "CANNOT TELL"),
    ],
)
def test_the_command_says_so_and_exits_with_it(tmp_path, diverged, new, code, word):
    result = CliRunner().invoke(cli, ["repaired", diverged, run(tmp_path / "new", rows_of(**new))])
    assert result.exit_code == code, result.output
    assert re.match(rf"{word}  \S*old \(fail\) -> \S*new \((pass|fail)\): ", result.output)


def test_the_document_is_strict_json(tmp_path, diverged):
    nan = ({**row, "loss": math.nan} for row in rows_of(2))
    result = CliRunner().invoke(cli, ["repaired", diverged, run(tmp_path / "new", nan), "--json"])
    document = json.loads(result.output, parse_constant=pytest.fail)
    assert document["schema"] == "tracker-health/repair/1"
    assert document["ends"][1]["new"] is None


def test_written_twice_it_changes_nothing_and_clear_takes_it_off(tmp_path, diverged):
    new = run(tmp_path / "new", rows_of(2))
    before = sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*"))
    first = CliRunner().invoke(cli, ["repaired", diverged, new, "--write"])
    assert re.search(r"written onto \S*new and \S*old\n", first.output)
    again = CliRunner().invoke(cli, ["repaired", diverged, new, "--write"])
    assert "both runs say so already" in again.output
    for one in (diverged, new):
        api.clear_annotations(one)
    assert sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*")) == before
