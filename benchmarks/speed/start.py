"""How much later a Python starts for the hooks: python benchmarks/speed/start.py PYTHON [STARTS].

PYTHON: of a virtual environment in which a wheel of this project is installed. Starts of it that do nothing take turns
without the variable, with it, and with it switched off; the figures are medians, and the difference is to be quoted.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

_STARTS = 11
_VARIABLE = "TRACKER_HEALTH_AUTO"


def started(python: str, said: str | None) -> float:
    """Seconds that a start takes; ``said``: by the variable, None where it is not set."""
    kept = {name: value for name, value in os.environ.items() if "TRACKER_HEALTH" not in name}
    environment = kept if said is None else kept | {_VARIABLE: said}
    begin = time.perf_counter()
    subprocess.run([python, "-c", "pass"], env=environment, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def main() -> None:
    """Measure and print."""
    python, starts = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else _STARTS
    taken: dict[str | None, list[float]] = {None: [], "1": [], "0": []}
    for _ in range(starts):
        for said, seconds in taken.items():
            seconds.append(started(python, said))
    for said, seconds in taken.items():
        print(f"{'not set' if said is None else f'{_VARIABLE}={said}':<24} {1000 * statistics.median(seconds):6.1f} ms")


if __name__ == "__main__":
    main()
