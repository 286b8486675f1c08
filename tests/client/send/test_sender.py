"""Sends with a scripted cluster: choice of queues, attempts, timeouts, bounds."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.client.fake import NOW_MS, FakeCluster, answer, never
from tests.client.producing import SEND, flow, sends
from tests.support import about, free_port, run, until

from sparrowmq.client.base.hooks import SendMode
from sparrowmq.client.cluster import instance
from sparrowmq.client.producer.producer import Producer
from sparrowmq.client.send.queue_selection import select_by_random
from sparrowmq.core.errors import (
    BrokerError,
    ClientError,
    ConnectError,
    ConnectionLostError,
    InvalidMessageError,
    InvalidNameError,
    NoRoomError,
    NoRouteError,
    RequestTimeoutError,
    SettingsError,
)
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.results import SendResult, SendStatus
from sparrowmq.core.route import QueueData
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.record import decode_records
from sparrowmq.transport.connection import Connection


@pytest.mark.proves("client:B-20", "MUST-54")
def test_sends_rotate_over_all_queues_of_all_brokers() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        results = [await producer.send(Message("T", b"x")) for _ in range(12)]
        assert Counter(r.queue for r in results) == dict.fromkeys(await producer.queues("T"), 2)
        assert len({r.message_id for r in results}) == 12
        assert all(r.status is SendStatus.SEND_OK for r in results)
        assert "sent=12" in repr(producer)

    flow(test, brokers=2, queues=3)


def test_many_sends_in_flight_all_arrive_once() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        bodies_sent = [b"%d" % number for number in range(500)]
        results = await asyncio.gather(*(producer.send(Message("T", body)) for body in bodies_sent))
        stored = [r for held in cluster.broker.queues.values() for part in held for r in decode_records(part)]
        assert sorted(r.body for r in stored) == sorted(bodies_sent)
        for result, body in zip(results, bodies_sent, strict=True):
            held = cluster.broker.queues["T", result.queue.queue_id][result.queue_offset]
            assert decode_records(held)[0].body == body

    flow(test)


@pytest.mark.proves("client:B-17", "client:A-42", "client:A-43")
def test_unknown_topic_gets_the_templates_queues() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.add_topic("TBW102", 8)
        await producer.send(Message("New", b"x"))
        assert len(await producer.queues("New")) == 4, "cut to create_topic_queues"
        (header,) = sends(cluster)
        assert (header.topic, header.default_topic, header.default_topic_queue_nums) == ("New", "TBW102", 4)
        asked = [c.ext["topic"] for c in cluster.seen if c.code == RequestCode.GET_ROUTEINFO_BY_TOPIC]
        assert list(dict.fromkeys(asked)) == ["New", "TBW102"], "in this order, however often"

    flow(test)


@pytest.mark.proves("client:B-18")
def test_missing_route_is_reported_and_not_remembered() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        with pytest.raises(NoRouteError, check=about(topic="Nowhere")):
            await producer.send(Message("Nowhere", b"x"))
        with pytest.raises(NoRouteError, check=about(topic="Nowhere")):
            await producer.queues("Nowhere")
        assert "topics=0" in repr(producer)
        cluster.add_topic("Nowhere")
        assert await producer.send(Message("Nowhere", b"x"))

    flow(test)


def test_read_only_topic_has_no_queues() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.add_topic("ReadOnly", perm=4)
        with pytest.raises(NoRouteError):
            await producer.send(Message("ReadOnly", b"x"))

    flow(test)


@pytest.mark.parametrize("topic", ["", "a b", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "x" * 128])
def test_illegal_and_forbidden_topics_are_refused(topic: str) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        with pytest.raises(InvalidNameError):
            await producer.send(Message(topic, b"x"))
        assert not cluster.broker.seen

    flow(test)


@pytest.mark.proves("client:B-38", "client:B-21", "client:B.7")
def test_retryable_answer_goes_to_the_other_broker() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.broker.on[SEND] = lambda conn, c: answer(2, remark="busy")
        results = [await producer.send(Message("T", b"x")) for _ in range(8)]
        assert {r.queue.broker_name for r in results} == {"broker-b"}
        assert len(sends(cluster, "broker-b")) == 8

    flow(test, brokers=2)


@pytest.mark.proves("client:B.9")
def test_all_attempts_share_the_message_id() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        refused = iter([True, True, False])

        def handle(conn: Connection, command: Command) -> Command:
            return answer(1) if next(refused) else cluster.broker.send(conn, command)

        cluster.broker.on[SEND] = handle
        result = await producer.send(Message("T", b"x"))
        found = sends(cluster)
        assert len(found) == 3
        assert len({h.properties for h in found}) == 1
        assert f"UNIQ_KEY\x01{result.message_id}\x02" in (found[0].properties or "")
        assert len({h.queue_id for h in found}) > 1, "one broker: its next queue"

    flow(test)


@pytest.mark.proves("client:B.7", "client:B-43")
def test_attempts_end_and_the_last_error_lists_them() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.broker.on[SEND] = lambda conn, c: answer(14, remark="closing")
        with pytest.raises(BrokerError, check=about(code=14, remark="closing")) as caught:
            await producer.send(Message("T", b"x"))
        assert len(sends(cluster)) == 3
        assert "tried 3 times" in caught.value.__notes__[0]
        assert "failed=1" in repr(producer)

    flow(test)


@pytest.mark.proves("client:B-39")
def test_final_answer_is_not_repeated() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.broker.on[SEND] = lambda conn, c: answer(13, remark="illegal")
        with pytest.raises(BrokerError, check=about(code=13, remark="illegal")):
            await producer.send(Message("T", b"x"))
        assert len(sends(cluster)) == 1

    flow(test)


@pytest.mark.proves("client:B.7-8")
@pytest.mark.parametrize("status", [10, 11, 12])
def test_stored_but_not_flushed_is_a_result(status: int) -> None:
    def stored(conn: Connection, command: Command) -> Command:
        return answer(status, {"msgId": "M", "queueId": "0", "queueOffset": "1"})

    async def plain(cluster: FakeCluster, producer: Producer) -> None:
        cluster.broker.on[SEND] = stored
        assert (await producer.send(Message("T", b"x"))).status == status
        assert len(sends(cluster)) == 1

    async def again(cluster: FakeCluster, producer: Producer) -> None:
        cluster.broker.on[SEND] = stored
        assert (await producer.send(Message("T", b"x"))).status == status, "the stored result, not an error"
        assert len(sends(cluster)) == 3

    flow(plain)
    flow(again, retry_not_stored_ok=True)


@pytest.mark.proves("client:B-39")
def test_later_failure_does_not_hide_that_the_message_is_stored() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        answers = iter(
            [answer(11, {"msgId": "M", "queueId": "0", "queueOffset": "1"}), answer(13, remark="illegal")]
        )
        cluster.broker.on[SEND] = lambda conn, c: next(answers)
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.SLAVE_NOT_AVAILABLE

    flow(test, retry_not_stored_ok=True)


@pytest.mark.proves("client:B-36")
def test_lost_connection_is_tried_again() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        lost = iter([True, False, False])

        def handle(conn: Connection, command: Command) -> Command | None:
            if next(lost):
                conn.abort()
                return None
            return cluster.broker.send(conn, command)

        cluster.broker.on[SEND] = handle
        assert await producer.send(Message("T", b"x"))
        assert len(sends(cluster)) == 2

    flow(test)


def test_unavailable_broker_gives_a_connect_error_within_the_timeout() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.send(Message("T", b"x"))
        await cluster.broker.server.close(timeout=0.1)
        with pytest.raises((ConnectError, ConnectionLostError)) as caught:
            await producer.send(Message("T", b"x"), timeout=2)
        assert "tried 3 times" in caught.value.__notes__[0]

    flow(test)


@pytest.mark.proves("client:B-30", "MUST-52")
def test_timeout_covers_all_attempts() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.broker.on[SEND] = never
        with pytest.raises(RequestTimeoutError):
            await producer.send(Message("T", b"x"), timeout=0.05)
        assert len(sends(cluster)) == 1
        with pytest.raises(RequestTimeoutError, check=about(address=cluster.broker.server.address)) as caught:
            await producer.send(Message("T", b"x"), timeout=0.05)
        (note,) = caught.value.__notes__
        assert " was tried once in " in note, "it left once, on the open connection"
        assert len(sends(cluster)) == 2

    flow(test)


def test_attempt_without_room_does_not_hide_the_result_of_the_previous_one() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.send(Message("T", b"x"))
        release = asyncio.Event()

        async def busy_once(conn: Connection, command: Command) -> Command:
            cluster.broker.on[SEND] = held
            return answer(2, remark="busy")

        async def held(conn: Connection, command: Command) -> Command:
            await release.wait()
            return cluster.broker.send(conn, command)

        cluster.broker.on[SEND] = busy_once
        first = asyncio.create_task(producer.send(Message("T", b"x"), timeout=0.3))
        second = asyncio.create_task(producer.send(Message("T", b"x"), timeout=20))
        with pytest.raises(BrokerError, check=about(code=2, remark="busy")):
            await first
        release.set()
        await second

    flow(test, in_flight_max=1)


def test_error_without_a_name_server_names_it() -> None:
    async def main() -> None:
        async with Producer("g", namesrv=f"127.0.0.1:{free_port()}") as producer:
            with pytest.raises(ConnectError, match=r"127\.0\.0\.1"):
                await producer.send(Message("T", b"x"))

    run(main())


def test_silent_name_server_uses_up_the_timeout_of_a_send() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.on[RequestCode.GET_ROUTEINFO_BY_TOPIC] = never
        with pytest.raises(RequestTimeoutError, check=about(address=cluster.namesrv)):
            await producer.send(Message("T", b"x"), timeout=0.05)

    flow(test)


@pytest.mark.proves("client:B-128", "client:A-55", "client:A-52")
def test_producer_returns_queue_offsets_and_looks_up_an_unknown_broker_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparrowmq.client.cluster.instance.ROUTES_FIRST_SECONDS", 3600)

    async def test(cluster: FakeCluster, producer: Producer) -> None:
        def routes() -> int:
            return sum(c.code == RequestCode.GET_ROUTEINFO_BY_TOPIC for c in cluster.seen)

        queue = MessageQueue("T", "broker-a", 1)
        assert (await producer.max_offset(queue), routes()) == (0, 1)
        for _ in range(4):
            await producer.send(Message("T", b"x"), queue=queue)
        asked = routes()
        assert [await producer.max_offset(queue), await producer.min_offset(queue)] == [4, 0]
        assert await producer.search_offset(queue, 1) == 2
        assert await producer.search_offset(queue, datetime(2024, 5, 1, tzinfo=UTC)) == 2
        with pytest.raises(SettingsError, check=about(value=datetime(2024, 5, 1))):
            await producer.search_offset(queue, datetime(2024, 5, 1))
        assert await producer.earliest_store_time(queue) == NOW_MS
        assert routes() == asked
        with pytest.raises(ClientError, check=about(what="broker", value="broker-z")):
            await producer.max_offset(MessageQueue("T", "broker-z", 0))
        assert routes() == asked + 1

    flow(test)


@pytest.mark.proves("client:B-04")
@pytest.mark.parametrize("settings", [{}, {"linger": 0.01}])
def test_invalid_message_is_refused(settings: dict[str, Any]) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        for wrong in (None, b"body", {"topic": "T"}):
            with pytest.raises(InvalidMessageError, check=about(part="message")) as caught:
                await producer.send(wrong)
            assert caught.value.code == 13
            with pytest.raises(InvalidMessageError, check=about(part="message")):
                await producer.send_batch([wrong])
            with pytest.raises(InvalidMessageError, check=about(part="message")):
                producer.submit(wrong, lambda *outcome: None)

    flow(test, **settings)


@pytest.mark.proves("client:B-19", "client:A-39")
def test_route_of_a_used_topic_is_refreshed_for_the_producers_lifetime() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.add_topic("U")
        for topic in ("T", "U"):
            await producer.send(Message(topic, b"x"))
        asked = [c.ext["topic"] for c in cluster.seen if c.code == RequestCode.GET_ROUTEINFO_BY_TOPIC]
        for _ in range(2):
            assert producer._sender is not None
            await producer._sender.instance.refresh_routes()
        again = [c.ext["topic"] for c in cluster.seen if c.code == RequestCode.GET_ROUTEINFO_BY_TOPIC]
        more = Counter(again) - Counter(asked)  # the timer may have asked once more
        assert min(more["T"], more["U"]) >= 2, more

    flow(test)


@pytest.mark.parametrize("queue", [None, MessageQueue("T", "broker-a", 0)])
def test_failed_send_refreshes_the_route_at_a_limited_rate(
    queue: MessageQueue | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failover another broker is the master, and the next refresh may be 30 s later."""
    monkeypatch.setattr(instance, "ROUTE_DOUBT_SECONDS", 3600.0)

    async def test(cluster: FakeCluster, producer: Producer) -> None:
        def asked() -> int:
            return sum(one.code == RequestCode.GET_ROUTEINFO_BY_TOPIC for one in cluster.seen)

        await producer.send(Message("T", b"x"))
        await until(lambda: asked() == 2)  # by the send, and by the first refresh of all routes
        before = asked()
        cluster.broker.on[SEND] = lambda conn, command: answer(14, remark="fenced")
        for _ in range(3):
            with pytest.raises(BrokerError):
                await producer.send(Message("T", b"x"), queue=queue)
        await until(lambda: asked() == before + 1)
        cluster.broker.on[SEND] = lambda conn, command: answer(13, remark="too large")
        with pytest.raises(BrokerError):
            await producer.send(Message("T", b"x"), queue=queue)
        await asyncio.sleep(0)
        assert asked() == before + 1

    flow(test, route_interval=3600.0)


