"""The command line as people and CI jobs meet it: what is printed where, and which exit code."""

import contextvars
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tracker_health import terminal
from tracker_health.cli import cli
from tracker_health.stores.remote.progress import display


@pytest.fixture
def run():
    def invoke(*arguments, stdin=None):
        return CliRunner().invoke(cli, [str(one) for one in arguments], input=stdin, catch_exceptions=False)

    return invoke


@pytest.fixture
def healthy(write_log, healthy_losses):
    return write_log(healthy_losses, folder="healthy")


@pytest.fixture
def sick(write_log, healthy_losses):
    return write_log([*healthy_losses[:100], *[math.nan] * 100], folder="sick")


def reports(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_healthy_folder_passes(run, healthy):
    result = run("check", healthy)
    assert result.exit_code == 0
    assert "PASS" in result.stdout
    assert result.stderr == ""


def test_a_sick_folder_fails_with_reason_and_remedy(run, sick):
    result = run("check", sick)
    assert result.exit_code == 1
    assert "non-finite-loss" in result.stdout
    assert "LOS001" in result.stdout
    assert "step 101" in result.stdout
    assert "restart from the last checkpoint before step 101" in result.stdout


@pytest.mark.parametrize(
    ("fail_on", "healthy_code", "sick_code", "skip_code"),
    [("fail", 0, 1, 0), ("warn", 0, 1, 0), ("skip", 0, 1, 1), ("never", 0, 0, 0)],
)
def test_fail_on(run, healthy, sick, write_log, fail_on, healthy_code, sick_code, skip_code):
    nothing = write_log([], folder="skipped")
    (nothing / "train_log.jsonl").write_text('{"step": 1, "gpu": 0.5}\n{"step": 2, "gpu": 0.6}\n')
    codes = [run("check", folder, "--fail-on", fail_on).exit_code for folder in (healthy, sick, nothing)]
    assert codes == [healthy_code, sick_code, skip_code]


def test_json_is_one_valid_report_a_line(run, healthy, sick, valid_report):
    result = run("check", "--json", healthy, sick)
    documents = reports(result)
    for document in documents:
        valid_report(document)
    assert [document["verdict"] for document in documents] == ["pass", "fail"]
    assert documents[0]["run"] == {"store": "directory", "id": str(healthy), "name": "healthy", "url": None}


def test_one_bad_run_never_stops_the_others(run, healthy, tmp_path, valid_report):
    missing = tmp_path / "missing"
    result = run("check", "--json", missing, healthy)
    assert result.exit_code == 3
    bad, good = reports(result)
    valid_report(bad)
    assert (bad["verdict"], good["verdict"]) == ("error", "pass")
    assert f"no folder or file {missing}" in result.stderr
    assert "try:" in result.stderr


def test_3_wins_over_1(run, sick, tmp_path):
    assert run("check", sick, tmp_path / "missing", "--fail-on", "fail").exit_code == 3


def test_a_list_on_standard_input(run, healthy, sick):
    result = run("check", "-", "--json", stdin=f"# two runs\n{healthy}\n\n  {sick}\n  # {healthy}\n")
    assert [document["verdict"] for document in reports(result)] == ["pass", "fail"]


@pytest.mark.parametrize("stdin", ["", "\n \n", "# a comment\n"])
def test_an_empty_list_is_wrong_usage(run, stdin):
    result = run("check", "-", stdin=stdin)
    assert result.exit_code == 2
    assert "no run was given" in result.stderr


def test_a_pass_says_why_on_its_first_line(run, healthy):
    lines = run("check", healthy).stdout.splitlines()
    assert lines[0].startswith("PASS   healthy: loss ")
    assert lines[0].endswith(" checks")
    assert [line.split()[0] for line in lines[1:]] == ["curve", "judged"]
    assert "skipped" not in "".join(lines)


def test_a_skip_says_why_on_its_line(run, write_log):
    skipped = write_log([1.0], folder="skipped")
    for runs in (1, 7):
        shown = " ".join(run("check", *[skipped] * runs).stdout.split())
        assert "nothing here shows whether training worked: only 1 point of train loss, 4 are needed" in shown


def test_a_configured_role_that_matches_nothing_is_said(run, healthy, valid_report):
    setting = ("--set", "roles.grad_norm=my/grads")
    note = "roles.grad_norm matches no metric: configured: my/grads; seen: loss"
    assert f"  note     {note}\n" in run("check", healthy, *setting).stdout
    assert f"({note})" in run("check", *[healthy] * 7, *setting).stdout.splitlines()[0]
    (document,) = reports(run("check", "--json", healthy, *setting))
    valid_report(document)
    assert (document["verdict"], document["notes"]) == ("pass", [note])


@pytest.mark.parametrize("command", ["probes", "explain"])
def test_commands_that_load_plugins_say_how_not_to(run, command):
    assert "TRACKER_HEALTH_PLUGINS=0" in run(command, "--help").stdout


def test_quiet_prints_nothing_but_errors(run, sick, tmp_path):
    assert run("check", "-q", sick).stdout == ""
    assert "missing" in run("check", "-q", tmp_path / "missing").stderr


def test_many_runs_are_a_line_each(run, healthy):
    result = run("check", *[healthy] * 7)
    assert len(result.stdout.splitlines()) == 7


def test_verbose_says_why_rules_were_skipped(run, healthy):
    result = run("check", "-v", healthy)
    assert "skipped OPT002" in result.stdout
    assert "no optimizer state was found" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "dlmm"], "did you mean dlm"),
        (["--select", "LOS0001"], "did you mean LOS001"),
        (["--ignore", "loss-drift"], "there is no rule 'loss-drift'"),
        (["--set", "rules.divergd.sigmas=4"], "did you mean diverged"),
        (["--set", "rules.diverged.sigma=4"], "did you mean sigmas"),
        (["--set", "rules.diverged.sigmas=-1"], "must be at least 0"),
        (["--set", "rules.diverged.sigmas=much"], "is no number"),
        (["--set", "rules.unstable-loss.repeated=8.5"], "must be a whole number"),
        (["--set", "nonsense"], "does not parse"),
        (["--set", "roles.train_los=x"], "did you mean train_loss"),
        (["--set", "roles.train_loss=health/loss"], "names under health/ are this tool's own and are never read back"),
        (["--select", "LOS0O1"], "there is no rule 'LOS0O1'"),
        (["--max-download", "lots"], "is no size"),
    ],
)
def test_wrong_configuration_is_told_with_a_way_out(run, healthy, arguments, message):
    result = run("check", healthy, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_a_threshold_and_a_role_can_be_set(run, tmp_path):
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    lines = [json.dumps({"step": step, "my_objective": 2.0 - 0.01 * step}) for step in range(100)]
    (run_folder / "log.jsonl").write_text("\n".join(lines))
    assert json.loads(run("check", "--json", run_folder).stdout)["verdict"] == "skip"
    document = json.loads(
        run(
            "check", "--json", run_folder, "--set", "roles.train_loss=my_objective", "--set", "rules.diverged.sigmas=6"
        ).stdout
    )
    assert document["verdict"] == "pass"
    (diverged,) = [result for result in document["results"] if result["name"] == "diverged"]
    assert diverged["thresholds"]["sigmas"] == 6


def test_select_and_ignore(run, healthy):
    selected = json.loads(run("check", "--json", healthy, "--select", "LOS001", "--select", "no-progress").stdout)
    assert {result["code"] for result in selected["results"]} == {"LOS001", "LOS005"}
    ignored = json.loads(run("check", "--json", healthy, "--ignore", "LOS001").stdout)
    assert "LOS001" not in {result["code"] for result in ignored["results"] + ignored["skipped"]}


def damaged(folder: Path, kind: str) -> Path:
    """A run folder of which something cannot be read."""
    folder.mkdir()
    rows = [{"step": step, "loss": 2.0 * 0.97**step, "grad_norm": 1.0} for step in range(100)]
    log = "\n".join(json.dumps(row) for row in rows)
    match kind:
        case "empty folder":
            return folder
        case "truncated .pt":
            (folder / "log.jsonl").write_text(log)
            with zipfile.ZipFile(folder / "optimizer.pt", "w") as archive:
                archive.writestr("optimizer/data.pkl", b"\x80\x02}q\x00." * 200)
            content = (folder / "optimizer.pt").read_bytes()
            (folder / "optimizer.pt").write_bytes(content[: len(content) // 2])
        case "foreign .pt":
            (folder / "log.jsonl").write_text(log)
            (folder / "training_state.pt").write_bytes(b"GIF89a" + bytes(1000))
        case "JSONL cut in the middle":
            (folder / "log.jsonl").write_text(log[: len(log) // 2])
        case "trainer_state.json that is none":
            (folder / "log.jsonl").write_text(log)
            (folder / "trainer_state.json").write_text('{"weights": [1, 2]}')
    return folder


@pytest.mark.parametrize(
    ("kind", "said", "still_judged"),
    [
        ("empty folder", "it is empty", False),
        ("truncated .pt", "optimizer.pt: it is not a whole zip file", True),
        ("foreign .pt", "training_state.pt: it is not a whole zip file", True),
        ("JSONL cut in the middle", "log.jsonl: line", True),
        ("trainer_state.json that is none", "trainer_state.json: it is no trainer state", True),
    ],
)
def test_bad_input_is_told_and_the_rest_is_judged(run, healthy, tmp_path, valid_report, kind, said, still_judged):
    folder = damaged(tmp_path / "damaged", kind)
    result = run("check", "--json", folder, healthy)
    assert result.exit_code == 3
    bad, good = reports(result)
    valid_report(bad)
    assert good["verdict"] == "pass"
    assert said in result.stderr
    assert any(error["code"] is None for error in bad["errors"])
    judged = {entry["code"]: entry["verdict"] for entry in bad["results"]}
    assert (judged.get("LOS005") == "pass") is still_judged
    shown = run("check", folder)
    assert said.split(": ")[-1] in " ".join(shown.stdout.split())
    assert "Traceback" not in shown.output


def test_a_run_id_that_is_none_says_how_to_write_one(run):
    result = run("check", "no-such-run")
    assert result.exit_code == 3
    assert "neither a folder here nor an MLflow run id" in result.stderr


def test_annotating_a_folder_twice_reads_and_writes_once(run, healthy, monkeypatch):
    first = run("annotate", healthy)
    assert "written onto the run" in first.stdout
    before = {path: path.stat().st_mtime_ns for path in (healthy / "health").iterdir()}
    monkeypatch.setattr(
        "tracker_health.stores.folder.directory.read_files", lambda *_, **__: pytest.fail("evidence was read")
    )
    second = run("annotate", healthy)
    assert second.exit_code == 0
    assert "unchanged since the last annotation: not judged again" in " ".join(second.stdout.split())
    assert {path: path.stat().st_mtime_ns for path in (healthy / "health").iterdir()} == before


def test_force_judges_again(run, healthy):
    run("annotate", healthy)
    assert "written onto the run" in run("annotate", "--force", healthy).stdout


def test_a_changed_run_is_judged_again(run, healthy):
    run("annotate", healthy)
    with (healthy / "train_log.jsonl").open("a") as log:
        log.write('{"step": 201, "loss": NaN}\n')
    result = run("annotate", healthy, "--json")
    assert reports(result)[0]["verdict"] == "fail"


@pytest.mark.parametrize("edited", ["pass", "skip", "nonsense", None])
def test_a_verdict_that_was_edited_by_hand_is_judged_and_written_again(run, sick, edited):
    run("annotate", sick)
    file = sick / "health" / "annotation.json"
    ours = file.read_text()
    file.write_text(json.dumps(json.loads(ours) | {"verdict": edited}))
    result = run("annotate", sick)
    assert "FAIL" in result.stdout
    assert "written onto the run" in result.stdout
    assert file.read_text() == ours
    assert "not judged again" in run("annotate", sick).stdout


def test_another_configuration_judges_again(run, healthy):
    run("annotate", healthy)
    assert "written onto the run" in run("annotate", healthy, "--ignore", "LOS004").stdout


def test_a_dry_run_writes_nothing(run, sick):
    result = run("annotate", "--dry-run", sick)
    assert result.exit_code == 0
    assert "nothing was written" in result.stdout
    assert "FAIL" in result.stdout
    assert not (sick / "health").exists()


def test_annotate_fails_only_when_asked(run, sick):
    assert run("annotate", sick).exit_code == 0
    assert run("annotate", sick, "--force", "--fail-on", "fail").exit_code == 1
    assert run("annotate", sick, "--fail-on", "fail").exit_code == 1, "an unchanged run keeps its verdict"


def test_hostile_names_are_inert_in_the_terminal(run, tmp_path):
    folder = tmp_path / "a\x1b[31m\u202ereverse"
    folder.mkdir()
    (folder / "log\x1b[2J.jsonl").write_text('{"step": 1, "\\u001b[31mloss": 2}\n{"step"')
    result = run("check", "-v", folder)
    assert "\x1b" not in result.output
    assert "\u202e" not in result.output


@pytest.mark.parametrize("code", ["LOS004", "los004", "diverged"])
def test_explain_in_short(run, code):
    result = run("explain", code)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) <= 40
    for heading in ("How it decides", "Settings", "What to do"):
        assert heading in lines
    assert lines[-1] == "More: tracker-health explain LOS004 --full"


@pytest.mark.parametrize("code", ["LOS004", "los004", "diverged"])
def test_explain_in_full(run, code):
    result = run("explain", "--full", code)
    assert result.exit_code == 0
    for heading in (
        "Why it matters",
        "How it decides",
        "What to do",
        "When it is wrong",
        "How often it is right",
        "Settings",
        "See also",
    ):
        assert heading in result.stdout


def test_explain_of_nothing_known(run):
    result = run("explain", "LOS04")
    assert result.exit_code == 2
    assert "did you mean" in result.stderr


def test_probes_lists_every_rule(run):
    from tracker_health.rules.registry import BUILT_IN

    lines = run("probes").stdout.splitlines()
    assert len(lines) == len(BUILT_IN)
    records = [json.loads(line) for line in run("probes", "--json").stdout.splitlines()]
    assert {record["code"] for record in records if not record["votes"]} == {
        "LOS101",
        "OPT101",
        "RUN007",
    }


def test_a_bug_in_our_own_code_is_one_line_without_v(run, healthy, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("tracker_health.stores.folder.directory.read_files", broken)
    result = run("check", healthy)
    assert result.exit_code == 3
    assert "unexpected ZeroDivisionError: oops" in result.stderr
    assert "Traceback" not in result.output
    assert "Traceback" in run("check", "-v", healthy).stderr


COMMAND = [sys.executable, "-m", "tracker_health"]


def process(*arguments, **environment):
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment}, check=False
    )


def shell(script, *arguments, **environment):
    """A script of bash in which $tool is the command line and $1 the first argument."""
    script = f'tool() {{ {sys.executable} -m tracker_health "$@"; }}; {script}'
    return subprocess.run(
        ["bash", "-c", script, "bash", *map(str, arguments)],
        capture_output=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.slow
def test_a_real_process_prints_plain_text_into_a_pipe(sick):
    done = process("check", sick)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error(sick):
    done = shell("tool check -v $1 $1 $1 | head -n 1", sick)
    assert done.stderr == b""


@pytest.fixture
def runs(write_log, healthy_losses):
    return [write_log(healthy_losses, folder=name) for name in "abc"]


@pytest.mark.parametrize("option", ["", "--json"])
@pytest.mark.thinned(2)
@pytest.mark.slow
def test_runs_are_annotated_when_nobody_reads_the_output(runs, tmp_path, option):
    done = shell(f"tool annotate {option} $@ {tmp_path}/missing | true; exit ${{PIPESTATUS[0]}}", *runs)
    assert [(folder / "health" / "annotation.json").exists() for folder in runs] == [True] * 3
    assert done.returncode == 3
    assert done.stderr.count(b"\n") == 2, "the missing run, and what to try"
    assert b"missing" in done.stderr


@pytest.mark.slow
def test_runs_are_annotated_when_the_output_does_not_fit_on_the_disk(runs):
    done = shell("tool annotate $@ > /dev/full", *runs)
    assert [(folder / "health" / "annotation.json").exists() for folder in runs] == [True] * 3
    assert done.returncode == 3
    assert done.stderr == b"tracker-health: standard output: No space left on device\n"


@pytest.mark.parametrize(
    "command", ["check $1", "check --json $1 $1", "--help", "check --help", "probes", "explain LOS001"]
)
@pytest.mark.thinned(3)
@pytest.mark.slow
def test_a_full_disk_is_one_line(healthy, command):
    done = shell(f"tool {command} > /dev/full", healthy)
    assert done.returncode == 3
    assert done.stderr.count(b"\n") == 1
    assert b"No space left on device" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirections", "code"),
    [
        (">&-", 1),
        (">&- 2>&-", 1),
        ("<&- >&- 2>&-", 1),
        ("2>/dev/full", 3),
        (">/dev/full 2>&1", 3),
        ("2>&1 | true", None),
    ],
)
@pytest.mark.thinned(3)
def test_streams_that_are_closed_or_full_change_nothing_else(sick, tmp_path, redirections, code):
    missing = tmp_path / "missing" if code != 1 else ""
    done = shell(f"tool check $@ {redirections}", sick, *([missing] if missing else []))
    assert code is None or done.returncode == code
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr


@pytest.mark.slow
def test_a_closed_output_is_not_given_to_the_next_file(healthy):
    """A file that got the number of standard output would hold whatever a library prints there."""
    script = "import os, sys; from tracker_health.cli import main\ntry: main()\nfinally: print(os.open('/', 0), file=sys.stderr)"
    done = subprocess.run(
        ["bash", "-c", '"$@" <&- >&-', "bash", sys.executable, "-c", script, "check", healthy],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert int(done.stderr) > 2


@pytest.mark.slow
def test_a_list_from_a_closed_standard_input_is_wrong_usage(healthy):
    done = shell("tool check - <&-")
    assert done.returncode == 2
    assert b"standard input, which is closed" in done.stderr


@pytest.mark.slow
def test_a_list_may_hold_names_that_are_no_text(healthy):
    name = os.fsencode(healthy.parent) + b"/gr\xf6sse"
    healthy.rename(os.fsdecode(name))
    done = subprocess.run([*COMMAND, "check", "-"], input=name + b"\n", capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "ascii:strict", "utf-8:strict"])
@pytest.mark.thinned(4)
@pytest.mark.slow
def test_a_terminal_that_lacks_our_characters(tmp_path, sick, encoding):
    folder = sick.rename(tmp_path / "損失…→")
    done = shell("tool check $1 $1x", folder, PYTHONIOENCODING=encoding)
    assert done.returncode == 3
    assert b"restart from the last checkpoint" in done.stdout
    assert b"no folder" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("folder", ["file", "file/below", "/proc/xx", "nul\x00l"])
def test_a_demo_that_can_write_nowhere(run, tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    result = run("demo", folder)
    assert result.exit_code == 3
    assert result.stdout == ""
    said, hint = result.stderr.splitlines()
    assert said.startswith(f"tracker-health: {folder.replace(chr(0), '?')}: ")
    assert "try: give a folder" in hint


def interrupted(arguments, when, **environment):
    """A real process, sent SIGINT once it has said ``when``: exit code and what it said on standard error."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # where it is ignored, the child would ignore it
    try:
        child = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **environment},
        )
    finally:
        signal.signal(signal.SIGINT, before)
    said = []
    with child:
        for line in child.stdout:
            said.append(line)
            if when in line:
                child.send_signal(signal.SIGINT)
                break
        said += child.stdout.readlines()
    return child.returncode, said


def test_ctrl_c_while_it_starts(tmp_path, healthy):
    (tmp_path / "click.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    code, said = interrupted(["check", healthy], "importing", PYTHONPATH=str(tmp_path))
    assert (code, said) == (130, ["importing\n", "tracker-health: interrupted\n"])


def test_ctrl_c_before_the_first_run(tmp_path, healthy):
    (tmp_path / "numpy.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    code, said = interrupted(["check", healthy], "importing", PYTHONPATH=str(tmp_path))
    assert (code, said) == (130, ["importing\n", "tracker-health: interrupted\n"])


@pytest.mark.slow
def test_ctrl_c_in_the_loop(healthy):
    code, said = interrupted(["check", *[healthy] * 5000], "PASS")
    assert code == 130
    *passed, last = said
    assert all("PASS" in line for line in passed)
    assert last.startswith("tracker-health: interrupted after ")


@pytest.mark.exhaustive
def test_ctrl_c_in_the_demo(tmp_path):
    code, said = interrupted(["demo", tmp_path / "store"], "training")
    assert code == 130
    assert said[-1] == "tracker-health: interrupted\n"
    assert not any("Traceback" in line for line in said)


@pytest.mark.parametrize("command", ["check", "annotate"])
def test_what_escapes_a_command_is_one_line_without_v(run, healthy, monkeypatch, command):
    def broken(*_, **__):
        raise ZeroDivisionError("oops\x1b[2J")

    monkeypatch.setattr("tracker_health.settings.sources.effective", broken)
    result = run(command, healthy)
    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        "tracker-health: unexpected ZeroDivisionError: oops?[2J",
        "  try: -v shows the traceback; please report it",
    ]
    verbose = run(command, "-v", healthy).stderr
    assert "Traceback" in verbose
    assert "\x1b" not in verbose


def test_an_error_of_the_operating_system_is_told_in_its_words(run, monkeypatch):
    def broken():
        raise OSError(5, "Input/output error", "/mnt/share")

    monkeypatch.setattr("tracker_health.rules.registry.probe_classes", broken)
    result = run("probes")
    assert (result.exit_code, result.stderr) == (3, "tracker-health: /mnt/share: Input/output error\n")


def test_a_summary_in_markdown_names_the_run_that_could_not_be_read(run, healthy, tmp_path):
    result = run("check", "--format", "markdown", healthy, tmp_path / "gone")
    assert result.exit_code == 3
    assert "### PASS healthy" in result.stdout
    assert re.search(r"^### ERROR .*gone$", result.stdout, re.MULTILINE)


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_result_that_cannot_be_shown_never_stops_the_others(run, healthy, sick, monkeypatch, valid_report, option):
    from tracker_health.report import result as results

    to_json, lines = results.Report.to_json, "tracker_health.render.console.report_lines"

    def broken(report, *_, **__):
        if report.verdict == "pass":
            raise TypeError("object has no JSON form")
        return to_json(report) if option else [str(report.verdict)]

    monkeypatch.setattr(results.Report, "to_json", broken) if option else monkeypatch.setattr(lines, broken)
    result = run("check", *option, healthy, sick)
    assert result.exit_code == 3
    assert f"{healthy}: unexpected TypeError: object has no JSON form" in result.stderr
    if option:
        bad, good = reports(result)
        valid_report(bad)
        assert (bad["verdict"], good["verdict"]) == ("error", "fail")
        assert bad["run"]["id"] == bad["errors"][0]["source"] == str(healthy)
    else:
        assert result.stdout == "fail\n"


def test_a_long_list_on_standard_input_is_a_line_each(run, healthy):
    result = run("check", "-", stdin=f"{healthy}\n\n" * 7)
    assert len(result.stdout.splitlines()) == 7


@pytest.mark.parametrize("text", ["x" * 20_000, "a\n" * 1_000_001], ids=["one endless line", "too many lines"])
def test_a_stream_that_is_no_list_of_runs(run, text):
    result = run("check", "-", stdin=text)
    assert result.exit_code == 2
    assert "this is no list of runs" in result.stderr


@pytest.mark.parametrize("option", [[], ["--json"], ["-v"], ["-q"]])
def test_a_url_never_shows_its_secrets(run, option):
    url = "https://me:s3cr3t@tracking.example:5000/path?token=s3cr3t#/experiments/1/runs/abc?auth=s3cr3t"
    result = run("check", *option, url)
    assert result.exit_code == 3
    assert "s3cr3t" not in result.output
    assert "me:" not in result.output
    assert (
        "https://tracking.example:5000/path#/experiments/1/runs/abc is not the address of an MLflow run page"
        in result.stderr
    )
    assert "give the run id" in result.stderr


def test_an_unchanged_run_says_where_its_report_is(run, healthy, sick, write_log, valid_report):
    unchanged, skipped = "unchanged since the last annotation: not judged again", write_log([1.0], folder="skipped")
    run("annotate", healthy, sick, skipped)
    for document in reports(run("annotate", "--json", healthy, sick)):
        valid_report(document)
        assert document["summary"].endswith(f"({unchanged}; its report is in health/report.json)")
    (document,) = reports(run("annotate", "--json", skipped))
    assert document["verdict"] == "skip"
    assert document["summary"].endswith(f"({unchanged})"), "a run with nothing to judge has no report"


def without_privileges(action):
    """What an action returns in a child process that may write nowhere but where everybody may."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            os.write(writer, json.dumps(action()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer)


def let_everybody_look_into(folder):
    temporary = Path(tempfile.gettempdir()).resolve()
    for one in (folder, *folder.resolve().parents):
        if one.is_relative_to(temporary) and one != temporary:
            one.chmod(0o755)


def test_no_permission_to_write(run, healthy):
    run("check", healthy)  # imports everything, so that the child need not read the installation
    let_everybody_look_into(healthy)

    def annotate():
        result = run("annotate", healthy)
        return result.exit_code, result.stderr

    exit_code, stderr = without_privileges(annotate)
    assert exit_code == 3
    assert "no permission to write there" in stderr


def test_no_permission_to_read(run, healthy):
    run("check", healthy)
    let_everybody_look_into(healthy)
    (healthy / "train_log.jsonl").chmod(0o000)

    def check():
        result = run("check", healthy)
        return result.exit_code, result.output

    exit_code, output = without_privileges(check)
    assert exit_code == 3
    assert "train_log.jsonl" in output
    assert "Traceback" not in output


def test_no_permission_to_look_into_a_folder_above(run, healthy):
    run("check", healthy)
    let_everybody_look_into(healthy)
    above = healthy.parent / "above"
    (above / "run").mkdir(parents=True)
    above.chmod(0o000)

    def check():
        result = run("check", "--json", above / "run", healthy)
        return result.exit_code, result.stdout, result.stderr

    exit_code, stdout, stderr = without_privileges(check)
    above.chmod(0o755)
    assert exit_code == 3
    assert "no permission" in stderr
    assert "no folder" not in stderr
    assert [json.loads(line)["verdict"] for line in stdout.splitlines()] == ["error", "pass"]


def test_clear_takes_the_annotation_off_again(run, healthy, tmp_path):
    run("annotate", healthy)
    result = run("clear", healthy, tmp_path / "missing", healthy)
    assert result.exit_code == 3
    assert "cleared" in result.stdout.splitlines()[0]
    assert "nothing from tracker-health on it" in result.stdout.splitlines()[1]
    assert "missing" in result.stderr
    assert not (healthy / "health").exists()
    assert run("clear", "-q", healthy).output == ""


# Downloads


@pytest.mark.slow
def test_a_download_is_shown_on_one_line_that_goes_away(capsys):
    with terminal._download_shown("last\x1b[2J.ckpt", 10**9, lambda: 3 * 10**8):
        time.sleep(1.2)
    shown = capsys.readouterr().err
    assert "last?[2J.ckpt  [######              ]   30 % of 1.0 GB" in shown
    assert shown.endswith("\r\x1b[K")
    assert "\n" not in shown


def test_a_short_download_is_not_shown(capsys):
    with terminal._download_shown("last.ckpt", 10**9, lambda: 0):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_downloads_are_shown_on_a_terminal_only(is_terminal, monkeypatch):
    class Stream(io.StringIO):
        def isatty(self):
            return is_terminal

    monkeypatch.setattr(sys, "stderr", Stream())
    context = contextvars.copy_context()
    context.run(terminal.show_downloads)
    assert (context.get(display) is not None) is is_terminal


WAITED = """
import signal
from tracker_health import terminal
terminal._LOOK_SECONDS = 0.0
for trial in range(10_000):
    with terminal.stopping(also=[signal.SIGALRM]) as stop:
        signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + trial % 60))
        assert stop.wait(60)
"""


@pytest.mark.slow
def test_a_signal_ends_a_wait_at_whatever_moment_it_comes():
    """Also while the wait is just about to begin, or to end."""
    done = subprocess.run([sys.executable, "-c", WAITED], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_lists_every_command_and_option_below_a_heading():
    from tracker_health.cli.group import EXAMPLES, HELP_ALL, PANELS, SECTIONS

    listed = [name for names in SECTIONS.values() for name in names]
    assert len(listed) == len(set(listed))
    assert cli.commands.keys() <= set(listed) | {"help"}
    assert cli.commands.keys() <= EXAMPLES.keys()
    known = {one.name for command in cli.commands.values() for one in command.params}
    assert known & {name for names in PANELS.values() for name in names}
    for name, command in cli.commands.items():
        context = click.Context(command, info_name=name)
        context.meta[HELP_ALL] = True
        text = command.get_help(context)
        assert all(len(line) <= 80 for line in text.splitlines()), name
        missing = [option for one in command.params for option in getattr(one, "opts", ()) if option.startswith("--")]
        assert all(option in text for option in missing), name


def test_a_commands_help_shows_what_most_calls_need(run):
    short, full = (run("check", option).stdout for option in ("--help", "--help-all"))
    options = [line.split()[0] for line in short.splitlines() if line.startswith("  -")]
    assert len(options) == 10, "eight, and the two that show help"
    assert "--stale-after" in full
    assert "--stale-after" not in short


@pytest.mark.parametrize(
    ("old", "new"), [(["series"], ["show", "metrics"]), (["tensors"], ["show", "weights"]), (["probes"], ["rules"])]
)
def test_old_names_of_commands_still_work(old, new, run, healthy):
    arguments = [] if new == ["rules"] else [healthy]
    assert run(*old, *arguments).stdout == run(*new, *arguments).stdout != ""
    assert old[0] not in run("--help").stdout.split()


def test_a_path_stands_for_check(run, healthy):
    assert run(healthy, "--json").stdout == run("check", healthy, "--json").stdout
    nothing = run("chekc")
    assert nothing.exit_code == 2
    assert "chekc is no command, file or folder (did you mean check?)" in nothing.stderr


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_example_is_a_command_line_that_parses(name):
    from tracker_health.cli.group import EXAMPLES

    program, command, *arguments = EXAMPLES[name].split()
    assert (program, command) == ("tracker-health", name)
    cli.commands[name].make_context(name, arguments)


@pytest.mark.parametrize(
    ("line", "begun", "offered"),
    [
        (["explain"], "LOS00", {"LOS001", "LOS009"}),
        (["explain"], "overf", {"overfitting"}),
        (["check", "run", "--ignore"], "div", {"diverged"}),
        ([], "sho", {"show"}),
    ],
)
def test_a_shell_completes_commands_rules_and_causes(line, begun, offered):
    from click.shell_completion import ShellComplete

    found = {one.value for one in ShellComplete(cli, {}, "tracker-health", "_X").get_completions(line, begun)}
    assert offered <= found
    assert all(word.lower().startswith(begun.lower()) for word in found)
