"""What producers do beyond plain sends, with Java's clients on the other side and either broker between."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver, Received
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.protocol.trace import PubTrace, SubAfterTrace, SubBeforeTrace, decode_traces
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop

TRACE = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture
def cluster(apache: ApacheCluster) -> ApacheCluster:
    """Apache's broker."""
    return apache


@pytest.fixture(scope="module")
def our_servers() -> Iterator[LocalCluster]:
    """Our servers, which take traces."""
    with LocalCluster(trace_topic_enable=True) as made:
        yield made


@pytest.fixture(params=["apache", "ours"])
def either(request: pytest.FixtureRequest) -> ApacheCluster | LocalCluster:
    """Both kinds of servers."""
    found: ApacheCluster | LocalCluster = request.getfixturevalue(
        "apache" if request.param == "apache" else "our_servers"
    )
    return found


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
    until_sync(lambda: len(bodies(driver, cluster.namesrv, name)) == 2)
    assert sorted(bodies(driver, cluster.namesrv, name)) == [b"COMMIT ROLLBACK", b"UNKNOWN COMMIT"]


@pytest.mark.proves("client:B-89", "client:B-95", "client:B-96")
def test_requests_and_replies_both_ways(
    either: ApacheCluster | LocalCluster, driver: JavaDriver, name: str
) -> None:
    driver.admin(either.namesrv).create_topic(either.broker_address, name, 1)
    arguments = {"namesrv": either.namesrv, "group": name, "topic": name}
    served = driver.call("Exchanges.serve", **arguments)
    try:
        with mq.Producer(f"{name}_ours", namesrv=either.namesrv) as producer:
            reply = producer.request(mq.Message(name, b"ping"), 30.0)
            assert reply.body == b"re: ping"
    finally:
        driver.call("Exchanges.stop", handle=served)
    other = f"{name}_2"
    driver.admin(either.namesrv).create_topic(either.broker_address, other, 1)
    settings = mq.ConsumerSettings(namesrv=either.namesrv, consume_from="first")
    with (
        mq.Producer(f"{name}_answers", namesrv=either.namesrv) as producer,
        mq.PushConsumer(f"{name}_serves", settings=settings) as consumer,
    ):
        consumer.subscribe(other, handler=lambda m: producer.reply(m, b"ours: " + m.body) and None)
        replies = driver.call("Exchanges.ask", **{**arguments, "topic": other}, texts=["ping"])
        assert replies == ["ours: ping"]


@pytest.mark.proves("client:B-80", "client:B-81", "client:B-82", "client:B-83")
@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_compressed_bodies_are_read_on_both_sides(
    either: ApacheCluster | LocalCluster, driver: JavaDriver, name: str, kind: str
) -> None:
    driver.admin(either.namesrv).create_topic(either.broker_address, name, 1)
    body = b"a body that can be made much smaller " * 500
    settings = mq.ProducerSettings(namesrv=either.namesrv, compression=kind)
    with mq.Producer(name, settings=settings) as producer:
        producer.send(mq.Message(name, body))
    (message,) = driver.dump(either.namesrv, name)
    assert message.body == body
    driver.call(
        "Producers.sendCompressed",
        namesrv=either.namesrv,
        group=name,
        topic=name,
        body=b64(body),
        kind=kind.upper(),
    )
    with mq.PullConsumer(f"{name}_reads", namesrv=either.namesrv) as consumer:
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
        until_sync(lambda: len(bodies(driver, cluster.namesrv, name)) == 3)
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
def test_traces_are_read_on_both_sides(
    either: ApacheCluster | LocalCluster, driver: JavaDriver, name: str
) -> None:
    driver.admin(either.namesrv).create_topic(either.broker_address, name, 1)
    settings = mq.ProducerSettings(namesrv=either.namesrv, trace=True, trace_batch=1)
    with mq.Producer(name, settings=settings) as producer:
        ours = producer.send(mq.Message(name, b"hello", tags="A", keys=["k1", "k2"]))
    theirs = driver.call(
        "Producers.sendTraced",
        namesrv=either.namesrv,
        group=name,
        topic=name,
        body=b64(b"hi"),
        tags="B",
        keys="k3",
    )

    def written() -> list[str]:
        return [body.decode() for body in bodies(driver, either.namesrv, TRACE) if name in body.decode()]

    until_sync(lambda: len(written()) >= 2)
    texts = {key: next(t for t in written() if key in t) for key in (ours.message_id, theirs)}
    (read,) = driver.call("Producers.readTrace", text=texts[ours.message_id])
    assert (read["type"], read["group"], read["topic"], read["success"]) == ("Pub", name, name, True)
    assert (read["msg_id"], read["offset_id"]) == (ours.message_id, ours.offset_message_id)
    assert (read["tags"], read["keys"], read["body_bytes"]) == ("A", "k1 k2", 5)
    assert read["store_host"] == either.broker_address
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


