"""Runs of the gallery that are known by their logs: losses, validation, rewards, gradients, the run itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from gallery.entry import Entry, FloatArray, Numbers, descent, noise, run, series, with_params
from tracker_health.evidence import (
    Baseline,
    DlmStepLog,
    Entered,
    Evidence,
    GroupDump,
    Rank,
    RankDump,
    Series,
    TextLog,
)
from tracker_health.report.baseline import Candidate, baseline_of
from tracker_health.words.ending import Ended, Ending

N = 400
STEPS = np.arange(N)
CHANCE = float(np.log(10))

NEAR = {
    "noisy": "LOS003 LOS008 GRD002",
    "one-spike": "LOS003 LOS004 LOS008",
    "restart": "LOS004 LOS008 LRS001",
    "still-descending": "LOS005",
    "warm-up": "LOS007",
    "slow": "LOS006 LOS007 LOS012",
    "nan-once": "LOS002",
    "generalises": "GEN001 GEN002 GEN005",
    "accuracy-rises": "GEN003 GEN004 LOS012",
    "scale-found": "AMP001",
    "gradient-usual": "GRD001 GRD002 GRD003 GRD004",
    "layers-usual": "GAP001 GAP002 GAP003 GAP005",
    "layer-gradients-usual": "GAP004 GAP006",
    "whole": "RUN001 RUN003 RUN004",
    "ranks": "RUN005",
    "ranks-in-step": "RUN006",
    "ranks-equally-fast": "SYS004",
}
"""The rules that a run comes close to, or is the healthy sibling for."""


def _loss(values: Numbers, *more: Series, params: Mapping[str, object] | None = None) -> Evidence:
    loss = series("train_loss", values)
    log = DlmStepLog(files=("train-0.jsonl",), steps=loss.steps, losses=loss.values)
    return run("run", loss, *more, info=with_params((loss, *more), params or {}), dlm_step_log=log)


def _shown(family: str, name: str, title: str, sentence: str, evidence: Evidence) -> Entry:
    near = NEAR.get(name, "")
    return Entry(name=name, title=title, sentence=sentence, family=family, evidence=evidence, near=near)


def _level(values: Numbers, seed: int, rough: float) -> FloatArray:
    found = np.asarray(values, dtype=np.float64)
    return found * (1 + noise(seed, len(found), rough))


def losses() -> Iterator[Entry]:
    """What a training loss can look like."""
    family = "Training loss"

    def of(name: str, title: str, sentence: str, evidence: Evidence) -> Entry:
        return _shown(family, name, title, sentence, evidence)

    rate = series("learning_rate", 1e-3 * 0.5 * (1 + np.cos(np.pi * STEPS / N)))
    constant = series("learning_rate", np.full(N, 1e-3))
    yield of("healthy", "Healthy", "The loss falls, then levels off.", _loss(descent(), rate))
    yield of("noisy", "Healthy, small batches", "The same with much noise.", _loss(descent(1, rough=0.25), rate))

    yield of(
        "clipped-to-nothing", "Clipped to almost zero", "The limit of the gradient norm is 0.000001.",
        _loss(2.25 + noise(36, N, 0.01), rate, params={"max_grad_norm": 1e-6, "optimizer": "sgd"}),
    )  # fmt: skip
    rose = descent(2)
    rose[260:] = _level(1.9 - 1.2 * np.exp(-(np.arange(140)) / 12), 3, 0.04)
    yield of(
        "diverged", "Rose and stayed up", "The loss rises after a good stretch and stays there.", _loss(rose, rate)
    )

    climb = CHANCE + 35 * np.where(STEPS < 12, (STEPS / 12.0) ** 2, np.exp(-(STEPS - 12) / 30)) * np.exp(
        noise(4, N, 0.1)
    )
    climb += noise(5, N, 0.02)
    yield of(
        "climbed", "Climbed, then came down", "The first steps throw the loss far up; it ends as guessing does.",
        _loss(climb, rate, params={"num_classes": 10}),
    )  # fmt: skip

    spike = descent(6)
    spike[230] += 1.4
    yield of("one-spike", "One spike", "A jump that is gone after a few steps.", _loss(spike, rate))
    spikes = descent(7, pace=12)
    spikes[[150, 190, 230, 270, 310, 345]] += (1.6, 1.9, 1.4, 1.8, 1.5, 1.7)
    yield of("spikes", "Many spikes", "Jumps that come again and again.", _loss(spikes, rate))

    waves = descent(8)
    for at in (110, 190, 270):
        waves[at : at + 45] += 1.4 * np.sin(np.pi * np.arange(45) / 45)
    yield of(
        "unstable", "Leaves its level", "Long waves: the loss rises for many steps and returns.", _loss(waves, rate)
    )

    broken = descent(9)
    broken[240:] = np.nan
    yield of("nan", "NaN", "The loss becomes NaN and stays NaN.", _loss(broken, rate))
    once = descent(10)
    once[170] = np.nan
    yield of("nan-once", "NaN once", "One value is NaN; training continues.", _loss(once, rate))
    masked, norms = descent(11), _level(np.full(N, 1.0), 12, 0.2)
    masked[240:], norms[240:] = 0.0, np.nan
    yield of(
        "masked-nan", "NaN printed as 0", "The loss is exactly 0 from the step on which the gradient is NaN.",
        _loss(masked, series("grad_norm", norms)),
    )  # fmt: skip

    flat = CHANCE + noise(13, N, 0.012)
    yield of("flat", "Flat", "The loss never leaves the chance level.", _loss(flat, rate, params={"num_classes": 10}))
    chance = CHANCE + 1.9 * np.exp(-STEPS / 25) + noise(14, N, 0.02)
    yield of(
        "chance-level", "Ends at chance level", "The loss falls from a bad start to what guessing gives.",
        _loss(chance, rate, params={"num_classes": 10}),
    )  # fmt: skip
    yield of("slow", "Barely came down", "All steps together bring 3 %.", _loss(descent(15, end=2.2, rough=0.01), rate))
    yield of(
        "still-descending", "Still falling", "The loss falls as fast at the end as in the middle.",
        _loss(_level(2.3 - 0.25 * STEPS / N, 16, 0.003), constant),
    )  # fmt: skip
    yield of(
        "plateau", "A plateau at a constant rate", "The loss stands still, rough, at a rate that never decays.",
        _loss(descent(17, pace=14, end=0.9, rough=0.07), constant),
    )  # fmt: skip
    restart_rate = 1e-3 * (0.02 + 0.98 * 0.5 * (1 + np.cos(np.pi * (STEPS % 200) / 200)))
    restart = descent(18, end=0.7)
    restart[200:] += 0.35 * np.exp(-np.arange(200) / 60)
    yield of(
        "restart", "Learning rate restarts", "The rate is raised again, and the loss jumps with it and comes back.",
        _loss(restart, series("learning_rate", restart_rate)),
    )  # fmt: skip


def odd_losses() -> Iterator[Entry]:
    """Losses of less usual faults."""
    family = "Training loss"

    def of(name: str, title: str, sentence: str, evidence: Evidence) -> Entry:
        return _shown(family, name, title, sentence, evidence)

    rate = series("learning_rate", 1e-3 * 0.5 * (1 + np.cos(np.pi * STEPS / N)))
    gone = np.where(STEPS < 120, 1e-3, 0.0)
    short = descent(19, pace=3, end=0.3)
    short[120:] = _level(np.full(N - 120, short[115:120].mean()), 20, 0.04)
    yield of(
        "rate-zero", "Rate of 0", "The schedule ends long before the run does.",
        _loss(short, series("learning_rate", gone)),
    )  # fmt: skip
    yield of(
        "warm-up", "Warm-up that never ends", "The learning rate only rises.",
        _loss(descent(21, pace=2.0, end=0.9), series("learning_rate", 1e-3 * (STEPS + 1) / (4 * N))),
    )  # fmt: skip
    high = 0.3 + 60 * np.exp(-STEPS / 12) + 2 * np.exp(-STEPS / 80)
    yield of(
        "initial-loss", "Begins far too high", "The first loss is many times that of guessing.",
        _loss(_level(high, 22, 0.05), rate, params={"num_classes": 10}),
    )  # fmt: skip
    epochs = np.arange(N) // 40
    ramp = 0.45 * (np.arange(N) % 40) / 40
    sawtooth = descent(23, end=0.6, pace=3) + ramp[::-1] * np.where(epochs > 0, 1.0, 0.5)
    yield of(
        "sawtooth", "Sawtooth", "The same pattern within each epoch: the order of the data never changes.",
        _loss(sawtooth, series("epoch", epochs.astype(float))),
    )  # fmt: skip
    memorised, twentieths = 2.3 * np.exp(-STEPS / 45), np.repeat(np.arange(20.0), 20)
    yield of(
        "same-batch", "Too smooth", "No noise at all: every step sees the same batch.",
        _loss(memorised + 1e-5, series("epoch", twentieths)),
    )  # fmt: skip
    twice = 1.47 + 0.83 * np.exp(-STEPS / 60) + noise(26, N, 0.008)
    right = 0.985 - 0.88 * np.exp(-STEPS / 60) + noise(27, N, 0.004)
    yield of(
        "underconfident", "Right, but never sure", "98 % are right at a loss of 1.47: a softmax was taken twice.",
        _loss(twice, series("train_accuracy", right), params={"num_classes": 10}),
    )  # fmt: skip
    critic, generator = _level(0.7 * np.exp(-STEPS / 18) + 1e-4, 30, 0.1), _level(0.8 + 6 * STEPS / N, 31, 0.05)
    adversarial = (
        series("objective_loss", critic, name="d_loss"),
        series("objective_loss", generator, name="g_loss"),
    )
    yield of(
        "discriminator", "The discriminator won", "Its loss is almost 0, and the generator's no longer falls.",
        run("run", *adversarial),
    )  # fmt: skip
    high = series("train_loss", descent(34, end=1.0))
    yield of(
        "odd-one-out", "Worse than healthy runs", "It ends at 1, where six healthy runs end at 0.3.",
        run("run", high, info=with_params((high,), {"learning_rate": 0.03}), baseline=_healthy_runs()),
    )  # fmt: skip


def settings() -> Iterator[Entry]:
    """Settings that were not meant so, and losses that stand or jump."""
    family = "Training loss"

    def of(name: str, title: str, sentence: str, evidence: Evidence) -> Entry:
        return _shown(family, name, title, sentence, evidence)

    flat = 2.3 + noise(70, N, 0.01)
    jumped = descent(71, end=0.7)
    jumped[200:] += 0.6 * np.exp(-np.arange(200) / 30)
    yield of(
        "resume-jump", "A jump at a resume", "The log says that it continues a checkpoint, and the loss is higher.",
        replace(_loss(jumped), text_log=TextLog(source="train.log", lines=900, rows=N, resumed=(200,))),
    )  # fmt: skip
    yield of(
        "loss-stands-still", "One number", "From the third step on the loss is the same, digit for digit.",
        _loss(np.concatenate([[241.774, 130.2], np.full(N - 2, 118.6205)])),
    )  # fmt: skip
    yield of(
        "setting-not-applied", "Another rate than the one set", "The params ask for 5e-5, the log has 0.01.",
        _loss(descent(72, end=1.4), series("learning_rate", np.full(N, 0.01)), params={"learning_rate": 5e-5}),
    )  # fmt: skip
    norm = replace(series("grad_norm", np.where(STEPS < 250, 1.0, np.nan), name="grad/norm_gamma"), role=None)
    yield of(
        "nonfinite-metric", "A metric nobody looks at", "The gradient norm of one layer is NaN, the loss is not.",
        replace(_loss(descent(73, end=0.7)), odd=(norm,)),
    )  # fmt: skip
    yield of(
        "part-dead", "A part of the loss at 0", "The loss of the boxes is 0 throughout, that of the classes falls.",
        _loss(
            descent(74, end=0.4), series("loss_part", np.zeros(N), name="box_loss"),
            series("loss_part", descent(74, end=0.4), name="cls_loss"),
        ),
    )  # fmt: skip
    yield of(
        "loss-explodes", "A critic that explodes", "Its loss grows from 5 to 1e12, the reward does not show it.",
        run("run", series("objective_loss", 5 * np.exp(STEPS / 15.0) * (1 + noise(75, N, 0.1)), name="critic_loss")),
    )  # fmt: skip
    for name, title, sentence, params in (
        ("decay-too-strong", "Weight decay of 5", "5 % of all weights go in each step.",
         {"weight_decay": 5.0, "lr": 0.01}),
        ("rate-too-large", "Adam with a rate of SGD", "Each step moves every weight by half.",
         {"optimizer": "adam", "lr": 0.5}),
        ("dropout-too-high", "Dropout of 0.95", "Of twenty units one is left.", {"dropout": 0.95}),
    ):  # fmt: skip
        yield of(name, title, sentence, _loss(flat, params=params))


def _healthy_runs() -> Baseline:
    """What is usual, frozen as by a file."""
    ends = (0.30, 0.31, 0.29, 0.3, 0.32, 0.28)
    courses = [run("run", series("train_loss", descent(60 + at, end=end))).course for at, end in enumerate(ends)]
    healthy = (
        Candidate(id=f"run-{at}", course=course, params={"learning_rate": "0.001"}) for at, course in enumerate(courses)
    )
    return replace(baseline_of(healthy, "the experiment"), frozen=True)


def validation() -> Iterator[Entry]:
    """What held-out data shows."""
    family = "Validation"

    def of(name: str, title: str, sentence: str, evidence: Evidence) -> Entry:
        return _shown(family, name, title, sentence, evidence)

    def held_out(values: Numbers, role: str = "val_loss") -> Series:
        return series(role, values, every=20)

    k = np.arange(20)
    falls = 0.4 + 1.9 * np.exp(-5 * (k + 1) / 20)
    yield of(
        "generalises", "Generalises", "Both losses fall and stay close.",
        _loss(descent(40), held_out(_level(falls, 41, 0.02))),
    )  # fmt: skip
    over = 0.75 + 1.5 * np.exp(-(k + 1) / 3) + 1.3 * np.clip(k - 6, 0, None) / 13
    yield of(
        "overfit", "Overfit", "The validation loss turns and rises while the training loss falls.",
        _loss(descent(42, end=0.02, pace=7), held_out(_level(over, 43, 0.02))),
    )  # fmt: skip
    yield of(
        "validation-flat", "Validation never improves", "The training loss falls, the validation loss does not.",
        _loss(descent(44), held_out(2.3 + noise(45, 20, 0.01))),
    )  # fmt: skip
    yield of(
        "evaluation-stuck", "One evaluation again and again", "The validation loss is one number, digit for digit.",
        _loss(descent(46), held_out(np.concatenate([[1.81, 1.62], np.full(18, 1.5320871)]))),
    )  # fmt: skip
    yield of(
        "scaled-training-loss", "A sum of sixteen", "The training loss is 16 times the validation loss throughout.",
        _loss(16 * descent(53, end=0.7), held_out(descent(53, end=0.7)[19::20])),
    )  # fmt: skip
    yield of(
        "score-stands-still", "A score that never moves", "A quarter is right at every evaluation: one answer for all.",
        _loss(descent(54, end=1.2), held_out(np.concatenate([[0.2, 0.22], np.full(18, 0.25)]), "val_accuracy")),
    )  # fmt: skip
    rises = 0.8 - 0.6 * np.exp(-(k + 1) / 4)
    yield of(
        "score-at-worst", "A score of 0", "Not one answer counts, at every evaluation, while the loss falls.",
        _loss(descent(55, end=0.5), held_out(np.zeros(20), "higher_better_val")),
    )  # fmt: skip
    yield of(
        "score-lost", "A score that is lost", "It rises to 0.75 and falls to 0.4, while the loss keeps falling.",
        _loss(descent(56, end=0.5), held_out(rises - 0.04 * np.clip(k - 9, 0, None), "higher_better_val")),
    )  # fmt: skip
    by_class = (("IoU.road", rises), ("IoU.car", np.zeros(20)))
    yield of(
        "class-at-zero", "A class that is never predicted", "One class is at 0 at every evaluation, the other is not.",
        _loss(descent(57, end=0.5), *(series("higher_better_val", v, name=n, every=20) for n, v in by_class)),
    )  # fmt: skip
    yield of(
        "nonfinite-score", "A score that is not a number", "From the eighth evaluation on it is NaN.",
        _loss(descent(58, end=0.5), held_out(np.where(k < 8, rises, np.nan), "higher_better_val")),
    )  # fmt: skip
    good = 0.9 - 0.8 * np.exp(-(k + 1) / 4)
    yield of(
        "accuracy-at-chance", "Accuracy of guessing", "One in ten is right, from the first to the last evaluation.",
        _loss(
            descent(47, end=1.9), held_out(0.1 + noise(48, 20, 0.004), "val_accuracy"), params={"num_classes": 10}
        ),
    )  # fmt: skip
    yield of(
        "accuracy-gap", "A gap of accuracies", "99 % of the training data are right, and half of the held-out data.",
        _loss(
            descent(49, end=0.02), series("train_accuracy", 0.99 - 0.89 * np.exp(-(k + 1) / 3), every=20),
            held_out(0.5 - 0.4 * np.exp(-(k + 1) / 3) + noise(50, 20, 0.005), "val_accuracy"),
            params={"num_classes": 10},
        ),
    )  # fmt: skip
    yield of(
        "accuracy-rises", "Accuracy rises", "Nine in ten are right at the end.",
        _loss(
            descent(51), series("train_accuracy", good + 0.03, every=20),
            held_out(good + noise(52, 20, 0.004), "val_accuracy"), params={"num_classes": 10},
        ),
    )  # fmt: skip


def rewards() -> Iterator[Entry]:
    """Reinforcement learning and preference tuning."""
    family, n = "Reward", 100
    t = np.linspace(0, 1, n)
    rises, stays = 0.2 + 0.6 * (1 - np.exp(-4 * t)), np.full(n, 0.3)

    def of(
        name: str,
        title: str,
        sentence: str,
        *,
        names: Mapping[str, str] | None = None,
        params: Mapping[str, object] | None = None,
        **roles: Numbers,
    ) -> Entry:
        metrics = [series(role, values, name=(names or {}).get(role, "")) for role, values in roles.items()]
        return _shown(family, name, title, sentence, run("run", *metrics, info=with_params(metrics, params or {})))

    def near(values: Numbers, seed: int, size: float = 0.02) -> FloatArray:
        return np.asarray(values, dtype=np.float64) + noise(seed, n, size)

    def leap(start: float, end: float) -> FloatArray:
        return start + (end - start) / (1 + np.exp(-(t - 0.5) * 25))

    yield of(
        "reward-rises", "Reward rises", "The policy learns; entropy and divergence move a little.",
        train_reward=near(rises, 60), entropy=near(1.5 - 0.5 * t, 61), kl=near(0.02 + 0.05 * t, 62, 0.002),
        clip_fraction=near(np.full(n, 0.1), 63, 0.01), response_length=near(100 + 60 * t, 64, 3),
        reward_spread=near(np.full(n, 0.3), 65, 0.01), explained_variance=near(leap(0.0, 0.7), 66),
        cut_share=np.abs(near(np.full(n, 0.03), 67, 0.01)), reward_part=near(rises / 2, 68),
        flat_share=np.abs(near(np.full(n, 0.2), 69)),
    )  # fmt: skip
    yield of(
        "reward-lost", "Reward lost", "It rises, then falls back below its start.",
        train_reward=near(np.where(t < 0.5, 0.2 + 1.2 * t, 0.8 - 0.75 * (1 - np.exp(-(t - 0.5) * 12))), 70),
    )  # fmt: skip
    yield of(
        "no-reward-signal", "No signal", "All answers of a group get the same reward: nothing can be learnt from it.",
        train_reward=near(stays, 71), reward_spread=np.zeros(n), flat_share=np.ones(n),
    )  # fmt: skip
    yield of(
        "reward-stands", "Reward stalls", "Rewards differ within groups, yet the mean never moves.",
        train_reward=near(stays, 72, 0.01), reward_spread=near(np.full(n, 0.3), 73, 0.01), kl=np.zeros(n),
    )  # fmt: skip
    yield of(
        "entropy-collapsed", "Entropy collapsed", "The policy says one thing only, and the reward falls.",
        train_reward=near(0.5 - 0.4 * t, 74), entropy=np.abs(near(2 * np.exp(-6 * t), 75, 0.01)),
    )  # fmt: skip
    yield of(
        "divergence", "Divergence blew up", "The policy runs away from its reference.",
        train_reward=near(0.5 - 0.4 * t, 76), kl=0.01 * np.exp(7 * t) * np.exp(noise(77, n, 0.1)),
    )  # fmt: skip
    yield of(
        "clipping", "Most updates clipped", "Four in five are cut off at the limit.",
        train_reward=near(0.5 - 0.3 * t, 78), clip_fraction=near(leap(0.2, 0.8), 79),
    )  # fmt: skip
    yield of(
        "cut-off", "Answers cut off", "Answers grow into the limit of their length.",
        train_reward=near(stays, 80), cut_share=np.clip(near(leap(0.05, 0.95), 81), 0, 1),
        response_length=near(leap(200, 512), 82, 5),
    )  # fmt: skip
    yield of(
        "hacked", "Reward hacked", "The total rises while one of the rewards in it falls.",
        train_reward=near(1 + 1.3 * t, 83), reward_part=near(0.5 - 0.35 * t, 84),
    )  # fmt: skip
    yield of(
        "value-function", "Value function worse than a constant", "The explained variance is below 0.",
        train_reward=near(stays, 85), explained_variance=near(leap(0.1, -0.6), 86),
    )  # fmt: skip
    yield of(
        "policy-still", "Policy does not move", "No update changes what it does.",
        train_reward=near(stays, 94), kl=np.abs(noise(95, n, 1e-9)), entropy=np.full(n, 0.693) + noise(96, n, 1e-6),
    )  # fmt: skip
    yield of(
        "action-noise", "Action noise grows", "The spread of actions grows without bound.",
        train_reward=near(stays, 97), policy_std=np.exp(3.7 * t) * np.exp(noise(98, n, 0.02)),
    )  # fmt: skip
    yield of(
        "explored-in-vain", "Explored in vain", "Exploration is over, and the reward never rose.",
        train_reward=near(np.full(n, -20.0), 99, 0.3), exploration=np.clip(1 - 2 * t, 0.05, 1),
    )  # fmt: skip
    yield of(
        "values-beyond", "Values out of reach", "The loss of the value function grows beyond what steps can follow.",
        train_reward=near(stays, 100), objective_loss=np.exp(2 + 14 * t) * np.exp(noise(101, n, 0.3)),
        names={"objective_loss": "train/value_loss"},
    )  # fmt: skip
    yield of(
        "part-stands", "Part of the reward stalls", "The total rises; the part that was meant stays at the bottom.",
        train_reward=near(0.2 + 0.8 * t, 102), reward_part=np.abs(near(np.full(n, 0.02), 103, 0.005)),
        response_length=near(100 + 60 * t, 104, 3),
    )  # fmt: skip
    yield of(
        "groups-agree", "Groups agree", "Most groups of answers have one reward from the start, and teach nothing.",
        train_reward=near(0.4 + 0.1 * t, 105), flat_share=np.clip(near(np.full(n, 0.75), 106), 0, 1),
        reward_part=np.clip(near(0.2 + 0.05 * t, 107), 0, 1), names={"reward_part": "rewards/correct"},
    )  # fmt: skip
    yield of(
        "rate-beyond", "Rate too high for a policy", "A rate of 0.1, and a reward that is lost at once.",
        train_reward=near(0.1 + 0.4 * np.exp(-20 * t), 108, 0.01),
        entropy=np.abs(near(0.6 * np.exp(-20 * t), 109, 0.01)), learning_rate=np.full(n, 0.1),
    )  # fmt: skip
    yield of(
        "never-rose", "Never rose", "CartPole, and the reward stays at that of random actions.",
        train_reward=near(np.full(n, 22.0), 110, 0.8), entropy=near(np.full(n, 0.69), 111, 0.001),
        params={"env_id": "CartPole-v1"},
    )  # fmt: skip
    yield of(
        "one-step", "Episodes of one step", "Every episode ends at once.",
        train_reward=np.ones(n), episode_length=np.ones(n), params={"env_id": "CartPole-v1"},
    )  # fmt: skip
    yield of(
        "preferences-wrong", "Rejected answers preferred", "The margin falls below its start.",
        margin=near(-3 * t, 87, 0.1), chosen_logp=near(-90 - 30 * t, 88, 2), rejected_logp=near(-90 + 10 * t, 89, 2),
    )  # fmt: skip
    yield of(
        "preferences", "Preferences learnt", "The margin rises, and chosen answers stay likely.",
        margin=near(3 * t, 90, 0.1), chosen_logp=near(-90 - 6 * t, 91, 2), rejected_logp=near(-90 - 80 * t, 92, 2),
    )  # fmt: skip


def gradients() -> Iterator[Entry]:
    """Logged norms of the gradient, and the loss scale of half precision."""
    family = "Gradients"

    def of(
        name: str, title: str, sentence: str, loss: Numbers, norms: Numbers, *, role: str = "grad_norm"
    ) -> Entry:  # fmt: skip
        return _shown(family, name, title, sentence, _loss(loss, series(role, norms)))

    usual = np.exp(noise(100, N, 0.25))
    yield of("gradient-usual", "Usual gradients", "The norm varies around one level.", descent(101), usual)
    lost = usual.copy()
    lost[200::3] = np.nan
    yield of("gradient-nan", "Gradients are NaN", "One in three norms is NaN.", descent(102), lost)
    loss, jumps = descent(103), usual.copy()
    jumps[[150, 230, 310]] = (90.0, 140.0, 120.0)
    loss[231:] += 0.5
    yield of(
        "gradient-spike",
        "Gradient spikes",
        "Norms a hundred times as large; the loss is worse after them.",
        loss,
        jumps,
    )
    faded = 1e-9 * np.exp(noise(104, N, 0.3)) + np.exp(-STEPS / 6)
    yield of(
        "vanishing",
        "Gradients vanish",
        "The norm fades to nothing while the loss is high.",
        CHANCE + noise(105, N, 0.005),
        faded,
    )
    grown = usual * 10 ** (4.5 / (1 + np.exp(-(STEPS - 220) / 14)))
    worse = descent(106)
    worse[220:] += 1.6
    yield of("exploding", "Gradients explode", "The norm grows ten thousandfold and stays there.", worse, grown)
    scale = 65536.0 * np.ones(N)
    for place, at in enumerate(range(200, 400, 8)):
        scale[at:] = 65536.0 / 2 ** (place + 1)
    yield of(
        "scale-collapse",
        "Loss scale collapses",
        "It is halved again and again: half precision overflows.",
        descent(107),
        scale,
        role="loss_scale",
    )
    steady = np.where(STEPS < 20, 65536.0 / 2.0 ** np.minimum(STEPS // 5, 4), 4096.0)
    yield of(
        "scale-found",
        "Loss scale finds its level",
        "Halved a few times at the start, then steady.",
        descent(108),
        steady,
        role="loss_scale",
    )


def layers() -> Iterator[Entry]:
    """Statistics of single layers, as the gap monitor logs them."""
    family, n = "Layers", 40
    count = np.arange(n)

    def of(
        name: str, title: str, sentence: str, kind: str, odd: dict[str, object], *, rough: float = 0.05,
        end: float = 0.3,
    ) -> Entry:  # fmt: skip
        loss = series("train_loss", descent(119, n, end=end), every=10)
        metrics = [loss]
        for layer in range(6):
            at_rest: dict[str, object] = {"max": 3.0, "mean": 0.1, "var": 0.5}
            layer_of = {key: value[layer] if isinstance(value, list) else value for key, value in odd.items()}
            shown = at_rest | layer_of if isinstance(next(iter(odd.values())), list) or layer == 2 else at_rest
            for which, values in shown.items():
                spread = np.broadcast_to(np.asarray(values, dtype=np.float64), n) * np.exp(noise(120 + layer, n, rough))
                metrics.append(series(f"gap_{kind}", spread, name=f"gap/{kind}/layers.{layer}/{which}", every=10))
        return _shown(family, name, title, sentence, run("run", *metrics))

    yield of("layers-usual", "Usual activations", "Every layer keeps its level.", "activations", {"max": 3.0})
    yield of(
        "layer-gradients-usual", "Usual gradients of layers", "Every layer gets about as much.", "grads", {"max": 3.0}
    )
    yield of(
        "layer-nan", "A layer gives NaN", "One layer's output is NaN from a step on.", "activations",
        {"max": np.where(count < 18, 3.0, np.nan), "mean": np.where(count < 18, 0.1, np.nan)},
    )  # fmt: skip
    yield of(
        "layer-dead", "A dead layer", "One layer's output is 0 from a step on.", "activations",
        {key: np.where(count < 14, one, 0.0) for key, one in (("max", 3.0), ("mean", 0.1), ("var", 0.5))},
    )  # fmt: skip
    yield of(
        "layer-saturated", "A saturated layer", "One layer's outputs are at the ends of their range.", "activations",
        {"max": 1.0, "mean": 0.0, "var": 0.995}, rough=0.0,
    )  # fmt: skip
    sizes = [10.0 ** (2 * (layer - 5)) for layer in range(6)]
    yield of(
        "layers-vanish", "Gradients fade towards the first layer", "Each layer gets a hundredth of the one above it.",
        "grads", {"max": list(sizes), "mean": [0.0] * 6, "var": [one**2 for one in sizes]}, end=2.2,
    )  # fmt: skip
    yield of(
        "layer-explodes", "A layer explodes", "One layer's output grows by orders of magnitude.", "activations",
        {"max": 3.0 * 10 ** (count / 7), "mean": 0.1 * 10 ** (count / 7), "var": 0.5 * 10 ** (count / 3.5)},
    )  # fmt: skip
    yield of(
        "layer-zero-gradient", "A layer without a gradient", "One layer's gradient is exactly 0.", "grads",
        {"max": 0.0, "mean": 0.0, "var": 0.0},
    )  # fmt: skip


def _dumps(*last: int) -> tuple[RankDump, ...]:
    """What the flight recorders of ranks wrote when the time of an operation was up, by the last one of each."""
    begun, limit = 1.7e9, 600.0

    def of(rank: int) -> RankDump:
        entered = tuple(
            Entered(number=one, operation="all_reduce", sizes=((1024,),), at=begun + one, limit=limit)
            for one in range(min(last) - 3, last[rank] + 1)
        )
        group = GroupDump(
            name="0:default_pg", ranks=tuple(range(len(last))), entered=entered, last=last[rank], completed=min(last)
        )
        return RankDump(rank=rank, source=f"nccl_trace_rank_{rank}", groups=(group,), written=begun + max(last) + limit)

    return tuple(map(of, range(len(last))))


def endings() -> Iterator[Entry]:
    """How a run ended, and how fast it was."""
    family = "The run"

    def of(name: str, title: str, sentence: str, evidence: Evidence) -> Entry:
        return _shown(family, name, title, sentence, evidence)

    def ended(values: Numbers, planned: int, **info: object) -> Evidence:
        loss = series("train_loss", values)
        return run("run", loss, info=with_params((loss,), {"max_steps": planned}, **info))

    def measured(*metrics: tuple[str, Numbers]) -> Evidence:
        loss = series("train_loss", descent(140))
        return run("run", loss, *(series(role, values) for role, values in metrics))

    yield of("whole", "As long as planned", "All 400 steps of the plan were done.", ended(descent(130), N))
    yield of("truncated", "Ended early", "240 of 400 planned steps were done.", ended(descent(131)[:240], N))
    by_signal = Ending(how=Ended.KILLED, by="SIGKILL")
    yield of(
        "killed", "Killed", "A signal ended it after 240 of 400 steps.", ended(descent(132)[:240], N, seen=by_signal)
    )
    by_error = Ending(how=Ended.OUT_OF_MEMORY, by="torch.OutOfMemoryError")
    yield of(
        "crashed",
        "Crashed",
        "It ran out of memory after 240 of 400 steps.",
        ended(descent(133)[:240], N, seen=by_error),
    )

    def together(*losses: Numbers) -> Evidence:
        logged = [series("train_loss", values, name=f"loss of rank {at}") for at, values in enumerate(losses)]
        ranks = [Rank(number=at, name=one.name, series=(replace(one, name="loss"),)) for at, one in enumerate(logged)]
        return run("run", *logged, ranks=tuple(ranks))

    left = descent(144)
    left[200:] += 0.8
    yield of(
        "ranks",
        "Three ranks together",
        "Each logs the loss of its own shard.",
        together(*map(descent, (141, 142, 143))),
    )
    yield of(
        "rank-apart", "A rank leaves the others", "From the middle on the shard of one rank has other labels.",
        together(descent(142), left, descent(143)),
    )  # fmt: skip
    yield of(
        "rank-late", "A rank does not come", "Two of three ranks wait in an operation that the third did not enter.",
        run("run", series("train_loss", descent(145)[:240]), dumps=_dumps(960, 959, 960)),
    )  # fmt: skip
    yield of(
        "ranks-in-step", "All ranks in step", "All three are through the same operations.",
        run("run", series("train_loss", descent(146)), dumps=_dumps(1600, 1600, 1600)),
    )  # fmt: skip

    def timed(*levels: float) -> Evidence:
        times = [series("step_time", level + noise(150 + at, N, 0.05), name=f"step_time of rank {at}")
                 for at, level in enumerate(levels)]  # fmt: skip
        ranks = [
            Rank(number=at, name=f"rank {at}", series=(replace(one, name="step_time"),)) for at, one in enumerate(times)
        ]
        return run("run", series("train_loss", descent(147)), *times, ranks=tuple(ranks))

    yield of(
        "rank-slow", "A slow rank", "The steps of one rank take 0.8 s, those of the others 0.5.", timed(0.5, 0.8, 0.5)
    )
    yield of("ranks-equally-fast", "Ranks equally fast", "The steps of all take half a second.", timed(0.5, 0.5, 0.5))
    usual = 60 + noise(134, N, 4)
    yield of(
        "busy", "Usual speed", "The accelerator is busy, memory and the time of a step are steady.",
        measured(
            ("accelerator_utilisation", usual), ("memory", 1000 + noise(135, N, 5)),
            ("step_time", 1 + noise(136, N, 0.02)),
        ),
    )  # fmt: skip
    yield of(
        "waits", "Steps wait for data", "Two thirds of each step's time go into loading.",
        measured(("step_time", 1 + noise(137, N, 0.05)), ("data_time", 0.66 + noise(136, N, 0.04))),
    )  # fmt: skip
    slower = np.where(np.arange(N) < 0.6 * N, 1.0, 1.8) * (1 + noise(139, N, 0.06))
    yield of(
        "slower", "Steps take longer", "From three fifths of the run on, 1.8 times as long.",
        measured(("step_time", slower)),
    )  # fmt: skip
    yield of(
        "leak",
        "Memory grows",
        "It rises steadily by more than half.",
        measured(("memory", np.linspace(1000, 1650, N) + noise(138, N, 8))),
    )


def fine_tunes() -> Iterator[Entry]:
    """Fine-tunes with a regulariser, and variational autoencoders."""
    family, n = "Regularised training", 120
    rise = 1 - np.exp(-np.arange(n) / 15)

    def of(name: str, title: str, sentence: str, top: float, **more: object) -> Entry:
        kl, nll = top * rise * (1 + noise(150, n, 0.02)), 3.0 - 0.9 * rise + noise(151, n, 0.05)
        loss = nll + 2.0 * np.maximum(kl - 0.5, 0) + np.asarray(more.pop("off", 0.0), dtype=np.float64)
        metrics = (series("train_loss", loss, name="loss"), series("train_loss", nll, name="nll"), series("kl", kl))
        params = {"reg": "kl_rev", "lam": 2.0, "tau": 0.5} | more
        return _shown(family, name, title, sentence, run("run", *metrics, info=with_params(metrics, params)))

    yield of("barrier-acts", "The regulariser acts", "The divergence reaches its threshold.", 0.8)
    yield of("barrier-idle", "The regulariser never acts", "The divergence stays below its threshold.", 0.05)
    yield of("barrier-itself", "The reference is the model itself", "The divergence is 0 at every step.", 0.0)
    yield of(
        "loss-not-as-set", "The loss is not what was set", "A part of the logged loss is in no term.", 0.8, off=0.3
    )
    shifts = [
        ("on-target", "Shifted what it aimed at", "The target moved more than the rest.", 0.9, 0.1),
        ("off-target", "Shifted what it should not touch", "The rest moved more than the target.", 0.1, 0.6),
    ]
    for name, title, sentence, on, off in shifts:
        metrics = (
            series("train_loss", descent(152, n)), series("on_target_shift", on * rise),
            series("off_target_shift", off * rise),
        )  # fmt: skip
        yield _shown(family, name, title, sentence, run("run", *metrics))
    for name, title, sentence, seen in (
        ("enough-data", "As much data as planned", "All steps of the kept samples were done.", 120),
        ("too-little-data", "Too little data", "30 of 120 steps were done.", 30),
    ):
        loss = series("train_loss", descent(153, seen), name="nll")
        params: dict[str, object] = {"reg": "nll", "completions": 40, "epochs": 3, "min_train": 30}
        yield _shown(family, name, title, sentence, run("run", loss, info=with_params((loss,), params)))
    for name, title, sentence, level in (
        ("latent-used", "Latent variables are used", "Their divergence from the prior is 12 nats.", 12.0),
        ("latent-collapse", "Latent variables say nothing", "Their divergence from the prior is 0.", 1e-4),
    ):
        kl = (level + (4.0 - level) * np.exp(-np.arange(n) / 8)) * (1 + noise(154, n, 0.05))
        rest = descent(155, n, start=200, end=90, rough=0.01)
        metrics = (
            series("train_loss", rest + kl, name="loss"), series("loss_part", rest, name="recon_loss"),
            series("kl", kl, name="kl_loss"),
        )  # fmt: skip
        yield _shown(family, name, title, sentence, run("run", *metrics, info=with_params(metrics, {"model": "vae"})))


def entries() -> Iterator[Entry]:
    """All of them."""
    for family in (losses, odd_losses, settings, validation, rewards, gradients, layers, endings, fine_tunes):
        yield from family()
