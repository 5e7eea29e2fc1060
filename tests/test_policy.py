"""A team's policy: beneath everybody's settings, with keys that are locked, and a copy for when it cannot be read."""

from __future__ import annotations

import http.server
import os
import socketserver
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tracker_health.config import Config, preset
from tracker_health.errors import ConfigError
from tracker_health.runs.run_config import resolve_config
from tracker_health.settings import policy
from tracker_health.settings.policy import VARIABLE, policy_of
from tracker_health.settings.sources import effective
from tracker_health.settings.values import KEYS, OF_JUDGEMENT, SECTIONS

POLICY = """
ignore = ["LOS004"]
fail_on = "fail"
locked = ["ignore", "rules.diverged", "fail_on"]
[rules.diverged]
sigmas = 7
[rules.chance-level]
tolerance = 0.2
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


SIMPLE = 'ignore = ["LOS004"]\n[rules.diverged]\nsigmas = 7\n'


def test_it_lies_beneath_everybodys_own_settings(seen):
    one = seen(SIMPLE, "[rules.diverged]\nsigmas = 9\nrunaway = 9\n")
    assert one.config.thresholds == {"diverged": {"sigmas": 9, "runaway": 9}}
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
        'ignore = ["LOS005"]\n[rules.diverged]\nsigmas = 99\n',
        environ={"TRACKER_HEALTH_SET": "rules.diverged.runaway=50"},
        ignore=["LOS006"],
        settings=["rules.diverged.sigmas=50", "rules.chance-level.tolerance=0.3"],
        fail_on="never",
    )
    assert one.config.ignore == {"LOS004"}
    assert one.config.thresholds == {"diverged": {"sigmas": 7}, "chance-level": {"tolerance": 0.3}}
    assert one.fail_on == "fail"
    by = sorted(warning.split(": ")[0] for warning in one.warnings)
    assert by == ["command line"] * 3 + ["environment TRACKER_HEALTH_SET"]
    assert all("is locked by the policy" in warning for warning in one.warnings)


@pytest.mark.parametrize(("own", "gate"), [("warn", "warn"), ("skip", "skip"), ("never", "fail")])
def test_a_stricter_gate_passes(seen, own, gate):
    assert seen(POLICY, fail_on=own).fail_on == gate


def test_where_nothing_is_written_the_command_line_holds(seen):
    one = seen(POLICY, 'ignore = ["LOS005"]', writes=False, ignore=["LOS006"], settings=["rules.diverged.sigmas=50"])
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
    one = seen('locked = ["*"]', "[rules.diverged]\nsigmas = 9\n", preset_name="strict", tracking_uri="x")
    assert (one.config.preset, one.config.thresholds, one.tracking_uri) == ("default", {}, "x")


BROKEN = {
    "not toml": "ignore = [",
    "no such key": "ignroe = []",
    "no such rule": 'ignore = ["LOS999"]',
    "locked is no list": 'locked = "ignore"',
    "locks no key": 'locked = ["ignroe"]',
    "locks no rule": 'locked = ["rules.diverge"]',
    "locks no threshold": 'locked = ["rules.diverged.sigma"]',
    "locks no role": 'locked = ["roles.nope"]',
    "locks below a key": 'locked = ["ignore.LOS004"]',
    "too large": "#" * 2**19,
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_policy_that_is_broken_from_the_start_is_an_error(seen, name):
    with pytest.raises(ConfigError) as caught:
        seen(BROKEN[name])
    assert "the policy" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("locked", ["ignore", "probes", "rules.diverged", "rules.diverged.sigmas", "roles.train_loss"])
def test_what_may_be_locked(seen, locked):
    assert seen(f'locked = ["{locked}"]').warnings == ()


def test_the_last_good_copy_of_a_file_that_is_away_is_used(seen, written):
    """A file share may be; what is broken is for its writer to see."""
    assert seen(SIMPLE).warnings == ()
    path = written("ignore = [")
    with pytest.raises(ConfigError, match=r"the policy .* cannot be used"):
        effective({}, environ={VARIABLE: path})
    Path(path).unlink()
    one = effective({}, environ={VARIABLE: path})
    assert one.config.ignore == {"LOS004"}
    (warning,) = one.warnings
    assert "cannot be used: No such file" in warning
    assert "the copy of " in warning


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "policy.toml")
    with pytest.raises(ConfigError, match="not a regular file"):
        policy_of({VARIABLE: str(tmp_path / "policy.toml")})


JUDGES = 'ignore = ["LOS004", "LOS005"]\nlocked = ["ignore"]\n[rules.diverged]\nsigmas = 7\n'


@pytest.mark.parametrize(
    ("edited", "same"),
    [
        ("# a comment\n" + JUDGES, True),
        (JUDGES.replace('"LOS004", "LOS005"', '"LOS005","LOS004"'), True),
        ('fail_on = "warn"\ntracking_uri = "x"\n' + JUDGES + '[notify]\nwebhook = "https://a.example/x"\n', True),
        (JUDGES.replace('["ignore"]', '["ignore", "notify"]'), True),
        (JUDGES.replace("7", "8"), False),
        (JUDGES.replace('["ignore"]', '["*"]'), False),
        (JUDGES + '[[overrides]]\nmatch = "experiment:a"\nignore = ["LOS004"]\n', False),
        ('mode = "shadow"\n' + JUDGES, False),
    ],
)
def test_only_what_judges_changes_the_digest(written, edited, same):
    before, after = (policy_of({VARIABLE: written(text)}).digest for text in (JUDGES, edited))
    assert (before == after) is same


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


@pytest.mark.parametrize("name", list(BROKEN))
def test_the_last_good_copy_of_an_address_is_used_while_it_is_broken(address, monkeypatch, name):
    monkeypatch.setattr(policy, "FRESH_SECONDS", 0.0)
    policy_of(address.environ)
    address.answers = BROKEN[name]
    for _ in range(2):
        kept = policy_of(address.environ)
        assert kept.layer["ignore"].value == {"LOS004"}
        assert "the copy of " in kept.warning


def test_an_address_that_does_not_answer_is_not_asked_by_every_call(address, monkeypatch):
    address.answers = 503
    for _ in range(3):
        with pytest.raises(ConfigError, match="503"):
            policy_of(address.environ)
    assert address.asked == 1
    address.answers = SIMPLE
    monkeypatch.setattr(policy, "AGAIN_SECONDS", 0.0)
    assert policy_of(address.environ).warning == ""


@pytest.fixture
def raw():
    """An address that answers with these bytes, one by one where it is slow, and what it is called."""

    def serve(answer, *, pause=0.0):
        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                with suppress(OSError):
                    self.request.recv(4096)
                    for at in range(0, len(answer), 1 if pause else len(answer)):
                        self.request.sendall(answer[at : at + 1] if pause else answer)
                        time.sleep(pause)

        server = stack.enter_context(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler))
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        stack.callback(server.shutdown)
        return {VARIABLE: f"http://127.0.0.1:{server.server_address[1]}/policy.toml?sig=s3cret"}

    with ExitStack() as stack:
        yield serve


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"hello\r\n", "BadStatusLine"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\nignore = []", "88 bytes too early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nignore = []", "IncompleteRead"),
    ],
)
def test_an_answer_that_is_none(raw, answer, said):
    with pytest.raises(ConfigError, match=said) as caught:
        policy_of(raw(answer))
    assert "s3cret" not in str(caught.value)


def test_what_is_cut_short_does_not_take_the_place_of_the_good_copy(raw, monkeypatch):
    monkeypatch.setattr(policy, "FRESH_SECONDS", 0.0)
    whole = b'ignore = ["LOS004"]\n\nlocked = ["*"]\n'
    environ = raw(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(whole), whole[:20]))
    policy._keep(policy._copy_of(environ[VARIABLE]), whole)
    kept = policy_of(environ)
    assert (kept.locked, "too early" in kept.warning) == (("*",), True)


def test_an_address_that_drips_is_not_waited_for(raw, monkeypatch):
    monkeypatch.setattr(policy, "_SECONDS", 0.5)
    begin = time.monotonic()
    with pytest.raises(ConfigError, match="timed out"):
        policy_of(raw(b"HTTP/1.0 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"#" * 1000, pause=0.1))
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize(
    "place", ["http://[::1/p.toml", "http://127.0.0.1:abc/p.toml", "http://host name/p.toml?s3cret"]
)
def test_an_address_that_makes_no_sense(place):
    with pytest.raises(ConfigError) as caught:
        policy_of({VARIABLE: place})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "place", ["http://me:secret@127.0.0.1/p.toml", "https://secret@policy.example", "http://a:secret@[::1"]
)
def test_a_secret_in_an_address_is_refused_and_not_told(place):
    with pytest.raises(ConfigError, match="a user name or a password") as caught:
        policy_of({VARIABLE: place})
    assert "secret" not in caught.value.message


def test_python_callers_are_held_to_it_where_they_write(written, monkeypatch):
    monkeypatch.setenv(VARIABLE, written(POLICY))
    own = replace(preset("strict"), ignore=frozenset({"LOS006"}), thresholds={"diverged": {"sigmas": 50}})
    held = resolve_config(own, writes=True)
    assert (held.preset, held.preview_votes, held.ignore) == ("strict", True, {"LOS004"})
    assert held.thresholds["diverged"] == {"sigmas": 7}
    free = resolve_config(own)
    assert (free.ignore, free.thresholds["diverged"]) == ({"LOS004", "LOS006"}, {"sigmas": 50})
    assert resolve_config("default", writes=True).ignore == {"LOS004"}
    assert resolve_config(held, writes=True) is held, "once is enough"


EVIL = """
ignore = ["LOS004"]
tracking_uri = "http://evil.example"
trusted_hosts = ["evil.example"]
max_download = "9TB"
locked = ["*", "ignore", "tracking_uri", "notify"]
[notify]
webhook = "https://evil.example/x"
token_env = "MY_DB_PASSWORD"
command = ["rm", "-rf", "/"]
[rules.diverged]
sigmas = 7
[[overrides]]
match = "experiment:rl-*"
ignore = ["LOS005"]
max_download = "9TB"
"""


@pytest.mark.parametrize("work", ["asked", "from the copy"])
def test_an_address_says_how_runs_are_judged_and_nothing_else(address, monkeypatch, tmp_path, work):
    monkeypatch.setattr(policy, "FRESH_SECONDS", 0.0)
    address.answers = EVIL
    own = '[notify]\nwebhook = "https://mine.example/x"\n'
    (tmp_path / "tracker-health.toml").write_text(own)
    one = effective({}, environ=address.environ, folder=tmp_path)
    if work != "asked":
        address.answers = 503
        one = effective({}, environ=address.environ, folder=tmp_path)
    kept = one.config
    assert (kept.ignore, kept.thresholds) == ({"LOS004"}, {"diverged": {"sigmas": 7}})
    assert kept.for_run({"experiment": "rl-1"}).ignore == {"LOS005"}
    assert (kept.notify.webhook, kept.notify.token_env, kept.notify.command) == ("https://mine.example/x", "", ())
    assert (kept.trusted_hosts, kept.max_download, one.tracking_uri) == ((), Config().max_download, None)
    (told,) = [text for text in one.warnings if "does nothing" in text]
    named = ("tracking_uri", "trusted_hosts", "max_download", "notify.token_env", "notify.command", "locked: notify")
    assert [name for name in named if name not in told] == []
    assert "the environment of this machine" in told
    (tmp_path / "tracker-health.toml").write_text("[rules.diverged]\nsigmas = 9\n")
    refused = effective({}, environ=address.environ, folder=tmp_path)
    assert refused.config.thresholds == {"diverged": {"sigmas": 7}}, "the star locks what judges"


def test_every_key_is_of_judgement_or_named_here():
    """A new key may come from no address before somebody has thought about it."""
    foreign = {"segment", "max_download", "tracking_uri", "trusted_hosts", "docs_url", "auto", "notify"}
    assert {*KEYS, *SECTIONS, "match", "overrides"} == {*OF_JUDGEMENT, *foreign}
    assert not OF_JUDGEMENT & foreign


def test_a_policy_over_https_is_not_led_to_plain_http():
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request

    from tracker_health.stores.remote.web import opener

    def led(to, **more):
        (handler,) = [one for one in opener(**more).handlers if isinstance(one, HTTPRedirectHandler)]
        with suppress(HTTPError):
            return handler.redirect_request(Request("https://a.example/p"), None, 302, "", {}, to).full_url

    assert led("https://b.example/p") == "https://b.example/p"
    assert led("http://b.example/p") is led("ftp://b.example/p", unencrypted=True) is None
    with pytest.raises(ConfigError, match="plain http"):
        policy_of({VARIABLE: "http://a.example/p.toml?sig=s3cret"})


def test_without_one_nothing_changes(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    config = Config()
    assert resolve_config(config, writes=True) is config


def test_what_runs_are_compared_with_is_kept_beneath_a_policy(written, monkeypatch):
    from tracker_health.config import Config
    from tracker_health.runs.run_config import resolve_config

    monkeypatch.setenv(VARIABLE, written('ignore = ["LOS004"]'))
    compared = Config(baseline=object(), siblings=(object(),))
    found = resolve_config(compared)
    assert found.ignore
    assert (found.baseline, found.siblings) == (compared.baseline, compared.siblings)
