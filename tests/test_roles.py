import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.config import Config
from tracker_health.roles import DEFAULT_PATTERNS, NOTHING_READ, RolePlan, assign, normal_form, words_of


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("loss", "train_loss"), ("train/loss", "train_loss"), ("train_loss", "train_loss"), ("Train Loss", "train_loss"),
        ("train_loss_step", "train_loss"), ("train_loss_epoch", "train_loss"), ("Loss/train", "train_loss"), ("train/CE loss", "train_loss"),
        ("training_loss", "train_loss"), ("eval_loss", "val_loss"), ("eval/loss", "val_loss"), ("val_loss", "val_loss"), ("Loss/valid", "val_loss"),
        ("validation/loss", "val_loss"), ("test_loss", "val_loss"), ("grad_norm", "grad_norm"), ("train/grad_norm", "grad_norm"),
        ("optim/total_grad_norm", "grad_norm"), ("gnorm", "grad_norm"), ("grad_2.0_norm_total", "grad_norm"), ("lr", "learning_rate"),
        ("lr-AdamW/pg1", "learning_rate"), ("optim/lr (group 0)", "learning_rate"), ("learning_rate", "learning_rate"),
        ("validation/lm loss value", "val_loss"), ("test/lm loss value", "val_loss"), ("learn/RMSE", "train_loss"),
        ("epoch", "epoch"), ("train/global_step", "global_step"), ("kl", "kl"),
        ("accuracy", "train_accuracy"), ("train/acc", "train_accuracy"), ("Accuracy/val", "val_accuracy"), ("test_auc", "val_auc"), ("loss_weight", None), ("train_runtime", None), ("system/gpu_0_utilization_percentage", "accelerator_utilisation"),
    ],
)  # fmt: skip
def test_names_of_common_trainers(name, role):
    assert assign([name]).get(name) == role


def test_a_coefficient_of_a_statistic_is_a_score_and_of_a_loss_a_weight():
    scores = (
        "dice_coef", "DiceCoefficient", "soft_dice_coeff", "dice_coef_class1", "jaccard_coef", "matthews_corrcoef", "mcc", "correlation_coefficient",
        "pearson_corr_coef", "cohen_kappa", "silhouette_coef", "coefficient_of_determination",
    )  # fmt: skip
    assert {name: assign([f"val_{name}"]) for name in scores} == {
        name: {f"val_{name}": "higher_better_val"} for name in scores
    }
    weights = "kl_coef", "vf_coef", "aux_loss_coef", "dice_loss_coef", "dice_weight", "similarity_loss_coef", "l2_coef"
    assert {assign([name]).get(name) for name in weights} == {"objective_weight"}
    assert {assign([name]).get(name) for name in ("entropy_coef", "loss_coef", "val_attention_correlation")} == {None}
    assert assign(["dice_coef_loss", "val_dice_coef_loss"]) == {
        "dice_coef_loss": "train_loss", "val_dice_coef_loss": "val_loss",
    }  # fmt: skip


def test_what_something_costs_in_time_is_not_what_was_minimised():
    names = ["Time-cost", "Train-ppl", "Validation-ppl"]
    assert assign(names) == {"Train-ppl": "train_loss", "Validation-ppl": "val_loss"}
    assert assign(["Train-SmoothL1", "Validation-SmoothL1"]) == {
        "Train-SmoothL1": "train_loss", "Validation-SmoothL1": "val_loss",
    }  # fmt: skip


def test_our_own_names_are_never_read_back():
    assert assign(["health/loss", "health.loss", "health/no_progress/best"]) == {}