@pytest.mark.proves("client:B-111", "client:B-112", "client:B-115", "client:B-116")
def test_the_whole_way_of_a_message_is_told_to_both_sides(
    either: ApacheCluster | LocalCluster, driver: JavaDriver, name: str
) -> None:
    driver.admin(either.namesrv).create_topic(either.broker_address, name, 1)
    settings = mq.ProducerSettings(namesrv=either.namesrv, trace=True)
    with mq.Producer(f"{name}_p", settings=settings) as producer:
        sent = producer.send(mq.Message(name, b"hello", keys=f"{name}_k"))
    seen = driver.call("Producers.consumeTraced", namesrv=either.namesrv, group=f"{name}_java", topic=name)
    assert seen == sent.message_id
    consuming = mq.ConsumerSettings(namesrv=either.namesrv, consume_from="first", trace=True)
    with mq.PushConsumer(f"{name}_ours", settings=consuming) as consumer:
        consumer.subscribe(name)
        for message in consumer:
            message.ack()
            break
    expected = [("Pub", f"{name}_p")]
    for group in (f"{name}_java", f"{name}_ours"):
        expected += [("SubAfter", group), ("SubBefore", group)]
    with mq.Admin(either.namesrv) as admin:

        def told(about: str) -> list[tuple[str, str]]:
            found = admin.messages.trace(about)
            return sorted(
                (type(one).__name__.removesuffix("Trace"), getattr(one, "group", "")) for one in found
            )

        until_sync(lambda: told(sent.message_id) == sorted(expected))
        assert told(f"{name}_k") == sorted(expected)
    arguments = ["queryMsgTraceById", "-i", sent.message_id, "-n", either.namesrv]
    shown = driver.call("Lookups.mqadmin", arguments=arguments)
    for group in ("p", "java", "ours"):
        assert f"{name}_{group}" in shown, shown


@pytest.mark.proves("client:B-73", "client:B-74", "client:B-77", "client:B-79")
def test_batches_that_were_split_and_gathered(
    either: ApacheCluster | LocalCluster, driver: JavaDriver, name: str
) -> None:
    driver.admin(either.namesrv).create_topic(either.broker_address, name, 2)
    messages = [mq.Message(name, b"%05d " % n * 20, tags=f"t{n // 50}", keys=f"k{n}") for n in range(600)]
    first, second = (mq.MessageQueue(name, "broker-a", number) for number in (0, 1))
    settings = mq.ProducerSettings(namesrv=either.namesrv, linger=0.01, send_timeout=30.0)
    with mq.Producer(name, settings=settings) as producer:
        groups = list(mq.split_batch(messages, bytes_max=16 * 1024))
        assert len(groups) > 3
        for group in groups:
            producer.send_batch(group, queue=first)
        results = [future.result(30) for future in [producer.send_async(m, queue=second) for m in messages]]
    stored: dict[int, list[Received]] = {0: [], 1: []}
    for one in driver.dump(either.namesrv, name):
        stored[one.queue_id].append(one)
    for queue_id in (0, 1):
        got = stored[queue_id]
        assert [one.body for one in got] == [message.body for message in messages]
        assert [(one.tags, one.keys) for one in got] == [(m.tags, m.keys_text) for m in messages]
    assert [(r.message_id, r.queue_offset) for r in results] == [
        (one.msg_id, one.queue_offset) for one in stored[1]
    ]
    assert len({result.offset_message_id for result in results}) == 600
