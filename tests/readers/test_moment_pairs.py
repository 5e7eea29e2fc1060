"""Both moments of a parameter in one pass: against numpy, and against what torch's own optimizers keep."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.errors import ReadError
from tracker_health.evidence import Evidence, RunRef
from tracker_health.readers.optimizers.optimizer_state import read_optimizer_state
from tracker_health.readers.tensors.tensor_values import TensorStatistics
from tracker_health.readers.torch_files.torch_archive import open_torch_archive
from tracker_health.rules.optimizer.stale_gradient import StaleGradient

torch = pytest.importorskip("torch")

LAW = settings(deadline=None, max_examples=draws(60))
BLOCK = 1 << 16
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
MOST_OF_ADAM = 60.0


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Threads of torch that wait for each other on a busy machine take longer than the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def moments_of(path, first, second):
    torch.save({"first": first, "second": second}, path)
    with open_torch_archive(path) as archive:
        return TensorStatistics().of_moments(archive.root["first"], archive.root["second"])


def values_of(tensor):
    """In float64, as the tensors lie in memory; the pairs are the same in any order."""
    return tensor.detach().to(torch.float64).numpy().ravel()


def naive(first, second):
    """The mean of first squared over second where second is above 0; None where there is none of it to be trusted."""
    pairs = zip(values_of(first).tolist(), values_of(second).tolist(), strict=True)
    ratios = [one / two * one for one, two in pairs if two > 0]
    impossible = sum(ratio > MOST_OF_ADAM for ratio in ratios)
    return math.fsum(ratios) / len(ratios) if ratios and impossible <= len(ratios) // 1000 else None


def check_one(found, tensor):
    values = values_of(tensor)
    assert found.count == len(values)
    assert found.zeros == int((values == 0).sum())
    assert found.nonfinite == int((~np.isfinite(values)).sum())
    assert np.array_equal([found.minimum, found.maximum], [values.min(), values.max()], equal_nan=True)
    with np.errstate(all="ignore"):
        assert found.rms == pytest.approx(float(np.sqrt((values**2).mean())), rel=1e-9, nan_ok=True)
        size = float(np.abs(values).mean())
        assert found.mean == pytest.approx(
            float(values.mean()), rel=1e-9, abs=1e-12 * (size if math.isfinite(size) else 0), nan_ok=True
        )


def check(path, first, second):
    one, two, ratio = moments_of(path, first, second)
    check_one(one, first)
    check_one(two, second)
    expected = naive(first, second)
    assert ratio == (None if expected is None else pytest.approx(expected, rel=1e-9, nan_ok=True))
    return ratio


def random_pair(size, dtype, other=None, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(size, generator=generator, dtype=torch.float64)
    second = torch.rand(size, generator=generator, dtype=torch.float64) + 0.3
    return first.to(dtype), second.to(other or dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 5])
def test_against_numpy_across_the_ends_of_blocks(size, dtype, tmp_path):
    assert check(tmp_path / "a.pt", *random_pair(size, dtype, seed=size)) is not None


@pytest.mark.parametrize("first", FLOATS, ids=str)
@pytest.mark.parametrize("second", FLOATS, ids=str)
def test_two_moments_of_different_dtypes(first, second, tmp_path):
    """Their blocks have as many values, though not as many bytes."""
    assert check(tmp_path / "a.pt", *random_pair(BLOCK + 100, first, second)) is not None


@LAW
@given(
    pairs=st.lists(
        st.tuples(
            st.floats(-2, 2, width=32), st.floats(0, 2, width=32) | st.sampled_from([0.0, -1.0, math.nan, math.inf])
        ),
        min_size=1,
        max_size=80,
    )
)
def test_any_pairs(pairs, tmp_path_factory):
    first, second = (torch.tensor([pair[index] for pair in pairs]) for index in (0, 1))
    check(tmp_path_factory.getbasetemp() / "pairs.pt", first, second)


def test_the_ratio_stays_with_its_pair(tmp_path):
    """The last block of each has another length than those before it."""
    first = torch.arange(1, 2 * BLOCK + 4, dtype=torch.float64) / BLOCK
    assert check(tmp_path / "a.pt", first, first**2) == pytest.approx(1.0, rel=1e-12)
    assert check(tmp_path / "a.pt", first, 4 * first**2) == pytest.approx(0.25, rel=1e-12)


def test_both_moments_in_one_storage(tmp_path):
    storage = torch.cat(random_pair(BLOCK + 9, torch.float32))
    check(tmp_path / "a.pt", storage[: BLOCK + 9], storage[BLOCK + 9 :])


@pytest.mark.parametrize("zeros", [1, 5, 999, 1000])
def test_values_without_a_second_moment_are_left_out(zeros, tmp_path):
    first, second = random_pair(1000, torch.float32)
    second[:zeros] = 0.0
    assert (check(tmp_path / "a.pt", first, second) is None) == (zeros == 1000)


def test_zeros_in_some_blocks_only(tmp_path):
    first, second = random_pair(3 * BLOCK, torch.float32)
    second[BLOCK : 2 * BLOCK] = 0.0
    second[-1] = 0.0
    check(tmp_path / "a.pt", first, second)


def test_a_negative_second_moment_is_left_out(tmp_path):
    assert check(tmp_path / "a.pt", torch.tensor([1.0, 1.0]), torch.tensor([-1.0, 2.0])) == 0.5


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_a_first_moment_that_is_not_finite_makes_no_number(special, tmp_path):
    first, second = random_pair(100, torch.float32)
    first[50] = special
    one, _, ratio = moments_of(tmp_path / "a.pt", first, second)
    assert one.nonfinite == 1
    assert ratio is None or not math.isfinite(ratio)


def test_a_nan_in_both_moments_is_left_out(tmp_path):
    first, second = random_pair(100, torch.float32)
    first[50], second[50] = math.nan, math.nan
    assert moments_of(tmp_path / "a.pt", first, second)[2] == pytest.approx(naive(first, second))


@pytest.mark.parametrize(("amount", "known"), [(0, True), (2, True), (3, False), (50, False)])
def test_moments_that_adam_cannot_have_made(amount, known, tmp_path):
    """As of another optimizer that uses the same names: more than a thousandth of the values."""
    first, second = random_pair(2500, torch.float64)
    second = second + 1.0
    first = first.clamp(-3, 3)
    first[:amount] = 1e3
    assert (check(tmp_path / "a.pt", first, second) is not None) == known


@pytest.mark.parametrize("size", [(0,), (0, 3)])
def test_empty_moments(size, tmp_path):
    one, two, ratio = moments_of(tmp_path / "a.pt", torch.empty(size), torch.empty(size))
    assert (one.count, two.count, ratio) == (0, 0, None)
    assert math.isnan(one.mean)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (torch.ones(6, 5), torch.ones(5, 6).T),
        (torch.ones(2, 3, 4, 5), torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)),
        (torch.ones(6, 5), torch.ones(30)),
        (torch.ones(6), torch.ones(7)),
        (torch.ones(3), torch.ones(3, 1)),
    ],
    ids=["transposed", "channels last", "flat", "another size", "another shape"],
)
def test_moments_that_are_laid_out_differently_have_no_ratio(first, second, tmp_path):
    one, two, ratio = moments_of(tmp_path / "a.pt", first, second)
    assert ratio is None
    check_one(one, first)
    check_one(two, second)


def test_both_laid_out_in_the_same_unusual_way(tmp_path):
    first, second = random_pair(120, torch.float32)
    shape = [tensor.view(2, 3, 4, 5).to(memory_format=torch.channels_last) for tensor in (first, second)]
    check(tmp_path / "a.pt", *shape)
    check(tmp_path / "b.pt", first.view(20, 6).T, second.view(20, 6).T)


def test_a_second_moment_that_is_cut_short_is_refused(tmp_path, save_archive, tensor):
    path = save_archive(tmp_path / "a.pt", {"m": tensor("0"), "v": tensor("1")}, {"0": bytes(8), "1": bytes(4)})
    with open_torch_archive(path) as archive, pytest.raises(ReadError, match="instead of"):
        TensorStatistics().of_moments(archive.root["m"], archive.root["v"])


# Against torch's own optimizers


def trained(make, *, steps=120, stale=False, named=False, widths=(40, 30, 5)):
    """A small network on noise: every gradient new, or (stale) added to all those before it."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(*widths[:2]), torch.nn.Tanh(), torch.nn.Linear(*widths[1:]))
    optimizer = make(list(model.named_parameters()) if named else list(model.parameters()))
    for _ in range(steps):
        if not stale:
            optimizer.zero_grad()
        torch.nn.functional.cross_entropy(
            model(torch.randn(8, widths[0])), torch.randint(0, widths[2], (8,))
        ).backward()
        optimizer.step()
    return model, optimizer