# What the trainers of losses that need not descend log beside one, as their sources have it.
OBJECTIVES = {
    "by hand": ["reward"],
    "DQN": ["avg_reward", "epsilon"],
    "DQN, mean Q": ["mean_q"],
    "returns": ["mean_return", "entropy"],
    "returns of episodes": ["ep_return_mean"],
    "REINFORCE": ["advantages/mean"],
    "policy and value": ["policy_loss", "value_loss"],
    "CleanRL PPO": ["charts/episodic_return", "losses/value_loss", "losses/approx_kl", "losses/clipfrac", "losses/explained_variance"],
    "CleanRL without episodes": ["losses/old_approx_kl"],
    "CleanRL DQN": ["losses/td_loss", "losses/q_values", "charts/SPS"],
    "CleanRL SAC": ["losses/qf1_loss", "losses/actor_loss", "losses/alpha"],
    "SB3": ["rollout/ep_rew_mean", "rollout/ep_len_mean", "time/total_timesteps", "train/loss"],
    "SB3 SAC": ["train/ent_coef", "train/actor_loss"],
    "SB3 DQN": ["rollout/exploration_rate"],
    "RLlib, old": ["episode_reward_mean", "episode_len_mean"],
    "RLlib": ["env_runners/episode_return_mean"],
    "spinning up": ["AverageEpRet", "LossPi"],
    "garage": ["Evaluation/AverageDiscountedReturn"],
    "TRL PPO": ["objective/rlhf_reward", "objective/kl", "policy/approxkl_avg", "loss/policy_avg"],
    "TRL GRPO": ["reward", "reward_std", "rewards/accuracy_reward/mean", "completion_length", "kl"],
    "TRL GRPO, by names in snake case": ["rewards_accuracy", "kl"],
    "TRL GRPO in W&B": ["train/reward", "train/clip_ratio/region_mean"],
    "TRL online DPO": ["objective/rlhf_reward", "rewards/chosen", "rewards/margins"],
    "clipping": ["train/clip_ratio"],
    "verl": ["actor/pg_loss", "actor/ppo_kl", "critic/rewards/mean"],
    "d and g": ["d_loss", "g_loss"],
    "D and G": ["D/loss", "G/loss"],
    "DCGAN": ["Loss_D", "Loss_G", "D(x)", "D(G(z))"],
    "DCGAN, errors": ["errD", "errG"],
    "camels": ["lossG", "lossD"],
    "a discriminator alone": ["d_loss"],
    "a discriminator by name": ["loss_disc", "loss_adv"],
    "WGAN": ["generator_loss", "critic_loss"],
    "pix2pix": ["G_GAN", "G_L1", "D_real", "D_fake"],
    "CycleGAN": ["D_A", "G_A", "cycle_A", "idt_A", "D_B", "G_B"],
    "StyleGAN": ["Loss/G/loss", "Loss/D/loss", "Loss/scores/fake", "Loss/r1_penalty"],
    "ESRGAN": ["l_g_pix", "l_g_percep", "l_g_gan", "l_d_real", "l_d_fake"],
    "VQGAN": ["train/disc_loss", "train/d_weight"],
    "VITS": ["loss/g/total", "loss/d/total", "loss/g/fm"],
}  # fmt: skip

# What trainers of losses that do descend log beside one.
DESCENTS = {
    "nothing": [],
    "TRL DPO": ["rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen", "logits/rejected"],
    "TRL DPO in W&B": ["train/rewards/chosen", "train/rewards/margins", "eval/rewards/accuracies"],
    "TRL DPO, its accuracies alone": ["rewards/accuracies"],
    "TRL ORPO": ["rewards/chosen", "nll_loss", "log_odds_ratio", "log_odds_chosen"],
    "TRL KTO": ["rewards/chosen", "rewards/rejected", "rewards/margins", "kl", "logps/chosen"],
    "TRL reward model": ["min_reward", "mean_reward", "max_reward", "accuracy", "margin"],
    "TRL SFT": ["mean_token_accuracy", "entropy", "num_tokens"],
    "TRL GKD": ["on_policy_loss", "off_policy_loss"],
    "regularised": ["kl", "kl_loss"],
    "differential privacy": ["epsilon", "delta"],
    "finance": ["portfolio_return", "annualised_return", "return_code"],
    "retrieval": ["ret_at_5", "mean_rank"],
    "few-shot": ["episode", "episode_loss"],
    "robust training": ["loss_adv", "adv_accuracy", "advantage_over_baseline"],
    "clipping": ["clip_fraction_of_grad", "grad_clip_ratio"],
    "distillation": ["dis_loss", "distill_loss", "discrepancy"],
    "multi-task": ["gen_loss", "cls_loss"],
    "one side of two": ["g_loss"],
    "detection": ["loss_cls", "loss_bbox", "loss_dfl", "metrics/mAP50(B)"],
    "VQ-VAE": ["q_loss", "e_latent_loss"],
    "regression": ["explained_variance", "r2"],
    "policy of a schedule": ["lr_policy", "policy_id"],
}  # fmt: skip


