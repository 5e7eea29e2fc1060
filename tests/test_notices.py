"""Which verdicts are worth a message, what it says, and how many leave at a time: laws, without a receiver."""

import itertools
import json
import random
from dataclasses import replace

import pytest

from tracker_health.config import Notify
from tracker_health.evidence import RunRef
from tracker_health.judge.messages import (
    MOST_ALONE,
    MOST_AN_HOUR,
    Before,
    Notice,
    SentMessages,
    alert_of,
    due_of,
    fields_of,
    notice_of,
    payload,
    planned,
)
from tracker_health.report.result import ProbeResult, Report, ToolInfo
from tracker_health.words.acknowledgements import acknowledgement
from tracker_health.words.diagnosis import Action, Diagnosis
from tracker_health.words.ending import Ended
from tracker_health.words.verdict import Verdict

NOTHING = SentMessages()
NOTIFY = Notify(webhook="http://127.0.0.1/x")
HOSTILE = "<!channel> \x1b[31m*bold*"


def finding(code="LOS004", message="the loss rose from 2.5 to 37", verdict=Verdict.FAIL):
    named = {"code": code, "name": "diverged", "symptom": "diverged", "status": "stable", "votes": True}
    return ProbeResult(**named, verdict=verdict, score=0.0, message=message, remedy="lower it")


def report(cause="learning-rate-too-high", certainty="likely", verdict=Verdict.FAIL, *, found=None, ended="", **more):
    results = (finding(verdict=verdict),) if found is None else found
    action = Action(text="train with 0.01", setting="learning_rate", old=3.0, new=0.01)
    diagnosis = Diagnosis(
        cause=cause,
        certainty=certainty,
        sentence="a learning rate of 3 at /home/ana/secret.yaml",
        action=more.pop("action", action),
        explains=tuple(one.code for one in results),
    )
    return Report(
        run=RunRef(store="mlflow", id="abc", name=more.pop("name", "calm-rat"), url="http://user:pw@host/#/runs/abc"),
        verdict=verdict,
        score=0.0,
        summary="",
        results=results,
        diagnosis=diagnosis if cause else None,
        ended=ended,
        tool=ToolInfo(version="1", preset="default", config_digest="0"),
    )


def due(judged, notify=NOTIFY, *, told=NOTHING, before=None, traits=None):
    return due_of(judged, notify, traits or {}, told, before)


def notice(number=0, *, place="sweep", found=0.0, verdict="fail", subject="learning-rate-too-high"):
    words = {"tracker": "mlflow", "certainty": "likely", "said": "it rose", "action": "lower it", "url": "", "docs": ""}
    return Notice(
        run=f"run{number}",
        store="s",
        place=place,
        name=f"trial {number}",
        subject=subject,
        verdict=verdict,
        found=found,
        token="0123abcd",
        **words,
    )


# Worth


def test_only_a_fail_that_is_sure_is_worth_a_message():
    """Whatever is known of its cause."""
    said = {
        (verdict, certainty): due(report(certainty=certainty, verdict=verdict))
        for verdict in Verdict
        for certainty in ("certain", "likely", "possible", "unknown")
    }
    assert {verdict for (verdict, _), value in said.items() if value} == {Verdict.FAIL}
    assert all(value for (verdict, _), value in said.items() if verdict is Verdict.FAIL)
    assert due(report(cause="")) == "LOS004"


def test_a_fail_that_is_unsure_is_sent_with_a_cause_that_is_sure_and_a_warning_by_its_cause():
    unsure = (replace(finding(), confidence="low"),)
    assert due(report(certainty="likely", found=unsure))
    assert not due(report(certainty="unknown", found=unsure))
    assert not due(report(certainty="unknown", verdict=Verdict.WARN), replace(NOTIFY, on="warn"))


