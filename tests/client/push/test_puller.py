"""The pull loop: flow control, refusals, lost connections, missing offsets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.client.consuming import (
    PULL,
    committed,
    consumer_of,
    flow,
    put,
)
from tests.client.fake import BROKER, FakeBroker, FakeCluster, answer, fake_cluster
from tests.support import run, until

from sparrowmq.client.base.lifecycle import State
from sparrowmq.client.base.settings import ConsumerSettings, Model
from sparrowmq.client.consumer.dynamic_settings import DynamicSettings
from sparrowmq.client.consumer.lazy_message import LazyMessage
from sparrowmq.client.consumer.process_queue import Limits, ProcessQueue
from sparrowmq.client.push.puller import how_many
from sparrowmq.core.allocation import ByConfig
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.route import BrokerData, QueueData
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.connection import Connection

QUERY = int(RequestCode.QUERY_CONSUMER_OFFSET)
UPDATE = int(RequestCode.UPDATE_CONSUMER_OFFSET)


@pytest.mark.proves("client:D.7")
def test_tags_are_filtered_again_locally() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", "A || C", got.append)
            await until(lambda: len(got) == 20)
            await until(
                lambda: committed(cluster) == {0: 20, 1: 10} or sum(committed(cluster).values()) >= 29
            )
        assert {m.tags for m in got} == {"A", "C"}

    flow(test, 30, tags=("A", "B", "C"))


@pytest.mark.proves("client:D.7")
def test_offsets_advance_past_messages_that_the_tags_exclude() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", "Z", got.append)
            await until(lambda: committed(cluster) == {0: 6, 1: 6})
        assert got == []

    flow(test, 12, tags=("A", "B"))


@pytest.mark.proves("client:D.5-11", "MUST-29")
def test_pull_commits_the_offset_in_memory_when_it_is_above_0() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster, persist_interval=3600) as consumer:
            consumer.subscribe("T", handler=got.append)
            for number in range(4):
                await until(lambda: [q for q in consumer.assignment if q.topic == "T"])
                put(cluster, number, queues=1)
                await until(lambda number=number: len(got) == number + 1)
                await until(lambda: sum(consumer.lag.values()) == 0)
        pulls = [c.ext for c in cluster.broker.requests(PULL) if c.ext["topic"] == "T"]
        asked = {(int(ext["sysFlag"]) & 1, int(ext["commitOffset"]) > 0) for ext in pulls}
        assert asked == {(0, False), (1, True)}
        assert all(int(ext["commitOffset"]) <= int(ext["queueOffset"]) for ext in pulls)

    flow(test, queues=1)


@pytest.mark.proves("client:D.5", "client:D-16")
def test_flow_control_limits_unfinished_messages() -> None:
    async def test(cluster: FakeCluster) -> None:
        go = asyncio.Event()
        started = 0

        async def handle(message: ReceivedMessage) -> None:
            nonlocal started
            started += 1
            await go.wait()

        async with consumer_of(cluster, queue_messages_max=40, threads=1000) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: started == 64)
            pulls = len(cluster.broker.requests(PULL))
            for number in range(5):
                put(cluster, 1000 + number, queues=1)
            await asyncio.sleep(0)
            assert len([c for c in cluster.broker.requests(PULL) if c.ext["topic"] == "T"]) == 2
            assert pulls >= 2
            go.set()
            await until(lambda: started == 205)

    flow(test, 200, queues=1)


@pytest.mark.proves("client:D.7", "client:D-27")
def test_missing_offset_is_corrected() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.first["T", 0] = 50
        cluster.broker.offsets["g", "T", 0] = 7
        for number in range(3):
            cluster.broker.store("T", 0, b"%d" % number)
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 3)
            await until(lambda: committed(cluster) == {0: 53})
        assert [m.queue_offset for m in got] == [50, 51, 52]

    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            await test(cluster)

    run(main())


@pytest.mark.parametrize(
    ("model", "ordered"), [("clustering", False), ("clustering", True), ("broadcasting", False)]
)
def test_recreated_topic_is_read_from_its_beginning(model: Model, ordered: bool, tmp_path: Path) -> None:
    """Messages before the group's old offset must not be skipped, nor may the old offset be committed."""

    async def test(cluster: FakeCluster) -> None:
        got: list[bytes] = []
        options = {"model": model, "ordered": ordered, "offset_dir": tmp_path}
        options |= {"persist_interval": 0.05, "pull_hold": 0.2}
        async with consumer_of(cluster, consume_from="first", **options) as consumer:
            consumer.subscribe("T", handler=lambda message: got.append(message.body))
            await until(lambda: len(got) == 10)
            if model == "clustering":
                await until(lambda: committed(cluster) == {0: 10})
            else:
                await until(lambda: b"10" in b"".join(path.read_bytes() for path in tmp_path.rglob("*.json")))
            refused: list[str] = []

            def refuse(conn: Connection, command: Command) -> Command:
                refused.append(command.ext["topic"] if command.code == PULL else "")
                return answer(22 if command.code == QUERY else 17, remark="topic T not exist")

            for code in (PULL, UPDATE, QUERY):
                cluster.broker.on[code] = refuse
            cluster.broker.offsets.clear()
            await until(lambda: "T" in refused)  # what it held of the topic is answered
            cluster.broker.queues["T", 0].clear()
            await until(lambda: refused.count("T") >= 3)
            for number in range(30):
                cluster.broker.store("T", 0, b"new %d" % number)
            cluster.broker.on.clear()
            await until(lambda: len(got) == 40)
        assert got[10:] == [b"new %d" % number for number in range(30)]

    flow(test, 10, queues=1)