@pytest.mark.parametrize("trainer", list(OBJECTIVES))
@pytest.mark.parametrize("loss", ["loss", "train/loss", "train_loss", "val_loss"])
@pytest.mark.thinned(4)
def test_a_loss_that_need_not_descend_is_told_by_its_siblings(trainer, loss):
    assert assign([loss, *OBJECTIVES[trainer]])[loss] == "objective_loss"


@pytest.mark.parametrize("trainer", list(DESCENTS))
def test_a_loss_that_descends_stays_a_training_loss(trainer):
    roles = assign(["loss", "eval_loss", *DESCENTS[trainer]])
    assert (roles["loss"], roles["eval_loss"]) == ("train_loss", "val_loss")


def test_what_somebody_has_named_a_training_loss_is_one():
    config = Config(roles={**DEFAULT_PATTERNS, "train_loss": ("loss",)})
    roles = {"loss": "train_loss", "val_loss": "objective_loss", "reward": "train_reward"}
    assert config.role_names(["loss", "val_loss", "reward"]) == roles


def test_the_other_losses_of_such_a_run_are_looked_at_for_nan():
    names = ["losses/policy_loss", "losses/value_loss", "losses/clipfrac", "loss_weight", "entropy"]
    assert assign(names) == {
        "losses/policy_loss": "objective_loss",
        "losses/value_loss": "objective_loss",
        "losses/clipfrac": "clip_fraction",
        "entropy": "entropy",
    }


def test_a_name_is_taken_apart_where_capitals_say_so():
    assert words_of("Evaluation/AverageQVals") == ("evaluation", "average", "q", "vals")
    assert words_of("TRAIN_LOSS") == ("train", "loss")


