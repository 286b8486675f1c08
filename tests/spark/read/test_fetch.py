from __future__ import annotations

import logging
import zlib
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.columnar.records import record
from tests.spark.stubs import StubBroker, StubQueue
from tests.support import about, run

from sparrowmq.columnar.schema import arrow_schema
from sparrowmq.core.backoff import Backoff
from sparrowmq.core.errors import (
    BrokerError,
    ConnectionLostError,
    RecordError,
    SettingsError,
    SparrowError,
)
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.subscription import Sql
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.protocol.sysflag import COMPRESSED, CompressionType
from sparrowmq.spark.bodies.decoding import BadBodyError
from sparrowmq.spark.cluster import retry
from sparrowmq.spark.cluster.faults import DataLossError
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.read import fetch
from sparrowmq.spark.read.fetch import Fetcher, RecordChunk, decode_chunk, read_batches
from sparrowmq.spark.read.pull_size import PullSizes

OPTIONS = ReadOptions(name_server="stub:1", batch_rows=100)
OFFSETS = arrow_schema(["queue_id", "queue_offset"])
RETIRED = r"its topic has fewer queues to read now \(.*\); .*: sparrow topic update t --read-queues 2"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing learned of brokers by an earlier test, and tries without a pause."""
    monkeypatch.setitem(loop_thread()._kept, PullSizes, PullSizes())
    monkeypatch.setattr(retry, "BACKOFF", Backoff(first=0.0001, most=0.0001))


async def _chunks(broker: StubBroker, spans: list[Span], options: ReadOptions) -> list[RecordChunk]:
    fetcher = Fetcher(broker, spans, options)
    chunks: list[RecordChunk] = []
    while not fetcher.done:
        found = await fetcher.round()
        assert found
        chunks += found
    return chunks


def _read(broker: StubBroker, spans: list[Span], options: ReadOptions = OPTIONS) -> list[tuple[int, int]]:
    rows: list[tuple[int, int]] = []
    for chunk in run(_chunks(broker, spans, options)):
        for batch in decode_chunk(chunk, OFFSETS, options):
            rows += zip(batch["queue_id"].to_pylist(), batch["queue_offset"].to_pylist(), strict=True)
    return rows


def _expected(spans: list[Span]) -> list[tuple[int, int]]:
    return [(span.queue.queue_id, offset) for span in spans for offset in range(span.start, span.end)]


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=4),
    st.sampled_from([1, 7, 32, 10**6]),
    st.sampled_from([1, 4, 64]),
    st.sampled_from([200, 2000, 10**7]),
)
def test_spans_are_read_exactly(cuts: list[tuple[int, int]], answer_max: int, pulls: int, size: int) -> None:
    broker = StubBroker(answer_max=answer_max)
    spans = [Span(broker.add(index, 300), min(cut), max(cut)) for index, cut in enumerate(cuts)]
    options = replace(OPTIONS, pulls_in_flight=pulls, batch_bytes=size)
    assert _read(broker, spans, options) == _expected(spans)
    assert broker.in_flight_peak <= pulls


def test_small_answers_are_asked_for_many_at_a_time() -> None:
    broker = StubBroker(answer_max=32)
    spans = [Span(broker.add(0, 3200), 0, 3200)]
    assert _read(broker, spans, replace(OPTIONS, batch_rows=1000)) == _expected(spans)
    assert broker.in_flight_peak > 20
    assert len(broker.pulls) < 115


def test_large_answers_are_asked_for_one_at_a_time() -> None:
    broker = StubBroker()
    spans = [Span(broker.add(0, 1000), 0, 1000)]
    assert _read(broker, spans) == _expected(spans)
    assert [count for _, _, count in broker.pulls] == [100] * 10
    assert broker.in_flight_peak == 1


def test_a_round_is_a_few_batches_when_messages_become_large() -> None:
    broker, options = StubBroker(answer_max=32), replace(OPTIONS, batch_rows=8000, batch_bytes=200_000)
    queue = broker.add(0, 6400)
    broker.queues_[queue].records += [record(offset, bytes(5000)) for offset in range(6400, 8400)]
    chunks, largest = list[RecordChunk](), 0

    async def read() -> None:
        nonlocal largest
        fetcher = Fetcher(broker, [Span(queue, 0, 8400)], options)
        while not fetcher.done:
            before = broker.bytes_given
            chunks.extend(await fetcher.round())
            largest = max(largest, broker.bytes_given - before)

    run(read())
    assert [chunk.start for chunk in chunks[1:]] == [chunk.end for chunk in chunks[:-1]]
    assert chunks[-1].end == 8400
    assert broker.in_flight_peak > 40
    assert 2 * options.batch_bytes < largest <= 5 * options.batch_bytes


def test_small_spans_are_read_in_one_round() -> None:
    broker = StubBroker()
    spans = [Span(broker.add(index, 10), 0, 10) for index in range(8)]
    assert _read(broker, spans) == _expected(spans)
    assert broker.in_flight_peak == 8


def test_the_size_of_pulls_is_kept_for_the_next_task(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = StubBroker(answer_max=32)
    spans = [Span(broker.add(0, 300), 0, 300)]

    async def consumer(_: ReadOptions) -> StubBroker:
        return broker

    monkeypatch.setattr(fetch, "pull_consumer", consumer)
    for _ in range(2):
        broker.pulls.clear()
        assert sum(batch.num_rows for batch in read_batches(spans, OPTIONS, OFFSETS)) == 300
    assert {count for _, _, count in broker.pulls} <= {32, 300 - 32 * 9}


def test_messages_that_were_deleted_are_an_error_that_says_what_to_do() -> None:
    broker = StubBroker()
    queue = broker.add(0, 50, first=20)
    with pytest.raises(DataLossError) as caught:
        _read(broker, [Span(queue, 10, 40)])
    text = str(caught.value)
    assert "queue t/broker-a/0: offsets 10 to 19 cannot be read, the oldest stored offset is 20" in text
    assert "failOnDataLoss=false" in text


def test_messages_that_were_deleted_are_left_out_when_asked_to(caplog: pytest.LogCaptureFixture) -> None:
    broker = StubBroker()
    queue = broker.add(0, 50, first=20)
    other = broker.add(1, 5)
    options = replace(OPTIONS, fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        rows = _read(broker, [Span(queue, 10, 40), Span(other, 0, 5), Span(queue, 5, 15)], options)
    assert rows == _expected([Span(queue, 20, 40), Span(other, 0, 5)])
    assert "offsets 10 to 19" in caplog.text


@pytest.mark.parametrize("end", [20, 30])
def test_a_queue_that_ends_early_is_an_error(end: int) -> None:
    broker = StubBroker()
    queue = broker.add(0, 30)
    broker.truncate(queue, end)
    with pytest.raises(DataLossError, check=about(value=Span(queue, 30, 50))):
        _read(broker, [Span(queue, 30, 50)])
    options = replace(OPTIONS, fail_on_data_loss=False)
    assert _read(broker, [Span(queue, 10, 50)], options) == _expected([Span(queue, 10, end)])


def test_a_queue_that_seems_to_end_early_is_looked_at_again() -> None:
    broker = StubBroker()
    queue = broker.add(0, 10)
    looks = 0

    def grow(_queue: MessageQueue, offset: int) -> None:
        nonlocal looks
        looks += offset == 10
        if looks == 2:
            broker.append(queue, 10)
            looks += 1

    broker.fault = grow
    assert _read(broker, [Span(queue, 0, 20)]) == _expected([Span(queue, 0, 20)])


def test_what_a_slave_says_is_held_against_the_master() -> None:
    broker, options = StubBroker(), replace(OPTIONS, read_from="slave")
    queue = broker.add(0, 10)
    assert _read(broker, [Span(queue, 0, 10)], options) == _expected([Span(queue, 0, 10)])
    assert broker.asked == ["slave"]
    with pytest.raises(DataLossError, check=about(value=Span(queue, 10, 15))):
        _read(broker, [Span(queue, 5, 15)], options)
    assert broker.asked[1:] == ["slave", "slave", "master", "master"]


def test_a_slave_that_is_away_leaves_the_master() -> None:
    broker, options = StubBroker(), replace(OPTIONS, read_from="slave")
    queue = broker.add(0, 10)
    broker.fault = lambda _queue, _offset: ConnectionLostError("gone") if broker.asked == ["slave"] else None
    assert _read(broker, [Span(queue, 0, 10)], options) == _expected([Span(queue, 0, 10)])
    assert broker.asked == ["slave", None]


def test_a_hole_in_the_middle_is_an_error() -> None:
    queue = MessageQueue("t", "broker-a", 0)
    holed = [record(offset, queue_id=0) for offset in range(100) if offset != 50]
    chunk = RecordChunk(queue, 0, 100, 0, b"".join(holed))
    with pytest.raises(DataLossError, check=about(value=Span(queue, 0, 100))):
        list(decode_chunk(chunk, OFFSETS, OPTIONS))
    [batch] = decode_chunk(chunk, OFFSETS, replace(OPTIONS, fail_on_data_loss=False))
    assert batch.num_rows == 99


def test_batches_are_limited_by_what_bodies_are_decompressed() -> None:
    queue, flag = MessageQueue("t", "broker-a", 0), COMPRESSED | CompressionType.ZLIB
    small = [record(offset, zlib.compress(bytes(10_000)), sys_flag=flag) for offset in range(100)]
    chunk = RecordChunk(queue, 0, 100, 0, b"".join(small))
    schema, options = arrow_schema(["queue_offset", "body"]), replace(OPTIONS, batch_bytes=64 * 1024)
    assert len(chunk.buffer) < options.batch_bytes
    batches = list(decode_chunk(chunk, schema, options))
    assert max(batch.nbytes for batch in batches) <= options.batch_bytes
    assert [batch.num_rows for batch in batches] == [6] * 16 + [4]
    shut = b"".join([*small[:50], record(50, b"shut", sys_flag=flag), *small[51:]])
    given = decode_chunk(replace(chunk, buffer=shut), schema, options)
    assert sum(next(given).num_rows for _ in range(8)) == 48
    with pytest.raises(
        BadBodyError, match="queue t/broker-a/0: the body at offset 50 cannot be decompressed"
    ):
        next(given)


def test_damaged_records_are_an_error() -> None:
    queue = MessageQueue("t", "b", 0)
    with pytest.raises(RecordError, check=about(value=Span(queue, 0, 1))):
        list(decode_chunk(RecordChunk(queue, 0, 1, 0, b"\0" * 200), OFFSETS, OPTIONS))


@pytest.mark.parametrize("error", [ConnectionLostError("gone"), BrokerError(2, "busy")])
def test_passing_faults_are_survived(error: SparrowError) -> None:
    broker = StubBroker(answer_max=7)
    spans = [Span(broker.add(0, 60), 0, 60)]
    seen: set[int] = set()

    def fault(_: MessageQueue, offset: int) -> SparrowError | None:
        first = offset not in seen
        seen.add(offset)
        return error if first else None

    broker.fault = fault
    assert _read(broker, spans) == _expected(spans)


def test_other_faults_are_raised_at_once() -> None:
    broker = StubBroker(fault=lambda queue, offset: BrokerError(16, "no permission"))
    with pytest.raises(BrokerError, check=about(code=16, remark="no permission")):
        _read(broker, [Span(broker.add(0, 5), 0, 5)])
    assert len(broker.pulls) == 1


@pytest.mark.parametrize(
    ("code", "remark", "why"),
    [
        (17, "topic[t] not exist, apply first please!", "it was deleted: answer"),
        (29, "queueId[1] is illegal, topic:[t] topicConfig.readQueueNums:[1]", RETIRED),
        (1, "queueId[1] is illegal, topic:[t] topicConfig.readQueueNums:[1]", RETIRED),
    ],
)
def test_a_queue_that_was_deleted_is_lost(
    code: int, remark: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fault(queue: MessageQueue, offset: int) -> SparrowError | None:
        return BrokerError(code, remark) if queue.queue_id == 1 else None

    broker = StubBroker(fault=fault)
    kept, deleted = broker.add(0, 5), broker.add(1, 5)
    asked = [Span(deleted, 0, 5), Span(kept, 0, 5)]
    with pytest.raises(DataLossError, match=f"offsets 0 to 4 cannot be read, {why}"):
        _read(broker, asked)
    options = replace(OPTIONS, fail_on_data_loss=False)
    assert _read(broker, asked, options) == _expected([Span(kept, 0, 5)])
    assert "t/broker-a/1: offsets 0 to 4" in caplog.text


def test_a_broker_that_stays_away_is_given_up() -> None:
    broker = StubBroker(fault=lambda queue, offset: ConnectionLostError("gone for good"))
    with pytest.raises(ConnectionLostError, check=about(args=("gone for good",))):
        _read(broker, [Span(broker.add(0, 5), 0, 5)], replace(OPTIONS, broker_timeout=0.05))
    assert len(broker.pulls) > 1


def test_tags_are_compared_as_text_and_skipped_messages_are_no_loss() -> None:
    queue = MessageQueue("t", "broker-a", 0)
    tags = ["TagA", "TagB", "", "BB", "Aa"]
    stored = [
        record(index, properties=f"TAGS\x01{tag}\x02".encode() if tag else b"")
        for index, tag in enumerate(tags)
    ]
    broker = StubBroker({queue: StubQueue(stored)})
    options = replace(OPTIONS, tags=frozenset({"TagA", "Aa"}))
    assert [offset for _, offset in _read(broker, [Span(queue, 0, 5)], options)] == [0, 4]
    chunk = RecordChunk(queue, 0, 5, 0, b"".join(stored))
    schema = pa.schema([pa.field("queue_offset", pa.int64(), nullable=False)])
    [batch] = decode_chunk(chunk, schema, options)
    assert batch.schema == schema
    [batch] = decode_chunk(chunk, arrow_schema(["tags"]), options)
    assert batch["tags"].to_pylist() == ["TagA", "Aa"]


def test_messages_that_a_broker_filters_out_are_no_loss() -> None:
    queue = MessageQueue("t", "broker-a", 0)
    chunk = RecordChunk(queue, 0, 100, 0, b"".join(record(offset) for offset in range(0, 100, 7)))
    options = replace(OPTIONS, sql92="n % 7 = 0")
    [batch] = decode_chunk(chunk, OFFSETS, options)
    assert batch["queue_offset"].to_pylist() == list(range(0, 100, 7))


def test_a_broker_without_filters_is_not_asked_again() -> None:
    refusal = BrokerError(1, "The broker does not support consumer to filter message by SQL92")
    broker = StubBroker(filters=lambda expression: refusal if isinstance(expression, Sql) else None)
    options = replace(OPTIONS, sql92="a > 1")
    with pytest.raises(SettingsError, check=about(setting="sql92", value="a > 1")):
        _read(broker, [Span(broker.add(0, 5), 0, 5)], options)
    assert len(broker.pulls) == 1


@pytest.mark.parametrize("depth", [0, 2])
def test_tasks_get_batches_in_order(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = StubBroker(answer_max=32)
    spans = [Span(broker.add(index, 250), 5, 250) for index in range(3)]

    async def consumer(_: ReadOptions) -> StubBroker:
        return broker

    monkeypatch.setattr(fetch, "pull_consumer", consumer)
    batches = list(read_batches(spans, replace(OPTIONS, prefetch_batches=depth), OFFSETS))
    assert all(batch.schema.equals(OFFSETS) and batch.num_rows for batch in batches)
    rows = [(row["queue_id"], row["queue_offset"]) for batch in batches for row in batch.to_pylist()]
    assert rows == _expected(spans)


def test_a_task_that_stops_early_leaves_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = StubBroker()
    spans = [Span(broker.add(0, 10_000), 0, 10_000)]

    async def consumer(_: ReadOptions) -> StubBroker:
        return broker

    monkeypatch.setattr(fetch, "pull_consumer", consumer)
    reader = read_batches(spans, OPTIONS, OFFSETS)
    assert next(reader).num_rows == 100
    reader.close()
    assert len(broker.pulls) < 20


def test_an_empty_read_sends_no_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = StubBroker()

    async def consumer(_: ReadOptions) -> StubBroker:
        return broker

    monkeypatch.setattr(fetch, "pull_consumer", consumer)
    assert list(read_batches([Span(broker.add(0, 5), 3, 3)], OPTIONS, OFFSETS)) == []
    assert broker.pulls == []
