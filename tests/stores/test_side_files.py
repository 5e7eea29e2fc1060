"""A bad side file never costs the verdict: settings, a scheduler's state, a scaler's, a summary, an index of shards."""

from __future__ import annotations

import io
import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.api import check
from tracker_health.words.gap_names import SUMMARY_FILE, SUMMARY_SCHEMA
from tracker_health.words.verdict import Verdict

torch = pytest.importorskip("torch")

FEW = settings(
    max_examples=draws(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A healthy run with a log and an optimizer's state, to which side files are added."""
    folder = tmp_path_factory.mktemp("run")
    rows = [{"step": step, "loss": 2 / (1 + step / 10), "lr": 0.1} for step in range(60)]
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 64).reshape(8, 8))
    adam = torch.optim.Adam([weight], lr=0.1)
    for step in range(60):
        weight.grad = torch.sin(weight * (step + 1)).detach()
        adam.step()
    torch.save(adam.state_dict(), folder / "optimizer.pt")
    assert check(folder).verdict not in (Verdict.ERROR, Verdict.SKIP)
    return folder


def assert_judged(run, name, content):
    """The verdict stands, whatever is in the side file; what is wrong with that is a note."""
    place = run / name
    place.write_bytes(content)
    try:
        report = check(run)
    finally:
        place.unlink()
    assert report.verdict not in (Verdict.ERROR, Verdict.SKIP), report.errors
    assert report.errors == ()
    assert not any("unexpected" in skipped.reason for skipped in report.skipped)


# What may stand where a value is expected

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, -1, 10**400, 2**53, 1e308, -0.0, math.nan, math.inf, -math.inf, "nan", "1e999", "", " ", "🦊"]),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(-2, 2), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(-2, 2), max_size=3),
)
KEYS = (
    ("lr", "learning_rate", "epochs", "max_steps", "num_train_epochs", "batch_size", "warmup_steps", "optimizer", "seed"),
    ("num_classes", "vocab_size", "weight_decay", "betas", "clip_grad", "patience", "fp16", "reg", "objective", "model"),
)  # fmt: skip
SETTINGS = st.dictionaries(
    st.one_of(st.sampled_from([*KEYS[0], *KEYS[1], "trainer", "args"]), st.text(max_size=8)),
    st.one_of(ODD, st.dictionaries(st.sampled_from([*KEYS[0], *KEYS[1]]), ODD, max_size=4)),
    max_size=8,
)


def mutated(base, draw):
    """Bytes with some taken out, put in or changed."""
    content = bytearray(base)
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(content)))
        piece = draw(
            st.sampled_from([b"", b"\0", b"\xff", b"{", b"]", b"!!", b": ", b"\n", b"&a ", b"*a", b"- ", b"1e999"])
        )
        content[place : place + draw(st.integers(0, 8))] = piece
    return bytes(content)


# Settings

TAGGED = ["!!bool foo", "!!timestamp foo", '!!int ""', '!!float ""', '!!int "_"', "!!binary %", "!!set [a]", "!!omap x"]


@FEW
@given(data=st.data(), name=st.sampled_from(["config.yaml", "hparams.yml"]))
def test_settings_in_yaml(run, data, name):
    import yaml

    kept = data.draw(SETTINGS)
    lines = [f"{data.draw(st.sampled_from(KEYS[0]))}: {tag}" for tag in data.draw(st.lists(st.sampled_from(TAGGED)))]
    base = yaml.safe_dump(kept) + "\n".join(lines)
    assert_judged(run, name, mutated(base.encode("utf-8", "replace"), data.draw))


@pytest.mark.parametrize("tagged", TAGGED)
@pytest.mark.parametrize("where", ["lr: {}", "trainer: {{lr: {}}}", "? {}\n: 1", "- {}", "{}"])
def test_a_tag_that_does_not_fit_its_text(run, tagged, where):
    assert_judged(run, "config.yaml", where.format(tagged).encode())


@FEW
@given(kept=SETTINGS, data=st.data(), name=st.sampled_from(["config.json", "args.json", "train_config.json"]))
def test_settings_in_json(run, kept, data, name):
    assert_judged(run, name, mutated(json.dumps(kept).encode(), data.draw))


# A summary of the training

MOMENTS = {
    "count": 9,
    "mean": 0.1,
    "rms": 0.2,
    "minimum": -1.0,
    "maximum": 1.0,
    "zeros": 0,
    "nonfinite": 0,
    "zero_rows": 0,
}
SUMMARY = {
    "schema": SUMMARY_SCHEMA,
    "steps": 60,
    "params": {"max_steps": 60, "lr": "0.1"},
    "loss_scale": {"steps": [1, 2], "values": [65536.0, 32768.0]},
    "optimizer": {
        "tensors": [
            {
                "id": 0,
                "shape": [3, 3],
                "name": "a.weight",
                "step": 60,
                "first_moment": MOMENTS,
                "second_moment": MOMENTS,
            }
            | {"moment_ratio": 0.1, "group": 0, "kind": "adam"}
        ],
        "groups": [{"lr": 0.1, "betas": [0.9, 0.999], "eps": 1e-8}],
        "stateless": [],
        "listed": [[0]],
    },
    "weights": [{"name": "a.weight", "shape": [3, 3], "dtype": "F32", "rms": 0.1, "stats": MOMENTS}],
}


