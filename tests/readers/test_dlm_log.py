"""The adapter trainer's step log, by the conventions of its own rule."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tracker_health.errors import ReadError
from tracker_health.readers.dlm_log import read_dlm_step_log


@pytest.fixture
def log(tmp_path):
    def read(*files):
        paths = []
        for number, lines in enumerate(files):
            path = tmp_path / f"train-{number:06d}.jsonl"
            path.write_bytes(
                b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
            )
            paths.append((path.name, path))
        return read_dlm_step_log(paths)

    return read


def step(number, loss, **beside):
    return {"type": "step", "step": number, "loss": loss, **beside}


def points(log):
    return list(zip(log.steps.tolist(), log.losses.tolist(), strict=True))


def test_steps_in_order_whatever_the_order_of_the_lines(log):
    found = log(
        [
            {"type": "banner"},
            step(3, 1.0),
            step(1, 3.0),
            step(2, 2.0),
            {"type": "eval", "step": 9, "loss": 9.0},
            {"step": 8, "loss": 8.0},
        ]
    )
    assert points(found) == [(1, 3.0), (2, 2.0), (3, 1.0)]
    assert found.files == ("train-000000.jsonl",)
    assert (found.steps.dtype, found.losses.dtype) == (np.int64, np.float64)


def test_a_later_line_and_a_later_file_win(log):
    assert points(log([step(1, 3.0), step(1, 2.5), step(2, 2.0)], [step(2, 1.0), step(3, 0.5)])) == [
        (1, 2.5),
        (2, 1.0),
        (3, 0.5),
    ]


def test_steps_and_losses_are_converted_as_int_and_float_do(log):
    assert points(log([step("12", "0.5"), step(13.7, 1), step(True, 2.0), step(14, True)])) == [
        (1, 2.0),
        (12, 0.5),
        (13, 1.0),
        (14, 1.0),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        ("x", 1.0),
        ("12.7", 1.0),
        (None, 1.0),
        (1, None),
        (1, "x"),
        ([1], 1.0),
        (1, [1.0]),
        (1, {}),
        (10**400, 1.0),
        (1, 10**400),
    ],
)
def test_what_does_not_convert_is_skipped(log, wrong):
    assert points(log([step(*wrong), step(5, 2.0), {"type": "step", "step": 6}, {"type": "step", "loss": 6}])) == [
        (5, 2.0)
    ]


def test_steps_that_are_not_finite_are_skipped(log):
    lines = [
        b'{"type": "step", "step": NaN, "loss": 1}',
        b'{"type": "step", "step": Infinity, "loss": 1}',
        step(2**63, 1.0),
        step(-(2**63) + 1, 1.0),
    ]
    assert points(log(lines)) == [(-(2**63) + 1, 1.0)]


def test_losses_that_are_not_finite_are_kept(log):
    found = log(
        [
            b'{"type": "step", "step": 1, "loss": NaN}',
            b'{"type": "step", "step": 2, "loss": -Infinity}',
            step(3, "inf"),
            step(4, "1e999"),
        ]
    )
    assert np.array_equal(found.losses, [np.nan, -np.inf, np.inf, np.inf], equal_nan=True)


def test_broken_lines_are_skipped_but_for_the_first(log):
    found = log([step(1, 2.0), b"{broken", b"", b"7", b"[]", b"null", step(2, 1.0), b'{"type": "step", "st'])
    assert points(found) == [(1, 2.0), (2, 1.0)]
    with pytest.raises(ReadError, match=r"train-000001\.jsonl: its first line"):
        log([step(1, 2.0)], [b"{broken", step(2, 1.0)])


def test_undecodable_bytes_are_an_error_wherever_they_are(log):
    with pytest.raises(ReadError, match="line 3 holds bytes that are not UTF-8"):
        log([step(1, 2.0), step(2, 1.0), b'{"type": "\xff"}'])


@pytest.mark.parametrize("first", [b"", b"7", b"{}", b"\xef\xbb\xbf{}"])
def test_first_lines_that_are_not_broken(log, first):
    assert points(log([first, step(1, 2.0)])) == [(1, 2.0)]


def test_no_steps_at_all(log):
    assert len(log([])) == 0
    assert len(log([{"type": "banner"}], [b"\n\n"])) == 0


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(OSError):
        read_dlm_step_log([("train-1.jsonl", tmp_path / "train-1.jsonl")])
