"""One layer that is not trained, between others that are: by order and shapes, and in real models."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tracker_health import check

# Real models


def plain():
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5)), (16, 20)


def narrowing():
    model = nn.Sequential()
    for name, layer in [
        ("fc1", nn.Linear(20, 48)),
        ("on", nn.ReLU()),
        ("fc2", nn.Linear(48, 12)),
        ("fc3", nn.Linear(12, 5)),
    ]:
        model.add_module(name, layer)
    return model, (16, 20)


def convolutions():
    model = nn.Sequential()
    model.add_module("features", nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.Flatten()))
    model.add_module("classifier", nn.Sequential(nn.Linear(32 * 16, 40), nn.ReLU(), nn.Linear(40, 5)))
    return model, (16, 1, 8, 8)


def encoder():
    model = nn.Sequential()
    layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
    model.add_module("stem", nn.Linear(8, 32))
    model.add_module("enc", nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    model.add_module("head", nn.Linear(32, 5))
    return model, (16, 6, 8)


def verdict_on(tmp_path, write_log, healthy_losses, make, left_out, *, listed, named=True, rate=None):
    """OPT004 on a real training of a dozen steps, in which the module ``left_out`` was not trained."""
    torch.manual_seed(1)
    model, shape = make()
    module = dict(model.named_modules()).get(left_out)
    frozen = {id(one) for one in module.parameters()} if module is not None else set()
    for one in model.parameters():
        one.requires_grad_(id(one) not in frozen)
    if rate is None:
        optimizer = torch.optim.Adam([one for one in model.parameters() if listed or one.requires_grad])
    else:
        for one in model.parameters():
            one.requires_grad_(True)
        of_rate = [one for one in model.parameters() if id(one) in frozen]
        others = [one for one in model.parameters() if id(one) not in frozen]
        optimizer = torch.optim.Adam([{"params": others}, {"params": of_rate, "lr": rate}])
    for _ in range(12):
        optimizer.zero_grad()
        nn.functional.cross_entropy(
            model(torch.randn(shape)).reshape(-1, 5), torch.randint(0, 5, (16 * (6 if len(shape) == 3 else 1),))
        ).backward()
        optimizer.step()
    run = write_log(healthy_losses)
    if named:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, run / "checkpoint.pt")
    else:
        save_file(model.state_dict(), run / "model.safetensors")
        torch.save(optimizer.state_dict(), run / "optimizer.pt")
    return next(one for one in check(run).results if one.code == "OPT004")


LEFT_OUT = [
    (plain, "2"), (plain, "4"), (narrowing, "fc2"), (convolutions, "features.2"),
    (convolutions, "classifier.0"), (convolutions, "classifier.2"), (encoder, "enc.layers.1.self_attn.out_proj"),
    (encoder, "enc.layers.1.linear1"), (encoder, "enc.layers.1.linear2"), (encoder, "enc.layers.0.linear1"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "left_out"), LEFT_OUT)
def test_a_layer_on_the_way_that_is_not_trained(make, left_out, tmp_path, write_log, healthy_losses):
    result = verdict_on(tmp_path, write_log, healthy_losses, make, left_out, listed=True)
    assert result.verdict in ("warn", "fail"), result.message
    assert left_out in result.message


@pytest.mark.parametrize(("make", "left_out"), [(plain, "4"), (narrowing, "fc2"), (convolutions, "features.2")])
def test_one_that_the_optimizer_was_not_given(make, left_out, tmp_path, write_log, healthy_losses):
    assert verdict_on(tmp_path, write_log, healthy_losses, make, left_out, listed=False).verdict in ("warn", "fail")


@pytest.mark.parametrize("make", [plain, narrowing, convolutions, encoder])
def test_all_are_trained(make, tmp_path, write_log, healthy_losses):
    assert verdict_on(tmp_path, write_log, healthy_losses, make, None, listed=True).verdict == "pass"


def test_a_layer_beside_the_way_may_be_unused(tmp_path, write_log, healthy_losses):
    def make():
        model, shape = narrowing()
        model.side = nn.Linear(48, 7)
        model.forward = lambda x: model.fc3(model.fc2(model.on(model.fc1(x))))
        return model, shape

    assert verdict_on(tmp_path, write_log, healthy_losses, make, "side", listed=False).verdict == "pass"


@pytest.mark.parametrize(("make", "left_out"), [
    (plain, "2"), (narrowing, "fc2"), (convolutions, "features.2"), (encoder, "enc.layers.0.linear1"),
])  # fmt: skip
def test_one_that_nothing_names(make, left_out, tmp_path, write_log, healthy_losses):
    """A file of weights that does not keep the model's order."""
    result = verdict_on(tmp_path, write_log, healthy_losses, make, left_out, listed=True, named=False)
    assert result.verdict in ("warn", "fail"), result.message


def test_a_pooler_that_nothing_names_may_be_unused(tmp_path, write_log, healthy_losses):
    def make():
        model, shape = encoder()
        wider = nn.Sequential()
        for name, layer in [*list(model.named_children())[:2], ("pooler", nn.Linear(32, 32)), ("head", model.head)]:
            wider.add_module(name, layer)
        wider.forward = lambda x: wider.head(wider.enc(wider.stem(x)))
        return wider, shape

    for named in (True, False):
        found = verdict_on(tmp_path, write_log, healthy_losses, make, "pooler", listed=True, named=named)
        assert found.verdict == "pass", found.message


@pytest.mark.parametrize(("left_out", "rate", "verdict"), [("end", 0.0, "warn"), ("end", 1e-4, "pass")])
def test_a_group_without_a_rate(left_out, rate, verdict, tmp_path, write_log, healthy_losses):
    def make():
        model, shape = narrowing()
        model.fc3 = nn.Linear(12, 40)
        model.end = nn.Linear(40, 5)
        return model, shape

    result = verdict_on(tmp_path, write_log, healthy_losses, make, left_out, listed=True, rate=rate)
    assert result.verdict == verdict, result.message
    assert ("a learning rate of 0" in result.message) == (verdict == "warn")


def test_a_trained_layer_may_be_kept_by_a_rate_of_zero(tmp_path, write_log, healthy_losses):
    def make():
        model, shape = narrowing()
        model.fc3 = nn.Linear(12, 40)
        model.end = nn.Linear(40, 5)
        model.end.weight.data.mul_(3.0)  # not as layers begin
        return model, shape

    assert verdict_on(tmp_path, write_log, healthy_losses, make, "end", listed=True, rate=0.0).verdict == "pass"
