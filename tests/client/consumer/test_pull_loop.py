"""Rules for every pull loop, of push consumers and of polling consumers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client import consuming, fake, pulling
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import about, run, until

from sparrowmq.client.base.hooks import PullLoopContext, PullLoopHook
from sparrowmq.client.consumer import min_age
from sparrowmq.client.consumer.process_queue import Limits, ProcessQueue
from sparrowmq.client.pull.pull_consumer import PullConsumer
from sparrowmq.client.send.in_flight import Gate
from sparrowmq.core.dynamic_settings import SettingPlace, SettingValue
from sparrowmq.core.errors import InvariantError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.connection import Connection

KINDS = ["push", "polls"]
CODES = {"push": int(RequestCode.PULL_MESSAGE), "polls": int(RequestCode.LITE_PULL_MESSAGE)}
UNKNOWN = [
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
]


class Reader:
    """A consumer of either kind, with the messages of topic T so far."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self.got: list[int] = []

    def note(self, message: Any) -> None:
        self.got.append(int(message.body))

    @property
    def held(self) -> list[Any]:
        """Its process queues of the topic."""
        member = self.consumer._member
        queues = member._user if isinstance(self.consumer, PullConsumer) else member.queues
        return [one for one in queues.process_queues() if one.queue.topic == "T"]

    @property
    def pulls(self) -> list[asyncio.Task[None]]:
        """The tasks that pull the topic."""
        member = self.consumer._member
        if isinstance(self.consumer, PullConsumer):
            return [held.task for held in member._user._queues.values()]
        return [task for held, task in member.queues._table.values() if held.queue.topic == "T"]

    def tell(self, *settings: SettingValue) -> None:
        """Give it dynamic settings."""
        self.consumer._member.apply_dynamic_settings(1, list(settings))


@asynccontextmanager
async def reader(kind: str, cluster: FakeCluster, **settings: Any) -> AsyncIterator[Reader]:
    if kind == "push":
        async with consuming.consumer_of(cluster, consume_from="first", **settings) as push:
            found = Reader(push)
            push.subscribe("T", handler=found.note)
            yield found
        return
    polls = PullConsumer("g", settings=pulling.quick(cluster, **settings))
    found = Reader(polls)
    polls.subscribe("T")
    await polls.start()

    async def poll() -> None:
        while True:
            for message in await polls.poll(1):
                found.note(message)

    polling = asyncio.ensure_future(poll())
    try:
        yield found
    finally:
        polling.cancel()
        await asyncio.wait([polling])
        await polls.close()


def flow(test: Callable[[FakeCluster], Awaitable[None]], messages: int = 0) -> None:
    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            pulling.store(cluster, messages)
            await test(cluster)

    run(main())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", UNKNOWN, ids=lambda code: code.name)
