"""The limits of topics, queues, groups, offsets and open transactions, and the answers beyond them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.broker.rig import pull_ext, send_command
from tests.broker.test_server import Caller, ask, serving
from tests.support import run

from sparrowmq.protocol.bodies import ConsumerData, HeartbeatData
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.filter import parse_tags
from sparrowmq.protocol.frame import Command


def scenario(root: Path, play: Callable[[Caller], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        async with serving(root, **settings) as call:
            await play(call)

    run(main())


def refused(answer: Command, setting: str) -> None:
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert answer.remark is not None and setting in answer.remark


def beat(*groups: str) -> Command:
    consumers = tuple(ConsumerData(group, subscriptions=(parse_tags("T", "*", 1),)) for group in groups)
    return Command(RequestCode.HEART_BEAT, body=HeartbeatData("c", consumers=consumers).encode())


def test_topics_created_by_sends_are_limited(tmp_path: Path) -> None:
    async def play(call: Caller) -> None:
        answers = [await call(send_command(b"x", topic=f"T{n}", queue_id=0)) for n in range(120)]
        made = [answer for answer in answers if answer.code == ResponseCode.SUCCESS]
        assert 80 < len(made) < 100
        refused(answers[-1], "topicsMax")
        refused(await call.create("Wanted"), "topicsMax")
        refused(await call(beat("g")), "topicsMax")
        assert len(call.broker.parts.topics.configs) == 100
        assert (await call(ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T0"))).code == 0
        assert (await call.create("Wanted")).code == 0

    scenario(tmp_path, play, topics_max=100)


def test_queues_are_limited_and_several_topics_are_created_together_or_not_at_all(tmp_path: Path) -> None:
    async def play(call: Caller) -> None:
        topics = call.broker.parts.topics
        before = topics._queue_count
        wide = b'{"topicName":"%s","readQueueNums":400,"writeQueueNums":%d,"perm":6}'
        body = b'{"topicConfigList":[%s,%s]}' % (wide % (b"A", 400), wide % (b"B", 600))
        refused(await call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)), "queuesMax")
        assert "A" not in topics.configs
        body = b'{"topicConfigList":[%s]}' % (wide % (b"A", 300))
        assert (await call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body))).code == 0
        assert topics._queue_count == before + 400
        assert (await call(ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="A"))).code == 0
        assert topics._queue_count == before

    scenario(tmp_path, play, queues_max=2000)


def test_groups_are_limited(tmp_path: Path) -> None:
    async def play(call: Caller) -> None:
        assert (await call(beat(*(f"g{n}" for n in range(80))))).code == 0
        refused(await call(beat(*(f"h{n}" for n in range(80)))), "groupsMax")
        assert len(call.broker.parts.groups.configs) == 100
        body = b'{"groupName":"other"}'
        refused(await call(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)), "groupsMax")
        assert (await call.create("T")).code == 0
        pull = {**pull_ext(), "consumerGroup": "other", "topic": "T"}
        answer = await call(Command(RequestCode.PULL_MESSAGE, ext=pull))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert answer.remark is not None and "groupsMax" in answer.remark
        body = b'{"groupName":"g1","retryMaxTimes":3}'
        assert (await call(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))).code == 0

    scenario(tmp_path, play, groups_max=100)


def test_offsets_are_limited(tmp_path: Path) -> None:
    async def play(call: Caller) -> None:
        assert (await call.create("T", 200)).code == 0
        assert (await call(beat(*(f"g{n}" for n in range(20))))).code == 0

        def commit(group: str, queue_id: int) -> Command:
            place = {"consumerGroup": group, "topic": "T", "queueId": queue_id, "commitOffset": 0}
            return ask(RequestCode.UPDATE_CONSUMER_OFFSET, **place)

        answers = [await call(commit("g0", number)) for number in range(110)]
        assert [answer.code for answer in answers].count(0) == 100
        refused(answers[-1], "consumerOffsetsMax")
        assert (await call(commit("g0", 5))).code == 0
        clone = ask(RequestCode.CLONE_GROUP_OFFSET, srcGroup="g0", destGroup="g1", topic="T", offline="true")
        refused(await call(clone), "consumerOffsetsMax")
        reset = ask(
            *(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,),
            topic="T",
            group="g1",
            timestamp=-1,
            queueId=0,
            offset=0,
            isForce="true",
        )
        assert (await call(reset)).code != 0
        assert call.broker.parts.offsets._entries == 100
        call.broker.parts.offsets.forget_group("g0")
        answers = [await call(commit(f"g{number}", 0)) for number in range(20)]
        assert [answer.code for answer in answers].count(0) == 10

    scenario(tmp_path, play, consumer_offsets_max=100)


def test_open_transactions_are_limited(tmp_path: Path) -> None:
    async def play(call: Caller) -> None:
        assert (await call.create("T")).code == 0
        half = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01%d\x02"
        sends = [
            send_command(b"x", topic="T", queue_id=0, properties=half % n, sys_flag=4) for n in range(102)
        ]
        answers = [await call(send) for send in sends]
        assert [answer.code for answer in answers] == [0] * 100 + [2, 2]
        assert "openTransactionsMax" in (answers[-1].remark or "")
        place = int(answers[0].ext["msgId"][-16:], 16)
        fields = {"producerGroup": "p", "tranStateTableOffset": 0, "commitLogOffset": place}
        end = ask(RequestCode.END_TRANSACTION, commitOrRollback=8, fromTransactionCheck="false", **fields)
        assert (await call(end)).code == 0
        assert (await call(sends[-1])).code == 0
        await asyncio.sleep(0)

    scenario(tmp_path, play, open_transactions_max=100)
