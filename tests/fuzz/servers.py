"""Servers that would use us up: ``python -m tests.fuzz.servers``. Prints what each cost a command, in a process of its own.

Each server is as it should be, but for one endpoint. Exit code 1 where a command took too much memory or time, or ended
in anything but a line of its own.
"""

from __future__ import annotations

import argparse
import http.server
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.wandb_server import WandbServer
from tests.wandb_server.schema import _artifact_path
from tests.wandb_server.store import Blob

ROOT = Path(__file__).parents[2]
RUN = "0123456789abcdef" * 2
MOST_MIB = 300
"""Above what the same command takes of a server that is as it should be."""
MOST_CORE_MIB = 800
"""The same of W&B's core process, which reads whole what comes with a status of failure, and copies it."""
MOST_SECONDS = 60
"""Above the same, which is mostly the start of Python and the import of the tracker's package."""
PIECE = b"0" * 2**16
UNPACKED = 2**30
GIVEN_UP_SECONDS = 400
LOSSES = [0.1 + 2.2 * 0.98**step for step in range(60)]
CHECKPOINT_BYTES = 5 * 2**20
LOG = b"".join(b'{"step": %d, "accuracy": 0.5}\n' % step for step in range(60))

# What the process takes by itself at most, and what those take that it has started: W&B's core process.
MEASURED = """
import json, re, resource, sys, time
from pathlib import Path
from tracker_health.cli import cli
begin = time.monotonic()
try:
    code = cli(sys.argv[1:], standalone_mode=False) or 0
except SystemExit as error:
    code = error.code
except BaseException as error:
    code = f"{type(error).__name__}: {error}"[:300]
seconds = time.monotonic() - begin
if "wandb" in sys.modules:
    sys.modules["wandb"].teardown()
# Not ru_maxrss, which begins with what the process had that started this one.
highest = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
of_others = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([code, seconds, highest // 1024, of_others // 1024]))
"""


