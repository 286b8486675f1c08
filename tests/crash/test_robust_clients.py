"""What users report of clients elsewhere: idle restarts, dead lines, handlers, forks, exits, busy brokers.

`test_faults_clients` has restarts under traffic, name servers that are gone, handlers that raise or hang.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.crash.faults import create
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.core.errors import BrokerError, SparrowError
from sparrowmq.core.route import BrokerData
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.testing import LocalCluster
from sparrowmq.transport import client_connection
from sparrowmq.transport.connection import Connection

pytestmark = pytest.mark.crash

SEND = RequestCode.SEND_MESSAGE_V2
PULL = RequestCode.PULL_MESSAGE
QUICK = {"rebalance_interval_min": 0.02, "error_delay": 0.02, "redeliver_delay": 0.05, "route_interval": 0.1}


def quick(**changes: Any) -> aio.ConsumerSettings:
    return aio.ConsumerSettings(consume_from="first", **(QUICK | changes))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(message_delay_level=" ".join(["1s"] * 18)) as running:  # retries come soon
        yield running


# Brokers


def test_clients_that_did_nothing_while_their_broker_restarted_go_on() -> None:
    async def main(cluster: LocalCluster) -> None:
        got = list[bytes]()
        await create(cluster.namesrv, "T")
        consumer = aio.PushConsumer("g", namesrv=cluster.namesrv, settings=quick())
        consumer.subscribe("T", handler=lambda message: got.append(message.body))
        puller = aio.PullConsumer(namesrv=cluster.namesrv)
        async with consumer, puller, aio.Producer("p", namesrv=cluster.namesrv) as producer:
            await producer.send(aio.Message("T", b"before"))
            await until(lambda: got == [b"before"])
            for number in range(2):
                await asyncio.to_thread(cluster.restart_broker)
                await producer.send(aio.Message("T", b"%d" % number))
                await until(lambda number=number: got[-1] == b"%d" % number)
            (queue,) = await puller.queues("T")
            assert await puller.max_offset(queue) == 3
        assert got == [b"before", b"0", b"1"]

    with LocalCluster() as cluster:
        run(main(cluster))


class Line:
    """A way to a server that can die without a word: what was connected stays so and carries nothing more."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._carries = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""
        self.made = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Line]:
        """Accept connections on a port of its own."""
        self._carries.set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def die(self) -> None:
        """Connections of now carry nothing any more, in neither direction; new ones work."""
        self._carries.clear()
        self._carries = asyncio.Event()
        self._carries.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        carries = self._carries
        there, back = await asyncio.open_connection(*self._target)
        ways = ((reader, back, carries), (there, writer, carries))
        tasks = [asyncio.create_task(self._carry(*way)) for way in ways]
        self._tasks.update(tasks)
        for task in tasks:
            task.add_done_callback(self._tasks.discard)

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, carries: asyncio.Event
    ) -> None:
        try:
            while data := await source.read(65536):
                await carries.wait()
                target.write(data)
                await target.drain()
        except ConnectionError:
            pass
        finally:
            target.close()


