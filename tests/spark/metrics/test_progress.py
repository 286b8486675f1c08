from __future__ import annotations

import json
from types import SimpleNamespace

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.metrics.progress import lag, queue_lags, source_metrics
from sparrowmq.spark.offsets.offsets import StreamOffset

Q0, Q1 = MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)


def _source(end: object, latest: object) -> SimpleNamespace:
    return SimpleNamespace(
        endOffset=json.dumps(end), latestOffset=None if latest is None else json.dumps(latest)
    )


def _progress(*sources: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(sources=list(sources))


def test_lag_is_summed_over_queues_and_sources() -> None:
    end = StreamOffset({Q0: 5, Q1: 7}, {Q0: 1}).to_json()
    latest = StreamOffset({Q0: 9, Q1: 8}).to_json()
    assert lag(_progress(_source(end, latest))) == 5
    assert lag(_progress(_source(end, latest), _source(end, latest))) == 10


def test_what_is_not_known_is_none() -> None:
    end = StreamOffset({Q0: 5}).to_json()
    assert lag(_progress()) is None
    assert lag(_progress(_source(end, None))) is None
    assert lag(_progress(_source({"other": 1}, {"other": 2}))) is None
    assert lag(_progress(SimpleNamespace(endOffset="no json", latestOffset="-"))) is None
    latest = StreamOffset({Q0: 9}).to_json()
    assert lag(_progress(_source({"other": 1}, {"other": 2}), _source(end, latest))) == 4


def test_lag_by_queue_and_as_the_kafka_source_tells_it() -> None:
    end = StreamOffset({Q0: 5, Q1: 7}).to_json()
    latest = StreamOffset({Q0: 9, Q1: 7}).to_json()
    behind = StreamOffset({Q0: 3}).to_json()
    assert queue_lags(_progress(_source(end, latest))) == {Q0: 4, Q1: 0}
    assert queue_lags(_progress(_source(end, latest), _source(behind, None))) == {Q0: 6, Q1: 0}
    assert queue_lags(_progress(_source({"other": 1}, {"other": 2}))) == {}
    assert source_metrics(_progress(_source(end, latest))) == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 4,
        "avgOffsetsBehindLatest": 2.0,
    }
    assert source_metrics(_progress(_source(end, None))) == {}
