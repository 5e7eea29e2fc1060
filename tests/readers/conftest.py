"""Files as torch writes them but made by hand, and readers watched from outside."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest

from tracker_health.evidence import Weights
from tracker_health.readers.tensors.safetensors_header import open_safetensors
from tracker_health.readers.tensors.weights import Budget, described
from tracker_health.text import printable

MEMORY_ABOVE_START = 256 * 2**20
SECONDS = 5.0  # of the reader's own work: waiting, and what the kernel does for a machine under load, are not its doing
IDLE = 0.04  # seconds that SLOWNESS's piece of work takes on a machine with nothing else to do
SLOWNESS = f"""
def at_leisure(seconds):
    # Processor time on a machine with nothing else to do: beside others all takes longer, also by the processor's clock.
    import resource
    if seconds <= {SECONDS}:
        return seconds
    taken = []
    for _ in range(9):
        start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        len(dict([(number, str(number)) for number in range(150_000)]))
        taken.append(resource.getrusage(resource.RUSAGE_SELF).ru_utime - start)
    return seconds / max(1.0, sorted(taken)[4] / {IDLE})
"""
GIVEN_UP = 60, 600  # seconds of processor time, and of anybody's, after which it counts as hanging

_CHILD = (
    SLOWNESS
    + """
import json, resource, sys
from pathlib import Path
from tracker_health.errors import ReadError
from tracker_health.readers.files.folder import LocalFolder
from tracker_health.readers.checkpoint_formats.torch_distributed import TorchDistributed
from tracker_health.readers.dlm_log import read_dlm_step_log
from tracker_health.readers.optimizers.optimizer_state import read_optimizer_state
from tracker_health.readers.torch_files.safe_pickle import SafePickle
from tracker_health.readers.tensors.safetensors_header import open_safetensors
from tracker_health.readers.log_formats import read_log
from tracker_health.readers.log_formats.step_log import StepLog
from tracker_health.readers.trainer_state import read_trainer_state
from tracker_health.readers.tensors.weights import Budget, described
from tracker_health.roles import RolePlan

def safetensors(path):
    with open_safetensors(path) as tensors:
        return len(described(tensors, Budget()))

readers = {
    "pickle": lambda path: SafePickle(path.read_bytes()).load() and None,
    "distributed": lambda path: len(TorchDistributed().read(LocalFolder(path), ".metadata", "file").tensors),
    "torch": lambda path: len(read_optimizer_state(path, "file").tensors),
    "safetensors": safetensors,
    "steps": lambda path: sum(map(len, StepLog().read(path, "file", RolePlan()).series)),
    "log": lambda path: sum(map(len, read_log(path, path.name, RolePlan())[0].series)),
    "dlm": lambda path: len(read_dlm_step_log([("file", path)])),
    "trainer": lambda path: sum(map(len, read_trainer_state(path, "file", RolePlan()).series)),
}
read, path = readers[sys.argv[1]], Path(sys.argv[2])
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[4]), int(sys.argv[4])))
def spent():
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime
start, message, value = spent(), None, None
try:
    value = read(path)
except ReadError as error:
    message = str(error)
print(json.dumps({"seconds": at_leisure(spent() - start), "message": message, "value": value}))
"""
)


def read_safetensors(path):
    """All tensors of a safetensors file, with their statistics."""
    with open_safetensors(path) as tensors:
        return Weights(source="file", tensors=described(tensors, Budget()))


class _Storage:
    """What a hand-made pickle refers to: an entry ``data/<key>`` of ``count`` values."""

    def __init__(self, kind, key, count):
        self.persistent = ("storage", kind, key, "cpu", count)


class _Tensor:
    def __init__(self, storage, offset, shape, strides, function):
        self.arguments = (storage, offset, shape, strides, False, OrderedDict())
        self.function = function

    def __reduce__(self):
        return self.function, self.arguments


class _Pickler(pickle.Pickler):
    def persistent_id(self, value):
        return value.persistent if isinstance(value, _Storage) else None


@pytest.fixture(scope="session")
def tensor():
    """Make a tensor that says of itself whatever it is told to."""
    torch = pytest.importorskip("torch")

    def make(key="0", shape=(2,), strides=None, *, offset=0, count=None, kind=torch.FloatStorage):
        if strides is None:
            strides = tuple(_product(shape[dimension + 1 :]) for dimension in range(len(shape)))
        count = _product(shape) if count is None else count
        return _Tensor(_Storage(kind, key, count), offset, shape, strides, torch._utils._rebuild_tensor_v2)

    return make


def _product(sizes):
    product = 1
    for size in sizes:
        product *= size
    return product


@pytest.fixture(scope="session")
def save_archive():
    """Write what torch.save would write of a structure, with the storages that are given. Bytes are taken as a finished pickle."""

    def save(path, value, storages=None, *, entries=(), compression=zipfile.ZIP_STORED, byte_order=b"little"):
        if not isinstance(value, bytes):
            buffer = io.BytesIO()
            _Pickler(buffer, protocol=2).dump(value)
            value = buffer.getvalue()
        with zipfile.ZipFile(path, "w", compression) as archive:
            archive.writestr("archive/data.pkl", value)
            archive.writestr("archive/byteorder", byte_order)
            for key, content in (storages or {}).items():
                archive.writestr(f"archive/data/{key}", content)
            for name, content in entries:
                archive.writestr(name, content)
        return path

    return save


@pytest.fixture(scope="session")
def optimizer_of():
    """An optimizer's state dict around the states that are given."""

    def make(*states, **beside):
        state = {"state": dict(enumerate(states)), "param_groups": [{"lr": 0.1, "params": list(range(len(states)))}]}
        return {"optimizer": state, **beside} if beside else state

    return make


@pytest.fixture(scope="session")
def measured():
    """Read a file in a process of its own that may take 256 MB more than it has; give what came of it: message or value."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("memory is measured through /proc")

    def read(reader, path):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        processor, patience = GIVEN_UP
        command = [sys.executable, "-c", _CHILD, reader, str(path), str(MEMORY_ABOVE_START), str(processor)]

        def once():
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment, timeout=patience, check=False
            )
            assert done.returncode == 0, done.stderr[-2000:]
            return json.loads(done.stdout)

        outcome = quickest(once)
        assert outcome["seconds"] < SECONDS
        if outcome["message"] is not None:
            assert_one_line_of(outcome["message"])
        return outcome

    return read


def quickest(attempt):
    """The outcome of the quickest of up to three attempts: other processes only ever make one slower."""
    outcomes = []
    while len(outcomes) < 3 and all(one.get("seconds", 0.0) >= SECONDS for one in outcomes):
        outcomes.append(attempt())
    return min(outcomes, key=lambda one: one.get("seconds", 0.0))


def assert_one_line_of(message):
    assert message
    assert message == printable(message, 500)


@pytest.fixture(scope="session")
def assert_one_line():
    """A message is one line that a person can be shown."""
    return assert_one_line_of


@pytest.fixture(scope="session")
def samples():
    """The folder with checkpoints of the real libraries."""
    folder = Path(__file__).resolve().parents[3] / "shared" / "checkpoints"
    if not folder.is_dir():
        pytest.skip(f"no sample checkpoints at {folder}")
    return folder
