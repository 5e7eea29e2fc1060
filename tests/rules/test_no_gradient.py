"""OPT003."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.api import check

CODE = "OPT003"


def test_healthy(make, judge):
    state = make.state(*(make.tensor(key, 1e-7) for key in range(6)))
    result = judge(CODE, make.evidence(optimizer=state))
    assert result.verdict == "pass"
    assert "all 6 parameters" in result.message


def test_one_dead_matrix(make, judge):
    tensors = [make.tensor(key, 0.0 if key == 3 else 1e-6, name=f"layers.{key}.weight") for key in range(6)]
    result = judge(CODE, make.evidence(optimizer=make.state(*tensors)))
    assert result.verdict == "fail"
    assert "1 of 6 parameters: layers.3.weight" in result.message
    assert result.measured["dead_tensors"] == 1


def test_all_dead(make, judge):
    tensors = [make.tensor(0, 0.0), make.tensor(1, 0.0, shape=(4,))]
    result = judge(CODE, make.evidence(optimizer=make.state(*tensors)))
    assert result.verdict == "fail"
    assert "any of the 2 parameters" in result.message
    result = judge(CODE, make.evidence(optimizer=make.state(make.tensor(0, 0.0))))
    assert "reached the 1 parameter that there is: " in result.message


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("norm.bias", (16,)),
        (None, (16,)),
        ("scale", ()),
        ("model.embed_tokens.weight", (100, 8)),
        ("transformer.wte.weight", (100, 8)),
        ("lm_head.weight", (100, 8)),
        ("embeddings.position_embeddings.weight", (100, 8)),
        ("bu.weight", (100, 1)),
        ("model.user_bias.weight", (100, 1)),
    ],
)
def test_exempt_while_others_learn(name, shape, make, judge):
    state = make.state(make.tensor(0, 1e-6), make.tensor(1, 0.0, name=name, shape=shape))
    result = judge(CODE, make.evidence(optimizer=state))
    assert result.verdict == "pass"
    assert result.measured["exempt_tensors"] == 1
    assert "1 exempt" in result.message


@pytest.mark.parametrize("name", ["layers.0.ember.weight", "remembered.weight", "head.weight", "membrane"])
def test_names_that_only_look_like_embeddings(name, make, judge):
    state = make.state(make.tensor(0, 1e-6), make.tensor(1, 0.0, name=name))
    assert judge(CODE, make.evidence(optimizer=state)).verdict == "fail"


def test_an_unnamed_embedding_of_which_few_rows_were_seen(make, judge):
    seen = make.tensor(1, 1e-9, shape=(10_000, 8), zeros=79_990)
    assert judge(CODE, make.evidence(optimizer=make.state(make.tensor(0), seen))).verdict == "pass"


def mixture(make, dead, *, named=True):
    """Eight experts of which some had no token, and a head."""
    names = [f"layers.0.experts.{index}.up.weight" for index in range(8)] + ["head.weight"]
    tensors = [
        make.tensor(key, 0.0 if key in dead else 1e-6, name=name if named else None, shape=(4, 2 + (key == 8)))
        for key, name in enumerate(names)
    ]
    shapes = {name: (4, 2 + (key == 8)) for key, name in enumerate(names)}
    return make.evidence(optimizer=make.state(*tensors), weights=make.weights(shapes))


@pytest.mark.parametrize("named", [True, False])
def test_experts_without_tokens_are_the_routers_matter(named, make, judge):
    """A few of them may well get none; that most get none is worth a warning."""
    assert judge(CODE, mixture(make, {2, 5}, named=named)).verdict == "pass"
    result = judge(CODE, mixture(make, {0, 1, 2, 3, 5}, named=named))
    assert result.verdict == "warn"
    assert "got no token: 5 parameters" in result.message
    assert "routing" in result.remedy
    if named:
        assert "5 experts (layers.0.experts.0, layers.0.experts.1" in result.message
    assert judge(CODE, mixture(make, set(), named=named)).verdict == "pass"
    assert judge(CODE, mixture(make, {2, 8}, named=named)).verdict == "fail"
    assert judge(CODE, mixture(make, set(range(9)), named=named)).verdict == "fail"


@pytest.mark.parametrize(("zeros", "verdict"), [(9989, "pass"), (9990, "fail"), (10_000, "fail")])
def test_boundary_of_the_share(zeros, verdict, make, judge):
    tensor = make.tensor(1, 1e-9, name="w", shape=(100, 100), zeros=zeros)
    assert judge(CODE, make.evidence(optimizer=make.state(make.tensor(0), tensor))).verdict == verdict


@pytest.mark.parametrize(("step", "verdict"), [(1.0, "SkippedProbe"), (49.0, "SkippedProbe"), (50.0, "fail")])
def test_boundary_of_the_steps(step, verdict, make, judge):
    """LoRA's second factor begins at 0, so that the first factor has no gradient in the first step."""
    state = make.state(make.tensor(0, 0.0, step=step), global_step=int(step))
    assert judge(CODE, make.evidence(optimizer=state)).verdict == verdict