@pytest.mark.proves("client:B-34", "client:B-35")
def test_selected_queue_is_tried_once() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        queue = MessageQueue("T", "broker-a", 2)
        assert (await producer.send(Message("T", b"x"), queue=queue)).queue == queue
        assert (await producer.send(Message("T", b"x"), hash_key="order-1")).queue == queue
        chosen = await producer.send(Message("T", b"x"), selector=lambda qs, m, a: qs[a], argument=2)
        assert chosen.queue == queue
        cluster.broker.on[SEND] = lambda conn, c: answer(2, remark="busy")
        before = len(sends(cluster))
        for choice in ({"queue": queue}, {"hash_key": 1}, {"selector": lambda qs, m, a: qs[0]}):
            with pytest.raises(BrokerError):
                await producer.send(Message("T", b"x"), **choice)
        assert len(sends(cluster)) == before + 3
        done: list[Any] = []
        producer.submit(
            Message("T", b"x"), lambda *outcome: done.append(outcome[1]), queue=queue, mode=SendMode.SYNC
        )
        await until(lambda: done)
        assert isinstance(done[0], BrokerError) and len(sends(cluster)) == before + 4

    flow(test)


def test_missing_queues_are_refused() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        with pytest.raises(NoRouteError, check=about(topic="T")):
            await producer.send(Message("T", b"x"), queue=MessageQueue("T", "broker-a", 9))
        with pytest.raises(ClientError, check=about(what="queue")):
            await producer.send(Message("T", b"x"), queue=MessageQueue("U", "broker-a", 0))
        with pytest.raises(ClientError, check=about(value=["queue", "hash_key"])):
            await producer.send(Message("T", b"x"), queue=MessageQueue("T", "broker-a", 0), hash_key=1)

    flow(test)


