"""Missing name servers, brokers that restart, handlers that raise or hang: clients say so and recover."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Sparrow
from tests.crash.faults import TOPIC, Place, create, stored
from tests.support import free_port, run, until

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import (
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
    SparrowError,
    TransportError,
)
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.nameserver.server import NameServer
from sparrowmq.runtime.servers import LocalServers
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.crash

QUICK = {"rebalance_interval_min": 0.02, "error_delay": 0.02, "redeliver_delay": 0.05, "route_interval": 0.1}
"""Waits between tries, as short as they may be."""


def quick(**changes: Any) -> aio.ConsumerSettings:
    return aio.ConsumerSettings(consume_from="first", **(QUICK | changes))


async def name_server(port: int) -> NameServer:
    server = NameServer(host="127.0.0.1", port=port, clock=SystemClock(), kv_path=None)
    await server.start()
    return server


# Name servers


async def every_call(namesrv: str, *, listing: bool = True) -> dict[str, TransportError]:
    """What each kind of client raises when its name server does not answer."""
    raised: dict[str, TransportError] = {}

    async def note(name: str, work: Awaitable[object]) -> None:
        with pytest.raises(TransportError) as caught:
            await work
        raised[name] = caught.value

    async with aio.Producer("p", namesrv=namesrv, send_timeout=0.5) as producer:
        await note("send", producer.send(aio.Message("T", b"x")))
        await note("oneway", producer.send_oneway(aio.Message("T", b"x")))
        await note("batch", producer.send_batch([aio.Message("T", b"x")]))
    settings = aio.ClientSettings(namesrv=namesrv, request_timeout=0.5)
    async with aio.PullConsumer(settings=settings) as consumer:
        await note("queues", consumer.queues("T"))
    async with aio.Admin(settings=settings) as admin:
        if listing:
            await note("list", admin.topics.list())
    push = aio.PushConsumer("g", namesrv=namesrv, settings=quick(request_timeout=0.5))
    push.subscribe("T", handler=print)
    await note("push", push.start())
    await push.close()
    return raised


def test_a_name_server_that_is_not_there_is_named_with_the_next_step() -> None:
    address = f"127.0.0.1:{free_port()}"
    raised = run(every_call(address))
    with mq.Producer("p", namesrv=address) as producer, pytest.raises(ConnectError) as caught:
        producer.send(mq.Message("T", b"x"))
    raised["sync"] = caught.value
    assert {type(error) for error in raised.values()} == {ConnectError}
    (text,) = {str(error) for error in raised.values()}
    assert text == (
        f"the name server did not answer: no connection to {address}: Connection refused; "
        "is it running there? Start one (`sparrow up`), or give its address (namesrv, SPARROW_NAMESRV)"
    )
    for arguments in (("send", "T", "x"), ("topic", "list"), ("consume", "T"), ("cluster", "list")):
        outcome = Sparrow(address)(*arguments, status=1)
        assert outcome.err == f"sparrow: {text}\n"


def test_of_several_missing_name_servers_all_are_named() -> None:
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    raised = run(every_call(";".join(addresses)))
    for error in raised.values():
        assert str(error).startswith(f"none of the name servers {'; '.join(addresses)} answered: ")


def test_a_name_server_that_is_silent_or_something_else_is_named() -> None:
    async def main() -> None:
        done = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await done.wait()
            writer.close()

        async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        for kind, error_type, text in (
            (silent, RequestTimeoutError, ""),
            (web, ConnectionLostError, "an HTTP answer arrived where RocketMQ's remoting protocol is spoken"),
        ):
            async with await asyncio.start_server(kind, "127.0.0.1", 0) as server:
                address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
                for error in (await every_call(address, listing=kind is web)).values():
                    assert isinstance(error, error_type)
                    assert address in str(error) and "name server" in str(error) and text in str(error)
                done.set()

    run(main())


def test_clients_go_on_when_their_name_server_appears() -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"

    async def main(data: Path) -> None:
        async with (
            aio.Producer("p", namesrv=address) as producer,
            aio.PullConsumer(namesrv=address) as consumer,
        ):
            with pytest.raises(ConnectError):
                await producer.send(aio.Message(TOPIC, b"x"))
            names = await name_server(port)
            settings = BrokerSettings(listen_port=0, store_path_root_dir=data, namesrv_addr=address)
            servers = LocalServers(None, settings)
            await servers.start()
            assert (await producer.send(aio.Message(TOPIC, b"x"))).queue_offset == 0

            async def readable() -> bool:
                try:
                    return bool(await consumer.queues(TOPIC))
                except SparrowError:
                    return False

            await until(readable)
            await servers.close()
            await names.close()

    with LocalCluster() as other:  # only for its directory
        run(main(other.data.parent / f"{other.data.name}-second"))


def test_a_broker_without_its_name_server_says_so_once_and_registers_when_it_appears(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"

    def told(text: str) -> int:
        return sum(address in line and text in line for line in caplog.messages)

    async def main() -> None:
        settings = BrokerSettings(
            listen_port=0,
            store_path_root_dir=tmp_path,
            namesrv_addr=address,
            register_name_server_period=10_000,
        )
        servers = LocalServers(None, settings)
        await servers.start()
        try:
            await until(lambda: told("cannot register at name server") == 1)
            names = await name_server(port)
            assert servers.broker is not None
            servers.broker.parts.registration.changed_soon()  # as its period would
            await until(lambda: told("registered at name server 127") == 1)
            async with aio.Producer("p", namesrv=address) as producer:
                assert (await producer.send(aio.Message(TOPIC, b"x"))).queue_offset == 0
            await names.close()
            servers.broker.parts.registration.changed_soon()
            await until(lambda: told("cannot register at name server") == 2)
        finally:
            await servers.close()

    with caplog.at_level(logging.INFO, logger="sparrowmq.broker"):
        run(main())
    line = next(line for line in caplog.messages if "cannot register at name server" in line)
    assert "clients find no routes there. Retrying every 2 s" in line


def test_known_routes_outlive_their_name_server(tmp_path: Path) -> None:
    """Producers and consumers that run go on without it, and with it once it is back."""

    async def main() -> None:
        port = free_port()
        address = f"127.0.0.1:{port}"
        names = await name_server(port)
        settings = BrokerSettings(listen_port=0, store_path_root_dir=tmp_path, namesrv_addr=address)
        servers = LocalServers(None, settings)
        await servers.start()
        await create(address)
        got = list[bytes]()
        consumer = aio.PushConsumer("g", namesrv=address, settings=quick())
        consumer.subscribe(TOPIC, handler=lambda message: got.append(message.body))
        async with consumer, aio.Producer("p", namesrv=address) as producer:
            await producer.send(aio.Message(TOPIC, b"before"))
            await until(lambda: got == [b"before"])
            await names.close()
            for number in range(20):
                await producer.send(aio.Message(TOPIC, b"%d" % number))
            await until(lambda: len(got) == 21)
            with pytest.raises(TransportError):
                await producer.send(aio.Message("Unheard-of", b"x"))
            names = await name_server(port)
            assert servers.broker is not None
            servers.broker.parts.registration.changed_soon()
            async with aio.PullConsumer(namesrv=address) as fresh:

                async def found() -> bool:
                    try:
                        return bool(await fresh.queues(TOPIC))
                    except SparrowError:
                        return False

                await until(found)
            await producer.send(aio.Message("Heard-of", b"x"))
        await servers.close()
        await names.close()

    run(main())


# Brokers


class Traffic:
    """A producer that sends all the time, and a consumer; what was acknowledged and what came."""

    def __init__(self) -> None:
        self.acknowledged: list[bytes] = []
        self.got: list[bytes] = []
        self.errors: list[SparrowError] = []
        self.stop = False

    async def send(self, producer: aio.Producer) -> None:
        number = 0
        while not self.stop:
            body = b"%08d" % number
            number += 1
            try:
                await producer.send(aio.Message(TOPIC, body), timeout=1)
                self.acknowledged.append(body)
            except SparrowError as error:
                self.errors.append(error)
                await asyncio.sleep(0)

    async def more(self) -> None:
        """Both go on: messages sent from now on are acknowledged and come."""
        sent, seen = len(self.acknowledged), len(self.got)
        await until(lambda: len(self.acknowledged) > sent + 20 and len(self.got) > seen + 20)


async def traffic_through(namesrv: str, fault: Callable[[Traffic], Awaitable[None]]) -> Traffic:
    traffic = Traffic()
    consumer = aio.PushConsumer("readers", namesrv=namesrv, settings=quick())
    consumer.subscribe(TOPIC, handler=lambda message: traffic.got.append(message.body))
    async with consumer, aio.Producer("p", namesrv=namesrv) as producer:
        sending = asyncio.create_task(traffic.send(producer))
        await traffic.more()
        await fault(traffic)
        await traffic.more()
        traffic.stop = True
        await sending
        await until(lambda: set(traffic.acknowledged) <= set(traffic.got))
        assert consumer.failure is None
        assert consumer.state is aio.State.RUNNING
    return traffic


def test_traffic_survives_clean_restarts_of_its_broker() -> None:
    with LocalCluster() as cluster:
        cluster.create_topic(TOPIC, queues=4)

        async def restart(traffic: Traffic) -> None:
            for _ in range(3):
                await asyncio.to_thread(cluster.restart_broker)
                await traffic.more()

        traffic = run(traffic_through(cluster.namesrv, restart))
        bodies = [entry[3] for entry in run(stored(cluster.namesrv))]
        assert set(traffic.acknowledged) <= set(bodies)


def test_traffic_survives_kill_9_of_broker_and_name_server(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    place = Place(tmp_path / "place", settings={"listenPort": str(ports[0])})

    def servers() -> Any:
        made = place.servers()
        made.nameserver = {"listenPort": str(ports[1])}
        return made

    running = servers()
    running.start()
    try:
        run(create(running.nameserver_address, queues=4))

        async def kill(traffic: Traffic) -> None:
            nonlocal running
            for _ in range(2):
                running.kill()
                failed = len(traffic.errors)
                await until(lambda failed=failed: len(traffic.errors) > failed)
                running = servers()
                await asyncio.to_thread(running.start)
                await traffic.more()

        traffic = run(traffic_through(running.nameserver_address, kill))
        bodies = [entry[3] for entry in run(stored(running.nameserver_address))]
        assert set(traffic.acknowledged) <= set(bodies)
        address = f"127.0.0.1:{ports[0]}"
        texts = {str(error) for error in traffic.errors}
        assert all(address in text or str(ports[1]) in text or "broker-a" in text for text in texts), texts
    finally:
        running.kill()


# Handlers


class Misfit(Exception):
    """What a faulty handler raises."""


@pytest.fixture(scope="module")
def cluster() -> Any:
    with LocalCluster(message_delay_level=" ".join(["1s"] * 18)) as running:  # retries come soon
        yield running


async def send_numbers(namesrv: str, topic: str, count: int) -> None:
    await create(namesrv, topic)
    async with aio.Producer("p", namesrv=namesrv) as producer:
        for number in range(count):
            await producer.send(aio.Message(topic, b"%d" % number))


@pytest.mark.parametrize(
    ("kind", "is_async"),
    [
        (Misfit, False),
        (SystemExit, False),
        (KeyboardInterrupt, False),
        (asyncio.CancelledError, False),
        (Misfit, True),
        (asyncio.CancelledError, True),
    ],
)
def test_a_message_whose_handler_raises_is_redelivered_and_blocks_no_other(
    cluster: LocalCluster, kind: type[BaseException], is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"Raising-{kind.__name__}-{is_async}"
    calls: dict[bytes, int] = {}

    def handle(message: aio.ReceivedMessage) -> None:
        calls[message.body] = calls.get(message.body, 0) + 1
        if message.body == b"5" and calls[b"5"] < 3:
            raise kind("cannot digest it")

    async def handle_async(message: aio.ReceivedMessage) -> None:
        handle(message)

    async def main() -> None:
        await send_numbers(cluster.namesrv, topic, 20)
        consumer = aio.PushConsumer(topic, namesrv=cluster.namesrv, settings=quick())
        consumer.subscribe(topic, handler=handle_async if is_async else handle)
        async with consumer:
            await until(lambda: len(calls) == 20 and calls[b"5"] == 3)
            assert consumer.state is aio.State.RUNNING
            await until(lambda: not sum(consumer.lag.values()))
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            progress = await admin.groups.progress(topic, topic)
            assert [queue.consumer_offset for queue in progress] == [20]

    with caplog.at_level(logging.WARNING, logger="sparrowmq.client"):
        run(main())
    (line,) = [text for text in caplog.messages if text.startswith(f"the handler of {topic}")]
    assert re.search(
        rf"in group {topic} failed for message \w{{32}} \({topic}/broker-a/0 at offset 5\)", line
    )
    assert "it goes to retry" in line


def test_a_message_whose_handler_always_raises_is_not_lost(cluster: LocalCluster) -> None:
    """It goes to the group's retry topic: the next consumer of the group gets it again."""

    async def consume(handler: Callable[[Any], None], done: Callable[[], bool]) -> None:
        consumer = aio.PushConsumer("Stubborn", namesrv=cluster.namesrv, settings=quick())
        consumer.subscribe("Stubborn", handler=handler)
        async with consumer:
            await until(done)

    seen, again = list[bytes](), list[bytes]()

    def refuse(message: aio.ReceivedMessage) -> None:
        seen.append(message.body)
        if message.body == b"0":
            raise Misfit

    run(send_numbers(cluster.namesrv, "Stubborn", 5))
    run(consume(refuse, lambda: seen.count(b"0") >= 3 and len(set(seen)) == 5))
    run(consume(lambda message: again.append(message.body), lambda: b"0" in again))


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_handler_that_hangs_holds_up_neither_others_nor_the_end(
    cluster: LocalCluster, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"Hanging-{is_async}"
    release = threading.Event()
    done = set[bytes]()

    def handle(message: aio.ReceivedMessage) -> None:
        if message.body == b"3" and not release.wait(60):
            return
        done.add(message.body)

    async def handle_async(message: aio.ReceivedMessage) -> None:
        if message.body == b"3" and not release.is_set():
            await asyncio.sleep(60)
        done.add(message.body)

    async def main() -> None:
        await send_numbers(cluster.namesrv, topic, 20)
        settings = quick(close_timeout=0.1, threads=2)
        consumer = aio.PushConsumer(topic, namesrv=cluster.namesrv, settings=settings)
        consumer.subscribe(topic, handler=handle_async if is_async else handle)
        async with consumer:
            await until(lambda: len(done) == 19)
        assert b"3" not in done
        release.set()
        again = aio.PushConsumer(topic, namesrv=cluster.namesrv, settings=quick())
        again.subscribe(topic, handler=handle_async if is_async else handle)
        async with again:
            await until(lambda: len(done) == 20)

    with caplog.at_level(logging.WARNING, logger="sparrowmq.client"):
        run(main())
    (line,) = [text for text in caplog.messages if "were still running" in text]
    assert re.search(rf"handlers of group {topic} were still running 0\.\d+ s after close", line)
    assert "the messages will be delivered again" in line
