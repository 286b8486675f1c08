"""Idempotent producers and Java: Apache's broker takes their messages as any others, Java sends them on."""

from __future__ import annotations

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver

import sparrowmq as mq
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.producer_mark import find_mark
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop


def _send(namesrv: str, topic: str) -> list[mq.SendResult]:
    with mq.Producer("once", namesrv=namesrv, idempotent=True) as producer:
        queue = producer.queues(topic)[0]
        single = producer.send(mq.Message(topic, b"0", tags="a", keys="k"), queue=queue)
        batch = producer.send_batch([mq.Message(topic, b"%d" % n) for n in (1, 2)], queue=queue)
    return [single, batch]


def _text(properties: dict[str, str]) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


def test_apaches_broker_stores_the_marks_untouched(
    apache: ApacheCluster, driver: JavaDriver, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    driver.admin(apache.namesrv).create_topic(apache.broker_address, name, 1)
    results = _send(apache.namesrv, name)
    assert [result.idempotent for result in results] == [False, False]
    assert caplog.text.count("are at least once there") == 1
    stored = driver.dump(apache.namesrv, name)
    assert [message.body for message in stored] == [b"0", b"1", b"2"]
    marks = [find_mark(_text(message.properties)) for message in stored]
    assert [mark.sequence for mark in marks if mark is not None] == [0, 1, 2]
    assert (stored[0].tags, stored[0].keys) == ("a", "k")


def test_java_sends_on_what_it_got_and_nothing_is_taken_for_a_repeat(driver: JavaDriver, name: str) -> None:
    with LocalCluster() as cluster:
        cluster.create_topic(name, queues=1)
        assert all(result.idempotent for result in _send(cluster.namesrv, name))
        stored = driver.dump(cluster.namesrv, name)
        assert [message.body for message in stored] == [b"0", b"1", b"2"]
        with mq.PullConsumer("reader", namesrv=cluster.namesrv) as consumer:
            assert consumer.max_offset(MessageQueue(name, "broker-a", 0)) == 3
            (first, *_) = consumer.pull(MessageQueue(name, "broker-a", 0), 0).messages
        with driver.producer(cluster.namesrv, f"{name}_p") as producer:
            kept = {key: text for key, text in first.properties.items() if key.startswith("SPARROW_")}
            assert len(kept) == 2
            producer.send([mq.Message(name, first.body, properties=kept)], "sync")
        again = driver.dump(cluster.namesrv, name)
        assert [message.body for message in again] == [b"0", b"1", b"2", b"0"]
        assert again[3].properties["SPARROW_SEQUENCE"] == "0"
