"""The faults: what goes wrong, where it is put in, and which symptoms name it rightly.

A fault is ``structural`` when its trace is in the run's state or plan whatever the loss does; where a run does not
leave that part of its state or plan, its loss must tell, as for any other fault.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from recipes import Recipe
from tasks import Data, Task
from torch import Tensor, nn

if TYPE_CHECKING:
    from train import Training

STUCK = frozenset({"not_learning", "undertrained"})
WILD = frozenset({"diverged", "spikes", "unstable", "exploding", "nonfinite", "not_learning", "update_size"})


class Fault:
    """No fault: every method leaves the training as it was. Subclasses change what they must."""

    name: ClassVar[str] = "none"
    symptoms: ClassVar[frozenset[str]] = frozenset()
    structural: ClassVar[bool] = False
    keeps_gradients: ClassVar[bool] = False
    revision: ClassVar[int] = 1
    """Raised when the fault is put in otherwise: its runs are trained again."""

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return True

    def shows(self, recipe: Recipe) -> bool:
        """Whether a structural fault's trace is among what a run of this recipe leaves; else its loss must tell."""
        return True

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        return recipe

    def data(self, data: Data, rng: np.random.Generator) -> Data:
        return data

    def evaluated(self, sound: Data, given: Data) -> Data:
        """What the truth is measured on: the sound data, unless the model knows them in another unit."""
        return sound

    def model(self, model: nn.Module, rng: np.random.Generator) -> None:
        pass

    def parameters(self, named: dict[str, nn.Parameter]) -> dict[str, nn.Parameter]:
        return named

    def order(self, permutation: np.ndarray, data: Data) -> np.ndarray:
        return permutation

    def batch(self, x: Tensor, y: Tensor, training: Training) -> tuple[Tensor, Tensor]:
        return x, y

    def rate(self, rate: float, done: float) -> float:
        return rate

    def loss(self, loss: Tensor) -> Tensor:
        return loss

    def step(self, training: Training) -> dict[str, float]:
        return training.update()

    def before_update(self, training: Training) -> None:
        """The last word on the optimizer's settings, right before it steps."""

    def saved(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The weights as the last checkpoint has them."""
        return weights

    def after_step(self, training: Training) -> None:
        pass

    def validated(self, model: nn.Module) -> nn.Module:
        """The model that is evaluated for the log; the truth is always that of the trained one."""
        return model

    def logged(self, row: dict[str, float]) -> dict[str, Any]:
        return row


def _linear_layers(model: nn.Module) -> list[nn.Module]:
    return [one for one in model.modules() if isinstance(one, (nn.Linear, nn.Conv2d)) and one.weight.requires_grad]


# Learning rate and schedule


class RateTooHigh(Fault):
    name, symptoms = "rate-too-high", WILD

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        factor = float(np.exp(rng.uniform(np.log(20), np.log(200))))
        return replace(recipe, rate=recipe.rate * factor, clip=None)


class RateTooLow(Fault):
    name, symptoms = "rate-too-low", STUCK | {"update_size"}

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        return replace(recipe, rate=recipe.rate * float(np.exp(rng.uniform(np.log(1e-4), np.log(3e-3)))))


class RateZero(Fault):
    name, symptoms, structural = "rate-zero", STUCK | {"schedule", "update_size", "frozen"}, True

    def rate(self, rate: float, done: float) -> float:
        return 0.0


class RateJump(Fault):
    """A restart with the wrong rate: a hundred times as high from the middle on."""

    name, symptoms = "rate-jump", WILD

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        self.at = rng.uniform(0.3, 0.75)
        return replace(recipe, clip=None, schedule="constant")

    def rate(self, rate: float, done: float) -> float:
        return rate * 100 if done >= self.at else rate


class EndlessWarmUp(Fault):
    """Warm-up counted in other steps than the optimizer's: it would take ten to fifty times the whole run."""

    name, symptoms = "endless-warm-up", STUCK | {"schedule", "update_size"}

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        warmup = int(recipe.steps * rng.uniform(10, 50))
        return replace(recipe, warmup=warmup, planned=recipe.steps, schedule="constant")


class EarlyDecay(Fault):
    """A schedule laid out for a tenth of the run: the rate is 0 for the rest."""

    name, symptoms = "early-decay", STUCK | {"schedule"}

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        self.at = rng.uniform(0.03, 0.1)
        return replace(recipe, schedule="constant", warmup=0)

    def rate(self, rate: float, done: float) -> float:
        return rate * max(0.0, 1.0 - done / self.at)


class ClippedToNothing(Fault):
    """Gradients clipped to a norm of 1e-5, under SGD."""

    name, symptoms = "clipped-to-nothing", STUCK | {"update_size", "vanishing"}

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return task.sgd is not None

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        assert task.sgd is not None
        return replace(recipe, optimizer="sgd", rate=task.sgd[0], clip=1e-5, weight_decay=0.0)


class DecayTooStrong(Fault):
    """Weight decay strong enough to pull every weight to 0."""

    name, symptoms = "decay-too-strong", STUCK | {"diverged", "vanishing", "update_size"}

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        return replace(
            recipe, optimizer="adamw", rate=task.rates[0], weight_decay=0.3 / task.rates[0], schedule="constant"
        )


# Numbers


class NanMidway(Fault):
    """A weight becomes NaN in the middle."""

    name, symptoms, structural = "nan-midway", frozenset({"nonfinite"}), True

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        self.at = int(recipe.steps * rng.uniform(0.2, 0.9))
        return recipe

    def after_step(self, training: Training) -> None:
        if training.done == self.at:
            with torch.no_grad():
                next(iter(training.trainable.values())).view(-1)[0] = float("nan")


class MaskedNan(NanMidway):
    """The same, under a trainer that writes 0.0 for NaN."""

    name, symptoms, structural = "masked-nan", frozenset({"collapsed", "nonfinite"}), True

    def logged(self, row: dict[str, float]) -> dict[str, Any]:
        return {
            key: 0.0 if np.isnan(value) and key.endswith("loss") and not key.startswith(("val", "eval")) else value
            for key, value in row.items()
        }


class ScaleCollapse(Fault):
    """Half precision whose gradients overflow at every step from some point on: the loss scale skips them all."""

    name, symptoms, structural = "scale-collapse", frozenset({"scale_collapse", "nonfinite", "not_learning"}), True

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        self.at = rng.uniform(0.1, 0.6)
        return replace(recipe, half=True)

    def step(self, training: Training) -> dict[str, float]:
        training.overflowed |= training.done / training.recipe.steps >= self.at
        return training.update()

    def shows(self, recipe: Recipe) -> bool:
        return recipe.logs_scale


# Gradients that do not arrive


class StaleGradient(Fault):
    """zero_grad was forgotten."""

    name, structural, keeps_gradients = "stale-gradient", True, True
    symptoms = WILD | {"stale_gradient"}

    def shows(self, recipe: Recipe) -> bool:
        # Clipping scales the gradient that is kept, and so forgets it.
        return recipe.optimizer != "sgd" and recipe.clip is None


class Detached(Fault):
    """A layer's output is detached: what lies before it never gets a gradient."""

    name, symptoms, structural = "detached", frozenset({"dead", "frozen", "not_learning"}), True

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return recipe.frozen == 0 and not task.pretrained

    def model(self, model: nn.Module, rng: np.random.Generator) -> None:
        layers = _linear_layers(model)[:-1] or [one for one in model.modules() if isinstance(one, nn.Embedding)]
        layer = layers[int(rng.integers(len(layers)))]
        layer.register_forward_hook(lambda _module, _input, output: output.detach())

    def shows(self, recipe: Recipe) -> bool:
        return recipe.optimizer != "sgd"


class ZeroedBranch(Fault):
    """A layer's output is multiplied by 0: its gradient is exactly 0."""

    name, symptoms, structural = "zeroed-branch", frozenset({"dead", "frozen", "not_learning"}), True

    def model(self, model: nn.Module, rng: np.random.Generator) -> None:
        layers = [*_linear_layers(model)[:-1], *(one for one in model.modules() if isinstance(one, nn.Embedding))]
        layer = layers[int(rng.integers(len(layers)))]
        layer.register_forward_hook(lambda _module, _input, output: output * 0.0)

    def shows(self, recipe: Recipe) -> bool:
        return recipe.optimizer != "sgd"


class DeadUnits(Fault):
    """Hidden layers begin with a bias of -20: no unit ever fires."""

    name, symptoms, structural = "dead-units", frozenset({"dead", "not_learning"}), True

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return task.name.startswith(("mlp", "cnn"))

    def model(self, model: nn.Module, rng: np.random.Generator) -> None:
        layers = _linear_layers(model)[:-1]
        bias = layers[int(rng.integers(len(layers)))].bias
        assert isinstance(bias, Tensor)
        nn.init.constant_(bias, -20.0)

    def shows(self, recipe: Recipe) -> bool:
        return recipe.optimizer != "sgd"


class Forgotten(Fault):
    """The optimizer was made from a part of the parameters: one in the middle or at the end is missing."""

    name, symptoms, structural = "missing-from-optimizer", frozenset({"frozen", "dead"}), True

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return recipe.frozen == 0

    def parameters(self, named: dict[str, nn.Parameter]) -> dict[str, nn.Parameter]:
        layers = list(dict.fromkeys(name.rpartition(".")[0] for name in named))
        forgotten = layers[len(layers) // 2 :][int(self.rng.integers(len(layers) - len(layers) // 2))]
        return {name: one for name, one in named.items() if name.rpartition(".")[0] != forgotten}

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        self.rng = rng
        return recipe


class Vanishing(Fault):
    """Weights begin so small that nothing gets through."""

    name, symptoms = "vanishing-init", STUCK | {"dead", "vanishing", "update_size"}

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return not task.name.startswith(("resmlp", "vit", "transformer", "bn-")) and not task.pretrained

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        rate = task.sgd[0] if task.sgd else task.rates[0] * 0.1
        return replace(recipe, optimizer="sgd", rate=rate, weight_decay=0.0)

    def model(self, model: nn.Module, rng: np.random.Generator) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1e-4)


class ExplodingInit(Fault):
    """Weights begin ten to thirty times too large."""

    name, symptoms = "exploding-init", WILD | {"undertrained"}

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return not task.pretrained

    def model(self, model: nn.Module, rng: np.random.Generator) -> None:
        factor = float(rng.uniform(8, 20))
        for layer in _linear_layers(model):
            with torch.no_grad():
                layer.weight *= factor


# Data


class RandomLabels(Fault):
    """Targets of other samples, new ones in every batch."""

    name, symptoms = "random-targets", STUCK

    def suits(self, task: Task, recipe: Recipe) -> bool:
        # A language model learns from shuffled text how frequent its characters are, and looks as if it learnt.
        return task.data().x.dtype == torch.float32

    def batch(self, x: Tensor, y: Tensor, training: Training) -> tuple[Tensor, Tensor]:
        return x, y[torch.randperm(len(y))]


class ShuffledLabels(Fault):
    """Targets of other samples, the same all along: what is learnt is learnt by heart."""

    name, symptoms = "shuffled-targets", frozenset({"overfit", "not_learning"})

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return task.data().y.dim() == 1

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        return replace(recipe, steps=task.steps[1], planned=task.steps[1], samples=300, batch=32,
                       dropout=0.0, smoothing=0.0)  # fmt: skip

    def data(self, data: Data, rng: np.random.Generator) -> Data:
        return replace(data, y=data.y[torch.tensor(rng.permutation(len(data.y)))])


class BlindInputs(Fault):
    """Every input is the same: the data pipeline yields zeros."""

    name, symptoms = "blind-inputs", STUCK | {"dead"}

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return task.data().x.dtype == torch.float32

    def batch(self, x: Tensor, y: Tensor, training: Training) -> tuple[Tensor, Tensor]:
        return x * 0.0, y


class RawInputs(Fault):
    """Inputs that were never scaled: columns in units of their own, the whole a hundred or more times too large."""

    name, symptoms, revision = "raw-inputs", WILD | {"undertrained"}, 2

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return task.data().x.dtype == torch.float32 and "autoencoder" not in task.name

    def data(self, data: Data, rng: np.random.Generator) -> Data:
        factor = float(np.exp(rng.uniform(np.log(100), np.log(1000))))
        units = torch.tensor(np.exp(rng.normal(0.0, 1.5, data.x.shape[1])), dtype=torch.float32) * factor
        return replace(data, x=data.x * units + units, x_val=data.x_val * units + units)

    def evaluated(self, sound: Data, given: Data) -> Data:
        return given


class BadBatches(Fault):
    """A few stretches of garbage in the first half, each of a few batches."""

    name, symptoms, revision = "bad-batches", frozenset({"spikes", "unstable", "diverged"}), 2

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return task.data().x.dtype == torch.float32 and "autoencoder" not in task.name

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        starts = (rng.uniform(0.1, 0.5, size=3) * recipe.steps).astype(int)
        self.at = {int(start) + offset for start in starts for offset in range(3)}
        return recipe

    def batch(self, x: Tensor, y: Tensor, training: Training) -> tuple[Tensor, Tensor]:
        return (x * 300.0, y) if training.done in self.at else (x, y)


class Memorised(Fault):
    """Sixty samples, and no end: the training loss falls while the validation loss climbs."""

    name, symptoms = "overfit", frozenset({"overfit"})

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return not task.pretrained

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        rate = task.rates[1]
        return replace(recipe, samples=60, steps=task.steps[1], planned=task.steps[1], batch=16,
                       dropout=0.0, weight_decay=0.0, smoothing=0.0, optimizer="adam", rate=rate)  # fmt: skip


class SameBatch(Fault):
    """The loader yields the same batch all the time."""

    name, symptoms = "same-batch", frozenset({"overfit", "not_learning"})

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        return replace(recipe, dropout=0.0)

    def order(self, permutation: np.ndarray, data: Data) -> np.ndarray:
        return np.arange(len(permutation))

    def batch(self, x: Tensor, y: Tensor, training: Training) -> tuple[Tensor, Tensor]:
        size = training.recipe.batch
        return training.data.x[:size], training.data.y[:size]


class SortedData(Fault):
    """The samples come in the same order in every epoch, and sorted: of a list of files, folder by folder."""

    name, symptoms = "sorted-data", frozenset({"data_order", "unstable", "spikes", "not_learning", "overfit"})

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return task.data().y.dim() == 1

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        # Whole epochs, and enough of them.
        batch = min(recipe.batch, 16)
        most = batch * recipe.accumulate * max(8, recipe.planned // 8)
        return replace(recipe, batch=batch, samples=min(len(task.data().x), most), resumed_at=None)

    def order(self, permutation: np.ndarray, data: Data) -> np.ndarray:
        return np.argsort(data.y.numpy(), kind="stable")


# The objective


class WrongSign(Fault):
    """The loss is maximised."""

    name, symptoms = "wrong-sign", WILD

    def step(self, training: Training) -> dict[str, float]:
        for parameter in training.trainable.values():
            if parameter.grad is not None:
                parameter.grad.neg_()
        return training.update()


# The plan


class TooShort(Fault):
    """A handful of optimizer steps."""

    name, symptoms, structural = "too-few-steps", frozenset({"undertrained"}), True

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        steps = int(rng.integers(4, 40))
        return replace(recipe, steps=steps, planned=steps, warmup=min(recipe.warmup, steps // 10), resumed_at=None)


class StoppedEarly(Fault):
    """Killed well before the planned end, which the log's header may tell."""

    name, symptoms, structural = "stopped-early", frozenset({"undertrained"}), True

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        steps = max(60, int(recipe.steps * rng.uniform(0.2, 0.7)))
        return replace(recipe, steps=steps, planned=max(recipe.steps, 2 * steps), resumed_at=None)

    def shows(self, recipe: Recipe) -> bool:
        return recipe.tells_plan


# What the saved weights show


class FrozenLayer(Fault):
    """A layer gets its gradients and never moves: it is reset after every step, as where another copy is trained."""

    name, symptoms, structural = "frozen-layer", frozenset({"frozen", "dead", "not_learning"}), True
    revision = 2

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return recipe.frozen == 0

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        self.rng = rng
        return recipe

    def parameters(self, named: dict[str, nn.Parameter]) -> dict[str, nn.Parameter]:
        # Not a norm: that a layer stays at ones and zeros is hardly a fault.
        layers = list(dict.fromkeys(name.rpartition(".")[0] for name, one in named.items() if one.dim() > 1))
        self.layer = layers[int(self.rng.integers(len(layers)))]
        return named

    def after_step(self, training: Training) -> None:
        with torch.no_grad():
            for name, one in training.trainable.items():
                if name.rpartition(".")[0] == self.layer:
                    one.copy_(training.before[name])

    def shows(self, recipe: Recipe) -> bool:
        return recipe.checkpoints


class NanWeights(Fault):
    """The last checkpoint was written wrongly: a part of one tensor is NaN, and the training knew nothing of it."""

    name, symptoms, structural = "nan-weights", frozenset({"nonfinite"}), True

    def model(self, model: nn.Module, rng: np.random.Generator) -> None:
        self.rng = rng

    def saved(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        names = [name for name, one in weights.items() if one.is_floating_point()]
        name = names[int(self.rng.integers(len(names)))]
        broken = weights[name].clone()
        first = int(self.rng.integers(broken.numel()))
        broken.view(-1)[first : first + int(self.rng.integers(1, 9))] = float("nan")
        return weights | {name: broken}


class InitialSaved(Fault):
    """The last checkpoint holds the weights that the model was made with: another copy was trained."""

    name, symptoms, structural = "initial-saved", frozenset({"frozen", "not_learning"}), True

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return not task.pretrained and recipe.frozen == 0

    def shows(self, recipe: Recipe) -> bool:
        return recipe.optimizer != "sgd"

    def model(self, model: nn.Module, rng: np.random.Generator) -> None:
        self.weights = {name: one.detach().clone() for name, one in model.state_dict().items()}

    def saved(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: self.weights.get(name, one) for name, one in weights.items()}


class EvaluationMode(Fault):
    """The model is trained in evaluation mode: its batch normalisation never sees a batch, and nothing is dropped."""

    name, symptoms, structural = "evaluation-mode", frozenset({"frozen", "not_learning"}), True

    def suits(self, task: Task, recipe: Recipe) -> bool:
        kinds = nn.BatchNorm1d, nn.BatchNorm2d
        return recipe.frozen == 0 and any(isinstance(one, kinds) for one in task.build(0.0).modules())

    def batch(self, x: Tensor, y: Tensor, training: Training) -> tuple[Tensor, Tensor]:
        training.model.eval()
        return x, y


class DeadRows(Fault):
    """Half of the units of a hidden layer begin with a bias of -20 before their ReLU, and never fire."""

    name, symptoms, structural = "dead-rows", frozenset({"dead", "not_learning"}), True

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return recipe.frozen == 0 and not task.pretrained and bool(_before_relu(task.build(0.0)))

    def model(self, model: nn.Module, rng: np.random.Generator) -> None:
        biases = _before_relu(model)
        bias = biases[int(rng.integers(len(biases)))]
        with torch.no_grad():
            bias[torch.tensor(rng.permutation(len(bias))[: len(bias) // 2])] = -20.0

    def shows(self, recipe: Recipe) -> bool:
        return recipe.optimizer != "sgd"


def _before_relu(model: nn.Module) -> list[nn.Parameter]:
    """The biases that are added right before a ReLU."""
    chains = [list(one.children()) for one in model.modules() if isinstance(one, nn.Sequential)]
    pairs = [pair for chain in chains for pair in pairwise(chain)]
    return [
        layer.bias
        for layer, then in pairs
        if isinstance(then, nn.ReLU) and isinstance(getattr(layer, "bias", None), nn.Parameter)
    ]


class UpdateTooSmall(Fault):
    """Weights before a normalisation begin thirty to a hundred times too large: it hides that, and steps do nothing."""

    name, symptoms = "update-too-small", STUCK | {"update_size"}

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return task.name.startswith("bn-")

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        return replace(recipe, weight_decay=0.0)

    def model(self, model: nn.Module, rng: np.random.Generator) -> None:
        factor = float(np.exp(rng.uniform(np.log(30), np.log(100))))
        with torch.no_grad():
            for layer in _linear_layers(model)[:-1]:
                layer.weight *= factor


class UpdateTooLarge(Fault):
    """Small weights and a high rate: each step is a good part of the weights."""

    name, symptoms = "update-too-large", WILD

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return not task.pretrained and recipe.frozen == 0

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        rate = float(np.exp(rng.uniform(np.log(5), np.log(30)))) * task.rates[1]
        return replace(recipe, rate=rate, optimizer="adamw" if recipe.optimizer == "sgd" else recipe.optimizer)

    def model(self, model: nn.Module, rng: np.random.Generator) -> None:
        with torch.no_grad():
            for layer in _linear_layers(model):
                layer.weight *= 0.2


class EpsilonTooLarge(Fault):
    """Adam's eps is 1, as some recipes have it for other learning rates, and dwarfs every gradient."""

    name, symptoms = "epsilon-too-large", STUCK | {"update_size"}

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return recipe.optimizer != "sgd"

    def step(self, training: Training) -> dict[str, float]:
        for group in training.optimizer.param_groups:
            group["eps"] = 1.0
        return training.update()


class ScaledAway(Fault):
    """The gradients are divided by a loss scale twice: they are smaller than Adam's eps."""

    name, symptoms, structural = "scaled-away", STUCK | {"update_size", "vanishing"}, True

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return recipe.optimizer != "sgd"

    def step(self, training: Training) -> dict[str, float]:
        for parameter in training.trainable.values():
            if parameter.grad is not None:
                parameter.grad.mul_(1e-9)
        return training.update()


class GroupRateZero(Fault):
    """The rate of the first group of several is 0: its layers are what they began as."""

    name, symptoms, structural = "group-rate-zero", STUCK | {"frozen", "dead", "update_size", "schedule"}, True

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return recipe.groups == "layer rates" and not task.pretrained

    def step(self, training: Training) -> dict[str, float]:
        training.optimizer.param_groups[0]["lr"] = 0.0
        return training.update()


class SoftmaxTwice(Fault):
    """The model ends with a softmax, and the loss applies another one."""

    name, symptoms = "softmax-twice", STUCK

    def suits(self, task: Task, recipe: Recipe) -> bool:
        return task.data().y.dtype == torch.int64 and not task.pretrained

    def model(self, model: nn.Module, rng: np.random.Generator) -> None:
        model.register_forward_hook(lambda _module, _inputs, output: output.softmax(-1))


class WeightsLost(Fault):
    """A resume that restores the optimizer and begins with new weights."""

    name, symptoms = "weights-lost", WILD | STUCK

    def after_step(self, training: Training) -> None:
        if training.done == int(0.7 * training.recipe.steps):
            with torch.no_grad():
                for name, parameter in training.trainable.items():
                    parameter.copy_(training.before[name])


class StaleEvaluation(Fault):
    """The log's validation loss is of a copy of the model, made at the start or early on and not updated since."""

    name, symptoms, structural = "stale-evaluation", frozenset({"frozen", "not_learning"}), True
    copy: nn.Module | None = None

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        self.at = 0 if rng.random() < 0.5 else int(recipe.steps * rng.uniform(0.02, 0.3))
        self.logs_loss = recipe.validation_logged != "accuracy" or task.data().classes is None
        return recipe

    def shows(self, recipe: Recipe) -> bool:
        return recipe.logs_validation and self.logs_loss

    def model(self, model: nn.Module, rng: np.random.Generator) -> None:
        if self.at == 0:
            self.copy = deepcopy(model)

    def after_step(self, training: Training) -> None:
        if training.done + 1 == self.at:
            self.copy = deepcopy(training.model)

    def validated(self, model: nn.Module) -> nn.Module:
        return model if self.copy is None else self.copy


FAULTS: dict[str, type[Fault]] = {
    one.name: one
    for one in (
        RateTooHigh, RateTooLow, RateZero, RateJump, EndlessWarmUp, EarlyDecay, ClippedToNothing, DecayTooStrong,
        NanMidway, MaskedNan, ScaleCollapse, StaleGradient, Detached, ZeroedBranch, DeadUnits, Forgotten, Vanishing,
        ExplodingInit, RandomLabels, ShuffledLabels, BlindInputs, RawInputs, BadBatches, Memorised, SameBatch,
        SortedData, WrongSign, TooShort, StoppedEarly, FrozenLayer, NanWeights, DeadRows, UpdateTooSmall,
        UpdateTooLarge, InitialSaved, EvaluationMode, EpsilonTooLarge, ScaledAway, GroupRateZero, SoftmaxTwice,
        WeightsLost, StaleEvaluation,
    )
}  # fmt: skip

PRIMARY = {
    "rate-too-high": "diverged", "rate-too-low": "update_size", "rate-zero": "schedule", "rate-jump": "diverged",
    "endless-warm-up": "schedule", "early-decay": "schedule", "clipped-to-nothing": "update_size",
    "decay-too-strong": "not_learning", "nan-midway": "nonfinite", "masked-nan": "collapsed",
    "scale-collapse": "scale_collapse", "stale-gradient": "stale_gradient", "detached": "dead",
    "zeroed-branch": "dead", "dead-units": "dead", "missing-from-optimizer": "frozen", "vanishing-init": "vanishing",
    "exploding-init": "exploding", "random-targets": "not_learning", "shuffled-targets": "overfit",
    "blind-inputs": "not_learning", "raw-inputs": "diverged", "bad-batches": "spikes", "overfit": "overfit",
    "same-batch": "overfit", "sorted-data": "data_order", "wrong-sign": "diverged", "too-few-steps": "undertrained",
    "stopped-early": "undertrained", "frozen-layer": "frozen", "nan-weights": "nonfinite", "dead-rows": "dead",
    "update-too-small": "update_size", "update-too-large": "update_size", "initial-saved": "frozen",
    "evaluation-mode": "frozen", "epsilon-too-large": "update_size", "scaled-away": "update_size",
    "group-rate-zero": "frozen", "softmax-twice": "not_learning", "weights-lost": "unstable",
    "stale-evaluation": "frozen",
}  # fmt: skip
"""The one symptom that names a fault best, where several are accepted."""
