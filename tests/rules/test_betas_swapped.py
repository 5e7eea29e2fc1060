"""OPT011."""

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health import check

CODE = "OPT011"
ADAMS = ("adam", "amsgrad", "adam-8bit")


def evidence_of(make, *betas, kind="adam", sizes=None, losses=None):
    """One group, with one parameter, for each pair of betas; "none" stands for a group without any."""
    sizes = sizes or [16] * len(betas)
    tensors = [
        make.tensor(index, shape=(size,), first=make.moment(1e-4, count=size), group=index, kind=kind)
        for index, size in enumerate(sizes)
    ]
    groups = tuple({"lr": 1e-3} | ({} if one == "none" else {"betas": one}) for one in betas)
    return make.evidence(losses, optimizer=make.state(*tensors, groups=groups))


@pytest.mark.parametrize("kind", ADAMS)
@pytest.mark.parametrize(
    "betas",
    [(0.999, 0.9), (0.99, 0.9), (0.98, 0.9), (0.999, 0.5), (0.9999, 0.99), (0.95, 0.5), (0.999, 0), (0.99, 0.95)],
)
def test_swapped(betas, kind, make, judge):
    result = judge(CODE, evidence_of(make, betas, kind=kind))
    assert result.verdict == "warn"
    assert f"betas=({betas[0]}, {betas[1]}): " in result.message
    assert result.measured["memory_ratio"] == pytest.approx((1 - betas[1]) / (1 - betas[0]))


@pytest.mark.parametrize(
    "betas",
    [(0.9, 0.999), (0.5, 0.999), (0, 0.99), (0.9, 0.95), (0.9, 0.98), (0.9, 0.9999), (0.9, 0.9), (0.95, 0.95),
     (0.99, 0.99), (0.999, 0.999), (0.95, 0.9), (0.9, 0.8), (0.9, 0.5), (0.9, 0), (0, 0), (0.95, 0.99), (0.85, 0.99),
     (0.98, 0.92), (0.98, 0.95)],
)  # fmt: skip
def test_near_misses(betas, make, judge):
    """What is trained with: Adam's own, GANs', language models', one-cycle momentum; and what is odd and no slip."""
    assert judge(CODE, evidence_of(make, betas)).verdict == "pass"


@pytest.mark.parametrize(("ratio", "verdict"), [(4.99, "pass"), (5.0, "warn"), (5.01, "warn")])
@pytest.mark.parametrize("first", [0.95, 0.98, 0.99, 0.996])
def test_boundary_of_the_ratio(first, ratio, verdict, make, judge):
    assert judge(CODE, evidence_of(make, (first, 1.0 - ratio * (1.0 - first)))).verdict == verdict


@pytest.mark.parametrize(("first", "verdict"), [(0.949, "pass"), (0.95, "warn")])
def test_boundary_of_the_first(first, verdict, make, judge):
    assert judge(CODE, evidence_of(make, (first, 0.5))).verdict == verdict


@pytest.mark.parametrize(
    ("kind", "betas"),
    [("lion", (0.99, 0.9)), ("momentum", "none"), ("schedule-free", (0.999, 0.9)), ("adafactor", "none"),
     ("adafactor", (0.999, 0.9)), ("adamax", (0.999, 0.9)), ("rmsprop", "none"), ("", (0.999, 0.9)),
     ("adam", (0.98, 0.92, 0.99)), ("adam", (0.999, 0.9, 0.9999)), ("adam", "none")],
)  # fmt: skip
def test_other_optimizers(kind, betas, make, judge):
    """Adan and AdEMAMix have three betas, and moments with the names of Adam's."""
    assert judge(CODE, evidence_of(make, betas, kind=kind)).verdict == "SkippedProbe"


def test_one_second_moment_for_a_parameter(make, judge):
    """NovoGrad is trained with (0.95, 0.5)."""
    tensor = make.tensor(0, shape=(16,), first=make.moment(1e-4, count=16), kind="adam")
    of_all = make.moment(1e-6, count=1)
    for second, verdict in ((tensor.second_moment, "warn"), (of_all, "SkippedProbe")):
        one = make.tensor(0, None, shape=(16,), first=tensor.first_moment, kind="adam")
        object.__setattr__(one, "second_moment", second)
        state = make.state(one, groups=({"betas": (0.95, 0.5)},))
        assert judge(CODE, make.evidence(optimizer=state)).verdict == verdict


@pytest.mark.parametrize(
    "betas",
    ["none", None, "0.999", (), (0.999,), ("0.999", "0.9"), (math.nan, 0.9), (0.999, math.nan), (1.0, 0.9), (1, 0),
     (1.5, 0.9), (0.999, -0.1), (-0.999, 0.9), (math.inf, 0.9), (0.999, -math.inf), (10**400, 0.9), (True, False),
     (None, None), ((0.999, 0.9), 0.9), 0.999, {"first": 0.999}],
)  # fmt: skip
def test_betas_that_are_no_such_numbers(betas, make, judge):
    assert judge(CODE, evidence_of(make, betas)).verdict == "SkippedProbe"


