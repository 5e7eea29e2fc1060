"""What the gate makes of registered files as MLflow and other libraries write them, in a real registry."""

from __future__ import annotations

import json
import uuid

import numpy as np
import pytest
from click.testing import CliRunner

from tracker_health.cli import cli

from .many_runs import make_runs
from .test_gate import answer_of, client_of, gating, tags_of

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # those of torch and MLflow, on what they save

NAN = float("nan")
DRAWS = np.random.default_rng(7).standard_t(4, (64, 32)).astype(np.float32) * 0.05


def network(*, sick):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    with torch.no_grad():
        net[0].weight.copy_(torch.from_numpy(DRAWS))
        if sick:
            net[2].weight[3, 5] = NAN
    return net


def of_torch(form):
    def write(folder, *, sick):
        import mlflow

        example = np.zeros((4, 32), np.float32)
        mlflow.pytorch.save_model(network(sick=sick), str(folder), serialization_format=form, input_example=example)

    return write


def default_of_torch(folder, *, sick):
    import mlflow

    mlflow.pytorch.save_model(network(sick=sick), str(folder), input_example=np.zeros((4, 32), np.float32))


def state_dict(folder, *, sick):
    folder.mkdir()
    torch.save(network(sick=sick).state_dict(), folder / "model.pt")


def safetensors(folder, *, sick):
    from safetensors.torch import save_file

    folder.mkdir()
    save_file(network(sick=sick).state_dict(), folder / "model.safetensors")


def transformers(folder, *, sick):
    """As mlflow.transformers lays it out: weights in shards with an index, the tokenizer apart."""
    from safetensors.torch import save_file

    (folder / "model").mkdir(parents=True)
    (folder / "components" / "tokenizer").mkdir(parents=True)
    weights = network(sick=sick).state_dict()
    shards = {name: f"model-0000{1 + name.startswith('2')}-of-00002.safetensors" for name in weights}
    for file in set(shards.values()):
        kept = {name: weights[name] for name, shard in shards.items() if shard == file}
        save_file(kept, folder / "model" / file, {"format": "pt"})
    (folder / "model" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (folder / "model" / "config.json").write_text('{"architectures": ["Net"]}')
    (folder / "components" / "tokenizer" / "tokenizer.json").write_text("{}")
    (folder / "components" / "tokenizer" / "spiece.model").write_bytes(b"\n\x0e")
    (folder / "MLmodel").write_text("flavors:\n  transformers: {}\n")


def of_sklearn(folder, *, sick):
    import mlflow
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(DRAWS[:8], [0, 1] * 4)
    if sick:
        model.coef_[:] = NAN
    mlflow.sklearn.save_model(model, str(folder), input_example=DRAWS[:2])


def file_called(name):
    def write(folder, *, sick):
        del sick
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"\x08\x07" * 99)
        (folder / "MLmodel").write_text("flavors: {}\n")

    return write


READ = {
    "pt2": of_torch("pt2"),
    "default": default_of_torch,
    "state dict": state_dict,
    "safetensors": safetensors,
    "transformers": transformers,
}
NAMED = {
    "data/model.pth": of_torch("pickle"),
    "model.skops": of_sklearn,
    "model.onnx": file_called("model.onnx"),
    "data/model.h5": file_called("data/model.h5"),
    "model.xgb": file_called("model.xgb"),
    "something.else": file_called("something.else"),
    "model.json": file_called("model.json"),
}


@pytest.fixture(autouse=True)
def _pickles_allowed(monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "true")


def registered(uri, tmp_path, *writers, sick=False):
    """A registered model with versions that these wrote, of one healthy run."""
    client = client_of(uri)
    name = f"net-{uuid.uuid4().hex[:8]}"
    client.create_registered_model(name)
    for writer in writers:
        _, (run,) = make_runs(uri, 1, artifacts=str(tmp_path / uuid.uuid4().hex))
        folder = tmp_path / uuid.uuid4().hex
        writer(folder, sick=sick)
        client.log_artifacts(run, str(folder), "model")
        client.create_model_version(name, f"{client.get_run(run).info.artifact_uri}/model", run_id=run)
    return name


@pytest.mark.parametrize("form", READ)
def test_the_weights_of_a_model_are_read_and_a_nan_stops_it(sqlite_uri, tmp_path, form):
    name = registered(sqlite_uri, tmp_path, READ[form])
    code, answer = answer_of(sqlite_uri, "--require-files", f"models:/{name}/1")
    assert (code, answer["answer"], answer["files"]) == (0, "go on", "read")
    assert "WGT001" in {one["code"] for one in answer["files_report"]["results"] if one["verdict"] == "pass"}
    name = registered(sqlite_uri, tmp_path, READ[form], sick=True)
    code, answer = answer_of(sqlite_uri, f"models:/{name}/1")
    assert (code, answer["answer"]) == (1, "bad model")
    assert [one["code"] for one in answer["files_report"]["results"] if one["verdict"] == "fail"] == ["WGT001"]


