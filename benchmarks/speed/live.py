"""What LiveHealth costs a training: python benchmarks/speed/live.py [POINTS].

Loss and gradient norm at every step, all looks included, beside a line of JSON written for each step, which is what the
plainest of loggers does. And how long the last look takes: for so long a training waits.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time

import numpy as np

from tracker_health import LiveHealth


def main() -> None:
    """Print a row for each length."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    print("| points | LiveHealth, a point | a line of JSON, a point | ratio | the last look |\n|---|---|---|---|---|")
    for points in [10**power for power in range(3, 10) if 10**power <= most]:
        random = np.random.default_rng(0)
        loss = (2 * np.exp(-3 * np.arange(points) / points) + 0.5 + 0.1 * random.normal(size=points)).tolist()
        norm = (1 + 0.1 * random.random(points)).tolist()
        health = LiveHealth(plan=points, seconds=math.inf)
        begin = time.perf_counter()
        for step in range(points):
            health.step(step=step, loss=loss[step], grad_norm=norm[step])
        ours = (time.perf_counter() - begin) / points
        begin = time.perf_counter()
        health.look()
        look = time.perf_counter() - begin
        with tempfile.TemporaryFile("w") as file:
            begin = time.perf_counter()
            for step in range(points):
                file.write(json.dumps({"step": step, "loss": loss[step], "grad_norm": norm[step]}) + "\n")
                file.flush()
            theirs = (time.perf_counter() - begin) / points
        print(f"| {points} | {ours * 1e6:.1f} us | {theirs * 1e6:.1f} us | {ours / theirs:.1f} | {look * 1e3:.0f} ms |")


if __name__ == "__main__":
    main()
