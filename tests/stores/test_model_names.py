"""What names a model is parsed once: the same value is opened, judged, tagged and printed."""

from __future__ import annotations

import importlib.util
import json
import uuid
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote, unquote

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.config import Config
from tracker_health.errors import RunNotFound
from tracker_health.fleet.gate import GateOptions, gate_one
from tracker_health.runs.lookup import open_model
from tracker_health.stores.mlflow import registry
from tracker_health.stores.mlflow.experiment import listed_runs
from tracker_health.stores.mlflow.registry import ModelName, model_name_of
from tracker_health.stores.remote.url import UrlRun
from tracker_health.stores.wandb import project as wandb_project
from tracker_health.stores.wandb.address import Address, address_of, project_of
from tracker_health.stores.wandb.artifact import ArtifactName, artifact_name_of
from tracker_health.stores.wandb.project import tagged_runs

from ..wandb_server.store import Blob  # noqa: TID252  tests are no package of a name

WEBHOOK = Path(__file__).parent.parent.parent / "examples" / "gate_webhook.py"
PIECES = [
    "net",
    "ne%74",
    "%2574",
    "%",
    "%2F",
    "/",
    "//",
    "@",
    "@champion",
    ":",
    " ",
    "?",
    "#",
    "..",
    "\u00e9",
    "\u200b",
    "\n",
    "1",
]
names = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=4).map("".join)


@pytest.fixture(scope="module")
def webhook():
    spec = importlib.util.spec_from_file_location("gate_webhook", WEBHOOK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Registry:
    """A registry that has every model, and notes what it was asked for."""

    def __init__(self):
        self.asked, self.tagged = [], []

    def get_model_version(self, name, version):
        self.asked.append(name)
        return SimpleNamespace(name=name, version=version, tags={}, status="READY", run_id="", source="")

    def set_model_version_tag(self, name, version, key, value):
        self.tagged.append(name)


def named(parse, *given_):
    """What a parser makes of it; None where it refuses."""
    with suppress(RunNotFound):
        return parse(*given_)
    return None


@example("ne%74")
@example("a@b")
@example("/net")
@example("%ff")
@given(name=names)
def test_a_model_is_named_letter_by_letter_by_text_page_and_webhook(webhook, name):
    plain = named(registry.version_named, name, "3")
    assert plain in (None, ModelName(name=name, version="3"))
    surrogates = any("\ud800" <= one <= "\udfff" for one in name)
    assume(not surrogates)
    page = f"https://mlflow.example.com/#/models/{quote(name, safe='')}/versions/3"
    body = json.dumps({"entity": "model_version", "action": "created", "data": {"name": name, "version": "3"}}).encode()
    of_page = named(model_name_of, page) if name else None
    assert of_page == (plain and plain._replace(server="https://mlflow.example.com"))
    assert webhook.model_of(body) == plain
    if plain is None:
        assert "/" not in name.strip("/") or named(model_name_of, f"models:/{name}/3") is None
        return
    assert named(model_name_of, f"models:/{name}/3") == plain
    assert model_name_of(plain.shown) == plain
    client = _Registry()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "connect", lambda *_, **__: (client, "https://mlflow.example.com"))
        answers = [gate_one(one, GateOptions(config=Config())) for one in (plain, plain.shown, page)]
        model = registry.open_mlflow_model(plain)
        model.tag({"health.verdict": "pass"})
    assert set(client.asked) == set(client.tagged) == {name}
    assert {one.model for one in answers} == {f"models:/{name}/3"}
    assert model.url == page


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("models:/a:b/1", "':'"),
        ("models:/../1", "path"),
        ("models:/ /1", "empty"),
        ("models:/ne\u200bt/1", "U+200B"),
        (f"models:/{'n' * 257}/1", "256"),
        ("https://host/#/models/a%2Fb/versions/1", "'/'"),
        ("https://host/#/models/%ff/versions/1", "UTF-8"),
    ],
)
def test_what_can_be_no_name_is_refused_with_the_reason(text, why):
    answer = gate_one(text, GateOptions(config=Config()))
    assert isinstance(answer.error, RunNotFound)
    assert why in answer.gate.reason


def test_a_registry_that_answers_with_another_model_is_told(monkeypatch):
    client = _Registry()
    client.get_model_version = lambda _, version: SimpleNamespace(name="Net", version=version, tags={})
    monkeypatch.setattr(registry, "connect", lambda *_, **__: (client, "https://mlflow.example.com"))
    answer = gate_one("models:/net/1", GateOptions(config=Config()))
    assert (answer.model, "answered with models:/Net/1" in answer.gate.reason) == ("models:/net/1", True)


