"""Bad input about delays, retries, clocks, transactions, offsets and locks.

Over real sockets: each is answered with a clear error or does what the reference defines, and a neighbour on
another connection never notices.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.contract.bad_input import ask, neighbour, send_one, send_request
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.ids import parse_offset_message_id
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, wire_queues
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import SendMessageRequest, send_v2_to_ext
from sparrowmq.testing import LocalCluster

DAY_MS = 86_400_000
FAR = 2**63 - 1
HALF = "TRAN_MSG\x01true\x02PGROUP\x01p\x02"


class MovedClock(SystemClock):
    """The machine's clock, wrong by `ms`."""

    ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ms


clock = MovedClock()
_keys = itertools.count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster whose clock tests move, with the neighbour's topic."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sparrowmq.runtime.servers.SystemClock", lambda: clock)
        with LocalCluster(recall_message_enable=True, message_delay_level="1s") as running:
            running.create_topic("Neighbour", queues=1)
            yield running


Call = Callable[[Command], Awaitable[Command]]


def served(cluster: LocalCluster, test: Callable[[Call], Awaitable[None]]) -> None:
    """Run a test that sends requests one by one, beside a neighbour that must be served throughout."""

    async def call(request: Command) -> Command:
        return (await ask(cluster.broker_address, request))[0]

    async def main() -> None:
        async with neighbour(cluster.broker_address, send_one):
            await test(call)

    run(main())


def message(body: bytes, *, topic: str, properties: str = "") -> Command:
    """A send with a unique key of its own."""
    return send_request(body, topic=topic, properties=properties, opaque=next(_keys))


def request(code: RequestCode, **fields: Any) -> Command:
    """A request with these header fields."""
    return Command(code, ext={name: str(value) for name, value in fields.items()})


def pull(topic: str, offset: int, queue_id: int = 0) -> Command:
    return request(
        RequestCode.PULL_MESSAGE,
        consumerGroup="TOOLS_CONSUMER",
        topic=topic,
        queueId=queue_id,
        queueOffset=offset,
        maxMsgNums=32,
        sysFlag=4,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subscription="*",
        subVersion=0,
    )


async def end_of(call: Call, topic: str) -> int:
    """The number of messages in queue 0 of a topic."""
    return int((await call(request(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=0))).ext["offset"])


# Times


@pytest.mark.proves("broker:8.2", "client:B-105")
def test_times_in_the_past_come_at_once_and_times_beyond_the_limit_are_refused(cluster: LocalCluster) -> None:
    async def test(call: Call) -> None:
        cluster_topic, now = "Timed", int(time.time() * 1000)
        past = (f"TIMER_DELIVER_MS\x01{now - 1}", "TIMER_DELIVER_MS\x011", "TIMER_DELAY_MS\x010")
        for number, text in enumerate((*past, "TIMER_DELAY_SEC\x01-5", f"TIMER_DELIVER_MS\x01-{FAR}")):
            sent = await call(message(b"now", topic=cluster_topic, properties=f"{text}\x02"))
            assert sent.code == ResponseCode.SUCCESS, sent
            assert "recallHandle" not in sent.ext
            assert await end_of(call, cluster_topic) == number + 1
        for text in (
            f"TIMER_DELIVER_MS\x01{now + 3 * DAY_MS + 60_000}",
            f"TIMER_DELIVER_MS\x01{FAR}",
            f"TIMER_DELAY_MS\x01{3 * DAY_MS + 1}",
            "TIMER_DELAY_SEC\x01259201",
            f"TIMER_DELAY_SEC\x01{FAR}",
        ):
            refused = await call(message(b"x", topic=cluster_topic, properties=f"{text}\x02"))
            assert refused.code == ResponseCode.MESSAGE_ILLEGAL, text
            assert f"max delay {3 * DAY_MS}ms" in (refused.remark or "")
        assert await end_of(call, cluster_topic) == 5

    served(cluster, test)