@pytest.mark.proves("client:D-29")
def test_failed_pull_is_reported_and_repeated() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        cluster.broker.on[PULL] = lambda conn, c: answer(16, remark="not now")
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            error = await until(lambda: consumer.last_error)
            assert "answer 16" in str(error)
            del cluster.broker.on[PULL]
            await until(lambda: len(got) == 10 and consumer.last_error is None)

    flow(test, 10)


@pytest.mark.proves("client:D-28")
def test_pulls_under_flow_control_are_repeated_soon() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        refusals = iter(range(4))

        def handle(conn: Connection, command: Command) -> Any:
            if next(refusals, None) is not None:
                return answer(215, remark="flow control")
            return cluster.broker.pull(conn, command)

        cluster.broker.on[PULL] = handle
        async with consumer_of(cluster, error_delay=60) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 10)

    flow(test, 10)


@pytest.mark.proves("client:D-30")
def test_broker_that_forgot_the_group_gets_a_heartbeat() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        forgot = asyncio.Event()

        def handle(conn: Connection, command: Command) -> Any:
            if not forgot.is_set():
                forgot.set()
                cluster.broker.heartbeats.clear()
                return answer(24, remark="no subscription")
            return cluster.broker.pull(conn, command)

        cluster.broker.on[PULL] = handle
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 10)
            assert cluster.broker.heartbeats

    flow(test, 10)


@pytest.mark.parametrize("refusals", [1, 3])
def test_pull_before_its_heartbeat_is_repeated_at_once_and_only_then_a_failure(
    refusals: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        left = [refusals]

        def handle(conn: Connection, command: Command) -> Any:
            if left[0]:
                left[0] -= 1
                return answer(25, remark="the consumer's subscription not latest")
            return cluster.broker.pull(conn, command)

        cluster.broker.on[PULL] = handle
        async with consumer_of(cluster, error_delay=3600 if refusals == 1 else 0.01) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 10)

    flow(test, 10, queues=1)
    assert ("subscription not latest" in caplog.text) == (refusals > 1)


def test_pulling_resumes_after_the_connection_is_lost() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 10)
            for conn in list(cluster.broker.server.connections):
                conn.abort()
            put(cluster, 10)
            await until(lambda: len(got) == 11)

    flow(test, 10)


@pytest.mark.proves("client:D.5-11")
def test_pulls_commit_offsets() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster, persist_interval=3600) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: consumer.lag and sum(consumer.lag.values()) == 0)
            for number in range(10, 20):
                put(cluster, number)
                await until(lambda number=number: len(got) == number + 1)
            await until(lambda: sum(committed(cluster).values()) >= 10)

    flow(test, 10)


def test_broken_record_stops_neither_consumer_nor_other_queues() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        cluster.broker.queues["T", 0][0] = b"not a record"
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 5)
            error = await until(lambda: consumer.last_error)
            assert "record" in str(error)
            assert consumer.state is State.RUNNING

    flow(test, 10)


@pytest.mark.parametrize(
    ("behind", "in_hand", "expected"),
    [(0, 0, 32), (32, 0, 32), (33, 0, 33), (5000, 0, 512), (5000, 700, 300), (5000, 1000, 32)],
)
def test_more_is_requested_while_a_queue_lags_and_has_room(behind: int, in_hand: int, expected: int) -> None:
    queue = MessageQueue("T", "b", 0)
    held = ProcessQueue(queue, in_hand, Limits())
    held.put(
        [LazyMessage(queue, n, 0, "T", b"", {}, 0, 0, 0, "", 0, "", 0, 0, 0, "") for n in range(in_hand)]
    )
    held.answered(in_hand + behind)
    assert how_many(held, DynamicSettings(ConsumerSettings(), lambda: 0).pull("t")) == expected


