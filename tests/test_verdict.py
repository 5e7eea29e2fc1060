from hypothesis import given
from hypothesis import strategies as st

from tracker_health.words.verdict import Verdict, worst_verdict

verdicts = st.sampled_from(Verdict)


def test_the_one_order():
    assert [verdict.severity for verdict in Verdict] == [0, 1, 3, None, 2]
    order = sorted(Verdict, key=lambda verdict: verdict.rank)
    assert order == [Verdict.SKIP, Verdict.PASS, Verdict.WARN, Verdict.ERROR, Verdict.FAIL]


def test_the_worst_of_nothing_is_skip():
    assert worst_verdict([]) is Verdict.SKIP


@given(verdicts)
def test_skip_changes_nothing_and_fail_hides_everything(verdict):
    assert worst_verdict([verdict, Verdict.SKIP]) is verdict
    assert worst_verdict([verdict, Verdict.FAIL]) is Verdict.FAIL


@given(st.lists(verdicts), st.lists(verdicts))
def test_worst_is_a_lattice_join(left, right):
    assert (
        worst_verdict(left + right)
        is worst_verdict([worst_verdict(left), worst_verdict(right)])
        is worst_verdict(right + left)
    )
    assert worst_verdict(left + left) is worst_verdict(left)


def test_values_are_lower_case():
    assert [str(verdict) for verdict in Verdict] == ["pass", "warn", "fail", "skip", "error"]
