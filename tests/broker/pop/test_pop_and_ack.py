"""Pops, acknowledgements, and repeated deliveries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.broker.pop.bench import GROUP, T0, TOPIC, PopBench
from tests.broker.rig import pull_ext, send_command
from tests.support import run, until

from sparrowmq.broker.pop import pop_path
from sparrowmq.broker.pop.waiting import WAITING_OF_KEY_MAX
from sparrowmq.core.errors import StoreFullError
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import BrokerConsumeStats, ConsumerData, ConsumeStats, HeartbeatData
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.pop.receipts import pop_retry_topic
from sparrowmq.protocol.pop.records import BatchAck, BatchAckBody, bits_of
from sparrowmq.protocol.record import decode_records


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[PopBench]:
    bench = PopBench(tmp_path)
    yield bench
    bench.close()


def test_popped_message_is_invisible_to_other_members(bench: PopBench) -> None:
    bench.send(b"1", b"2", b"3")
    popped = bench.pop(maxMsgNums=2)
    assert [one.body for one in popped] == [b"1", b"2"]
    assert [one.body for one in bench.pop()] == [b"3"]
    assert bench.pop() == [] and bench.committed() == 3
    receipt = popped[1].receipt
    assert (receipt.start_offset, receipt.offset, receipt.pop_time, receipt.invisible_time) == (
        0,
        1,
        T0,
        60_000,
    )
    assert receipt.broker_name == "broker-a" and receipt.queue_id == 0 and receipt.flag == "0"


def test_unacknowledged_message_comes_again(bench: PopBench) -> None:
    bench.send(b"1", b"2", b"3", TAGS="A")
    bench.ack(bench.pop(invisibleTime=10_000)[1])
    bench.after(9_900)
    assert bench.pop() == []
    bench.after(200)
    again = bench.pop(invisibleTime=10_000)
    assert sorted(one.body for one in again) == [b"1", b"3"]
    assert {message.record.topic for message in again} == {TOPIC}, "under the name that the client knows"
    assert {message.receipt.flag for message in again} == {"1"}
    assert {message.record.reconsume_times for message in again} == {1}
    assert again[0].own["1ST_POP_TIME"] == str(T0) and again[0].own["TAGS"] == "A"
    assert again[0].real_topic == pop_retry_topic(GROUP, TOPIC)
    bench.ack(*again)
    bench.after(60_000)
    assert bench.pop() == []


def test_second_retry_comes_from_the_same_topic(bench: PopBench) -> None:
    bench.send(b"1")
    bench.pop(invisibleTime=5_000)
    bench.after(5_100)
    (second,) = bench.pop(invisibleTime=5_000)
    bench.after(5_100)
    (third,) = bench.pop(invisibleTime=5_000)
    assert (second.record.reconsume_times, third.record.reconsume_times) == (1, 2)
    assert third.own["1ST_POP_TIME"] == str(T0) and third.real_topic == second.real_topic


def test_acknowledgement_counts_until_the_last_millisecond(bench: PopBench) -> None:
    bench.send(b"1")
    (one,) = bench.pop(invisibleTime=5_000)
    bench.after(4_999)
    bench.ack(one)
    bench.after(10_000)
    assert bench.pop() == []


def test_unknown_topics_and_groups_are_refused(bench: PopBench) -> None:
    for fields, code in (
        ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"maxMsgNums": 33}, ResponseCode.INVALID_PARAMETER),
        ({"maxMsgNums": 0}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": 1}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": 0}, ResponseCode.INVALID_PARAMETER),
        ({"exp": "a ==", "expType": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"bornTime": T0 - 10_000}, ResponseCode.POLLING_TIMEOUT),
    ):
        answer = bench.pop_answer(**fields)
        assert answer is not None and answer.code == code, fields
        assert answer.ext["popTime"] == "0" and answer.ext["restNum"] == "0"


def test_forged_receipt_handles_change_nothing(bench: PopBench) -> None:
    bench.send(b"1")
    (one,) = bench.pop(invisibleTime=5_000)
    for fields, code in (
        ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 4}, ResponseCode.MESSAGE_ILLEGAL),
        ({"offset": 7}, ResponseCode.NO_MESSAGE),
        ({"extraInfo": "1 2 3"}, ResponseCode.SYSTEM_ERROR),
        ({"extraInfo": "x 2 3 0 0 broker-a 0 0"}, ResponseCode.SYSTEM_ERROR),
        ({"extraInfo": one.receipt._replace(revive_queue=77).encode()}, ResponseCode.MESSAGE_ILLEGAL),
        ({"extraInfo": one.receipt._replace(pop_time=5).encode()}, ResponseCode.SUCCESS),
        ({"consumerGroup": "other"}, ResponseCode.SUCCESS),
    ):
        assert bench.ack_answer(one, **fields).code == code, fields
    bench.after(6_000)
    assert [message.body for message in bench.pop()] == [b"1"]


def test_request_waits_for_a_message(bench: PopBench) -> None:
    assert bench.pop_answer(pollTime=5_000) is None
    info = bench.ask(RequestCode.POLLING_INFO, consumerGroup=GROUP, topic=TOPIC, queueId=-1)
    assert info is not None and info.ext["pollingNum"] == "1"
    bench.send(b"1")
    (answer,) = bench.client.answers()
    assert answer.code == ResponseCode.SUCCESS and answer.ext["msgOffsetInfo"] == "0 0 0"
    assert bench.client.charged == 0


def test_waiting_request_is_answered_at_its_timeout(bench: PopBench) -> None:
    assert bench.pop_answer(pollTime=5_000) is None
    bench.rig.clock.ms += 4_999
    bench.rig.parts.waiting_pops.look()
    assert not bench.client.answers()
    bench.rig.clock.ms += 1
    bench.rig.parts.waiting_pops.look()
    (answer,) = bench.client.answers()
    assert answer.code == ResponseCode.POLLING_TIMEOUT
    assert answer.ext["startOffsetInfo"] == "" and answer.ext["msgOffsetInfo"] == ""


def test_invisible_time_is_changed(bench: PopBench) -> None:
    bench.send(b"1", b"2")
    one, two = bench.pop(invisibleTime=3_000)
    answer = bench.change(one, 10_000)
    assert answer.code == ResponseCode.SUCCESS and answer.ext["invisibleTime"] == "10000"
    bench.ack(two)
    bench.after(9_999)
    assert bench.pop() == []
    bench.after(200)
    assert [message.body for message in bench.pop()] == [b"1"]


def test_new_receipt_handle_after_a_change_acknowledges(bench: PopBench) -> None:
    bench.send(b"1")
    (one,) = bench.pop(invisibleTime=3_000)
    bench.rig.clock.ms += 1_000
    ext = bench.change(one, 5_000).ext
    receipt = one.receipt._replace(
        start_offset=one.receipt.offset,
        pop_time=int(ext["popTime"]),
        invisible_time=int(ext["invisibleTime"]),
        revive_queue=int(ext["reviveQid"]),
    )
    assert receipt.pop_time == T0 + 1_000
    bench.ack(one._replace(receipt=receipt))
    bench.after(10_000)
    assert bench.pop() == []


def test_change_in_the_millisecond_of_the_pop_is_safe(bench: PopBench) -> None:
    """The key of a check point contains the time: the new one must not replace that of the whole pop."""
    bench.send(b"1", b"2", b"3")
    first, second, _third = bench.pop(invisibleTime=2_000)
    answer = bench.change(first, 4_000)
    assert answer.ext["popTime"] == str(bench.now + 1)
    bench.ack(second)
    bench.after(3_000)
    assert [one.body for one in bench.pop()] == [b"3"]
    bench.after(2_000)
    assert [one.body for one in bench.pop()] == [b"1"]


def test_message_can_become_visible_at_once(bench: PopBench) -> None:
    bench.send(b"1")
    (one,) = bench.pop(invisibleTime=60_000)
    assert bench.change(one, 0).code == ResponseCode.SUCCESS
    bench.after(1)
    assert [message.body for message in bench.pop()] == [b"1"]


def test_acknowledgements_are_batched(bench: PopBench) -> None:
    bench.send(b"1", b"2", b"3")
    one, two, three = bench.pop(invisibleTime=3_000)
    batch = BatchAck(
        bits=bits_of([one.receipt.offset, three.receipt.offset, 900], 0),
        group=GROUP,
        invisible_time=3_000,
        pop_time=two.receipt.pop_time,
        queue_id=0,
        flag="0",
        revive_queue=two.receipt.revive_queue,
        start_offset=0,
        topic=TOPIC,
    )
    answer = bench.ask(RequestCode.BATCH_ACK_MESSAGE, BatchAckBody([batch], "broker-a").encode())
    assert answer is not None and answer.code == ResponseCode.SUCCESS
    bench.after(4_000)
    assert [message.body for message in bench.pop()] == [b"2"]
    for body in (b"", b'{"acks":[],"brokerName":"broker-a"}'):
        answer = bench.ask(RequestCode.BATCH_ACK_MESSAGE, body)
        assert answer is not None and answer.code == ResponseCode.NO_MESSAGE


def test_batch_with_more_messages_than_its_check_point_is_refused(bench: PopBench) -> None:
    """A body may contain hundreds of batches: 4096 bits in each would block the loop for a second."""
    batch = BatchAck(
        bits=bits_of(range(33), 0),
        group=GROUP,
        invisible_time=3_000,
        pop_time=1,
        queue_id=0,
        flag="0",
        revive_queue=0,
        start_offset=0,
        topic=TOPIC,
    )
    answer = bench.ask(RequestCode.BATCH_ACK_MESSAGE, BatchAckBody([batch], "broker-a").encode())
    assert answer is not None and answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "the bit set has 33 messages, and a check point at most 32"


def test_filters_select_messages(bench: PopBench) -> None:
    bench.send(b"1", TAGS="A", size="3")
    bench.send(b"2", TAGS="B", size="5")
    bench.send(b"3", TAGS="A", size="7")
    assert [one.body for one in bench.pop(exp="A", expType="TAG", invisibleTime=2_000)] == [b"1", b"3"]
    assert bench.committed() == 3
    bench.after(2_500)
    found = bench.pop(exp="size > 4", expType="SQL92")
    assert [one.body for one in found] == [b"3"], "retries are filtered, too"
    bench.send(b"4", TAGS="B")
    assert bench.pop(exp="A", expType="TAG") == [] and bench.committed() == 4


def test_reset_offset_applies_to_the_next_pop(bench: PopBench) -> None:
    bench.send(b"1", b"2", b"3")
    assert len(bench.pop(invisibleTime=2_000)) == 3
    bench.rig.offsets.reset(TOPIC, GROUP, 0, 1)
    assert [one.body for one in bench.pop()] == [b"2", b"3"]
    assert bench.committed() == 3


def test_new_group_begins_where_the_request_says(tmp_path: Path) -> None:
    bench = PopBench(tmp_path, access_message_in_memory_max_ratio=0)
    bench.send(b"1", b"2", b"3")
    assert [one.body for one in bench.pop(consumerGroup="last", initMode=1)] == [b"3"]
    assert [one.body for one in bench.pop(consumerGroup="first", initMode=0)] == [b"1", b"2", b"3"]
    bench.close()


def test_all_queues_are_read_and_the_rest_is_reported(tmp_path: Path) -> None:
    bench = PopBench(tmp_path, queues=3)
    for queue_id in range(3):
        bench.send(b"a", b"b", queue_id=queue_id)
    answer = bench.pop_answer(maxMsgNums=4)
    assert answer is not None and answer.ext["restNum"] == "2"
    assert len(answer.ext["startOffsetInfo"].split(";")) == 2
    assert len(bench.pop()) == 2
    bench.close()


def test_second_format_of_retry_topics_is_read(tmp_path: Path) -> None:
    bench = PopBench(tmp_path, enable_retry_topic_v2=True, retrieve_message_from_pop_retry_topic_v1=False)
    bench.send(b"1")
    bench.pop(invisibleTime=2_000)
    bench.after(2_500)
    (one,) = bench.pop(invisibleTime=2_000)
    assert one.receipt.flag == "2" and one.real_topic == "%RETRY%g+TopicTest"
    bench.ack(one)
    bench.after(5_000)
    assert bench.pop() == []
    bench.close()


def test_notifications_are_sent(bench: PopBench) -> None:
    ask = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": -1, "pollTime": 0}
    told = bench.ask(RequestCode.NOTIFICATION, **ask)
    assert told is not None and told.ext == {"hasMsg": "false", "pollingFull": "false"}
    assert bench.ask(RequestCode.NOTIFICATION, **(ask | {"pollTime": 5_000})) is None
    bench.send(b"1")
    (told,) = bench.client.answers()
    assert told.ext["hasMsg"] == "true"
    bench.pop(invisibleTime=2_000)
    assert bench.ask(RequestCode.NOTIFICATION, **(ask | {"pollTime": 5_000})) is None
    bench.after(2_500)
    (told,) = bench.client.answers()
    assert told.ext["hasMsg"] == "true", "the retry topic has one"
    bench.pop()
    assert bench.ask(RequestCode.NOTIFICATION, **(ask | {"pollTime": 5_000})) is None
    bench.rig.clock.ms += 5_000
    bench.rig.parts.waiting_pops.look()
    (told,) = bench.client.answers()
    assert told.ext["hasMsg"] == "false"


def test_number_of_waiting_requests_is_limited(bench: PopBench) -> None:
    for _ in range(WAITING_OF_KEY_MAX):
        assert bench.pop_answer(pollTime=5_000) is None
    answer = bench.pop_answer(pollTime=5_000)
    assert answer is not None and answer.code == ResponseCode.POLLING_FULL
    bench.rig.parts.waiting_pops.drop_connection(bench.client)
    assert bench.client.charged == 0 and bench.rig.parts.waiting_pops.pops.count == 0


def test_full_disk_delivers_nothing(bench: PopBench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.send(b"1")

    def full(messages: object) -> None:
        raise StoreFullError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(bench.rig.inner, "put", full)
        answer = bench.pop_answer()
        assert answer is not None and answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert [one.body for one in bench.pop()] == [b"1"]


def test_deleted_message_does_not_come_again(bench: PopBench) -> None:
    bench.send(b"1")
    bench.pop(invisibleTime=2_000)
    bench.rig.store.delete_topic(TOPIC)
    bench.rig.topics.close(TOPIC)
    bench.after(5_000)
    assert bench.pop() == [] and bench.rig.parts.pop.reviver is not None
    assert bench.rig.parts.pop.reviver.waiting == 0


@pytest.mark.parametrize("is_changed", [False, True])
def test_check_point_of_a_deleted_topic_brings_nothing_of_the_next_one_back(
    bench: PopBench, is_changed: bool
) -> None:
    bench.send(b"1", b"2")
    first, _ = bench.pop(invisibleTime=5000)
    if is_changed:
        assert bench.change(first, 6000).code == ResponseCode.SUCCESS
    bench.make_again()
    bench.send(b"3", b"4")
    bench.ack(*bench.pop(invisibleTime=20_000))
    bench.after(8000)
    assert bench.pop() == []


@pytest.mark.parametrize("is_there", [True, False])
def test_pop_of_a_topic_that_is_deleted_meanwhile_changes_nothing_of_the_next_one(
    bench: PopBench, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A POP reads over several turns of the loop."""
    bench.send(b"1", b"2")
    pops: list[Iterator[None]] = []
    with monkeypatch.context() as patch:
        patch.setattr(pop_path, "shared", lambda: SimpleNamespace(run=pops.append))
        assert bench.pop_answer() is None
    next(pops[0])
    if is_there:
        bench.make_again()
        bench.send(b"3", b"4")
    else:
        run(bench.rig.topics.delete(TOPIC))
    assert list(pops[0]) == []
    (answer,) = bench.client.answers()
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST and "was deleted while" in (answer.remark or "")
    if is_there:
        assert [one.body for one in bench.pop()] == [b"3", b"4"]