def test_a_parameter_that_joined_late_is_left_out(make, judge):
    state = make.state(make.tensor(0, 1e-6, step=500.0), make.tensor(1, 0.0, step=3.0))
    result = judge(CODE, make.evidence(optimizer=state))
    assert (result.verdict, result.measured["tensors"]) == ("pass", 1)


def test_an_empty_parameter_is_left_out(make, judge):
    state = make.state(make.tensor(0, 1e-6), make.tensor(1, 0.0, shape=(0, 4)))
    assert judge(CODE, make.evidence(optimizer=state)).measured["tensors"] == 1


def test_nan_is_not_zero(make, judge):
    state = make.state(make.tensor(0, 1e-6), make.tensor(1, nonfinite=4, zeros=12))
    assert judge("OPT019", make.evidence(optimizer=state)).verdict == "pass"


def test_without_steps_in_the_state_the_global_step_counts(make, judge):
    silent = make.tensor(0, 0.0, step=None)
    assert judge(CODE, make.evidence(optimizer=make.state(silent, global_step=1000))).verdict == "fail"
    assert judge(CODE, make.evidence(optimizer=make.state(silent, global_step=10))).verdict == "SkippedProbe"


@given(
    tensors=st.lists(
        st.tuples(st.integers(0, 100), st.sampled_from([(10, 10), (100,)]), st.floats(0, 200)), min_size=1, max_size=12
    ),
    share=st.floats(0.01, 1.0),
)
def test_against_plain_python(tensors, share, make, judge):
    built = [
        make.tensor(key, 0.0, name=f"layer{key}.weight", shape=shape, zeros=zeros, step=step)
        for key, (zeros, shape, step) in enumerate(tensors)
    ]
    result = judge(CODE, make.evidence(optimizer=make.state(*built)), zero_share=share)
    trained = [(zeros, shape) for zeros, shape, step in tensors if step >= 50]
    silent = [(zeros, shape) for zeros, shape in trained if zeros >= share * 100]
    dead = silent if len(silent) == len(trained) else [one for one in silent if len(one[1]) > 1]
    assert result.verdict == ("SkippedProbe" if not trained else "fail" if dead else "pass")
    if trained:
        assert result.measured["dead_tensors"] == len(dead)


@given(
    zeros=st.lists(st.integers(0, 16), min_size=1, max_size=10), one=st.floats(0.01, 1.0), other=st.floats(0.01, 1.0)
)
def test_a_higher_share_never_finds_more(zeros, one, other, make, judge):
    state = make.state(*(make.tensor(key, 1e-6, zeros=count) for key, count in enumerate(zeros)))
    lower, higher = sorted([one, other])
    if judge(CODE, make.evidence(optimizer=state), zero_share=lower).verdict == "pass":
        assert judge(CODE, make.evidence(optimizer=state), zero_share=higher).verdict == "pass"


