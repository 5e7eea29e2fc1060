import math
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tracker_health.text import (
    _printable_character,
    contrast,
    count,
    ends,
    listing,
    number,
    percent,
    printable,
    setting,
    small_percent,
    went,
    without_userinfo,
)


@given(st.text(), st.integers(min_value=1, max_value=300))
def test_printable_is_one_inert_line_of_bounded_length(text, limit):
    shown = printable(text, limit)
    assert len(shown) <= limit
    assert not any(unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp", "Cs"} for character in shown)


@pytest.mark.parametrize(
    "hostile", ["\x1b[31mred\x1b[0m", "a\u202eb", "a\nb\r\tc", "\u200bhidden", "\x9b31m", "\ud800"]
)
def test_escapes_direction_marks_and_newlines_are_gone(hostile):
    assert not set(printable(hostile)) & set("\x1b\u202e\n\r\t\u200b\x9b\ud800")


def test_ordinary_text_stays():
    assert printable("train/loss — größer, 損失") == "train/loss — größer, 損失"


def test_a_long_text_ends_in_an_ellipsis():
    assert printable("x" * 1000, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.123456, "0.123"),
        (1.5e-7, "1.5e-07"),
        (12500.0, "12500"),
        (-3.0, "-3"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (1e300, "1e+300"),
    ],
)
def test_numbers(value, shown):
    assert number(value) == shown


def as_number(text):
    return float(text.removeprefix("under ").removeprefix("over ").removesuffix(" %"))


FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64, min_value=-1e30, max_value=1e30)


@given(FINITE)
def test_a_number_is_never_far_from_what_it_shows(value):
    shown = float(number(value))
    assert abs(shown - value) <= 0.005 * abs(value)
    assert not re.fullmatch(r"-0(\.0*)?", number(value))
    assert abs(float(setting(value)) - value) <= 5e-6 * abs(value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1234.5678, "1235"),
        (999.7, "1000"),
        (123456.7, "123457"),
        (-0.0, "0"),
        (2.0004, "2"),
        (0.30000000000000004, "0.3"),
    ],
)
def test_what_is_before_the_point_is_whole(value, shown):
    assert number(value) == shown


def test_a_setting_is_shown_as_it_was_written():
    assert [setting(value) for value in (0.00015, 2.5e-5, 0.123456, 12500)] == [
        "0.00015",
        "2.5e-05",
        "0.123456",
        "12500",
    ]


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.0, "0 %"), (1e-9, "under 0.1 %"), (0.00234, "0.23 %"), (0.1782, "18 %"), (0.07, "7 %"), (0.994, "99 %"),
        (0.996, "99.6 %"), (0.9996, "over 99.9 %"), (1.0, "100 %"), (1.00001, "over 100 %"), (1.5, "150 %"),
    ],
)  # fmt: skip
def test_shares(share, shown):
    assert percent(share) == shown


@given(st.floats(0.0, 1.0))
def test_only_what_is_exactly_so_is_none_or_all(share):
    assert (percent(share) == "0 %") is (share == 0.0)
    assert (percent(share) == "100 %") is (float(f"{100 * share:.12g}") == 100.0)
    assert small_percent(share) == percent(share) or share < 0.001


NEAR = st.tuples(FINITE, st.floats(-1e-3, 1e-3)).map(lambda pair: (pair[0], pair[0] * (1.0 + pair[1])))
FAR = st.tuples(st.sampled_from((1e-9, 1.0, 1000.0, 1e9)), st.floats(0.0, 1e-4)).map(lambda pair: (pair[0], sum(pair)))


