"""Every way in which a run of W&B ends, with the real SDK, offline and on a server of this machine."""

from __future__ import annotations

import signal

import pytest

from ..wandb_server import WandbServer  # noqa: TID252  tests are no package of a name

pytestmark = pytest.mark.slow

pytest.importorskip("wandb")

LOG = """
import os, signal, sys, time, tracker_health, wandb
def log(run, diverges=False):
    for step in range(60):
        run.log({"loss": 2.3 * (1.05 if diverges else 0.95) ** step + 0.01 * (step % 3)})
"""
AUTOLOG = "import tracker_health; tracker_health.autolog()\n"
# Of a run that is killed, only whole blocks of 32 KiB are there.
UP_TO_DISK = "log(run)\nfor step in range(900): run.log({'other': step})\ntime.sleep(1)\n"
IN_ONE_PROCESS = (
    AUTOLOG
    + LOG
    + """
run = wandb.init(project="p", name="finished")
log(run)
wandb.finish()
for name, error in (("with", None), ("raised", ValueError), ("interrupted", KeyboardInterrupt)):
    try:
        with wandb.init(project="p", name=name) as run:
            log(run, diverges=name == "raised")
            if error is KeyboardInterrupt:
                os.kill(os.getpid(), signal.SIGINT)
            if error:
                raise error
    except (ValueError, KeyboardInterrupt):
        print(name)
log(wandb.init(project="p", name="another came"))
log(wandb.init(project="p", name="left open", reinit="finish_previous"))
wandb.init(mode="disabled", reinit="create_new").finish()
print("to the end")
sys.exit(3)
"""
)


def test_all_ways_of_ending(workplace):
    code, out, err = workplace.train(IN_ONE_PROCESS)
    assert (code, out) == (3, "raised\ninterrupted\nto the end\n")
    logs = workplace.wandb_logs()
    verdicts = {name: (log.own["health/verdict"], log.exit_code) for name, log in logs.items()}
    assert verdicts == {
        "finished": ("pass", 0),
        "with": ("pass", 0),
        "raised": ("fail", 1),
        "interrupted": ("warn", 1),
        "another came": ("pass", 0),
        "left open": ("fail", 3),
    }
    ended = {name: log.own["health/ended"] for name, log in logs.items()}
    assert ended == {
        "finished": "finished",
        "with": "finished",
        "raised": "failed",
        "interrupted": "interrupted",
        "another came": "finished",
        "left open": "failed",
    }
    told = [line.split(": ")[2] for line in err.splitlines() if line.startswith("tracker-health: provisional: ")]
    assert told == [
        "PASS finished",
        "PASS with",
        "FAIL raised",
        "WARN interrupted",
        "PASS another came",
        "FAIL left open",
    ]


@pytest.mark.exhaustive
def test_an_error_that_nobody_catches_after_a_late_hook(workplace):
    """Switched on when the run is there already: nobody waits for the verdict, and it is on the run all the same.

    W&B keeps what was printed: the exception is in it.
    """
    script = LOG + "run = wandb.init(project='p', name='late')\n" + AUTOLOG + "log(run)\nraise ValueError('mine')\n"
    code, out, err = workplace.train(script)
    assert (code, out) == (1, "")
    assert err.count("ValueError: mine") == 1
    log = workplace.wandb_logs()["late"]
    assert (log.own["health/verdict"], log.own["health/codes"], log.exit_code) == ("fail", "RUN004", 1)


@pytest.mark.parametrize(
    ("end", "code", "cause", "verdict"),
    [
        ("os._exit(5)", 5, "exit code 5", ("fail", "RUN004", "failed")),
        (
            "os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM, "SIGTERM",
            ("warn", "RUN003", "interrupted"),
        ),
    ],
)  # fmt: skip
@pytest.mark.exhaustive
def test_ends_that_only_the_launcher_sees(workplace, end, code, cause, verdict):
    """SIGTERM goes to the launcher, as a scheduler sends it, who passes it on."""
    script = f"{LOG}\nrun = wandb.init(project='p', name='died')\n{UP_TO_DISK}print('trained', flush=True)\n{end}\n"
    ended, out, err = workplace.execute(script)
    assert (ended, out) == (code, "trained\n")
    log = workplace.wandb_logs()["died"]
    assert log.exit_code is None
    codes = log.own["health/codes"].split(",")
    assert (log.own["health/verdict"], codes[0], log.own["health/ended"]) == verdict
    assert cause in log.own["health/summary"]
    assert f"tracker-health: {verdict[0].upper()} died: " in err


@pytest.mark.exhaustive
def test_runs_on_a_server(workplace):
    script = AUTOLOG + LOG + "log(wandb.init(project='p', id='one'), diverges=True); wandb.finish()\n"
    script += "log(wandb.init(project='p', id='two'))\nprint('end')\n"
    with WandbServer() as server:
        code, out, err = workplace.train(script, **server.environment(workplace.folder), WANDB_MODE="online")
        assert (code, out) == (0, "end\n"), err
        assert server.errors == []
        runs = {name: server.run(f"team/p/{name}") for name in ("one", "two")}
        assert [sorted(run.tags) for run in runs.values()] == [["health:fail"], ["health:pass"]]
    assert f"({server.url}/team/p/runs/one)" in err


@pytest.mark.exhaustive
def test_a_killed_run_on_a_server(workplace):
    script = LOG + "log(wandb.init(project='p', id='killed'))\ntime.sleep(1)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    with WandbServer() as server:
        code, out, err = workplace.execute(script, **server.environment(workplace.folder), WANDB_MODE="online")
        assert (code, out) == (-signal.SIGKILL, ""), err
        assert list(server.run("team/p/killed").tags) == ["health:fail"], err