@pytest.mark.parametrize("of_retries", [False, True])
def test_pop_of_a_queue_that_is_deleted_meanwhile_changes_nothing_of_the_next_one(
    bench: PopBench, of_retries: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expired queues of a topic are deleted without the topic, and so is a group's retry topic."""
    bench.send(b"1", b"2")
    topic = pop_retry_topic(GROUP, TOPIC) if of_retries else TOPIC
    if of_retries:
        bench.pop(invisibleTime=10_000)
        bench.after(10_100)
    pops: list[Iterator[None]] = []
    with monkeypatch.context() as patch:
        patch.setattr(pop_path, "shared", lambda: SimpleNamespace(run=pops.append))
        assert bench.pop_answer() is None
    for _ in range(2 if of_retries else 1):
        next(pops[0])
    bench.rig.store.delete_topic(topic)
    bench.rig.topics.close(topic)
    bench.rig.offsets.forget_topic(topic)
    for _ in pops[0]:
        """It reads on, and looks again before it commits."""
    (answer,) = bench.client.answers()
    assert answer.code == ResponseCode.SYSTEM_BUSY and "was deleted while" in (answer.remark or "")
    assert bench.committed(topic) is None
    if not of_retries:
        bench.send(b"3", b"4")
        assert [one.body for one in bench.pop()] == [b"3", b"4"]


def test_with_sync_flush_an_acknowledgement_is_answered_after_the_flush(tmp_path: Path) -> None:
    async def main() -> None:
        bench = PopBench(tmp_path, flush_disk_type="SYNC_FLUSH")
        bench.rig.flusher.start()
        command = send_command(b"1", properties="UNIQ_KEY\x01A\x02")
        bench.rig.sending.handle(bench.client, command)
        await until(bench.client.answers)
        (one,) = bench.pop(invisibleTime=2_000)
        ext = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": "0",
            "extraInfo": one.receipt.encode(),
            "offset": "0",
        }
        position = bench.rig.store.flushed_position
        answer = bench.rig.parts.handlers[RequestCode.ACK_MESSAGE](
            bench.client, Command(RequestCode.ACK_MESSAGE, 1, 0, ext)
        )
        told = await answer
        assert told.code == ResponseCode.SUCCESS and bench.rig.store.flushed_position > position
        await bench.rig.flusher.close()
        bench.close()

    run(main())


