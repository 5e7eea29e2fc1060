"""OPT002."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

CODE = "OPT002"


def test_healthy(make, judge):
    tensors = [make.tensor(key, 10.0 ** -(key + 3), first=make.moment(1e-4)) for key in range(6)]
    result = judge(CODE, make.evidence(optimizer=make.state(*tensors)))
    assert result.verdict == "pass"
    assert "all 6 parameters" in result.message


@given(bad=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
def test_against_plain_python(bad, make, judge):
    tensors = [
        make.tensor(key, nonfinite=second, first=make.moment(nonfinite=first))
        for key, (first, second) in enumerate(bad)
    ]
    result = judge(CODE, make.evidence(optimizer=make.state(*tensors)))
    sick = sum(first + second > 0 for first, second in bad)
    assert result.verdict == ("fail" if sick else "pass")
    assert result.measured["nonfinite_tensors"] == sick
    assert result.measured["nonfinite_values"] == sum(first + second for first, second in bad)


def test_some_are_listed_by_name(make, judge):
    tensors = [make.tensor(key, name=f"layers.{key}.weight", nonfinite=int(key == 2)) for key in range(5)]
    result = judge(CODE, make.evidence(optimizer=make.state(*tensors)))
    assert result.verdict == "fail"
    assert "1 of 5 parameters: layers.2.weight" in result.message
    assert result.details["tensors"] == ["layers.2.weight"]


def test_all(make, judge):
    result = judge(CODE, make.evidence(optimizer=make.state(*(make.tensor(key, nonfinite=16) for key in range(8)))))
    assert "all 8 parameters: #0, #1, #2, #3, #4 and 3 more" in result.message


def test_only_the_first_moment(make, judge):
    tensor = make.tensor(0, first=make.moment(nonfinite=1))
    assert judge(CODE, make.evidence(optimizer=make.state(tensor))).verdict == "fail"


@pytest.mark.parametrize("value", [1e300, 0.0, 5e-324])
def test_extreme_but_finite(value, make, judge):
    assert judge(CODE, make.evidence(optimizer=make.state(make.tensor(0, value)))).verdict == "pass"


def test_names_cannot_forge_lines(make, judge):
    tensor = make.tensor(0, name="a\nFAKE \x1b[31m", nonfinite=1)
    message = judge(CODE, make.evidence(optimizer=make.state(tensor))).message
    assert "\x1b" not in message
    assert "\n" not in message


def test_without_second_moments_it_is_skipped(make, judge):
    assert judge(CODE, make.evidence(optimizer=make.state(make.tensor(0, None)))).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence([1.0])).verdict == "SkippedProbe"
