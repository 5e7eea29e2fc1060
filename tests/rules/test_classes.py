"""The number of classes that the shapes of a model's weights tell, on models as they are."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.evidence import Evidence, RunRef, TensorHeader, Weights
from tracker_health.facts.classes import classes_of_head


def told_by(shapes, *, in_order=True):
    tensors = tuple(TensorHeader(name=name, shape=tuple(shape), dtype="F32") for name, shape in shapes.items())
    if not in_order:
        tensors = tuple(sorted(tensors, key=lambda one: one.name))
    run = RunRef(store="directory", id="runs/a", name="a")
    return classes_of_head(Evidence(run=run, weights=Weights(source="x", tensors=tensors, in_order=in_order)))


def linear(name, inputs, outputs, *, bias=True):
    return {f"{name}.weight": (outputs, inputs)} | ({f"{name}.bias": (outputs,)} if bias else {})


def conv(name, inputs, outputs, size=3, *, bias=True):
    return {f"{name}.weight": (outputs, inputs, size, size)} | ({f"{name}.bias": (outputs,)} if bias else {})


def norm(name, size):
    batch = {f"{name}.{one}": (size,) for one in ("weight", "bias", "running_mean", "running_var")}
    return batch | {f"{name}.num_batches_tracked": ()}


def block(name, width):
    """A layer of an encoder as torch has it."""
    return (
        {f"{name}.self_attn.in_proj_weight": (3 * width, width), f"{name}.self_attn.in_proj_bias": (3 * width,)}
        | linear(f"{name}.self_attn.out_proj", width, width)
        | linear(f"{name}.linear1", width, 4 * width)
        | linear(f"{name}.linear2", 4 * width, width)
        | norm(f"{name}.norm1", width)
    )


def lstm(name, inputs, hidden):
    return {
        f"{name}.weight_ih_l0": (4 * hidden, inputs), f"{name}.weight_hh_l0": (4 * hidden, hidden),
        f"{name}.bias_ih_l0": (4 * hidden,), f"{name}.bias_hh_l0": (4 * hidden,),
    }  # fmt: skip


CLASSIFIERS = {
    "a perceptron": (linear("0", 64, 48) | linear("3", 48, 48) | linear("6", 48, 10), 10),
    "a width of four times the classes": (linear("0", 64, 40) | linear("2", 40, 10), 10),
    "two classes": (linear("body.0", 30, 24) | linear("head", 24, 2), 2),
    "one layer": (linear("linear", 784, 10), 10),
    "convolutions, flattened": (
        conv("conv1", 1, 12) | norm("bn1", 12) | conv("conv2", 12, 24) | norm("bn2", 24) | linear("fc", 96, 10), 10
    ),
    "within a Lightning module": (conv("model.conv1", 3, 16) | linear("model.fc", 16 * 49, 100), 100),
    "AlexNet": (
        conv("features.0", 3, 64) | conv("features.3", 64, 192) | linear("classifier.1", 192 * 36, 4096)
        | linear("classifier.4", 4096, 4096) | linear("classifier.6", 4096, 1000), 1000
    ),
    "ResNet": (
        conv("conv1", 3, 64, bias=False) | norm("bn1", 64) | conv("layer1.0.conv1", 64, 64, bias=False)
        | linear("fc", 64, 1000), 1000
    ),
    "a transformer": (
        linear("patches", 48, 32) | {"positions": (16, 32)} | block("layers.0", 32) | block("layers.1", 32)
        | linear("head", 32, 10), 10
    ),
    "BERT": (
        {"bert.embeddings.word_embeddings.weight": (30522, 64)} | block("bert.encoder.layer.0", 64)
        | linear("bert.pooler.dense", 64, 64) | linear("classifier", 64, 3), 3
    ),
    "Conv1D, the other way round": (
        {"h.c_fc.weight": (32, 128), "h.c_fc.bias": (128,), "h.c_out.weight": (128, 32), "h.c_out.bias": (32,)}
        | linear("classifier", 32, 5), 5
    ),
    "text, recurrent": (
        {"emb.weight": (96, 16)} | lstm("lstm", 16, 28) | linear("fc1", 56, 32) | linear("fc2", 32, 7), 7
    ),
}  # fmt: skip

OTHERS = {
    "no layer": {},
    "a vector alone": {"bias": (10,)},
    "regression": linear("0", 10, 64) | linear("2", 64, 1),
    "an autoencoder": linear("0", 64, 12) | linear("2", 12, 64),
    "an encoder and a decoder": linear("encoder.0", 64, 10) | linear("decoder.0", 10, 64),
    "two tasks": conv("stem", 1, 16) | linear("digit", 16 * 16, 10) | linear("parity", 16 * 16, 2),
    "two tasks of heads": linear("body.0", 20, 64) | linear("head_a", 64, 10) | linear("head_b", 64, 7),
    "two tasks of one size": linear("body.0", 20, 64) | linear("head_a", 64, 10) | linear("head_b", 64, 10),
    "a policy and a value": linear("body.0", 20, 64) | linear("actor", 64, 6) | linear("value", 64, 1),
    "attention that pools": linear("score", 64, 1) | linear("fc", 64, 10),
    "a mixture's gate": linear("gate", 64, 8)
    | linear("up", 64, 128)
    | linear("down", 128, 64)
    | linear("head", 64, 10),
    "a detector": conv("stem", 3, 16) | linear("cls_score", 16, 21) | linear("bbox_pred", 16, 84),
    "segmentation": conv("stem", 3, 16) | conv("classifier.4", 16, 21, 1),
    "a pair of encoders": linear("enc.0", 64, 80) | linear("enc.3", 80, 40) | linear("enc.5", 40, 16),
    "a projection": conv("stem", 3, 16) | linear("projection_head.0", 16, 32) | linear("projection_head.2", 32, 128),
    "a language model": {"emb.weight": (96, 32)} | lstm("gru", 32, 64) | linear("head", 64, 96),
    "a tied one": {"wte.weight": (96, 32)} | block("h.0", 32) | linear("lm_head", 32, 96, bias=False),
    "a pair, joined": linear("tower.0", 20, 64) | linear("out.0", 256, 32) | linear("out.2", 32, 3),
    "a head without a bias": linear("0", 20, 64) | linear("2", 64, 5, bias=False),
    "a head that is as wide as what it takes": linear("0", 20, 10) | linear("2", 10, 10),
    "an adapter": {"q.lora_A.weight": (4, 64), "q.lora_B.weight": (64, 4)},
}


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize(("shapes", "classes"), CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_classifiers(shapes, classes, in_order):
    assert told_by(shapes, in_order=in_order) == classes


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("shapes", OTHERS.values(), ids=OTHERS)
def test_nothing_is_told(shapes, in_order):
    assert told_by(shapes, in_order=in_order) is None


def test_a_head_that_does_not_stand_last():
    shapes = linear("fc", 64, 10) | linear("body", 20, 64)
    assert told_by(shapes) is None
    assert told_by(shapes, in_order=False) == 10


def test_without_weights():
    assert classes_of_head(Evidence(run=RunRef(store="directory", id="runs/a", name="a"))) is None


SIZE = st.integers(1, 300)


@settings(max_examples=draws(200), deadline=None)
@given(widths=st.lists(SIZE, min_size=2, max_size=6), in_order=st.booleans())
def test_against_a_chain_of_layers(widths, in_order):
    """Of layers one behind the other only the last one's size is told, or nothing; where it is like no other, it is."""
    shapes = {}
    for index, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        shapes |= linear(str(index), inputs, outputs)
    told = told_by(shapes, in_order=in_order)
    assert told in (None, widths[-1])
    assert (told is None) == (widths[-1] in widths[:-1] or widths[-1] < 2)


@settings(max_examples=draws(200), deadline=None)
@given(
    tensors=st.dictionaries(
        st.text("abfc.01", max_size=6).map(lambda one: f"{one}weight") | st.text("abfc.01", max_size=6).map(lambda one: f"{one}bias"),
        st.lists(st.integers(0, 12), max_size=4), max_size=8,
    ),
    in_order=st.booleans(),
)  # fmt: skip
def test_whatever_the_file_holds(tensors, in_order):
    told = told_by(tensors, in_order=in_order)
    assert told is None or (told >= 2 and any(list(shape) == [told] for shape in tensors.values()))


def test_torch_models():
    torch = pytest.importorskip("torch")
    nn = torch.nn
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)
    models = {
        10: nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)),
        4: nn.ModuleDict({"emb": nn.Embedding(50, 32), "blocks": encoder, "head": nn.Linear(32, 4)}),
        7: nn.ModuleDict({"gru": nn.GRU(5, 16, 2, bidirectional=True), "out": nn.Linear(32, 7)}),
    }
    for classes, model in models.items():
        shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        assert told_by(shapes) == told_by(shapes, in_order=False) == classes
