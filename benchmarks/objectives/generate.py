"""Training one run, unless it is there: its log and params for the judge, and elsewhere what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from autoencoders import train_vae
from logs import Log, names_of
from settings import SECRETS, Params

from agents import train_agent


def make(folder: Path, name: str, run: Params) -> bool:
    """Train one run and leave it in a folder; whether it was not there yet."""
    truth = folder / "truth" / f"{name}.json"
    if truth.exists():
        return False
    place = folder / "runs" / name
    place.mkdir(parents=True, exist_ok=True)
    if run["kind"] == "zoo":
        from zoo import train_zoo  # Stable-Baselines3 may not be there

        run["outcome"] = train_zoo(run, place)
        (place / "config.json").write_text(json.dumps(run["settings"] | {"env_id": run["env_id"]}, indent=1))
    else:
        _leave(run, place)
    truth.parent.mkdir(exist_ok=True)
    truth.write_text(json.dumps(run))
    return True


def _leave(run: Params, place: Path) -> None:
    """Train, and write the log and the params as a script would."""
    log = Log({} if run["kind"] == "llm" else names_of(run), run)
    run["outcome"] = _trainer_of(run["kind"])(run, log)
    rows = [json.dumps(row) for row in log.rows if len(row) > 1]
    (place / "history.jsonl").write_text("\n".join(rows) + "\n")
    params = {key: value for key, value in run.items() if key not in SECRETS}
    (place / "config.json").write_text(json.dumps(params, indent=1))


def _trainer_of(kind: str) -> Callable[[Params, Log], str]:
    if kind == "llm":
        from posttraining import train_policy  # TRL takes seconds to import, and may not be there

        return train_policy
    return train_agent if kind == "rl" else train_vae