def sgd(make, *zeros, steps=200):
    """The state of SGD with momentum, which counts no steps; ``zeros``: whose buffers are 0."""
    tensors = [make.tensor(key, None, step=None, first=make.moment(0.0 if key in zeros else 1e-4)) for key in range(6)]
    losses = make.series([1.0] * 20, steps=range(0, steps, steps // 20))
    return make.evidence(losses, optimizer=make.state(*tensors, global_step=None))


def test_a_momentum_of_zero_says_the_same(make, judge):
    assert judge(CODE, sgd(make)).verdict == "pass"
    result = judge(CODE, sgd(make, 3))
    assert (result.verdict, result.measured["dead_tensors"]) == ("fail", 1)
    assert "for a thousand steps or ever since the start" in result.message
    assert judge(CODE, sgd(make, 3, steps=40)).verdict == "SkippedProbe", "too few steps"


def test_an_empty_state_has_no_moments_to_judge(make, judge):
    state = make.state(global_step=None, groups=({"lr": 0.1, "betas": (0.9, 0.999)},))
    assert judge(CODE, make.evidence(make.series([1.0] * 100), optimizer=state)).verdict == "SkippedProbe"


# Gradients that stopped


def adam_after(silent_steps, *, b1=0.9, b2=0.999, steps=1000, seed=0):
    """Mean of m squared over v of Adam under noise, and then under nothing, step by step."""
    rng = np.random.default_rng(seed)
    first, second = np.zeros(16), np.zeros(16)
    for step in range(steps):
        gradient = rng.standard_normal(16) if step < steps - silent_steps else np.zeros(16)
        first, second = b1 * first + (1 - b1) * gradient, b2 * second + (1 - b2) * gradient**2
    return float(np.mean(first**2 / second))


def state_with(make, ratio, *, name="blocks.1.weight", shape=(4, 4), count=1, **more):
    tensors = [
        make.tensor(0, name="blocks.0.weight", first=make.moment(1e-4), moment_ratio=0.05),
        *(
            make.tensor(key + 1, name=name, shape=shape, first=make.moment(1e-9), moment_ratio=ratio)
            for key in range(count)
        ),
    ]
    return make.evidence(optimizer=make.state(*tensors, groups=({"betas": (0.9, 0.999)},), **more))


@pytest.mark.parametrize(("silent", "verdict"), [(0, "pass"), (40, "pass"), (120, "warn"), (600, "warn")])
def test_gradients_that_stopped(silent, verdict, make, judge):
    result = judge("OPT019", state_with(make, adam_after(silent)))
    assert result.verdict == verdict
    if verdict == "warn":
        assert "no longer reach 1 of 2 parameters" in result.message
        assert abs(result.measured["steps_without"] - silent) < 20


@pytest.mark.parametrize(
    "more",
    [{"name": "embed.weight"}, {"name": "layers.0.experts.3.up.weight"}, {"name": "norm.weight", "shape": (16,)}],
)
def test_what_may_wait_for_its_gradients(more, make, judge):
    assert judge("OPT019", state_with(make, adam_after(300), **more)).verdict in ("pass", "SkippedProbe")


def test_where_all_gradients_stopped_it_is_the_loss_that_tells(make, judge):
    """A hinge loss that is 0 has no gradient left."""
    tensor = make.tensor(0, name="a.weight", first=make.moment(1e-9), moment_ratio=adam_after(300))
    state = make.state(tensor, groups=({"betas": (0.9, 0.999)},))
    assert judge(CODE, make.evidence(optimizer=state)).verdict == "pass"


def test_what_was_learnt_to_the_last_digit_has_hardly_a_gradient_left(make, judge):
    """All matrices are alike then, whatever the vectors say."""
    small = adam_after(120)
    tensors = [make.tensor(key, name=f"{key}.weight", first=make.moment(1e-9), moment_ratio=small) for key in range(2)]
    bias = make.tensor(2, name="0.bias", shape=(4,), first=make.moment(1e-4), moment_ratio=0.05)
    state = make.state(*tensors, bias, groups=({"betas": (0.9, 0.999)},))
    assert judge(CODE, make.evidence(optimizer=state)).verdict == "pass"


def left_by_sgd(folder, *, cut_off=(), decay=5e-4, still=False, falls=600, rate=1e-2, **settings):
    """What a training with SGD leaves. ``cut_off``: layers that no gradient reaches; ``still``: none reaches any; ``falls``: the
    steps in which the loss that is logged would come down to 0.
    """
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16), torch.nn.Linear(16, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, weight_decay=decay, **settings)
    for _ in range(300):
        x = torch.randn(16, 8)
        optimizer.zero_grad()
        (model(x)[:, 0] - x.sum(1)).square().mean().backward()
        for layer in range(4) if still else cut_off:
            for parameter in model[layer].parameters():
                parameter.grad.zero_()
        optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "last.pt")
    rows = [json.dumps({"step": step, "loss": 8.0 * max(0.0, 1 - step / falls)}) for step in range(300)]
    (folder / "metrics.jsonl").write_text("\n".join(rows))
    return next(one for one in check(folder).results if one.code == CODE)


