from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.client import fake
from tests.client.fake import FakeCluster, answer
from tests.client.pulling import flow, quick, store
from tests.support import about, until

from sparrowmq.client.base.lifecycle import State
from sparrowmq.client.consumer import min_age
from sparrowmq.client.pull import polling as lite_pull
from sparrowmq.client.pull.pull_consumer import PullConsumer
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.dynamic_settings import SettingPlace, SettingValue, Unable
from sparrowmq.core.errors import (
    BrokerError,
    ClientError,
    InvalidExpressionError,
    InvalidStateError,
    SettingsError,
)
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.subscription import Sql
from sparrowmq.protocol.codes import RequestCode, ResponseCode

LITE = int(RequestCode.LITE_PULL_MESSAGE)
PULL = int(RequestCode.PULL_MESSAGE)
QUERY = int(RequestCode.QUERY_CONSUMER_OFFSET)
Q = MessageQueue("T", "broker-a", 0)


def bodies(messages: list[ReceivedMessage]) -> list[int]:
    return [int(message.body) for message in messages]


async def take(consumer: PullConsumer, count: int) -> list[int]:
    """Poll until `count` messages arrived."""
    found: list[int] = []
    while len(found) < count:
        batch = await consumer.poll(10)
        assert batch, f"only {found} came"
        found += bodies(batch)
    return found


@pytest.mark.proves("client:E-33")
def test_poll_returns_one_batch_of_one_queue() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        store(cluster, 25, queue_id=1)
        consumer.subscribe("T")
        await consumer.start()
        batches = []
        while sum(map(len, batches)) < 50:
            batches.append(await consumer.poll(10))
        assert all(len({message.queue for message in batch}) == 1 for batch in batches)
        assert [len(batch) for batch in batches] == [10, 10, 10, 10, 5, 5] or max(map(len, batches)) == 10
        for number in (0, 1):
            mine = [m for batch in batches for m in batch if m.queue.queue_id == number]
            assert bodies(mine) == list(range(25)), "each queue in order"
        assert await consumer.poll(0) == []
        assert await consumer.poll(0.01) == []
        with pytest.raises(SettingsError, check=about(setting="timeout", value=-1, limit=0)):
            await consumer.poll(-1)

    flow(test, queues=2, messages=25)


@pytest.mark.proves("client:E-33", "client:E-29")
def test_poll_waits_for_messages_and_needs_a_running_consumer() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        with pytest.raises(InvalidStateError, check=about(what="running", value="created")):
            await consumer.poll()
        await consumer.start()
        polling = asyncio.ensure_future(consumer.poll(20))
        await until(lambda: cluster.broker.requests(LITE))
        store(cluster, 1)
        assert bodies(await polling) == [0]
        (first, *_) = cluster.broker.requests(LITE)
        assert first.ext["queueOffset"] == "0", "no offset is stored: the beginning, as the settings say"

    flow(test)


def test_poll_without_queues_is_an_error() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        await consumer.start()
        for call in (consumer.poll(), consumer.seek(Q, 1), consumer.commit()):
            with pytest.raises(InvalidStateError, check=about(what="subscription")):
                await call

    flow(test)


@pytest.mark.proves("client:E-30")
def test_pull_is_a_long_poll_with_the_lite_flag_and_its_expression() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T", "A")
        await consumer.start()
        assert await take(consumer, 3) == [0, 1, 2]
        first = cluster.broker.requests(LITE)[0].ext
        assert int(first["sysFlag"]) == 2 | 4 | 16, "suspend, expression, lite; never commit"
        assert (first["subscription"], first["subVersion"], first["maxMsgNums"]) == ("A", "0", "10")
        assert (first["suspendTimeoutMillis"], first["commitOffset"]) == ("200", "0")
        assert not cluster.broker.requests(PULL)

    flow(test, messages=3)