class Handler(http.server.BaseHTTPRequestHandler):
    """One request: ``body`` is what came with it."""

    protocol_version = "HTTP/1.1"
    body = b""
    answer: Callable[[Handler], None]

    def respond(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.close_connection = True
        with suppress(OSError):
            type(self).answer(self)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = respond  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False

    def handle_error(self, *_: object) -> None:
        """A client that hung up is none of ours."""


@contextmanager
def serving(answer: Callable[[Handler], None]) -> Iterator[str]:
    """A server that answers as ``answer`` does, which gets the handler. Gives its address."""
    server = _Server(("127.0.0.1", 0), type("Answering", (Handler,), {"answer": answer}))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def send(handler: Handler, status: int = 200, body: bytes = b"", **headers: Any) -> None:
    """An answer. Of a header that is None none is sent."""
    handler.send_response(status)
    for name, value in {"Content_Type": "application/json", "Content_Length": len(body), **headers}.items():
        if value is not None:
            handler.send_header(name.replace("_", "-"), str(value))
    handler.end_headers()
    handler.wfile.write(body)


# How an endpoint answers that is not as it should be


Answer = Callable[[Handler], None]


def endless(status: int) -> Answer:
    """A body without end."""

    def answer(handler: Handler) -> None:
        send(handler, status, b'{"run": "', Content_Length=None)
        while True:
            handler.wfile.write(PIECE)

    return answer


def bomb(packing: str) -> Answer:
    """A megabyte that unpacks to a gigabyte."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31 if packing == "gzip" else 15)
    # Piece by piece: a process that is started has the memory of its parent as its peak.
    pieces = [packer.compress(PIECE) for _ in range(UNPACKED // len(PIECE))]
    body = b"".join([*pieces, packer.flush()])
    return lambda handler: send(handler, 200, body, Content_Encoding=packing)


def dripping(handler: Handler) -> None:
    """A byte now and then, of a megabyte that is said to come."""
    send(handler, 200, b"", Content_Length=10**6)
    while True:
        handler.wfile.write(b"0")
        time.sleep(0.05)


def stalling(handler: Handler) -> None:
    """A beginning, after which nothing comes."""
    send(handler, 200, b"{", Content_Length=10**6)
    time.sleep(2 * GIVEN_UP_SECONDS)


def page(handler: Handler) -> None:
    """What a portal or a proxy shows in the place of the answer."""
    send(handler, 200, b"<html><body>Please log in</body></html>", Content_Type="text/html")


def to_itself(handler: Handler) -> None:
    """A redirect in a circle."""
    send(handler, 302, Location=handler.path)


def to_a_file(handler: Handler) -> None:
    """A redirect to a file of this machine."""
    send(handler, 302, Location="file:///dev/zero")


def to_another(elsewhere: str) -> Answer:
    """A redirect to another host."""
    return lambda handler: send(handler, 307, Location=f"{elsewhere}{handler.path}")


KINDS = (
    "endless body",
    "endless 500",
    "gzip bomb",
    "deflate bomb",
    "drips",
    "stalls",
    "a page",
    "to itself",
    "to another host",
    "to file://",
)
PAGES = ("the same token", "empty pages", "the same page")
"""Kinds of endpoints that give pages."""


# The servers that are as they should be, but for that


@dataclass(frozen=True)
class Target:
    """An endpoint. ``of``: the tracker; ``at``: what the method, the path and the body of its requests are like;
    ``command``: of tracker-health. ``listed``: the field of its answer with what a page lists, and the one with the token
    for the next.
    """

    name: str
    of: str
    at: str
    command: tuple[str, ...] = ()
    listed: tuple[str, str] | None = None

    def kinds(self) -> tuple[str, ...]:
        """How it may answer."""
        return (*KINDS, *(PAGES if self.listed else ()))


CHECK, WANDB = ("check", RUN), ("check", "wandb:team/proj/run")
SWEEP = ("sweep", "--dry-run")
_API = r"\S+ /api/2.0/mlflow"
TARGETS = (
    Target("mlflow: any", "mlflow", "", CHECK),
    Target("mlflow: run", "mlflow", rf"{_API}/runs/get\b", CHECK),
    Target("mlflow: history", "mlflow", rf"{_API}/metrics/get-history\b", CHECK, ("metrics", "next_page_token")),
    Target("mlflow: artifacts", "mlflow", rf"{_API}-artifacts/artifacts\?", CHECK),
    Target("mlflow: download", "mlflow", rf"{_API}-artifacts/artifacts/", CHECK),
    Target("mlflow: experiment", "mlflow", rf"{_API}/experiments/get-by-name", (*SWEEP, "--experiment", "one")),
    Target("mlflow: experiments", "mlflow", rf"{_API}/experiments/search", SWEEP, ("experiments", "next_page_token")),
    Target("mlflow: runs", "mlflow", rf"{_API}/runs/search", (*SWEEP, "--experiment", "one"), ("runs", "next_page_token")),
    Target("mlflow: version", "mlflow", rf"{_API}/model-versions/get\b", ("gate", "models:/net/1")),
    Target("mlflow: versions", "mlflow", rf"{_API}/model-versions/search", ("clear", "--dry-run", "models:/net"), ("model_versions", "next_page_token")),
    Target("mlflow: alias", "mlflow", rf"{_API}/registered-models/alias", ("gate", "models:/net@live")),
    Target("wandb: any", "wandb", r"\S+ /graphql", WANDB),
    Target("wandb: run", "wandb", r"(?s)\S+ /graphql .*\brunMetadata|\S+ /graphql .*historyKeys", WANDB),
    Target("wandb: history", "wandb", r"(?s)\S+ /graphql .*(sampledHistory|parquetHistory|history\()", WANDB),
    Target("wandb: artifacts", "wandb", r"(?s)\S+ /graphql .*query RunOutputArtifacts\b", WANDB, ("edges", "endCursor")),
    Target("wandb: files", "wandb", r"(?s)\S+ /graphql .*query ArtifactMembershipFiles\b", WANDB, ("edges", "endCursor")),
    Target("wandb: download", "wandb", r"GET /(storage|files)/", WANDB),
)  # fmt: skip


Honest = Callable[[Handler], tuple[int, bytes, dict[str, str]]]
"""Gives the status, the body, and the headers."""


def of_mlflow(handler: Handler) -> tuple[int, bytes, dict[str, str]]:
    """MLflow's server with one run, one experiment, and one version of a model."""
    status, content = _of_mlflow(handler)
    return status, content if isinstance(content, bytes) else json.dumps(content).encode(), {}


def _of_mlflow(handler: Handler) -> tuple[int, Any]:
    url = urlsplit(handler.path)
    asked = url.path.removeprefix("/api/2.0/").removeprefix("mlflow/")
    if asked == "mlflow-artifacts/artifacts":
        path = parse_qs(url.query).get("path", [""])[0]
        files = {"optimizer.pt": CHECKPOINT_BYTES, "train_log.jsonl": len(LOG)} if path.endswith("artifacts") else {}
        return 200, {"files": [{"path": name, "is_dir": False, "file_size": size} for name, size in files.items()]}
    if asked.startswith("mlflow-artifacts/"):
        return 200, LOG if asked.endswith("jsonl") else b"0" * CHECKPOINT_BYTES
    version = {"name": "net", "version": "1", "run_id": RUN, "source": f"mlflow-artifacts:/0/{RUN}/artifacts/model"}
    version |= {"creation_timestamp": 1, "last_updated_timestamp": 1, "status": "READY", "current_stage": "None"}
    found = {
        "experiments/get": {"experiment": EXPERIMENT},
        "experiments/get-by-name": {"experiment": EXPERIMENT},
        "experiments/search": {"experiments": [EXPERIMENT]},
        "runs/get": {"run": run_of_mlflow(RUN)},
        "runs/search": {"runs": [run_of_mlflow(RUN)]},
        "metrics/get-history": {"metrics": POINTS},
        "model-versions/get": {"model_version": version},
        "model-versions/search": {"model_versions": [version]},
        "registered-models/alias": {"model_version": version},
        "model-versions/get-download-uri": {"artifact_uri": version["source"]},
    }.get(asked)
    return (404, {"error_code": "RESOURCE_DOES_NOT_EXIST"}) if found is None else (200, found)


EXPERIMENT = {
    "experiment_id": "1",
    "name": "one",
    "lifecycle_stage": "active",
    "artifact_location": "mlflow-artifacts:/1",
}
POINTS = [{"key": "loss", "value": loss, "timestamp": 10**12 + step, "step": step} for step, loss in enumerate(LOSSES)]


def run_of_mlflow(name: str) -> dict[str, Any]:
    """A run that has ended a moment ago."""
    now = int(time.time() * 1000)
    info = {"run_id": name, "run_uuid": name, "run_name": "one", "experiment_id": "1", "status": "FINISHED"}
    info |= {"start_time": now - 9, "end_time": now, "lifecycle_stage": "active"}
    info["artifact_uri"] = f"mlflow-artifacts:/1/{name}/artifacts"
    return {"info": info, "data": {"metrics": [POINTS[-1]], "params": [], "tags": []}}


def _run_of_wandb(server: WandbServer) -> None:
    run = server.store.new_run("team", "proj", "run")
    run.history = [
        json.dumps({"_step": step, "_timestamp": 1.0 * step, "loss": loss}) for step, loss in enumerate(LOSSES)
    ]
    run.state, run.summary = "finished", {"loss": LOSSES[-1]}
    run.files |= {"optimizer.pt": Blob(b"0" * CHECKPOINT_BYTES), "train_log.jsonl": Blob(LOG)}
    made = server.store.new_artifact(run, "model", "net", "of run", ["latest"])
    entry = {"digest": Blob(LOG).md5, "birthArtifactID": made.id, "size": len(LOG)}
    server.store.blobs[_artifact_path(Blob(LOG).md5)] = Blob(LOG)
    made.manifest, made.state = Blob(json.dumps({"contents": {"more.jsonl": entry}}).encode()), "COMMITTED"


@dataclass
class Cost:
    """What a command came to. ``said``: how it ended, and its last line; ``asked``: how many requests it made."""

    target: str
    kind: str
    code: Any = None
    seconds: float = 0.0
    mebibytes: int = 0
    of_others: int = 0
    asked: int = 0
    met: int = 0
    said: str = ""
    wrong: list[str] = field(default_factory=list)


def cost_of(target: Target, kind: str, environment: Mapping[str, str] | None = None) -> Cost:
    """What the target's command takes in a process of its own, where its endpoint answers so; kind "" for well."""
    cost = Cost(target.name, kind or "well")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="servers-"))
        own, behind = _behind(target, folder, stack)
        elsewhere = stack.enter_context(serving(endless(200)))
        bad = _answer(kind, elsewhere, target, behind) if kind else None

        def answer(handler: Handler) -> None:
            cost.asked += 1
            asked = f"{handler.command} {handler.path} {handler.body.decode('utf-8', 'replace')}"
            is_meant = re.match(target.at, asked) is not None
            cost.met += is_meant
            if bad and is_meant:
                bad(handler)
                return
            status, body, headers = behind(handler)
            send(handler, status, body, **headers)

        uri = stack.enter_context(serving(answer))
        own |= {"WANDB_BASE_URL": uri} if target.of == "wandb" else {"MLFLOW_TRACKING_URI": uri}
        _measure(cost, target, folder, {**os.environ, **own, **(environment or {})})
    return cost


