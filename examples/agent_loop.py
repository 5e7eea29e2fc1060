"""A loop that closes: a script plays the agent that trains, asks for a verdict, changes what it says, and trains again.

    pip install 'tracker-health[mcp]' torch
    python examples/agent_loop.py                 # five faults, one after the other
    python examples/agent_loop.py rate-too-high   # one of them

It talks to ``tracker-health mcp`` as any agent does: ``check_run`` for the verdict with its one action, and
``compare_runs`` for what is unlike. No model decides anything: the setting that the action names is set as it says.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

HEALTHY = {
    "learning_rate": 1e-3, "weight_decay": 0.01, "max_grad_norm": 1.0, "adam_epsilon": 1e-8, "adam_beta1": 0.9,
    "adam_beta2": 0.999, "warmup_steps": 0,
}  # fmt: skip
FAULTS: Mapping[str, Mapping[str, float]] = {
    "rate-too-high": {"learning_rate": 10.0},
    "rate-too-low": {"learning_rate": 1e-8},
    "decay-too-strong": {"weight_decay": 300.0},
    "clipped-to-nothing": {"max_grad_norm": 1e-9},
    "epsilon-too-large": {"adam_epsilon": 10.0},
}
"""Settings that somebody may have typed wrongly, by what is then wrong."""
STEPS, BATCH, INPUTS, CLASSES, MOST_ATTEMPTS = 400, 64, 32, 8, 4


def train(folder: Path, settings: Mapping[str, float]) -> None:
    """Train a small classifier on drawn samples, with its log, its settings and a checkpoint in a folder."""
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    told = {"optimizer": "AdamW", "batch_size": BATCH, "max_steps": STEPS, "num_classes": CLASSES, **settings}
    (folder / "config.json").write_text(json.dumps(told))
    centres = 2.0 * torch.randn(CLASSES, INPUTS)
    model = torch.nn.Sequential(torch.nn.Linear(INPUTS, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES))
    optimizer = torch.optim.AdamW(
        model.named_parameters(),
        lr=settings["learning_rate"],
        weight_decay=settings["weight_decay"],
        eps=settings["adam_epsilon"],
        betas=(settings["adam_beta1"], settings["adam_beta2"]),
    )
    held_out = torch.randint(CLASSES, (512,))
    samples = centres[held_out] + 2.0 * torch.randn(512, INPUTS)
    with (folder / "metrics.jsonl").open("w") as log:
        for step in range(STEPS):
            labels = torch.randint(CLASSES, (BATCH,))
            logits = model(centres[labels] + 2.0 * torch.randn(BATCH, INPUTS))
            loss = torch.nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings["max_grad_norm"])
            optimizer.step()
            row = {"step": step, "loss": loss.item(), "grad_norm": norm.item(), "lr": settings["learning_rate"]}
            if step % 20 == 19:
                with torch.no_grad():
                    row["val_loss"] = torch.nn.functional.cross_entropy(model(samples), held_out).item()
            log.write(f"{json.dumps(row)}\n")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": STEPS}, folder / "last.pt")


async def ask(session: ClientSession, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool of the server answers. Its data comes from runs: nothing in it is an order."""
    answer = json.loads((await session.call_tool(tool, arguments)).content[0].text)
    if "error" in answer:
        raise SystemExit(f"{answer['error']}: {answer['try']}")
    return answer["data"]


async def close_the_loop(session: ClientSession, place: Path, fault: str) -> int:
    """Train until nothing is found; gives the number of changes, or 0 where no action says what to change."""
    settings: dict[str, float] = {**HEALTHY, **FAULTS[fault]}
    before: Path | None = None
    for attempt in range(MOST_ATTEMPTS):
        run = place / fault / f"attempt-{attempt}"
        train(run, settings)
        verdict = await ask(session, "check_run", run=str(run))
        print(f"{fault}, attempt {attempt}: {verdict['verdict'].upper()}: {verdict['headline']}")
        if before is not None:
            unlike = await ask(session, "compare_runs", bad=str(before), good=[str(run)])
            print(f"  compared with the one before: {unlike['headline']}")
        if verdict["verdict"] == "pass":
            return attempt
        action, before = verdict["action"], run
        setting = action["param"]  # what this script calls it
        if setting not in settings or not isinstance(action["to"], int | float):
            print(f"  this script sets numbers only, and the action is: {action['text']}")
            return 0
        print(f"  changes {setting} from {settings[setting]} to {action['to']}")
        settings[setting] = action["to"]
    return 0


async def main(faults: list[str]) -> None:
    """Each fault in turn, by one server."""
    with tempfile.TemporaryDirectory() as folder:
        server = StdioServerParameters(command=sys.executable, args=["-m", "tracker_health", "mcp", "--root", folder])
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            changes = {fault: await close_the_loop(session, Path(folder), fault) for fault in faults}
    once = sum(one == 1 for one in changes.values())
    print(f"the first change ended in PASS: {once} of {len(changes)}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or [*FAULTS]))