@pytest.mark.proves("client:E-30", "client:G-22")
def test_broker_that_does_not_know_361_gets_11() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        cluster.broker.on[LITE] = lambda conn, c: answer(3, remark=" request type 361 not supported")
        consumer.subscribe("T")
        await consumer.start()
        assert await take(consumer, 30) == list(range(30))
        assert len(cluster.broker.requests(LITE)) == 1, "it is asked once"

    flow(test, messages=30)


@pytest.mark.proves("client:G-22")
def test_broker_version_selects_the_code() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        def old(conn: object, command: object) -> Any:
            reply = answer()
            reply.version = 409
            return reply

        cluster.broker.on[int(RequestCode.HEART_BEAT)] = old
        consumer.subscribe("T")
        await consumer.start()
        consumer.unsubscribe("T")
        assert consumer._instance is not None
        await until(lambda: consumer._instance and consumer._instance.broker_versions)
        consumer.subscribe("T")
        cluster.broker.members["g"] = {consumer.client_id: None}
        assert await take(consumer, 1) == [0]
        assert not cluster.broker.requests(LITE)

    flow(test, messages=1)


@pytest.mark.proves("client:E-28")
@pytest.mark.parametrize(
    "limit",
    [{"queue_messages_max": 20}, {"queue_bytes_max": 31}, {"queue_span_max": 20}, {"messages_max": 20}],
)
def test_pulling_pauses_at_each_limit_and_continues(limit: dict[str, int]) -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        await until(lambda: consumer.assignment)
        lite = consumer._lite
        assert lite is not None
        await until(lambda: lite._queues[Q].process_queue.is_full or lite._is_full)
        assert len(cluster.broker.requests(LITE)) == 3, (
            "more than the limit stops it, so one batch overshoots"
        )
        assert await take(consumer, 100) == list(range(100))

    flow(test, messages=100, **limit)


