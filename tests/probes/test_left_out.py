"""OPT004: what was left out of training by accident, and what was on purpose, in models that are really trained."""

import gzip
import json
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tracker_health.api import check
from tracker_health.evidence import MomentStats, OptimizerState, TensorHeader, TensorState, Weights
from tracker_health.probes._frozen import Sized, are_branches, looks_frozen
from tracker_health.probes._model import never_trained
from tracker_health.probes._sisters import (
    alike_embeddings,
    amid_sisters,
    lone_head,
    torn_from_their_block,
    trained_by_halves,
    without_their_matrix,
)
from tracker_health.readers.attribution import attributed

CODE = "OPT004"
DATA = Path(__file__).parent.parent / "data" / "attribution"
CHECKPOINTS = json.loads(gzip.decompress((DATA / "shapes.json.gz").read_bytes()))


# Signs by name


def sized(**shapes):
    """Tensors by name; ``__`` stands for a dot."""
    return [Sized(name.replace("__", "."), shape) for name, shape in shapes.items()]


def of_names(*names, shape=(4, 4)):
    return [Sized(name, shape) for name in names]


@pytest.mark.parametrize(
    ("missing", "trained", "found"),
    [
        ("rnn.weight_hh_l0", ["rnn.weight_ih_l0"], True),
        ("rnn.weight_ih_l0_reverse", ["rnn.weight_hh_l0_reverse"], True),
        ("cell.weight_hh", ["cell.weight_ih"], True),
        ("attn.k_proj_weight", ["attn.q_proj_weight"], True),
        ("rnn.weight_hh_l0", ["rnn.weight_ih_l1", "rnn.weight_hh_l1"], False),
        ("rnn.weight_hh_l0_reverse", ["rnn.weight_hh_l0"], False),
        ("rnn.weight_hh_l0", ["other.weight_ih_l0"], False),
        ("rnn.weight_hh_l0", ["rnn.bias_hh_l0", "fc.weight"], False),
        ("rnn.module.weight_hh_l0", ["rnn.module.weight_ih_l0", "rnn.weight_hh_l0_raw"], False),
        ("last.weight_g", ["last.weight_v"], False),
        ("pos_embed", ["cls_token"], False),
    ],
)
def test_no_module_is_frozen_by_halves(missing, trained, found):
    """A layer or a direction of a recurrent module may be; and AWD-LSTM trains a copy."""
    assert trained_by_halves(of_names(missing), of_names(*trained)) == ([missing] if found else [])


def test_the_first_parameters_of_a_model_may_end_within_a_layer():
    first, rest = ["emb.weight", "rnn.weight_ih_l0"], ["rnn.weight_hh_l0", "fc.weight"]
    assert trained_by_halves(of_names(*first), of_names(*rest)) == []
    assert trained_by_halves(of_names(*first), of_names(*rest, "pos_emb.weight")) == first[1:]
    assert trained_by_halves(of_names("emb.weight", rest[0]), of_names(*first[1:], *rest[1:])) == rest[:1]


@pytest.mark.parametrize(
    ("missing", "trained", "found"),
    [
        ("emb.2.weight", ["emb.0.weight", "emb.1.weight", "emb.3.weight"], True),
        ("emb.3.weight", ["emb.0.weight", "emb.1.weight", "emb.2.weight"], True),
        ("emb.0.weight", ["emb.1.weight", "emb.2.weight", "emb.3.weight"], False),
        ("emb.1.weight", ["emb.0.weight"], False),
        ("net.2.weight", ["net.0.weight", "net.4.weight"], True),
        ("net.4.weight", ["net.0.weight", "net.2.weight"], False),
        ("convs.1.weight", ["convs.0.weight", "convs.2.weight"], True),
        ("heads.1.weight", ["heads.0.weight", "heads.2.weight"], False),
        ("decoder.seg_layers.1.weight", ["decoder.seg_layers.0.weight", "decoder.seg_layers.2.weight"], False),
        ("net.2.weight", ["net.0.bias", "net.4.bias"], False),
        ("net.2.weight", ["net.0.weight", "net.4.weight", "net.4.lora_A.weight"], False),
    ],
)
def test_what_lies_amid_its_sisters(missing, trained, found):
    assert amid_sisters(of_names(missing), of_names(*trained)) == ([missing] if found else [])


