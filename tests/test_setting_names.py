"""What the run's own params call the setting that an action names."""

import pytest

from tracker_health.evidence import Evidence, RunInfo, RunRef
from tracker_health.facts.settings import Settings

REF = RunRef(store="directory", id="run", name="run")


@pytest.mark.parametrize(
    ("params", "setting", "value", "name"),
    [
        ({"learning_rate": "0.3"}, "learning_rate", 0.3, "learning_rate"),
        ({"optim/LR": "0.3"}, "learning_rate", 0.3, "optim/LR"),
        ({"adam_epsilon": "1"}, "eps", 1.0, "adam_epsilon"),
        ({"encoder.lr": "0.3", "head.lr": "0.1"}, "learning_rate", 0.1, "head.lr"),
        ({"encoder.lr": "0.3", "head.lr": "0.3"}, "learning_rate", 0.3, ""),
        ({"encoder.lr": "0.3", "head.lr": "0.1"}, "learning_rate", None, ""),
        ({"gradient_clip_val": "1e-9"}, "max_grad_norm", 1e-9, "gradient_clip_val"),
        ({"batch": "8"}, "learning_rate", 0.3, ""),
        ({"train_lr": "nan"}, "learning_rate", 0.3, "train_lr"),
    ],
)
def test_a_setting_is_called_as_the_params_do_where_one_has_it(params, setting, value, name):
    assert Settings(Evidence(run=REF, info=RunInfo(params=params))).name_of(setting, value) == name