@pytest.mark.proves("client:D-11")
def test_queue_does_not_wait_for_pulls_of_others() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        for_ever = asyncio.Event()

        async def handle(conn: Connection, command: Command) -> Any:
            if command.ext["topic"] == "T" and command.ext["queueId"] == "1":
                await for_ever.wait()
            return await cluster.broker.pull(conn, command)

        cluster.broker.on[PULL] = handle
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(t_pulls(cluster, 1)) == 1)
            for number in range(0, 10, 2):
                before = len(t_pulls(cluster, 0))
                put(cluster, number)
                await until(lambda number=number: len(got) == number // 2 + 1)
                await until(lambda before=before: len(t_pulls(cluster, 0)) > before)
            assert len(t_pulls(cluster, 1)) == 1, "it still waits for its answer"
            for_ever.set()

    flow(test)


@pytest.mark.proves("client:D-12", "MUST-27", "client:D-14")
def test_pull_tasks_name_their_group_and_end_with_its_consumer() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        shared: dict[str, Any] = {"instance_name": "shared", "client_ip": "10.0.0.1", "pull_hold": 0.01}
        stays, goes = consumer_of(cluster, "stays", **shared), consumer_of(cluster, "goes", **shared)
        for consumer in (stays, goes):
            consumer.subscribe("T", handler=got.append)
            await consumer.start()

        def pulls(group: str) -> int:
            return sum(c.ext["consumerGroup"] == group for c in cluster.broker.requests(PULL))

        await until(lambda: pulls("stays") and pulls("goes"))
        await goes.close()
        before, others = pulls("goes"), pulls("stays")
        put(cluster, 0)
        await until(lambda: len(got) == 1 and pulls("stays") > others + 5)
        assert pulls("goes") == before
        await stays.close()

    flow(test)


@pytest.mark.proves("client:D-15", "MUST-62")
def test_only_assigned_queues_are_pulled_and_a_pull_can_be_made_manually() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        first, second = (MessageQueue("T", "broker-a", number) for number in (0, 1))
        async with consumer_of(cluster, allocate=ByConfig([first]), ordered=True) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 5)
            assert (t_pulls(cluster, 1), consumer.assignment) == ([], [first])
            member = consumer._member
            assert member is not None
            made = ProcessQueue(second, 2, Limits(), now=member.instance.clock.monotonic())
            made.lock_taken()
            pulling = asyncio.create_task(member.puller.run(made))
            await until(lambda: len(got) == 8)
            pulling.cancel()
        assert [m.queue_offset for m in got if m.queue == second] == [2, 3, 4]

    flow(test, 10)


@pytest.mark.proves("client:D-17")
def test_pause_is_logged_rarely(caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []

        def handle(message: ReceivedMessage) -> None:
            got.append(message)

        with caplog.at_level("INFO", "sparrowmq.client"):
            async with consumer_of(cluster, queue_messages_max=1, pull_batch=2, threads=1) as consumer:
                consumer.subscribe("T", handler=handle)
                await until(lambda: len(got) == 100)
        (line,) = [r.getMessage() for r in caplog.records if "pauses" in r.getMessage()]
        assert line.startswith("pulling T/broker-a/0 for group g pauses: 2 messages, ")
        assert len(t_pulls(cluster, 0)) >= 50, "it paused each time"

    flow(test, 100, queues=1)


@pytest.mark.proves("client:D-21", "client:D-22", "MUST-29")
def test_slave_gets_no_commits() -> None:
    async def main() -> None:
        async with fake_cluster(brokers=2) as cluster:
            master, slave = cluster.brokers.values()
            cluster.topics["T"][BROKER] = QueueData(BROKER, 1, 1, 6)
            addresses = {0: master.server.address, 1: slave.server.address}
            cluster._broker_data = lambda name: BrokerData("FakeCluster", name, addresses)
            got: list[ReceivedMessage] = []

            async def elsewhere(conn: Connection, command: Command) -> Any:
                told = await master.pull(conn, command)
                to_slave = command.ext["topic"] == "T" and 5 <= len(got) < 10
                told.ext["suggestWhichBrokerId"] = str(int(to_slave))
                return told

            def held(broker: FakeBroker) -> list[tuple[int, int]]:
                """(system flag, commit offset) of the pulls of T."""
                pulls = [c.ext for c in broker.requests(PULL) if c.ext["topic"] == "T"]
                return [(int(ext["sysFlag"]), int(ext["commitOffset"])) for ext in pulls]

            master.on[PULL] = slave.on[PULL] = elsewhere
            async with consumer_of(cluster, persist_interval=3600) as consumer:
                consumer.subscribe("T", handler=got.append)
                for number in range(15):
                    master.store("T", 0, b"%d" % number)
                    await until(lambda number=number: len(got) == number + 1)
                    await until(lambda: sum(consumer.lag.values()) == 0)
            assert len([pull for pull in held(slave) if pull[1] > 0]) >= 4
            assert not any(flag & 1 for flag, _ in held(slave)), "a slave takes no commits"
            assert [flag & 1 for flag, offset in held(master) if offset > 0].count(0) == 0
            assert slave.offsets == {}

    run(main())


def t_pulls(cluster: FakeCluster, queue_id: int) -> list[Command]:
    wanted = ("T", str(queue_id))
    return [c for c in cluster.broker.requests(PULL) if (c.ext["topic"], c.ext["queueId"]) == wanted]