@pytest.mark.proves("broker:8.3", "client:B-107")
def test_what_cannot_be_recalled_is_refused(cluster: LocalCluster) -> None:
    async def test(call: Call) -> None:
        text = "TIMER_DELAY_SEC\x0160\x02"
        sent = await call(message(b"x", topic="Recalled", properties=text))
        handle = sent.ext["recallHandle"]
        for topic, given, code in (
            ("Recalled", "", ResponseCode.ILLEGAL_OPERATION),
            ("Recalled", "junk\x01%%", ResponseCode.ILLEGAL_OPERATION),
            ("Recalled", "A" * 5000, ResponseCode.ILLEGAL_OPERATION),
            ("Neighbour", handle, ResponseCode.ILLEGAL_OPERATION),
            ("Missing", handle, ResponseCode.TOPIC_NOT_EXIST),
        ):
            recall = request(RequestCode.RECALL_MESSAGE, topic=topic, recallHandle=given, producerGroup="p")
            refused = await call(recall)
            assert (refused.code, bool(refused.remark)) == (code, True), (topic, given[:20])
        recall = request(RequestCode.RECALL_MESSAGE, topic="Recalled", recallHandle=handle, producerGroup="p")
        for _ in range(2):  # a second marker for the same message does no harm
            assert (await call(recall)).code == ResponseCode.SUCCESS

    served(cluster, test)


@pytest.mark.proves("broker:8.1", "broker:8.2")
@pytest.mark.parametrize("jump", [2 * DAY_MS, -2 * DAY_MS], ids=["ahead", "back"])
def test_a_clock_that_jumps_delivers_what_waits_once_and_goes_on(cluster: LocalCluster, jump: int) -> None:
    topic = "Jump" + ("Ahead" if jump > 0 else "Back")

    async def wait_for(call: Call, count: int) -> None:
        async def is_there() -> bool:
            return await end_of(call, topic) == count

        await until(is_there)

    async def test(call: Call) -> None:
        level, timer = "DELAY\x011\x02", "TIMER_DELAY_MS\x01900\x02"
        for text in ("", level, timer):
            assert (await call(message(b"x", topic=topic, properties=text))).code == 0
        clock.ms = jump
        for text in (level, timer):
            assert (await call(message(b"x", topic=topic, properties=text))).code == 0
        if jump > 0:
            await wait_for(call, 5)
        clock.ms = 0
        await wait_for(call, 5)
        for text in (level, timer):
            assert (await call(message(b"x", topic=topic, properties=text))).code == 0
        await wait_for(call, 7)

    try:
        served(cluster, test)
    finally:
        clock.ms = 0


# Transactions


@pytest.mark.proves("broker:9.2")
def test_ends_of_transactions_that_are_unknown_or_finished_change_nothing(cluster: LocalCluster) -> None:
    async def test(call: Call) -> None:
        plain = await call(message(b"plain", topic="Orders"))
        half_request = message(b"half", topic="Orders", properties=HALF)
        half_request.ext["f"] = "4"
        half = await call(half_request)
        place, physical = half.ext["queueOffset"], parse_offset_message_id(half.ext["msgId"])[2]
        other = parse_offset_message_id(plain.ext["msgId"])[2]

        async def end(state: int = 8, **changes: Any) -> Command:
            fields = {"producerGroup": "p", "tranStateTableOffset": place, "commitLogOffset": physical}
            return await call(
                request(RequestCode.END_TRANSACTION, **{**fields, "commitOrRollback": state, **changes})
            )

        for text, changes in (
            ("no half message at", {"commitLogOffset": FAR}),
            ("no half message at", {"commitLogOffset": -1}),
            ("no half message at", {"commitLogOffset": physical + 1}),
            ("no half message at", {"commitLogOffset": other}),
            ("producer group wrong", {"producerGroup": "stranger"}),
            ("table offset wrong", {"tranStateTableOffset": int(place) + 7}),
        ):
            for state in (8, 12):
                refused = await end(state, **changes)
                assert refused.code == ResponseCode.SYSTEM_ERROR, changes
                assert text in (refused.remark or "")
        assert (await end(99)).code == ResponseCode.INVALID_PARAMETER
        assert await end_of(call, "Orders") == 1
        assert (await end()).code == ResponseCode.SUCCESS
        for state in (8, 12):
            refused = await end(state)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "is finished already" in (refused.remark or "")
        assert await end_of(call, "Orders") == 2

    served(cluster, test)


# What comes back