def _behind(target: Target, folder: str, stack: ExitStack) -> tuple[dict[str, str], Honest]:
    """The environment of a client, and what is answered where all is well."""
    if target.of == "mlflow":
        return {}, of_mlflow
    from tests.stores.faulty_proxy import Proxy

    server = stack.enter_context(WandbServer())
    _run_of_wandb(server)
    proxy = Proxy(server.url)  # is never started: it asks the server

    def answer(handler: Handler) -> tuple[int, bytes, dict[str, str]]:
        status, headers, body = proxy.answer_of(handler.command, handler.path, handler.headers, handler.body)
        body = body.replace(server.url.encode(), f"http://{handler.headers['Host']}".encode())
        return status, body, {name.replace("-", "_"): value for name, value in headers.items()}

    return server.environment(Path(folder)), answer


def _answer(kind: str, elsewhere: str, target: Target, behind: Honest) -> Answer:
    if kind in PAGES:
        return _pages(kind, target) if target.of == "mlflow" else _pages_of_wandb(kind, behind)
    return {
        "endless body": lambda: endless(200),
        "endless 500": lambda: endless(500),
        "gzip bomb": lambda: bomb("gzip"),
        "deflate bomb": lambda: bomb("deflate"),
        "drips": lambda: dripping,
        "stalls": lambda: stalling,
        "a page": lambda: page,
        "to itself": lambda: to_itself,
        "to another host": lambda: to_another(elsewhere),
        "to file://": lambda: to_a_file,
    }[kind]()