# The metrics of tools that people use, by name, with the role each must have.
TOOLS = {
    "timm": {"train_loss": "train_loss", "eval_loss": "val_loss", "eval_top1": "val_accuracy", "eval_top5": "higher_better_val"},
    "Keras": {"loss": "train_loss", "val_loss": "val_loss", "accuracy": "train_accuracy", "val_accuracy": "val_accuracy"},
    "fastai": {"train_loss": "train_loss", "valid_loss": "val_loss", "error_rate": "lower_better_val"},
    "the set behind it": {"Loss/train": "train_loss", "Box_loss/train": "loss_part", "Cls_loss/train": "loss_part", "Loss/val": "val_loss"},
    "two letters": {"tr_loss": "train_loss", "va_loss": "val_loss", "tr_acc": "train_accuracy", "va_acc": "val_accuracy"},
    "train and test": {"loss/tr": "train_loss", "loss/te": "val_loss", "te_auc": "val_auc"},
    "held out": {"loss": "train_loss", "heldout_loss": "val_loss", "holdout/acc": "val_accuracy"},
    "valence and arousal": {"loss": "train_loss", "val_loss": "val_loss", "va_loss": "loss_part"},
    "a text encoder": {"train_loss": "train_loss", "te_loss": "loss_part"},
    "Ultralytics": {
        "train/box_loss": "loss_part", "train/cls_loss": "loss_part", "train/dfl_loss": "loss_part",
        "val/box_loss": "val_loss_term", "metrics/mAP50(B)": "higher_better_val", "lr/pg0": "learning_rate",
    },
    "nanoGPT": {"train/loss": "train_loss", "val/loss": "val_loss", "lr": "learning_rate", "mfu": None},
    "MMEngine": {"loss": "train_loss", "loss_cls": "loss_part", "loss_bbox": "loss_part", "coco/bbox_mAP": "higher_better_val", "lr": "learning_rate", "grad_norm": "grad_norm"},
    "detectron2": {"total_loss": "train_loss", "loss_cls": "loss_part", "loss_box_reg": "loss_part", "validation_loss": "val_loss"},
    "DETR": {"train_loss": "train_loss", "test_loss": "val_loss", "train_lr": "learning_rate", "train_loss_ce": "loss_part"},
    "DeepSpeed": {
        "Train/Samples/train_loss": "train_loss", "Train/Samples/lr": "learning_rate", "Train/Samples/loss_scale": "loss_scale",
    },
    "Megatron": {"lm loss": "train_loss", "lm loss validation": "val_loss", "grad-norm": "grad_norm", "learning-rate": "learning_rate"},
    "NeMo": {"reduced_train_loss": "train_loss", "val_loss": "val_loss"},
    "OLMo": {"train/CrossEntropyLoss": "train_loss", "optim/total_grad_norm": "grad_norm"},
    "Composer": {"loss/train/total": "train_loss", "lr-DecoupledAdamW/group0": "learning_rate"},
    "torchtune": {"loss": "train_loss", "val_loss": "val_loss", "tokens_per_second_per_gpu": "throughput"},
    "LLaMA-Factory": {"loss": "train_loss", "eval_loss": "val_loss", "lr": "learning_rate", "percentage": None},
    "fairseq": {"train_loss": "train_loss", "valid_loss": "val_loss", "gnorm": "grad_norm", "ppl": "lower_better_val"},
    "XGBoost": {"train-logloss": "train_loss", "eval-logloss": "val_loss", "train-auc": "train_auc", "eval-auc": "val_auc", "train-error": None},
    "XGBoost, sklearn": {"validation_0-logloss": None, "validation_0-auc": None, "validation_1-logloss": "val_loss"},
    "LightGBM": {"training-binary_logloss": "train_loss", "valid_1-binary_logloss": "val_loss", "training-auc": "train_auc"},
    "a VAE": {"loss": "train_loss", "kl_weight": "objective_weight", "beta": "objective_weight", "recon_loss": "loss_part"},
    "a curriculum": {"loss": "train_loss", "difficulty": "objective_weight", "aug_strength": "objective_weight", "noise_scale": None},
    "accuracies alone": {"accuracy": "train_accuracy", "val_accuracy": "val_accuracy", "train/top1": "train_accuracy", "top5": None},
    "a tagger": {"tr_nll": "train_loss", "tr_token_acc": "train_accuracy", "eval_seq_acc": "val_accuracy", "opt/lr": "learning_rate"},
    "TRL SFT": {"loss": "train_loss", "mean_token_accuracy": "train_accuracy", "eval_mean_token_accuracy": "val_accuracy", "entropy": "entropy"},
}  # fmt: skip


@pytest.mark.parametrize("tool", list(TOOLS))
def test_roles_in_the_names_that_tools_log(tool):
    assert assign(TOOLS[tool]) == {name: role for name, role in TOOLS[tool].items() if role is not None}


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        (["train_ppl", "val_ppl", "lr"], ["train_loss", "val_loss", "learning_rate"]),
        (["perplexity"], ["train_loss"]),
        (["train/mae", "test/mae"], ["train_loss", "val_loss"]),
        (["mae", "rmse"], [None, None]),  # of a model that was only tried, say, a value for each horizon
        (["loss", "ppl", "val_ppl"], ["train_loss", None, "lower_better_val"]),
        (["train_loss", "train_rmse", "test_rmse"], ["train_loss", None, "lower_better_val"]),
        (["train-rmse", "eval-rmse"], ["train_loss", "val_loss"]),
        (["training-l2", "valid_1-l2"], ["train_loss", "val_loss"]),
        (["learn-RMSE", "test-RMSE"], ["train_loss", "val_loss"]),
        (["val_loss", "train_ppl"], ["val_loss", None]),
        (["episode_reward", "perplexity"], ["train_reward", None]),
        (["train/l1", "elbo"], [None, "train_loss"]),  # a penalty, or an error
        *(
            (["train/mae", name], [None, "train_loss"])
            for name in ("elbo", "train/energy", "total_cost", "objective", "nll_mean")
        ),
        (["mae", "rmse", "val_mae", "val_rmse"], ["train_loss", None, "val_loss", "lower_better_val"]),
        (["learn", "test"], ["train_loss", "val_loss"]),  # CatBoost's console
    ],
)
def test_without_a_loss_perplexity_and_errors_stand_in_for_it(names, roles):
    assert [assign(names).get(name) for name in names] == roles


