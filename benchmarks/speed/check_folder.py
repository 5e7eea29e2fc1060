"""``tracker-health check`` of a folder with a 50 MB training state, beside a script that loads it with torch and
takes the means.

Both are whole commands in fresh processes, run in turn; the figure to quote is the ratio. Resident memory is the
child's peak, as the kernel counts it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_RUNS = 7
_PARAMETERS = 100
_SHAPE = (256, 256)

# A package that pip installed is compiled, as torch is here; a source tree is only if Python may write beside it.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

_TORCH_SCRIPT = """
import sys, torch
state = torch.load(sys.argv[1], weights_only=True, mmap=True)
means = [entry["exp_avg_sq"].mean().item() for entry in state["optimizer_state_dict"]["state"].values()]
print(sum(means) / len(means))
"""


_MAKE_STATE = f"""
import sys, torch
torch.manual_seed(0)
state = {{
    index: {{
        "step": torch.tensor(500.0),
        "exp_avg": torch.randn({_SHAPE}) * 1e-3,
        "exp_avg_sq": torch.rand({_SHAPE}) * 1e-6,
    }}
    for index in range({_PARAMETERS})
}}
groups = [{{"lr": 1e-3, "betas": (0.9, 0.999), "params": list(state)}}]
torch.save({{"optimizer_state_dict": {{"state": state, "param_groups": groups}}, "global_step": 500}}, sys.argv[1])
"""


def make_state(folder: Path) -> Path:
    """A training state of 2 x 26 MB of moments, without random-number states (torch refuses those).

    Made in a process of its own: a child's peak memory starts from its parent's, and torch would count as ours.
    """
    path = folder / "training_state.pt"
    subprocess.run([sys.executable, "-c", _MAKE_STATE, str(path)], check=True)
    return path


def measured(command: list[str]) -> tuple[float, float]:
    """Wall seconds and peak resident MB of a command."""
    started = time.perf_counter()
    child = os.posix_spawn(
        command[0], command, _ENVIRONMENT, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    )
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - started
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"{command} failed")
    scale = 1 if sys.platform == "darwin" else 1024
    return seconds, usage.ru_maxrss * scale / 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = make_state(Path(name))
        script = Path(name, "means.py")
        script.write_text(_TORCH_SCRIPT)
        ours = [sys.executable, "-m", "tracker_health", "check", name]
        torchs = [sys.executable, str(script), str(path)]
        measured(ours), measured(torchs)
        pairs = [(measured(ours), measured(torchs)) for _ in range(_RUNS)]
        ratios = [theirs[0] / own[0] for own, theirs in pairs]
        print(
            f"{path.stat().st_size / 1e6:.0f} MB training state, {_RUNS} pairs of fresh processes (median, [min, max])"
        )
        for title, column in (("tracker-health check", 0), ("torch.load + means", 1)):
            seconds = [pair[column][0] for pair in pairs]
            spread = f"{statistics.median(seconds):.3f} s [{min(seconds):.3f}, {max(seconds):.3f}]"
            print(f"{title:22} {spread}  {max(pair[column][1] for pair in pairs):.0f} MB resident")
        print(f"ratio                  {statistics.median(ratios):.1f} x [{min(ratios):.1f}, {max(ratios):.1f}]")


if __name__ == "__main__":
    main()
