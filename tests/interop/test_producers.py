"""What producers do beyond plain sends, with Java's clients on the other side and Apache's broker between."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.protocol.trace import PubTrace, SubAfterTrace, SubBeforeTrace, decode_traces

pytestmark = pytest.mark.interop

TRACE = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture
def cluster(apache: ApacheCluster) -> ApacheCluster:
    """Apache's broker."""
    return apache


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def bodies(driver: JavaDriver, namesrv: str, topic: str) -> list[bytes]:
    return [message.body for message in driver.dump(namesrv, topic)]


class Listener:
    """A transaction listener with fixed answers."""

    def __init__(self, local: mq.TransactionState, checked: mq.TransactionState) -> None:
        self.local, self.checked, self.checks = local, checked, 0

    def execute(self, message: mq.HalfMessage, argument: Any) -> mq.TransactionState:
        return self.local

    def check(self, message: mq.ReceivedMessage) -> mq.TransactionState:
        self.checks += 1
        return self.checked


COMMIT, ROLLBACK, UNKNOWN = mq.TransactionState


@pytest.mark.proves("client:B-99", "client:B-101", "client:B-102", "client:B-103")
def test_our_transactions_at_apaches_broker(cluster: ApacheCluster, driver: JavaDriver, name: str) -> None:
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 2)
    for number, (local, checked) in enumerate(
        [(COMMIT, ROLLBACK), (ROLLBACK, COMMIT), (UNKNOWN, COMMIT), (UNKNOWN, ROLLBACK)]
    ):
        listener = Listener(local, checked)
        settings = mq.ProducerSettings(namesrv=cluster.namesrv, send_timeout=10.0)
        with mq.Producer(f"{name}_{number}", settings=settings, transaction_listener=listener) as producer:
            message = mq.Message(name, f"{local.name} {checked.name}".encode())
            result = producer.send_in_transaction(message, check_after=0)
            assert result.state is local
            if local is UNKNOWN:
                until_sync(lambda asked=listener: asked.checks)
    until_sync(lambda: len(bodies(driver, cluster.namesrv, name)) == 2, 30)
    assert sorted(bodies(driver, cluster.namesrv, name)) == [b"COMMIT ROLLBACK", b"UNKNOWN COMMIT"]


@pytest.mark.proves("client:B-89", "client:B-95", "client:B-96")
def test_requests_and_replies_both_ways(cluster: ApacheCluster, driver: JavaDriver, name: str) -> None:
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 1)
    arguments = {"namesrv": cluster.namesrv, "group": name, "topic": name}
    served = driver.call("Producers.serve", **arguments)
    try:
        with mq.Producer(f"{name}_ours", namesrv=cluster.namesrv) as producer:
            reply = producer.request(mq.Message(name, b"ping"), 30.0)
            assert reply.body == b"re: ping"
    finally:
        driver.call("Producers.stopServing", handle=served)
    other = f"{name}_2"
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, other, 1)
    settings = mq.ConsumerSettings(namesrv=cluster.namesrv, consume_from="first")
    with (
        mq.Producer(f"{name}_answers", namesrv=cluster.namesrv) as producer,
        mq.PushConsumer(f"{name}_serves", settings=settings) as consumer,
    ):
        consumer.subscribe(other, handler=lambda m: producer.reply(m, b"ours: " + m.body) and None)
        body = driver.call(
            "Producers.request", **{**arguments, "topic": other}, body=b64(b"ping"), timeout=30_000
        )
        assert base64.b64decode(body) == b"ours: ping"


@pytest.mark.proves("client:B-80", "client:B-81", "client:B-82", "client:B-83")
@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_compressed_bodies_are_read_on_both_sides(
    cluster: ApacheCluster, driver: JavaDriver, name: str, kind: str
) -> None:
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 1)
    body = b"a body that can be made much smaller " * 500
    settings = mq.ProducerSettings(namesrv=cluster.namesrv, compression=kind)  # type: ignore[arg-type]
    with mq.Producer(name, settings=settings) as producer:
        producer.send(mq.Message(name, body))
    (message,) = driver.dump(cluster.namesrv, name)
    assert message.body == body
    driver.call(
        "Producers.sendCompressed",
        namesrv=cluster.namesrv,
        group=name,
        topic=name,
        body=b64(body),
        kind=kind.upper(),
    )
    with mq.PullConsumer(f"{name}_reads", namesrv=cluster.namesrv) as consumer:
        (queue,) = consumer.queues(name)
        pulled = consumer.pull(queue, 0)
        assert [m.body for m in pulled.messages] == [body, body]
        raw = consumer.fetch_raw(queue, 0)
        assert len(raw.buffer) < len(body), "they were stored compressed"


