"""Hooks around handlers, and hooks that filter messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.consuming import SEND_BACK, committed, consumer_of, flow
from tests.client.fake import FakeCluster, answer
from tests.support import until

from sparrowmq.client.base.hooks import ConsumeContext, ConsumeHook, FilterMessageContext, FilterMessageHook
from sparrowmq.core.message import ReceivedMessage


class Notes(ConsumeHook):
    """Records every call, and fails on request."""

    def __init__(self, *, broken: bool = False) -> None:
        self.begun: list[ConsumeContext] = []
        self.ended: list[tuple[bool, str, str]] = []
        self.broken = broken

    def before_consume(self, context: ConsumeContext) -> None:
        self.begun.append(context)
        if self.broken:
            raise ValueError("a hook")

    def after_consume(self, context: ConsumeContext) -> None:
        self.ended.append((context.success, context.status, context.properties["ConsumeContextType"]))


@pytest.mark.proves("client:D-91", "client:D-92")
@pytest.mark.parametrize("kind", ["plain", "async", "iterating"])
@pytest.mark.parametrize("ordered", [False, True])
def test_hooks_see_every_call_and_their_errors_change_nothing(kind: str, ordered: bool) -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        hook, broken = Notes(), Notes(broken=True)

        def handle(message: ReceivedMessage) -> None:
            if message.body == b"1" and not message.reconsume_times:
                raise ValueError("bad")

        async def handle_async(message: ReceivedMessage) -> None:
            handle(message)

        more: dict[str, Any] = {"hooks": (broken, hook), "ordered": ordered, "suspend_time": 0.01}
        async with consumer_of(cluster, **more) as consumer:
            if kind == "iterating":
                consumer.subscribe("T")

                async def settle() -> None:
                    async for message in consumer:
                        failed = message.body == b"1" and not message.reconsume_times
                        await (message.retry(0.01) if failed else message.ack())

                settling = asyncio.create_task(settle())
            else:
                consumer.subscribe("T", handler=handle if kind == "plain" else handle_async)
            await until(lambda: committed(cluster) == {0: 3})
        if kind == "iterating":
            await settling
        assert len(hook.begun) == len(hook.ended) == len(broken.ended) == (4 if ordered else 3)
        assert hook.begun[0].group == "g"
        words = (
            ("SUCCESS", "SUSPEND_CURRENT_QUEUE_A_MOMENT")
            if ordered
            else ("CONSUME_SUCCESS", "RECONSUME_LATER")
        )
        assert hook.ended[0] == (True, words[0], "SUCCESS")
        failures = [entry for entry in hook.ended if not entry[0]]
        assert [entry[1] for entry in failures] == [words[1]]
        assert failures[0][2] == ("FAILED" if kind == "iterating" else "EXCEPTION")

    flow(test, 3, queues=1)


@pytest.mark.proves("client:D-90")
def test_messages_removed_by_a_filter_hook_count_as_consumed() -> None:
    class OnlyEven(FilterMessageHook):
        def filter_messages(self, context: FilterMessageContext) -> None:
            context.messages[:] = [m for m in context.messages if int(m.body) % 2 == 0]

    async def test(cluster: FakeCluster) -> None:
        got: list[bytes] = []
        async with consumer_of(cluster, hooks=(OnlyEven(),)) as consumer:
            consumer.subscribe("T", handler=lambda m: got.append(m.body))
            await until(lambda: committed(cluster) == {0: 5})
        assert sorted(got) == [b"0", b"2", b"4"]

    flow(test, 5, queues=1)