@pytest.mark.proves("client:B.9", "MUST-55", "client:B-80", "client:B-82")
def test_large_bodies_are_compressed_and_small_ones_not() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        for size in (4095, 4096, 300 * 1024):
            await producer.send(Message("T", b"a" * size))
        assert [h.sys_flag for h in sends(cluster)] == [0, 0x301, 0x301]
        packed = [c.body for c in cluster.broker.requests(SEND)]
        assert packed[0] == b"a" * 4095
        assert zlib.decompress(packed[2]) == b"a" * 300 * 1024
        await producer.send(Message("T", b"a" * 4096), hash_key=1)
        await producer.send_oneway(Message("T", b"a" * 4096))
        await until(lambda: len(sends(cluster)) == 5)
        assert [h.sys_flag for h in sends(cluster)[3:]] == [0x301, 0x301]

    flow(test)


@pytest.mark.proves("client:B-81")
@pytest.mark.parametrize(("compression", "sys_flag"), [("lz4", 0x101), ("zstd", 0x201)])
def test_codec_is_configurable(compression: str, sys_flag: int) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.send(Message("T", b"a" * 5000))
        assert sends(cluster)[0].sys_flag == sys_flag

    flow(test, compression=compression)


@pytest.mark.proves("client:B-80")
def test_failed_compression_sends_the_body_uncompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> bytes:
        raise MemoryError("no room")

    monkeypatch.setattr("sparrowmq.client.send.sender.compress", broken)

    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.send(Message("T", b"a" * 5000))
        assert sends(cluster)[0].sys_flag == 0

    flow(test)


