"""The largest body of a write: the option's, the brokers', or RocketMQ's default."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.spark.support import Topics, close_clients
from tests.support import about

from sparrowmq.columnar.encode import MessageColumns
from sparrowmq.columnar.joining import sizes_of
from sparrowmq.columnar.schema import PROPERTIES
from sparrowmq.core.errors import BrokerError, InvalidMessageError
from sparrowmq.core.message import BODY_BYTES_MAX, MessageQueue
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.bodies.schema import SinkColumns
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.pipelines.common.writing import body_bytes_max
from sparrowmq.spark.pipelines.mirror import rows as mirrored
from sparrowmq.spark.pipelines.replay import rows as replayed
from sparrowmq.spark.write import body_limit as limits
from sparrowmq.spark.write.body_limit import LargestBody, check_bodies, smallest
from sparrowmq.spark.write.identity import RowIdentity
from sparrowmq.spark.write.plan import WritePlan
from sparrowmq.spark.write.routing import Destination
from sparrowmq.spark.write.writer import send_rows
from sparrowmq.testing import LocalCluster

MIB = 1024 * 1024
LIMIT = 6 * MIB


@pytest.fixture(scope="module")
def large() -> Iterator[Topics]:
    """A cluster whose brokers take more than RocketMQ's default."""
    with LocalCluster(max_message_size=LIMIT) as cluster, Topics(cluster) as made:
        cluster.create_topic("Large", queues=1)
        yield made
        loop_thread().run(close_clients())


def _send(to: Topics, bodies: list[bytes], identity: RowIdentity | None = None, **more: Any) -> None:
    options = replace(WriteOptions(name_server=to.cluster.namesrv, topic="Large"), **more)
    batch = pa.record_batch({"body": pa.array(bodies, pa.binary())})
    send_rows(iter([batch]), WritePlan(options, SinkColumns("body")), identity)


@pytest.mark.parametrize("identity", [None, RowIdentity("q", 0, 0)], ids=["plain", "numbered"])
def test_the_brokers_limit_is_the_limit(large: Topics, identity: RowIdentity | None) -> None:
    before = len(large.read("Large"))
    _send(large, [b"before", bytes(LIMIT), b"after"], identity)
    assert sorted(len(message.body) for message in large.read("Large")[before:]) == [5, 6, LIMIT]
    with pytest.raises(InvalidMessageError, check=about(part="body", limit=LIMIT)):
        _send(large, [b"before", bytes(LIMIT + 1)], identity)
    assert body_bytes_max({"nameServer": large.cluster.namesrv, "topic": "Large"}) == LIMIT


def test_the_option_goes_first_and_no_broker_is_asked(large: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(_: object) -> None:
        raise AssertionError("the brokers were asked")

    monkeypatch.setattr(limits, "admin", asked)
    with pytest.raises(InvalidMessageError, check=about(part="body", limit=10)):
        _send(large, [b"before", bytes(11)], max_message_size=10)
    _send(large, [bytes(1000)])


def test_brokers_that_do_not_say_it_have_the_default(
    large: Topics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refused(_: object) -> None:
        raise BrokerError(16, "no rights")

    monkeypatch.setattr(limits, "admin", refused)
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        _send(large, [bytes(BODY_BYTES_MAX)])
        with pytest.raises(InvalidMessageError, check=about(part="body", limit=BODY_BYTES_MAX)):
            _send(large, [bytes(BODY_BYTES_MAX + 1)])
    assert "the brokers of Large do not say their maxMessageSize" in caplog.text
    assert "no rights" in caplog.text


def test_the_smallest_of_the_brokers() -> None:
    settings = {"a": {"maxMessageSize": "900"}, "b": {"maxMessageSize": "800"}, "c": {}}
    assert smallest(settings) == LargestBody(800, "maxMessageSize of broker b")
    assert smallest({"c": {}}) == LargestBody(BODY_BYTES_MAX, "maxMessageSize of broker c")
    assert smallest({}).bytes_max == 15 * MIB


@pytest.mark.parametrize("origin", limits.ORIGINS)
def test_a_row_of_a_pipeline_names_where_it_was_read(origin: str) -> None:
    maps = pa.array([None, [("a", "b"), (origin, "Docs/broker-a/0/17")]], PROPERTIES)
    columns = MessageColumns(pa.array([b"1", b"12345"]), properties=maps)
    to = Destination("Docs", MessageQueue("Docs", "broker-b", 1))
    with pytest.raises(
        InvalidMessageError,
        match=r"row 9 for queue Docs/broker-b/1, read from Docs/broker-a/0/17: the body has 5",
    ):
        check_bodies(to, columns, sizes_of(columns.body), np.array([0, 1]), 8, LargestBody(4, "x"))


def test_the_origins_are_those_of_the_pipelines() -> None:
    assert set(limits.ORIGINS) == {mirrored.ORIGIN, replayed.MARK_ORIGIN}
