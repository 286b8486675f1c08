"""A producer's life cycle: start, heartbeats, settings, closing."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.fake import answer, fake_cluster, never
from tests.client.producing import SEND
from tests.support import about, run, until

from sparrowmq.client.base.lifecycle import State
from sparrowmq.client.base.settings import ProducerSettings
from sparrowmq.client.cluster.instance import InstanceState
from sparrowmq.client.producer.producer import Producer
from sparrowmq.core.errors import (
    ConnectionLostError,
    InvalidNameError,
    InvalidStateError,
    NoNameServerError,
    SettingsError,
)
from sparrowmq.core.message import Message
from sparrowmq.core.results import SendStatus
from sparrowmq.protocol import bodies
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.connection import Connection


@pytest.mark.proves("client:B.4", "client:B-14", "client:A-95", "MUST-49")
def test_heartbeats_name_the_group_and_closing_unregisters() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            async with Producer("g", namesrv=cluster.namesrv) as producer:
                await producer.send(Message("T", b"x"))
                await until(lambda: cluster.broker.heartbeats)
                client_id = producer.client_id
            (heartbeat, *_) = cluster.broker.heartbeats
            assert heartbeat.client_id == client_id
            assert bodies.ProducerData("g") in heartbeat.producers
            (goodbye,) = cluster.broker.requests(RequestCode.UNREGISTER_CLIENT)
            assert goodbye.ext == {"clientID": client_id, "producerGroup": "g"}

    run(main())


@pytest.mark.proves("client:B-14")
def test_closing_waits_for_sends_in_flight() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            producer = Producer("g", namesrv=cluster.namesrv)
            await producer.start()
            await producer.send(Message("T", b"warm"))

            async def slow(conn: Connection, command: Command) -> Command:
                await until(lambda: producer.state is State.CLOSING)
                return cluster.broker.send(conn, command)

            cluster.broker.on[SEND] = slow
            sending = asyncio.create_task(producer.send(Message("T", b"x")))
            await until(lambda: producer.in_flight == 1)
            await producer.close()
            assert (await sending).status is SendStatus.SEND_OK
            await producer.close()
            assert producer.state is State.CLOSED

    run(main())


@pytest.mark.parametrize("steps", range(12))
def test_cancelled_close_leaves_no_connection(steps: int) -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            producer = Producer("g", namesrv=cluster.namesrv)
            await producer.start()
            await producer.send(Message("T", b"x"))
            remoting = producer._running().instance.remoting
            assert remoting._connections
            closing = asyncio.create_task(producer.close())
            for _ in range(steps):
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            if producer.state is State.RUNNING:  # it had not begun
                await producer.close()
            assert producer.state is State.CLOSED
            assert not remoting._connections

    run(main())


def test_closing_waits_for_sends_without_a_connection() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            producer = Producer("g", namesrv=cluster.namesrv)
            await producer.start()
            outcomes: list[object] = []
            for body in (b"1", b"2", b"3"):
                producer.submit(Message("T", body), lambda result, error: outcomes.append(error or result))
            sending = asyncio.create_task(producer.send(Message("T", b"4"), hash_key="k"))
            await asyncio.sleep(0)
            await producer.close()
            assert (await sending).status is SendStatus.SEND_OK
            assert [getattr(outcome, "status", outcome) for outcome in outcomes] == [SendStatus.SEND_OK] * 3

    run(main())


def test_closing_waits_for_the_next_attempt_of_a_send() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            producer = Producer("g", namesrv=cluster.namesrv)
            await producer.start()
            await producer.send(Message("T", b"warm"))

            def busy_once(conn: Connection, command: Command) -> Command:
                del cluster.broker.on[SEND]
                return answer(2, remark="busy")

            cluster.broker.on[SEND] = busy_once
            sending = asyncio.create_task(producer.send(Message("T", b"x")))
            await until(lambda: SEND not in cluster.broker.on)
            await until(lambda: producer.in_flight == 0)
            await producer.close()
            assert (await sending).status is SendStatus.SEND_OK

    run(main())


def test_closing_is_bounded_when_brokers_are_silent() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            settings = ProducerSettings(namesrv=cluster.namesrv, close_timeout=0.05, request_timeout=0.05)
            producer = Producer("g", settings=settings)
            await producer.start()
            await producer.send(Message("T", b"warm"))
            cluster.broker.on[SEND] = cluster.broker.on[RequestCode.UNREGISTER_CLIENT] = never
            sending = asyncio.create_task(producer.send(Message("T", b"x")))
            await until(lambda: producer.in_flight == 1)
            await producer.close()
            with pytest.raises((ConnectionLostError, InvalidStateError)):
                await sending

    run(main())


@pytest.mark.proves("client:B-01", "client:A-29", "MUST-46", "client:B-11")
def test_producer_starts_and_closes() -> None:
    async def main() -> None:
        producer = Producer("g", namesrv="127.0.0.1:1")
        assert "created" in repr(producer)
        assert producer.in_flight == 0
        with pytest.raises(InvalidStateError, check=about(what="running", value="created")):
            await producer.send(Message("T", b"x"))
        await producer.start()
        with pytest.raises(InvalidStateError):
            await producer.start()
        await producer.close()
        with pytest.raises(InvalidStateError, check=about(what="running", value="closed")):
            await producer.send(Message("T", b"x"))
        unused = Producer("g", namesrv="127.0.0.1:1")
        await unused.close()
        assert unused.state is State.CLOSED

    run(main())


def test_failed_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARROW_NAMESRV", raising=False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    async def main() -> None:
        producer = Producer("g")
        with pytest.raises(NoNameServerError):
            await producer.start()
        assert producer.state is State.FAILED
        await producer.close()
        assert producer.state is State.CLOSED

    run(main())


@pytest.mark.proves("client:A-30", "client:B.4")
def test_interrupted_start_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            asked = asyncio.Event()

            async def silent(conn: Connection, command: Command) -> None:
                asked.set()
                await asyncio.Event().wait()

            cluster.on[RequestCode.GET_ROUTEINFO_BY_TOPIC] = silent
            settings = ProducerSettings(
                namesrv=cluster.namesrv, instance_name="me", topics=("T",), trace=True, send_timeout=60.0
            )
            producer = Producer("g", settings=settings)
            starting = asyncio.create_task(producer.start())
            await asked.wait()
            instance = producer._sender and producer._sender.instance
            assert instance is not None and instance.tasks
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            assert producer.state is State.FAILED
            assert not instance.tasks and instance.state is InstanceState.CLOSED
            await producer.close()
            assert producer.state is State.CLOSED
            cluster.on.clear()
            async with Producer("g", settings=settings) as other:
                await other.send(Message("T", b"x"))

    run(main())


@pytest.mark.proves("client:B-03")
@pytest.mark.parametrize("group", ["", "a b", "DEFAULT_PRODUCER", "x" * 121])
def test_illegal_groups_are_refused(group: str) -> None:
    with pytest.raises(InvalidNameError):
        Producer(group)


def test_arguments_override_settings() -> None:
    settings = ProducerSettings(namesrv="a:1", retries=5, compress_over=1)
    producer = Producer("g", namesrv="b:2", retries=0, settings=settings)
    assert (producer.settings.namesrv, producer.settings.retries) == ("b:2", 0)
    assert producer.settings.compress_over == 1
    with pytest.raises(SettingsError):
        Producer("g", send_timeout=-1)


def test_closing_waits_for_a_running_start_or_close() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            settings = ProducerSettings(namesrv=cluster.namesrv, topics=("T",))
            producer = Producer("g", settings=settings)
            starting = asyncio.create_task(producer.start())
            await asyncio.sleep(0)
            assert producer.state is State.STARTING
            await producer.close()
            assert (producer.state, starting.done()) == (State.CLOSED, True)

            producer = Producer("g", settings=settings)
            await producer.start()
            first = asyncio.create_task(producer.close())
            await asyncio.sleep(0)
            assert producer.state is State.CLOSING
            await producer.close()
            assert (producer.state, first.done()) == (State.CLOSED, True)

    run(main())