@given(st.one_of(NEAR, FAR, st.tuples(FINITE, FINITE)), st.sampled_from((number, percent)))
@example((1000.0, 1000.0001), number)
@example((0.97412, 0.97413), percent)
def test_what_differs_looks_different(pair, show):
    one, other = contrast(*pair, show=show)
    if not math.isclose(*pair, rel_tol=1e-9):
        assert one != other
        assert (as_number(one) <= as_number(other)) is (pair[0] < pair[1])
    assert went(*pair, show=show).startswith("stayed at") is (one == other)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((2.3, 2.412), ("2.30", "2.41")), ((-20.4, -20.93), ("-20.4", "-20.9")), ((1, 1.05), ("1", "1.05")),
        ((5.0, 5.0001), ("5", "5.0001")), ((0.1 + 0.2, 0.3), ("0.3", "0.3")), ((0.0, 0.5), ("0", "0.5")),
        ((1e-9, 1.0001e-9), ("1e-09", "1.0001e-09")), ((float("nan"), 1.0), ("NaN", "1")),
    ],
)  # fmt: skip
def test_contrasts(values, shown):
    assert contrast(*values) == shown


def test_what_went_and_what_stayed():
    assert went(2.312, 0.5) == "went from 2.31 to 0.5"
    assert went(0.0, -0.0, "fell") == "stayed at 0"
    assert went(0.1, 0.98, "rose", show=percent) == "rose from 10 % to 98 %"


def test_an_end_beside_the_best():
    assert ends(0.5, 0.25, at_best=False) == "ends at 0.50, its best level is 0.25"
    assert ends(0.25, 0.3, at_best=True) == ends(0.25, 0.25001, at_best=False) == "ends at its best level, 0.25"


def test_counts_and_listings():
    assert count(1, "step") == "1 step"
    assert count(0, "step") == "0 steps"
    assert listing(["a", "b"]) == "a, b"
    assert listing(list("abcdefg"), 3) == "a, b, c and 4 more"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host.example:5000/a/b", "https://host.example:5000/a/b"),
        ("https://me:s3cr3t@host:5000/a", "https://host:5000/a"),
        ("https://s3cr3t@host", "https://host"),
        ("https://me:s3cr3t@[::1]:5000/a", "https://[::1]:5000/a"),
        ("https://me:s3@cr3t@host/a", "https://host/a"),
        ("https://me:s3/cr3t@host/a", "https://…"),
        ("https://me:12?s3cr3t@host/a", "https://…"),
        ("https://me:12#s3cr3t@host/a", "https://…"),
        ("https://me:12\\s3cr3t@host/a", "https://…"),
        ("https://me:s3cr3t%40host/a", "https://…"),
        ("https://s3cr3t%40host/a", "https://…"),
        ("s3cr3t@https://host/a", "…://…"),
        ("https://host/a?token=s3cr3t", "https://host/a"),
        ("https://host?token=s3cr3t#/experiments/1?t=s3cr3t", "https://host#/experiments/1"),
        ("https://host/#/experiments/1/runs/ab&t=s3cr3t", "https://host/#/experiments/1/runs/ab"),
        ("https://host/#access_token=s3cr3t", "https://host/"),
        ("https:/me:s3cr3t@host/a", "https://host/a"),
        ("mlflow:https://me:s3cr3t@host/a", "mlflow:https://host/a"),
        ("sqlite:///a/b.db", "sqlite:///a/b.db"),
        ("runs:/abc", "runs:/abc"),
        ("a/b@c?d#e", "a/b@c?d#e"),
        ("", ""),
    ],
)
def test_urls_are_shown_without_their_secrets(url, shown):
    assert without_userinfo(url) == shown


# At least six characters, so that a secret is no word of the rest by chance.
@given(*[st.text(alphabet=st.characters(codec="utf-8", exclude_characters="@/?#\\"), min_size=6)] * 3)
def test_no_user_password_or_query_is_left_of_a_url(user, password, query):
    assert without_userinfo(f"https://{user}:{password}@host/a?{query}") == "https://host/a"


@given(st.text())
def test_nothing_after_a_scheme_shows_what_stood_before_an_at_sign(text):
    assert "@" not in without_userinfo(f"https://{text}@host")


@given(st.text())
def test_what_python_calls_printable_needs_no_second_look(text):
    assert printable(text, 500) == "".join(map(_printable_character, text))[:500]