def test_sisters_are_matrices_and_more_than_what_is_missing():
    trained = of_names("net.0.weight", "net.4.weight")
    assert amid_sisters(of_names("net.2.weight", shape=(4,)), trained) == []
    assert amid_sisters(of_names("net.2.weight", shape=None), trained) == ["net.2.weight"]
    assert amid_sisters(of_names("net.2.weight", shape=None), [*trained, *of_names("net.5.weight", shape=(4,))]) == []
    assert amid_sisters(of_names("net.1.weight", "net.2.weight", "net.3.weight"), trained) == []


@pytest.mark.parametrize(
    ("missing", "trained", "found"),
    [
        ("layer2.0.conv1.weight", ["layer2.0.conv2.weight", "layer2.1.conv1.weight"], True),
        ("layer2.1.conv1.weight", ["layer2.1.conv2.weight", "layer2.0.conv1.weight"], False),
        ("layer2.0.conv1.weight", ["layer2.1.conv1.weight", "layer2.1.conv2.weight"], False),
    ],
)
def test_what_is_torn_from_its_block(missing, trained, found):
    assert torn_from_their_block(of_names(missing), of_names(*trained)) == ([missing] if found else [])
    vectors = [one._replace(shape=(4,)) for one in of_names(*trained)]
    assert torn_from_their_block(of_names(missing), vectors) == [], "norms are often trained where all else is frozen"


def test_a_weight_whose_bias_is_trained():
    whole = sized(inp__weight=(4, 4), inp__bias=(4,), out__weight=(2, 4), out__bias=(2,))
    bias, gone = sized(hidden__bias=(4,)), sized(hidden__weight=(5, 4))
    assert without_their_matrix(gone, [*whole, *bias])
    assert not without_their_matrix(gone, whole)
    assert not without_their_matrix(sized(hidden__weight=(4,)), [*whole, *bias])
    assert not without_their_matrix(sized(hidden__weight=None), [*whole, *bias])
    biases = sized(inp__bias=(4,), hidden__bias=(4,), out__bias=(4,))
    assert not without_their_matrix(sized(inp__weight=(4, 4), hidden__weight=(5, 4)), biases), "biases alone"
    tied = [*whole, *bias, *sized(emb__weight=(5, 4))]
    assert not without_their_matrix(gone, tied), "it may be tied"


@pytest.mark.parametrize(
    ("missing", "others", "last", "found"),
    [
        (["fc.weight", "fc.bias"], ["conv1.weight"], "", True),
        (["readout.weight"], ["conv1.weight"], "readout.weight", True),
        (["readout.weight"], ["conv1.weight"], "", False),
        (["fc.weight"], ["conv1.weight", "projector.weight"], "projector.weight", False),
        (["4.weight", "4.bias"], ["0.weight", "2.weight"], "", True),
        (["2.weight"], ["0.weight", "4.weight"], "", False),
        (["value.weight"], ["body.weight", "policy_head.weight"], "value.weight", False),
        (["fc.2.weight"], ["conv1.weight", "fc.0.weight"], "fc.2.weight", True),
        (["heads.1.weight"], ["conv1.weight", "heads.0.weight"], "heads.1.weight", False),
        (["lm_head.weight"], ["wte.weight"], "lm_head.weight", False),
        (["classifier.weight"], ["conv1.weight"], "classifier.weight", True),
        (["bert.pooler.dense.weight"], ["bert.layer.0.weight"], "bert.pooler.dense.weight", False),
        (["fc.weight", "body.weight"], ["conv1.weight"], "fc.weight", False),
    ],
)
def test_a_models_one_head(missing, others, last, found):
    assert lone_head(of_names(*missing), of_names(*others), last) is found