def test_popped_messages_are_counted_like_pulled_ones(bench: PopBench) -> None:
    bench.send(b"1", b"2", b"3")
    bench.pop(maxMsgNums=2)
    stats = bench.rig.parts.upkeep.stats
    list(stats.collecting())
    (queue,) = (one for one in bench.rig.store.all_queues() if one.topic == TOPIC and one.queue_id == 0)
    assert stats.pulled(queue, GROUP) == 2
    assert stats.items()["GROUP_GET_NUMS", f"{TOPIC}@{GROUP}"].value == 2


def test_pulls_and_pops_of_one_group_are_allowed_and_share_its_offset(bench: PopBench) -> None:
    """As in RocketMQ's broker, which does not check this either."""
    bench.send(b"1", b"2", b"3")
    (one,) = bench.pop(maxMsgNums=1)
    place = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    pulled = bench.ask(RequestCode.PULL_MESSAGE, **pull_ext(queueOffset=0, consumerGroup=GROUP, topic=TOPIC))
    assert pulled is not None and pulled.code == ResponseCode.SUCCESS
    assert [record.body for record in decode_records(pulled.body)] == [b"1", b"2", b"3"]
    moved = bench.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **place, commitOffset=2)
    assert moved is not None and moved.code == ResponseCode.SUCCESS
    assert [found.body for found in bench.pop()] == [b"3"]
    bench.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **place, commitOffset=0)
    assert [found.body for found in bench.pop()] == [b"1", b"2", b"3"]
    bench.ack(one)