def test_a_half_open_connection_is_noticed_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other end is gone and nobody said so: a machine lost power, a firewall forgot the connection."""
    monkeypatch.setattr(client_connection, "SILENCE_SECONDS_MAX", 0.2)

    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            host, _, port = cluster.broker.server.address.partition(":")
            async with Line(host, int(port)).open() as line:
                monkeypatch.setattr(
                    cluster, "_broker_data", lambda name: BrokerData("C", name, {0: line.address})
                )
                await send_and_consume_over(cluster, line)

    run(main())


async def send_and_consume_over(cluster: FakeCluster, line: Line) -> None:
    got, times = list[bytes](), {"request_timeout": 0.3, "heartbeat_interval": 0.1}
    settings = quick(**times, namesrv=cluster.namesrv, pull_hold=0.1, pull_timeout=0.6)
    consumer = aio.PushConsumer("g", settings=settings)
    consumer.subscribe("T", handler=lambda message: got.append(message.body))
    producer = aio.Producer("p", settings=aio.ProducerSettings(namesrv=cluster.namesrv, send_timeout=0.5))
    async with consumer, producer:
        for number in range(3):
            body = b"%d" % number

            async def sent(body: bytes = body) -> bool:
                try:
                    await producer.send(aio.Message("T", body))
                except SparrowError:
                    return False
                return True

            await until(sent)
            await until(lambda body=body: body in got)
            made = line.made
            line.die()
        await until(lambda: line.made > made)  # the consumer noticed again, though nothing was sent
        assert consumer.state is aio.State.RUNNING
    assert list(dict.fromkeys(got)) == [b"0", b"1", b"2"]


# A broker that throttles


def busy(times: int, code: int, calls: list[float], otherwise: Any) -> Any:
    """Answer the first `times` requests of each queue with `code`, note when they came."""
    seen = Counter[str]()

    def handle(connection: Connection, command: Command) -> Any:
        queue = command.ext.get("queueId") or command.ext.get("e", "")
        seen[queue] += 1
        calls.append(time.monotonic())
        if seen[queue] <= times:
            return answer(code, remark="[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while")
        return otherwise(connection, command)

    return handle


def test_sends_that_a_busy_broker_refuses_are_tried_again_and_then_reported() -> None:
    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            calls = list[float]()
            cluster.broker.on[SEND] = busy(2, ResponseCode.SYSTEM_BUSY, calls, cluster.broker.send)
            async with aio.Producer("p", namesrv=cluster.namesrv) as producer:
                assert (await producer.send(aio.Message("T", b"x"))).queue_offset == 0
                assert len(calls) == 3
                cluster.broker.on[SEND] = busy(99, ResponseCode.SYSTEM_BUSY, calls, cluster.broker.send)
                with pytest.raises(BrokerError, match=r"answer 2 .*broker busy") as caught:
                    await producer.send(aio.Message("T", b"y"))
                assert caught.value.code == ResponseCode.SYSTEM_BUSY
                assert "tried 3 times" in caught.value.__notes__[0]
                assert len(calls) == 6  # no storm
                cluster.broker.on.clear()
                assert (await producer.send(aio.Message("T", b"z"))).queue_offset == 1

    run(main())


@pytest.mark.parametrize(
    ("code", "rest"), [(ResponseCode.SYSTEM_BUSY, 0.05), (ResponseCode.FLOW_CONTROL, 0.02)]
)
def test_pulls_refused_by_a_busy_broker_are_repeated_after_a_delay(code: int, rest: float) -> None:
    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            calls, got = list[float](), list[bytes]()
            cluster.broker.store("T", 0, b"x")
            pull = cluster.broker.pull
            throttled = busy(5, code, calls, pull)
            cluster.broker.on[PULL] = lambda connection, command: (
                throttled if command.ext["topic"] == "T" else pull
            )(connection, command)
            settings = quick(namesrv=cluster.namesrv, error_delay=0.05)
            consumer = aio.PushConsumer("g", settings=settings)
            consumer.subscribe("T", handler=lambda message: got.append(message.body))
            async with consumer:
                await until(lambda: got == [b"x"])
                assert consumer.state is aio.State.RUNNING
            gaps = [after - before for before, after in pairwise(calls[:6])]
            assert min(gaps) >= rest * 0.9

    run(main())


# Handlers


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_slow_handler_bounds_its_own_messages_only(cluster: LocalCluster, is_async: bool) -> None:
    topics = [f"Slow-{is_async}", f"Swift-{is_async}"]
    release, got = threading.Event(), Counter[bytes]()
    swift = list[bytes]()

    def slow(message: aio.ReceivedMessage) -> None:
        release.wait(60)
        got[message.body] += 1

    async def slow_async(message: aio.ReceivedMessage) -> None:
        await asyncio.to_thread(release.wait, 60)
        got[message.body] += 1

    async def main() -> None:
        await create(cluster.namesrv, topics[0])
        await create(cluster.namesrv, topics[1])
        settings = quick(queue_messages_max=20, heartbeat_interval=0.1, threads=4)
        consumer = aio.PushConsumer(topics[0], namesrv=cluster.namesrv, settings=settings)
        consumer.subscribe(topics[0], handler=slow_async if is_async else slow)
        others = aio.PushConsumer(topics[1], namesrv=cluster.namesrv, settings=quick())
        others.subscribe(topics[1], handler=lambda message: swift.append(message.body))
        async with consumer, others, aio.Producer("p", namesrv=cluster.namesrv) as producer:
            bodies = [b"%d" % number for number in range(300)]
            for topic in topics:
                for at in range(0, 300, 100):
                    await producer.send_batch([aio.Message(topic, body) for body in bodies[at : at + 100]])
            await until(lambda: len(swift) == 300)

            def cached() -> int:
                return sum(one.cached_msg_count for one in consumer.running_info().queues.values())

            await until(lambda: cached() >= 20)
            assert cached() <= 20 + 32 + 4, "one pull may overrun the limit, and what is handled"
            queues = list(consumer.assignment)
            release.set()
            await until(lambda: len(got) == 300)
            assert consumer.assignment == queues
        assert set(got.values()) == {1}

    run(main())


class Hostile:
    """A value that hates to be looked at."""

    def __eq__(self, other: object) -> bool:
        raise ArithmeticError

    def __bool__(self) -> bool:
        raise ArithmeticError

    __hash__ = None


NONSENSE = (0, False, "RECONSUME_LATER", [], {"a": 1}, b"", object(), Hostile(), ValueError("returned"))


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_whatever_a_handler_returns_its_message_is_done(
    cluster: LocalCluster, is_async: bool, ordered: bool
) -> None:
    topic, got = f"Nonsense-{is_async}-{ordered}", list[bytes]()

    def handle(message: aio.ReceivedMessage) -> Any:
        got.append(message.body)
        return NONSENSE[int(message.body)]

    async def handle_async(message: aio.ReceivedMessage) -> Any:
        return handle(message)

    async def main() -> None:
        await create(cluster.namesrv, topic)
        settings = quick(ordered=ordered)
        consumer = aio.PushConsumer(topic, namesrv=cluster.namesrv, settings=settings)
        consumer.subscribe(topic, handler=handle_async if is_async else handle)
        async with consumer, aio.Producer("p", namesrv=cluster.namesrv) as producer:
            for number in range(len(NONSENSE)):
                await producer.send(aio.Message(topic, b"%d" % number))
            await until(lambda: len(got) == len(NONSENSE))
            await until(lambda: not sum(consumer.lag.values()))
            assert consumer.state is aio.State.RUNNING
        assert sorted(got) == [b"%d" % number for number in range(len(NONSENSE))]

    run(main())


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_what_a_handler_returned_without_running_it_comes_again(cluster: LocalCluster, ordered: bool) -> None:
    topic, calls = f"Unfinished-{ordered}", list[int]()

    async def work() -> None:
        raise AssertionError("nobody runs it")

    def handle(message: aio.ReceivedMessage) -> Any:
        calls.append(message.reconsume_times)
        return (work, lambda: (n for n in ()), lambda: None)[len(calls) - 1]()

    async def main() -> None:
        await create(cluster.namesrv, topic)
        settings = quick(ordered=ordered, suspend_time=0.02)
        consumer = aio.PushConsumer(topic, namesrv=cluster.namesrv, settings=settings)
        consumer.subscribe(topic, handler=handle)
        async with consumer, aio.Producer("p", namesrv=cluster.namesrv) as producer:
            await producer.send(aio.Message(topic, b"x"))
            await until(lambda: len(calls) == 3)
            await until(lambda: not sum(consumer.lag.values()))

    run(main())


# Processes


def script(cluster: LocalCluster, source: str, warnings: str = "error") -> str:
    """What a program printed; it must end by itself, well and without a word on standard error."""
    done = subprocess.run(
        [sys.executable, "-W", warnings, "-c", textwrap.dedent(source), cluster.namesrv],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_after_a_fork_the_parents_objects_say_so_and_the_parent_goes_on(cluster: LocalCluster) -> None:
    cluster.create_topic("Forked", 1)
    said = script(
        cluster,
        """
        import os, sys
        import sparrowmq as mq

        producer = mq.Producer("p", namesrv=sys.argv[1])
        consumer = mq.PushConsumer("Forked", namesrv=sys.argv[1], consume_from="first")
        consumer.subscribe("Forked")
        admin = mq.Admin(namesrv=sys.argv[1])
        for each in (producer, consumer, admin):
            each.start()
        producer.send(mq.Message("Forked", b"parent"))
        messages = iter(consumer)
        message = next(messages)
        child = os.fork()
        if child == 0:
            uses = (
                lambda: producer.send(mq.Message("Forked", b"x")), lambda: next(iter(consumer)), message.ack,
                admin.topics.list, consumer.wait, producer.close,
            )
            for use in uses:
                try:
                    use()
                    print("no error")
                except mq.InvalidStateError as error:
                    print("another process" in str(error), end=" ")
            with mq.Producer("q", namesrv=sys.argv[1]) as own:
                print(own.send(mq.Message("Forked", b"child")).queue_offset, flush=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print(message.ack(), producer.send(mq.Message("Forked", b"parent")).queue_offset)
        for each in (producer, consumer, admin):
            each.close()
        """,
    )
    assert said == f"{'True ' * 6}1\nTrue 2\n"


def test_after_a_fork_asyncios_objects_say_so_as_well(cluster: LocalCluster) -> None:
    cluster.create_topic("ForkedAsync", 1)
    said = script(
        cluster,
        """
        import asyncio, os, sys
        import sparrowmq as mq
        from sparrowmq import aio

        async def child(*uses):
            for use in uses:
                try:
                    await use()
                    print("no error")
                except mq.InvalidStateError as error:
                    print("another process" in str(error), end=" ")
            async with aio.Producer("q", namesrv=sys.argv[1]) as own:
                print((await own.send(mq.Message("ForkedAsync", b"child"))).queue_offset, flush=True)

        async def main():
            consumer = aio.PushConsumer("ForkedAsync", namesrv=sys.argv[1], consume_from="first")
            consumer.subscribe("ForkedAsync")
            async with aio.Producer("p", namesrv=sys.argv[1]) as producer, consumer:
                send = lambda: producer.send(mq.Message("ForkedAsync", b"parent"))
                await send()
                iterator = aiter(consumer)
                message = await anext(iterator)
                pid = os.fork()
                if pid == 0:
                    asyncio.run(child(send, message.ack, consumer.wait, producer.start))
                    os._exit(0)
                status = await asyncio.to_thread(os.waitpid, pid, 0)
                assert os.waitstatus_to_exitcode(status[1]) == 0
                print(await message.ack(), (await send()).queue_offset)

        asyncio.run(main())
        """,
    )
    assert said == f"{'True ' * 4}1\nTrue 2\n"


def test_the_interpreter_exits_though_nothing_was_closed(cluster: LocalCluster) -> None:
    cluster.create_topic("Unclosed", 4)
    said = script(
        cluster,
        """
        import sys, threading
        import sparrowmq as mq

        running = threading.Event()

        def hang(message):
            running.set()
            threading.Event().wait()

        producer = mq.Producer("p", namesrv=sys.argv[1])
        producer.start()
        settings = mq.ConsumerSettings(namesrv=sys.argv[1], consume_from="first")
        consumers = [mq.PushConsumer(f"Unclosed-{n}", settings=settings) for n in (1, 2)]
        for consumer, handler in zip(consumers, (hang, None)):
            consumer.subscribe("Unclosed", handler=handler)
            consumer.start()
        for _ in range(8):
            producer.send(mq.Message("Unclosed", b"x"))
        held = next(iter(consumers[1]))
        assert running.wait(20)
        future = producer.send_async(mq.Message("Unclosed", b"last"))
        print("last line")
        """,
    )
    assert said == "last line\n"


def test_asyncios_loop_ends_though_nothing_was_closed(cluster: LocalCluster) -> None:
    cluster.create_topic("UnclosedAsync", 4)
    said = script(
        cluster,
        """
        import asyncio, sys
        import sparrowmq as mq
        from sparrowmq import aio

        async def main():
            running = asyncio.Event()

            async def hang(message):
                running.set()
                await asyncio.Event().wait()

            producer = aio.Producer("p", namesrv=sys.argv[1])
            await producer.start()
            consumer = aio.PushConsumer("UnclosedAsync", namesrv=sys.argv[1], consume_from="first")
            consumer.subscribe("UnclosedAsync", handler=hang)
            await consumer.start()
            await producer.send(mq.Message("UnclosedAsync", b"x"))
            await running.wait()
            print("last line")

        asyncio.run(main())
        """,
        "ignore::ResourceWarning",  # asyncio's word for sockets that nobody closed
    )
    assert said == "last line\n"