@pytest.mark.parametrize(
    ("missing", "trained", "found"),
    [
        ("item_emb.weight", "user_emb.weight", True),
        ("item_embedding.weight", "user_embedding.weight", True),
        ("word_embeddings.weight", "position_embeddings.weight", False),
        ("word_embeddings.weight", "token_type_embeddings.weight", False),
        ("item_emb.weight", "member.weight", False),
        ("item_emb.weight", "user_embedding.weight", False),
    ],
)
def test_embeddings_of_a_kind(missing, trained, found):
    assert alike_embeddings(of_names(missing), of_names(trained)) is found


TOWER = [f"{tower}.layers.{layer}.{part}.weight" for tower in ("vision", "text") for layer in (0, 1) for part in "ab"]


@pytest.mark.parametrize(
    ("missing", "trained", "found"),
    [
        (TOWER[:4], TOWER[4:], True),
        ([*TOWER[:4], "vision_proj.weight"], TOWER[4:], False),
        (TOWER[:3], TOWER[3:], False),
        (["decoder.0.weight", "decoder.0.bias"], TOWER, False),
        (["rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_ih_l0", "rnn.bias_hh_l0"], TOWER, False),
        (["head.0.weight", "head.0.bias", "head.2.weight", "head.2.bias"], TOWER, False),
        ([f"layer3.{n}.conv.weight" for n in range(4)], [f"layer2.{n}.conv.weight" for n in range(4)], False),
        ([f"wav2vec2.{n}.conv.weight" for n in range(4)], TOWER, True),
        ([f"layers.1.mlp.{n}.weight" for n in range(4)], [f"layers.0.mlp.{n}.weight" for n in range(4)], False),
    ],
    ids=["tower", "and more", "part", "one layer", "one module", "head", "numbered", "a number", "in a list"],
)
def test_whole_branches(missing, trained, found):
    assert are_branches(of_names(*missing), of_names(*trained)) is found


def test_normalisations_by_their_names():
    convolutions = of_names(*(f"layer1.{n}.conv.weight" for n in range(6)))
    norms = [f"layer1.{n}.bn1.{part}" for n in range(3) for part in ("weight", "bias")]
    assert looks_frozen(of_names(*norms, shape=None), convolutions)
    others = [f"layer1.{n}.gate.{part}" for n in range(1, 4) for part in ("weight", "bias")]
    assert not looks_frozen(of_names(*others, shape=None), convolutions)


def test_the_time_is_linear_in_the_parameters():
    names = [f"blocks{index}.{index}.w.weight" for index in range(8000)]
    names += [f"net.{index}.weight" for index in range(16_000)]
    missing, trained = of_names(*names[1::2]), of_names(*names[::2])
    begin = time.process_time()
    for sign in (amid_sisters, torn_from_their_block, without_their_matrix, are_branches, looks_frozen):
        sign(missing, trained)
    assert time.process_time() - begin < 5.0


# Real models


def before(*modules):
    """As if they had been trained before."""
    with torch.no_grad():
        for parameter in (one for module in modules for one in module.parameters()):
            parameter.mul_(3.3)


def frozen(*modules):
    for module in modules:
        for one in module.parameters() if isinstance(module, nn.Module) else [module]:
            one.requires_grad_(False)


class Parts(nn.Module):
    """Modules by name, and what they do together."""

    def __init__(self, run, **modules):
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)
        self._run = run

    def forward(self):
        return self._run(self)


def numbers(*shape):
    return torch.randn(*shape)


def words(*shape):
    return torch.randint(0, 40, shape)


def chain(*widths):
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def mlp():
    return Parts(lambda self: self.net(numbers(8, 20)), net=chain(20, 32, 32, 16))


def recurrent(kind=nn.GRU, **more):
    def run(self):
        return self.fc(self.rnn(self.emb(words(4, 6)))[0])

    return Parts(run, emb=nn.Embedding(40, 24), rnn=kind(24, 16, batch_first=True, **more), fc=nn.Linear(16, 40))


