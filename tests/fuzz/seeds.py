"""Files as trainers and trackers write them, small ones: what is fuzzed is made of these.

Made once, in a process of its own, so that those who read them import neither torch nor a tracker.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
import warnings
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
STEPS = range(12)


def losses(**more):
    return [{"step": step, "loss": 2 / (1 + step), "lr": 0.1, "eval_loss": 1.0 - step / 99, **more} for step in STEPS]


def logs(folder):
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, losses())) + "\n")
    gaps = [
        {"step": step, "gap/grads/layers.0.weight/max": 0.1, "gap/params/layers.0.weight/var": 1.0} for step in STEPS
    ]
    (folder / "gap.jsonl").write_text("\n".join(map(json.dumps, gaps)) + "\n")
    (folder / "history.json").write_text(json.dumps(losses()))
    (folder / "results.json").write_text(json.dumps({"train": {"loss": [2.0, 1.0], "epoch": [1, 2]}, "lr": 0.1}))
    rows = ["step,epoch,train/loss,val loss,lr", *(f"{step},{step // 4},{2 / (1 + step)},,1e-3" for step in STEPS)]
    (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
    (folder / "results.csv").write_text("\n".join(row.replace(",", "\t") for row in rows) + "\n")


CONSOLE = """\
INFO:root:Namespace(lr=0.1, epochs=5, batch='x')
[rank0]: Epoch 1/5
  10%|█         | 12/120 [00:01<00:10, 9.9it/s, loss=2.31, acc=0.1]
{'loss': 1.25, 'grad_norm': 0.7, 'learning_rate': 1e-05, 'epoch': 0.1}
12/120 [==>...........] - ETA: 1s - loss: 0.83 - accuracy: 0.5
Epoch: [0][ 50/5005]\tTime 0.1 (0.2)\tLoss 6.9e+00 (6.91)
epoch  train_loss  valid_loss  time
-----  ----------  ----------  -----
0      1.234       1.3         00:01
| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 5.1 | loss  7.63 | ppl  2052.94
step 100 loss=tensor(0.52) val_loss: 0.6 time 1.2s
[10]\ttrain-rmse:0.5\ttest-rmse:0.6
5:\tlearn: 0.5\ttest: 0.6\tbest: 0.6 (5)
\x1b[32m2024-01-01 10:00:00\x1b[0m Test Error:
 Accuracy: 51.3%, Avg loss: 1.2
Traceback (most recent call last):
  File "train.py", line 1, in <module>
RuntimeError: CUDA out of memory
train.sh: line 3: 123 Killed python train.py
"""


def texts(folder):
    (folder / "console.log").write_text(CONSOLE)
    (folder / "train.log").write_text("".join(f"step {step}/12 loss={2 / (1 + step):.4f} lr=1e-3\n" for step in STEPS))
    (folder / "out.txt").write_text(
        "".join(f"0: [rank{step % 2}]: epoch {step} loss {2 / (1 + step)}\n" for step in STEPS)
    )


def events(folder):
    from tensorboard.compat.proto import event_pb2
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

    from .framings import EVENTS

    made = [event_pb2.Event(wall_time=1.0, file_version="brain.Event:2")]
    for step in STEPS:
        tensor = TensorProto(dtype=1, tensor_shape=TensorShapeProto(), float_val=[2.0])
        values = [Summary.Value(tag="train/loss", simple_value=2 / (1 + step)), Summary.Value(tag="lr", tensor=tensor)]
        made.append(event_pb2.Event(wall_time=float(step), step=step, summary=Summary(value=values)))
    (folder / "events.out.tfevents.1.host").write_bytes(EVENTS.join([one.SerializeToString() for one in made], b""))


def trainer(folder):
    control = {"TrainerControl": {"args": {"should_training_stop": False}}, "EarlyStoppingCallback": {}}
    state = {"global_step": 12, "max_steps": 12, "epoch": 1.0, "log_history": losses(), "save_steps": 4}
    (folder / "trainer_state.json").write_text(json.dumps({**state, "stateful_callbacks": control}))


def settings(folder):
    import yaml

    kept = {
        "trainer": {"lr": 0.1, "max_steps": 100, "betas": [0.9, 0.95]},
        "model": {"name": "x"},
        "epochs": 3,
        "date": "2024-01-01",
    }
    (folder / "config.yaml").write_text(
        yaml.safe_dump(kept) + "seed: 0x10\nrate: 1_000\nwhen: 2024-01-01\nbase: &b {a: 1}\n"
    )
    (folder / "args.json").write_text(json.dumps(kept))


def summary(folder):
    from ..stores.test_side_files import SUMMARY

    (folder / "health_summary.json").write_text(json.dumps(SUMMARY))


def _trained(make):
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 3))
    optimizer = make(model.parameters())
    for _ in range(3):
        model(torch.randn(4, 4)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def torch_files(folder):
    import torch

    model, adam = _trained(torch.optim.AdamW)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=0.1, total_steps=9)
    scaler = {
        "scale": 65536.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 1,
    }
    whole = {
        "model": model.state_dict(),
        "optimizer": adam.state_dict(),
        "global_step": 3,
        "scheduler": schedule.state_dict(),
    }
    torch.save({**whole, "scaler": scaler, "patience_counter": 2}, folder / "training_state.pt")
    torch.save(whole, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(_trained(lambda some: torch.optim.SGD(some, 0.1, momentum=0.9))[1].state_dict(), folder / "optimizer.pt")
    torch.save(schedule.state_dict(), folder / "scheduler.pt")
    torch.save(scaler, folder / "scaler.pt")
    torch.save(model.state_dict(), folder / "pytorch_model.bin")


def exported(folder):
    import torch

    program = torch.export.export(_trained(torch.optim.AdamW)[0], (torch.randn(2, 4),))
    torch.export.save(program, folder / "model.pt2")
    from ..readers.test_exported_program import of_2_8

    of_2_8(program, folder / "older.pt2")


def eight_bit(folder):
    import torch

    state = {"state1": torch.zeros(4, 512, dtype=torch.uint8), "state2": torch.zeros(4, 512, dtype=torch.uint8)}
    state |= {f"{name}{at}": torch.rand(256 if name == "qmap" else 8) for name in ("qmap", "absmax") for at in (1, 2)}
    rows = {"step": 3, "exp_avg_sq_row": torch.rand(4), "exp_avg_sq_col": torch.rand(5)}
    groups = [{"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "params": [0, 1]}]
    torch.save({"state": {0: {"step": 3, **state}, 1: rows}, "param_groups": groups}, folder / "optimizer.bin")


def distributed(folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.optim import AdamW

    model, optimizer = _trained(AdamW)
    weights, state = get_state_dict(model, optimizer)
    writer = dcp.FileSystemWriter(folder, sync_files=False)
    dcp.save({"model": weights, "optim": state, "step": 3}, storage_writer=writer)


def deepspeed(folder):
    shutil.copytree(DATA / "deepspeed" / "zero2" / "global_step3", folder, dirs_exist_ok=True)


def safetensors(folder):
    import torch
    from safetensors.torch import save_file

    tensors = {"layers.0.weight": torch.rand(4, 5), "layers.0.bias": torch.zeros(4, dtype=torch.bfloat16)}
    save_file({**tensors, "count": torch.ones((), dtype=torch.int64)}, folder / "model.safetensors", {"format": "pt"})
    place = folder / "step3" / "sampled_gradients"
    place.mkdir(parents=True)
    save_file({"gradient": torch.rand(2, 2)}, place / "layers.0.weight_first2.safetensors")
    index = {"weight_map": {"layers.0.weight": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def run_of_wandb(folder):
    from wandb.proto import wandb_internal_pb2 as wandb

    from ..stores import wandb_logs

    entry = wandb.ArtifactManifestEntry(path="optimizer.pt", size=9, local_path="/x/artifacts/staging/1")
    artifact = wandb.ArtifactRecord(name="model", digest="d", manifest=wandb.ArtifactManifest(contents=[entry]))
    summary = wandb.SummaryRecord(update=[wandb.SummaryItem(key="health/verdict", value_json='"pass"')])
    ours = wandb_logs.record(summary=summary, uuid="tracker-health")
    rows = [wandb_logs.history(step, {"loss": 2 / (1 + step), "a": {"b": 1.0}}) for step in STEPS]
    records = [wandb_logs.run_record(config={"lr": 0.1, "model": {"size": 3}}), *rows]
    records += [wandb_logs.record(artifact=artifact), ours, wandb_logs.exit_record()]
    wandb_logs.write_log(folder / "run-abc123.wandb", records)


def run_of_mlflow(folder):
    (folder / "meta.yaml").write_text("run_id: abc\nexperiment_id: '7'\nstatus: 3\nend_time: 5000\nrun_name: 'a run'\n")
    for kind, name, text in (
        ("metrics", "loss", "".join(f"{1000 + step} {2 / (1 + step)} {step}\n" for step in STEPS)),
        ("params", "lr", "0.1"),
        ("tags", "mlflow.runName", "a run"),
    ):
        (folder / kind).mkdir()
        (folder / kind / name).write_text(text)


def annotation(folder):
    record = {"schema": "tracker-health/annotation/1", "digest": "0" * 16, "verdict": "pass", "tags": {"codes": ""}}
    (folder / "health").mkdir()
    (folder / "health" / "annotation.json").write_text(json.dumps({**record, "files": ["report.json"], "media": []}))
    (folder / "health" / "report.json").write_text("{}")
    logs(folder)


def written(folder):
    record = {
        "tool": "tracker-health",
        "digest": "0" * 16,
        "files": ["report.json"],
        "metrics": ["severity"],
        "tags": ["codes"],
    }
    (folder / "health.written").write_text(json.dumps({**record, "note": True, "missing": []}))


def dlm(folder):
    (folder / "logs").mkdir()
    (folder / "logs" / "train-1.jsonl").write_text("\n".join(map(json.dumps, losses(kl=0.1, reg="kl_fwd"))) + "\n")


def beside(folder):
    torch_files(folder)
    for name in ("training_state.pt", "legacy.pt", "pytorch_model.bin"):
        (folder / name).unlink()
    settings(folder)
    summary(folder)
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, losses())) + "\n")


def whole(folder):
    beside(folder)
    torch_files(folder)
    for name in ("training_state.pt", "legacy.pt"):
        (folder / name).unlink()
    trainer(folder)


MAKERS = {
    one.__name__: one
    for one in (
        *(
            logs,
            texts,
            events,
            trainer,
            settings,
            summary,
            torch_files,
            exported,
            eight_bit,
            distributed,
            deepspeed,
            safetensors,
        ),
        *(run_of_wandb, run_of_mlflow, annotation, written, dlm, beside, whole),
    )
}


def make_all(root: Path) -> None:
    """A folder of each kind below ``root``."""
    for name, make in MAKERS.items():
        (root / name).mkdir(parents=True)
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            make(root / name)


if __name__ == "__main__":
    make_all(Path(sys.argv[1]))
