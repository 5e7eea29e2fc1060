"""WGT005, on trainings of torch's own layers and optimizers."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from tracker_health.api import check
from tracker_health.evidence import MomentStats, TensorHeader, Weights

CODE = "WGT005"


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.lstm(x.unflatten(1, (2, 16)))[0][:, -1])


def network():
    return nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))


def glorot():
    model = network()
    for one in model.modules():
        if isinstance(one, nn.Linear):
            nn.init.xavier_uniform_(one.weight)
            nn.init.zeros_(one.bias)
    return model


def normal():
    model = network()
    for one in model.modules():
        if isinstance(one, nn.Linear):
            nn.init.normal_(one.weight, std=0.02)
            nn.init.zeros_(one.bias)
    return model


def convolutional():
    return nn.Sequential(
        nn.Unflatten(1, (2, 4, 4)), nn.Conv2d(2, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 2), nn.Flatten(), nn.Linear(32, 3)
    )


MODELS = {"linear": network, "glorot": glorot, "normal": normal, "conv": convolutional, "lstm": Recurrent}


def trained(model, optimizer, steps=60, closure=None):
    x = torch.randn(256, 32, generator=torch.Generator().manual_seed(1))
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if closure is not None:
            closure()


def saved(folder, weights, optimizer, steps=60, losses=None):
    """``losses``: by step; else they fall."""
    losses = losses or {step: 1 / (step + 1) for step in range(steps)}
    save_file({name: one.contiguous() for name, one in weights.items()}, folder / "model.safetensors")
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    (folder / "log.jsonl").write_text("".join(f'{{"step": {step}, "loss": {loss}}}\n' for step, loss in losses.items()))
    report = check(str(folder))
    return next(one for one in (*report.results, *report.skipped) if one.code == CODE)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


OPTIMIZERS = {
    "adamw": lambda named: torch.optim.AdamW(named, lr=1e-3, weight_decay=0.0),
    "momentum": lambda named: torch.optim.SGD(named, lr=0.05, momentum=0.9),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.thinned(2)
def test_weights_that_were_trained_and_those_that_were_not(kind, optimizer, named, tmp_path):
    model = MODELS[kind]()
    initial = copy.deepcopy(model.state_dict())
    parameters = model.named_parameters() if named else model.parameters()
    stepper = OPTIMIZERS[optimizer](list(parameters))
    trained(model, stepper)
    assert saved(tmp_path, model.state_dict(), stepper).verdict == "pass"
    result = saved(tmp_path, initial, stepper)
    assert result.verdict == "fail", result.message
    assert "what layers begin with" in result.message


def test_one_layer_that_another_copy_of_is_trained(tmp_path):
    model = network()
    still = model[3].weight.detach().clone()
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=1e-3, weight_decay=0.0)
    trained(model, optimizer, closure=lambda: model[3].weight.data.copy_(still))
    result = saved(tmp_path, model.state_dict(), optimizer)
    assert (result.verdict, result.details["initial"]) == ("fail", ["3.weight"])


def test_a_group_without_a_learning_rate(tmp_path):
    model = network()
    groups = [{"params": list(model[:2].named_parameters()), "lr": 0.0}, {"params": list(model[3:].named_parameters())}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    trained(model, optimizer)
    saved(tmp_path, model.state_dict(), optimizer)
    result = next(one for one in check(tmp_path).results if one.code == "OPT004")
    assert result.verdict == "warn"
    assert "a learning rate of 0" in result.message


def test_a_group_of_trained_weights_without_a_learning_rate_is_frozen_on_purpose(tmp_path):
    model = network()
    trained(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    groups = [{"params": list(model[:2].named_parameters()), "lr": 0.0}, {"params": list(model[3:].named_parameters())}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    trained(model, optimizer)
    assert saved(tmp_path, model.state_dict(), optimizer).verdict == "pass"


def test_layers_that_are_frozen_are_not_stepped(tmp_path):
    model = network()
    model[:2].requires_grad_(False)
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=1e-3)
    trained(model, optimizer)
    assert saved(tmp_path, model.state_dict(), optimizer).verdict == "pass"


def test_steps_that_are_too_small_to_show(tmp_path):
    """A warm-up of a millionth: the values moved, and lie where they began all the same."""
    model = network()
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=1e-9, weight_decay=0.0)
    trained(model, optimizer, steps=15)
    assert saved(tmp_path, model.state_dict(), optimizer, steps=15).verdict != "fail"


@pytest.mark.parametrize("scheduled", [True, False])
def test_a_rate_that_ended_at_zero(scheduled, tmp_path):
    model = network()
    initial = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60) if scheduled else None
    trained(model, optimizer, closure=schedule.step if schedule else None)
    assert saved(tmp_path, model.state_dict(), optimizer).verdict == "pass"
    assert saved(tmp_path, initial, optimizer).verdict == "fail"


@pytest.mark.parametrize(
    ("start", "last_step", "verdict"),
    [(1.1, 60, "fail"), (0.5, 60, "pass"), (1.1, 600, "pass")],
    ids=["it fell", "it stayed", "it fell after the checkpoint"],
)
def test_a_rate_of_which_nothing_is_left_beside_a_loss_that_fell(start, last_step, verdict, tmp_path):
    """Set by hand to 0 at the end, and never logged: how far the weights went is not known, but that they did."""
    model = network()
    initial = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=1e-3)
    trained(model, optimizer)
    optimizer.param_groups[0]["lr"] = 0.0
    steps = np.linspace(1, last_step, 30).astype(int)
    losses = dict(zip(steps, np.linspace(start, 0.5, 30) + 0.01 * np.cos(np.arange(30)), strict=True))
    assert saved(tmp_path, model.state_dict(), optimizer, losses=losses).verdict == "pass"
    assert saved(tmp_path, initial, optimizer, losses=losses).verdict == verdict


@pytest.mark.parametrize(("normal", "verdict"), [("0", "fail"), ("02", "pass")])
def test_matrices_that_begin_normal_beside_others(normal, verdict, tmp_path):
    """They show nothing; of the others there must be two, and half of all."""
    sizes = ((32, 64), (64, 64), (64, 64), (64, 3))
    model = nn.Sequential(*(layer for size in sizes for layer in (nn.Linear(*size), nn.ReLU())))
    for name in normal:
        nn.init.normal_(model.get_submodule(name).weight)
    initial = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=1e-3)
    trained(model, optimizer)
    optimizer.param_groups[0]["lr"] = 0.0
    assert saved(tmp_path, model.state_dict(), optimizer).verdict == "pass"
    assert saved(tmp_path, initial, optimizer).verdict == verdict


def test_half_precision_tells_nothing(tmp_path):
    model = network()
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=1e-3)
    trained(model, optimizer)
    weights = {name: one.bfloat16() for name, one in network().state_dict().items()}
    assert saved(tmp_path, weights, optimizer) in check(str(tmp_path)).skipped


def test_a_training_in_half_precision_that_was_saved_in_single_tells_nothing(tmp_path):
    """At the edge steps are below half of the last place, and rounded away."""
    model = network().bfloat16()
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=1e-4)
    for _ in range(60):
        optimizer.zero_grad()
        model(torch.randn(64, 32).bfloat16()).square().mean().backward()
        optimizer.step()
    weights = {name: one.float() for name, one in model.state_dict().items()}
    assert saved(tmp_path, weights, optimizer) in check(str(tmp_path)).skipped


@pytest.mark.parametrize("logged", [True, False])
def test_a_warm_up_that_has_hardly_begun_moves_nothing(logged, tmp_path):
    """The schedule remembers a peak that it never came to."""
    model = network()
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=1e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 10**7)
    rates = []
    trained(model, optimizer, closure=lambda: (rates.append(schedule.get_last_lr()[0]), schedule.step()))
    assert saved(tmp_path, model.state_dict(), optimizer, losses=dict.fromkeys(range(60), 1.0)).verdict != "fail"
    if logged:
        lines = (f'{{"step": {step}, "loss": 1.0, "lr": {rate}}}\n' for step, rate in enumerate(rates))
        (tmp_path / "log.jsonl").write_text("".join(lines))
        assert "fail" not in [one.verdict for one in check(str(tmp_path)).results if one.code == CODE]


def header_of(values):
    flat = values.ravel()
    zeros, rms = int(np.count_nonzero(flat == 0)), float(np.sqrt(np.mean(flat**2)))
    stats = MomentStats(
        count=flat.size, mean=float(flat.mean()), rms=rms, minimum=float(flat.min()), maximum=float(flat.max()),
        zeros=zeros, nonfinite=0,
    )  # fmt: skip
    return TensorHeader(name="a.weight", shape=values.shape, dtype="F32", rms=rms, stats=stats)


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(20, 200),
    columns=st.integers(30, 100),
    kind=st.sampled_from([1, 3, 6, "glorot"]),
    moved=st.sampled_from([0.0, 0.05, 0.5]),
)
def test_a_uniform_draw_is_one_until_it_is_moved(seed, rows, columns, kind, moved, make, judge):
    """The bounds written out again. A draw is taken for none of its kind in one of ten thousand cases. What was moved
    may come to lie at another of the bounds.
    """
    rng = np.random.default_rng(seed)
    bounds = {"glorot": math.sqrt(6 / (rows + columns))} | {kind: math.sqrt(kind / columns) for kind in (1, 3, 6)}
    bound = bounds[kind]
    assume(not moved or all(abs((1 + moved) * bound / other - 1) > 0.03 for other in bounds.values()))
    values = rng.uniform(-bound, bound, (rows, columns)) + moved * bound * rng.choice([-1, 1], (rows, columns))
    others = {"a.weight": header_of(values), "b.weight": header_of(rng.uniform(-bound, bound, (rows, columns)))}
    headers = tuple(
        TensorHeader(name=name, shape=one.shape, dtype="F32", rms=one.rms, stats=one.stats)
        for name, one in others.items()
    )
    moment = make.moment(1e-3, count=rows * columns)
    tensors = [
        make.tensor(key, 1e-6, name=name, shape=(rows, columns), first=moment, group=0)
        for key, name in enumerate(others)
    ]
    state = make.state(*tensors, groups=({"lr": 0.01},))
    result = judge(CODE, make.evidence(optimizer=state, weights=Weights(source="m", tensors=headers)))
    assert result.measured["initial"] == (1 if moved else 2)
    assert result.verdict == "fail"


@pytest.mark.parametrize(("rate", "scale", "verdict"), [(0.0, 1.0, "warn"), (1e-3, 1.0, "pass"), (0.0, 1.5, "pass")])
def test_a_layer_without_a_rate_among_others_of_its_shape(rate, scale, verdict, tmp_path):
    """Nobody named it, and of its shape there are three: just one is what a layer begins with. ``scale``: of its
    weights, as if trained before.
    """
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(3)))
    with torch.no_grad():
        model[1].weight.mul_(scale)
    rest = [*model[0].parameters(), *model[2].parameters()]
    optimizer = torch.optim.Adam([{"params": rest}, {"params": model[1].parameters(), "lr": rate}])
    for _ in range(60):
        optimizer.zero_grad()
        model(torch.randn(8, 32)).square().mean().backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 60}, tmp_path / "last.pt")
    result = next(one for one in check(tmp_path).results if one.code == "OPT004")
    assert result.verdict == verdict, result.message
