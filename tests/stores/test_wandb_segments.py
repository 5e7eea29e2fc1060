"""W&B's runs in several logs on this machine: which logs are one training, at which steps, and where the verdict lies."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tracker_health.api import annotate, check, clear_annotations
from tracker_health.errors import LeftAlone, RunNotFound
from tracker_health.runs.lookup import open_run
from tracker_health.stores.wandb import alive
from tracker_health.testing.stores.contract import request_for

from . import wandb_logs, wandb_runs

pytest.importorskip("wandb")

BEGAN = 1_700_000_000

RESUMED = """
import os, sys
import numpy as np
import wandb

segment, resume, counts = int(sys.argv[1]), sys.argv[2], sys.argv[3]
run = wandb.init(project="p", id="twice", resume=resume, settings=wandb.Settings(silent=True))
noise = np.random.default_rng(segment)
for at in range(segment * 150, segment * 150 + 150):
    row = {"train/loss": 2.3 * np.exp(-at / 90) + 0.1 + 0.02 * noise.normal()}
    run.log(row, **({"step": at} if counts == "steps" else {}))
run.finish(exit_code=0 if segment == 2 else 1)
"""


@pytest.fixture(autouse=True)
def _in_no_container(monkeypatch):
    monkeypatch.setattr(alive, "_sees_every_process", lambda: True)


def loss_at(step):
    return 2.3 * float(np.exp(-step / 90)) + 0.1


def write_segment(
    root,
    number,
    *,
    run_id="abc123",
    first=0,
    rows=100,
    trained=None,
    began=0,
    resume=True,
    ended=True,
    counter=None,
    project="p",
    **run,
):
    """A log of ``rows`` rows from the step ``first`` on, of a training that had come to ``trained``."""
    trained = first if trained is None else trained
    noise = random.Random(number)
    record = wandb_logs.run_record(run_id, **run)
    record.run.resume, record.run.project = resume, project
    record.run.start_time.seconds = BEGAN + began
    records = [record]
    for row in range(rows):
        values = {"loss": loss_at(trained + row) + 0.01 * noise.gauss(0, 1)}
        values |= {counter: trained + row} if counter else {}
        one = wandb_logs.history(first + row, values)
        for item in one.history.item:
            if list(item.nested_key) == ["_timestamp"]:
                item.value_json = str(BEGAN + began + 1 + row)
        records.append(one)
    records += [wandb_logs.exit_record()] if ended else []
    folder = root / "wandb" / f"offline-run-20260101_{number:06}-{run_id}"
    wandb_logs.write_log(folder / f"run-{run_id}.wandb", records)
    (folder / "files").mkdir()
    return folder


def steps_of(folder):
    """The steps at which a run has its loss, and what is said of its logs."""
    with closing(open_run(folder)) as run:
        evidence = run.read(request_for("train_loss"))
        return evidence.find("train_loss").clean().steps, run.remarks()


@pytest.mark.parametrize("resume", ["allow", "must"])
@pytest.mark.parametrize("counts", ["rows", "steps"])
def test_a_run_that_was_resumed_twice_is_one_training(tmp_path, resume, counts):
    for segment in range(3):
        command = [sys.executable, "-c", RESUMED, str(segment), resume, counts]
        subprocess.run(
            command, cwd=tmp_path, env=wandb_runs.environment(), check=False, capture_output=True, timeout=120
        )
    folders = sorted((tmp_path / "wandb").glob("offline-run-*-twice"))
    reports = [check(folder) for folder in folders]
    assert [str(one.verdict) for one in reports] == ["pass"] * 3
    assert all("resumed at steps 150 and 300: its 3 logs are judged as one" in one.notes[0] for one in reports)
    steps, _ = steps_of(folders[0])
    assert steps.tolist() == list(range(450))


def test_the_verdict_lies_with_the_last_part(tmp_path):
    folders = [
        write_segment(tmp_path, at, first=0, trained=100 * at, began=1000 * at, ended=at == 2) for at in range(3)
    ]
    for folder in folders[:2]:
        with pytest.raises(LeftAlone, match="written to its last part"):
            annotate(folder)
        assert not (folder / "files" / "health").exists()
    assert annotate(folders[2]).status == "written"
    assert annotate(folders[2]).status == "unchanged"
    later = write_segment(tmp_path, 3, first=0, trained=300, began=4000)
    assert annotate(later).status == "written"
    before = (folders[2] / "files" / "health").exists()
    assert before
    with pytest.raises(LeftAlone) as left:
        annotate(folders[2])
    assert str(left.value.hint).endswith(f"; clear {folders[2]}, which has one from before")
    assert clear_annotations(folders[2]).found, "what an earlier part was given can be taken off"
    assert annotate(later).status == "unchanged"


def test_a_folder_with_the_parts_of_one_run_holds_one_run(tmp_path):
    folders = [write_segment(tmp_path, at, first=0, trained=100 * at, began=1000 * at) for at in range(3)]
    for place in (tmp_path, tmp_path / "wandb"):
        assert len(steps_of(place)[0]) == 300
    assert annotate(tmp_path).status == "written"
    assert (folders[2] / "files" / "health").exists()
    write_segment(tmp_path, 9, run_id="def456")
    with pytest.raises(RunNotFound, match="W&B runs"):
        check(tmp_path)


def test_what_was_done_again_counts_once(tmp_path):
    write_segment(tmp_path, 0, rows=120, began=0, ended=False)
    last = write_segment(tmp_path, 1, first=80, rows=100, began=1000)
    steps, said = steps_of(last)
    assert steps.tolist() == list(range(180))
    assert "resumed at step 80" in said[0]


def test_a_counter_of_the_owners_says_what_was_done_again(tmp_path):
    write_segment(tmp_path, 0, rows=120, began=0, ended=False, counter="iteration")
    last = write_segment(tmp_path, 1, first=0, trained=80, rows=100, began=1000, counter="iteration", resume=False)
    steps, _ = steps_of(last)
    assert len(steps) == 180


def test_an_attempt_that_begins_again_is_judged_without_the_one_before(tmp_path):
    first = write_segment(tmp_path, 0, rows=120, began=0, ended=False)
    last = write_segment(tmp_path, 1, first=0, trained=0, rows=150, began=1000)
    steps, said = steps_of(last)
    assert steps.tolist() == list(range(150))
    assert "without 1 earlier attempt" in said[0]
    assert len(steps_of(first)[0]) == 120


def test_a_broken_log_beside_a_run_is_no_part_of_it(tmp_path):
    last = write_segment(tmp_path, 1, began=1000)
    other = tmp_path / "wandb" / "offline-run-20260101_000000-abc123"
    shutil.copytree(last, other)
    (other / "run-abc123.wandb").write_bytes(b"no log")
    assert len(steps_of(last)[0]) == 100


def branched(folder, run_id, step):
    """The log as that of a run that W&B's record calls forked from another one, or rewound."""
    (log,) = folder.glob("*.wandb")
    records = wandb_logs.records_in(log)
    branch = records[0].run.branch_point
    branch.run, branch.value, branch.metric = run_id, step, "_step"
    records[0].run.resume = False
    wandb_logs.write_log(log, records)