@pytest.mark.parametrize("file", NAMED)
def test_a_file_that_is_not_read_is_named_and_stops_a_model_where_files_are_required(sqlite_uri, tmp_path, file):
    name = registered(sqlite_uri, tmp_path, NAMED[file], sick=True)
    code, answer = answer_of(sqlite_uri, f"models:/{name}/1")
    assert code == 0
    assert file in answer["files"]
    code, answer = answer_of(sqlite_uri, "--require-files", "--promote", "champion", f"models:/{name}/1")
    assert (code, answer["answer"]) == (3, "could not be judged")
    assert file in answer["reason"]
    assert client_of(sqlite_uri).get_registered_model(name).aliases == {}


def test_a_model_beside_the_one_that_was_read_is_named(sqlite_uri, tmp_path):
    def two(folder, *, sick):
        safetensors(folder, sick=sick)
        file_called("model.onnx")(folder, sick=sick)

    name = registered(sqlite_uri, tmp_path, two)
    code, answer = answer_of(sqlite_uri, f"models:/{name}/1")
    assert (code, answer["files"]) == (0, "no weights are read from model.onnx")
    assert "judged, but not all: no weights are read from model.onnx" in gating(sqlite_uri, f"models:/{name}/1").stdout
    assert answer_of(sqlite_uri, "--require-files", f"models:/{name}/1")[0] == 3


def test_tensors_that_are_not_read_are_counted(sqlite_uri, tmp_path):
    def quantised(folder, *, sick):
        folder.mkdir()
        weights = network(sick=sick).state_dict()
        weights["2.weight"] = torch.quantize_per_tensor(weights["2.weight"], 0.1, 0, torch.qint8)
        torch.save(weights, folder / "model.pt")

    name = registered(sqlite_uri, tmp_path, quantised)
    code, answer = answer_of(sqlite_uri, "--require-files", f"models:/{name}/1")
    assert (code, answer["files"]) == (3, "1 of 4 tensors of model.pt were not read, or not to their end")


def test_an_alias_is_set_where_the_model_may_go_on_and_nowhere_else(sqlite_uri, tmp_path):
    name = registered(sqlite_uri, tmp_path, safetensors, safetensors)
    sick = registered(sqlite_uri, tmp_path, safetensors, sick=True)
    client = client_of(sqlite_uri)

    def aliases(model=name):
        return {key: str(value) for key, value in client.get_registered_model(model).aliases.items()}

    promote = ("--promote", "champion")
    assert gating(sqlite_uri, *promote, f"models:/{sick}/1").exit_code == 1
    assert aliases(sick) == {}
    assert answer_of(sqlite_uri, "--shadow", *promote, f"models:/{name}/1")[0] == 0
    assert gating(sqlite_uri, *promote, "--timeout", "0.001s", f"models:/{name}/1").exit_code == 3
    assert aliases() == {}
    code, answer = answer_of(sqlite_uri, *promote, f"models:/{name}/1")
    assert (code, answer["promotion"]) == (0, f"promoted: champion is models:/{name}/1 (it is new)")
    assert aliases() == {"champion": "1"}
    client.set_registered_model_alias(name, "next", "2")
    done = gating(sqlite_uri, *promote, f"models:/{name}@next")
    assert f"promoted: champion is models:/{name}/2 (before: models:/{name}/1)" in done.stdout
    assert aliases() == {"champion": "2", "next": "2"}
    assert answer_of(sqlite_uri, *promote, f"models:/{name}/2")[1]["promotion"].endswith("(as before)")
    assert tags_of(sqlite_uri, name, "2")["health.verdict"] == "pass"


def test_an_alias_that_cannot_be_set_is_an_error_though_the_model_may_go_on(sqlite_uri, tmp_path):
    name = registered(sqlite_uri, tmp_path, safetensors)
    for form in ("text", "github", "json", "markdown"):
        done = gating(sqlite_uri, "--format", form, "--promote", "latest", f"models:/{name}/1")
        assert done.exit_code == 3
        assert (done.stdout + done.stderr).count("reserved") >= 1
    client = client_of(sqlite_uri)
    _, (run,) = make_runs(sqlite_uri, 1, end=None)
    model = client.create_logged_model(client.get_run(run).info.experiment_id, "net", source_run_id=run)
    client.finalize_logged_model(model.model_id, "READY")
    client.set_terminated(run)
    done = gating(sqlite_uri, "--promote", "champion", f"models:/{model.model_id}")
    assert done.exit_code == 3
    assert "no version of a registered model" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("--promote", "champion", "models:/a/1", "models:/b/1"),
        ("--promote", "champion", "--watch", "60"),
        ("--require-files", "--on-error", "pass", "models:/a/1"),
    ],
)
def test_options_that_contradict_each_other_are_refused(arguments):
    assert CliRunner().invoke(cli, ["gate", *arguments]).exit_code == 2


def test_an_error_is_said_once(sqlite_uri, tmp_path):
    name = registered(sqlite_uri, tmp_path, safetensors)
    done = gating(sqlite_uri, f"models:/{name}@nope")
    assert (done.exit_code, done.stdout) == (3, f"models:/{name}@nope: could not be judged\n")
    assert done.stderr.count("there is no such model") == 1
