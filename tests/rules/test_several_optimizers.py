"""OPT004 where a checkpoint has more than one optimizer, a front that nobody listed, or names that no model has."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tracker_health.api import check
from tracker_health.words.layers import are_names


def judged(folder, model, optimizers):
    states = {key: one.state_dict() for key, one in optimizers.items()}
    torch.save({"model": model.state_dict(), "epoch": 3} | states, folder / "last.pt")
    report = check(folder)
    assert report.verdict != "error", report.summary
    return next((one for one in report.results if one.code == "OPT004"), SimpleNamespace(verdict="skip", message=""))


def chain(*widths):
    return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths)))


def given(module, *, named):
    return list(module.named_parameters()) if named else list(module.parameters())


def adversaries(folder, *, named, detach):
    """A generator and a discriminator, each with an optimizer of its own."""
    torch.manual_seed(0)
    maker, critic = chain(8, 32, 32), chain(32, 32, 1)
    optimizers = {
        "optimizer_G": torch.optim.Adam(given(maker, named=named)),
        "optimizer_D": torch.optim.Adam(given(critic, named=named)),
    }
    for _ in range(8):
        for key, aim in (("optimizer_D", -1), ("optimizer_G", 1)):
            made = maker(torch.randn(4, 8))
            optimizers[key].zero_grad()
            (aim * critic(made.detach() if detach or aim < 0 else made)).mean().backward()
            optimizers[key].step()
    return judged(folder, nn.ModuleDict({"G": maker, "D": critic}), optimizers)


@pytest.mark.parametrize("named", [True, False])
def test_an_optimizer_beside_others_that_never_made_an_update(named, tmp_path):
    assert adversaries(tmp_path, named=named, detach=False).verdict == "pass"
    result = adversaries(tmp_path, named=named, detach=True)
    assert result.verdict == "warn"
    assert "none of 4 parameters of optimizer_G has any state after 8 steps" in result.message


@pytest.mark.parametrize("named", [True, False])
def test_the_head_in_an_optimizer_of_its_own_that_is_never_stepped(named, tmp_path):
    torch.manual_seed(0)
    body, head = chain(20, 32, 32), nn.Linear(32, 16)
    model = nn.ModuleDict({"body": body, "head": head})
    both = given(model, named=named)
    optimizers = {"optimizer": torch.optim.Adam(both[:4]), "optimizer_head": torch.optim.Adam(both[4:])}
    for _ in range(8):
        head(body(torch.randn(4, 20))).square().mean().backward()
        optimizers["optimizer"].step()
    assert "of optimizer_head" in judged(tmp_path, model, optimizers).message


def split_by_shape(folder, *, detach):
    """Matrices and vectors of one model in an optimizer each."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"blocks": nn.ModuleList(chain(16, 16, 16) for _ in range(3)), "head": nn.Linear(16, 4)})
    parameters = list(model.named_parameters())
    optimizers = {
        "optimizer_matrices": torch.optim.Adam([(name, one) for name, one in parameters if one.dim() > 1]),
        "optimizer_vectors": torch.optim.Adam([(name, one) for name, one in parameters if one.dim() == 1]),
    }
    for _ in range(8):
        x = torch.randn(4, 16)
        for index, block in enumerate(model["blocks"]):
            x = x + block[1](block[0](x).detach() if detach and index == 1 else block[0](x))
        model["head"](x).square().mean().backward()
        for one in optimizers.values():
            one.step()
    return judged(folder, model, optimizers)


def test_several_optimizers_of_one_model_are_one_model(tmp_path):
    assert split_by_shape(tmp_path, detach=False).verdict == "pass"
    result = split_by_shape(tmp_path, detach=True)
    assert result.verdict == "fail"
    assert "blocks.1.0.weight" in result.message


def trained(folder, model, parameters, kind=torch.optim.Adam):
    optimizer = kind(parameters)
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()
    return judged(folder, model, {"optimizer": optimizer})