@pytest.mark.proves("client:B-75", "client:B-76")
def test_batch_is_stored_in_one_queue_in_order() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        messages = (Message("T", b"%d" % number) for number in range(5))
        result = await producer.send_batch(messages)
        held = cluster.broker.queues["T", result.queue.queue_id]
        assert [decode_records(record)[0].body for record in held] == [b"0", b"1", b"2", b"3", b"4"]
        assert len(set(result.message_ids)) == 5 and ",".join(result.message_ids) == result.message_id
        queue = MessageQueue("T", "broker-a", 1)
        assert (await producer.send_batch([Message("T", b"x")], queue=queue)).queue == queue
        large = [Message("T", b"a" * 5000)] * 2
        await producer.send_batch(large)
        assert sends(cluster)[-1].sys_flag == 0, "batches are not compressed"
        with pytest.raises(InvalidMessageError):
            await producer.send_batch([])
        with pytest.raises(TypeError, match="selector"):
            await producer.send_batch(large, selector=select_by_random)

    flow(test)


def test_encoded_batch_is_sent_unchanged() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        from sparrowmq.protocol.batch import encode_batch

        body = encode_batch([(0, b"a", b""), (0, b"b", b"")])
        result = await producer.send_encoded_batch("T", body, 2)
        assert len(cluster.broker.queues["T", result.queue.queue_id]) == 2

    flow(test)


