import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.config import Config
from tracker_health.roles import assign, normal_form


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("loss", "train_loss"), ("train/loss", "train_loss"), ("train_loss", "train_loss"), ("Train Loss", "train_loss"),
        ("train_loss_step", "train_loss"), ("train_loss_epoch", "train_loss"), ("Loss/train", "train_loss"), ("train/CE loss", "train_loss"),
        ("training_loss", "train_loss"), ("eval_loss", "val_loss"), ("eval/loss", "val_loss"), ("val_loss", "val_loss"), ("Loss/valid", "val_loss"),
        ("validation/loss", "val_loss"), ("test_loss", "val_loss"), ("grad_norm", "grad_norm"), ("train/grad_norm", "grad_norm"),
        ("optim/total_grad_norm", "grad_norm"), ("gnorm", "grad_norm"), ("grad_2.0_norm_total", "grad_norm"), ("lr", "learning_rate"),
        ("lr-AdamW/pg1", "learning_rate"), ("optim/lr (group 0)", "learning_rate"), ("learning_rate", "learning_rate"),
        ("epoch", "epoch"), ("train/global_step", "global_step"), ("kl", "kl"),
        ("accuracy", None), ("loss_weight", None), ("train_runtime", None), ("system/gpu_0_utilization_percentage", None),
    ],
)  # fmt: skip
def test_names_of_common_trainers(name, role):
    assert assign([name]).get(name) == role


def test_our_own_names_are_never_read_back():
    assert assign(["health/loss", "health.loss", "health/no_progress/best"]) == {}


@pytest.mark.parametrize(
    "siblings",
    [
        ["reward"],
        ["policy_loss", "value_loss"],
        ["train/clip_ratio"],
        ["rollout/ep_rew_mean"],
        ["d_loss", "g_loss"],
        ["D/loss", "G/loss"],
    ],
)
def test_a_loss_that_need_not_descend_is_told_by_its_siblings(siblings):
    assert assign(["loss", *siblings])["loss"] == "objective_loss"


@pytest.mark.parametrize(
    "siblings", [["kl"], ["entropy"], ["rewards/chosen", "rewards/rejected", "rewards/margins"], ["d_loss"], []]
)
def test_a_loss_that_descends_stays_a_training_loss(siblings):
    assert assign(["loss", *siblings])["loss"] == "train_loss"


def test_adversarial_losses_are_still_looked_at_for_nan():
    assert assign(["d_loss", "g_loss"]) == {"d_loss": "objective_loss", "g_loss": "objective_loss"}


def test_configured_patterns_may_hold_stars():
    config = Config(roles={"train_loss": ("My/Own_*",)})
    assert config.role_names(["my own thing", "loss"]) == {"my own thing": "train_loss"}


@given(st.text(max_size=2000))
def test_any_name_has_a_bounded_normal_form(name):
    form = normal_form(name)
    assert len(form) <= 600
    assert assign([name]).keys() <= {name}
