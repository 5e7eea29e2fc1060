"""What a sweep says of itself to monitoring."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections import Counter

import pytest

from tracker_health.cli.stats import PassStats, write_stats
from tracker_health.errors import ConfigError


def stats(**more):
    found = PassStats(
        began=time.time() - 2.0, kinds=Counter(annotated=5, unchanged=2, taken=1, failed=1), incomplete=2, **more
    )
    found.end(("run\n17", found.began - 3600))
    return found


def test_a_pass_as_a_line_of_json():
    document = json.loads(json.dumps(stats().to_json()))
    assert [document[key] for key in ("judged", "skipped", "errors")] == [3, 3, 3]
    assert 2.0 <= document["seconds"] < 10
    assert document["oldest_unjudged"]["run"] == "run 17"
    assert 3600 <= document["oldest_unjudged"]["seconds"] < 3620


def test_a_pass_as_metrics():
    text = stats(complete=False).prometheus()
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert samples['tracker_health_sweep_runs{result="error"}'] == "3"
    assert samples["tracker_health_sweep_complete"] == "0"
    assert float(samples["tracker_health_sweep_oldest_unjudged_seconds"]) >= 3600
    assert "run" not in re.sub(r"sweep_runs|# .*", "", text)
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{result="[a-z]+"\})? [0-9.]+', line)


def test_files_are_added_to_or_replaced(tmp_path):
    lines, metrics = tmp_path / "passes.jsonl", tmp_path / "sweep.prom"
    for _ in range(2):
        write_stats(str(lines), stats())
        write_stats(str(metrics), stats())
    assert len(lines.read_text().splitlines()) == 2
    assert metrics.read_text().count("# TYPE tracker_health_sweep_runs gauge") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"passes.jsonl", "sweep.prom"}
    with pytest.raises(ConfigError, match="cannot be written"):
        write_stats(str(tmp_path / uuid.uuid4().hex / "x.prom"), stats())