def test_a_run_that_was_rewound_is_judged_without_what_was_taken_back(tmp_path):
    write_segment(tmp_path, 0, rows=120, resume=False)
    last = write_segment(tmp_path, 1, first=61, rows=100, began=1000)
    branched(last, "abc123", 60)
    assert steps_of(last)[0].tolist() == list(range(161))


def test_a_fork_is_judged_with_what_its_parent_did_until_then(tmp_path):
    write_segment(tmp_path, 0, rows=120, resume=False)
    fork = write_segment(tmp_path, 1, run_id="def456", first=61, rows=100, began=1000)
    branched(fork, "abc123", 60)
    steps, said = steps_of(fork)
    assert steps.tolist() == list(range(161))
    assert said[0] == "it was forked from the run abc123 at step 60, judged with what it did until then"
    assert annotate(fork).status == "written"
    (parent,) = (tmp_path / "wandb").glob("*-abc123")
    assert len(steps_of(parent)[0]) == 120


def test_a_fork_whose_parent_is_elsewhere_says_so(tmp_path):
    fork = write_segment(tmp_path, 1, run_id="def456", first=61, rows=100, began=1000)
    branched(fork, "abc123", 60)
    steps, said = steps_of(fork)
    assert steps.tolist() == list(range(61, 161))
    assert "its logs are not here" in said[0]


# Joined, or not: drawn


@dataclass(frozen=True)
class Drawn:
    """Two logs: what they have in common, and how the later one lies to the earlier one."""

    same_id: bool
    same_name: bool
    same_group: bool
    same_project: bool
    place: str
    resume: bool
    goes_on: bool

    @property
    def is_joined(self) -> bool:
        """By hand: one id of one project, one after the other, and the later one says, or shows, that it goes on."""
        after = self.place in ("gap", "next")
        return self.same_id and self.same_project and after and (self.resume or self.goes_on)


def draw(seed):
    chance = random.Random(seed)
    return Drawn(
        same_id=chance.random() < 0.75,
        same_name=chance.random() < 0.5,
        same_group=chance.random() < 0.5,
        same_project=chance.random() < 0.75,
        place=chance.choice(["gap", "next", "overlap"]),
        resume=chance.random() < 0.5,
        goes_on=chance.random() < 0.5,
    )


