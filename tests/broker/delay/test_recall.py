"""Recall handles of timed messages, and refused recalls; `test_timer` tests recalls that take effect."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from tests.broker.rig import Rig, connection

from sparrowmq.broker.delay.recall import (
    RECALL_BODY,
    RECALL_TAG,
    Handle,
    parse_handle,
    recall_handle,
)
from sparrowmq.core.names import TIMER_TOPIC
from sparrowmq.protocol import properties
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import RecallMessageRequest, to_ext


def recall(rig: Rig, handle: str, topic: str = "TopicTest") -> Command:
    request = RecallMessageRequest(topic=topic, recall_handle=handle, producer_group="p")
    command = Command(RequestCode.RECALL_MESSAGE, 5, 0, to_ext(request))
    return rig.delayed.recalls.handle(connection(), command)


def test_handle_equals_the_recorded_one() -> None:
    recorded = "djEgVGltZXI1NSBicm9rZXItYSAxNzk1MjUzMTk1MDAxIDdGMDAwMDAxNjFFRTVGRkQyQjI3NjkwNUUzM0QwMDEx"
    slot, key = 1_795_253_195_000, "7F00000161EE5FFD2B276905E33D0011"
    assert recall_handle("Timer55", "broker-a", slot, key).decode() == recorded
    assert parse_handle(recorded) == Handle("Timer55", "broker-a", slot + 1, key)


@pytest.mark.parametrize("text", ["", "@@@", "é", "bm8=", "v1 T b 1 K", "djEgVCBiIDEg/w=="])
def test_invalid_base64_is_no_handle(text: str) -> None:
    assert parse_handle(text) is None


@pytest.mark.parametrize(
    "words",
    ["", "v2 T b 1 K", "v1 T b 1", "v1 T b 1 K more", "v1 T b x K", "v1 T b -1 K",
     "v1 T b 1234567890123456789 K"],
)  # fmt: skip
def test_unknown_contents_are_no_handle(words: str) -> None:
    assert parse_handle(base64.urlsafe_b64encode(words.encode()).decode()) is None


def test_recall_is_off_unless_the_broker_allows_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "store")
    answer = recall(rig, "x", "T")
    rig.close()
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "operation is forbidden" in (answer.remark or "")
    assert "--set recallMessageEnable=true" in (answer.remark or ""), "it names the next step"


def test_recall_stores_a_marker_in_the_slot_of_its_message(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "store", recall_message_enable=True)
    rig.make_topic("TopicTest", 4)
    slot = (rig.clock.ms // 1000 + 5) * 1000
    answer = recall(rig, recall_handle("TopicTest", "broker-a", slot, "AAAA").decode())
    assert (answer.code, answer.opaque, answer.ext["msgId"]) == (0, 5, "AAAA")
    (marker,) = rig.inner.scan(TIMER_TOPIC, 0, 0, 10, 1 << 20).records
    own = properties.decode(marker.properties)
    rig.close()
    assert (marker.body, own["TAGS"], own["PGROUP"]) == (RECALL_BODY, RECALL_TAG, "p")
    assert (own["TIMER_OUT_MS"], own["TIMER_DEL_UNIQKEY"]) == (str(slot), "AAAA")


def test_recall_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "store", recall_message_enable=True)
    rig.make_topic("TopicTest", 4)
    handle = recall_handle("TopicTest", "broker-a", rig.clock.ms + 5000, "A" * 40_000).decode()
    answer = recall(rig, handle)
    rig.close()
    assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.MESSAGE_ILLEGAL)
    assert answer.remark
