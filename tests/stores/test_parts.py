"""Checkpoints elsewhere, of which only the parts that are needed are fetched."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest

import tracker_health as th
from tracker_health.errors import ReadError, RunNotFound, StoreRefused, StoreUnavailable
from tracker_health.evidence import Part, Request
from tracker_health.readers.files import ranged_file
from tracker_health.readers.files.ranged_file import BLOCK, NEAR, PIECE, PartsRefused, RangedFile, Remote
from tracker_health.readers.optimizers.optimizer_state import read_optimizer_state
from tracker_health.roles import RolePlan
from tracker_health.stores.remote import http_parts, url
from tracker_health.stores.remote.url import is_checkpoint_url, open_url

from .ranges import serving
from .test_mlflow_store import Store, descent

torch = pytest.importorskip("torch")

REQUEST = Request(roles=RolePlan(), parts=frozenset(Part))
EVEN = (256, 1024)  # of a tensor of 1 MiB


def state(count, width=1.0):
    moments = {
        key: {"step": torch.tensor(7.0), "exp_avg": torch.randn(EVEN) * width, "exp_avg_sq": torch.rand(EVEN)}
        for key in range(count)
    }
    return {"state": moments, "param_groups": [{"lr": 0.1, "params": list(moments)}]}


def lightning(path, weights, moments, **options):
    """A Lightning checkpoint: a frozen model of so many MiB, and an adapter with twice so many MiB of moments."""
    torch.manual_seed(0)
    frozen = {f"layers.{index}.weight": torch.zeros(1024, 1024) for index in range(weights // 4)}
    content = {"epoch": 1, "global_step": 7, "state_dict": frozen, "optimizer_states": [state(moments)], "loops": {}}
    torch.save(content, path, **options)
    return path


@pytest.fixture(scope="session")
def mostly_weights(tmp_path_factory):
    """60 MB, of which 16 MB are moments."""
    return lightning(tmp_path_factory.mktemp("parts") / "last.ckpt", 44, 8)


@pytest.fixture(scope="session")
def mostly_moments(tmp_path_factory):
    return lightning(tmp_path_factory.mktemp("parts") / "last.ckpt", 4, 6)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(http_parts, "pause_before", lambda *_: 0.0)


def read(address, **changes):
    with contextlib.closing(open_url(address)) as run:
        return run.read(Request(roles=RolePlan(), parts=frozenset(Part), **changes))


def same_state(evidence, path):
    expected = read_optimizer_state(path, evidence.optimizer.source)
    assert evidence.problems == ()
    assert evidence.optimizer.tensors == expected.tensors
    assert evidence.optimizer.global_step == 7


# A web server


NEEDED = 16 * 2**20


def test_of_a_lightning_checkpoint_only_the_moments_are_fetched(mostly_weights):
    with serving(mostly_weights) as server:
        same_state(read(f"{server.url}/last.ckpt"), mostly_weights)
        assert NEEDED < server.sent <= 1.1 * NEEDED
        assert server.requests <= 64


def test_the_format_before_zip_as_well(tmp_path):
    path = lightning(tmp_path / "last.ckpt", 44, 8, _use_new_zipfile_serialization=False)
    with serving(path) as server:
        same_state(read(f"{server.url}/last.ckpt"), path)
        assert server.sent <= 1.1 * NEEDED + 2**20  # where its pickles end is not said, so a first MiB is read
        assert server.requests <= 64


@pytest.mark.parametrize("way", ["whole", "new copies"])
def test_a_server_that_gives_no_parts_is_asked_for_the_whole(way, mostly_weights):
    with serving(mostly_weights, way) as server:
        same_state(read(f"{server.url}/last.ckpt"), mostly_weights)
        assert server.requests <= 6


def test_where_parts_are_no_gain_the_whole_is_fetched(mostly_moments):
    with serving(mostly_moments) as server:
        same_state(read(f"{server.url}/last.ckpt"), mostly_moments)
        assert server.requests <= 6
        assert "Range" not in server.headers[-1]


def test_a_small_file_is_fetched_whole(tmp_path):
    torch.save(state(1), tmp_path / "optimizer.pt")
    with serving(tmp_path / "optimizer.pt") as server:
        assert len(read(f"{server.url}/optimizer.pt").optimizer.tensors) == 1
        assert server.requests == 2


@pytest.mark.parametrize("way", ["parts", "cut"])
def test_what_fails_is_asked_for_again(way, mostly_weights):
    with serving(mostly_weights, way, fails=2) as server:
        same_state(read(f"{server.url}/last.ckpt"), mostly_weights)


@pytest.mark.parametrize("way", ["grows", "wrong part"])
def test_an_answer_that_is_another_is_told(way, mostly_weights):
    with serving(mostly_weights, way) as server:
        (problem,) = read(f"{server.url}/last.ckpt").problems
    assert problem.message == "it has another size than was said"


def test_a_file_that_became_another_is_told(mostly_weights, tmp_path, monkeypatch):
    other = Path(shutil.copy(mostly_weights, tmp_path))
    with other.open("r+b") as file:
        file.seek(100)
        file.write(b"changed!")
    with serving(mostly_weights, "new copies") as server:
        whole = url._download

        def changed(*arguments):
            server.path = other
            whole(*arguments)

        monkeypatch.setattr(url, "_download", changed)
        (problem,) = read(f"{server.url}/last.ckpt").problems
    assert problem.message == "it has changed while it was read"


def test_the_limit_counts_what_will_be_fetched(mostly_weights):
    with serving(mostly_weights) as server:
        same_state(read(f"{server.url}/last.ckpt", max_download=20 * 10**6), mostly_weights)
        sent = server.sent
        (problem,) = read(f"{server.url}/last.ckpt", max_download=10**7).problems
        assert "limit of 10.0 MB" in problem.message
        assert server.sent - sent < 10**6


@pytest.mark.parametrize(("way", "error"), [("404", RunNotFound), ("401", StoreRefused), ("500", StoreUnavailable)])
def test_a_server_that_refuses_is_told_without_secrets(way, error, mostly_weights):
    with serving(mostly_weights, way) as server:
        address = server.url.replace("//", "//me:s3cr3t@") + "/last.ckpt?signature=s3cr3t"
        with pytest.raises(error) as caught:
            th.check(address)
        outcome = th.check_many([address]).__iter__().__next__()
    assert "s3cr3t" not in f"{caught.value} {outcome.run} {outcome.report.to_json()}"


def test_no_server_at_all():
    with pytest.raises(StoreUnavailable, match="refused") as error:
        open_url("http://127.0.0.1:9/last.ckpt")
    assert "is the server running" in error.value.hint


def test_a_server_that_drips_its_header_is_given_up(monkeypatch):
    monkeypatch.setattr(url, "REQUEST_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip():
            with contextlib.suppress(OSError), listening.accept()[0] as connection:
                for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10_000:
                    connection.sendall(bytes([byte]))
                    time.sleep(0.05)

        threading.Thread(target=drip, daemon=True).start()
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            open_url(f"http://127.0.0.1:{listening.getsockname()[1]}/last.ckpt")


@pytest.mark.parametrize("elsewhere", ["file:///etc/passwd", "ftp://127.0.0.1:9/last.ckpt", "gopher://a/last.ckpt"])
def test_a_server_that_leads_off_the_web_is_not_followed(elsewhere, mostly_weights):
    with serving(mostly_weights, elsewhere) as server, pytest.raises(StoreUnavailable, match="no web address"):
        open_url(f"{server.url}/last.ckpt")


def test_a_server_that_leads_in_a_circle_is_left(mostly_weights):
    with serving(mostly_weights, "/last.ckpt") as server, pytest.raises(StoreUnavailable):
        open_url(f"{server.url}/last.ckpt")
    assert server.requests < 20


@pytest.mark.exhaustive
def test_what_tells_of_the_tensors_is_fetched_once_though_state_and_weights_are_asked_for(tmp_path):
    small = {key: {"step": 7, "exp_avg": torch.randn(16, 16), "exp_avg_sq": torch.rand(16, 16)} for key in range(3000)}
    states = [{"state": small, "param_groups": [{"lr": 0.1, "params": list(small)}]}]
    weights = {f"layers.{index}.weight": torch.zeros(8) for index in range(3000)} | {"a": torch.zeros(2**23)}
    torch.save({"global_step": 7, "state_dict": weights, "optimizer_states": states}, tmp_path / "last.ckpt")
    with serving(tmp_path / "last.ckpt") as server:
        same_state(read(f"{server.url}/last.ckpt"), tmp_path / "last.ckpt")
        asked = [one["Range"] for one in server.headers if "Range" in one]
    assert len(asked) == len(set(asked)) == server.requests


def test_a_password_goes_to_its_server_only(mostly_weights):
    with serving(mostly_weights, "redirect") as server:
        read(server.url.replace("//", "//me:s3cr3t@") + "/last.ckpt")
    assert all(("Authorization" in one) == one["Host"].startswith("127.0.0.1") for one in server.headers)


def test_it_is_judged_and_never_written_onto(mostly_weights):
    with serving(mostly_weights) as server:
        report = th.check(f"{server.url}/a/last.ckpt?signature=s3cr3t")
        assert report.run.id == f"{server.url}/a/last.ckpt"
        assert (report.run.store, report.run.name, report.errors) == ("url", "last.ckpt", ())
        with pytest.raises(StoreRefused, match="no verdict can be written"):
            th.annotate(f"{server.url}/a/last.ckpt")
        assert not th.clear_annotations(f"{server.url}/a/last.ckpt").found


def test_a_file_without_optimizer_state_is_a_problem(tmp_path):
    torch.save({"weights": torch.zeros(3)}, tmp_path / "model.pt")
    with serving(tmp_path / "model.pt") as server:
        assert [problem.message for problem in read(f"{server.url}/model.pt").problems] == [
            "it holds no optimizer state"
        ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://host/a/last.ckpt", True),
        ("https://host/a/last.ckpt?X-Amz-Signature=1", True),
        ("S3://bucket/run/optimizer.PT", True),
        ("gs://bucket/training_state.pt", True),
        ("https://host/.ckpt", False),
        ("https://host/a/last.ckpt/", False),
        ("https://host/#/a/last.ckpt", False),
        ("file:///etc/last.ckpt", False),
        ("simplecache::s3://bucket/last.ckpt", False),
        ("ftp://host/last.ckpt", False),
        ("http:///last.ckpt", False),
        ("http://[::1/last.ckpt", False),
        ("last.ckpt", False),
    ],
)
def test_which_addresses_are_of_checkpoints(text, expected):
    assert is_checkpoint_url(text) is expected


# Object stores, through fsspec


@pytest.fixture
def bucket(monkeypatch, mostly_weights):
    """A bucket, and what is asked of it."""
    memory = pytest.importorskip("fsspec").filesystem("memory")
    monkeypatch.setattr(url, "_OBJECTS", url._OBJECTS | {"memory"})
    memory.pipe("/bucket/last.ckpt", mostly_weights.read_bytes())
    asked = []
    inner = type(memory).cat_file
    monkeypatch.setattr(
        type(memory),
        "cat_file",
        lambda self, path, start=None, end=None: asked.append(end - start) or inner(self, path, start, end),
    )
    yield asked
    memory.rm("/bucket", recursive=True)


def test_parts_of_an_object(bucket, mostly_weights):
    same_state(read("memory://bucket/last.ckpt"), mostly_weights)
    assert NEEDED < sum(bucket) <= 1.1 * NEEDED
    assert len(bucket) <= 64


def test_an_object_that_is_not_there(bucket):
    with pytest.raises(RunNotFound, match="no such file"):
        open_url("memory://bucket/first.ckpt")


def test_a_package_that_is_not_installed():
    pytest.importorskip("fsspec")
    with pytest.raises(StoreUnavailable, match="not installed"):
        open_url("dvc://models/a/b/last.ckpt")


# A real MLflow server that keeps the artifacts


@pytest.fixture
def store(server_uri):
    with contextlib.closing(Store(server_uri)) as store:
        yield store


@pytest.fixture
def counted(monkeypatch):
    """What each part was asked for."""
    asked = []
    inner = http_parts.HttpParts._fetched
    monkeypatch.setattr(
        http_parts.HttpParts, "_fetched", lambda self, start, length: asked.append(length) or inner(self, start, length)
    )
    return asked


def test_parts_of_an_artifact_on_a_real_server(store, counted, mostly_weights):
    run_id = store.run(metrics={"loss": descent()})
    store.client.log_artifact(run_id, str(mostly_weights), "checkpoints")
    with contextlib.closing(store.open(run_id)) as run:
        same_state(run.read(REQUEST), mostly_weights)
    assert NEEDED < sum(counted) <= 1.1 * NEEDED
    assert len(counted) <= 64


def test_the_limit_for_an_artifact_counts_what_will_be_fetched(store, mostly_weights):
    run_id = store.run(metrics={"loss": descent()})
    store.client.log_artifact(run_id, str(mostly_weights), "checkpoints")
    for limit, read_it in ((20 * 10**6, True), (10**7, False)):
        with contextlib.closing(store.open(run_id)) as run:
            evidence = run.read(Request(roles=RolePlan(), parts=frozenset(Part), max_download=limit))
        assert (evidence.optimizer is not None) is read_it
        assert read_it or "of which 16.8 MB would be fetched" in evidence.missing[Part.OPTIMIZER_STATE]


def test_a_server_without_parts_gives_the_whole_artifact(store, mostly_weights, monkeypatch):
    def refused(*_):
        raise PartsRefused

    monkeypatch.setattr(http_parts.HttpParts, "_fetched", refused)
    run_id = store.run(metrics={"loss": descent()})
    store.client.log_artifact(run_id, str(mostly_weights), "checkpoints")
    with contextlib.closing(store.open(run_id)) as run:
        same_state(run.read(REQUEST), mostly_weights)


# The file itself


class Source:
    """A file elsewhere, whose parts are counted."""

    def __init__(self, content, folder):
        self.content, self.folder = content, folder
        self.asked, self.wholes, self.lock, self.held = [], 0, threading.Lock(), 0

    def open(self):
        return RangedFile(
            Remote(size=len(self.content), fetch=self.fetch, whole=self.whole, reserve=lambda count: None)
        )

    def fetch(self, start, length):
        with self.lock:
            self.asked.append((start, length))
        return self.content[start : start + length]

    def whole(self):
        self.wholes += 1
        path = self.folder / "whole"
        path.write_bytes(self.content)
        return path

    def taken(self, file, start, length):
        view = bytearray(length)
        file.read_into(start, memoryview(view))
        assert view == self.content[start : start + length]


@pytest.fixture
def source(tmp_path):
    return Source(random.Random(0).randbytes(20 * 2**20), tmp_path)


def test_neighbours_are_fetched_together(source):
    file = source.open()
    file.expect([(0, 1000), (3000, 1000), (4000 + NEAR, 1000), (6 * 2**20, 10)])
    for start in (0, 3000, 4000 + NEAR, 6 * 2**20):
        source.taken(file, start, 10)
    assert sorted(source.asked) == [(0, 5000 + NEAR), (6 * 2**20, 10)]


def test_two_places_that_are_read_in_turn(source, monkeypatch):
    monkeypatch.setattr(ranged_file, "PIECE", 2**18)
    monkeypatch.setattr(ranged_file, "_HELD", 6 * 2**18)
    file = source.open()
    file.expect([(0, 5 * 2**20), (10 * 2**20, 5 * 2**20)])
    for at in range(0, 5 * 2**20, 2**16):
        source.taken(file, at, 2**16)
        source.taken(file, 10 * 2**20 + at, 2**16)
        assert sum(piece.length for piece in file._held.values()) <= ranged_file._HELD
    assert len(source.asked) == 40
    assert source.wholes == 0


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.thinned(4)
def test_what_was_announced_is_fetched_once_in_whatever_order_it_is_read(source, seed, monkeypatch):
    monkeypatch.setattr(ranged_file, "PIECE", 2**20)
    choice = random.Random(seed)
    file = source.open()
    extents = [(at * 2**19, 2**19) for at in choice.sample(range(40), 20)]
    file.expect(extents)
    choice.shuffle(extents)
    for (one, length), (two, _) in zip(extents[::2], extents[1::2], strict=True):
        for at in range(0, length, 2**16):
            source.taken(file, one + at, 2**16)
            source.taken(file, two + at, 2**16)
    asked = sorted(source.asked)
    assert all(start + length <= after for (start, length), (after, _) in itertools.pairwise(asked))
    assert sum(length for _, length in asked) == 20 * 2**19
    assert source.wholes == 0


def test_any_reads_give_what_is_there_and_never_more_is_fetched_than_the_file(source):
    file, choice = source.open(), random.Random(1)
    file.expect([(choice.randrange(len(source.content)), choice.randrange(2**20)) for _ in range(8)])
    for _ in range(2000):
        start = choice.randrange(len(source.content))
        source.taken(file, start, min(choice.randrange(1, 2**17), len(source.content) - start))
    assert sum(length for _, length in source.asked) <= len(source.content)
    assert source.wholes == 1
    file.close()


def test_what_was_not_announced_is_fetched_in_blocks_that_are_kept(source):
    file = source.open()
    for at in range(0, BLOCK, 100):
        source.taken(file, at, 10)
    source.taken(file, len(source.content) - 22, 22)
    source.taken(file, len(source.content) - 1000, 900)
    assert len(source.asked) == 2
    file.close()
    source.taken(file, 5, 10)
    assert len(source.asked) == 2


def test_beyond_its_end_is_a_read_error(source):
    with pytest.raises(ReadError):
        source.open().read_into(len(source.content) - 5, memoryview(bytearray(6)))


def test_a_part_that_fails_is_raised_where_it_is_read(source):
    def failing(start, length):
        raise StoreUnavailable("gone")

    source.fetch = failing
    file = source.open()
    file.expect([(0, PIECE)])
    with pytest.raises(StoreUnavailable, match="gone"):
        source.taken(file, 0, 10)
    file.close()
