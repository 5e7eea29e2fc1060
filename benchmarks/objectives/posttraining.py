"""Tiny language models trained on by TRL's own trainers, with GRPO, RLOO and DPO, rightly or with a fault; what they
became is how right their answers are to prompts that no training saw.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from answers import answers, policy, prompts, right, score, skill_of, tokenizer
from datasets import Dataset
from logs import Log
from settings import Params
from torch import nn
from transformers import TrainerCallback
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

_LEARNT, _MISSED = 0.5, 0.2
"""Shares of what was left to learn: a healthy run learnt so much of it at least, a sick one so much at most."""

os.environ["HF_HUB_OFFLINE"] = "1"
Reward = Callable[..., list[float]]


def train_policy(run: Params, log: Log) -> str:
    """Train; healthy, sick or neither by how right the answers have become."""
    start = policy(run["task"], run["skill"], run["hidden"])
    before = skill_of(start, run["task"])
    with tempfile.TemporaryDirectory() as folder:
        start.save_pretrained(folder)
        tokenizer().save_pretrained(folder)
        trainer = _preferring(run, start, folder) if run["algorithm"] == "dpo" else _rewarded(run, folder)
        # Weights of NaN cannot be sampled from: the run ends there, and answers nothing.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(RuntimeError):
            trainer.train()
    log.rows += [_row(run, row) for row in trainer.state.log_history if "train_runtime" not in row]
    finite = all(bool(torch.isfinite(weight).all()) for weight in trainer.model.parameters())
    after = skill_of(trainer.model, run["task"]) if finite else 0.0
    run["measured"] = [round(before, 3), round(after, 3)]
    share = (after - before) / (1.0 - before)
    if run["fault"]:
        return "sick" if share <= _MISSED else "unclear"
    return "healthy" if share >= _LEARNT else "unclear"


_RENAMED = {
    "verl": {
        "reward": "critic/rewards/mean", "kl": "actor/kl_loss", "entropy": "actor/entropy",
        "grad_norm": "actor/grad_norm", "learning_rate": "actor/lr", "loss": "actor/pg_loss",
        "completions/mean_length": "response_length/mean",
        "completions/clipped_ratio": "response_length/clip_ratio", "clip_ratio/region_mean": "actor/pg_clipfrac",
    },
    "openrlhf": {
        "reward": "train/reward", "kl": "train/kl", "grad_norm": "train/actor_grad_norm",
        "learning_rate": "train/actor_lr", "loss": "train/policy_loss", "reward_std": "train/group_reward_std",
        "completions/mean_length": "train/response_length",
        "completions/clipped_ratio": "train/truncated_rate", "clip_ratio/region_mean": "train/ppo_clip_ratio",
    },
}  # fmt: skip
"""What other libraries call the same; what they do not log is left out."""


def _row(run: Params, row: dict[str, Any]) -> dict[str, Any]:
    """A row of TRL's log as the run's library writes it."""
    numbers = {key: float(value) for key, value in row.items() if key not in ("step", "epoch")}
    names = _RENAMED.get(run["names"])
    if names is not None:
        numbers = {names[key]: value for key, value in numbers.items() if key in names}
    return {"step": row["step"]} | numbers | ({"epoch": row["epoch"]} if names is None else {})


def _common(run: Params, folder: str) -> dict[str, Any]:
    return {
        "output_dir": folder, "max_steps": run["max_steps"], "learning_rate": run["learning_rate"], "seed": run["seed"],
        "logging_steps": run["logging_steps"], "report_to": [], "save_strategy": "no", "disable_tqdm": True,
        "use_cpu": True, "bf16": False, "lr_scheduler_type": run["lr_scheduler_type"],
        "max_grad_norm": run["max_grad_norm"], "gradient_checkpointing": False,
        **({"eval_strategy": "steps", "eval_steps": max(1, run["max_steps"] // run["evals"])} if run["evals"] else {}),
    }  # fmt: skip


def _rewarded(run: Params, folder: str) -> GRPOTrainer:
    """GRPO or RLOO on a reward that a program gives."""
    group = run["algorithm"] == "grpo"
    config = GRPOConfig if group else RLOOConfig
    more = {"entropy_coef": run["entropy_coef"]} if group else {}
    arguments = config(
        **_common(run, folder), **more,
        per_device_train_batch_size=32, num_generations=run["num_generations"], beta=run["beta"],
        max_completion_length=run["max_completion_length"], temperature=run["temperature"],
        num_iterations=run["num_iterations"], top_k=0,
    )  # fmt: skip
    callbacks = [_Jump(run)] if run["fault"] == "late_jump" else []
    data = Dataset.from_dict({"prompt": prompts(256, run["seed"] + 100)})
    held_out = Dataset.from_dict({"prompt": prompts(32, 5)}) if run["evals"] else None
    return _with_fault(run)(
        folder, _rewards(run), arguments, data, held_out, processing_class=tokenizer(), callbacks=callbacks
    )


_TRAINERS = {"grpo": GRPOTrainer, "rloo": RLOOTrainer, "dpo": DPOTrainer}


def _with_fault(run: Params) -> type:
    """The trainer of an algorithm, with the fault that is in its code."""
    base = _TRAINERS[run["algorithm"]]

    class Faulty(base):  # type: ignore[misc, valid-type]
        def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
            optimizer = super().create_optimizer(*args, **kwargs)
            for group in optimizer.param_groups:
                if run["fault"] == "wrong_sign":
                    group["maximize"] = True
                if run["fault"] == "frozen":  # it holds copies of the weights
                    group["params"] = [one.detach().clone().requires_grad_() for one in group["params"]]
            return optimizer

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            made = super()._generate_and_score_completions(inputs)
            if run["fault"] == "mask_off_by_one":  # what was said first and last is not trained on, padding is
                made["completion_mask"] = torch.roll(made["completion_mask"], 1, dims=1)
            return made

    return Faulty


class _Jump(TrainerCallback):  # type: ignore[misc]
    """The learning rate leaps late in the run."""

    def __init__(self, run: Params) -> None:
        self.run = run

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == int(self.run["max_steps"] * 0.7):
            scheduler = kwargs["lr_scheduler"]
            scheduler.base_lrs = [rate * 100 for rate in scheduler.base_lrs]


def _rewards(run: Params) -> list[Reward]:
    """What training is told of an answer."""
    task, fault = run["task"], run["fault"]
    rng = np.random.default_rng(run["seed"])

    def correct(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        fair = [score(task, prompt, said) for prompt, said in zip(prompts, completions, strict=True)]
        if fault == "negated_reward":
            return [-one for one in fair]
        if fault == "constant_reward":
            return [run["constant"]] * len(fair)
        if fault == "shuffled":
            return list(rng.permutation(fair))
        if fault == "out_of_reach":
            return [float(len(said.split()) > 12) for said in completions]
        return fair if not run["exact"] else [float(one == 1.0) for one in fair]

    def length(completions: list[str], **_: Any) -> list[float]:
        return [0.25 * len(said.split()) for said in completions]

    def form(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        wanted = [len(right(task, prompt)) for prompt in prompts]
        return [0.2 * (len(said.split()) == most) for said, most in zip(completions, wanted, strict=True)]

    if fault == "length_hack":
        return [correct, length]
    if fault == "repetition_hack":
        return [correct, _repetition]
    return [correct, form] if run["form"] else [correct]


def _repetition(completions: list[str], **_: Any) -> list[float]:
    return [1.5 * (said.split()[:1] == ["3"]) for said in completions]


def _preferring(run: Params, model: nn.Module, folder: str) -> DPOTrainer:
    """DPO on right answers against those of the model itself."""
    asked, fault = prompts(512, run["seed"] + 100), run["fault"]
    chosen = [" ".join(right(run["task"], prompt)) for prompt in asked]
    torch.manual_seed(run["seed"])
    rejected = answers(model, asked)
    rows = [row for row in zip(asked, chosen, rejected, strict=True) if row[1] != row[2] and row[2]]
    if fault == "swapped":
        rows = [(prompt, worse, better) for prompt, better, worse in rows]
    if fault == "same_answers":
        rows = [(prompt, worse, worse) for prompt, _, worse in rows]
    if fault == "shuffled":
        rng = np.random.default_rng(run["seed"])
        rows = [(prompt, *(pair if rng.random() < 0.5 else pair[::-1])) for prompt, *pair in rows]
    columns = dict(zip(("prompt", "chosen", "rejected"), map(list, zip(*rows, strict=True)), strict=True))
    columns["prompt"] = [f"{prompt} " for prompt in columns["prompt"]]
    count = len(rows) * 7 // 8
    data = Dataset.from_dict(columns)
    arguments = DPOConfig(
        **_common(run, folder), per_device_train_batch_size=32, beta=run["beta"],
    )  # fmt: skip
    return _with_fault(run)(
        folder, args=arguments, train_dataset=data.select(range(count)),
        eval_dataset=data.select(range(count, len(rows))) if run["evals"] else None, processing_class=tokenizer(),
        callbacks=[_Jump(run)] if fault == "late_jump" else [],
    )  # fmt: skip
