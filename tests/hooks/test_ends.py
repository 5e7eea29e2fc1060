"""What a process sees of its own end, without being changed by it: scripts in real interpreters."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys

import pytest

BEGIN = """
import atexit, os, signal, sys, threading, time
from tracker_health.hooks import early, ends
early.watch()
atexit.register(lambda: print("saw", ends.end_of_process().ending))
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
IPYTHON = """
import types
IPython = sys.modules["IPython"] = types.ModuleType("IPython")
IPython.get_ipython = lambda: None
"""
NO_TEXT = """
class Speechless(Exception):
    def __str__(self): raise SystemExit(5)
"""
NO_NAME = """
class Kind(type):
    def __getattribute__(cls, name):
        if name in ("__qualname__", "__module__"): raise RuntimeError(name)
        return super().__getattribute__(name)
class Nameless(Exception, metaclass=Kind): pass
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
    "exit": ("exit(1)", 1, "exit code 1"),
    "quit": ("quit(2)", 2, "exit code 2"),
    "sys.exit(-1)": ("sys.exit(-1)", 255, "exit code 255"),
    "an exception beside an imported IPython": (IPYTHON + "raise ValueError('mine')", 1, "ValueError: mine"),
    "an exception without a text": (NO_TEXT + "raise Speechless()", 1, "Speechless"),
    "an exception without a name": (NO_NAME + "raise Nameless('mine')", 1, "an exception: mine"),
    "Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT, "Ctrl-C"),
    # No hook sees its code.
    "raise SystemExit": ("raise SystemExit(4)", 4, NOTHING),
}


def run(script, *options):
    return subprocess.run(
        [sys.executable, *options, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("name", list(ENDS))
@pytest.mark.thinned(2)
def test_what_is_seen_and_that_the_end_is_the_same(name):
    script, code, seen = ENDS[name]
    watched, unwatched = run(BEGIN + script), run(BEGIN.replace("early.watch()", "") + script)
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


IN_DOUBT = """
from tracker_health.words.ending import ending_by_exception
def end(name):
    error = ends.on_its_way(name)
    print(name, "amid", None if error is None else ending_by_exception(error).by)
atexit.register(lambda: print("over", ends.end_of_process().ended("train")))
"""
AMID = {
    "finally": ("try: 1 / 0\nfinally: end('train')", True),
    "raised again as another": (
        "try:\n  try: 1 / 0\n  finally: end('train')\nexcept Exception as error: raise RuntimeError from error", True,
    ),
    "in a group": (
        "try: 1 / 0\nexcept Exception as error:\n  end('train'); raise ExceptionGroup('all', [error]) from None", True,
    ),
    "except: sys.exit(1)": ("try: 1 / 0\nexcept Exception: end('train'); sys.exit(1)", True),
    "except, and an exit code later": (
        "def main():\n  try: 1 / 0\n  except Exception: end('train')\n  return 1\nsys.exit(main())", True,
    ),
    "handled": ("try: 1 / 0\nexcept Exception: end('train')", False),
    "handled, and another one later": ("try: 1 / 0\nexcept Exception: end('train')\nraise ValueError", False),
    "handled, and exit code 0": ("try: 1 / 0\nexcept Exception: end('train'); sys.exit(0)", False),
    "sys.exit for another reason": (
        "try: 1 / 0\nexcept Exception: end('train')\ntry: 1 / 0\nexcept Exception: sys.exit(1)", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(AMID))
def test_a_run_that_is_ended_amid_an_exception(name):
    script, ends_the_process = AMID[name]
    out = run(BEGIN + IN_DOUBT + script).stdout
    assert "train amid ZeroDivisionError" in out
    assert f"over {ends_the_process}" in out, out


def test_a_run_that_is_begun_and_ended_while_an_import_that_failed_is_handled():
    script = "try: import no_such_module\nexcept ImportError:\n  ends.begin('train'); end('train')\n"
    assert "train amid None" in run(BEGIN + IN_DOUBT + script).stdout


def test_nothing_is_kept_of_an_exception():
    """Its frames may hold a model."""
    script = """
import gc, weakref
class Model: pass
def train():
    model = Model()
    gone.append(weakref.ref(model))
    try:
        raise ValueError
    except ValueError:
        end("train")
        sys.exit(1)
gone = []
gc.disable()
try: train()
except SystemExit: pass
print("gone", gone[0]() is None)
"""
    assert "gone True" in run(BEGIN + IN_DOUBT + script).stdout


def test_an_exit_that_travels_to_a_python_without_us():
    script = BEGIN + "import pickle\ntry: sys.exit(3)\nexcept SystemExit as error: print(pickle.dumps(error).hex())\n"
    written = bytes.fromhex(run(script).stdout.split()[0])
    assert b"tracker_health." not in written
    assert pickle.loads(written).code == 3


def test_a_function_of_pythons_end_that_calls_sys_exit():
    """Python takes no notice of it."""
    script = "import atexit, sys\natexit.register(lambda: print('saw', ends.end_of_process().ending))\n"
    done = run(
        script + "from tracker_health.hooks import early, ends\nearly.watch()\natexit.register(lambda: sys.exit(3))"
    )
    assert (done.returncode, done.stdout) == (0, f"{NOTHING}\n")


def test_at_a_prompt_nothing_ends_with_an_error():
    script = BEGIN + "raise ValueError('mine')\n"
    done = subprocess.run(
        [sys.executable, "-i", "-q"], input=script + "\n", capture_output=True, text=True, timeout=60, check=False
    )
    assert NOTHING in done.stdout


def test_hooks_that_are_taken_off():
    script = "import sys; before = sys.exit, type(exit).__call__\nfrom tracker_health.hooks import early\n"
    script += "early.watch(); early.watch(); early.forget()\nprint(before == (sys.exit, type(exit).__call__))"
    assert run(script).stdout == "True\n"