@pytest.mark.proves("client:B-33")
def test_one_way_sends_expect_no_answer() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        queue = MessageQueue("T", "broker-a", 1)
        await producer.send_oneway(Message("T", b"1"))
        await producer.send_oneway(Message("T", b"2"), queue=queue)
        await producer.send_oneway(Message("T", b"3"), hash_key="order-1")
        await until(lambda: len(sends(cluster)) == 3)
        assert all(c.is_oneway for c in cluster.broker.requests(SEND))
        assert [h.queue_id for h in sends(cluster)][1:] == [1, 2]

    flow(test)


@pytest.mark.proves("client:B-24", "client:B-26")
def test_submitted_sends_need_no_task_and_call_back() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        outcomes: list[tuple[SendResult | None, BaseException | None]] = []
        await producer.send(Message("T", b"warm"))
        for number in range(10):
            producer.submit(Message("T", b"%d" % number), lambda r, e: outcomes.append((r, e)))
        producer.submit(Message("T", b"a" * 5000), lambda r, e: outcomes.append((r, e)))
        producer.submit(Message("Nowhere", b"x"), lambda r, e: outcomes.append((r, e)))
        await until(lambda: len(outcomes) == 12)
        assert sum(1 for result, error in outcomes if result is not None and error is None) == 11
        (error,) = [error for _, error in outcomes if error is not None]
        assert isinstance(error, NoRouteError)
        with pytest.raises(InvalidMessageError):
            producer.submit(Message("T", b""), lambda r, e: outcomes.append((r, e)))

    flow(test)