def places_in(value, place=()):
    """The way to every value of a structure."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield place
    for key, one in items:
        yield from places_in(one, (*place, key))


def with_odd_values(value, draw, odd=ODD):
    """The structure with a few of its values replaced or left out."""
    copied = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(list(places_in(copied))))
        if not place:
            return draw(odd)
        inner = copied
        for key in place[:-1]:
            inner = inner[key]
        if isinstance(inner, dict) and draw(st.booleans()):
            del inner[place[-1]]
        else:
            inner[place[-1]] = draw(odd)
    return copied


@pytest.fixture(scope="module")
def logged(run, tmp_path_factory):
    """The run without its checkpoint, for which a summary stands in."""
    folder = tmp_path_factory.mktemp("logged")
    (folder / "log.jsonl").write_bytes((run / "log.jsonl").read_bytes())
    return folder


@FEW
@given(data=st.data(), spoilt=st.booleans())
def test_a_summary(run, logged, data, spoilt):
    content = json.dumps(with_odd_values(SUMMARY, data.draw)).encode()
    content = mutated(content, data.draw) if spoilt else content
    for folder in (run, logged):
        assert_judged(folder, SUMMARY_FILE, content)


def test_the_summary_itself_is_read(logged):
    (logged / SUMMARY_FILE).write_text(json.dumps(SUMMARY))
    report = check(logged)
    (logged / SUMMARY_FILE).unlink()
    assert not any(SUMMARY_FILE in note for note in report.notes)
    assert "OPT004" in {result.code for result in report.results}


# States of torch

SCHEDULERS = [
    {"step_size": 10, "gamma": 0.5, "base_lrs": [0.1], "last_epoch": 60, "_step_count": 61, "_last_lr": [0.1]},
    {"T_max": 60, "eta_min": 0, "base_lrs": [0.1], "last_epoch": 60, "_step_count": 61, "_last_lr": [0.0]},
    {"milestones": {"10": 1}, "gamma": 0.1, "base_lrs": [0.1], "last_epoch": 60, "_last_lr": [0.01]},
    {"total_steps": 60, "_schedule_phases": [{"end_step": 10, "start_lr": "initial_lr", "end_lr": "max_lr"}],
     "base_lrs": [0.1], "last_epoch": 60, "_last_lr": [0.1], "_anneal_func_type": "cos"},
    {"_schedulers": [{"gamma": 0.9, "base_lrs": [0.1], "last_epoch": 3, "_last_lr": [0.1]}] * 2, "_milestones": [5],
     "last_epoch": 60, "_last_lr": [0.1]},
    {"factor": 0.1, "patience": 10, "best": 0.5, "num_bad_epochs": 3, "mode": "min", "last_epoch": 60, "_last_lr": [0.1]},
    {"power": 1.0, "total_iters": 60, "base_lrs": [0.1], "last_epoch": 60, "_last_lr": [0.0]},
    {"start_factor": 0.1, "end_factor": 1.0, "total_iters": 5, "base_lrs": [0.1], "last_epoch": 60, "_last_lr": [0.1]},
]  # fmt: skip
SCALER = {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 9}


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


@FEW
@given(data=st.data(), base=st.sampled_from(SCHEDULERS))
def test_a_scheduler(run, data, base):
    state = with_odd_values(base, data.draw)
    assert_judged(run, "scheduler.pt", mutated(saved(state), data.draw))


@pytest.mark.exhaustive
@FEW
@given(data=st.data())
def test_a_scaler(run, data):
    assert_judged(run, "scaler.pt", mutated(saved(with_odd_values(SCALER, data.draw)), data.draw))


@FEW
@given(
    data=st.data(),
    base=st.sampled_from([*SCHEDULERS, SCALER, {"patience_counter": 3, "early_stopping": {"patience": 3}}]),
)
def test_what_lies_in_the_checkpoint_beside_the_optimizer(run, data, base):
    whole = torch.load(run / "optimizer.pt", weights_only=True)
    content = saved({"optimizer": whole, "beside": with_odd_values(base, data.draw)})
    place = run / "optimizer.pt"
    before = place.read_bytes()
    try:
        place.write_bytes(content)
        report = check(run)
    finally:
        place.write_bytes(before)
    assert report.verdict not in (Verdict.ERROR, Verdict.SKIP)
    assert report.errors == ()


@pytest.mark.parametrize("name", ["scheduler.pt", "scaler.pt", "config.yaml", SUMMARY_FILE])
def test_what_is_wrong_with_a_side_file_is_a_note(run, name):
    (run / name).write_bytes(b"\0{[nothing of the kind")
    try:
        notes = check(run).notes
    finally:
        (run / name).unlink()
    assert any(note.startswith(f"{name}") and "not read" in note for note in notes), notes


# What says where shards lie


@pytest.mark.slow
@FEW
@given(data=st.data())
def test_an_index_of_shards(run, data):
    base = {"metadata": {"total_size": 9}, "weight_map": {"a.weight": "model-00001-of-00002.safetensors"}}
    content = json.dumps(with_odd_values(base, data.draw)).encode()
    assert_judged(run, "model.safetensors.index.json", mutated(content, data.draw))


# A summary where there is nothing else


def test_a_summary_that_cannot_be_read_is_an_error_where_it_is_all_there_is(tmp_path):
    (tmp_path / SUMMARY_FILE).write_text("{")
    report = check(tmp_path)
    assert (report.verdict, [one.source for one in report.errors]) == (Verdict.ERROR, [SUMMARY_FILE])
