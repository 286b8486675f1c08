"""What pipelines read in checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets import Span
from sparrowmq.spark.pipelines.checkpoints import batch_spans, query_id

QUEUE = MessageQueue("T", "broker-a", 0)


def test_the_spans_of_a_batch(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"abc"}')
    for batch, end in enumerate((5, 9, 9)):
        value = {"queues": {"T": {"broker-a": {"0": end}}}}
        start = {"from": {"T": {"broker-a": {"0": 2}}}} if batch == 0 else {}
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps({**value, **start})}")
    assert query_id(tmp_path) == "abc"
    found = [batch_spans(tmp_path, batch) for batch in range(3)]
    assert found == [[Span(QUEUE, 2, 5)], [Span(QUEUE, 5, 9)], []]


def test_offsets_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for text in ("v1\n", "v1\n{}\n{", ""):
        (tmp_path / "offsets" / "0").write_text(text)
        with pytest.raises(ValueError, match=r"offsets/0 holds no offsets of batch 0"):
            batch_spans(tmp_path, 0)
    with pytest.raises(ValueError, match="no offsets of batch 6"):
        batch_spans(tmp_path, 7)
