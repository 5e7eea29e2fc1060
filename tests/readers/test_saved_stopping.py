"""Signs in a checkpoint that the training was set up to stop early."""

import pytest

from tracker_health.api import check
from tracker_health.readers.optimizers.optimizer_state import read_optimizer_state
from tracker_health.readers.optimizers.saved_stopping import early_stopping_in

torch = pytest.importorskip("torch")

LIGHTNING = "EarlyStopping{'monitor': 'val_loss', 'mode': 'min'}"


@pytest.mark.parametrize(
    ("root", "sign"),
    [
        ({"callbacks": {LIGHTNING: {"wait_count": 3, "stopped_epoch": 12, "patience": 3}}}, LIGHTNING),
        ({"args": {"early_stopping_patience": 3}}, "early_stopping_patience"),
        ({"epoch": 4, "patience_counter": 0}, "patience_counter"),
        ({"epoch": 4, "epochs_no_improve": 2}, "epochs_no_improve"),
        ({"hparams": {"patience": 5}}, "patience"),
    ],
)
def test_signs(root, sign):
    assert early_stopping_in(root) == sign


@pytest.mark.parametrize(
    "root",
    [
        {},
        {"callbacks": {"ModelCheckpoint{'monitor': 'val_loss'}": {"best_model_score": 0.1}}},
        {"args": {"early_stopping": False, "early_stopping_patience": 0, "patience": None, "earlystop": "none"}},
        {"scheduler": {"patience": 5, "num_bad_epochs": 2, "mode": "min"}},
        {"args": {"patience": 5, "factor": 0.1}},
        {"args": {"early_stopping": "no", "early_stop": {}, "es_patience": "off", "earlystopping": "0.0"}},
        {"model": {"early_stop.weight": torch.ones(2)}},
        {3: "patience", "wait_count": True, "patience" * 100: 3},
    ],
)
def test_what_is_no_sign(root):
    assert early_stopping_in(root) == ""


@pytest.mark.parametrize(("more", "verdict"), [({}, "warn"), ({"patience_counter": 3}, "pass")])
def test_a_run_that_stopped_early_by_its_checkpoint(more, verdict, tmp_path):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())
    lines = ["epoch,loss,val_loss"]
    for epoch in range(30):
        for _ in range(20):
            loss = ((model(torch.ones(2, 4)) - 1.0) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        lines.append(f"{epoch},{loss.item() + 0.1},{loss.item() + 0.1}")
    (tmp_path / "metrics.csv").write_text("\n".join(lines))
    (tmp_path / "config.json").write_text('{"epochs": 100}')
    torch.save({"optimizer": optimizer.state_dict(), "epoch": 29} | more, tmp_path / "last.pt")
    (found,) = (one for one in check(tmp_path).results if one.code == "RUN001")
    assert found.verdict == verdict
    assert read_optimizer_state(tmp_path / "last.pt", "last.pt").early_stopping == next(iter(more), "")
