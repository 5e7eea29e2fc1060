"""The callback that stops a training of Keras, in real trainings."""

from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip("torch")
os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", reason="keras is not installed")

from tracker_health import ConfigError  # noqa: E402
from tracker_health.live.trainers import keras_health  # noqa: E402

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore:(?!tracker-health)")]


class Diverges(keras.callbacks.Callback):
    """From an epoch on the learning rate is far too high."""

    def __init__(self, epoch):
        super().__init__()
        self.at = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch >= self.at:
            self.model.optimizer.learning_rate = 1.0


def fit(*callbacks, epochs=40, rate=0.01, **more):
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    inputs = random.normal(size=(256, 4)).astype("float32")
    targets = inputs.sum(1) + 0.3 * random.normal(size=256).astype("float32")
    model = keras.Sequential([keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse", metrics=["mae"])
    options = {"batch_size": 32, "verbose": 0, "validation_data": (inputs[:64], targets[:64]), **more}
    return model.fit(inputs, targets, epochs=epochs, callbacks=list(callbacks), **options)


def test_a_healthy_training_goes_to_its_end():
    health = keras_health()
    assert len(fit(health).epoch) == 40
    assert health.health.findings == []
    assert health.health.share == 1.0
    assert {"loss", "val_loss", "learning_rate"} <= {series.name for series in health.health.report.series}


def test_a_training_that_diverges_is_stopped_after_an_epoch(caplog):
    health = keras_health()
    epochs = len(fit(health, Diverges(18)).epoch)
    assert 18 < epochs < 30
    assert health.health.stopped_by.step == epochs
    assert "tracker-health stops the training: FAIL at step " in caplog.text


def test_a_training_that_diverges_is_stopped_after_a_batch():
    """Eight batches are an epoch: it ends within one."""
    health = keras_health(every=1)
    epochs = len(fit(health, Diverges(18)).epoch)
    assert 18 < epochs < 30
    assert 18 * 8 < health.health.stopped_by.step < 30 * 8
    assert health.health._plan == 320


@pytest.mark.parametrize("every", [1, 3])
def test_the_loss_of_batches_is_worked_out_of_the_mean_since_the_epoch_began(every):
    class Losses(keras.callbacks.Callback):
        """Of the model on each batch, before it learns from it."""

        def __init__(self):
            super().__init__()
            self.seen = []

        def on_train_batch_end(self, batch, logs=None):
            self.seen.append((batch, logs["loss"]))

    losses = Losses()
    health = keras_health(every=every)
    fit(losses, health, epochs=3)
    single, before = [], 0.0
    for batch, mean in losses.seen:
        before = 0.0 if batch == 0 else before
        single.append(mean * (batch + 1) - before)
        before = mean * (batch + 1)
    expected = [
        np.mean(single[epoch * 8 + at : epoch * 8 + at + every])
        for epoch in range(3)
        for at in range(0, 8 - every + 1, every)
    ]
    assert health.health._history._values["loss"].tolist() == pytest.approx(expected, rel=1e-4)
    steps = health.health._history._steps["loss"].tolist()
    assert steps[: 8 // every] == list(range(every, 9, every))
    assert health.health._history._steps["val_loss"].tolist() == [8, 16, 24]


def test_a_training_that_goes_on_counts_on():
    health = keras_health(every=2)
    fit(health, initial_epoch=20)
    assert health.health._history._steps["loss"][0] == 162
    assert health.health._history.last_step == health.health._plan
    assert health.health.share is None  # what it learnt before does not show


def test_a_dry_run_goes_to_its_end(caplog):
    assert len(fit(keras_health(dry_run=True), Diverges(18)).epoch) == 40
    assert "would stop the training" in caplog.text


def test_what_goes_wrong_does_not_reach_the_training(monkeypatch):
    monkeypatch.setattr("tracker_health.live.LiveHealth._evidence", lambda _: 1 / 0)
    with pytest.warns(RuntimeWarning, match="the training continues without being judged"):
        assert len(fit(keras_health(), epochs=8).epoch) == 8
    monkeypatch.setattr("tracker_health.live.trainers._health", lambda *_: 1 / 0)
    with pytest.warns(RuntimeWarning, match="the training continues without being judged"):
        assert len(fit(keras_health(), epochs=3).epoch) == 3


@pytest.mark.parametrize("options", [{"intervall": 3}, {"stop_on": "error"}, {"every": 0}])
def test_options_that_make_no_sense(options):
    with pytest.raises(ConfigError):
        keras_health(**options)