def progress(bench: PopBench, topic: str = TOPIC) -> tuple[int, int, int]:
    """Broker offset, consumer offset and pull offset, as `consumerProgress` shows them."""
    told = bench.ask(RequestCode.GET_CONSUME_STATS, consumerGroup=GROUP, topic=topic)
    assert told is not None and told.code == ResponseCode.SUCCESS
    (row,) = ConsumeStats.decode(told.body).offset_table.values()
    return row.broker_offset, row.consumer_offset, row.pull_offset


def of_broker(bench: PopBench) -> dict[str, tuple[int, int, int]]:
    """The same for every topic of the group, as `brokerConsumeStats` shows them."""
    told = bench.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
    assert told is not None and told.code == ResponseCode.SUCCESS
    return {
        queue.topic: (row.broker_offset, row.consumer_offset, row.pull_offset)
        for table in BrokerConsumeStats.decode(told.body).groups[GROUP]
        for queue, row in table.offset_table.items()
    }


def test_progress_includes_invisible_messages_until_they_are_acknowledged(bench: PopBench) -> None:
    bench.send(b"1", b"2", b"3")
    one, two = bench.pop(maxMsgNums=2)
    assert progress(bench) == of_broker(bench)[TOPIC] == (3, 0, 2), "three wait, two of them in flight"
    bench.ack(one)
    assert progress(bench) == of_broker(bench)[TOPIC] == (3, 1, 2)
    changed = bench.change(two, 30_000)
    assert changed.code == ResponseCode.SUCCESS and progress(bench) == (3, 1, 2)
    bench.after(31_000)
    retry = pop_retry_topic(GROUP, TOPIC)
    assert progress(bench) == (3, 2, 2), "what came back waits in the retry topic"
    (again,) = (each for each in bench.pop() if each.body == b"2")
    assert progress(bench, retry) == of_broker(bench)[retry] == (1, 0, 1)
    bench.ack(again)
    assert progress(bench, retry) == (1, 1, 1)