OPTIMIZERS = {
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, betas=(0.8, 0.95)),
    "amsgrad": lambda parameters: torch.optim.Adam(parameters, lr=1e-3, amsgrad=True),
    "NAdam": lambda parameters: torch.optim.NAdam(parameters, lr=1e-3),
    "RAdam": lambda parameters: torch.optim.RAdam(parameters, lr=1e-3),
}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_what_torch_keeps(name, named, tmp_path):
    model, optimizer = trained(OPTIMIZERS[name], named=named)
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    found = read_optimizer_state(tmp_path / "optimizer.pt", "optimizer.pt")
    kept = list(optimizer.state.values())
    assert found.stateless == ()
    for tensor, state in zip(found.tensors, kept, strict=True):
        expected = naive(state["exp_avg"], state["exp_avg_sq"])
        assert tensor.moment_ratio == (None if expected is None else pytest.approx(expected, rel=1e-9))
        assert tensor.group == 0
        assert tensor.step == 120
    assert [tensor.name for tensor in found.tensors] == [
        key if named else None for key in dict(model.named_parameters())
    ]


def judged(state):
    return StaleGradient().judge(Evidence(run=RunRef(store="directory", id="a", name="a"), optimizer=state))


@pytest.mark.parametrize(("stale", "verdict"), [(False, "pass"), (True, "fail")])
def test_the_ratio_with_both_corrections(stale, verdict, tmp_path):
    """By torch alone: m_hat and v_hat per parameter; the median of their ratios, by the size of the parameters."""
    _, optimizer = trained(OPTIMIZERS["AdamW"], stale=stale)
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    finding = judged(read_optimizer_state(tmp_path / "optimizer.pt", "optimizer.pt"))
    spread = []
    for state in optimizer.state.values():
        step = float(state["step"])
        first = state["exp_avg"].double() / (1 - 0.8**step)
        second = state["exp_avg_sq"].double() / (1 - 0.95**step)
        spread += [float((first**2 / second).mean())] * first.numel()
    assert finding.measured["signal_to_noise"] == pytest.approx(sorted(spread)[(len(spread) - 1) // 2], rel=1e-9)
    assert finding.verdict == verdict


def test_groups_and_a_parameter_that_never_got_a_gradient(tmp_path):
    """Two groups with other betas; the second of the four parameters lies behind no_grad."""
    for named in (True, False):
        parameters = {name: torch.nn.Parameter(torch.randn(4, 3)) for name in ("a", "b", "c", "d")}
        groups = [["a", "b"], ["c", "d"]]
        optimizer = torch.optim.AdamW(
            [
                {"params": [(name, parameters[name]) if named else parameters[name] for name in names], "betas": betas}
                for names, betas in zip(groups, ((0.9, 0.999), (0.5, 0.9)), strict=True)
            ]
        )
        for _ in range(6):
            for name in ("a", "c", "d"):
                parameters[name].grad = torch.randn(4, 3)
            optimizer.step()
        torch.save({"optimizer": optimizer.state_dict(), "step": 6}, tmp_path / "a.pt")
        found = read_optimizer_state(tmp_path / "a.pt", "a.pt")
        assert found.stateless == (("b",) if named else ("#1",))
        assert [tensor.id for tensor in found.tensors] == [0, 2, 3]
        assert [tensor.name for tensor in found.tensors] == (["a", "c", "d"] if named else [None] * 3)
        assert [tensor.group for tensor in found.tensors] == [0, 1, 1]
        assert [found.groups[tensor.group]["betas"] for tensor in found.tensors] == [
            (0.9, 0.999),
            (0.5, 0.9),
            (0.5, 0.9),
        ]


def test_an_optimizer_that_never_stepped(tmp_path):
    torch.save(torch.optim.AdamW([torch.nn.Parameter(torch.ones(2)) for _ in range(3)]).state_dict(), tmp_path / "a.pt")
    found = read_optimizer_state(tmp_path / "a.pt", "a.pt")
    assert (found.tensors, found.stateless) == ((), ("#0", "#1", "#2"))


def test_sgd_keeps_nothing_without_momentum(tmp_path):
    for momentum, stateless in ((0.0, 4), (0.9, 0)):
        _, optimizer = trained(
            lambda parameters, momentum=momentum: torch.optim.SGD(parameters, lr=0.1, momentum=momentum)
        )
        torch.save(optimizer.state_dict(), tmp_path / "a.pt")
        found = read_optimizer_state(tmp_path / "a.pt", "a.pt")
        assert len(found.stateless) == stateless
        assert [tensor.moment_ratio for tensor in found.tensors] == [None] * (4 - stateless)
