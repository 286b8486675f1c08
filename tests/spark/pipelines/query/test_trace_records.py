"""Records of traces taken apart by Spark are those that the codec reads."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparrowmq.protocol.trace import (
    EndTransactionTrace,
    PubTrace,
    RecallTrace,
    SubAfterTrace,
    SubBeforeTrace,
    Trace,
    decode_traces,
    encode_trace,
)
from sparrowmq.spark.pipelines.query import trace_records


def pub(message: str, **more: Any) -> PubTrace:
    return PubTrace(
        **{"time": 1000, "region": "R", "group": "p", "topic": "T", "message_id": message, **more}
    )


def ended(message: str, state: str, time: int = 2000) -> EndTransactionTrace:
    return EndTransactionTrace(
        time=time, region="R", group="p", topic="T", message_id=message, message_type=2, state=state
    )


def frame(spark: SparkSession, *bodies: str) -> DataFrame:
    return spark.createDataFrame([(body.encode(),) for body in bodies], "body binary")


def texts(*traces: Trace) -> str:
    return "".join(map(encode_trace, traces))


def rows(found: DataFrame) -> set[tuple[Any, ...]]:
    listed = [tuple(row) for row in found.collect()]
    assert len(listed) == len(set(listed))
    return set(listed)


@pytest.mark.proves("client:B-111", "client:B-112", "client:B-114", "client:B-115")
def test_sends(spark: SparkSession) -> None:
    old = "\x01".join(["Pub", "7", "R", "p", "T", "O1", "null", "null", "h:1", "3", "1", "0", "true"])
    newer = "\x01".join(
        ["Pub", "8", "R", "p", "T", "N1", "null", "null", "h:1", "3", "1", "0", "OFF", "true", "c"]
    )
    bodies = [
        texts(pub("A1", keys="k1 k2"), pub("A2,A3", keys="k3", tags="x")) + f"{old}\x02{newer}\x02",
        texts(pub("F1", success=False), pub("D1", message_type=3), pub("D2", message_type=3)),
        texts(RecallTrace(time=9, region="R", group="p", topic="T", message_id="D2")),
        texts(*(pub(name, message_type=1) for name in ("H1", "H2", "H3", "H4"))),
        texts(ended("H1", "COMMIT_MESSAGE"), ended("H2", "ROLLBACK_MESSAGE"), ended("H3", "UNKNOW")),
        texts(ended("H1", "UNKNOW", 1500)) + "Future\x01x\x02",
        "",
    ]
    found = trace_records.records(frame(spark, *bodies))
    assert found.count() == sum(len(decode_traces(body)) for body in bodies)
    assert rows(trace_records.sends(found, by_key=False)) == {
        ("T", "A1", 1000, True),
        ("T", "A2", 1000, True),
        ("T", "A3", 1000, True),
        ("T", "O1", 7, True),
        ("T", "N1", 8, True),
        ("T", "F1", 1000, False),
        ("T", "D1", 1000, False),
        ("T", "H1", 2000, True),
        ("T", "H3", 1000, False),
        ("T", "H4", 1000, False),
    }
    keyed = trace_records.sends(found, by_key=True)
    assert rows(keyed.select("id")) == {("k1",), ("k2",), ("k3",)}


@pytest.mark.proves("client:B-115", "client:B-116")
def test_consumptions(spark: SparkSession) -> None:
    before = [
        SubBeforeTrace(time=10, region="R", group="g", request_id=request, message_id=name, keys="k k2")
        for request, name in (("r1", "A"), ("r1", "B"), ("r2", "C"), ("r3", "A"))
    ]
    after = [
        SubAfterTrace(request_id="r1", message_id="A", success=False, time=12, group="g"),
        SubAfterTrace(request_id="r3", message_id="A", time=15, group="g"),
    ]
    old = "\x01".join(["SubAfter", "r1", "B", "3", "true", "null", "0"]) + "\x02"
    cloud = encode_trace(SubAfterTrace(request_id="r4", message_id="E", time=9, group="lost"), cloud=True)
    found = trace_records.records(frame(spark, texts(*before), texts(*after) + old, cloud))
    assert rows(trace_records.consumptions(found, by_key=False)) == {
        ("g", "A", False, 12),
        ("g", "B", True, 10),
        ("g", "C", None, 10),
        ("g", "A", True, 15),
        (None, "E", True, None),
    }
    by_key = trace_records.consumptions(found, by_key=True)
    assert by_key.count() == 8
    assert rows(by_key.select("id").distinct()) == {("k",), ("k2",)}
