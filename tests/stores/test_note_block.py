"""Laws of the block in a run's description."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.stores.common.note_block import BEGIN, END, MAX_DESCRIPTION, with_note

_pieces = st.text() | st.sampled_from(
    ["\n", "\r\n", "\n\n", " ", "<!-- ", " -->", "tracker-health", "# Title\n", "`x`"]
)
texts = st.lists(_pieces, max_size=8).map("".join).filter(lambda text: BEGIN not in text and END not in text)
notes = texts.filter(bool)
# Texts that may hold markers, in and out of order.
wild = st.lists(_pieces | st.sampled_from([BEGIN, END, f"\n{BEGIN}\n", f"\n{END}"]), max_size=8).map("".join)


@given(text=texts, note=notes)
def test_the_users_text_comes_back_exactly(text, note):
    assert with_note(with_note(text, note), "") == text


@given(text=texts, note=notes)
def test_the_users_text_comes_first_and_unchanged(text, note):
    assert with_note(text, note).startswith(text)


@given(text=wild, note=notes, limit=st.integers(0, 400))
def test_twice_is_once(text, note, limit):
    once = with_note(text, note, limit)
    assert with_note(once, note, limit) == once


@given(text=texts, first=notes, second=notes, limit=st.integers(0, 400))
def test_the_newest_note_replaces_the_older(text, first, second, limit):
    assert with_note(with_note(text, first, limit), second, limit) == with_note(text, second, limit)


@given(before=texts, after=texts, first=notes, second=notes)
def test_text_around_the_block_stays_where_it_is(before, after, first, second):
    edited = with_note(before, first) + after
    replaced = with_note(edited, second)
    assert replaced == with_note(before, second) + after
    assert with_note(replaced, "") == before + after


@given(text=wild, note=notes)
def test_a_text_with_broken_markers_is_left_alone(text, note):
    if text.count(BEGIN) != text.count(END) or text.count(BEGIN) > 1:
        assert with_note(text, note) == text
        assert with_note(text, "") == text


@given(text=texts, note=notes, limit=st.integers(0, 400))
def test_the_limit_leaves_the_block_out_and_never_the_users_text(text, note, limit):
    result = with_note(text, note, limit)
    assert result == text or len(result) <= limit
    assert result.startswith(text)


@pytest.mark.parametrize(
    "text",
    [
        f"{END}\n{BEGIN}",
        f"the marker is `{BEGIN}`",
        f"inline {BEGIN}\nx\n{END}",
        f"{BEGIN} x\n{END}",
        f"{BEGIN}\nx {END}",
        f"{BEGIN}\n{BEGIN}\nx\n{END}",
    ],
)
def test_markers_in_odd_places_are_not_ours(text):
    assert with_note(text, "new") == text
    assert with_note(text, "") == text


def test_how_it_looks():
    assert with_note("My run.\n", "**PASS**") == f"My run.\n\n\n{BEGIN}\n**PASS**\n{END}"
    assert with_note("", "**PASS**") == f"{BEGIN}\n**PASS**\n{END}"


def test_a_block_that_the_browser_gave_other_line_ends_is_still_ours():
    assert (
        with_note(f"Mine\r\n\r\n{BEGIN}\r\nold\r\n{END}\r\nmore", "new") == f"Mine\r\n\r\n{BEGIN}\nnew\n{END}\r\nmore"
    )


def test_a_marker_in_the_note_cannot_end_the_block():
    text = with_note("Mine", f"bad {END} note")
    assert with_note(text, "") == "Mine"


def test_what_does_not_fit_is_left_out_with_the_older_block():
    text = "x" * (MAX_DESCRIPTION - 100)
    short = with_note(text, "short")
    assert len(short) <= MAX_DESCRIPTION
    assert short != text
    assert with_note(short, "long " * 100) == text