@pytest.mark.proves("client:E-31")
def test_illegal_offset_is_replaced_by_the_brokers(caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        cluster.broker.first["T", 0] = 40
        consumer.subscribe("T")
        await consumer.start()
        assert await take(consumer, 5) == [0, 1, 2, 3, 4]
        assert "offset 0 of T/broker-a/0 is not stored (40 to 45); continuing at 40" in caplog.text

    flow(test, messages=5)


def test_recreated_topic_is_polled_from_its_beginning() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        assert await take(consumer, 10) == list(range(10))
        refused = len(cluster.broker.requests(LITE))
        cluster.broker.on[LITE] = lambda conn, c: answer(17, remark="topic T not exist")
        await until(lambda: len(cluster.broker.requests(LITE)) > refused + 1)
        cluster.broker.queues["T", 0].clear()
        await consumer.commit()
        assert not cluster.broker.offsets, "an offset of the deleted topic would skip messages"
        store(cluster, 30)
        del cluster.broker.on[LITE]
        assert await take(consumer, 30) == list(range(30))

    flow(test, messages=10, auto_commit=False, pull_hold=0.2)


def test_no_offset_beyond_the_end_is_committed_after_the_broker_lost_messages() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        assert await take(consumer, 20) == list(range(20))
        del cluster.broker.queues["T", 0][12:]
        await until(lambda: consumer._lite.find(Q).next_offset == 12)
        store(cluster, 3)
        assert await take(consumer, 3) == [0, 1, 2]
        consumer._lite.commit_polled()
        assert await consumer.committed(Q) == 15, "a later one would skip what comes next"

    flow(test, messages=20, auto_commit=False, pull_hold=0.2)


def test_messages_read_ahead_of_those_the_broker_lost_are_read_again() -> None:
    """Those behind the new end may be of an earlier topic, and others have their offsets now."""

    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        await until(lambda: (held := consumer._lite.find(Q)) is not None and held.next_offset == 20)
        first = [message.queue_offset for message in await consumer.poll(timeout=5)]
        del cluster.broker.queues["T", 0][12:]
        await until(lambda: consumer._lite.find(Q).next_offset == 12)
        assert first + await take(consumer, 12 - len(first)) == list(range(12))
        assert not await consumer.poll(timeout=0.3)

    flow(test, messages=20, auto_commit=False, pull_hold=0.2, pull_batch=5)


def test_messages_that_a_filter_left_out_count_as_consumed() -> None:
    """The broker answers that none matched; otherwise the lag stays, and a restart reads everything again."""

    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        def none_matched(conn: object, command: Any) -> Any:
            at = int(command.ext["queueOffset"])
            after = {20: 500, 500: 1000, 1000: 1000}.get(at)
            if after is None or int(command.ext["queueId"]) != 0:
                return cluster.broker.pull(conn, command)
            ext = {"suggestWhichBrokerId": 0, "nextBeginOffset": after, "minOffset": 0, "maxOffset": 1000}
            return answer(19 if at == after else 20, ext={name: str(value) for name, value in ext.items()})

        cluster.broker.on[LITE] = none_matched
        consumer.subscribe("T")
        await consumer.start()
        await until(lambda: consumer._lite.find(Q) is not None)
        held = consumer._lite.find(Q)
        assert held is not None
        await until(lambda: len(held) > 0)
        consumer._lite.commit_polled()
        assert (await consumer.committed(Q) or 0) == 0, "messages are buffered that were not polled"
        assert await take(consumer, 20) == list(range(20))
        await until(lambda: consumer._lite.position(Q) == 1000)
        await consumer.commit()
        assert await consumer.committed(Q) == 1000

    flow(test, messages=20, auto_commit=False, pull_hold=0.2)


@pytest.mark.proves("client:E-32")
def test_failed_pulls_are_repeated(caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        fails = iter([215, 1, 215, 16])

        def fail(conn: object, command: object) -> Any:
            code = next(fails, None)
            return cluster.broker.pull(conn, command) if code is None else answer(code, remark=f"no {code}")

        cluster.broker.on[LITE] = fail
        consumer.subscribe("T")
        await consumer.start()
        assert await take(consumer, 3) == [0, 1, 2]
        assert "pulling T/broker-a/0 for group g failed and continues in 0.02 s" in caplog.text
        assert "no 215" not in caplog.text, "flow control is nobody's fault"

    flow(test, messages=3)


@pytest.mark.proves("client:E-29")
def test_failed_start_offset_query_is_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert lite_pull._START_DELAY == 3.0
    monkeypatch.setattr("sparrowmq.client.pull.polling._START_DELAY", 0.01)

    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        cluster.broker.offsets["g", "T", 0] = 2
        fails = iter([1, 1])

        def fail(conn: object, command: object) -> Any:
            if next(fails, None):
                return answer(1, remark="not now")
            return cluster.broker.query_offset(conn, command)

        cluster.broker.on[QUERY] = fail
        consumer.subscribe("T")
        await consumer.start()
        assert await take(consumer, 3) == [2, 3, 4], "from the stored offset"
        assert "group g cannot start with T/broker-a/0 yet" in caplog.text

    flow(test, messages=5)


@pytest.mark.proves("client:E-29", "client:C-37")
def test_reassigned_queue_starts_from_the_offset_in_memory() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        other = MessageQueue("T", "broker-a", 1)
        consumer.assign([Q])
        await consumer.start()
        assert await take(consumer, 3) == [0, 1, 2]
        await consumer.commit({Q: 2}, persist=False)
        consumer.assign([other])
        assert consumer.assignment == [other]
        consumer.assign([Q])
        assert await take(consumer, 1) == [2], "noted here; the broker knows of nothing"
        assert cluster.broker.offsets == {}

    flow(test, queues=2, messages=3, auto_commit=False, persist_interval=3600)


@pytest.mark.proves("client:E-27", "client:E-34", "client:E-35")
def test_returned_messages_are_committed_at_the_next_due_poll() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        assert bodies(await consumer.poll(10)) == list(range(10))
        lite = consumer._lite
        assert lite is not None
        assert await consumer.committed(Q) is None, "the interval is not over"
        lite._commit_at = 0.0
        assert bodies(await consumer.poll(10)) == list(range(10, 20))
        assert await consumer.committed(Q) == 10, "the second batch is in hand"
        await until(lambda: cluster.broker.offsets.get(("g", "T", 0)) == 10)

    flow(test, messages=30)


@pytest.mark.proves("client:E-36")
def test_offsets_are_committed_manually(caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        await take(consumer, 20)
        lite = consumer._lite
        assert lite is not None
        assert await consumer.committed(Q) is None
        await consumer.commit(persist=False)
        assert await consumer.committed(Q) == 20, "noted; the timer sends it"
        await until(lambda: cluster.broker.offsets.get(("g", "T", 0)) == 20)
        await consumer.commit({Q: 7})
        assert cluster.broker.offsets["g", "T", 0] == 7, "confirmed"
        gone = MessageQueue("T", "broker-a", 9)
        await consumer.commit({Q: -1, gone: 3})
        assert await consumer.committed(Q) == 7
        assert "nothing to commit for T/broker-a/0: offset -1" in caplog.text
        assert "no longer reads T/broker-a/9" in caplog.text
        await consumer.commit(Q, 9)
        assert cluster.broker.offsets["g", "T", 0] == 9
        with pytest.raises(SettingsError, check=about(setting="offset", value=None)):
            await consumer.commit(Q)

    flow(test, messages=30, auto_commit=False)


@pytest.mark.proves("client:E-37")
def test_committed_queries_the_broker_when_nothing_is_stored_and_explains_failures() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        cluster.broker.offsets["g", "T", 1] = 5
        consumer.assign([Q])
        await consumer.start()
        assert await consumer.committed(MessageQueue("T", "broker-a", 1)) == 5
        cluster.broker.on[QUERY] = lambda conn, c: answer(1, remark="broken")
        with pytest.raises(BrokerError, check=about(code=1, remark="broken")):
            await consumer.committed(MessageQueue("T", "broker-a", 1))

    flow(test, queues=2)


@pytest.mark.proves("client:E-38")
def test_seek_discards_prefetched_messages() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        assert await take(consumer, 10) == list(range(10))
        await consumer.seek(Q, 35)
        assert bodies(await consumer.poll(10)) == [35, 36, 37, 38, 39]
        await consumer.seek_to_begin(Q)
        assert bodies(await consumer.poll(10)) == list(range(10))
        await consumer.seek_to_end(Q)
        assert await consumer.poll(0.01) == []
        store(cluster, 1)
        assert bodies(await consumer.poll(10)) == [0]
        await consumer.commit()
        assert cluster.broker.offsets["g", "T", 0] == 41

    flow(test, messages=40)


@pytest.mark.proves("client:E-38")
def test_seek_outside_the_stored_range_or_in_another_queue_is_refused() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        cluster.broker.first["T", 0] = 10
        consumer.assign([Q])
        await consumer.start()
        await take(consumer, 5)
        for offset in (9, 16, -1):
            with pytest.raises(SettingsError, check=about(setting="offset of T/broker-a/0")):
                await consumer.seek(Q, offset)
        await consumer.seek(Q, 15)
        other = MessageQueue("T", "broker-a", 3)
        for call in (consumer.seek(other, 1), consumer.seek_to_begin(other), consumer.seek_to_end(other)):
            with pytest.raises(ClientError, check=about(what="queue", value=other)):
                await call

    flow(test, messages=5)


@pytest.mark.proves("client:E-38")
def test_seek_has_precedence_over_a_running_pull() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        release = asyncio.Event()

        async def held(conn: Any, command: Any) -> Any:
            if command.ext["queueOffset"] == "0":
                await release.wait()
            return await cluster.broker.pull(conn, command)

        cluster.broker.on[LITE] = held
        consumer.assign([Q])
        await consumer.start()
        await until(lambda: cluster.broker.requests(LITE))
        await consumer.seek(Q, 18)
        release.set()
        assert bodies(await consumer.poll(10)) == [18, 19]
        assert await consumer.poll(0.01) == []

    flow(test, messages=20)


@pytest.mark.proves("client:E-39")
def test_paused_queues_are_not_pulled_but_prefetched_messages_are_polled() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        assert bodies(await consumer.poll(10)) == [0, 1, 2, 3, 4]
        store(cluster, 2)
        lite = consumer._lite
        assert lite is not None
        await until(lambda: lite._waiting)
        consumer.pause([Q])
        assert consumer.paused == [Q]
        assert bodies(await consumer.poll(10)) == [0, 1], "it was there already"
        store(cluster, 1)  # the pull that waits at the broker brings it
        await until(lambda: lite._waiting)
        pulls = len(cluster.broker.requests(LITE))
        store(cluster, 3)
        assert len(await consumer.poll(10)) in (1, 2, 3, 4)
        assert len(cluster.broker.requests(LITE)) == pulls
        consumer.resume([Q])
        assert consumer.paused == []
        await until(lambda: len(cluster.broker.requests(LITE)) > pulls)
        for call in (consumer.pause, consumer.resume):
            other = MessageQueue("T", "broker-a", 3)
            with pytest.raises(ClientError, check=about(what="queue", value=other)):
                call([other])

    flow(test, messages=5)


@pytest.mark.proves("client:E-40")
def test_unsubscribing_discards_waiting_messages() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        await take(consumer, 10)
        lite = consumer._lite
        assert lite is not None
        await until(lambda: lite._waiting)
        consumer.unsubscribe("T")
        assert consumer.assignment == []
        assert await consumer.poll(0.01) == []
        consumer.subscribe("T")
        assert (await take(consumer, 10))[0] in (0, 10), "from where the group stands"

    flow(test, messages=30)


@pytest.mark.proves("client:E-23")
def test_new_assignment_ends_the_old_queues_and_begins_others() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        store(cluster, 4, queue_id=1, tag="B")
        one = MessageQueue("T", "broker-a", 1)
        consumer.filter_assigned("T", "B")
        consumer.assign([Q])
        await consumer.start()
        with pytest.raises(InvalidStateError, check=about(what="created", value="running")):
            consumer.filter_assigned("T", "*")
        await until(lambda: len(cluster.broker.requests(LITE)) > 1)
        assert await consumer.poll(0.01) == [], "filtered by tag"
        consumer.assign([one])
        assert consumer.assignment == [one]
        assert await take(consumer, 4) == [0, 1, 2, 3]
        assert not cluster.broker.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP), "nothing is shared"

    flow(test, queues=2, messages=4)


def test_dead_pull_loop_stops_the_consumer_and_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        monkeypatch.setattr("sparrowmq.client.consumer.pull_loop.decode_messages", lambda *args: 1 // 0)
        consumer.subscribe("T")
        await consumer.start()
        with pytest.raises(ClientError, check=about(what="task", value="pull T/broker-a/0")):
            await consumer.poll(20)
        assert consumer.state is State.FAILED
        with pytest.raises(ClientError, check=about(what="task")):
            await consumer.poll()

    flow(test, messages=1)


@pytest.mark.proves("client:E-45")
def test_closing_commits_returned_messages_and_leaves_the_group() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        await take(consumer, 20)
        polling = asyncio.ensure_future(consumer.poll(20))
        await polling
        await consumer.close()
        assert cluster.broker.offsets["g", "T", 0] == 30
        order = [c.code for c in cluster.broker.seen if c.code in (15, 35)]
        assert order[-2:] == [15, 35], "offsets before the goodbye"
        with pytest.raises(InvalidStateError):
            await consumer.poll()

    flow(test, messages=40, persist_interval=60.0)


def test_leaving_by_an_error_does_not_commit_the_last_batch() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        with pytest.raises(ZeroDivisionError):
            async with consumer:
                await take(consumer, 10)
                raise ZeroDivisionError
        assert ("g", "T", 0) not in cluster.broker.offsets

    flow(test, messages=10, persist_interval=60.0)


def test_waiting_poll_returns_when_the_consumer_closes() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        polling = asyncio.ensure_future(consumer.poll(600))
        await until(lambda: cluster.broker.requests(LITE))
        await consumer.close()
        assert await polling == []

    flow(test)


@pytest.mark.proves("broker:14.2")
def test_property_filter_is_checked_at_the_start_and_sent_with_each_pull() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T", Sql("a > 1"))
        await consumer.start()
        await take(consumer, 1)
        sent = cluster.broker.requests(LITE)[-1].ext
        assert (sent["subscription"], sent["expressionType"]) == ("a > 1", "SQL92")
        assert len(cluster.broker.requests(RequestCode.CHECK_CLIENT_CONFIG)) == 1
        await consumer.close()
        refused = int(ResponseCode.SUBSCRIPTION_PARSE_FAILED)
        cluster.broker.on[RequestCode.CHECK_CLIENT_CONFIG] = lambda conn, command: answer(
            refused, remark="no"
        )
        late = PullConsumer("g", settings=quick(cluster))
        late.subscribe("T", Sql("a > 1"))
        with pytest.raises(
            InvalidExpressionError, match="cannot read the SQL92 expression for topic 'T': no"
        ):
            await late.start()

    flow(test, messages=1)


# Dynamic settings


def tell(consumer: PullConsumer, place: str = "*", **values: Any) -> None:
    """What its coordinator would tell a running member."""
    member = consumer._member
    assert member is not None
    told = [SettingValue(name, SettingPlace.parse(place), value) for name, value in values.items()]
    member.apply_dynamic_settings(member.dynamic.revision + 1, told)


def asked(cluster: FakeCluster) -> list[str]:
    return [one.ext["maxMsgNums"] for one in cluster.broker.requests(LITE)]


def test_polls_and_pulls_use_the_set_batch_also_for_prefetched_messages() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        lite = consumer._lite
        assert lite is not None
        await until(lambda: sum(map(len, lite.process_queues())) == 35)
        assert len(await consumer.poll(10)) == 20
        tell(consumer, pull_batch=4)
        sizes = []
        while sum(sizes) < 15:
            sizes.append(len(await consumer.poll(10)))
        assert sizes == [4, 4, 4, 3]
        await until(lambda: asked(cluster)[-1] == "4")
        store(cluster, 3)
        tell(consumer)
        await until(lambda: asked(cluster)[-1] == "20")
        assert len(await consumer.poll(10)) == 3

    flow(test, messages=35, pull_batch=20)


def test_polled_queues_wait_between_pulls_until_the_interval_is_unset() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        await until(lambda: len(asked(cluster)) > 2)
        tell(consumer, pull_interval=60)
        store(cluster, 1)
        assert bodies(await consumer.poll(10)) == [0]
        before = len(asked(cluster))
        store(cluster, 1)
        assert await consumer.poll(0.05) == []
        assert len(asked(cluster)) == before
        tell(consumer)
        assert bodies(await consumer.poll(10)) == [0]

    flow(test, pull_hold=0.02)


def test_polls_return_old_enough_messages_and_the_rest_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(min_age, "STEP_SECONDS", 0.005)
    clock = StandingClock()

    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        assert consumer._instance is not None
        consumer._instance.clock = clock
        await until(lambda: asked(cluster))
        tell(consumer, delay=60)
        for number in range(3):
            monkeypatch.setattr(fake, "NOW_MS", fake_now + number * 1000)
            cluster.broker.store("T", 0, b"%d" % number, b"TAGS\x01A\x02")
        clock.ms = fake_now + 59_999
        assert await consumer.poll(0.05) == []
        clock.ms = fake_now + 61_000
        assert await take(consumer, 2) == [0, 1]
        assert await consumer.poll(0.05) == []
        await consumer.commit()
        assert cluster.broker.offsets["g", "T", 0] == 2, "what is too young is not consumed"
        tell(consumer)
        assert await take(consumer, 1) == [2]

    fake_now = fake.NOW_MS
    flow(test, pull_hold=0.02)


class StandingClock(SystemClock):
    """Wall time is stopped until a test moves it."""

    ms = 0

    def now_ms(self) -> int:
        return self.ms


def test_messages_prefetched_with_other_tags_are_read_again() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        for number in range(12):
            tag = b"AB"[number % 2 : number % 2 + 1]
            cluster.broker.store("T", 0, b"%d" % number, b"TAGS\x01" + tag + b"\x02")
        consumer.subscribe("T", "A")
        await consumer.start()
        lite = consumer._lite
        assert lite is not None
        await until(lambda: sum(map(len, lite.process_queues())) == 6)
        assert bodies(await consumer.poll(10)) == [0, 2]
        tell(consumer, "T", tags="B")
        assert await take(consumer, 4) == [5, 7, 9, 11], "from where polls were"
        (mine,) = consumer._member.heartbeat_data().subscriptions  # type: ignore[union-attr]
        assert mine.expression == "B"
        tell(consumer)
        cluster.broker.store("T", 0, b"12", b"TAGS\x01A\x02")
        assert await take(consumer, 1) == [12]

    flow(test, pull_batch=4)


def test_messages_prefetched_before_the_first_poll_are_read_again_from_their_beginning() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        for number in range(4):
            tag = b"BA"[number % 2 : number % 2 + 1]
            cluster.broker.store("T", 0, b"%d" % number, b"TAGS\x01" + tag + b"\x02")
        consumer.subscribe("T", "A")
        await consumer.start()
        lite = consumer._lite
        assert lite is not None
        await until(lambda: sum(map(len, lite.process_queues())) == 2)
        tell(consumer, "T", tags="B")
        assert await take(consumer, 2) == [0, 2]

    flow(test)


def test_paused_queue_is_not_polled_and_continues_at_the_polled_offset() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        lite = consumer._lite
        assert lite is not None
        await until(lambda: sum(map(len, lite.process_queues())) == 30)
        assert bodies(await consumer.poll(10)) == list(range(10))
        tell(consumer, "T/0", pause=True)
        await until(lambda: asked(cluster))
        before = len(asked(cluster))
        assert await consumer.poll(0.05) == []
        assert len(asked(cluster)) == before
        tell(consumer)
        assert await take(consumer, 20) == list(range(10, 30)), "nothing is lost or twice"

    flow(test, messages=30)


def test_pull_consumer_reports_which_settings_it_cannot_apply() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        member = consumer._member
        assert member is not None
        tell(consumer, threads=3, batch=4, consume_timeout=60, pull_batch=3)
        assert member.unable() == dict.fromkeys(("threads", "batch", "consume_timeout"), Unable.PULLS)
        shown = member.running_info().properties
        assert "pull_batch=3 (*)" in shown["dynamicSettings"]
        assert "threads: it pulls: its application decides" in shown["dynamicSettingsNotApplied"]
        tell(consumer, pull_batch=3)
        assert "dynamicSettingsNotApplied" not in member.running_info().properties

    flow(test)


def test_send_back_uses_the_set_retry_delay_unless_a_level_is_given() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        cluster.broker.on[int(RequestCode.CONSUMER_SEND_MSG_BACK)] = lambda conn, c: answer()
        consumer.subscribe("T")
        await consumer.start()
        (message, *_) = await consumer.poll(10)
        tell(consumer, retries=3, retry_delay=20, retry_growth=3)
        message.reconsume_times = 1
        await consumer.send_back(message)
        await consumer.send_back(message, 2)
        tell(consumer)
        await consumer.send_back(message)
        back = [one.ext for one in cluster.broker.requests(int(RequestCode.CONSUMER_SEND_MSG_BACK))]
        assert [(one["delayLevel"], one.get("maxReconsumeTimes")) for one in back] == [
            ("5", "3"),
            ("2", "3"),
            ("0", None),
        ]

    flow(test, messages=1)