@pytest.mark.proves("client:B-27")
def test_submitted_sends_are_tried_again_or_fail() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        outcomes: list[tuple[SendResult | None, BaseException | None]] = []
        await producer.send(Message("T", b"warm"))
        answers = iter([answer(2), answer(13, remark="illegal")])
        cluster.broker.on[SEND] = lambda conn, c: next(answers)
        producer.submit(Message("T", b"x"), lambda r, e: outcomes.append((r, e)))
        await until(lambda: outcomes)
        assert isinstance(outcomes[0][1], BrokerError)
        cluster.broker.on[SEND] = lambda conn, c: answer(13, remark="illegal")
        producer.submit(Message("T", b"x"), lambda r, e: outcomes.append((r, e)))
        await until(lambda: len(outcomes) == 2)
        assert isinstance(outcomes[1][1], BrokerError)

    flow(test)


@pytest.mark.proves("client:B-24")
def test_limit_of_sends_in_flight_makes_callers_wait() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.send(Message("T", b"warm"))
        go = asyncio.Event()

        async def held(conn: Connection, command: Command) -> Command:
            await go.wait()
            return cluster.broker.send(conn, command)

        cluster.broker.on[SEND] = held
        waiting = [asyncio.create_task(producer.send(Message("T", b"x"), timeout=20)) for _ in range(5)]
        await until(lambda: len(sends(cluster)) == 1 + 2)
        assert producer.in_flight == 2
        with pytest.raises(NoRoomError, check=about(limit=2)):
            await producer.send(Message("T", b"x"), timeout=0.01)
        with pytest.raises(NoRoomError, check=about(limit=2)):
            for _ in range(5):
                producer.submit(Message("T", b"x"), lambda r, e: None)
                await asyncio.sleep(0)
        go.set()
        assert len(await asyncio.gather(*waiting)) == 5

    flow(test, in_flight_max=2)


@pytest.mark.proves("client:B-40")
def test_cancelled_send_frees_its_room() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.send(Message("T", b"warm"))
        cluster.broker.on[SEND] = never
        sending = asyncio.create_task(producer.send(Message("T", b"x")))
        await until(lambda: producer.in_flight == 1)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert producer.in_flight == 0

    flow(test)


@pytest.mark.proves("client:B-16", "client:A-45")
def test_new_routes_are_used_and_the_rotation_continues() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.send(Message("T", b"x"))
        cluster.add_topic("T", 8)
        await until(lambda: _has_queues(producer, 8))
        assert len({(await producer.send(Message("T", b"x"))).queue for _ in range(8)}) == 8

    async def _has_queues(producer: Producer, count: int) -> bool:
        return len(await producer.queues("T")) == count

    flow(test, route_interval=0.02)


@pytest.mark.parametrize("mode", [SendMode.SYNC, SendMode.ASYNC])
def test_queue_that_is_gone_renews_the_route_and_another_one_is_chosen(mode: SendMode) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.send(Message("T", b"x"))

        def smaller(conn: Connection, command: Command) -> Command:
            if int(command.ext["e"]) > 0:
                return answer(29, remark=f"request queueId[{command.ext['e']}] is illegal, T has 1 queue")
            return cluster.broker.send(conn, command)

        cluster.broker.on[SEND] = smaller
        cluster.topics["T"]["broker-a"] = QueueData("broker-a", 1, 1, 6)
        results: list[SendResult | BaseException | None] = []
        for _ in range(8):
            if mode is SendMode.SYNC:
                results.append(await producer.send(Message("T", b"x")))
            else:
                producer.submit(Message("T", b"x"), lambda result, error: results.append(result or error))
        await until(lambda: len(results) == 8)
        assert [one.queue.queue_id for one in results if isinstance(one, SendResult)] == [0] * 8

    flow(test)