def test_one_of_several_groups(make, judge):
    result = judge(CODE, evidence_of(make, (0.9, 0.999), (0.999, 0.9), (0.99, 0.9), "none", sizes=[60, 30, 10, 100]))
    assert result.verdict == "warn"
    assert result.message.startswith("betas=(0.999, 0.9), of 30 % of the values: ")
    assert judge(CODE, evidence_of(make, (0.9, 0.999), (0.9, 0.5), "none")).verdict == "pass"
    # One that remembers less is not found; the other is, though it is less far off.
    mixed = judge(CODE, evidence_of(make, (0.94, 0.0), (0.95, 0.5)))
    assert (mixed.verdict, mixed.measured["beta1"]) == ("warn", 0.95)


def test_a_parameter_of_an_unknown_group(make, judge):
    tensor = make.tensor(0, first=make.moment(1e-4), kind="adam")
    groups = ({"betas": (0.999, 0.9)}, {"betas": (0.9, 0.999)})
    assert judge(CODE, make.evidence(optimizer=make.state(tensor, groups=groups))).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence(optimizer=make.state(tensor, groups=groups[:1]))).verdict == "warn"


BETA = st.floats(0, 0.99999) | st.sampled_from([0.0, 0.5, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999])


@settings(max_examples=draws(200), deadline=None)
@given(pairs=st.lists(st.tuples(BETA, BETA), min_size=1, max_size=4))
def test_against_exact_fractions(pairs, make, judge):
    found = False
    for one, other in pairs:
        first, second = Fraction(one), Fraction(other)
        remembered = (1 / (1 - first)) / (1 / (1 - second))
        least = 2 if one >= 0.999 else 5
        assume(abs(remembered - least) > Fraction(1, 10**6) or first < Fraction(19, 20))
        found = found or (one >= 0.95 and remembered > least)
    assert judge(CODE, evidence_of(make, *pairs)).verdict == ("warn" if found else "pass")


@settings(max_examples=draws(100), deadline=None)
@given(one=BETA, other=BETA, ratio=st.floats(2, 50))
def test_what_is_found_has_no_bound_and_is_sound_the_other_way_round(one, other, ratio, make, judge):
    if judge(CODE, evidence_of(make, (one, other)), least_ratio=ratio).verdict == "warn":
        assert one**2 >= other
        assert judge(CODE, evidence_of(make, (other, one)), least_ratio=ratio).verdict == "pass"


@settings(max_examples=draws(60), deadline=None)
@given(pair=st.tuples(BETA, BETA), one=st.floats(2, 100), other=st.floats(2, 100))
def test_a_higher_ratio_never_finds_more(pair, one, other, make, judge):
    evidence, (lower, higher) = evidence_of(make, pair), sorted([one, other])
    if judge(CODE, evidence, least_ratio=lower).verdict == "pass":
        assert judge(CODE, evidence, least_ratio=higher).verdict == "pass"


def largest_step(betas, gradients):
    """The largest step of Adam at a learning rate of 1, with its moments written out as sums."""
    steps = []
    for t in range(1, len(gradients) + 1):
        first = sum((1 - betas[0]) * betas[0] ** (t - i) * gradients[i - 1] for i in range(1, t + 1))
        second = sum((1 - betas[1]) * betas[1] ** (t - i) * gradients[i - 1] ** 2 for i in range(1, t + 1))
        steps.append(abs(first / (1 - betas[0] ** t)) / math.sqrt(second / (1 - betas[1] ** t)))
    return max(steps)


def test_the_claim_that_a_step_has_no_bound():
    """Gradients that become small: the old large ones are divided by the new small ones."""
    gradients = [1.0] * 50 + [1e-6] * 200
    assert largest_step((0.9, 0.999), gradients) < 1.1
    assert largest_step((0.999, 0.9), gradients) > 1000.0


@pytest.mark.parametrize(
    ("betas", "verdict"),
    [((0.9, 0.999), "pass"), ([0.9, 0.999], "pass"), ((0.999, 0.9), "warn"), ([0.999, 0.9], "warn")],
)
@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RAdam"])
def test_a_real_optimizer(name, betas, verdict, tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 2)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=1e-3, betas=betas)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    torch.save({"optimizer": optimizer.state_dict(), "model": model.state_dict()}, tmp_path / "training_state.pt")
    assert next(one.verdict for one in check(tmp_path).results if one.code == CODE) == verdict


def test_the_momentum_of_a_real_one_cycle(tmp_path):
    """It ends where it began, at 0.95, and b2 may be 0.9 beside it."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.9))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=21)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        schedule.step()
    torch.save({"optimizer": optimizer.state_dict(), "model": model.state_dict()}, tmp_path / "training_state.pt")
    found = next(one for one in check(tmp_path).results if one.code == CODE)
    assert found.verdict == "pass"
    assert found.measured["beta1"] > 0.94
