"""Latencies of requests, and the lines about slow ones."""

from __future__ import annotations

from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparrowmq.core.figures.exposition import Exposition
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command, FrameReader, encode
from sparrowmq.transport import request_watch
from sparrowmq.transport.request_watch import RequestWatch

CLIENT: Any = SimpleNamespace(address="10.0.0.1:5")
FRAMES = FrameReader().feed(encode(Command(RequestCode.SEND_MESSAGE_V2, 1)) * 3)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    return [(record.getMessage(), getattr(record, "fields", {})) for record in caplog.records]


def test_a_slow_chunk_says_where_its_time_went(caplog: pytest.LogCaptureFixture) -> None:
    puts = (0.0, 0.0)
    watch = RequestWatch(100, last_put=lambda: puts)
    watch.chunk(CLIENT, FRAMES, 0.02, 0.079)
    assert not caplog.records, "not slow"
    watch.chunk(CLIENT, FRAMES, 0.02, 0.3)
    puts = (monotonic(), 0.4)
    watch.chunk(CLIENT, FRAMES, 0.5, 0.0)
    (queued, fields), (stored, _) = told(caplog)
    assert queued == (
        "slow: SEND_MESSAGE_V2 x3 from 10.0.0.1:5 took 320 ms (ms: queue 300, handled 20, store 0)"
    )
    assert fields == {
        "what": "SEND_MESSAGE_V2 x3",
        "client": "10.0.0.1:5",
        "ms": 320.0,
        "queue_ms": 300.0,
        "handled_ms": 20.0,
        "store_ms": 0.0,
    }
    assert stored.endswith("took 500 ms (ms: queue 0, handled 500, store 400)")
    assert watch.slow_total == 2


def test_an_earlier_write_is_not_blamed(caplog: pytest.LogCaptureFixture) -> None:
    watch = RequestWatch(100, last_put=lambda: (monotonic() - 60, 0.4))
    watch.chunk(CLIENT, FRAMES, 0.5, 0.0)
    assert "store 0" in told(caplog)[0][0]


def test_a_slow_fsync_is_named(caplog: pytest.LogCaptureFixture) -> None:
    watch = RequestWatch(100)
    watch.durable("c", 12, monotonic() - 0.9, 0.89)
    text, fields = told(caplog)[0]
    assert text.startswith("slow: send x12 from c took ")
    assert fields["durable_ms"] == 890.0
    watch.waited("QUERY_MESSAGE (12)", "c", 0.2)
    assert told(caplog)[1][1]["waited_ms"] == 200.0


def test_the_limit_changes_while_it_runs_and_zero_means_never(caplog: pytest.LogCaptureFixture) -> None:
    watch = RequestWatch()
    watch.chunk(CLIENT, FRAMES, 100.0, 0.0)
    watch.limit(50)
    watch.waited("x", "c", 0.06)
    watch.limit(0)
    watch.waited("x", "c", 60.0)
    assert watch.slow_total == len(caplog.records) == 1


def test_many_slow_ones_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    watch = RequestWatch(1)
    for _ in range(50):
        watch.waited("x", "c", 1.0)
    assert len(caplog.records) < 5
    assert watch.slow_total == 50


def test_latencies_are_counted_by_request_and_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_watch, "KINDS_MAX", 2)
    watch = RequestWatch(counts=True)
    watch.add("send_message_v2", "success", 0.0005, 3)
    watch.add("send_message_v2", "system_busy", 0.02)
    watch.add("heart_beat", "success", 0.02)
    watch.durable("c", 2, monotonic() - 30, 1.0)
    into = Exposition(100)
    for _ in watch.collect(into, 'node_id="b"'):
        pass
    text = b"".join(into.rendering()).decode()
    samples = {
        (one.name, one.labels.get("response_code"), one.labels.get("le")): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }
    bucket = "rocketmq_rpc_latency_milliseconds_bucket"
    assert samples[bucket, "success", "1.0"] == 3
    assert samples[bucket, "success", "3000.0"] == 3
    assert samples[bucket, "success", "+Inf"] == 5
    assert samples[bucket, "system_busy", "100.0"] == 1
    assert "heart_beat" not in text, "the number of kinds is bounded"


def figures(watch: RequestWatch) -> dict[tuple[str, str, str], float]:
    """Values by name, request and response."""
    into = Exposition(100)
    for _ in watch.collect(into, ""):
        pass
    return {
        (one.name, one.labels["request_code"], one.labels["response_code"]): one.value
        for family in text_string_to_metric_families(b"".join(into.rendering()).decode())
        for one in family.samples
        if "request_code" in one.labels
    }


def test_refused_requests_are_counted_by_request_and_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_watch, "KINDS_MAX", 2)
    watch = RequestWatch()
    for code in (70_001, 70_002):
        watch.refused(code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    watch.refused(RequestCode.HEART_BEAT, ResponseCode.NO_PERMISSION)
    watch.refused(RequestCode.PULL_MESSAGE, ResponseCode.NO_PERMISSION)
    watch.refused(RequestCode.HEART_BEAT, ResponseCode.NO_PERMISSION)
    name = "sparrow_refused_requests_total"
    assert figures(watch) == {
        (name, "unknown", "request_code_not_supported"): 2,
        (name, "heart_beat", "no_permission"): 2,
    }, "the number of kinds is bounded"


def test_a_send_that_timed_out_is_no_success() -> None:
    watch = RequestWatch(counts=True)
    watch.durable("c", 2, monotonic(), 0.0, ResponseCode.FLUSH_DISK_TIMEOUT)
    found = figures(watch)
    name = "rocketmq_rpc_latency_milliseconds_count"
    assert found[name, "send_message_v2", "flush_disk_timeout"] == 2
    assert (name, "send_message_v2", "success") not in found
