"""Attributes of spans, beside RocketMQ's names."""

from __future__ import annotations

import pytest

import sparrowmq as mq
from sparrowmq.otel.attributes import consume_attributes, end_attributes, result_attributes, send_attributes

Q = mq.MessageQueue("T", "b", 0)


def received(**properties: str) -> mq.ReceivedMessage:
    return mq.ReceivedMessage(
        Q, 7, 0, "T", b"four", {"UNIQ_KEY": "M", **properties}, 0, 0, 0, "", 0, "", 2, 99, 0, "id"
    )


@pytest.mark.proves("client:B-120", "client:B-114")
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (mq.MessageType.NORMAL, "Normal_Msg"),
        (mq.MessageType.HALF, "Trans_Msg_Half"),
        (mq.MessageType.COMMIT, "Trans_msg_Commit"),
        (mq.MessageType.DELAY, "Delay_Msg"),
        (mq.MessageType.ORDER, "Order_Msg"),
    ],
)
def test_a_send_s_span(kind: mq.MessageType, name: str) -> None:
    context = mq.SendContext(
        group="g",
        mode=mq.SendMode.SYNC,
        messages=[mq.Message("T", b"x", tags="A", keys=["a", "b"])],
        message_id="M",
        queue=Q,
        address="h:1",
        client_address="c",
        message_type=kind,
        body_bytes=9,
    )
    assert send_attributes(context) == {
        "peer.service": "rocketmq",
        "message_bus.destination": "T",
        "rocketmq.tags": "A",
        "rocketmq.keys": "a b",
        "rocketmq.store_host": "h:1",
        "rocketmq.mgs_type": name,
        "rocketmq.body_length": 9,
        "messaging.system": "rocketmq",
        "messaging.destination.name": "T",
        "messaging.operation.type": "send",
        "messaging.message.body.size": 9,
        "messaging.message.id": "M",
    }


@pytest.mark.parametrize("status", list(mq.SendStatus))
def test_a_result_is_a_success_when_it_is_safe(status: mq.SendStatus) -> None:
    found = result_attributes(mq.SendResult(status, "M", "off", Q, 0))
    assert found["rocketmq.success"] is (status is mq.SendStatus.SEND_OK)
    assert (found["rocketmq.mgs_id"], found["messaging.message.id"]) == ("M", "M")


@pytest.mark.proves("client:B-120")
def test_a_consumed_message_s_span() -> None:
    context = mq.ConsumeContext(group="g", queue=Q, messages=[])
    found = consume_attributes(context, received(TAGS="A", KEYS="a b", MSG_REGION="R"))
    assert (found["rocketmq.tags"], found["rocketmq.keys"], found["rocketmq.region_id"]) == ("A", "a b", "R")
    assert (found["rocketmq.retry_times"], found["rocketmq.body_length"]) == (2, 4)
    assert found["messaging.consumer.group.name"] == "g"
    bare = consume_attributes(context, received())
    assert not {"rocketmq.tags", "rocketmq.keys", "rocketmq.region_id"} & set(bare), "absent, not empty"


@pytest.mark.proves("client:B-120")
@pytest.mark.parametrize("message", [mq.Message("T", b"", keys="a"), received(KEYS="a")])
def test_an_end_of_a_transaction(message: mq.Message | mq.ReceivedMessage) -> None:
    context = mq.EndTransactionContext(
        group="g",
        message=message,
        message_id="M",
        transaction_id="X",
        address="h:1",
        state="ROLLBACK_MESSAGE",
        from_check=True,
    )
    found = end_attributes(context)
    assert found["rocketmq.transaction_id"] == "X" and found["rocketmq.keys"] == "a"
    assert found["rocketmq.transaction_state"] == "ROLLBACK_MESSAGE"
    assert found["rocketmq.is_from_transaction_check"] is True
