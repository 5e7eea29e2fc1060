"""What the cells of a notebook printed, read as the logs they are."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health import check
from tracker_health.errors import ReadError
from tracker_health.readers.log_formats import read_log
from tracker_health.readers.log_formats.notebook import Notebook
from tracker_health.roles import RolePlan

LOSSES = [2.0 * 0.8**epoch + 0.1 for epoch in range(20)]
PRINTED = [
    f"Epoch {epoch}/20 - train loss: {loss:.4f} - val loss: {loss + 0.1:.4f}\n" for epoch, loss in enumerate(LOSSES, 1)
]
BAR = "".join(
    f"\r{at}%|███   | {at}/100 [00:01<00:01, 45.1it/s, loss={3.0 - 0.02 * at:.2f}]" for at in range(0, 101, 10)
)
ROWS = "".join(
    f"<tr><td>{epoch}</td><td>{loss:.4f}</td><td>{loss + 0.1:.4f}</td></tr>" for epoch, loss in enumerate(LOSSES, 1)
)
TABLE = (
    "<div><progress value='20' max='20'></progress></div><table border='1' class='dataframe'><thead><tr style='text-align: left;'>"
    f"<th>Epoch</th><th>Training Loss</th><th>Validation Loss</th></tr></thead><tbody>{ROWS}</tbody></table><p>"
)


def stream(*texts, name="stdout"):
    return {"output_type": "stream", "name": name, "text": list(texts)}


def shown(**data):
    return {
        "output_type": "display_data",
        "metadata": {},
        "data": {f"text/{kind}": [text] for kind, text in data.items()},
    }


def error(name, value):
    return {"output_type": "error", "ename": name, "evalue": value, "traceback": [f"\x1b[0;31m{name}\x1b[0m: {value}"]}


def notebook(folder, *cells):
    """A notebook with a cell for each list of outputs."""
    made = [{"cell_type": "markdown", "metadata": {}, "source": ["# epoch 1 loss 3.0"]}]
    for count, outputs in enumerate(cells, 1):
        cell = {"cell_type": "code", "execution_count": count, "metadata": {}, "outputs": list(outputs)}
        made.append({**cell, "source": ["print('epoch 7 loss 9.0')"]})
    path = folder / "train.ipynb"
    path.write_text(json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1))
    return path


def points(path):
    log, _ = read_log(path, path.name, RolePlan(every=True))
    return {one.name: list(zip(one.steps.tolist(), one.values.tolist(), strict=True)) for one in log.series}, log


def test_a_stream(tmp_path):
    found, log = points(notebook(tmp_path, [stream("data (1200, 64)\n")], [stream(*PRINTED[:9]), stream(*PRINTED[9:])]))
    assert found["train loss"] == [(epoch, round(loss, 4)) for epoch, loss in enumerate(LOSSES, 1)]
    assert log.note == "what cell [2] printed is judged"


def test_a_bar_that_is_redrawn(tmp_path):
    assert points(notebook(tmp_path, [stream(BAR, name="stderr")]))[0]["loss"][-1] == (100, 1.0)


def test_a_table_that_is_shown(tmp_path):
    found, _ = points(notebook(tmp_path, [shown(html=TABLE, plain="<IPython.core.display.HTML object>")]))
    assert found["Validation Loss"] == [(epoch, round(loss + 0.1, 4)) for epoch, loss in enumerate(LOSSES, 1)]


def test_the_last_training_counts_and_the_others_are_named(tmp_path):
    worse = [f"epoch {epoch} loss {3.0 + epoch}\n" for epoch in range(1, 6)]
    found, log = points(
        notebook(tmp_path, [stream(*worse)], [stream(*PRINTED)], [error("NameError", "plt is not defined")])
    )
    assert "train loss" in found
    assert log.note == "what cell [2] printed is judged; cell [1] printed other trainings"


def test_an_error_in_another_cell_is_not_the_training_s(tmp_path):
    path = notebook(tmp_path, [error("NameError", "x")], [stream(*PRINTED)], [error("KeyError", "y")])
    assert str(check(path).verdict) == "pass"


def test_an_error_behind_a_training_names_its_cell(tmp_path):
    report = check(notebook(tmp_path, [], [stream(*PRINTED[:5]), error("RuntimeError", "CUDA error: out of memory")]))
    assert str(report.verdict) == "fail"
    assert "train.ipynb cell [2]" in json.dumps(report.to_json())


def test_a_cell_for_each_epoch_is_one_log(tmp_path):
    assert len(points(notebook(tmp_path, *([stream(line)] for line in PRINTED)))[0]["train loss"]) == 20


def test_in_a_folder_a_notebook_counts_where_nothing_else_does(tmp_path):
    notebook(tmp_path, [stream(*PRINTED)])
    assert str(check(tmp_path).verdict) == "pass"
    (tmp_path / "log.jsonl").write_text(
        "".join(json.dumps({"step": step, "loss": 2.0 + 0.1 * step**1.5}) + "\n" for step in range(50))
    )
    assert str(check(tmp_path).verdict) == "fail"


@pytest.mark.parametrize("content", ['{"cells": [', '{"cells": "x", "cell_type": 1}', '{"metadata": {}}', "{" * 9])
def test_what_is_no_notebook(content, tmp_path):
    path = tmp_path / "train.ipynb"
    path.write_text(content)
    with suppress(ReadError):
        assert read_log(path, path.name, RolePlan(every=True))[0].series == ()


def test_an_analysis_is_no_training(tmp_path):
    grid = [f"lr={rate} val_loss: {1.0 + rate}\n" for rate in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
    assert str(check(notebook(tmp_path, [stream(*grid)])).verdict) in ("skip", "error")


def test_a_short_later_try_does_not_displace_a_training(tmp_path):
    found, log = points(notebook(tmp_path, [stream(*PRINTED)], [stream(*PRINTED[:3])]))
    assert len(found["train loss"]) == 20
    assert "cell [2] printed other trainings" in log.note


def test_cells_that_go_on_are_one_training(tmp_path):
    found, log = points(notebook(tmp_path, [stream(*PRINTED[:8])], [stream(*PRINTED[8:15])], [stream(*PRINTED[15:])]))
    assert len(found["train loss"]) == 20
    assert "cell [1], cell [2], cell [3] printed" in log.note


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["cells", "outputs", "output_type", "text", "data", "text/html", "text/plain", "traceback", "execution_count"]),
        inner, max_size=4,
    ), max_leaves=20,
)  # fmt: skip


@given(ANY)
def test_any_json_is_a_log_or_refused(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("any") / "train.ipynb"
    path.write_text(json.dumps({"cells": [value, {"outputs": [value]}], "cell_type": 0}))
    Notebook().read(path, path.name, RolePlan(every=True))
