"""How long is waited before a request is made again, on a clock of the test's own."""

from __future__ import annotations

import email.utils
from types import SimpleNamespace
from urllib.error import HTTPError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.stores.remote import backoff, http_parts
from tracker_health.stores.remote.backoff import MOST_SECONDS, pause_before, seconds_of
from tracker_health.stores.remote.http_parts import HttpParts
from tracker_health.stores.wandb import server as wandb_server


@pytest.fixture
def clock(monkeypatch):
    """``slept``: the pauses; ``left``: seconds that the call may still take, less with each pause."""
    clock = SimpleNamespace(slept=[], left=60.0)

    def sleep(seconds):
        clock.slept.append(seconds)
        clock.left -= seconds

    monkeypatch.setattr(http_parts, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(http_parts, "seconds_left", lambda: clock.left)
    return clock


@given(st.integers(0, 50))
def test_a_pause_doubles_up_to_a_limit_and_differs_by_chance(retry):
    pauses = {pause_before(retry) for _ in range(20)}
    longest = min(backoff.FIRST_SECONDS * 2**retry, MOST_SECONDS)
    assert longest / 2 <= min(pauses) < max(pauses) <= longest <= MOST_SECONDS


@given(st.integers(0, 50), st.integers(0, 10**6))
def test_what_the_server_asks_for_goes_before(retry, seconds):
    assert pause_before(retry, str(seconds)) == seconds


@pytest.mark.parametrize("said", [None, "", "soon", "nan", "inf", "1e999", "Wed, 99 Nonsense"])
def test_what_says_nothing_is_passed_over(said):
    assert seconds_of(said) is None
    assert 0 < pause_before(0, said) <= backoff.FIRST_SECONDS


def test_a_date_is_a_time_from_now(monkeypatch):
    monkeypatch.setattr(backoff, "time", SimpleNamespace(time=lambda: 1_000_000_000.0))
    assert seconds_of(email.utils.formatdate(1_000_000_030, usegmt=True)) == 30
    assert seconds_of(email.utils.formatdate(999_999_000, usegmt=True)) == 0


def parts_that_fail(*headers):
    """Parts of a file of 4 bytes on a server that answers 503 with these headers, one after the other, and then gives
    them.
    """
    coming, asked = iter(headers), []

    def ask(_):
        asked.append(1)
        if (found := next(coming, None)) is not None:
            raise HTTPError("http://host", 503, "", found, None)
        from contextlib import nullcontext

        return nullcontext(http_parts.HttpResponse(206, {"Content-Range": "bytes 0-3/4"}, [b"abcd"]))

    return HttpParts(ask, 4), asked


def test_a_part_is_asked_for_again_after_longer_pauses(clock):
    parts, asked = parts_that_fail({}, {})
    assert (parts.fetch(0, 4), len(asked)) == (b"abcd", 3)
    first, second = clock.slept
    assert 0.25 <= first <= 0.5 <= second <= 1.0


def test_a_part_is_asked_for_when_the_server_wants_it(clock):
    parts, _ = parts_that_fail({"Retry-After": "7"}, {"Retry-After": "3"})
    assert (parts.fetch(0, 4), clock.slept) == (b"abcd", [7, 3])


@pytest.mark.parametrize(
    ("headers", "tries"), [([{"Retry-After": "61"}], 1), ([{"Retry-After": "59"}, {"Retry-After": "2"}], 2)]
)
def test_nobody_waits_beyond_the_time_for_the_request(clock, headers, tries):
    parts, asked = parts_that_fail(*headers)
    with pytest.raises(HTTPError, match="503"):
        parts.fetch(0, 4)
    assert (len(asked), sum(clock.slept) < 60) == (tries, True)


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"RateLimit-Reset": "5", "Retry-After": "9"}, 5),
        (429, {"Retry-After": "9"}, 9),
        (429, {"Retry-After": "3600"}, wandb_server.MOST_PAUSE_SECONDS),
        (429, {}, 0),
        (503, {"Retry-After": "9"}, 0),
    ],
)
def test_a_server_of_wandb_that_counts_requests_is_left_alone_so_long(monkeypatch, status, headers, seconds):
    def refuse(*_, **__):
        raise HTTPError("http://host/graphql", status, "", headers, None)

    monkeypatch.setattr(wandb_server, "opener", lambda: SimpleNamespace(open=refuse))
    assert wandb_server.pause_wanted("http://host", "key") == seconds
