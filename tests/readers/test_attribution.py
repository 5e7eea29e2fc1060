"""Which parameter each state of an optimizer without names belongs to: every name that is given is right.

``data/attribution/shapes.json.gz`` has the shapes and the names of 83 checkpoints that transformers 5.23 and peft 0.21
wrote (tiny models of many families, trained for four steps), and the true order of their optimizers' parameters.
"""

import gzip
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tracker_health.evidence import Attribution, OptimizerState, TensorHeader, TensorState, Weights
from tracker_health.readers.optimizers.attribution import attributed, unattributed

DATA = Path(__file__).parent.parent / "data" / "attribution"
CHECKPOINTS = json.loads(gzip.decompress((DATA / "shapes.json.gz").read_bytes()))

# What transformers renames when it saves, peft when it does: the same parameter.
RENAMED = (".modules_to_save.default", ".default", ".modules_to_save")
# Nothing in these tells an order: they are to be left alone, and others in part.
SILENT = {
    "bart_lora", "gptj_lora", "lora_opt", "whisper_lora", "mixtral", "mobilebert",
    "llama_bitfit", "llama_frozenemb", "llama_frozenfirst", "llama_frozenlast", "llama_layerwise", "llama_reversed",
}  # fmt: skip
IN_PART = {"bart", "bert_mlm", "falcon", "gptj", "gptneo", "llama_base", "opt", "xglm"}
# Named like others and in another order: its adapter's configuration tells, or contents do.
MISLEADING = {"lora_xglm"}


def make_state(groups, shapes=None):
    """A state of these groups: lists of shapes, None for one without state, or of ids with ``shapes`` by id."""
    if shapes is None:
        shapes, listed, key = {}, [], 0
        for group in groups:
            listed.append(tuple(range(key, key + len(group))))
            shapes |= {key + place: shape for place, shape in enumerate(group) if shape is not None}
            key += len(group)
    else:
        listed = [tuple(group) for group in groups]
    places = {key: index for index, group in enumerate(listed) for key in group}
    tensors = tuple(TensorState(id=key, shape=tuple(shape), group=places[key]) for key, shape in shapes.items())
    return OptimizerState(source="optimizer.pt", tensors=tensors, listed=tuple(listed))


def make_weights(named, *, in_order=False, dtype="F32"):
    tensors = tuple(TensorHeader(name=name, shape=tuple(shape), dtype=dtype) for name, shape in named)
    return Weights(source="model.safetensors", tensors=tensors, in_order=in_order)


def names(state):
    return {tensor.id: tensor.name for tensor in state.tensors if tensor.name is not None}


def plain(name):
    for part in RENAMED:
        name = name.replace(part, "")
    return name.removesuffix(".weight") if "lora_magnitude_vector" in name else name


def named_checkpoint(name):
    one = CHECKPOINTS[name]
    shapes = {int(key): shape for key, shape in one["shapes"].items()}
    return attributed(make_state(one["groups"], shapes), make_weights(one["weights"])), one["truth"]


@pytest.mark.parametrize("name", sorted(CHECKPOINTS.keys() - MISLEADING))
@pytest.mark.thinned(4)
def test_every_name_that_is_given_is_right(name):
    state, truth = named_checkpoint(name)
    assert all(plain(given) == plain(truth[key]) for key, given in names(state).items())
    if name in SILENT:
        assert not names(state)
        assert state.attribution is Attribution.UNATTRIBUTED
    else:
        assert state.attribution is Attribution.ASSUMED_ORDER
        assert len(names(state)) == len(state.tensors) or name in IN_PART
        assert all(tensor.assumed == (tensor.name is not None) for tensor in state.tensors)
        assert any(one.certain_name is None for one in state.tensors)


def test_the_samples_of_the_real_trainer_are_named_completely():
    complete = [name for name in CHECKPOINTS if name.startswith("hf_") and len(names(named_checkpoint(name)[0]))]
    assert len(complete) == 8