def test_more_is_sent_where_it_is_asked_for():
    assert due(report(verdict=Verdict.WARN), replace(NOTIFY, on="warn"))
    assert due(report(certainty="possible"), replace(NOTIFY, certainty="possible"))
    assert due(report(cause=""), replace(NOTIFY, certainty="possible")) == "LOS004"
    assert not due(report(verdict=Verdict.WARN), replace(NOTIFY, on="warn", certainty="certain"))


@pytest.mark.parametrize("ended", list(Ended))
def test_of_preempted_and_pruned_runs_nothing_is_sent(ended):
    assert bool(due(report(ended=ended))) is (ended not in (Ended.PREEMPTED, Ended.PRUNED))


def test_a_cause_is_said_once_and_another_once_more():
    told = SentMessages(causes=("learning-rate-too-high",))
    assert not due(report(), told=told)
    assert due(report(cause="overfitting"), told=told) == "overfitting"


def test_what_an_upgrade_or_a_setting_changed_is_no_news():
    passed = Before(verdict=Verdict.PASS, cause="", alike=True)
    assert due(report(), before=passed)
    assert not due(report(), before=replace(passed, alike=False))
    assert not due(report(), before=Before(verdict=Verdict.FAIL, cause="learning-rate-too-high", alike=True))
    assert due(report(), before=Before(verdict=Verdict.WARN, cause="learning-rate-too-high", alike=True))


def test_what_was_said_of_a_cause_under_an_older_name_is_no_news():
    assert not due(report(cause="policy-drifted"), told=SentMessages(causes=("kl-coefficient-too-low",)))
    assert due(report(cause="policy-drifted"), told=SentMessages(causes=("overfitting",)))
    before = Before(verdict=Verdict.FAIL, cause="kl-coefficient-too-low", alike=True)
    assert not due(report(cause="policy-drifted"), before=before)
    nothing_shown = Before(verdict=Verdict.FAIL, cause="LOS004", alike=True)
    assert not due(report(cause="diverged-cause-unknown", certainty="unknown"), before=nothing_shown)


def test_what_is_due_stays_due_whoever_judges_again():
    told = SentMessages(due="learning-rate-too-high", since=1, token="0123abcd")
    assert due(report(), told=told, before=Before(verdict=Verdict.FAIL, cause="learning-rate-too-high", alike=False))


def test_acknowledged_and_muted_runs_are_silent():
    entry = acknowledgement(
        id="0" * 16, who="ana", when=1, because="known", codes=["LOS004"], cause="learning-rate-too-high"
    )
    assert not due(report().answered([entry], 2))
    muted = replace(NOTIFY, mute=("experiment:sweep/*",))
    assert not due(report(), muted, traits={"experiment": "sweep/7"})
    assert due(report(), muted, traits={"experiment": "my sweep"})


# On the run


@pytest.mark.parametrize("causes", [(), ("a",), ("a", "LOS004", "b-c")])
@pytest.mark.parametrize("cause", ["", "overfitting"])
def test_what_a_run_says_is_read_as_it_was_written(causes, cause):
    told = SentMessages(causes=causes).owing(cause, 1_764_000_000.7, "0123abcd")
    assert SentMessages.of(told.value) == told
    assert told.paid().due == ""
    assert set(told.paid().causes) == {*causes, *filter(None, [cause])}


@pytest.mark.parametrize("text", ["", "hello", "due=a@b#c", "told=", "told=a due=b@1#zzzzzzzz", "x" * 10_000, "due=a"])
def test_what_is_not_ours_says_nothing(text):
    assert SentMessages.of(text) == SentMessages()


def test_a_run_keeps_a_bounded_number_of_causes():
    told = SentMessages()
    for number in range(1_000):
        told = told.owing(f"cause-{number}", number, "0123abcd").paid()
    assert SentMessages.of(told.value).causes[-1] == "cause-999"
    assert len(told.value) < 500