@pytest.mark.proves("client:B-105", "client:B-106", "client:B-107")
def test_timed_messages_wait_and_can_be_taken_back(
    cluster: ApacheCluster, driver: JavaDriver, name: str
) -> None:
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 1)
    with mq.Producer(name, namesrv=cluster.namesrv) as producer:
        began = time.time()
        producer.send(mq.Message(name, b"soon", delay=1.0))
        producer.send(mq.Message(name, b"then", deliver_at=time.time() + 1.5))
        producer.send(mq.Message(name, b"level", delay_level=1))
        kept = producer.send(mq.Message(name, b"recalled", delay=4.0))
        assert kept.recall_handle
        assert producer.recall(name, kept.recall_handle) == kept.message_id
        until_sync(lambda: len(bodies(driver, cluster.namesrv, name)) == 3, 30)
        assert time.time() - began >= 1.0
        ours, recalled, handle = driver.call(
            "Producers.sendAndRecall",
            namesrv=cluster.namesrv,
            group=name,
            topic=name,
            body=b64(b"x"),
            delay_ms=60_000,
        )
        assert ours == recalled and handle
    assert b"recalled" not in bodies(driver, cluster.namesrv, name)


@pytest.mark.proves("client:B-110", "client:B-111", "client:B-115", "client:B-116", "client:B-118")
def test_traces_are_read_on_both_sides(cluster: ApacheCluster, driver: JavaDriver, name: str) -> None:
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 1)
    settings = mq.ProducerSettings(namesrv=cluster.namesrv, trace=True, trace_batch=1)
    with mq.Producer(name, settings=settings) as producer:
        ours = producer.send(mq.Message(name, b"hello", tags="A", keys=["k1", "k2"]))
    theirs = driver.call(
        "Producers.sendTraced",
        namesrv=cluster.namesrv,
        group=name,
        topic=name,
        body=b64(b"hi"),
        tags="B",
        keys="k3",
    )

    def written() -> list[str]:
        return [body.decode() for body in bodies(driver, cluster.namesrv, TRACE) if name in body.decode()]

    until_sync(lambda: len(written()) >= 2, 30)
    texts = {key: next(t for t in written() if key in t) for key in (ours.message_id, theirs)}
    (read,) = driver.call("Producers.readTrace", text=texts[ours.message_id])
    assert (read["type"], read["group"], read["topic"], read["success"]) == ("Pub", name, name, True)
    assert (read["msg_id"], read["offset_id"]) == (ours.message_id, ours.offset_message_id)
    assert (read["tags"], read["keys"], read["body_bytes"]) == ("A", "k1 k2", 5)
    assert read["store_host"] == cluster.broker_address
    (trace,) = decode_traces(texts[theirs])
    assert isinstance(trace, PubTrace)
    assert (trace.group, trace.topic, trace.tags, trace.keys) == (name, name, "B", "k3")
    assert trace.message_id == theirs and trace.body_bytes == 2 and trace.success


@pytest.mark.proves("client:B-111", "client:B-114")
def test_java_reads_our_records_of_consumption(driver: JavaDriver) -> None:
    from sparrowmq.protocol.trace import encode_trace

    before = SubBeforeTrace(
        time=5, region="R", group="g", request_id="Q", message_id="M", retry_times=2, keys="k"
    )
    after = SubAfterTrace(
        request_id="Q", message_id="M", cost=7, success=False, keys="k", context_code=2, time=9, group="g"
    )
    first, second = driver.call("Producers.readTrace", text=encode_trace(before) + encode_trace(after))
    assert (first["type"], first["group"], first["request_id"]) == ("SubBefore", "g", "Q")
    assert (first["msg_id"], first["retry_times"], first["keys"]) == ("M", 2, "k")
    assert (second["type"], second["request_id"], second["msg_id"]) == ("SubAfter", "Q", "M")
    assert (second["success"], second["code"], second["cost"]) == (False, 2, 7)