def tabular():
    def run(self):
        return self.net(torch.cat([one(words(8)) for one in self.emb], 1))

    return Parts(run, emb=nn.ModuleList(nn.Embedding(40 + n, 12) for n in range(4)), net=chain(48, 16, 8))


def recommender():
    def run(self):
        return self.fc(torch.cat([self.user_emb(words(8)), self.item_emb(words(8))], 1))

    return Parts(run, user_emb=nn.Embedding(41, 12), item_emb=nn.Embedding(42, 12), fc=nn.Linear(24, 8))


def towers():
    def run(self):
        return self.vision(numbers(8, 20)) * self.text(numbers(8, 12)) * self.scale

    found = Parts(run, text=chain(12, 32, 16), vision=chain(20, 32, 16))
    found.scale = nn.Parameter(torch.ones(()))
    return found


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Linear(32, 32, bias=False), nn.LayerNorm(32)
        self.conv2, self.bn2 = nn.Linear(32, 32, bias=False), nn.LayerNorm(32)

    def forward(self, x):
        return x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))


def residual():
    def run(self):
        return self.fc(self.layer2(self.layer1(self.conv1(numbers(8, 20)))))

    layers = {f"layer{n}": nn.Sequential(Block(), Block(), Block()) for n in (1, 2)}
    return Parts(run, conv1=nn.Linear(20, 32, bias=False), **layers, fc=nn.Linear(32, 16))


def tied():
    def run(self):
        return self.decoder(self.body(self.emb(words(8))))

    found = Parts(run, emb=nn.Embedding(40, 24), body=chain(24, 24, 24), decoder=nn.Linear(24, 40))
    found.decoder.weight = found.emb.weight
    return found


def left_by(model, folder, *, named, listed=True, weights=True, sgd=False):
    """What a training leaves behind. ``listed``: the optimizer gets all parameters, not only those that are trained."""
    given = [(name, one) for name, one in model.named_parameters() if listed or one.requires_grad]
    parameters = given if named else [one for _, one in given]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9) if sgd else torch.optim.Adam(parameters)
    for _ in range(8):
        optimizer.zero_grad()
        model().square().mean().backward()
        optimizer.step()
    saved = {"optimizer": optimizer.state_dict(), "epoch": 8} | ({"model": model.state_dict()} if weights else {})
    torch.save(saved, folder / "last.pt")
    report = check(folder)
    return next((one for one in report.results if one.code == CODE), SimpleNamespace(verdict="skip", message=""))


def cut(make, *paths):
    """A model of which some modules or tensors get no gradient."""
    torch.manual_seed(0)
    model = make()
    for path in paths:
        above, _, last = path.rpartition(".")
        frozen(getattr(model.get_submodule(above), last))
    return model


ACCIDENTS = {
    "an embedding of four": (tabular, ["emb.2"], "of its sisters"),
    "the last of four": (tabular, ["emb.3"], "of its sisters"),
    "an embedding of two": (recommender, ["item_emb"], "layers begin with"),
    "half of a GRU": (recurrent, ["rnn.weight_hh_l0"], "rest of the same module"),
    "the other half": (recurrent, ["rnn.weight_ih_l0"], "rest of the same module"),
    "the head": (recurrent, ["fc"], "head looks never trained"),
    "the last of a chain": (mlp, ["net.4"], "head looks never trained"),
    "the middle of a chain": (mlp, ["net.2"], "of its sisters"),
    "a weight without its bias": (mlp, ["net.4.weight"], "bias of the same module"),
    "a convolution": (residual, ["layer2.0.conv1"], "rest of its block"),
    "a random tower": (towers, ["vision"], "never trained"),
}