def test_progress_of_ordered_pops_shows_them_in_flight(bench: PopBench) -> None:
    bench.send(b"1", b"2", b"3")
    one, _ = bench.pop(maxMsgNums=2, order="true")
    assert progress(bench) == (3, 0, 2)
    bench.ack(one)
    assert progress(bench) == (3, 1, 2)
    bench.after(61_000)
    assert progress(bench) == (3, 1, 1), "it is visible again"


def test_reset_clears_messages_in_flight(bench: PopBench) -> None:
    bench.send(b"1", b"2", b"3")
    bench.pop()
    assert progress(bench) == (3, 0, 3)
    assert bench.rig.offsets.reset(TOPIC, GROUP, 0, 1)
    assert [each.body for each in bench.pop(maxMsgNums=1)] == [b"2"]
    assert progress(bench) == (3, 1, 2)


def test_popping_members_see_their_retry_topics_in_the_progress(bench: PopBench) -> None:
    """An online group shows what it subscribes to; POP's retry topics are not in any subscription."""
    bench.send(b"1")
    bench.pop(invisibleTime=5_000)
    bench.after(5_100)
    bench.pop()
    reads = ConsumerData(GROUP, subscriptions=(SubscriptionData(TOPIC, "*"),))
    beat = HeartbeatData("c1", consumers=(reads,))
    joined = bench.ask(RequestCode.HEART_BEAT, beat.encode())
    assert joined is not None and joined.code == ResponseCode.SUCCESS
    told = bench.ask(RequestCode.GET_CONSUME_STATS, consumerGroup=GROUP)
    assert told is not None
    topics = {queue.topic for queue in ConsumeStats.decode(told.body).offset_table}
    assert {TOPIC, pop_retry_topic(GROUP, TOPIC)} <= topics