@pytest.mark.parametrize(
    "settings",
    [
        {"momentum": 0.9},
        {"momentum": 0.8, "nesterov": True},
        {"momentum": 0.9, "dampening": 0.5},
        {"momentum": 0.9, "decay": 0.01, "rate": 0.05},  # by which the weights shrink while it piles up
        {"momentum": 0.5, "decay": 0.05, "rate": 0.05},
    ],
)
def test_a_momentum_that_is_nothing_but_weight_decay(settings, tmp_path):
    result = left_by_sgd(tmp_path, cut_off=[2], **settings)
    assert (result.verdict, result.measured["dead_tensors"]) == ("fail", 1)
    assert "2.weight" in result.message


@pytest.mark.parametrize("decay", [5e-4, 0.1])
def test_a_momentum_of_gradients_and_weight_decay(decay, tmp_path):
    assert left_by_sgd(tmp_path, decay=decay, momentum=0.9).verdict == "pass"


@pytest.mark.parametrize(("falls", "verdict"), [(250, "pass"), (600, "fail")])
def test_nothing_but_decay_everywhere(falls, verdict, tmp_path):
    """A loss that has come down to 0 has no gradient left; one that has not, is out of reach of the weights."""
    assert left_by_sgd(tmp_path, still=True, falls=falls, momentum=0.9).verdict == verdict


class LastOutput(torch.nn.Module):
    def __init__(self, kind, *, bidirectional, final):
        super().__init__()
        self.rnn = kind(6, 12, batch_first=True, bidirectional=bidirectional)
        self.head, self.final = torch.nn.Linear(12 * (1 + bidirectional), 3), final

    def forward(self, x):
        outputs, states = self.rnn(x)
        states = states[0] if isinstance(states, tuple) else states
        return self.head(torch.cat(list(states), 1) if self.final else outputs[:, -1])


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize(
    ("bidirectional", "final", "length", "verdict"),
    [(True, False, 5, "warn"), (True, True, 5, "pass"), (False, False, 5, "pass"), (False, False, 1, "warn")],
)
@pytest.mark.thinned(3)
def test_recurrent_layers_of_which_one_step_is_read(kind, bidirectional, final, length, verdict, tmp_path):
    torch.manual_seed(0)
    model = LastOutput(kind, bidirectional=bidirectional, final=final)
    optimizer = torch.optim.Adam(model.named_parameters(), lr=1e-3)
    for _ in range(60):
        optimizer.zero_grad()
        model(torch.randn(4, length, 6)).square().mean().backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "last.pt")
    (result,) = [one for one in check(tmp_path).results if one.code == CODE]
    assert result.verdict == verdict, result.message
    if verdict == "warn":
        assert "no gradient came through time: rnn.weight_hh_l0" in result.message
