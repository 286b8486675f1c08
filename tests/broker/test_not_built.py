"""Features of RocketMQ 5 that this broker lacks: requests for them are refused with a reason."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.broker.doubles import FakeClock
from tests.broker.rig import send_command
from tests.simulation.server import SimulatedBroker
from tests.support import run

from sparrowmq.protocol.bodies import TopicConfig
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.java_json import dumps
from sparrowmq.protocol.sysflag import INNER_BATCH

TOPIC: dict[str, Any] = {
    "defaultTopic": "TBW102",
    "readQueueNums": 1,
    "writeQueueNums": 1,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
}


def at_a_broker(root: Path, test: Callable[[SimulatedBroker], Coroutine[Any, Any, None]]) -> None:
    """Run a test at a broker with one topic; requests arrive as frames."""

    async def main() -> None:
        broker = SimulatedBroker(root, FakeClock(1_700_000_000_000))
        await broker.start()
        try:
            made = await broker.call(Code.UPDATE_AND_CREATE_TOPIC, TOPIC | {"topic": "TopicTest"})
            assert made is not None and made.code == ResponseCode.SUCCESS
            await test(broker)
        finally:
            await broker.kill()

    run(main())


def refused(answer: Command | None, code: int, said: str) -> None:
    assert answer is not None
    assert (answer.code, said in (answer.remark or "")) == (code, True), answer


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("+queue.type=BatchCQ", "queue.type=BatchCQ is not supported by this broker"),
        ("+cleanup.policy=COMPACTION", "cleanup.policy=COMPACTION is not supported by this broker"),
        ("+message.type=LITE", "message.type=LITE is not supported by this broker"),
        ("+message.type=PRIORITY", "message.type=PRIORITY is not supported by this broker"),
        ("+lite.topic.expiration=5", "lite.topic.expiration=5 is not supported by this broker"),
    ],
)
def test_unsupported_topics_are_not_created(tmp_path: Path, attribute: str, said: str) -> None:
    async def test(broker: SimulatedBroker) -> None:
        key, _, value = attribute.partition("=")
        one = TOPIC | {"topic": "New", "attributes": attribute}
        refused(await broker.call(Code.UPDATE_AND_CREATE_TOPIC, one), ResponseCode.SYSTEM_ERROR, said)
        several = dumps({"topicConfigList": [TopicConfig(topic_name="New", attributes={key: value})]})
        answer = await broker.call(Code.UPDATE_AND_CREATE_TOPIC_LIST, body=several)
        refused(answer, ResponseCode.SYSTEM_ERROR, said)
        assert "New" not in broker.parts.topics.configs

    at_a_broker(tmp_path, test)


@pytest.mark.parametrize("batch", [False, True])
def test_inner_batch_is_not_stored_as_a_message(tmp_path: Path, batch: bool) -> None:
    async def test(broker: SimulatedBroker) -> None:
        for sys_flag in (INNER_BATCH, INNER_BATCH | 0x300):
            answer = await broker.send(send_command(b"x", sys_flag=sys_flag, batch=batch))
            said = "inner batch, which needs a topic with queue.type=BatchCQ"
            refused(answer, ResponseCode.MESSAGE_ILLEGAL, said)
        queue = broker.store.find_queue("TopicTest", 0)
        assert queue is None or queue.max_offset == 0

    at_a_broker(tmp_path, test)


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            {"groupName": "g", "attributes": {"+lite.bind.topic": "TopicTest"}},
        ),
        (
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            {"groupConfigList": [{"groupName": "g", "attributes": {"+priority.factor": "1"}}]},
        ),
    ],
)
def test_attributes_of_groups_are_not_dropped(tmp_path: Path, code: int, body: dict[str, Any]) -> None:
    async def test(broker: SimulatedBroker) -> None:
        answer = await broker.call(code, body=dumps(body))
        refused(answer, ResponseCode.SYSTEM_ERROR, "attributes of groups are not supported by this broker: +")
        assert "g" not in broker.parts.groups.configs
        plain = dumps({"groupName": "g", "retryMaxTimes": 3})
        made = await broker.call(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=plain)
        assert made is not None and made.code == ResponseCode.SUCCESS

    at_a_broker(tmp_path, test)


def test_unsupported_requests_are_refused(tmp_path: Path) -> None:
    async def test(broker: SimulatedBroker) -> None:
        for code in (513, 200_052, 200_056, *range(200_070, 200_080)):
            answer = await broker.call(code, {"topic": "TopicTest", "consumerGroup": "g"})
            said = f"request type {code} not supported by this server: it "
            refused(answer, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, said)

    at_a_broker(tmp_path, test)
