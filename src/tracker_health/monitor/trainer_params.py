"""What rules ask of a trainer of others: the settings of its run."""

from __future__ import annotations

from contextlib import suppress
from typing import Any


def lightning_params(trainer: Any, module: Any) -> dict[str, Any]:
    """Of Lightning's trainer and module: the planned steps and epochs, early stopping, the number of classes."""
    params: dict[str, Any] = {}
    if trainer.max_steps and trainer.max_steps > 0:
        params["max_steps"] = trainer.max_steps
    if trainer.max_epochs and trainer.max_epochs > 0:
        params["max_epochs"] = trainer.max_epochs
    stopping = [one for one in trainer.callbacks if "EarlyStopping" in type(one).__name__]
    if stopping:
        params["early_stopping"] = True
    for name in ("num_classes", "vocab_size"):
        value = getattr(module, name, None) or dict(getattr(module, "hparams", {})).get(name)
        if isinstance(value, int):
            params[name] = value
    return params


def transformers_params(args: Any, state: Any, model: Any) -> dict[str, Any]:
    """Of the Trainer's arguments, state and model: planned steps and epochs, the learning rate, early stopping, the
    number of labels or the size of the vocabulary.
    """
    params = {
        "max_steps": state.max_steps,
        "num_train_epochs": args.num_train_epochs,
        "learning_rate": args.learning_rate,
    }
    if any("EarlyStopping" in name for name in state.stateful_callbacks):
        params["early_stopping"] = True
    config = getattr(model, "config", None)
    # Every configuration has both: a language model has two labels, too.
    if "Classification" in type(model).__name__:
        params["num_labels"] = getattr(config, "num_labels", None)
    elif "LM" in type(model).__name__:
        params["vocab_size"] = getattr(config, "vocab_size", None)
    return params


def keras_params(model: Any) -> dict[str, Any]:
    """Of a compiled Keras model: the learning rate where it is a number, and of a classifier the number of classes."""
    params: dict[str, Any] = {}
    with suppress(TypeError, ValueError, AttributeError):
        params["learning_rate"] = float(model.optimizer.learning_rate)
    loss = getattr(model, "loss", None)
    name = loss if isinstance(loss, str) else getattr(loss, "name", "")
    if "categorical_crossentropy" in str(name):
        with suppress(TypeError, IndexError, AttributeError):
            params["num_classes"] = int(model.output_shape[-1])
    return params