def test_of_very_many_parts_of_a_loss_a_few_are_read():
    roles = assign(["loss", *(f"loss_of_class_{number}" for number in range(1000))])
    assert list(roles.values()).count("loss_part") == 16


def test_adversarial_losses_are_still_looked_at_for_nan():
    assert assign(["d_loss", "g_loss"]) == {"d_loss": "objective_loss", "g_loss": "objective_loss"}


def test_configured_patterns_may_hold_stars():
    config = Config(roles={"train_loss": ("My/Own_*",)})
    assert config.role_names(["my own thing", "loss"]) == {"my own thing": "train_loss", "loss": "loss_part"}


@given(st.text(max_size=2000))
def test_any_name_has_a_bounded_normal_form(name):
    form = normal_form(name)
    assert len(form) <= 600
    assert assign([name]).keys() <= {name}


@pytest.mark.parametrize(("name", "role"), [
    ("reward", "train_reward"), ("rollout/ep_rew_mean", "train_reward"), ("eval/mean_reward", "val_reward"),
    ("charts/episodic_return", "train_reward"), ("env_runners/episode_return_mean", "train_reward"),
    ("evaluation/env_runners/episode_return_mean", "val_reward"), ("train/reward", "train_reward"),
    ("episode_reward/val", "val_reward"), ("val_return", "val_reward"), ("AverageEpRet", "train_reward"),
    ("reward_std", "reward_spread"), ("episode_length", "episode_length"), ("rewards/accuracy_reward/mean", "reward_part"),
])  # fmt: skip
def test_rewards(name, role):
    assert assign([name, "policy_loss"]).get(name) == role


def test_a_reward_is_to_rise_only_in_reinforcement_learning():
    assert assign(["train_loss", "mean_reward", "margin", "accuracy"]).get("mean_reward") is None
    assert "reward" not in assign(["g_loss", "d_loss", "reward"])
    assert "mean_reward" not in assign(["discriminator_loss", "policy_loss", "mean_reward"])
    assert assign(["train_loss", "return_code"]) == {"train_loss": "train_loss"}
    config = Config(roles={**DEFAULT_PATTERNS, "val_reward": ("quality",)})
    assert config.role_names(["train_loss", "quality"]).get("quality") == "val_reward"


def test_the_same_names_are_decided_once_and_what_is_remembered_stays_small():
    plan = RolePlan()
    both = plan.of(["loss", "val_loss"])
    assert plan.of({"loss": 1, "val_loss": 2}) is both
    assert both.needed == {"loss": "train_loss", "val_loss": "val_loss"}
    assert both.has_loss
    assert plan.of(["loss"]) is not both  # other names beside it may make another of it
    many = tuple(f"metric{number}" for number in range(10_000))
    assert plan.of(many) is plan.of(many)
    assert plan.of(["loss", "val_loss"]) is not both


def test_a_plan_under_a_prefix_reads_a_file_of_held_out_data():
    plan = RolePlan().under("valid/")
    assert plan.needed(["loss", "eval_loss", "note"]) == {"loss": "val_loss", "eval_loss": "val_loss"}
    assert [plan.name(one) for one in ("loss", "eval_loss")] == ["valid/loss", "eval_loss"]


def test_a_plan_reads_what_is_wanted_or_everything():
    assert RolePlan(wanted=frozenset({"val_loss"})).needed(["loss", "val_loss"]) == {"val_loss": "val_loss"}
    assert NOTHING_READ.needed(["loss"]) == {}
    assert RolePlan(every=True).needed(["loss", "wombat"]) == {"loss": "train_loss", "wombat": ""}