@pytest.mark.parametrize("named", [True, False])
def test_a_random_front_that_was_never_listed(named, tmp_path):
    torch.manual_seed(0)
    model = chain(20, 32, 32, 32, 4)
    result = trained(tmp_path, model, given(model, named=named)[4:])
    assert result.verdict == "warn"
    assert "0.weight" in result.message
    with torch.no_grad():
        for one in list(model.parameters())[:4]:
            one.mul_(3.3)  # as if trained before
    assert trained(tmp_path, model, given(model, named=named)[4:]).verdict == "pass"


@pytest.mark.parametrize("told", [True, False])
def test_what_cannot_be_told_apart_is_not_named_as_if_it_could(told, tmp_path):
    """What is a uniform draw to the last value is what was not stepped; of a normal draw nothing tells."""
    torch.manual_seed(0)
    model = chain(20, 32, 32, 32, 32)
    if not told:
        for one in model.parameters():
            torch.nn.init.normal_(one, std=0.1)
    result = trained(tmp_path, model, [one for name, one in model.named_parameters() if not name.startswith("2.")])
    assert (result.verdict, "or another like it" in result.message) == ("warn", not told)
    assert ("2.weight" in result.message) is told


def test_what_adagrad_made_and_never_stepped(tmp_path):
    """It has a state for every parameter from the start."""
    torch.manual_seed(0)
    layers = chain(20, 32, 4)

    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers

        def forward(self, x):
            return self.layers[1](self.layers[0](x).detach())

    model = Cut()
    result = trained(tmp_path, model, model.parameters(), torch.optim.Adagrad)
    assert (result.verdict, "layers.0.weight" in result.message) == ("warn", True)
    assert trained(tmp_path, layers, layers.parameters(), torch.optim.Adagrad).verdict == "pass"


# Names that no model has


@pytest.mark.parametrize(
    "name",
    ["layers." + "9" * 5000 + ".weight", "_" * 20_000 + "norm.weight", "1." * 2000 + "w", "#" + "9" * 5000],
    ids=["digits", "underscores", "dots", "number"],
)
def test_names_that_no_model_has_end_in_a_skip(name, make, judge):
    state = make.state(make.tensor(0, name=name, shape=(4, 4)), stateless=(f"{name}.b",))
    result = judge("OPT004", make.evidence(optimizer=state))
    assert result.reason["reason"] == "names of parameters are longer than any model's"


def test_names_are_bounded_together():
    deep = ".".join(["a" * 10] * 40)
    assert are_names([deep])
    assert not are_names([deep] * 10_000)
    assert are_names([f"model.layers.{layer}.mlp.experts.{n}.w1.weight" for layer in range(60) for n in range(400)])


class Translator(nn.Module):
    """Encoder and decoder of the same shapes."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.GRU(16, 24, batch_first=True), nn.GRU(16, 24, batch_first=True)
        self.out = nn.Linear(24, 4)

    def forward(self, x, *, detach):
        state = self.encoder(x)[1]
        return self.out(self.decoder(x, state.detach() if detach else state)[0])


def translated(folder, *, rate=1e-3, detach=False, scale=1.0):
    """``rate``: of the encoder, which is a group of its own. ``scale``: of its weights, as if trained before."""
    torch.manual_seed(0)
    model = Translator()
    with torch.no_grad():
        for one in model.encoder.parameters():
            one.mul_(scale)
    rest = [*model.decoder.parameters(), *model.out.parameters()]
    if detach:
        optimizer = torch.optim.Adam(model.parameters())
    else:
        optimizer = torch.optim.Adam([{"params": rest}, {"params": model.encoder.parameters(), "lr": rate}])
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.randn(8, 5, 16), detach=detach).square().mean().backward()
        optimizer.step()
    save_file(model.state_dict(), folder / "model.safetensors")  # which does not keep the order
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    return next(one for one in check(folder).results if one.code == "OPT004")


@pytest.mark.parametrize("case", [{"detach": True}, {"rate": 0.0}])
def test_one_of_two_alike_that_was_never_trained(case, tmp_path):
    """Of each shape one is what such a layer begins with, to the last value, and one is not."""
    result = translated(tmp_path, **case)
    assert (result.verdict, result.measured["missing"]) == ("warn", 4), result.message
    assert translated(tmp_path, **case, scale=3.0).verdict == "pass"  # trained before, and frozen
    assert translated(tmp_path).verdict == "pass"
