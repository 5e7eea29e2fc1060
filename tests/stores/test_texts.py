"""Text files of any name: which of them are console logs, and that all others cost and say nothing."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tracker_health.evidence import Part, Request
from tracker_health.readers.files.random_access import LocalFile
from tracker_health.roles import RolePlan
from tracker_health.run_files.reading import opened_files, relevant_files
from tracker_health.run_files.text_logs import MOST_TEXTS, may_be_text_log
from tracker_health.stores.folder.directory import MANY_FILES, DirectoryRun

REQUEST = Request(roles=RolePlan(), parts=frozenset(Part))
LINES = [f"2025-10-13 04:01:54 - INFO - step={step}/400 loss={3 / step:.4f} lr=1.0e-03\n" for step in range(1, 401)]
LOG = "".join(LINES)
BANNER = "Module(in_features, out_features) of a very large model that is printed in full\n"
PROSE = "We trained for 10 epochs; the loss of 0.5 is that of Table 3.\nIt is known that batches of 32 do well.\n" * 300


class Watched(DirectoryRun):
    """A folder that remembers which files were asked for."""

    def __init__(self, folder):
        super().__init__(folder)
        self.whole, self.opened = [], []

    def local(self, file):
        self.whole.append(file.path)
        return super().local(file)

    def open(self, file):
        self.opened.append(file.path)
        return LocalFile(super().local(file))


def read(folder):
    run = Watched(folder)
    return run.read(REQUEST), run


def write(path, text=LOG):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def has_nothing(evidence):
    """Whether the folder seems to be empty of all that is judged, and of all that is complained of."""
    told = [one.message for one in evidence.problems]
    return not evidence.series and not evidence.notes and [one[:18] for one in told] == ["nothing to judge i"]


OF_OUTPUT = ("out.txt", "train.txt", "training.txt", "run.txt", "my_run.txt", "train-2024.txt", "logs/main.txt")
OTHERS = ("results.txt", "Experiment 7.TXT", "history.txt", "logs/a.txt", "train_logs/a.txt", "output/whatever.txt")


@pytest.mark.parametrize("name", OF_OUTPUT + OTHERS)
def test_it_is_read_as_a_log_is(name, tmp_path):
    write(tmp_path / "log" / "train.log")
    write(tmp_path / "text" / name)
    (expected, _), (found, _) = read(tmp_path / "log"), read(tmp_path / "text")
    assert [(one.name, one.role) for one in found.series] == [(one.name, one.role) for one in expected.series]
    for one, other in zip(found.series, expected.series, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
        np.testing.assert_array_equal(one.steps, other.steps)
    assert found.text_log.rows == 400
    assert found.problems == ()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("step,loss\n" + "".join(f"{step},{3 / step}\n" for step in range(1, 50)), id="a table"),
        pytest.param("".join(f'{{"step": {step}, "loss": {3 / step}}}\n' for step in range(1, 50)), id="JSON lines"),
        pytest.param("".join(f"Epoch {one}/9\nloss: {1 / one}\n" for one in range(1, 10)), id="epochs on their own"),
        pytest.param("".join(f"loss: {1 / one}\n" for one in range(1, 10)), id="without steps"),
        pytest.param(BANNER * 1500 + LOG, id="a long banner"),
        pytest.param(LOG + BANNER * 1500, id="a long end"),
        pytest.param(LOG * 1000, id="a large one"),
    ],
)
def test_the_content_counts(text, tmp_path):
    write(tmp_path / "results.txt", text)
    evidence, _ = read(tmp_path)
    assert evidence.find("train_loss") is not None
    assert evidence.problems == ()


@pytest.mark.parametrize(
    "name",
    ["README.txt", "requirements.txt", "vocab.txt", "merges.txt", "notes.txt", "run_notes.txt", "train_labels.txt",
     "LICENSE.txt", "classes.txt", "bpe_vocab.txt", "data/out.txt", "logs/old/out.txt", "out.text", "configs/run.txt"],
)  # fmt: skip
def test_what_is_something_else_by_name_or_place_is_not_opened(name, tmp_path):
    write(tmp_path / name)
    evidence, run = read(tmp_path)
    assert has_nothing(evidence)
    assert not run.whole
    assert not run.opened


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(PROSE, id="prose"),
        pytest.param(LINES[0] + LINES[1], id="two points"),
        pytest.param("the\nof\nand\n" * 3000, id="words"),
        pytest.param("".join(f"img/{one}.jpg {one % 10}\n" for one in range(3000)), id="a list of pictures"),
        pytest.param("".join(f"{one} 0.5 0.25 0.1 0.1\n" for one in range(300)), id="boxes"),
        pytest.param("lr: 0.1\nepochs: 30\nloss: 0.5\n", id="settings"),
        pytest.param(BANNER * 300 + "".join(LINES[:4]), id="four rows in much else"),
        pytest.param('{"a": [1, 2', id="half of JSON"),
        pytest.param("\0\1\2\3" * 1000, id="no text"),
    ],
)
@pytest.mark.parametrize("name", ["out.txt", "anything.txt"])
@pytest.mark.parametrize("large", [False, True])
def test_what_does_not_read_as_a_log_says_nothing(text, name, large, tmp_path):
    filler = {"": "", LINES[0] + LINES[1]: BANNER, "lr: 0.1\nepochs: 30\nloss: 0.5\n": "\n"}.get(text, text)
    write(tmp_path / name, text + filler * (2**18 // max(len(filler), 1) if large else 0))
    evidence, _ = read(tmp_path)
    assert has_nothing(evidence)


def test_a_large_one_is_looked_into_and_not_read(tmp_path):
    write(tmp_path / "corpus-a.txt", PROSE * 300)
    write(tmp_path / "train.txt", PROSE * 300)
    evidence, run = read(tmp_path)
    assert has_nothing(evidence)
    assert not run.whole
    assert set(run.opened) == {"train.txt"}  # the other says what it is


def test_other_names_count_where_nothing_else_has_a_history(tmp_path):
    write(tmp_path / "metrics.csv", "step,loss\n" + "".join(f"{step},{step / 7}\n" for step in range(1, 50)))
    write(tmp_path / "baseline.txt")
    evidence, run = read(tmp_path)
    assert [one.source for one in evidence.series] == ["metrics.csv"]
    assert run.whole == ["metrics.csv"]
    assert evidence.notes == ()


def test_the_output_beside_a_table_tells_of_the_crash(tmp_path):
    write(tmp_path / "metrics.csv", "step,loss\n" + "".join(f"{step},{3 / step}\n" for step in range(1, 401)))
    write(tmp_path / "out.txt", LOG + "Traceback (most recent call last):\nMemoryError: no room\n")
    evidence, _ = read(tmp_path)
    assert evidence.text_log.troubles
    assert [one.source for one in evidence.series if one.role == "train_loss"] == ["metrics.csv"]
    assert any("agrees with" in note for note in evidence.notes)


def test_many_of_them_are_data(tmp_path):
    for one in range(MOST_TEXTS + 1):
        write(tmp_path / f"{'abcdefghijklmnopqrstuvwxyz'[one]}.txt")
    evidence, run = read(tmp_path)
    assert has_nothing(evidence)
    assert not run.whole


def test_one_behind_very_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tracker_health.stores.folder.directory.MANY_FILES", 3)
    assert MANY_FILES > 3
    for one in range(9):
        write(tmp_path / f"{one}.png", "")
    write(tmp_path / "out.txt")
    assert read(tmp_path)[0].find("train_loss") is not None


def test_what_cannot_be_opened_is_not_told(tmp_path):
    os.mkfifo(tmp_path / "out.txt")
    (tmp_path / "run.txt").symlink_to(tmp_path / "nowhere")
    assert has_nothing(read(tmp_path)[0])


def test_a_fingerprint_hangs_on_them_and_on_nothing_else(tmp_path):
    write(tmp_path / "README.txt", "a")
    write(tmp_path / "data" / "out.txt", "a")
    run = DirectoryRun(tmp_path)
    before = run.fingerprint(REQUEST)
    write(tmp_path / "README.txt", "ab")
    write(tmp_path / "data" / "out.txt", "ab")
    assert DirectoryRun(tmp_path).fingerprint(REQUEST) == before
    write(tmp_path / "out.txt", "a")
    run = DirectoryRun(tmp_path)
    assert run.fingerprint(REQUEST) != before
    assert [file.path for file in opened_files(run)] == ["out.txt"]
    assert relevant_files(run) == ()


@pytest.mark.parametrize("path", ["", ".txt", "/", "a" * 5000 + ".txt", "-" * 5000 + ".txt", "run" * 2000, "\n.txt"])
def test_hostile_paths(path):
    assert isinstance(may_be_text_log(path), bool)
