"""Teach a tiny language model by GRPO with TRL, which logs to MLflow; one line has the run judged when it ends.

    pip install 'tracker-health[charts,mlflow,objectives]'
    python examples/trl_grpo.py                        # a healthy run: the reward rises
    python examples/trl_grpo.py --constant-reward      # one whose reward tells answers apart no more

The model is made from a configuration, the tokenizer from ten words, and the reward is counted: nothing is downloaded.
The verdict is on the run, and one line of it on standard error.
"""

from __future__ import annotations

import argparse
import os
import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

import tracker_health

DIGITS = [str(digit) for digit in range(8)]
PAD, END = "<pad>", "<end>"
WORDS = [PAD, END, *DIGITS]


def repeats(prompts: list[str], completions: list[str], **_: object) -> list[float]:
    """How much of an answer says the prompt's digit again."""
    said = [answer.split() for answer in completions]
    return [answer.count(prompt) / max(len(answer), 1) for prompt, answer in zip(prompts, said, strict=True)]


def constant(completions: list[str], **_: object) -> list[float]:
    """The same for every answer: a mistake that the loss, around 0 anyway, does not show."""
    return [0.5] * len(completions)


def main() -> None:
    """Train for a hundred steps; the trainer logs reward, spread, divergence, entropy and lengths of each."""
    tracker_health.autolog()
    parser = argparse.ArgumentParser()
    parser.add_argument("--constant-reward", action="store_true")
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.manual_seed(0)
    torch.set_num_threads(1)  # more cost time, on a model this small
    plain = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token=PAD))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token=PAD, eos_token=END)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(WORDS), n_positions=16, n_embd=32, n_layer=2, n_head=2, eos_token_id=1, pad_token_id=0
        )
    )
    arguments = GRPOConfig(
        "out",
        report_to=["mlflow"],
        run_name="repeating",
        learning_rate=0.003,
        max_steps=100,
        logging_steps=1,
        per_device_train_batch_size=32,
        num_generations=8,
        max_completion_length=6,
        top_k=0,
        beta=0.01,
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
    )
    prompts = Dataset.from_dict({"prompt": DIGITS * 64})
    with tempfile.TemporaryDirectory() as folder:  # the trainer loads its reference from there
        model.save_pretrained(folder)
        words.save_pretrained(folder)
        reward = constant if options.constant_reward else repeats
        GRPOTrainer(folder, reward, arguments, prompts, processing_class=words).train()


if __name__ == "__main__":
    main()
