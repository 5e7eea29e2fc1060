"""The benchmark's runs that are trained again: what another seed leaves, what a change changes, how advice is read."""

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

FOLDER = Path(__file__).parent.parent / "benchmarks" / "faults"
DIAGNOSIS = FOLDER.parent.parent / "src" / "tracker_health" / "diagnosis"
NAMES = ("tasks", "recipes", "faults", "train", "leave", "oracle", "generate", "score", "changes", "reruns", "twins",
         "advice", "repairs", "repairs_score")  # fmt: skip


@pytest.fixture(scope="module")
def benchmark():
    """The benchmark's modules, by name."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(FOLDER))
        for name in NAMES:
            sys.modules.pop(name, None)


def made(benchmark, fault, change=None, seed=None, **settings):
    """A training with a change on top of a fault, not run yet."""
    chosen = next(one for one in benchmark["tasks"].TASKS if one.name == "mlp-wine")
    plain = {"steps": 40, "planned": 40, "warmup": 0, "schedule": "constant", "groups": "one", "rate": 0.01,
             "optimizer": "adamw", "half": False, "clip": None}  # fmt: skip
    recipe = replace(benchmark["recipes"].draw(chosen, 1), **plain | settings)
    kind = benchmark["faults"].FAULTS[fault]
    changed = benchmark["changes"].with_change(kind, change or benchmark["changes"].Change())
    return benchmark["train"].Training(chosen, recipe, changed, seed)


def rates(training):
    """The learning rate of the first group, as each step took it."""
    taken = []
    before = training.fault.before_update
    training.fault.before_update = lambda one: before(one) or taken.append(one.optimizer.param_groups[0]["lr"])
    training.run()
    return taken


def test_another_seed_leaves_the_fault_as_it_was(benchmark):
    once, again = (made(benchmark, "rate-too-high", seed=seed) for seed in (None, 7))
    assert once.recipe == again.recipe
    assert not torch.equal(*(next(iter(one.trainable.values())) for one in (once, again)))
    labels = [made(benchmark, "shuffled-targets", seed=seed).data.y for seed in (None, 7)]
    assert torch.equal(*labels)


def test_a_rerun_that_is_the_job_itself_has_its_id(benchmark):
    rerun, change = benchmark["reruns"].Rerun, benchmark["changes"].Change
    job = benchmark["generate"].Job("mlp-wine", "rate-zero", 2**32 - 1)
    assert rerun(job, 0).id == job.id
    others = [rerun(job), rerun(job, 0, change(undone="fault")), rerun(job, 1, change(undone="fault"))]
    assert len({job.id, *(one.id for one in others)}) == 4
    assert rerun(job).seed == 0
    told = json.loads(json.dumps(change(recipe=(("clip", 1.0),), longer=2).to_json()))
    assert benchmark["changes"].change_from(told) == change(recipe=(("clip", 1.0),), longer=2)


def test_rates_are_limited_set_and_given_to_an_idle_group(benchmark):
    change = benchmark["changes"].Change
    jumped = rates(made(benchmark, "rate-jump"))
    assert max(jumped) == pytest.approx(1.0)
    assert max(rates(made(benchmark, "rate-jump", change(rate_limit=0.01)))) == pytest.approx(0.01)
    assert max(rates(made(benchmark, "rate-zero"))) == 0.0
    linear = rates(made(benchmark, "rate-zero", change(peak_rate=0.003), schedule="linear"))
    assert linear[0] == pytest.approx(0.003)
    assert linear[-1] == pytest.approx(0.003 / 40)
    idle = made(benchmark, "group-rate-zero", change(group_rate=0.002), groups="layer rates")
    assert rates(idle)[0] == pytest.approx(0.002)
    assert idle.optimizer.param_groups[1]["lr"] == pytest.approx(0.01 * idle.shares[1])


def test_settings_are_set_whatever_the_fault_sets(benchmark):
    change = benchmark["changes"].Change
    training = made(benchmark, "epsilon-too-large", change(optimizer=(("eps", 1e-8),)))
    training._step()
    assert training.optimizer.param_groups[0]["eps"] == 1e-8
    assert made(benchmark, "scale-collapse", change(recipe=(("half", False),))).scaler is None
    longer = made(benchmark, "too-few-steps", change(longer=10)).recipe
    assert longer.steps == longer.planned == 10 * made(benchmark, "too-few-steps").recipe.steps


def test_a_fault_is_taken_out_and_its_scene_stays(benchmark):
    change = benchmark["changes"].Change
    shuffled = made(benchmark, "shuffled-targets", change(undone="fault"))
    assert shuffled.recipe.batch == 32
    assert torch.equal(shuffled.data.y, shuffled.task.data().y[:300])
    assert made(benchmark, "rate-too-high", change(undone="fault")).recipe.rate == 0.01
    small, usual = (made(benchmark, "vanishing-init", change(undone=undone)) for undone in ("", "model"))
    norms = [float(next(iter(one.trainable.values())).detach().norm()) for one in (small, usual)]
    assert norms[1] == pytest.approx(1e4 * norms[0], rel=1e-3)
    assert small.recipe == usual.recipe


def test_what_is_said_to_be_followed_is_said_somewhere(benchmark):
    said = "".join(path.read_text().replace('"\n', "") for path in sorted(DIAGNOSIS.rglob("*.py")))
    advice = benchmark["advice"]
    words = [*advice._FOLLOWED, *advice._INITIALISED]
    joined = " ".join(part.strip().removeprefix('f"').removeprefix('"') for part in said.split("\n"))
    unsaid = [one for one in words if one not in joined]
    assert unsaid == []
    assert set().union(*advice._FOLLOWED.values()) <= set(benchmark["faults"].FAULTS)


def test_advice_changes_what_it_names(benchmark):
    from tracker_health.words.diagnosis import Action

    advice, change = benchmark["advice"], benchmark["changes"].Change

    def followed(text, fault, setting="", old=None, new=None):
        found = advice._advice("cause", "likely", Action(text=text, setting=setting, old=old, new=new), fault)
        return found.kind, found.change

    assert followed("train again with 0.1", "rate-too-high", "learning_rate", 2.0, 0.1) == (
        "setting", change(rate_factor=0.05))  # fmt: skip
    assert followed("keep the learning rate at 0.1; restart", "rate-jump", "learning_rate", 10.0, 0.1) == (
        "setting", change(rate_limit=0.1))  # fmt: skip
    clip = "look for broken samples in the batches around step 3; clip gradients at a norm of 1"
    both = change(undone="fault", recipe=(("clip", 1.0),))
    assert followed(clip, "bad-batches", "max_grad_norm", None, 1.0) == ("setting and words", both)
    assert followed(clip, "wrong-sign", "max_grad_norm", None, 1.0) == ("setting", change(recipe=(("clip", 1.0),)))
    assert followed("call optimizer.zero_grad() before each backward pass", "stale-gradient") == (
        "words", change(undone="fault"))  # fmt: skip
    assert followed("call optimizer.zero_grad() before each backward pass", "same-batch") == ("words", change())


def test_a_run_that_ends_like_its_recipe_without_the_fault_is_not_faulty(benchmark):
    repairs = benchmark["repairs"]
    siblings = benchmark["oracle"].Siblings(
        {"train": 2.0, "val": 2.0}, {"train": 0.1, "val": 0.2}, {"train": 0.01, "val": 0.01}
    )
    references = [{"evaluations": [{"train": end, "val": end}]} for end in (0.5, 1.5, float("nan"))]
    assert repairs._no_better_than(references, siblings).end == {"train": 1.5, "val": 1.5}


def test_how_much_of_a_gap_is_closed(benchmark):
    closed, nan = benchmark["repairs"]._closed, float("nan")

    def share(old, new, good=1.0):
        return closed(np.array([3.0, old]), new, good)

    assert share(2.0, 1.5) == pytest.approx(0.5)
    assert share(9.0, 2.0) == share(nan, 2.0) == pytest.approx(0.5)
    assert share(2.0, 1.0) == 1.0
    assert share(2.0, nan) == share(0.5, 2.0) == 0.0


def test_shares_count_a_run_once_and_answers_every_pair(benchmark):
    from tracker_health.words.repairs import Answer

    score = benchmark["repairs_score"]

    def pair(seed, still, answer, *, placebo=False):
        line = {
            "cause": "c",
            "seed": seed,
            "was_faulty": True,
            "still_faulty": still,
            "closed": 0.0,
            "applied": True,
            "action": "do",
            "kind": "words",
        }
        return score.Pair(line, placebo, answer, "")

    pairs = [pair("other", False, Answer.REPAIRED), pair("same", False, Answer.CANNOT_TELL),
             pair("other", True, Answer.SOMETHING_NEW), pair("other", True, Answer.NOT_REPAIRED, placebo=True)]  # fmt: skip
    assert score.share(score.by_cause(pairs)["c"])[:2] == (1, 2)
    assert "| c | 2 | 2 | 50% " in list(score.table(pairs))[2]
    advised, no_better, again, _, right = score.errors(pairs)
    assert "1 of 1 " in advised
    assert "1 of 1 " in no_better
    assert "0 of 1 " in again
    assert "1 of 2 " in right
    assert list(score.weak(pairs)) == []
    assert list(score.weak([pair("other", True, Answer.NOT_REPAIRED)] * 9)) == ["c: 0 of 9, at most 23%: do"]