@pytest.mark.parametrize("sgd", [False, True])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("accident", ACCIDENTS)
def test_left_out_by_accident(accident, named, sgd, tmp_path):
    """Listed and without state. What has no names in the optimizer gets them from the weights in order."""
    make, paths, told = ACCIDENTS[accident]
    result = left_by(cut(make, *paths), tmp_path, named=named, sgd=sgd)
    sure = named and told == "rest of the same module"
    assert (result.verdict, told in result.message) == ("fail" if sure else "warn", True), result.message
    assert paths[0] in result.message


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    "accident", ["an embedding of four", "the last of four", "half of a GRU", "the head", "a convolution"]
)
def test_left_out_of_the_optimizer(accident, named, tmp_path):
    make, paths, _ = ACCIDENTS[accident]
    result = left_by(cut(make, *paths), tmp_path, named=named, listed=False)
    assert result.verdict == "warn", result.message
    if named or accident != "a convolution":  # of many of its shape any may be the one
        assert paths[0].rpartition(".")[0] in result.message


def trained_before(make, *paths):
    torch.manual_seed(0)
    model = make()
    before(*(model.get_submodule(path) for path in paths))
    frozen(*(model.get_submodule(path) for path in paths))
    return model


ON_PURPOSE = {
    "one tower": lambda: trained_before(towers, "vision"),
    "the other tower": lambda: trained_before(towers, "text"),
    "the first embedding": lambda: trained_before(tabular, "emb.0"),
    "an embedding that was trained before": lambda: trained_before(recommender, "item_emb"),
    "embedding and recurrent layer": lambda: trained_before(recurrent, "emb", "rnn"),
    "the stem and a stage": lambda: trained_before(residual, "conv1", "layer1"),
    "all but the head": lambda: trained_before(residual, "conv1", "layer1", "layer2"),
    "a tied output": lambda: cut(tied),
    "normalisations": lambda: cut(
        residual, *(f"layer{n}.{block}.bn{k}" for n in (1, 2) for block in range(3) for k in (1, 2))
    ),
}


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("purpose", ON_PURPOSE)
def test_on_purpose(purpose, named, listed, tmp_path):
    assert left_by(ON_PURPOSE[purpose](), tmp_path, named=named, listed=listed).verdict == "pass"


@pytest.mark.parametrize("purpose", ["one tower", "the stem and a stage", "normalisations", "a tied output"])
def test_on_purpose_without_the_weights(purpose, tmp_path):
    for named in (True, False):
        result = left_by(ON_PURPOSE[purpose](), tmp_path, named=named, weights=False)
        assert result.verdict == "pass", result.message


def with_heads(used):
    def run(self):
        return torch.cat([self.heads[n](self.body(numbers(8, 20))) for n in used], 1)

    return Parts(run, body=chain(20, 32, 32), heads=nn.ModuleList(nn.Linear(32, 16) for _ in range(3)))


@pytest.mark.parametrize("used", [(0, 1, 2), (0, 2), (0,), (2,)])
@pytest.mark.parametrize("named", [True, False])
def test_heads_of_which_a_task_uses_some(used, named, tmp_path):
    assert left_by(with_heads(used), tmp_path, named=named).verdict == "pass"


def test_a_target_network_that_the_optimizer_lists(tmp_path):
    def run(self):
        return self.predictor(self.online(numbers(8, 20)))

    model = Parts(run, online=chain(20, 32, 16), target=chain(20, 32, 16), predictor=chain(16, 32, 16))
    frozen(model.target)
    assert left_by(model, tmp_path, named=True).verdict == "pass"


def test_a_normalised_weight_whose_length_is_fixed(tmp_path):
    """As in DINO's head."""
    last = nn.utils.parametrizations.weight_norm(nn.Linear(32, 16))
    model = Parts(lambda self: self.last(self.net(numbers(8, 20))), net=chain(20, 32, 32), last=last)
    frozen(last.parametrizations.weight.original0)
    for named in (True, False):
        assert left_by(model, tmp_path, named=named).verdict == "pass"
        assert left_by(model, tmp_path, named=named, listed=False).verdict == "pass"


# What real trainers leave