@pytest.mark.parametrize("seed", range(40))
def test_logs_are_joined_by_id_project_time_and_a_sign(tmp_path, seed):
    drawn = draw(seed)
    began = {"gap": 50_000, "next": 101, "overlap": 40}[drawn.place]
    write_segment(tmp_path, 0, display_name="a", run_group="g", resume=False)
    last = write_segment(
        tmp_path,
        1,
        run_id="abc123" if drawn.same_id else "def456",
        display_name="a" if drawn.same_name else "b",
        run_group="g" if drawn.same_group else "h",
        project="p" if drawn.same_project else "q",
        began=began,
        first=100 if drawn.goes_on else 0,
        trained=100,
        resume=drawn.resume,
    )
    steps, said = steps_of(last)
    assert (len(steps) == 200) == drawn.is_joined, drawn
    assert bool(said and "judged as one" in said[0]) == drawn.is_joined


def test_the_draws_have_both():
    drawn = [draw(seed) for seed in range(40)]
    assert 5 <= sum(one.is_joined for one in drawn) <= 30
    assert {one.place for one in drawn if one.same_id} == {"gap", "next", "overlap"}


def test_logs_of_one_id_that_were_written_together_are_processes(tmp_path):
    folders = [write_segment(tmp_path, at, began=at) for at in range(3)]
    _, said = steps_of(folders[1])
    assert said[0] == "2 other logs of its id were written at the same time: each is judged alone"
    assert isinstance(folders[0], Path)


# Of more than two


def test_what_was_done_again_after_two_crashes_counts_once(tmp_path):
    """The last log goes back behind the beginning of the one before it."""
    for by_counter in (False, True):
        root = tmp_path / str(by_counter)
        counter = "iteration" if by_counter else None
        write_segment(root, 0, rows=100, ended=False, counter=counter)
        first = 0 if by_counter else 90
        write_segment(root, 1, first=first, trained=90, rows=5, began=1000, ended=False, counter=counter)
        first = 0 if by_counter else 50
        last = write_segment(root, 2, first=first, trained=50, rows=100, began=2000, counter=counter)
        with closing(open_run(last)) as run:
            loss = run.read(request_for("train_loss")).find("train_loss")
        assert len(loss) == 150, by_counter
        assert np.abs(loss.values - [loss_at(at) for at in range(150)]).max() < 0.1


def test_a_log_without_rows_does_not_hide_that_training_began_again(tmp_path):
    write_segment(tmp_path, 0, rows=100, ended=False)
    write_segment(tmp_path, 1, rows=0, began=1000, ended=False)
    last = write_segment(tmp_path, 2, rows=100, began=2000)
    steps, said = steps_of(last)
    assert steps.tolist() == list(range(100))
    assert said[0] == "it began again: judged without 1 earlier attempt of its id"


def test_a_log_without_rows_takes_no_step(tmp_path):
    write_segment(tmp_path, 0, rows=0, ended=False)
    write_segment(tmp_path, 1, rows=100, began=1000, ended=False)
    write_segment(tmp_path, 2, rows=0, began=2000, ended=False)
    last = write_segment(tmp_path, 3, trained=100, rows=100, began=3000)
    steps, said = steps_of(last)
    assert steps.tolist() == list(range(200))
    assert said[0] == "it was resumed at steps 0 and 100: its 4 logs are judged as one"


@pytest.mark.parametrize("counter", ["batch_idx", "tick"])
def test_a_counter_that_begins_again_with_each_epoch_does_not_tell_an_attempt(tmp_path, counter):
    folders = [
        write_segment(tmp_path, at, first=0, trained=100 * at, began=1000 * at, counter=counter) for at in range(2)
    ]
    for folder in folders:
        (log,) = folder.glob("*.wandb")
        records = wandb_logs.records_in(log)
        for one in records:
            for item in one.history.item:
                if list(item.nested_key) == [counter]:
                    item.value_json = str(int(item.value_json) % 25)
        wandb_logs.write_log(log, records)
    assert len(steps_of(folders[1])[0]) == 200


def test_damage_in_an_earlier_part_is_reported_as_in_the_last(tmp_path):
    first = write_segment(tmp_path, 0, rows=2000, ended=False)
    last = write_segment(tmp_path, 1, first=2000, rows=100, began=9000)
    (log,) = first.glob("*.wandb")
    content = bytearray(log.read_bytes())
    content[40_000:40_050] = b"x" * 50
    log.write_bytes(content)
    with closing(open_run(last)) as run:
        problems = run.read(request_for("train_loss")).problems
    assert [one.source for one in problems] == [f"{first.name}/{log.name}"]


def test_a_fork_finds_a_parent_whose_id_has_hyphens(tmp_path):
    write_segment(tmp_path, 0, run_id="my-run-1", rows=120, resume=False)
    fork = write_segment(tmp_path, 1, run_id="def456", first=61, rows=100, began=1000)
    branched(fork, "my-run-1", 60)
    assert steps_of(fork)[0].tolist() == list(range(161))
