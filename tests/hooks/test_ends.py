"""What a process sees of its own end, without being changed by it: scripts in real interpreters."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

BEGIN = """
import atexit, os, signal, sys, threading, time
from tracker_health.hooks import ends
ends.watch()
atexit.register(lambda: print("saw", ends.ending_here(failed=False)))
"""
CAUGHT = """
try:
    sys.exit(7)
except SystemExit:
    pass
kept = []
def keep():
    try:
        sys.exit(9)
    except SystemExit as error:
        kept.append(error)
keep()
thread = threading.Thread(target=lambda: sys.exit(6))
thread.start()
thread.join()
"""
NOTHING = "saw None"
ENDS = {
    "to its end": ("", 0, NOTHING),
    "exits that were caught": (CAUGHT, 0, NOTHING),
    "sys.exit": (CAUGHT + "sys.exit(3)", 3, "exit code 3"),
    "sys.exit in a function": ("def main():\n    sys.exit(4)\nmain()", 4, "exit code 4"),
    "sys.exit(0)": ("sys.exit(0)", 0, NOTHING),
    "sys.exit()": ("sys.exit()", 0, NOTHING),
    "a message": ("sys.exit('no data')", 1, "exit code 1"),
    "an exception": (CAUGHT + "raise ValueError('mine')", 1, "ValueError: mine"),
    "an exception that was caught": ("try:\n    raise ValueError\nexcept ValueError:\n    pass", 0, NOTHING),
    "an exception of a thread": ("t = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()", 0, NOTHING),
    "Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT, "Ctrl-C"),
    # No hook sees its code.
    "raise SystemExit": ("raise SystemExit(4)", 4, NOTHING),
}


def run(script, *options):
    return subprocess.run(
        [sys.executable, *options, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("name", list(ENDS))
def test_what_is_seen_and_that_the_end_is_the_same(name):
    script, code, seen = ENDS[name]
    watched, unwatched = run(BEGIN + script), run(BEGIN.replace("ends.watch()", "") + script)
    assert watched.returncode == unwatched.returncode == code, watched.stderr
    assert seen in watched.stdout
    same = [line for line in watched.stderr.splitlines() if not line.startswith("  File")]
    assert same == [line for line in unwatched.stderr.splitlines() if not line.startswith("  File")]


def test_a_module_as_a_program(tmp_path):
    (tmp_path / "train.py").write_text(BEGIN + "raise ValueError('mine')")
    done = subprocess.run(
        [sys.executable, "-m", "train"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "ValueError: mine" in done.stdout) == (1, True)


def test_what_is_under_way_where_a_block_is_left():
    script = (
        BEGIN
        + """
class Block:
    def __enter__(self): return self
    def __exit__(self, *_): print("left", ends.ending_here(failed=True))
for error in (KeyboardInterrupt, MemoryError, lambda: SystemExit(0), lambda: SystemExit(137)):
    try:
        with Block():
            raise error()
    except BaseException:
        pass
with Block():
    pass
"""
    )
    lines = [line for line in run(script).stdout.splitlines() if line.startswith("left")]
    words = ("interrupted", "out-of-memory", "finished", "killed", "None")
    assert [word for word, line in zip(words, lines, strict=True) if word not in line] == []


def test_at_a_prompt_nothing_ends_with_an_error():
    script = BEGIN + "raise ValueError('mine')\n"
    done = subprocess.run(
        [sys.executable, "-i", "-q"], input=script + "\n", capture_output=True, text=True, timeout=60, check=False
    )
    assert NOTHING in done.stdout


def test_hooks_that_are_taken_off():
    script = "import sys; before = sys.exit\nfrom tracker_health.hooks import ends\nends.watch(); ends.watch(); ends.forget()\n"
    assert run(script + "print(sys.exit is before)").stdout == "True\n"
