"""Times that no reader holds are null, and counted in one warning of a task."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparrowmq.columnar.schema import TIMESTAMP
from sparrowmq.spark.read.odd_times import OddTimes


def test_null_times_are_counted_over_all_batches(caplog: pytest.LogCaptureFixture) -> None:
    born = pa.array([0, None, None], TIMESTAMP)
    batch = pa.RecordBatch.from_arrays(
        [born, pa.array([1, 2, 3], TIMESTAMP), pa.nulls(3, pa.string())],
        ["born_timestamp", "store_timestamp", "tags"],
    )
    times = OddTimes()
    times.count(batch)
    times.count(batch.slice(1))
    times.warn()
    assert caplog.messages == ["4 messages have no born_timestamp: it is not in the years 1 to 9999"]


def test_nothing_is_logged_without_any(caplog: pytest.LogCaptureFixture) -> None:
    times = OddTimes()
    times.count(pa.RecordBatch.from_arrays([pa.array([1], TIMESTAMP)], ["store_timestamp"]))
    times.warn()
    assert not caplog.messages
