"""Trainers of other people, which log by themselves and leave runs open: in real processes, with tiny models."""

from __future__ import annotations

import pytest

from ..wandb_server import WandbServer  # noqa: TID252  tests are no package of a name

pytestmark = [pytest.mark.slow, pytest.mark.frameworks]

pytest.importorskip("torch")

MODEL = """
import sys, torch
CRASHES = sys.argv[1] == "crashes"
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        self.calls = 0
    def forward(self, x, labels=None):
        self.calls += 1
        if CRASHES and self.calls > 60:
            raise RuntimeError("the training broke")
        logits = self.layers(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}
torch.manual_seed(0)
inputs = torch.randn(512, 4)
labels = (inputs.sum(1) > 0).long()
"""
SCRIPTS = {
    "transformers": MODEL
    + """
from transformers import Trainer, TrainingArguments
data = [{"x": x, "labels": y} for x, y in zip(inputs, labels)]
arguments = TrainingArguments(
    "out", report_to=[sys.argv[2]], run_name=sys.argv[3], logging_steps=1, max_steps=100, learning_rate=0.05,
    save_strategy="no", disable_tqdm=True, use_cpu=True, dataloader_pin_memory=False,
)
Trainer(Net(), arguments, train_dataset=data).train()
""",
    "pytorch_lightning": MODEL
    + """
import pytorch_lightning
from pytorch_lightning.loggers import MLFlowLogger, WandbLogger
class Module(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def training_step(self, batch, _):
        loss = self.net(*batch)["loss"]
        self.log("train/loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, labels), batch_size=8, shuffle=True)
if sys.argv[2] == "mlflow":
    import mlflow
    logger = MLFlowLogger(run_name=sys.argv[3], tracking_uri=mlflow.get_tracking_uri())
else:
    logger = WandbLogger(name=sys.argv[3], project="p")
quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
pytorch_lightning.Trainer(max_epochs=2, log_every_n_steps=1, logger=logger, accelerator="cpu", **quiet).fit(Module(), data)
""",
}


@pytest.fixture
def train(workplace, plugin_path):
    """Run a framework's script; its exit code, and what the hook told."""

    def run(framework, tracker, end, name="trained", **environment):
        pytest.importorskip(framework, reason=f"{framework} is not installed (make frameworks)")
        offline = {"HF_HUB_OFFLINE": "1", "WANDB_PROJECT": "p", "TRACKER_HEALTH_AUTO": "1", "PYTHONPATH": plugin_path}
        # W&B has no entry point: the one line is written in the script.
        line = "import tracker_health; tracker_health.autolog()\n" if tracker == "wandb" else ""
        script = line + SCRIPTS[framework]
        code, _, err = workplace.train(script, end, tracker, name, **(offline | environment))
        assert (code, err.count("RuntimeError: the training broke") > 0) == (
            (1, True) if end == "crashes" else (0, False)
        ), err
        return [line.split()[2:4] for line in err.splitlines() if line.startswith("tracker-health: provisional: ")]

    return run


@pytest.mark.parametrize("store", ["a database", "a server"])
@pytest.mark.parametrize(
    ("framework", "end", "status"),
    [
        ("transformers", "ends", "FINISHED"),
        ("transformers", "crashes", "FINISHED"),  # sic: MLflow ends it when Python exits
        ("pytorch_lightning", "ends", "FINISHED"),
        ("pytorch_lightning", "crashes", "FAILED"),
    ],
)
@pytest.mark.one_cell
def test_a_trainer_that_logs_to_mlflow(train, workplace, request, framework, end, status, store):
    uri = request.getfixturevalue("mlflow_server") if store == "a server" else None
    name = f"{framework}-{end}"
    told = train(framework, "mlflow", end, name, **({"MLFLOW_TRACKING_URI": uri} if uri else {}))
    tags, found = workplace.mlflow_runs(uri)[name]
    assert found == status
    assert (tags["health.verdict"] in ("pass", "warn")) == (end == "ends")
    assert tags["health.ended"] == ("finished" if end == "ends" else "failed")
    assert told == [[tags["health.verdict"].upper(), f"{name}:"]]


ENDS = pytest.mark.parametrize(
    ("end", "code", "expected"), [("ends", 0, ("pass", "warn")), ("crashes", 1, ("warn", "fail"))]
)
"""W&B keeps what was printed, and so the exception: a run that crashed is never one that passes."""


@ENDS
@pytest.mark.parametrize("framework", list(SCRIPTS))
def test_a_trainer_that_logs_to_wandb(train, workplace, framework, end, code, expected):
    ((verdict, name),) = train(framework, "wandb", end)
    ((_, log),) = workplace.wandb_logs().items()
    assert log.exit_code == code
    assert log.own["health/verdict"] in expected
    assert (verdict.lower() in expected, name) == (True, "trained:")


@ENDS
@pytest.mark.parametrize("framework", list(SCRIPTS))
def test_a_trainer_that_logs_to_a_server_of_wandb(train, workplace, framework, end, code, expected):
    with WandbServer() as server:
        online = server.environment(workplace.folder) | {"WANDB_MODE": "online"}
        ((verdict, name),) = train(framework, "wandb", end, **online)
        workplace.wait_for_judges()
        (run,) = server.store.runs.values()
        assert run.tags in [[f"health:{one}"] for one in expected], code
        assert server.errors == []
    assert (verdict.lower() in expected, name) == (True, "trained:")
