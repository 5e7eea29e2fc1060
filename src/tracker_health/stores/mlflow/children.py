"""The runs below a parent run, and what their tags say of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tracker_health.evidence import Child, Children, RunRef
from tracker_health.stores.common.record import tagged
from tracker_health.stores.mlflow.marks import marks_in
from tracker_health.stores.remote.paging import Paging

if TYPE_CHECKING:
    from mlflow import MlflowClient

MOST = 5_000
_PAGE = 200


def children_of(client: MlflowClient, run: Any) -> Children | None:
    """How the runs below a run fared; None where there are none. Those of other experiments are not looked for.

    Raises:
        Exception: whatever the store raises.
    """
    found = list(_below(client, run))
    return Children.of(map(_child, found[:MOST]), more=len(found) > MOST) if found else None


def _below(client: MlflowClient, run: Any) -> Iterator[Any]:
    """MLflow's records, of one more than are counted at most."""
    where, token, left = f"tags.mlflow.parentRunId = '{run.info.run_id}'", None, MOST + 1
    paging, seen = Paging("the runs below it (runs/search)"), set[str]()
    while left > 0:
        page = client.search_runs([run.info.experiment_id], where, max_results=min(_PAGE, left), page_token=token)
        fresh = [record for record in page if record.info.run_id not in seen]
        yield from fresh
        seen |= {record.info.run_id for record in fresh}
        left -= len(fresh)
        token = page.token
        if not token:
            return
        paging.turn(token, is_new=bool(fresh))


def _child(record: Any) -> Child:
    info = record.info
    ref = RunRef(store="mlflow", id=info.run_id, name=info.run_name or info.run_id)
    known = tagged(ref, marks_in(record), user="", started=None, last_step=None)
    return Child(
        id=ref.id,
        name=ref.name,
        verdict=known.verdict,
        codes=known.codes,
        summary=known.summary,
        link=f"#/experiments/{quote(info.experiment_id)}/runs/{quote(info.run_id)}",
    )
