from __future__ import annotations

import base64

import pytest
from tests.client.fake import FakeCluster, answer
from tests.client.producing import flow
from tests.support import about

from sparrowmq.client.producer.producer import Producer
from sparrowmq.client.producer.recall import RecallHandle, parse_handle
from sparrowmq.core.errors import BrokerError, ClientError, InvalidNameError
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command

RECALL = int(RequestCode.RECALL_MESSAGE)


def handle_of(text: str = "v1 T broker-b 1700000000000 KEY") -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.proves("client:B-106")
def test_handle_contains_topic_broker_time_and_id() -> None:
    assert parse_handle(handle_of()) == RecallHandle("T", "broker-b", 1_700_000_000_000, "KEY")


@pytest.mark.proves("client:B-107")
@pytest.mark.parametrize(
    "handle",
    [
        "",
        "@@@",
        "é",
        handle_of("v2 T b 1 K"),
        handle_of("v1 T b 1"),
        handle_of("v1 T b x K"),
        handle_of()[:-3],
    ],
)
def test_invalid_handle_is_refused(handle: str) -> None:
    with pytest.raises(ClientError, check=about(what="handle", value=handle)):
        parse_handle(handle)


@pytest.mark.proves("client:B-107", "client:B-68")
def test_recall_goes_to_the_broker_of_the_handle_or_to_any() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        def recalled(conn: object, command: Command) -> Command:
            return answer(ext={"msgId": "KEY"})

        for broker in cluster.brokers.values():
            broker.learn(RECALL, recalled)
        assert await producer.recall("T", handle_of()) == "KEY"
        (asked,) = cluster.brokers["broker-b"].requests(RECALL)
        assert asked.ext == {
            "topic": "T",
            "recallHandle": handle_of(),
            "producerGroup": "g",
            "bname": "broker-b",
        }
        await producer.recall("T", handle_of("v1 T gone 1 K"))
        assert sum(len(broker.requests(RECALL)) for broker in cluster.brokers.values()) == 2
        for name in ("%RETRY%g", "%DLQ%g"):
            with pytest.raises(InvalidNameError, check=about(what="topic", value=name)):
                await producer.recall(name, handle_of())
        with pytest.raises(ClientError, check=about(what="broker", value="broker-x")):
            await producer.recall("Nowhere", handle_of("v1 T broker-x 1 K"))
        cluster.brokers["broker-b"].on[RECALL] = lambda conn, c: answer(604, remark="too late")
        with pytest.raises(BrokerError, check=about(code=604, remark="too late")):
            await producer.recall("T", handle_of())

    flow(test, brokers=2)