@pytest.mark.proves("broker:7")
def test_messages_that_are_gone_are_not_taken_back(cluster: LocalCluster) -> None:
    async def test(call: Call) -> None:
        sent = await call(message(b"x", topic="Returned"))
        physical = parse_offset_message_id(sent.ext["msgId"])[2]

        async def back(offset: int, **changes: Any) -> Command:
            fields = {"offset": offset, "group": "returners", "delayLevel": -1, **changes}
            return await call(request(RequestCode.CONSUMER_SEND_MSG_BACK, **fields))

        for offset in (-1, -FAR, physical + 1, 10**9, FAR):
            refused = await back(offset)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert refused.remark == f"look message by offset failed, {offset}"
        assert await end_of(call, "%DLQ%returners") == 0
        assert (await back(physical)).code == ResponseCode.SUCCESS
        assert await end_of(call, "%DLQ%returners") == 1
        for group in ("", "two words", "x" * 300):
            refused = await back(physical, group=group)
            assert refused.code != ResponseCode.SUCCESS and refused.remark

    served(cluster, test)


@pytest.mark.proves("broker:6.7")
def test_a_reply_without_a_waiting_request_fails_for_the_replier(cluster: LocalCluster) -> None:
    async def test(call: Call) -> None:
        for own in ("CORRELATION_ID\x01c\x02REPLY_TO_CLIENT\x01nobody\x02", "CORRELATION_ID\x01c\x02", ""):
            header = SendMessageRequest(
                producer_group="p",
                topic="DefaultCluster_REPLY_TOPIC",
                default_topic="TBW102",
                default_topic_queue_nums=1,
                queue_id=0,
                sys_flag=0,
                born_timestamp=1,
                flag=0,
                properties=own,
            )
            reply = Command(RequestCode.SEND_REPLY_MESSAGE_V2, ext=send_v2_to_ext(header), body=b"yes")
            refused = await call(reply)
            assert (refused.code, bool(refused.remark)) == (ResponseCode.SYSTEM_ERROR, True), refused

    served(cluster, test)


# Offsets and locks


async def make_group(cluster: LocalCluster, group: str) -> None:
    """Commits make none."""
    async with aio.Admin(namesrv=cluster.namesrv) as admin:
        await admin.groups.create(group)


@pytest.mark.proves("broker:5.2")
def test_offsets_beyond_both_ends_are_corrected(cluster: LocalCluster) -> None:
    async def test(call: Call) -> None:
        for number in range(3):
            await call(message(b"%d" % number, topic="Ends"))
        # Beyond the end is an offset of an earlier life of a queue that begins at 0, as for RocketMQ.
        for offset, following in ((-1, 0), (-FAR, 0), (4, 0), (10**9, 0), (FAR, 0)):
            moved = await call(pull("Ends", offset))
            assert moved.code == ResponseCode.PULL_OFFSET_MOVED, offset
            assert (moved.ext["nextBeginOffset"], moved.body) == (str(following), b"")
        assert (await call(pull("Ends", 3))).code == ResponseCode.PULL_NOT_FOUND
        for offset in (-1, 10**15, FAR):
            gone = await call(request(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset))
            assert (gone.code, bool(gone.remark)) == (ResponseCode.SYSTEM_ERROR, True)
        for moment, found in ((-FAR, 0), (0, 0), (FAR, 3)):
            search = request(
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic="Ends", queueId=0, timestamp=moment
            )
            assert (await call(search)).ext["offset"] == str(found)

    served(cluster, test)


def test_commits_below_the_first_offset_are_refused(cluster: LocalCluster) -> None:
    place = {"consumerGroup": "below", "topic": "Neighbour", "queueId": 0}

    async def stored(call: Call) -> Command:
        return await call(request(RequestCode.QUERY_CONSUMER_OFFSET, **place, setZeroIfNotFound="false"))

    async def test(call: Call) -> None:
        await make_group(cluster, "below")
        for offset in (-1, -FAR):
            refused = await call(request(RequestCode.UPDATE_CONSUMER_OFFSET, **place, commitOffset=offset))
            assert refused.code == ResponseCode.INVALID_PARAMETER
            assert refused.remark == f"commitOffset {offset}: offsets start at 0"
            with_pull = pull("Neighbour", 0)
            with_pull.ext |= {"consumerGroup": "below", "sysFlag": "5", "commitOffset": str(offset)}
            assert (await call(with_pull)).code == ResponseCode.SUCCESS
        assert (await stored(call)).code == ResponseCode.QUERY_NOT_FOUND

    served(cluster, test)


