"""Every way to end, in every store, for every judge: the cells of the matrix one by one."""

from __future__ import annotations

import pytest

pytest.importorskip("mlflow")
pytest.importorskip("wandb")
pytest.importorskip("optuna")

from . import ending_matrix

pytestmark = pytest.mark.slow


def cells():
    """All cells. A ninth of them meets every way, every store and every judge, and would do for all."""
    for at, way in enumerate(ending_matrix.WAYS):
        for beside, store in enumerate(ending_matrix.STORES):
            for by, judge in enumerate(ending_matrix.JUDGES):
                marks = () if (at + beside) % 3 == 0 and (at // 3 + by) % 3 == 0 else pytest.mark.exhaustive
                yield pytest.param(way, store, judge, marks=marks)


@pytest.mark.parametrize(("way", "store", "judge"), list(cells()))
@pytest.mark.thinned(22)  # a few of the ninth, of every judge, are for each change
def test_cell(tmp_path, way, store, judge):
    came, printed = ending_matrix.outcome(tmp_path.resolve(), way, store, judge)
    assert came == ending_matrix.expected(way, store, judge), printed
