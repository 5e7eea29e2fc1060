"""python benchmarks/objectives OUT_FOLDER [--posttraining | --zoo] [--draw NAME] [--small]: other objectives, judged.

That is reinforcement learning and variational autoencoders, with --posttraining language models that TRL trains on,
or with --zoo agents that Stable-Baselines3 trains (pip install 'tracker-health[objectives]').

They are really trained, healthy and broken, and logged as people log them. What becomes of a run is measured on the
model itself, never on its log; runs of which that is unclear are left out. Needs torch and scikit-learn.
"""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import click
import torch
from generate import make
from plan import plan, plan_of_posttraining
from score import Judged, by_rule, judge, sums, table
from settings import Params


@click.command()
@click.argument("out_folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--posttraining", is_flag=True, help="Language models that are trained on with GRPO, RLOO and DPO.")
@click.option("--zoo", is_flag=True, help="Agents that Stable-Baselines3 trains.")
@click.option("--draw", default="", help="Another name draws other seeds and settings.")
@click.option("--small", is_flag=True, help="Every eleventh run.")
@click.option("--write", is_flag=True, help="Put what each rule on rewards found into render/calibration.json.")
def main(out_folder: Path, *, posttraining: bool, zoo: bool, draw: str, small: bool, write: bool) -> None:
    """Train the runs that are not in OUT_FOLDER yet, then score all."""
    torch.set_num_threads(1)
    runs = list(_plan(draw, posttraining=posttraining, zoo=zoo).items())[:: 11 if small else 1]
    for number, (name, run) in enumerate(runs, start=1):
        if make(out_folder, name, run):
            click.echo(f"{number}/{len(runs)} {name}: {run['outcome']} {run['measured']}", err=True)
    judged = list(judge(out_folder, [name for name, _ in runs]))
    if write:
        _write(judged)
    print("\n".join(table(judged)) + "\n")
    print("\n".join(sums(judged)) + "\n")
    print("\n".join(sorted(str(one) for one in judged if one.wrong)))


def _plan(draw: str, *, posttraining: bool, zoo: bool) -> dict[str, Params]:
    if zoo:
        from zoo import plan_of_zoo  # Stable-Baselines3 may not be there

        return plan_of_zoo(draw or "zoo")
    return plan_of_posttraining(draw) if posttraining else plan()


def _write(judged: list[Judged]) -> None:
    path = Path(__file__).parent.parent.parent / "src" / "tracker_health" / "render" / "calibration.json"
    content = json.loads(path.read_text())
    content["rules"] |= by_rule(judged, dt.datetime.now(tz=dt.UTC).date().isoformat())
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