def _pages(kind: str, target: Target) -> Answer:
    assert target.listed
    name, token = target.listed
    numbers = itertools.count()

    def answer(handler: Handler) -> None:
        number = next(numbers)
        _, whole = _of_mlflow(handler)
        listed = [] if kind == "empty pages" else whole[name]
        if kind == "the same token" and name == "runs":
            listed = [run_of_mlflow(f"{number:032x}")]
        following = "again" if kind == "the same token" else f"token {number}"
        send(handler, body=json.dumps({name: listed, token: following}).encode())

    return answer


def _pages_of_wandb(kind: str, behind: Honest) -> Answer:
    numbers = itertools.count()

    def turned(found: Any, following: str) -> Any:
        if isinstance(found, list):
            return [turned(one, following) for one in found]
        if not isinstance(found, dict):
            return found
        page = {name: turned(value, following) for name, value in found.items()}
        if "pageInfo" in page:
            page["pageInfo"] |= {"hasNextPage": True, "endCursor": following}
            page["edges"] = [] if kind == "empty pages" else page["edges"]
        return page

    first: list[Any] = []

    def answer(handler: Handler) -> None:
        first[:] = first or [json.loads(behind(handler)[1])]
        following = "1" if kind == "the same token" else f"{next(numbers)}"
        send(handler, body=json.dumps(turned(first[0], following)).encode())

    return answer


