"""POP at Apache's broker and at ours: the same requests, the same answers, and one directory for both."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from tests.broker.pop.bench import received
from tests.interop.apache import PATIENT, ApacheCluster
from tests.interop.pop.popping import Popper

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop
SIZES: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 500,
    "max_index_num": 2000,
}
APACHE_SIZES: Final = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
}


@pytest.fixture(params=["apache", "ours"])
def address(request: pytest.FixtureRequest) -> str:
    """The address of either broker."""
    cluster: ApacheCluster | LocalCluster = request.getfixturevalue(request.param)
    return cluster.broker_address if isinstance(cluster, LocalCluster) else cluster.broker.address


@pytest.mark.proves("broker:13.1", "broker:13.3", "broker:13.5", "broker:13.6", "broker:13.7")
def test_one_script(address: str, name: str) -> None:
    popper = Popper(address, name, f"{name}_g")
    popper.create_topic(1)
    nothing = popper.pop_answer()
    assert (nothing.code, nothing.ext["startOffsetInfo"], nothing.ext["msgOffsetInfo"]) == (210, "", "")
    assert nothing.ext["restNum"] == "0" and nothing.remark == "NO_MESSAGE_IN_QUEUE"
    popper.send(b"0", b"1", b"2", b"3", b"4", TAGS="A")
    answer = popper.pop_answer(maxMsgNums=4, invisibleTime=6_000)
    assert (answer.code, answer.remark, answer.ext["invisibleTime"]) == (0, "FOUND", "6000")
    assert (answer.ext["startOffsetInfo"], answer.ext["msgOffsetInfo"]) == ("0 0 0", "0 0 0,1,2,3")
    assert answer.ext["restNum"] == "1" and "orderCountInfo" not in answer.ext
    messages = received(answer)
    assert [one.body for one in messages] == [b"0", b"1", b"2", b"3"]
    assert popper.ack(messages[0]).code == 0
    assert popper.batch_ack(messages[0], [1]).code == 0
    changed = popper.change(messages[2], 12_000)
    assert changed.code == 0 and changed.ext["invisibleTime"] == "12000"
    assert changed.ext["reviveQid"] == str(messages[2].receipt.revive_queue)
    assert [one.body for one in popper.pop(invisibleTime=60_000)] == [b"4"]
    (again,) = popper.pop_until(1)
    assert again.body == b"3" and again.record.reconsume_times == 1
    assert again.record.topic == popper.topic and again.receipt.flag == "1"
    assert again.own["1ST_POP_TIME"] == str(messages[3].receipt.pop_time) and again.own["TAGS"] == "A"
    assert popper.ack(again).code == 0
    (late,) = popper.pop_until(1)
    assert late.body == b"2" and late.record.reconsume_times == 1


@pytest.mark.proves("broker:13.1", "broker:13.5", "broker:13.6")
def test_one_list_of_refusals(address: str, name: str) -> None:
    popper = Popper(address, name, f"{name}_g")
    popper.create_topic(2)
    popper.send(b"0")
    (one,) = popper.pop(invisibleTime=60_000)
    codes = {
        "unknown topic": popper.pop_answer(topic="Nowhere").code,
        "too many": popper.pop_answer(maxMsgNums=33).code,
        "no such queue": popper.pop_answer(queueId=2).code,
        "bad expression": popper.pop_answer(exp="a ==", expType="SQL92").code,
        "too late": popper.pop_answer(bornTime=1).code,
        "ack of an unknown topic": popper.ack(one, topic="Nowhere").code,
        "ack of an unknown queue": popper.ack(one, queueId=9).code,
        "ack beyond the end": popper.ack(one, offset=99).code,
        "change beyond the end": popper.change(one, 1000, offset=1).code,
        "change in an unknown queue": popper.change(one, 1000, queueId=9).code,
        "no batch": popper.ask(RequestCode.BATCH_ACK_MESSAGE).code,
        "illegal receipt": popper.ack(one, extraInfo="1 2").code,
        "notification of an unknown topic": popper.ask(
            RequestCode.NOTIFICATION,
            consumerGroup=popper.group,
            topic="Nowhere",
            queueId=-1,
            pollTime=0,
            bornTime=0,
        ).code,
    }
    assert codes == {
        "unknown topic": 17,
        "too many": 29,
        "no such queue": 29,
        "bad expression": 23,
        "too late": 210,
        "ack of an unknown topic": 17,
        "ack of an unknown queue": 13,
        "ack beyond the end": 208,
        "change beyond the end": 208,
        "change in an unknown queue": 13,
        "no batch": 208,
        "illegal receipt": 1,
        "notification of an unknown topic": 17,
    }
    named = {"consumerGroup": popper.group, "topic": popper.topic, "queueId": -1}
    told = popper.ask(RequestCode.NOTIFICATION, **named, pollTime=0, bornTime=0)
    assert (told.code, told.ext) == (0, {"hasMsg": "false", "pollingFull": "false"})
    told = popper.ask(RequestCode.POLLING_INFO, **named)
    assert (told.code, told.ext) == (0, {"pollingNum": "0"})


@pytest.mark.proves("broker:13.8")
def test_one_script_in_order(address: str, name: str) -> None:
    popper = Popper(address, name, f"{name}_g")
    popper.create_topic(1)
    popper.send(b"0", b"1", b"2")
    answer = popper.pop_answer(order="true", maxMsgNums=2, invisibleTime=3_000, attemptId="a")
    assert (answer.ext["reviveQid"], answer.ext["orderCountInfo"]) == ("999", "0 0 0")
    first, second = received(answer)
    assert popper.pop(order="true") == []
    again = popper.pop_answer(order="true", maxMsgNums=2, invisibleTime=3_000, attemptId="a")
    assert (again.ext["msgOffsetInfo"], again.ext["orderCountInfo"]) == ("0 0 0,1", "0 0 0")
    first, second = received(again)
    assert popper.ack(first, offset=2).code == 13
    assert popper.ack(first).code == 0
    assert popper.pop(order="true") == []
    (third, _) = popper.pop_until(2, order="true", maxMsgNums=2, invisibleTime=60_000)
    assert third.body == b"1" and popper.ack(second).code == 0
    assert popper.pop(order="true") == []
    answer = popper.change(third, 1_000)
    assert answer.code == 0 and answer.ext["popTime"] == str(third.receipt.pop_time)


@pytest.mark.proves("broker:13.4", "broker:13.7")
def test_a_directory_changes_while_messages_are_out(name: str, tmp_path: Path) -> None:
    """Ours hands out, Apache's makes visible again and hands out, ours does so again."""
    store = tmp_path / "store"
    with LocalCluster(store, **SIZES) as cluster:
        popper = Popper(cluster.broker_address, name, f"{name}_g")
        popper.create_topic(1)
        popper.send(b"0", b"1", b"2", b"3")
        first = popper.pop(maxMsgNums=3, invisibleTime=8_000)
        popper.ack(first[1])
    settings = {**PATIENT, **APACHE_SIZES, "storePathRootDir": str(store)}
    settings["storePathCommitLog"] = str(store / "commitlog")
    with ApacheCluster(tmp_path / "apache", settings=settings) as apache:
        popper.address = apache.broker.address
        assert [one.body for one in popper.pop(maxMsgNums=1, invisibleTime=200_000)] == [b"3"]
        back = popper.pop_until(2, 90.0, invisibleTime=30_000)
        assert sorted(one.body for one in back) == [b"0", b"2"]
        assert {one.record.reconsume_times for one in back} == {1}
        kept = next(one for one in back if one.body == b"0")
        assert popper.ack(kept).code == 0
        apache.broker.stop()
    with LocalCluster(store, **SIZES) as cluster:
        popper.address = cluster.broker_address
        came = popper.pop_until(1, 90.0)
        assert [(one.body, one.record.reconsume_times) for one in came] == [(b"2", 2)]
        (last,) = came
        assert popper.ack(last).code == 0 and popper.pop() == []