def test_a_commit_beyond_the_end_is_refused_and_the_group_goes_on(cluster: LocalCluster) -> None:
    topic = "Beyond"

    async def test(call: Call) -> None:
        await call(message(b"old", topic=topic))
        await make_group(cluster, "beyond")
        commit = {"consumerGroup": "beyond", "topic": topic, "queueId": 0, "commitOffset": 10**15}
        refused = await call(request(RequestCode.UPDATE_CONSUMER_OFFSET, **commit))
        assert refused.code == ResponseCode.INVALID_PARAMETER
        got: list[bytes] = []
        settings = aio.ConsumerSettings(rebalance_interval_min=0.05, consume_from="first")
        consumer = aio.PushConsumer("beyond", namesrv=cluster.namesrv, settings=settings)
        consumer.subscribe(topic, handler=lambda message: got.append(message.body))
        async with consumer:
            await until(lambda: consumer.assignment)

            async def new_ones_come() -> bool:
                await call(message(b"new", topic=topic))
                return b"new" in got

            await until(new_ones_come)

    served(cluster, test)


@pytest.mark.proves("broker:10.6")
def test_a_lock_claimed_twice_has_one_holder(cluster: LocalCluster) -> None:
    queue, other = MessageQueue("Neighbour", "broker-a", 0), MessageQueue("Neighbour", "broker-a", 77)

    async def test(call: Call) -> None:
        async def lock(client: str, *queues: MessageQueue) -> list[MessageQueue]:
            body = LockBatchRequestBody(client, "lockers", wire_queues(list(queues))).encode()
            answer = await call(Command(RequestCode.LOCK_BATCH_MQ, body=body))
            return LockBatchResponseBody.decode(answer.body).queues

        async def unlock(client: str) -> int:
            body = LockBatchRequestBody(client, "lockers", wire_queues([queue])).encode()
            return (await call(Command(RequestCode.UNLOCK_BATCH_MQ, body=body))).code

        assert await lock("one", queue, queue) == [queue]
        assert await lock("one", queue) == [queue]
        assert await lock("two", queue, other) == [other]
        assert await unlock("two") == ResponseCode.SUCCESS
        assert await lock("two", queue) == []
        assert await unlock("one") == await unlock("one") == ResponseCode.SUCCESS
        assert await lock("two", queue) == [queue]
        for body in (b"", b"{}", b'{"consumerGroup":"lockers","clientId":"x","mqSet":[7]}'):
            refused = await call(Command(RequestCode.LOCK_BATCH_MQ, body=body))
            assert refused.code != ResponseCode.SUCCESS and refused.remark

    served(cluster, test)


# Other versions


def test_requests_of_a_newer_version_are_served_as_far_as_they_are_understood(cluster: LocalCluster) -> None:
    """Unknown fields, flags and properties are passed on or ignored; a body nobody can unpack is whole."""

    async def test(call: Call) -> None:
        sent = message(b"from tomorrow", topic="Tomorrow", properties="NEW_FEATURE\x01on\x02")
        sent.version = 9999
        sent.ext |= {"z": "9", "someNewField": "x" * 1000, "f": str(0x7FFF0000 | 0x701)}
        assert (await call(sent)).code == ResponseCode.SUCCESS
        beat = Command(
            RequestCode.HEART_BEAT,
            version=9999,
            body=b'{"clientID":"new","newMember":[1],"producerDataSet":[{"groupName":"p","more":{}}],'
            b'"consumerDataSet":[{"groupName":"tomorrow","consumeType":"CONSUME_POP","isLite":true,'
            b'"messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
            b'"subscriptionDataSet":[{"topic":"Tomorrow","subString":"*","newKind":1}]}]}',
        )
        assert (await call(beat)).code == ResponseCode.SUCCESS
        async with aio.PullConsumer(namesrv=cluster.namesrv) as consumer:
            pulled = await consumer.pull(MessageQueue("Tomorrow", "broker-a", 0), 0)
        (pulled_one,) = pulled.messages
        assert (pulled_one.body, pulled_one.properties["NEW_FEATURE"]) == (b"from tomorrow", "on")

    served(cluster, test)