def _measure(cost: Cost, target: Target, folder: str, environment: Mapping[str, str]) -> None:
    command = [sys.executable, "-c", MEASURED, *target.command]
    path = os.pathsep.join([str(ROOT / "src"), environment.get("PYTHONPATH", "")])
    environment = {**environment, "HOME": folder, "PYTHONPATH": path, "MLFLOW_DISABLE_TELEMETRY": "true"}
    try:
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=GIVEN_UP_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        cost.seconds = GIVEN_UP_SECONDS
        cost.wrong.append("it did not end")
        return
    *_, last = done.stdout.strip().splitlines() or [""]
    try:
        cost.code, cost.seconds, cost.mebibytes, cost.of_others = json.loads(last)
    except ValueError:
        cost.wrong.append(f"it died: {done.returncode} {done.stderr[-300:]}")
        return
    lines = [line for line in (done.stdout + done.stderr).splitlines()[:-1] if line.strip()]
    cost.said = " ".join((done.stderr.strip() or done.stdout.strip()).split())[:600]
    if "Traceback" in done.stderr or not isinstance(cost.code, int) or not lines:
        cost.wrong.append(f"it said {cost.code} {done.stderr[-300:]!r}")


def judge(cost: Cost, well: Cost) -> Cost:
    """What was wrong with it, beside that of a server on which all is well."""
    if not cost.met:
        cost.wrong.append("nothing was asked of that endpoint")
    if cost.mebibytes - well.mebibytes > MOST_MIB:
        cost.wrong.append("memory")
    if cost.of_others - well.of_others > MOST_CORE_MIB:
        cost.wrong.append("memory of W&B's core process")
    if cost.seconds - well.seconds > MOST_SECONDS:
        cost.wrong.append("time")
    return cost


def line_of(cost: Cost) -> str:
    """Of the table."""
    return (
        f"{cost.target:20} {cost.kind:16} {cost.code!s:>4} {cost.seconds:6.1f} s {cost.mebibytes:5} MB "
        f"{cost.of_others:6} MB {cost.asked:5} {cost.met:5}  {', '.join(cost.wrong) or 'ok'}"
    )


def main() -> int:
    """All that was asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.servers", description=__doc__)
    parser.add_argument("--target", action="append", default=[], choices=[one.name for one in TARGETS])
    parser.add_argument("--kind", action="append", default=[], choices=[*KINDS, *PAGES])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--said", action="store_true", help="also what each said")
    options = parser.parse_args()
    targets = [one for one in TARGETS if one.name in options.target or not options.target]
    cells = [(one, kind) for one in targets for kind in one.kinds() if kind in options.kind or not options.kind]
    print(f"{'endpoint':20} {'answers':16} {'code':>4} {'time':>8} {'memory':>8} {'core':>9} {'asked':>5} {'there':>5}")
    wrong = 0
    with ThreadPoolExecutor(options.workers) as pool:
        well = dict(zip(targets, pool.map(lambda one: cost_of(one, ""), targets), strict=True))
        for one in well.values():
            print(line_of(one), *[f"\n    {one.said}"] * options.said, flush=True)
        for (target, _), cost in zip(cells, pool.map(lambda cell: cost_of(*cell), cells), strict=True):
            judge(cost, well[target])
            wrong += bool(cost.wrong)
            print(line_of(cost), *[f"\n    {cost.said}"] * (options.said or bool(cost.wrong)), flush=True)
    print(f"{len(cells) - wrong} of {len(cells)} within {MOST_MIB} MB and {MOST_SECONDS} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