def of_a_trainer(name, *, named):
    """The state and the weights of one of the checkpoints that tests/readers/test_attribution.py tells of."""
    one = CHECKPOINTS[name]
    truth = one["truth"]
    truth = {int(key): name for key, name in (truth.items() if isinstance(truth, dict) else enumerate(truth))}
    listed = tuple(map(tuple, one["groups"]))
    labels = {key: truth[key] if named and key in truth else f"#{key}" for ids in listed for key in ids}
    tensors = tuple(
        TensorState(id=int(key), shape=tuple(shape), step=100.0, kind="adam", name=truth[int(key)] if named else None)
        for key, shape in one["shapes"].items()
    )
    stateless = tuple(label for key, label in labels.items() if str(key) not in one["shapes"])
    headers = tuple(TensorHeader(name=name, shape=tuple(shape), dtype="F32") for name, shape in one["weights"])
    weights = Weights(source="model.safetensors", tensors=headers)
    state = OptimizerState(source="optimizer.pt", tensors=tensors, listed=listed, stateless=stateless)
    return (state if named else attributed(state, weights)), weights


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("name", sorted(CHECKPOINTS))
def test_what_real_trainers_leave_is_sound(name, named, make, judge):
    """Also of adapters, frozen parameters and mixtures; of the one whose last layers were frozen it warns."""
    state, weights = of_a_trainer(name, named=named)
    result = judge(CODE, make.evidence(optimizer=state, weights=weights))
    assert result.verdict == ("warn" if name == "llama_frozenlast" else "pass"), result.message


# The size that layers begin with