@pytest.mark.parametrize("name", sorted(CHECKPOINTS.keys() - MISLEADING))
@pytest.mark.thinned(4)
def test_every_name_of_what_has_no_state_is_right(name):
    """Each in turn had no gradient, of the longest models every tenth: its shape is not known then."""
    one = CHECKPOINTS[name]
    shapes = {int(key): shape for key, shape in one["shapes"].items()}
    keys = list(shapes)
    for gone in keys[:: max(1, len(keys) // 10)]:
        kept = {key: shape for key, shape in shapes.items() if key != gone}
        state = replace(make_state(one["groups"], kept), stateless=(f"#{gone}",))
        found = attributed(state, make_weights(one["weights"]))
        assert all(plain(given) == plain(one["truth"][gone]) for given in found.presumed.values())
        assert found.presumed.keys() <= {f"#{gone}"}
        assert not unattributed(found).presumed


def test_names_of_the_file_stay():
    state = OptimizerState(
        source="x", tensors=(TensorState(id=0, shape=(2,), name="a"),), attribution=Attribution.NAMED
    )
    assert attributed(state, make_weights([("b", (2,))])) is state
    assert all(one.certain_name is not None for one in state.tensors)


def test_several_optimizers_in_one_file_are_left_alone():
    tensors = (TensorState(id=0, shape=(2,), optimizer="d"), TensorState(id=0, shape=(2,), optimizer="g"))
    state = OptimizerState(source="x", tensors=tensors)
    assert attributed(state, make_weights([("a", (2,)), ("b", (2,))])) is state


def test_without_weights_or_state_there_are_no_names():
    state = make_state([[(2,)]])
    assert attributed(state, None) is state
    assert attributed(OptimizerState(source="x", tensors=()), make_weights([])).tensors == ()


def test_brothers_of_unknown_order_and_equal_shape_have_no_names():
    weights = make_weights([("a.weight", (2, 2)), ("b.weight", (2, 2)), ("c.weight", (3, 2))])
    state = attributed(make_state([[(2, 2), (2, 2), (3, 2)]]), weights)
    assert names(state) == {2: "c.weight"}


def test_an_order_found_in_one_layer_holds_in_all():
    roles = {"first": (2, 2), "second": (3, 2)}
    weights = make_weights(
        [(f"net.{layer}.{role}.weight", shape) for layer in range(11) for role, shape in roles.items()]
    )
    state = attributed(make_state([[(3, 2), (2, 2)] * 11]), weights)
    assert names(state)[20] == "net.10.second.weight"
    assert len(names(state)) == 22


def test_shapes_that_do_not_fit_give_no_names():
    weights = make_weights([("a.weight", (2, 2)), ("a.bias", (2,))])
    for groups in ([[(2,), (2, 2)]], [[(2, 2)] * 2], [[(2, 2), (2,), (2,)]], [[(5,)]], [[]]):
        assert not names(attributed(make_state(groups), weights))


def test_buffers_and_integers_are_no_parameters():
    weights = make_weights(
        [("bn.weight", (3,)), ("bn.bias", (3,)), ("bn.running_mean", (3,)), ("bn.running_var", (3,))]
    )
    counter = TensorHeader(name="bn.num_batches_tracked", shape=(), dtype="I64")
    weights = Weights(source="x", tensors=(*weights.tensors, counter))
    assert names(attributed(make_state([[(3,), (3,)]]), weights)) == {0: "bn.weight", 1: "bn.bias"}


def test_in_the_order_of_definition_frozen_parameters_may_be_missing():
    stored = [
        ("stem.weight", (4, 3)),
        ("b.weight", (2, 4)),
        ("a.weight", (2, 2)),
        ("a.bias", (2,)),
        ("head.weight", (5, 2)),
    ]
    state = attributed(make_state([[(2, 2), (2,), (5, 2)]]), make_weights(stored, in_order=True))
    assert names(state) == {0: "a.weight", 1: "a.bias", 2: "head.weight"}


def test_in_the_order_of_definition_what_could_be_either_has_no_name():
    stored = [("a.weight", (2, 2)), ("b.weight", (2, 2)), ("c.weight", (3, 2))]
    state = attributed(make_state([[(2, 2), (3, 2)]]), make_weights(stored, in_order=True))
    assert names(state) == {1: "c.weight"}


def test_in_the_order_of_definition_groups_may_split_vectors_off():
    stored = [("b.weight", (2, 2)), ("b.bias", (2,)), ("a.weight", (2, 2)), ("a.bias", (2,))]
    state = attributed(make_state([[(2, 2), (2, 2)], [(2,), (2,)]]), make_weights(stored, in_order=True))
    assert names(state) == {0: "b.weight", 1: "a.weight", 2: "b.bias", 3: "a.bias"}


def test_assumed_names_can_be_taken_back():
    state = attributed(make_state([[(2,)]]), make_weights([("a.weight", (2,))]))
    again = unattributed(state)
    assert state.tensors[0].label == "a.weight"
    assert state.tensors[0].certain_name is None
    assert names(again) == {}
    assert again.attribution is Attribution.UNATTRIBUTED


@pytest.mark.parametrize(
    "hostile",
    [
        [("." * 100_000, (2,)) for _ in range(1)],
        [("a." * 50_000, (2,))],
        [(f"{'x' * 100_000}{number}", (2,)) for number in range(20)],
        [(f"unknown{number}", (2,)) for number in range(5_000)],
        [(f"layers.{number}.unknown{other}", (2,)) for number in range(700) for other in range(7)],
        [("", (2,)), (".", (2,)), ("..", (2,)), ("a", (2,)), ("a.b", (2,))],
        [("layers.99999999999999999999999.a", (2,)), ("layers.٣.a", (2,)), ("layers.².a", (2,))],
        [(f"net.{number}.weight", (2,)) for number in range(15_000)],
    ],
)
@pytest.mark.thinned(8)
def test_hostile_names_take_no_time(hostile):
    before = time.process_time()
    for in_order in (False, True):
        attributed(make_state([[(2,)] * len(hostile)]), make_weights(hostile, in_order=in_order))
        attributed(make_state([[(2,)] * (len(hostile) // 2)] * 2), make_weights(hostile, in_order=in_order))
    assert time.process_time() - before < 20
