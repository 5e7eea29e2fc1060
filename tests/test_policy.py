"""A team's policy: beneath everybody's settings, with keys that are locked, and a copy for when it cannot be read."""

from __future__ import annotations

import http.server
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tracker_health import policy
from tracker_health.annotating import resolved
from tracker_health.config import Config, preset
from tracker_health.errors import ConfigError
from tracker_health.policy import VARIABLE, policy_of
from tracker_health.settings import effective

POLICY = """
ignore = ["LOS004"]
fail_on = "fail"
locked = ["ignore", "probes.diverged", "fail_on"]
[probes.diverged]
sigmas = 7
[probes.plateau-at-constant-lr]
floor = 0.2
[[overrides]]
match = "experiment:rl-*"
ignore = ["LOS005"]
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "policy.toml"
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def seen(tmp_path, written):
    """What is in force beside this policy, for these files and choices."""

    def of(text, own="", *, environ=None, writes=True, **choices):
        folder = tmp_path / "work"
        folder.mkdir(exist_ok=True)
        (folder / "tracker-health.toml").write_text(own)
        known = {VARIABLE: written(text), **(environ or {})}
        return effective(choices, environ=known, folder=folder, writes=writes)

    return of


SIMPLE = 'ignore = ["LOS004"]\n[probes.diverged]\nsigmas = 7\n'


def test_it_lies_beneath_everybodys_own_settings(seen):
    one = seen(SIMPLE, "[probes.diverged]\nsigmas = 9\nmin_points = 9\n")
    assert one.config.thresholds == {"diverged": {"sigmas": 9, "min_points": 9}}
    assert one.config.ignore == {"LOS004"}
    assert one.chosen["ignore"].origin.startswith("policy ")
    assert one.config.policy == policy_of({VARIABLE: one.files[-1]}).digest
    assert one.warnings == ()


def test_lists_are_added_to_it(seen):
    assert seen(SIMPLE, 'ignore = ["LOS005"]').config.ignore == {"LOS004", "LOS005"}
    assert seen(SIMPLE, ignore=["LOS006"]).config.ignore == {"LOS004", "LOS006"}


def test_what_is_locked_holds_against_files_environment_and_command_line(seen):
    one = seen(
        POLICY,
        'ignore = ["LOS005"]\n[probes.diverged]\nsigmas = 99\n',
        environ={"TRACKER_HEALTH_SET": "probes.diverged.min_points=50"},
        ignore=["LOS006"],
        settings=["probes.diverged.sigmas=50", "probes.plateau-at-constant-lr.floor=0.3"],
        fail_on="never",
    )
    assert one.config.ignore == {"LOS004"}
    assert one.config.thresholds == {"diverged": {"sigmas": 7}, "plateau-at-constant-lr": {"floor": 0.3}}
    assert one.fail_on == "fail"
    by = sorted(warning.split(": ")[0] for warning in one.warnings)
    assert by == ["command line"] * 3 + ["environment TRACKER_HEALTH_SET"]
    assert all("is locked by the policy" in warning for warning in one.warnings)


@pytest.mark.parametrize(("own", "gate"), [("warn", "warn"), ("skip", "skip"), ("never", "fail")])
def test_a_stricter_gate_passes(seen, own, gate):
    assert seen(POLICY, fail_on=own).fail_on == gate


def test_where_nothing_is_written_the_command_line_holds(seen):
    one = seen(POLICY, 'ignore = ["LOS005"]', writes=False, ignore=["LOS006"], settings=["probes.diverged.sigmas=50"])
    assert one.config.ignore == {"LOS004", "LOS006"}, "added to the policy's, which the file's is not"
    assert one.config.thresholds["diverged"] == {"sigmas": 50}
    assert one.config.for_run({"experiment": "rl-1"}).ignore == {"LOS004", "LOS006"}


def test_overrides_of_the_policy_come_before_ones_own(seen):
    own = '[[overrides]]\nmatch = "experiment:rl-*"\nignore = ["LOS006"]\ncheckpoint = "a"\n'
    loose = POLICY.replace('"ignore", ', "")
    assert seen(loose, own).config.for_run({"experiment": "rl-1"}).ignore == {"LOS006"}
    locked = seen(POLICY, own).config.for_run({"experiment": "rl-1"})
    assert (locked.ignore, locked.checkpoint) == ({"LOS005"}, "a")


def test_a_star_locks_what_decides_a_verdict_and_nothing_else(seen):
    one = seen('locked = ["*"]', "[probes.diverged]\nsigmas = 9\n", preset_name="strict", tracking_uri="x")
    assert (one.config.preset, one.config.thresholds, one.tracking_uri) == ("default", {}, "x")


BROKEN = {
    "not toml": "ignore = [",
    "no such key": "ignroe = []",
    "no such rule": 'ignore = ["LOS999"]',
    "locked is no list": 'locked = "ignore"',
    "locks no key": 'locked = ["ignroe"]',
    "too large": "#" * 2**19,
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_policy_that_is_broken_from_the_start_is_an_error(seen, name):
    with pytest.raises(ConfigError) as caught:
        seen(BROKEN[name])
    assert "the policy" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", [*BROKEN, "gone"])
def test_the_last_good_copy_is_kept(seen, written, name):
    assert seen(SIMPLE).warnings == ()
    path = written(BROKEN.get(name, ""))
    if name == "gone":
        Path(path).unlink()
    one = effective({}, environ={VARIABLE: path})
    assert one.config.ignore == {"LOS004"}
    (warning,) = one.warnings
    assert "cannot be used" in warning
    assert "the copy of " in warning


@pytest.fixture
def address():
    """A policy at an address: ``answers`` is what is given, or a status."""

    class Handler(http.server.BaseHTTPRequestHandler):
        answers, asked = SIMPLE, 0

        def do_GET(self):
            Handler.asked += 1
            self.send_response(Handler.answers if isinstance(Handler.answers, int) else 200)
            self.end_headers()
            if isinstance(Handler.answers, str):
                self.wfile.write(Handler.answers.encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        Handler.url = f"http://me:secret@127.0.0.1:{server.server_port}/policy.toml"
        Handler.environ = {VARIABLE: f"http://127.0.0.1:{server.server_port}/policy.toml"}
        yield Handler
        server.shutdown()


def test_an_address_is_asked_for_now_and_then(address, monkeypatch):
    assert [policy_of(address.environ).layer["ignore"].value for _ in range(3)] == [{"LOS004"}] * 3
    assert address.asked == 1
    address.answers = 'ignore = ["LOS005"]'
    assert policy_of(address.environ).layer["ignore"].value == {"LOS004"}
    monkeypatch.setattr(policy, "FRESH_SECONDS", 0.0)
    assert policy_of(address.environ).layer["ignore"].value == {"LOS005"}
    address.answers = 503
    kept = policy_of(address.environ)
    assert kept.layer["ignore"].value == {"LOS005"}
    assert "503" in kept.warning


def test_no_message_has_the_secrets_of_an_address(address):
    address.answers = 404
    with pytest.raises(ConfigError) as caught:
        policy_of({VARIABLE: address.url})
    assert "secret" not in str(caught.value)


def test_python_callers_are_held_to_it_where_they_write(written, monkeypatch):
    monkeypatch.setenv(VARIABLE, written(POLICY))
    own = replace(preset("strict"), ignore=frozenset({"LOS006"}), thresholds={"diverged": {"sigmas": 50}})
    held = resolved(own, writes=True)
    assert (held.preset, held.preview_votes, held.ignore) == ("strict", True, {"LOS004"})
    assert held.thresholds["diverged"] == {"sigmas": 7}
    free = resolved(own)
    assert (free.ignore, free.thresholds["diverged"]) == ({"LOS004", "LOS006"}, {"sigmas": 50})
    assert resolved("default", writes=True).ignore == {"LOS004"}
    assert resolved(held, writes=True) is held, "once is enough"


def test_without_one_nothing_changes(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    config = Config()
    assert resolved(config, writes=True) is config