def test_a_message_is_overdue_when_whoever_took_it_had_the_time():
    told = SentMessages(due="a", since=1_000, token="0123abcd")
    assert not told.is_overdue(1_000)
    assert told.is_overdue(1_000 + 1_800)
    assert told.is_overdue(0)  # by a clock that is wrong
    assert not SentMessages(causes=("a",)).is_overdue(1e12)


# Words


def said_of(judged, include=(), **more):
    made = notice_of(
        judged,
        run="abc",
        store="s",
        traits={"experiment": "lr search"},
        notify=replace(NOTIFY, include=tuple(include)),
        docs_url=more.get("docs_url", ""),
        due=SentMessages(due=judged.diagnosis.cause, since=5, token="0123abcd"),
    )
    return fields_of([made])


def test_a_message_has_all_that_somebody_on_duty_needs():
    text = said_of(report(), docs_url="https://docs.example.com")["text"]
    for part in (
        "FAIL calm-rat (lr search): learning-rate-too-high (likely)",
        "The loss rose from 2.5 to 37. Most likely the learning rate is too high.",
        "Try next: check the setting learning_rate",
        "https://docs.example.com/causes/learning-rate-too-high.html",
        'tracker-health ack abc --because "..."',
        "http://host/#/runs/abc",
    ):
        assert part in text
    assert "pw" not in text


def test_params_are_in_it_only_if_asked_for():
    assert "0.01" not in said_of(report())["text"]
    said = said_of(report(), ["params"])
    assert said["action"] == "learning_rate: 3 -> 0.01"
    assert "secret.yaml" not in said["text"]
    assert "/home/ana/secret.yaml" in said_of(report(), ["params", "paths"])["text"]


def test_what_a_process_said_at_its_end_is_in_it_only_if_asked_for():
    crash = report(
        "own-error",
        found=(finding("RUN004", "it ended with KeyError: 'token-123' in /srv/x.py on 10.0.0.7:29500"),),
        action=Action(text="fix KeyError: 'token-123'"),
    )
    text = said_of(crash)["text"]
    assert "token-123" not in text
    assert "The program ended with an error" in text
    asked = said_of(crash, ["exception"])["text"]
    assert "token-123" in asked
    assert "/srv" not in asked
    assert "10.0.0.7" not in asked
    assert "10.0.0.7:29500" in said_of(crash, ["exception", "hosts"])["text"]


def test_numbers_and_names_of_metrics_are_no_paths():
    judged = report(found=(finding(message="train/loss rose 3/4 of the way, to 1/0.5"),))
    assert "train/loss rose 3/4 of the way, to 1/0.5" in said_of(judged)["text"]


CALLS = ["<!channel>", "<@U123>", "<@&7>", "@everyone", "a@here", "[our page](https://evil.example)", "<a href='x'>"]
CALLS += [
    "<https://evil.example|our page>",
    "https://evil.example/login",
    "<at>Ann</at>",
    "![x](http://evil.example/p)",
]
TEMPLATES = ["", '{"content": "{text}"}', '{"embeds": [{"title": "{run}", "description": "{experiment}: {sentence}"}]}']
TEMPLATES += ['{"body": {"text": "{run} {action} {ack}"}}']


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_run_calls_nobody_and_links_nowhere(call, template):
    judged = report(name=f"x {call}", found=(finding(message=f"{call} rose"),))
    made = notice_of(
        judged,
        run=f"wandb:team/{call}/abc",
        store="s",
        traits={"experiment": call},
        notify=replace(NOTIFY, include=("hosts", "paths")),
        docs_url="",
        due=SentMessages(due="learning-rate-too-high", since=5, token="0123abcd"),
    )
    for many in ([made], [made, notice(1)]):
        fields = fields_of(many)
        text = json.dumps([payload(fields, template), alert_of(many, 60)], ensure_ascii=False)
        ours = text.replace("http://host/#/runs/abc", "")
        assert not [sign for sign in ("<", "@", "](", "://") if sign in ours], ours


