"""Language models that TRL really trains on, and what is said of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.frameworks]

FOLDER = Path(__file__).parent.parent / "benchmarks" / "objectives"
PROGRAM = """
import json, sys
from pathlib import Path
import torch
from generate import make
from plan import plan_of_posttraining
from score import judge
torch.set_num_threads(1)
runs, out = plan_of_posttraining(), Path(sys.argv[1])
names = sys.argv[2:]
made = [make(out, name, runs[name]) for name in names]
said = {one.name: [one.run["outcome"], one.report.verdict.value, one.codes] for one in judge(out, names)}
print(json.dumps({"runs": len(runs), "said": said}))
"""


def test_healthy_and_faulty_trainings(tmp_path):
    pytest.importorskip("trl", reason="trl is not installed (make frameworks)")
    healthy = ["copy-dpo-healthy2", "copy-rloo-healthy0", "sort-grpo-healthy6"]
    faulty = {"sort-grpo-temperature_0": "RWD002", "sort-rloo-wrong_sign": "RWD001", "copy-dpo-lr_high": "RWD009"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), *healthy, *faulty],
        env=os.environ | {"PYTHONPATH": str(FOLDER), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, check=True, timeout=280,
    )  # fmt: skip
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["runs"] == 246
    for name in healthy:
        assert told["said"][name] == ["healthy", "pass", []]
    for name, code in faulty.items():
        outcome, verdict, codes = told["said"][name]
        assert (outcome, verdict in ("warn", "fail")) == ("sick", True)
        assert code in codes