def header(values, name="0.weight"):
    values = values.detach().double().flatten()
    shape = (8, len(values) // 8)
    stats = MomentStats(
        count=len(values), mean=float(values.mean()), rms=float(values.square().mean().sqrt()),
        minimum=float(values.min()), maximum=float(values.max()), zeros=0, nonfinite=0,
    )  # fmt: skip
    return TensorHeader(name=name, shape=shape, dtype="F32", rms=stats.rms, stats=stats)


@pytest.mark.parametrize("width", [2, 8, 9, 16, 64])
@pytest.mark.parametrize("seed", range(5))
def test_matrices_as_they_begin_and_trained_before(width, seed):
    """Of a small one its largest value has to tell, of a very small one nothing does."""
    torch.manual_seed(seed)
    fresh = nn.Linear(width, 8).weight
    assert never_trained([header(fresh)]) is (width > 2)
    assert not never_trained([header(3.3 * fresh)])
    if width < 16:
        assert not never_trained([header(0.8 * fresh)]), "too small to tell by their size"


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_recurrent_layers_begin_by_their_width(kind):
    torch.manual_seed(0)
    layer = kind(30, 16)
    some = [
        replace(header(one, f"rnn.{name}"), shape=tuple(one.shape))
        for name, one in layer.named_parameters()
        if one.dim() > 1
    ]
    assert never_trained(some)


# Tied tensors in a file of weights


def test_a_tied_tensor_of_two_names(make, judge):
    """Same values under both; the optimizer has the one name. Vectors are often alike and are not tied."""

    def weights(tied):
        values = make.moment(0.5, count=200)
        values = type(values)(**{**vars(values), "minimum": -1.0, "maximum": 1.0})
        other = values if tied else type(values)(**{**vars(values), "mean": 0.4})
        saved = make.weights({"net.0.weight": (20, 10), "net.2.weight": (10, 20), "net.4.weight": (20, 10)})
        stats = dict(zip(("net.0.weight", "net.4.weight"), (values, other), strict=True))
        headers = [type(one)(**{**vars(one), "stats": stats.get(one.name)}) for one in saved.tensors]
        return type(saved)(source="a", tensors=tuple(headers))

    for named in (True, False):
        state = make.state(
            make.tensor(0, name="net.0.weight" if named else None, shape=(20, 10)),
            make.tensor(1, name="net.2.weight" if named else None, shape=(10, 20)),
        )
        assert judge(CODE, make.evidence(optimizer=state, weights=weights(tied=True))).verdict == "pass"
    state = make.state(
        make.tensor(0, name="net.0.weight", shape=(20, 10)), make.tensor(1, name="net.2.weight", shape=(10, 20))
    )
    assert judge(CODE, make.evidence(optimizer=state, weights=weights(tied=False))).verdict == "warn"


def test_a_tied_tensor_that_is_saved_under_the_other_name(make, judge):
    trained = {"wte.weight": (40, 8), "h.0.w.weight": (8, 8)}
    saved = make.weights({"lm_head.weight": (40, 8), "h.0.w.weight": (8, 8)})
    state = make.state(*(make.tensor(key, name=name, shape=shape) for key, (name, shape) in enumerate(trained.items())))
    assert judge(CODE, make.evidence(optimizer=state, weights=saved)).verdict == "pass"


def test_experts_that_are_one_tensor_in_memory(make, judge):
    """As in transformers 5; on disk each is one of its own."""
    trained = {"layers.0.mlp.gate.weight": (4, 8), "layers.0.mlp.experts.down_proj": (4, 8, 6), "head.weight": (2, 8)}
    saved = {"layers.0.mlp.gate.weight": (4, 8), "head.weight": (2, 8)}
    saved |= {f"layers.0.mlp.experts.{expert}.down_proj.weight": (8, 6) for expert in range(4)}
    state = make.state(*(make.tensor(key, name=name, shape=shape) for key, (name, shape) in enumerate(trained.items())))
    assert judge(CODE, make.evidence(optimizer=state, weights=make.weights(saved))).verdict == "pass"


def test_modules_that_an_adapter_saves_whole(make, judge):
    """PEFT calls them otherwise in its file than in the model."""
    saved = {"base_model.model.q.lora_A.weight": (4, 8), "base_model.model.q.lora_B.weight": (8, 4)}
    trained = {name.replace(".weight", ".default.weight"): shape for name, shape in saved.items()}
    trained |= {"base_model.model.classifier.modules_to_save.default.weight": (3, 8)}
    saved |= {"base_model.model.classifier.weight": (3, 8)}
    state = make.state(*(make.tensor(key, name=name, shape=shape) for key, (name, shape) in enumerate(trained.items())))
    assert judge(CODE, make.evidence(optimizer=state, weights=make.weights(saved))).verdict == "pass"
    less = make.state(*state.tensors[:2])
    assert judge(CODE, make.evidence(optimizer=less, weights=make.weights(saved))).verdict == "fail"


def language_model(**more):
    def run(self):
        return self.head(self.body(self.tok(words(8))))

    return Parts(run, tok=nn.Embedding(60, 24), body=chain(24, 24, 24), head=nn.Linear(24, 60, bias=False), **more)


@pytest.mark.parametrize("sgd", [False, True])
@pytest.mark.parametrize("named", [True, False])
def test_the_only_head_was_never_given_to_the_optimizer(named, sgd, tmp_path):
    """It has the shape of the embedding, which is trained."""
    result = left_by(cut(language_model, "head"), tmp_path, named=named, listed=False, sgd=sgd)
    assert result.verdict == "warn"
    assert "head.weight" in result.message
    # By name an output layer that could be tied to the embedding, and is not, is warned of in any case.
    kept = left_by(trained_before(language_model, "head"), tmp_path, named=named, listed=False, sgd=sgd)
    assert kept.verdict == ("warn" if named else "pass")


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("values", [torch.zeros(3), torch.zeros(())])
def test_a_buffer_of_zeros(values, named, tmp_path):
    model = language_model()
    model.register_buffer("unused_scale", values)
    assert left_by(model, tmp_path, named=named).verdict == "pass"
    torch.manual_seed(0)
    parameter = language_model(bias=nn.Parameter(values.clone(), requires_grad=False))
    assert left_by(parameter, tmp_path, named=named, listed=False).verdict == "warn"