def test_a_run_moves_no_cursor_by_its_name():
    sent = payload(said_of(report(name=HOSTILE)), "")
    assert set(sent) == {"text"}
    assert "\x1b" not in sent["text"]


def test_an_address_of_ours_stays_one():
    assert said_of(report())["url"] == "http://host/#/runs/abc"


def test_a_template_is_filled_as_json_whatever_a_run_is_called():
    fields = said_of(report(name='"}{cause}\\'))
    sent = payload(fields, '{"card": [{"title": "{verdict}: {run}", "keep": "{nothing}"}], "n": 3}')
    assert sent == {"card": [{"title": 'fail: "}{cause}\\', "keep": "{nothing}"}], "n": 3}


def test_many_runs_are_one_message_with_counts_and_the_filter():
    many = [notice(number, subject="overfitting" if number < 50 else "fp16-overflow") for number in range(200)]
    fields = fields_of(many)
    assert fields["text"].startswith("FAIL 200 runs of sweep: 150 fp16-overflow, 50 overfitting\n")
    assert "tags.health.open = 'true' and tags.health.verdict = 'fail'" in fields["text"]
    assert len(fields["text"]) < 1_000


def test_a_run_with_several_causes_is_one_run_of_many():
    causes = ["overfitting", "fp16-overflow"]
    one = [notice(0, subject=cause) for cause in causes]
    assert fields_of(one)["text"].startswith("FAIL 1 run of sweep: 1 overfitting, 1 fp16-overflow\ntrial 0\n")
    fields = fields_of([*one, notice(1)])
    assert (fields["count"], fields["run"]) == ("2", "trial 0, trial 1")


def test_a_notice_is_read_as_it_was_written_and_nothing_else_is_one():
    assert Notice.from_json(json.loads(json.dumps(notice().to_json()))) == notice()
    for wrong in (None, [], {}, {**notice().to_json(), "name": 3}, {**notice().to_json(), "more": 1}):
        assert Notice.from_json(wrong) is None


# How many


def test_two_hundred_at_once_are_one_message():
    (message,) = planned([notice(number) for number in range(200)], [], 0.0)
    assert len(message.notices) == 200


def test_up_to_three_have_a_message_each():
    assert [len(one.notices) for one in planned([notice(number) for number in range(3)], [], 0.0)] == [1, 1, 1]


@pytest.mark.parametrize("seed", range(20))
def test_laws_of_sending(seed):
    """However runs fail: few messages, each run in exactly one, and none waits without end."""
    rng = random.Random(seed)
    waiting, sent, log, number = [], [], [], itertools.count()
    for minute in range(300):
        now = minute * 60.0
        failed = rng.choice([0, 0, 0, 1, 1, 4, 60]) if minute < 150 else 0
        waiting += [notice(next(number), place=f"experiment {rng.randrange(3)}", found=now) for _ in range(failed)]
        for message in planned(waiting, sent, now):
            log += [(now, message)]
            sent.append(message.as_sent(now))
            gone = {one.key for one in message.notices}
            waiting = [one for one in waiting if one.key not in gone]
    keys = [one.key for _, message in log for one in message.notices]
    assert len(keys) == len(set(keys)) == next(number)
    assert waiting == []
    for now, _ in log:
        assert sum(0 <= now - when < 3_600 for when, _ in log) <= MOST_AN_HOUR
        for place in {message.notices[0].place for _, message in log}:
            last = [m for when, m in log if 0 <= now - when < 600 and m.notices[0].place == place]
            assert sum(not one.together for one in last) <= MOST_ALONE
            assert sum(one.together for one in last) <= 1


def test_a_clock_that_was_set_back_sends_no_more_and_not_less():
    sent = [one.as_sent(1e6) for one in planned([notice(number) for number in range(3)], [], 1e6)]
    assert len(planned([notice(9)], sent, 0.0)) <= 1
