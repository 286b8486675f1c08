"""Messages of sends on the general path: limits and refusals; `test_send_path` tests whole sends."""

from __future__ import annotations

import pytest
from tests.broker.send.plain import plain_sends, send_items
from tests.support import about

from sparrowmq.broker.send import plain_sends as plain
from sparrowmq.broker.send import send_items as items_module
from sparrowmq.broker.send.send_items import SendItems, ended
from sparrowmq.core.hashing import java_hash
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import SendMessageRequest
from sparrowmq.protocol.refusals import Refused

ADDED = b"MSG_REGION\x01DefaultRegion\x02"
OWN = b"TAGS\x01A\x02"


def items() -> SendItems:
    return send_items(ADDED)


def request(batch: bool) -> SendMessageRequest:
    return SendMessageRequest(
        producer_group="p",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=7,
        batch=batch,
    )


def test_truncated_batch_is_refused() -> None:
    body = encode_batch([(0, b"one", OWN)])[:-1]
    with pytest.raises(Refused, check=about(code=ResponseCode.MESSAGE_ILLEGAL)):
        items().of_request(Command(320, body=body), request(True), b"")


def test_broker_properties_of_a_single_message_are_removed() -> None:
    found = items().of_request(Command(310, body=b"x"), request(False), b"POP_CK\x011\x02TAGS\x01A")
    assert found == [(7, b"x", OWN, java_hash("A"))]


@pytest.mark.parametrize(
    ("body", "text", "said"),
    [
        (b"", OWN, "its body is empty"),
        (b"x" * 1001, OWN, "its body has 1001 bytes, maxMessageSize is 1000"),
        (b"x", b"a\x01" + b"b" * 32_760 + b"\x02", "the limit is 32767"),
    ],
)
@pytest.mark.parametrize("batch", [False, True])
def test_messages_beyond_a_limit_are_refused(body: bytes, text: bytes, said: str, batch: bool) -> None:
    command = Command(320, body=encode_batch([(0, body, text)]) if batch else body)
    with pytest.raises(Refused, match=said) as refused:
        items().of_request(command, request(batch), b"" if batch else text)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("own", [b"DELAY\x011\x02", b"TIMER_DELAY_SEC\x015\x02"])
@pytest.mark.parametrize("where", ["header", "message"])
def test_batch_refuses_delayed_messages(own: bytes, where: str) -> None:
    body = encode_batch([(0, b"x", OWN + (own if where == "message" else b""))])
    with pytest.raises(Refused, match="send them one by one"):
        items().of_request(Command(320, body=body), request(True), own if where == "header" else b"")


def test_whole_batch_has_a_limit() -> None:
    body = encode_batch([(0, b"x" * 900, OWN)] * 80)
    with pytest.raises(Refused, match="the limit is 66536; send fewer"):
        items().of_request(Command(320, body=body), request(True), b"")


@pytest.mark.parametrize(("text", "whole"), [(b"", b""), (b"a\x01b", b"a\x01b\x02"), (OWN, OWN)])
def test_properties_can_be_followed_by_more_data(text: bytes, whole: bytes) -> None:
    assert ended(text) == whole


def test_batch_beyond_the_limit_is_refused_before_its_messages_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading 180,000 tiny messages only to refuse them took 0.2 s."""
    found, body = items(), encode_batch([(0, b"x", OWN)] * 3000)
    for module, name in ((items_module, "decode_batch"), (plain, "decode_batch"), (plain, "decode_alike")):

        def never(_: bytes, name: str = name) -> None:
            raise AssertionError(name)

        monkeypatch.setattr(module, name, never)
    sends = plain_sends(ADDED)
    assert sends.batch("T", body) == [] and sends.alike_batch("T", body) is None
    with pytest.raises(Refused, match="the limit is 66536; send fewer"):
        found.of_request(Command(320, body=body), request(True), b"")
