"""What pipelines read in checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.common.checkpoints import QueryCheckpoint
from sparrowmq.spark.pipelines.common.files import LocalFiles

QUEUE = MessageQueue("T", "broker-a", 0)


class LostError(SettingsError):
    """What the pipeline of these tests raises."""


@pytest.fixture
def checkpoint(tmp_path: Path) -> QueryCheckpoint:
    return QueryCheckpoint(LocalFiles(tmp_path), LostError, "it begins anew")


def test_the_spans_of_a_batch(tmp_path: Path, checkpoint: QueryCheckpoint) -> None:
    assert not checkpoint.has_batches and not checkpoint.last().queues
    (tmp_path / "offsets").mkdir()
    assert not checkpoint.has_batches, "Spark made the directory and was killed"
    (tmp_path / "metadata").write_text('{"id":"abc"}')
    for batch, end in enumerate((5, 9, 9)):
        value = {"queues": {"T": {"broker-a": {"0": end}}}}
        start = {"from": {"T": {"broker-a": {"0": 2}}}} if batch == 0 else {}
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps({**value, **start})}")
    assert checkpoint.has_batches
    assert checkpoint.query_id() == "abc"
    found = [checkpoint.batch_spans(batch) for batch in range(3)]
    assert found == [[Span(QUEUE, 2, 5)], [Span(QUEUE, 5, 9)], []]
    (tmp_path / "offsets" / "10").write_text('v1\n{}\n{"queues": {"T": {"broker-a": {"0": 12}}}}')
    assert checkpoint.last().queues == {QUEUE: 12}


def test_what_cannot_be_read_says_what_comes_without_it(tmp_path: Path, checkpoint: QueryCheckpoint) -> None:
    (tmp_path / "offsets").mkdir()
    without = rf"remove file:{tmp_path}, it begins anew$"
    for text in ("v1\n", "v1\n{}\n{", "", 'v1\n{}\n{"other": 1}'):
        (tmp_path / "offsets" / "0").write_text(text)
        with pytest.raises(LostError, match=rf"offsets/0 has no offsets of batch 0: {without}"):
            checkpoint.batch_spans(0)
    with pytest.raises(LostError, match="no offsets of batch 6"):
        checkpoint.batch_spans(7)
    with pytest.raises(LostError, match=rf"metadata has no query id: {without}"):
        checkpoint.query_id()
    (tmp_path / "metadata").write_text("[]")
    with pytest.raises(LostError, match="metadata has no query id"):
        checkpoint.query_id()