@given(name=names.filter(bool))
def test_names_in_pages_of_wandb_are_decoded_once(name):
    encoded = quote(name.encode("utf-8", "replace").decode(), safe="")
    artifact = artifact_name_of(f"https://wandb.ai/team/proj/artifacts/model/{encoded}/v3")
    plain = artifact_name_of(f"wandb:team/proj/{name}:v3")
    assert artifact in (None, ArtifactName("team", "proj", name, "v3", "https://wandb.ai"))
    assert artifact is None or (plain == artifact._replace(server="") and plain.shown == f"wandb:team/proj/{name}:v3")
    run = named(address_of, f"https://wandb.ai/team/proj/runs/{encoded}")
    assert run in (None, Address("team", "proj", name, "https://wandb.ai"))


DRAWN = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]}


@pytest.mark.slow
@settings(max_examples=draws(60), **DRAWN)
@example("ne%74")
@example("a%2Fb @x#?")
@given(name=names)
def test_a_real_registry_and_its_pages_lead_to_what_was_named(server_uri, webhook, name):
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(tracking_uri=server_uri, registry_uri=server_uri)
    unique = f"{name}{uuid.uuid4().hex[:6]}"
    try:
        experiment = client.create_experiment(unique)
        client.create_experiment(experiment)  # another one is called as the id of this one
        run = client.create_run(experiment).info.run_id
        client.create_registered_model(unique)
        client.create_model_version(unique, f"runs:/{run}/model", run_id=run)
        client.set_registered_model_alias(unique, "champion", "1")
    except mlflow.MlflowException:  # MLflow permits no such name
        assume(False)
    with suppress(mlflow.MlflowException):  # what the name is when it is decoded
        client.create_registered_model(unquote(unique))
        client.create_model_version(unquote(unique), f"runs:/{run}/model", run_id=run)
    page = f"{server_uri}/#/experiments/{experiment}"
    found = [[str(one) for one in listed_runs([of], server_uri)] for of in (unique, page)]
    assert found == [[run]] * 2
    plain = named(registry.version_named, unique, "1")
    assume(plain is not None)
    body = {"entity": "model_version", "action": "created", "data": {"name": unique, "version": "1"}}
    forms = [f"models:/{unique}/1", f"models:/{unique}@champion", webhook.model_of(json.dumps(body).encode())]
    forms += [
        f"{server_uri}/#/models/{quote(unique, safe='')}/versions/1",
        open_model(plain, tracking_uri=server_uri).url,
    ]
    for form in forms:
        model = open_model(form, tracking_uri=server_uri)
        assert (model.name, model.run().ref.id) == (plain.shown, run), form
    model.tag({"health.verdict": "pass"})
    assert client.get_model_version(unique, "1").tags == {"health.verdict": "pass"}
    with suppress(mlflow.MlflowException):
        assert unquote(unique) == unique or client.get_model_version(unquote(unique), "1").tags == {}


# What W&B permits, and an id as only a hostile server gives one.
OF_WANDB = st.lists(
    st.sampled_from(["net", "@", " ", "+", "&", "'", "\u00e9", "runs", "sweeps", "artifacts", "41"]), min_size=1
)


@pytest.mark.slow
@settings(max_examples=draws(60), **DRAWN)
@example("sweeps", "runs", "net", "x%41")
@example("my proj", "a b", "n@t", "runs/abc")
@given(*[OF_WANDB.map("".join).filter(str.strip)] * 3, st.sampled_from(["x%41", "a/b", "a:b", "a?b#c", "runs/abc"]))
def test_a_real_client_of_wandb_and_its_pages_lead_to_what_was_named(wandb_server, project, run, artifact, odd):
    for store in (wandb_server.store.runs, wandb_server.store.artifacts):
        store.clear()
    made = wandb_server.store.new_run("team", project, run)
    wandb_server.store.new_run("team", project, odd)
    version = wandb_server.store.new_artifact(made, "model", artifact, "0" * 32, ["latest"])
    version.manifest, version.state = Blob(b'{"contents": {}}'), "COMMITTED"
    assert {one.ref.id for one in tagged_runs(f"team/{project}")} == {f"team/{project}/{one}" for one in (run, odd)}
    for listed in wandb_project.listed_runs(f"team/{project}"):
        with closing(listed.open()) as opened:
            assert f"wandb:{opened.ref.id}" == str(listed)
            if str(listed).endswith(f"/{run}"):
                assert address_of(opened.ref.url) == Address("team", project, run, wandb_server.url)
    assert project_of(f"{wandb_server.url}/team/{quote(project, safe='')}").name == project
    model = open_model(f"wandb:team/{project}/{artifact}:latest")
    again = open_model(model.url)
    assert model.name == again.name == f"wandb:team/{project}/{artifact}:v0"
    assert again.run().ref.id == f"team/{project}/{run}"


def test_the_name_of_a_file_at_an_address_is_no_path():
    file = SimpleNamespace(size=1, version="")
    shown = {
        end: UrlRun(f"https://host/{end}", file).files[0].path for end in ("a%20b.pt", "..%2F..%2Fb.pt", "%2541.pt")
    }
    assert shown == {"a%20b.pt": "a b.pt", "..%2F..%2Fb.pt": "..%2F..%2Fb.pt", "%2541.pt": "%41.pt"}
