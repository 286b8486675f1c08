"""Replies: pushed to the requester, stored, answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import STORE_HOST, Rig, connection
from tests.protocol import recorded
from tests.support import run

from sparrowmq.broker.tables.clients import ConnectedMember
from sparrowmq.core.errors import ConnectionLostError, RequestTimeoutError, StoreFullError
from sparrowmq.core.ids import offset_message_id
from sparrowmq.protocol import properties
from sparrowmq.protocol.call_headers import ReplyMessageRequest
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.headers import SendMessageRequest, from_ext, send_v2_to_ext, to_ext

TOPIC = "DefaultCluster_REPLY_TOPIC"
OWN = {
    "MSG_TYPE": "reply",
    "REPLY_TO_CLIENT": "asker",
    "CORRELATION_ID": "c-1",
    "TTL": "8000",
    "UNIQ_KEY": "AB",
}


class Desk:
    """A rig with replies and one client that sent a request."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.rig = Rig(root, **settings)
        rig = self.rig
        self.parts = rig.parts.exchange.replies
        self.asker = connection(40_001)
        self.asker.answer = Command(ResponseCode.SUCCESS, 0, FLAG_RESPONSE)
        rig.clients.add_producer("askers", self.asker, ConnectedMember("asker", "JAVA", 1, 0.0))

    def reply(self, *, v2: bool = True, body: bytes = b"answer", own: Any = OWN, **changes: Any) -> Command:
        fields: dict[str, Any] = {
            "producer_group": "answerers",
            "topic": TOPIC,
            "default_topic": "TBW102",
            "default_topic_queue_nums": 4,
            "queue_id": 0,
            "sys_flag": 0,
            "born_timestamp": 1_700_000_000_000,
            "flag": 3,
            "properties": properties.encode(own).decode(),
        }
        request = SendMessageRequest(**(fields | changes))
        code = RequestCode.SEND_REPLY_MESSAGE_V2 if v2 else RequestCode.SEND_REPLY_MESSAGE
        ext = send_v2_to_ext(request) if v2 else to_ext(request)
        return run(self.parts.handle(connection(40_002), Command(code, 7, ext=ext, body=body)))

    @property
    def stored(self) -> list[Any]:
        return self.rig.inner.scan(TOPIC, 0, 0, 100, 1 << 20).records


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.rig.close()


@pytest.mark.proves("broker:6.7", "client:B-96", "client:B-95")
@pytest.mark.parametrize("v2", [True, False])
def test_reply_is_pushed_to_the_requester_and_stored(desk: Desk, v2: bool) -> None:
    answer = desk.reply(v2=v2)
    (push,) = desk.asker.calls
    header = from_ext(ReplyMessageRequest, push.ext)
    assert (push.code, push.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"answer")
    assert (header.producer_group, header.topic, header.queue_id, header.flag) == ("answerers", TOPIC, 0, 3)
    assert (header.born_host, header.store_host) == ("127.0.0.1:40002", "127.0.0.1:10911")
    assert header.store_timestamp == desk.rig.clock.ms
    own = properties.decode((header.properties or "").encode())
    added = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert own == OWN | added | {"PUSH_REPLY_TIME": str(desk.rig.clock.ms)}
    (kept,) = desk.stored
    assert properties.decode(kept.properties) == OWN | added | {"CLUSTER": "DefaultCluster"}
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext == added | {
        "msgId": offset_message_id(STORE_HOST, kept.physical_offset),
        "queueId": "0",
        "queueOffset": "0",
    }


@pytest.mark.proves("broker:6.7")
def test_recorded_pushes_have_our_fields(desk: Desk) -> None:
    desk.reply()
    (push,) = desk.asker.calls
    for exchange, request in recorded.requests(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT):
        assert set(request.ext) == set(push.ext), exchange
        recorded_own = properties.decode(request.ext["properties"].encode())
        assert set(recorded_own) == set(properties.decode(push.ext["properties"].encode()))


@pytest.mark.proves("broker:6.7")
@pytest.mark.parametrize("own", [OWN | {"REPLY_TO_CLIENT": "gone"}, {"UNIQ_KEY": "AB"}])
def test_reply_without_a_waiting_request_is_an_error_but_is_stored(desk: Desk, own: Any) -> None:
    answer = desk.reply(own=own)
    assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark
    assert len(desk.stored) == 1 and int(answer.ext["queueOffset"]) == 0


@pytest.mark.parametrize(
    "told",
    [
        Command(ResponseCode.SYSTEM_ERROR, 0, FLAG_RESPONSE, remark="unknown id"),
        RequestTimeoutError("no answer"),
        ConnectionLostError("it closed"),
    ],
)
def test_failed_push_is_reported_to_the_replier(desk: Desk, told: Any) -> None:
    desk.asker.answer = told
    answer = desk.reply()
    assert answer.code == ResponseCode.SYSTEM_ERROR and "asker" in (answer.remark or "")
    assert len(desk.stored) == 1


@pytest.mark.proves("broker:6.7")
def test_replies_are_not_stored_when_disabled(tmp_path: Path) -> None:
    desk = Desk(tmp_path, store_reply_message_enable=False)
    answer = desk.reply()
    assert (answer.code, answer.ext["msgId"], answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, "0", "0")
    assert desk.stored == [] and len(desk.asker.calls) == 1
    desk.rig.close()


def test_reply_that_cannot_be_stored_is_still_pushed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(messages: object) -> None:
        raise StoreFullError("the disk is full")

    monkeypatch.setattr(desk.rig.inner, "put", full)
    answer = desk.reply()
    assert (answer.code, answer.ext["msgId"]) == (ResponseCode.SUCCESS, "0")
    assert len(desk.asker.calls) == 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "no such topic"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "Unknown_REPLY_TOPIC"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, ResponseCode.NO_PERMISSION),
        ({"topic": "SELF_TEST_TOPIC"}, ResponseCode.NO_PERMISSION),
        ({"queue_id": 5}, ResponseCode.INVALID_PARAMETER),
        ({"body": b""}, ResponseCode.MESSAGE_ILLEGAL),
        ({"body": bytes(5 << 20)}, ResponseCode.MESSAGE_ILLEGAL),
        ({"own": {"K": "v" * 32_760}}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
def test_replies_pass_the_checks_of_a_send(desk: Desk, changes: Any, code: ResponseCode) -> None:
    answer = desk.reply(**changes)
    assert answer.code == code and answer.remark
    assert answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert desk.asker.calls == [] and desk.stored == []


def test_negative_queue_lets_the_broker_choose(desk: Desk) -> None:
    assert desk.reply(queue_id=-1).ext["queueId"] == "0"
