"""The benchmark of agents and autoencoders itself: what it trains, leaves and counts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

FOLDER = Path(__file__).parent.parent / "benchmarks" / "objectives"
PROGRAM = """
import json, sys
from pathlib import Path
import torch
from generate import make
from plan import plan
from score import judge, table
torch.set_num_threads(1)
runs, out = plan(), Path(sys.argv[1])
names = ["bandit-reinforce-healthy2", "mixture-vae-endless_annealing0"]
made = [make(out, name, runs[name]) for name in names + names]
print(json.dumps({"runs": len(runs), "made": made, "table": list(table(judge(out, names)))}))
"""


@pytest.mark.exhaustive
def test_two_runs_are_trained_left_and_judged(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(FOLDER)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert said["runs"] == 330
    assert said["made"] == [True, True, False, False]
    assert any("vae | endless_annealing | 1 of 1" in line for line in said["table"])
    for folder in (tmp_path / "runs").iterdir():
        params = json.loads((folder / "config.json").read_text())
        assert not {"fault", "kind", "outcome", "measured", "hard"} & params.keys()
        assert len((folder / "history.jsonl").read_text().splitlines()) > 10
