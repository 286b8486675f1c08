"""What a run tells, and how it is asked to stop."""

from __future__ import annotations

import io
import json

import pytest
from tests.support import about

from sparrowmq.spark.pipelines.common.watch import Progress, TopicLag, Watch, all_of, json_lines


def test_batches_add_up() -> None:
    seen: list[Progress] = []
    watch = Watch(seen.append, now=lambda: 5.0)
    watch.begin("archive")
    watch.batch(10, 100, 0.5)
    watch.batch(20, 300, 0.25)
    watch.waiting(7)
    watch.batch(5, 0, 0.125, lag=2)
    expected = Progress("archive", batches=3, rows=35, size=400, lag=2, batch_seconds=0.125, at=5.0)
    assert watch.progress == seen[-1] == expected
    assert [(one.rows, one.lag) for one in seen] == [(0, None), (10, None), (30, None), (30, 7), (35, 2)]


def test_a_lag_that_is_known_is_not_told_again() -> None:
    seen: list[Progress] = []
    watch = Watch(seen.append)
    for lag in (None, 3, 3, None, 0):
        watch.waiting(lag)
    assert [one.lag for one in seen] == [3, 0]


def test_a_stop() -> None:
    watch = Watch()
    watch.begin("archive")
    assert not watch.stopping
    assert "stopping" not in repr(watch)
    watch.stop()
    assert watch.stopping
    assert "archive" in repr(watch) and "stopping" in repr(watch)


def test_a_report_that_fails_ends_the_run() -> None:
    def full(progress: Progress) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, check=about(args=("disk full",))):
        Watch(full).begin("archive")


def test_lines_of_json_and_several_reports() -> None:
    out, seen = io.StringIO(), list[Progress]()
    watch = Watch(all_of(json_lines(out), seen.append), now=lambda: 1.5)
    watch.begin("archive")
    watch.waiting(4)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert "lag" not in lines[0]
    assert lines[1] == {
        "pipeline": "archive",
        "batches": 0,
        "rows": 0,
        "size": 0,
        "lag": 4,
        "batch_seconds": 0.0,
        "at": 1.5,
    }
    assert len(seen) == 2


def test_lags_by_topic_are_the_lag() -> None:
    seen: list[Progress] = []
    watch = Watch(seen.append, now=lambda: 1.0)
    lags = [TopicLag("T", 5, 1.5), TopicLag("S", 2)]
    watch.topics(lags)
    watch.topics(reversed(lags))
    watch.waiting(100)  # what Spark knew a while ago
    assert len(seen) == 1
    assert seen[0].lag == 7
    assert list(seen[0].to_json()["topics"]) == [
        {"topic": "S", "messages": 2, "seconds": None},
        {"topic": "T", "messages": 5, "seconds": 1.5},
    ]


def test_a_read_tells_what_it_has_so_far() -> None:
    seen: list[Progress] = []
    watch = Watch(seen.append, now=lambda: 1.0)
    watch.begin("history", 30)
    for rows, lag in ((0, 30), (10, 20), (10, 20), (30, 0)):
        watch.read(rows, lag)
    assert [(one.rows, one.lag) for one in seen] == [(0, 30), (10, 20), (30, 0)]
    assert seen[-1].batches == 0
