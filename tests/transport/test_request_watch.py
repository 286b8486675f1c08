"""Latencies of requests, and the lines about slow ones."""

from __future__ import annotations

from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparrowmq.core.figures.exposition import Exposition
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import COMPACT_HEADER, Command, FrameReader, RawFrame, encode
from sparrowmq.transport import request_watch
from sparrowmq.transport.request_watch import RequestWatch, StoredSend

CLIENT: Any = SimpleNamespace(address="10.0.0.1:5")
FRAMES = FrameReader().feed(encode(Command(RequestCode.SEND_MESSAGE_V2, 1)) * 3)
REQUEST = Command(RequestCode.QUERY_MESSAGE, 5)


def stored(count: int) -> list[StoredSend]:
    return [(40 + at, 0, at, b"offset-id", b"K%d" % at) for at in range(count)]


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
        "slow: SEND_MESSAGE_V2 x3 from 10.0.0.1:5 took 320 ms (ms: queue 300, handled 20, store 0); number 1"
    )
    assert fields == {
        "what": "SEND_MESSAGE_V2 x3",
        "client": "10.0.0.1:5",
        "ms": 320.0,
        "number": 1,
        "queue_ms": 300.0,
        "handled_ms": 20.0,
        "store_ms": 0.0,
    }
    assert stored.endswith("took 500 ms (ms: queue 0, handled 500, store 400); number 1")
    assert watch.slow_total == 2


def test_an_earlier_write_is_not_blamed(caplog: pytest.LogCaptureFixture) -> None:
    watch = RequestWatch(100, last_put=lambda: (monotonic() - 60, 0.4))
    watch.chunk(CLIENT, FRAMES, 0.5, 0.0)
    assert "store 0" in told(caplog)[0][0]


def test_a_slow_fsync_is_named(caplog: pytest.LogCaptureFixture) -> None:
    watch = RequestWatch(100)
    watch.durable("c", stored(12), monotonic() - 0.9, 0.89)
    text, fields = told(caplog)[0]
    assert text.startswith("slow: send x12 from c took ")
    assert fields["durable_ms"] == 890.0
    watch.waited(REQUEST, "c", 0.2)
    assert told(caplog)[1][1]["waited_ms"] == 200.0


def test_a_slow_request_is_named_as_clients_and_spans_name_it(caplog: pytest.LogCaptureFixture) -> None:
    watch = RequestWatch(100)
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    texts = [f"UNIQ_KEY\x01AC1{at}\x02traceparent\x01{parent}" for at in range(10)]
    code = RequestCode.SEND_MESSAGE_V2
    as_json = [encode(Command(code, 7 + at, ext={"i": text})) for at, text in enumerate(texts)]
    head = code.to_bytes(2, "big") + b"\x00\x01\x02" + (7).to_bytes(4, "big")
    compact: list[RawFrame] = [(COMPACT_HEADER, head + text.encode(), b"") for text in texts]
    for frames in (FrameReader().feed(b"".join(as_json)), compact):
        RequestWatch(100).chunk(CLIENT, frames, 1.0, 0.0)
        text, fields = told(caplog)[-1]
        ids = tuple(f"AC1{at}" for at in range(8))
        assert text.endswith(f"; number 7, message {' '.join(ids)}, trace 4bf92f3577b34da6a3ce929d0e0e4736")
        assert (fields["number"], fields["message_ids"]) == (7, ids)
        assert fields["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    watch.durable("c", stored(2), monotonic() - 0.9, 0.89)
    assert told(caplog)[-1][0].endswith("; number 40, message K0 K1")
    watch.waited(Command(RequestCode.END_TRANSACTION, 9, ext={"msgId": "AC10"}), "c", 0.2)
    assert told(caplog)[-1][0].endswith("; number 9, message AC10")


def test_a_batch_is_named_by_its_messages(caplog: pytest.LogCaptureFixture) -> None:
    body = b"".join(b"\0\0\0\1x\0\x0fUNIQ_KEY\x01B%d\x02" % at for at in range(3))
    batch = encode(Command(RequestCode.SEND_BATCH_MESSAGE, 3, body=body))
    plain = encode(Command(RequestCode.SEND_MESSAGE_V2, 4, body=b"UNIQ_KEY\x01not-an-id\x02"))
    RequestWatch(100).chunk(CLIENT, FrameReader().feed(batch + plain), 1.0, 0.0)
    assert told(caplog)[-1][0].endswith("; number 3, message B0 B1 B2"), "bodies of others are no properties"


@pytest.mark.parametrize(
    "header", [b"", b"{}", b"UNIQ_KEY\x01", b'"opaque":', b"\xff" * 3, b"UNIQ_KEY\x01\n\x02"]
)
@pytest.mark.parametrize("kind", [0, 1])
def test_headers_without_ids_harm_nothing(kind: int, header: bytes, caplog: pytest.LogCaptureFixture) -> None:
    RequestWatch(100).chunk(CLIENT, [(kind, header, b"")], 1.0, 0.0)
    assert ", message" not in told(caplog)[-1][0]


def test_ids_are_what_clients_call_them(caplog: pytest.LogCaptureFixture) -> None:
    """Numbers are signed; what a producer put into a unique key forges no other id."""
    code = RequestCode.SEND_MESSAGE_V2
    compact: RawFrame = (COMPACT_HEADER, code.to_bytes(2, "big") + b"\0\1\2" + b"\xff\xff\xff\xfb", b"")
    for frames in (FrameReader().feed(encode(Command(code, -5))), [compact]):
        RequestWatch(100).chunk(CLIENT, frames, 1.0, 0.0)
        assert told(caplog)[-1][0].endswith("; number -5")
    keys = [b"K1, trace 4bf92f3577b34da6a3ce929d0e0e4736", b"", b"\n2026-11-29 ERROR", b"K2"]
    RequestWatch(100).durable("c", [(-6, 0, 0, b"", key) for key in keys], monotonic() - 0.9, 0.89)
    assert told(caplog)[-1][0].endswith("; number -6, message K1 K2")


def test_the_limit_changes_while_it_runs_and_zero_means_never(caplog: pytest.LogCaptureFixture) -> None:
    watch = RequestWatch()
    watch.chunk(CLIENT, FRAMES, 100.0, 0.0)
    watch.limit(50)
    watch.waited(REQUEST, "c", 0.06)
    watch.limit(0)
    watch.waited(REQUEST, "c", 60.0)
    assert watch.slow_total == len(caplog.records) == 1


def test_many_slow_ones_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    watch = RequestWatch(1)
    for _ in range(50):
        watch.waited(REQUEST, "c", 1.0)
    assert len(caplog.records) < 5
    assert watch.slow_total == 50


def test_latencies_are_counted_by_request_and_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_watch, "KINDS_MAX", 2)
    watch = RequestWatch(counts=True)
    watch.add("send_message_v2", "success", 0.0005, 3)
    watch.add("send_message_v2", "system_busy", 0.02)
    watch.add("heart_beat", "success", 0.02)
    watch.durable("c", stored(2), monotonic() - 30, 1.0)
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
    watch.durable("c", stored(2), monotonic(), 0.0, ResponseCode.FLUSH_DISK_TIMEOUT)
    found = figures(watch)
    name = "rocketmq_rpc_latency_milliseconds_count"
    assert found[name, "send_message_v2", "flush_disk_timeout"] == 2
    assert (name, "send_message_v2", "success") not in found
