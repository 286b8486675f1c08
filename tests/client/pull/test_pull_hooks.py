"""Hooks and traces of pull consumers: what `poll` and `pull` return."""

from __future__ import annotations

import pytest
from tests.client.fake import FakeCluster, answer
from tests.client.pull.test_polling import Q, bodies, take
from tests.client.pulling import flow, store
from tests.client.tracing.test_dispatcher import TOPIC, traces
from tests.support import about, until

from sparrowmq.client.base.hooks import (
    ConsumeContext,
    ConsumeHook,
    FilterMessageContext,
    FilterMessageHook,
    Hook,
)
from sparrowmq.client.cluster.instance import InstanceState
from sparrowmq.client.pull.pull_consumer import PullConsumer
from sparrowmq.core.errors import BrokerError, ClientError
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.trace import SubAfterTrace, SubBeforeTrace


class Notes(ConsumeHook):
    """Records its calls, and then fails."""

    def __init__(self) -> None:
        self.begun: list[list[int]] = []
        self.ended: list[tuple[str, object, bool, str, str]] = []

    def before_consume(self, context: ConsumeContext) -> None:
        self.begun.append(bodies(list(context.messages)))
        assert not context.success
        raise ValueError("a hook")

    def after_consume(self, context: ConsumeContext) -> None:
        kind = context.properties["ConsumeContextType"]
        self.ended.append((context.group, context.queue, context.success, context.status, kind))
        raise ValueError("a hook")


class Even(FilterMessageHook):
    """Keeps even numbers."""

    def __init__(self) -> None:
        self.groups: set[str] = set()

    def filter_messages(self, context: FilterMessageContext) -> None:
        self.groups.add(context.group)
        context.messages = [one for one in context.messages if int(one.body) % 2 == 0]


class Nothing(FilterMessageHook):
    """Keeps nothing."""

    def filter_messages(self, context: FilterMessageContext) -> None:
        context.messages.clear()


SUCCESS = ("g", Q, True, "CONSUME_SUCCESS", "SUCCESS")


@pytest.mark.proves("client:E-33", "client:D-91", "client:D-92")
def test_polled_messages_count_as_consumed_for_hooks() -> None:
    hook = Notes()

    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        assert await take(consumer, 12) == list(range(12)), "whatever hooks raise"
        assert await consumer.poll(0) == []
        assert hook.begun == [list(range(10)), [10, 11]] and hook.ended == [SUCCESS] * 2

    flow(test, messages=12, hooks=(hook,))


@pytest.mark.proves("client:E-33")
def test_prefetched_messages_are_not_consumed_before_they_are_polled() -> None:
    hook = Notes()

    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.assign([Q])
        await consumer.start()
        await until(lambda: consumer._lite is not None and len(consumer._lite._waiting) == 1)
        assert not hook.begun
        await consumer.seek(Q, 2)
        assert bodies(await consumer.poll(10)) == [2]
        assert hook.begun == [[2]], "what a seek threw away was never consumed"

    flow(test, messages=3, hooks=(hook,))


@pytest.mark.proves("client:E-08")
def test_messages_pulled_by_offset_count_as_consumed_for_hooks() -> None:
    hook = Notes()

    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        await consumer.start()
        await consumer.queues("T")
        assert bodies((await consumer.pull(Q, 1)).messages) == [1, 2]
        assert not (await consumer.pull(Q, 3)).messages
        await consumer.fetch_raw(Q, 0)
        assert hook.begun == [[1, 2]] and hook.ended == [SUCCESS], "neither nothing nor bytes"

    flow(test, messages=3, hooks=(hook,))


@pytest.mark.proves("client:D-90")
@pytest.mark.parametrize("way", ["poll", "pull"])
def test_filter_hooks_remove_messages_before_anybody_sees_them(way: str) -> None:
    notes, even = Notes(), Even()
    hooks: tuple[Hook, ...] = (notes, even)

    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.assign([Q])
        await consumer.start()
        if way == "poll":
            assert await take(consumer, 3) == [0, 2, 4]
        else:
            await consumer.queues("T")
            result = await consumer.pull(Q, 0)
            assert bodies(result.messages) == [0, 2, 4] and result.next_offset == 5
        assert notes.begun == [[0, 2, 4]] and even.groups == {"g"}

    flow(test, messages=5, hooks=hooks)


@pytest.mark.proves("client:D-90")
def test_completely_filtered_batch_counts_as_consumed() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        await until(lambda: consumer._lite is not None and consumer._lite.commit_polled() == [Q])
        assert await consumer.poll(0) == []
        await consumer.commit()
        assert cluster.broker.offsets["g", "T", 0] == 5

    flow(test, messages=5, hooks=(Nothing(),))


@pytest.mark.proves("client:B-111", "client:B-13")
@pytest.mark.parametrize("way", ["poll", "pull"])
def test_tracing_pull_consumer_writes_traces_when_it_closes(way: str) -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        cluster.add_topic(TOPIC, 1)
        for number in range(2):
            cluster.broker.store("T", 0, str(number).encode(), f"UNIQ_KEY\x01M{number}\x02".encode())
        if way == "poll":
            consumer.subscribe("T")
        await consumer.start()
        if way == "poll":
            await take(consumer, 2)
        else:
            await consumer.queues("T")
            await consumer.pull(Q, 0)
        await consumer.close()
        found = traces(cluster)
        before = [one for one in found if isinstance(one, SubBeforeTrace)]
        after = [one for one in found if isinstance(one, SubAfterTrace)]
        assert {one.message_id for one in before} == {one.message_id for one in after} == {"M0", "M1"}
        assert {one.request_id for one in before} == {one.request_id for one in after}
        assert all(one.success and one.context_code == 0 and one.group == "g" for one in after)
        beats = {beat.client_id for beat in cluster.broker.heartbeats}
        assert len([one for one in beats if not one.endswith("@STREAM")]) == 1, "an instance of its own"

    flow(test, trace=True)


def test_without_a_group_nothing_is_traced() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        await consumer.start()
        cluster.add_topic(TOPIC, 1)
        store(cluster, 1)
        async with PullConsumer(settings=consumer.settings) as other:
            await other.queues("T")
            assert len((await other.pull(Q, 0)).messages) == 1
        assert not traces(cluster)

    flow(test, trace=True)


def test_failed_start_leaves_no_traces_behind() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        cluster.on[int(RequestCode.GET_ROUTEINFO_BY_TOPIC)] = lambda conn, c: answer(1, remark="broken")
        consumer.subscribe("T")
        with pytest.raises(BrokerError, check=about(code=1, remark="broken")):
            await consumer.start()
        assert consumer._hooks is not None and consumer._hooks._tracing is not None
        assert consumer._hooks._tracing._instance.state is InstanceState.CLOSED

    flow(test, trace=True)


def test_start_with_traces_can_be_repeated_after_a_group_conflict() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        await consumer.start()
        other = PullConsumer("g", settings=consumer.settings)
        with pytest.raises(ClientError, check=about(value="g")):
            await other.start()
        await consumer.close()
        await other.start()
        await other.close()

    flow(test, trace=True, instance_name="one")
