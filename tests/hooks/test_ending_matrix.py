"""Every way to end, in every store, for every judge: the cells of the matrix one by one."""

from __future__ import annotations

import pytest

pytest.importorskip("mlflow")
pytest.importorskip("wandb")
pytest.importorskip("optuna")

from . import ending_matrix

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("way", list(ending_matrix.WAYS))
@pytest.mark.parametrize("store", ending_matrix.STORES)
@pytest.mark.parametrize("judge", ending_matrix.JUDGES)
def test_cell(tmp_path, way, store, judge):
    came, printed = ending_matrix.outcome(tmp_path.resolve(), way, store, judge)
    assert came == ending_matrix.expected(way, store, judge), printed
