import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.text import _printable_character, count, listing, number, printable, without_userinfo


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