@pytest.mark.proves("client:D-30")
def test_broker_that_does_not_know_the_group_gets_a_heartbeat_and_the_pull_again_at_once(
    kind: str, code: ResponseCode, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(cluster: FakeCluster) -> None:
        forgot: list[int] = []

        def handle(conn: Connection, command: Command) -> Any:
            if not forgot:
                forgot.append(len(cluster.broker.heartbeats))
                return answer(code, remark="it is not known here")
            return cluster.broker.pull(conn, command)

        cluster.broker.on[CODES[kind]] = handle
        async with reader(kind, cluster, error_delay=3600.0, heartbeat_interval=3600.0) as one:
            await until(lambda: len(one.got) == 10)
            assert len(cluster.broker.heartbeats) > forgot[0], "it was told of us before it was asked again"

    caplog.set_level(logging.WARNING)
    flow(test, 10)
    assert "not known here" not in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_an_offset_that_was_reset_is_not_called_missing(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: FakeCluster) -> None:
        moved = answer(
            ResponseCode.PULL_OFFSET_MOVED,
            {
                "nextBeginOffset": "5",
                "minOffset": "0",
                "maxOffset": "10",
                "suggestWhichBrokerId": "0",
            },
            remark="OFFSET_RESET",
        )
        answers = iter([moved])

        def handle(conn: Connection, command: Command) -> Any:
            return next(answers, None) or cluster.broker.pull(conn, command)

        cluster.broker.on[CODES[kind]] = handle
        async with reader(kind, cluster) as one:
            await until(lambda: len(one.got) == 5)
            assert one.got == [5, 6, 7, 8, 9]

    caplog.set_level(logging.WARNING)
    flow(test, 10)
    assert "the group's offset of T/broker-a/0 was reset from 0 to 5" in caplog.text
    assert "is not stored" not in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_broker_that_never_knows_the_group_is_logged_and_pulled_rarely(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[CODES[kind]] = lambda conn, c: answer(24, remark="it is not known here")
        async with reader(kind, cluster, error_delay=3600.0) as one:
            await until(lambda: "not known here" in caplog.text)
            assert one.got == []
            asked = [c for c in cluster.broker.requests(CODES[kind]) if c.ext["topic"] == "T"]
            assert len(asked) == 2

    caplog.set_level(logging.WARNING)
    flow(test, 10)


@pytest.mark.parametrize("kind", KINDS)
def test_revoked_queue_with_too_young_messages_skips_none_of_them(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message is being processed then, but no received message may be skipped."""
    monkeypatch.setattr(min_age, "STEP_SECONDS", 0.005)

    monkeypatch.setattr(fake, "NOW_MS", int(time.time() * 1000) + 3_600_000)

    async def test(cluster: FakeCluster) -> None:
        async with reader(kind, cluster) as one:
            await until(lambda: one.held)
            one.tell(SettingValue("delay", SettingPlace("T"), 60.0))
            pulling.store(cluster, 3)
            await until(lambda: one.held and one.held[0].broker_max_offset == 3)
            (held,), (pull,) = one.held, one.pulls
            held.leave()
            await asyncio.wait([pull], timeout=20)
            assert (held.next_offset, one.got) == (0, [])
        assert not cluster.broker.offsets.get(("g", "T", 0))

    flow(test)


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_see_the_pull_of_a_queue_that_is_given_up_meanwhile(kind: str) -> None:
    told: list[PullLoopContext] = []

    class Watching(PullLoopHook):
        def after_pull(self, context: PullLoopContext) -> None:
            if context.queue.topic == "T":
                told.append(context)

    async def test(cluster: FakeCluster) -> None:
        go_on, asked = asyncio.Event(), asyncio.Event()

        async def handle(conn: Connection, command: Command) -> Any:
            if command.ext["topic"] == "T":
                asked.set()
                await go_on.wait()
            return await cluster.broker.pull(conn, command)

        cluster.broker.on[CODES[kind]] = handle
        async with reader(kind, cluster, hooks=[Watching()]) as one:
            await until(asked.is_set)
            (held,), (pull,) = one.held, one.pulls
            held.leave()
            go_on.set()
            await asyncio.wait([pull], timeout=20)
            assert [(context.messages, context.error) for context in told] == [(0, None)]

    flow(test, 10)


@pytest.mark.parametrize("kind", KINDS)
def test_pulls_pause_while_no_handler_may_start(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrowmq.client.consumer.pull_loop._REST_SECONDS", 0.005)
    may = [True]
    monkeypatch.setattr(
        "sparrowmq.client.consumer.process_queue.ProcessQueue.may_start",
        lambda held: may[0] and not held.leaving,
    )

    async def test(cluster: FakeCluster) -> None:
        code = CODES[kind]
        async with reader(kind, cluster, pull_hold=0.01) as one:
            await until(lambda: len(one.got) == 5)
            may[0] = False
            await asyncio.sleep(0.1)
            asked = len([c for c in cluster.broker.requests(code) if c.ext["topic"] == "T"])
            pulling.store(cluster, 5)
            await asyncio.sleep(0.1)
            assert len([c for c in cluster.broker.requests(code) if c.ext["topic"] == "T"]) == asked
            assert len(one.got) == 5
            may[0] = True
            await until(lambda: len(one.got) == 10)

    flow(test, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_chunk_beyond_its_end_is_not_delivered_and_pulled_again(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(cluster: FakeCluster) -> None:
        lies = [3]

        async def handle(conn: Connection, command: Command) -> Command:
            reply = await cluster.broker.pull(conn, command)
            if lies[0] and command.ext["topic"] == "T" and reply.body:
                lies[0] -= 1
                return answer(0, {**reply.ext, "nextBeginOffset": "2"}, reply.body)
            return reply

        cluster.broker.on[CODES[kind]] = handle
        async with reader(kind, cluster) as one:
            await until(lambda: len(one.got) == 5)
            assert (lies, one.got) == ([0], [0, 1, 2, 3, 4]), "each once, in order"

    caplog.set_level(logging.WARNING)
    flow(test, 5)
    assert "returned offsets 0 to 4, but 2 as the next one" in caplog.text


def test_counters_do_not_become_negative() -> None:
    held = ProcessQueue(MessageQueue("T", "b", 0), 0, Limits())
    with pytest.raises(InvariantError, check=about(what="handler", value=held.queue)):
        held.ended()
    assert held.running == 0
    gate = Gate(2, 100)
    assert gate.try_enter(40)
    for size in (41, 100):
        with pytest.raises(InvariantError, check=about(value=size, limit=40)):
            gate.leave(size)
    gate.leave(40)
    with pytest.raises(InvariantError, check=about(value=0, limit=0)):
        gate.leave(0)
    assert (gate.count, gate.bytes) == (0, 0)
