"""What the names of checkpoints say: which belong to one training, and which is newer."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.run_files.naming import age, checkpoints_of, numbers, series_of

# The checkpoints of one training each, from the oldest to the newest.
IN_ORDER = [
    ["checkpoint-500/optimizer.pt", "checkpoint-1000/optimizer.pt"],
    ["best.pt", "epoch9.pt", "epoch10.pt", "last.pt"],
    ["epoch=1-val_loss=0.9.ckpt", "epoch=2-val_loss=0.25.ckpt", "epoch=12-val_loss=0.3.ckpt"],
    ["val_loss=0.9-epoch=2.ckpt", "val_loss=0.2-epoch=10.ckpt"],
    ["loss_0.9_epoch_2.pt", "loss_0.2_epoch_10.pt"],
    ["acc91.2_ep3.pth", "acc90.1_ep12.pth"],
    ["epoch=1-val_loss=0.5.ckpt", "epoch=12-val_loss=nan.ckpt"],
    ["step_900.pt", "step_2k.pt", "step_1.5M.pt"],
    ["model_best.pth.tar", "checkpoint-9.pth.tar", "checkpoint-12.pth.tar"],
    ["checkpoint_best.pt", "checkpoint_1_5000.pt", "checkpoint_2_10000.pt", "checkpoint_last.pt"],
    ["checkpoint0099.pth", "checkpoint0100.pth", "checkpoint.pth"],
    ["model_0004999.pth", "model_0009999.pth", "model_final.pth"],
    ["best_coco_bbox_mAP_epoch_10.pth", "epoch_11.pth", "epoch_12.pth"],
    ["mylora-000002.safetensors", "mylora-000010.safetensors", "mylora.safetensors"],
    ["step1000-tokens4B/a.pt", "step2000-tokens8B/a.pt"],
    ["stage1/epoch_9.pt", "stage2/epoch_1.pt"],
    ["global_step100/a.pt", "global_step1000/a.pt"],
    ["ep0-ba900-a.pt", "ep1-ba1800-a.pt"],
]
# Of several trainings, or of several models of one.
APART = [
    ["seed1_step100/a.pt", "seed2_step100/a.pt"],
    ["resnet18_epoch_3/a.pt", "resnet50_epoch_3/a.pt"],
    ["exp1_step100/a.pt", "exp2_step100/a.pt"],
    ["run_1.pt", "run_2.pt"],
    ["fold0_best.pt", "fold1_best.pt"],
    ["model_gpu0.pt", "model_gpu1.pt"],
    ["client_1.pt", "client_2.pt"],
    ["worker1.pt", "worker2.pt"],
    ["generator_10.pt", "discriminator_10.pt"],
    ["netG_epoch_5.pth", "netD_epoch_5.pth"],
    ["生成器.pt", "判别器.pt"],
    ["实验一/last.pt", "实验二/last.pt"],
    ["model.pt", "model_ema.pt"],
]


@pytest.mark.parametrize("names", IN_ORDER, ids=lambda names: names[0])
def test_checkpoints_of_one_training(names):
    if "stage" not in names[0]:
        assert len({checkpoints_of(name) for name in names}) == 1
    for older, newer in itertools.pairwise(names):
        assert age(older) < age(newer), (older, newer)


@pytest.mark.parametrize("names", APART, ids=lambda names: names[0])
def test_checkpoints_of_several_trainings(names):
    assert len({checkpoints_of(name) for name in names}) == len(names)


@pytest.mark.parametrize("names", [["epoch_1.pt", "epoch_22.pt"], ["checkpoint-1/a.pt", "checkpoint-2/a.pt"]])
def test_a_series_differs_in_numbers_alone(names):
    assert len({series_of(name) for name in names}) == 1
    assert series_of("run-1/epoch_1.pt") != series_of("run-2/epoch_1.pt")
    assert series_of("seed1.pt") != series_of("seed2.pt")


@pytest.mark.parametrize(
    "name", ["1" * 5000, "9e999k.pt", "loss=" + "9" * 400 + ".pt", "\n\x1b[31m.pt", "²_epoch.pt", ""]
)
def test_names_that_nobody_would_give(name):
    assert isinstance(checkpoints_of(name), str)
    assert age(name) <= age(name)


@given(name=st.text(max_size=60))
def test_any_name_can_be_placed(name):
    assert checkpoints_of(name) == checkpoints_of(name)
    assert all(isinstance(one, int) for one in numbers(name))
    assert age(name) <= age(name)


@given(steps=st.lists(st.integers(0, 10**15), min_size=2, max_size=5, unique=True))
@pytest.mark.parametrize(
    "pattern", ["step_{}.pt", "checkpoint-{}/optimizer.pt", "epoch={}-val_loss=0.5.ckpt", "m{}.pth"]
)
def test_more_steps_are_newer(pattern, steps):
    names = [pattern.format(step) for step in steps]
    assert sorted(names, key=age) == [pattern.format(step) for step in sorted(steps)]
    assert len({checkpoints_of(name) for name in names}) == 1
