"""Toy tasks for language models: prompts of a few digits, right answers that a program can tell, and tiny models that
answer some of them. All is made on the spot.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

DIGITS = [str(digit) for digit in range(8)]
PAD, END, ASK = "<pad>", "<end>", "="
_WORDS = [PAD, END, ASK, *DIGITS]
_ASKED = 3
"""So many digits a prompt has."""

TASKS = ("copy", "sort", "largest", "runs")
"""Repeat the digits; sort them; name the largest, and nothing else; count on from the last, three times."""


def tokenizer() -> PreTrainedTokenizerFast:
    """Of words with blanks between them."""
    plain = Tokenizer(models.WordLevel({word: at for at, word in enumerate(_WORDS)}, unk_token=PAD))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=plain, pad_token=PAD, eos_token=END, padding_side="left")


def prompts(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join([*map(str, rng.integers(0, len(DIGITS), _ASKED)), ASK]) for _ in range(count)]


def right(task: str, prompt: str) -> list[str]:
    """The answer to a prompt."""
    asked = prompt.split()[:_ASKED]
    if task == "runs":
        return [str((int(asked[-1]) + more) % len(DIGITS)) for more in range(1, _ASKED + 1)]
    return {"copy": asked, "sort": sorted(asked), "largest": [max(asked)]}[task]


def score(task: str, prompt: str, answer: str) -> float:
    """The share of an answer that is right, where it may be: what is missing and what is too much counts as wrong."""
    wanted, said = right(task, prompt), answer.replace(END, "").replace(PAD, "").split()
    hits = sum(one == other for one, other in zip(wanted, said, strict=False))
    return hits / max(len(wanted), len(said))


@cache
def _weights(task: str, skill: float, width: int) -> dict[str, torch.Tensor]:
    """Of a model that was shown answers of which a share is right, and the rest random and of any length."""
    torch.manual_seed(len(task))
    rng = np.random.default_rng(width)
    model = _model(width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    names = {word: at for at, word in enumerate(_WORDS)}
    for step in range(300):
        rows = [_shown(task, prompt, skill, rng) for prompt in prompts(64, 1000 + step)]
        longest = max(map(len, rows))
        ids = torch.tensor([[names[word] for word in row + [PAD] * (longest - len(row))] for row in rows])
        logits = model(ids[:, :-1]).logits[:, _ASKED:]
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, _ASKED + 1 :].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def _shown(task: str, prompt: str, skill: float, rng: np.random.Generator) -> list[str]:
    answer = right(task, prompt)
    if rng.random() > skill:
        answer = [str(rng.integers(0, len(DIGITS))) for _ in range(rng.integers(1, 6))]
    return [*prompt.split(), *answer, END]


def _model(width: int) -> GPT2LMHeadModel:
    ends = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
    drops = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=len(_WORDS), n_positions=32, n_embd=width, n_layer=2, n_head=2, **ends, **drops)
    )
    model.generation_config.pad_token_id = 0
    return model


def policy(task: str, skill: float, width: int) -> GPT2LMHeadModel:
    """A tiny model that answers about as well as what it was shown."""
    model = _model(width)
    model.load_state_dict(_weights(task, skill, width))
    return model


@torch.no_grad()
def answers(model: nn.Module, asked: Sequence[str], most: int = 8) -> list[str]:
    """What a model says to prompts, at temperature 1."""
    words = tokenizer()
    ids = words(list(asked), return_tensors="pt")["input_ids"]
    made = model.generate(ids, do_sample=True, max_new_tokens=most, top_k=0, attention_mask=torch.ones_like(ids))
    return words.batch_decode(made[:, ids.shape[1] :], skip_special_tokens=True)


def skill_of(model: nn.Module, task: str) -> float:
    """How right its answers are to prompts that no training has seen."""
    asked = prompts(300, 7)
    torch.manual_seed(7)
    return float(
        np.mean([score(task, prompt, said) for prompt, said in zip(asked, answers(model, asked), strict=True)])
    )
