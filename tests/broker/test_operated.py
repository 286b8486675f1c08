"""A broker's state and metrics for operators."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from string import ascii_letters, digits
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.broker.doubles import FakeConnection
from tests.broker.pop.bench import GROUP, TOPIC, PopBench
from tests.broker.rig import STORE_HOST, Rig, hot_send, pull_ext, send_command
from tests.support import collect_here, run

from sparrowmq import Message
from sparrowmq.aio import Producer, PullConsumer
from sparrowmq.broker.base.internal_store import InnerMessage
from sparrowmq.broker.housekeeping.unread import UnreadSpan
from sparrowmq.broker.metrics.lag import LagFigures
from sparrowmq.broker.operated import OperatedBroker
from sparrowmq.broker.tables.clients import ConnectedMember, ConsumerGroup
from sparrowmq.broker.transactions import check_back
from sparrowmq.broker.transactions.end_transaction import BOUNDS_SECONDS
from sparrowmq.core.errors import StoreError
from sparrowmq.core.figures.exposition import Exposition
from sparrowmq.core.figures.histogram import Histogram
from sparrowmq.core.names import TIMER_TOPIC
from sparrowmq.core.settings.servers import BrokerSettings, NameServerSettings
from sparrowmq.core.stalls import StallBook
from sparrowmq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionGroupConfig,
    TopicConfig,
)
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command, FrameReader, encode
from sparrowmq.protocol.hot import decode_pull
from sparrowmq.protocol.pop.records import BatchAck, BatchAckBody, bits_of
from sparrowmq.runtime.servers import LocalServers

RECORDED = Path(__file__).parent.parent / "fixtures" / "metrics" / "apache-5.5.0.txt"
"""Series that the Prometheus exporter of Apache RocketMQ 5.5.0 gave, one of each metric."""
OF_THE_EXPORTER = {"otel_scope_name", "le"}
NODE = ("cluster", "node_type", "node_id")
Samples = dict[str, dict[str, float]]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def operated(rig: Rig) -> OperatedBroker:
    book = StallBook()
    server: Any = SimpleNamespace(
        watch=SimpleNamespace(book=book),
        account=SimpleNamespace(total=1, limit=2),
        connections=[],
        connections_max=10,
    )
    return OperatedBroker(rig.parts, server)


def figures(rig: Rig, series_max: int = 1000) -> Samples:
    """Values by name, and by the labels without those of the broker."""
    into = Exposition(series_max)
    collect_here(operated(rig).collect(into))
    return samples(b"".join(into.rendering()).decode())


def samples(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            own = [f"{name}={value}" for name, value in one.labels.items() if name not in NODE]
            found.setdefault(one.name, {})[",".join(sorted(own))] = one.value
    return found


def send(rig: Rig, count: int = 1, body: bytes = b"hello", **fields: Any) -> None:
    connection: Any = FakeConnection()
    for _ in range(count):
        assert not rig.sending.store_chunk(connection, [hot_send(send_command(body, **fields))])


def pull(rig: Rig, offset: int, count: int, group: str = "g", **more: str) -> None:
    """Pull this many messages of queue 0 as a member."""
    connection: Any = FakeConnection()
    ext = pull_ext(consumerGroup=group, queueOffset=offset, maxMsgNums=count, sysFlag=4, **more)
    frame = FrameReader().feed(encode(Command(RequestCode.PULL_MESSAGE, 1, 0, ext)))[0]
    found = decode_pull(frame[1])
    assert found is not None
    rig.pulling.pull(connection, found)


LAG = "consumer_group=g,is_retry=false,is_system=false,topic=TopicTest"


def test_lag_shows_waiting_and_in_flight_messages_and_the_oldest(rig: Rig) -> None:
    rig.make_topic("TopicTest", 1)
    send(rig, 5)
    rig.clock.ms += 3_000
    send(rig, 5)
    rig.clock.ms += 4_000
    rig.offsets.commit("TopicTest", "g", 0, 2)
    found = figures(rig)
    assert found["rocketmq_consumer_lag_messages"] == {LAG: 8}
    assert found["rocketmq_consumer_lag_latency_milliseconds"] == {LAG: 7000}
    assert "rocketmq_consumer_inflight_messages" not in found, "nobody pulled since the start: unknown"
    pull(rig, 2, 4)
    found = figures(rig)
    assert found["rocketmq_consumer_inflight_messages"] == {LAG: 4}
    assert found["rocketmq_consumer_ready_messages"] == {LAG: 4}
    assert found["rocketmq_consumer_queueing_latency_milliseconds"] == {LAG: 4000}
    rig.offsets.commit("TopicTest", "g", 0, 10)
    found = figures(rig)
    assert found["rocketmq_consumer_lag_messages"] == {LAG: 0}
    assert found["rocketmq_consumer_lag_latency_milliseconds"] == {LAG: 0}
    assert found["rocketmq_consumer_inflight_messages"] == {LAG: 0}


def test_messages_deleted_before_a_group_consumed_them_are_counted(rig: Rig) -> None:
    rig.make_topic("TopicTest", 1)
    rig.offsets.commit("TopicTest", "g", 0, 0)
    found = figures(rig)
    assert found["sparrow_consumer_lost_messages_total"] == {LAG: 0}, "else the first loss is no increase"
    assert "sparrow_consumer_lost_first_timestamp_seconds" not in found
    rig.parts.upkeep.unread.by_pair["TopicTest", "g"] = UnreadSpan(3, 1_000, 2_500)
    found = figures(rig)
    assert found["sparrow_consumer_lost_messages_total"] == {LAG: 3}
    assert found["sparrow_consumer_lost_first_timestamp_seconds"] == {LAG: 1}
    assert found["sparrow_consumer_lost_last_timestamp_seconds"] == {LAG: 2.5}


def test_a_group_without_dead_letters_has_none_instead_of_no_series(rig: Rig) -> None:
    """Otherwise its first dead letter would be no increase, and no alert."""
    run(rig.groups.put([SubscriptionGroupConfig(group_name="g")]))
    label = "consumer_group=g,topic=%DLQ%g"
    assert figures(rig)["rocketmq_send_to_dlq_messages_total"] == {label: 0}
    rig.make_topic("%DLQ%g", 1)
    send(rig, 2, topic="%DLQ%g")
    assert figures(rig)["rocketmq_send_to_dlq_messages_total"] == {label: 2}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[PopBench]:
    made = PopBench(tmp_path)
    made.send(*(b"%d" % number for number in range(10)))
    yield made
    made.close()


def lag_of(bench: PopBench) -> tuple[float, float, float]:
    """Messages that the group has not consumed, in flight, and ready."""
    found = figures(bench.rig)
    names = ("lag", "inflight", "ready")
    lag, in_flight, ready = (found[f"rocketmq_consumer_{name}_messages"][LAG] for name in names)
    return lag, in_flight, ready


def test_popped_messages_are_in_flight_until_acknowledged_or_visible(bench: PopBench) -> None:
    popped = bench.pop(maxMsgNums=4, invisibleTime=60_000)
    assert lag_of(bench) == (10, 4, 6)
    bench.ack(popped[0])
    bench.change(popped[1], 120_000)
    assert lag_of(bench) == (9, 3, 6)
    bench.ack(popped[0])
    assert lag_of(bench) == (8, 2, 6), "a receipt that is used twice counts twice, "
    bench.after(61_000)
    assert lag_of(bench) == (7, 1, 6), "until its time is over"
    found = figures(bench.rig)
    assert found["sparrow_pop_revived_total"] == {"": 2}
    pair = f"consumer_group={GROUP},put_status=PUT_OK,topic={TOPIC}"
    assert found["rocketmq_pop_revive_retry_messages_total"] == {pair: 2}
    assert found["sparrow_pop_check_points"] == {"": 0}
    assert set(found["rocketmq_pop_revive_latency_milliseconds"].values()) == {0}
    assert set(found["rocketmq_pop_revive_lag_milliseconds"].values()) == {0}
    retried = next(label for label in found["rocketmq_consumer_lag_messages"] if "is_retry=true" in label)
    assert found["rocketmq_consumer_lag_messages"][retried] == 2


@pytest.mark.parametrize("at", [1, 2, 3])
def test_pop_during_a_scrape_counts_once(bench: PopBench, at: int) -> None:
    """Between two steps for a lag, with many topics seconds may pass."""
    bench.ack(bench.pop(maxMsgNums=1)[0])
    into, seen = Exposition(1000), 0
    figures = LagFigures(
        bench.rig.store,
        bench.rig.offsets,
        bench.rig.parts.upkeep.stats,
        bench.rig.parts.pop,
        bench.rig.clock,
        bench.rig.parts.upkeep.unread,
        by_queue=False,
    )
    for step in figures.collect(into, ""):
        for _ in step.steps if step is not None else ():
            seen += 1
            if seen == at:
                bench.pop(maxMsgNums=4)
    assert seen >= at
    lag = samples(b"".join(into.rendering()).decode())["rocketmq_consumer_lag_messages"]
    assert lag[LAG] == 9


def test_batch_acknowledgements_end_messages_in_flight(bench: PopBench) -> None:
    first, *_ = popped = bench.pop(maxMsgNums=4)
    receipt = first.receipt
    ack = BatchAck(
        group=GROUP,
        topic=TOPIC,
        flag="0",
        start_offset=receipt.start_offset,
        queue_id=0,
        revive_queue=receipt.revive_queue,
        pop_time=receipt.pop_time,
        invisible_time=receipt.invisible_time,
        bits=bits_of([one.receipt.offset for one in popped[:3]], receipt.start_offset),
    )
    answer = bench.ask(
        RequestCode.BATCH_ACK_MESSAGE, body=BatchAckBody(broker_name="broker-a", acks=[ack]).encode()
    )
    assert answer is not None and answer.code == 0, answer
    assert lag_of(bench) == (7, 1, 6)


def test_ordered_pop_is_in_flight_and_counts_once_as_lag(bench: PopBench) -> None:
    first, _ = bench.pop(order="true", maxMsgNums=2)
    assert lag_of(bench) == (10, 2, 8)
    bench.ack(first)
    assert lag_of(bench) == (9, 1, 8)
    bench.after(60_001)
    assert lag_of(bench)[0] == 9


def test_unknown_lag_is_not_zero(rig: Rig) -> None:
    rig.make_topic("TopicTest", 2)
    send(rig, 3)
    send(rig, 4, queue_id=1)
    rig.offsets.commit("TopicTest", "g", 1, 1)
    found = figures(rig)
    assert found["rocketmq_consumer_lag_messages"] == {LAG: 3}, "of the queue that it committed"
    assert found["sparrow_consumer_lag_unknown_queues"] == {"": 1}


def test_lag_by_queue_is_shown_when_a_setting_asks_for_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path, metrics_lag_by_queue=True)
    try:
        rig.make_topic("TopicTest", 3)
        for queue, count in ((0, 2), (1, 4), (2, 1)):
            send(rig, count, queue_id=queue)
        rig.offsets.commit("TopicTest", "g", 0, 2)
        rig.offsets.commit("TopicTest", "g", 1, 1)
        rig.clock.ms += 3_000
        found = figures(rig)
        of = {queue: LAG.replace(",topic", f",queue_id={queue},topic") for queue in range(3)}
        assert found["sparrow_queue_lag_messages"] == {of[0]: 0, of[1]: 3}
        assert found["sparrow_queue_lag_seconds"] == {of[0]: 0, of[1]: 3}
        assert found["sparrow_queue_lag_unknown"] == {of[2]: 1}
        assert figures(rig)["rocketmq_consumer_lag_messages"] == {LAG: 3}
    finally:
        rig.close()


def test_lag_by_queue_contains_what_pop_has_handed_out(tmp_path: Path) -> None:
    bench = PopBench(tmp_path, metrics_lag_by_queue=True)
    try:
        bench.send(*(b"%d" % number for number in range(5)))
        bench.ack(bench.pop(maxMsgNums=3)[0])
        found = figures(bench.rig)
        lag = {
            label: value
            for label, value in found["sparrow_queue_lag_messages"].items()
            if "is_retry=false" in label
        }
        assert lag == {LAG.replace(",topic", ",queue_id=0,topic"): 4}
    finally:
        bench.close()


def test_traffic_is_counted_by_topic_and_group(rig: Rig) -> None:
    rig.make_topic("TopicTest", 1)
    send(rig, 3, b"x" * 2000)
    pull(rig, 0, 2)
    found = figures(rig)
    topic = "is_system=false,message_type=normal,topic=TopicTest"
    group = "consumer_group=g,is_system=false,topic=TopicTest"
    assert found["rocketmq_messages_in_total"] == {topic: 3}
    assert found["rocketmq_throughput_in_total"][topic] == rig.store.position
    assert found["rocketmq_messages_out_total"] == {group: 2}
    assert found["rocketmq_message_size_bucket"]["le=1024.0"] == 0
    assert found["rocketmq_message_size_bucket"]["le=4096.0"] == 3
    assert found["rocketmq_message_size_sum"] == {"": rig.store.position}
    send(rig)
    assert figures(rig)["rocketmq_messages_in_total"] == {topic: 4}, "at once, and nothing twice"


def test_names_with_every_legal_character_are_labels(rig: Rig) -> None:
    topic, group = "T%|_-" + ascii_letters + digits, "g%|_-" + ascii_letters + digits
    rig.make_topic(topic, 1)
    send(rig, topic=topic)
    pull(rig, 0, 1, group, topic=topic)
    found = figures(rig)
    assert found["rocketmq_messages_in_total"] == {f"is_system=false,message_type=normal,topic={topic}": 1}
    out = f"consumer_group={group},is_system=false,topic={topic}"
    assert found["rocketmq_messages_out_total"] == {out: 1}


def test_ends_of_transactions_are_counted_by_topic(rig: Rig) -> None:
    ends = rig.parts.exchange.transactions.ends
    ends.ended.update({("Orders", True): 3, ("Orders", False): 1})
    ends.latencies["Orders"] = Histogram(BOUNDS_SECONDS)
    ends.latencies["Orders"].add(59)
    found = figures(rig)
    assert found["rocketmq_commit_messages_total"] == {"topic=Orders": 3}
    name = "rocketmq_finish_message_latency_milliseconds"
    assert found[f"{name}_count"] == {"topic=Orders": 1}
    assert found[f"{name}_bucket"]["le=60.0,topic=Orders"] == 1
    assert found["rocketmq_rollback_messages_total"] == {"topic=Orders": 1}


def test_open_transactions_are_counted_by_topic(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for topic, count in (("Orders", 40), ("Bills", 2)):
        rig.make_topic(topic, 1)
        send(rig, count, topic=topic, properties="UNIQ_KEY\x01k\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02")
    assert figures(rig)["rocketmq_half_messages"] == {"topic=Orders": 40, "topic=Bills": 2}
    rig.parts.exchange.transactions._halves.given_up(0)
    assert figures(rig)["rocketmq_half_messages"]["topic=Orders"] == 39
    monkeypatch.setattr(check_back, "COUNTED_MAX", 32)
    found = figures(rig)
    assert found["rocketmq_half_messages"] == {"topic=Orders": 32, "topic=": 9}, "with what was not read"
    assert found["sparrow_open_transactions"] == {"": 41}


def test_timed_message_that_waits_for_the_wheel_is_as_old_as_it_is_stored(rig: Rig) -> None:
    label = "storage_medium=disk,storage_type=local"
    name = "rocketmq_timer_enqueue_latency_milliseconds"
    assert figures(rig)[name] == {label: 0}
    own = f"REAL_TOPIC\x01T\x02REAL_QID\x010\x02TIMER_OUT_MS\x01{rig.clock.ms + 60_000}\x02".encode()
    rig.inner.put([InnerMessage(TIMER_TOPIC, 0, b"x", own, 0, 0, rig.clock.ms, STORE_HOST)])
    rig.clock.ms += 1_500
    assert figures(rig)[name] == {label: 1_500}
    timer = rig.parts.delayed.timer
    assert timer is not None and timer.enqueue()
    assert figures(rig)[name] == {label: 0}


def test_series_are_bounded_with_thousands_of_topics(rig: Rig) -> None:
    for at in range(300):
        rig.make_topic(f"topic-{at}", 1)
        send(rig, topic=f"topic-{at}")
        rig.offsets.commit(f"topic-{at}", "g", 0, 0)
    found = figures(rig, series_max=100)
    left_out = found["sparrow_metrics_series_left_out"]
    for name in ("rocketmq_messages_in_total", "rocketmq_consumer_lag_messages"):
        assert len(found[name]) == 100
        assert left_out[f"metric={name}"] == 200
    assert found["rocketmq_topic_number"][""] > 300, "what is told of the broker counts all"


def test_collection_takes_many_small_steps(rig: Rig) -> None:
    for at in range(100):
        rig.make_topic(f"topic-{at}", 1)
        send(rig, topic=f"topic-{at}")
        rig.offsets.commit(f"topic-{at}", "g", 0, 0)
    assert collect_here(operated(rig).collect(Exposition(1000))) > 300


def steps_of_the_loop(rig: Rig) -> int:
    found = 0
    for step in operated(rig).collect(Exposition(1000)):
        if step is None:
            found += 1
        else:
            collect_here([step])
    return found


CONSUMES = (
    ConsumeType.CONSUME_PASSIVELY,
    MessageModel.CLUSTERING,
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
)


def test_topics_and_groups_take_no_step_of_the_loop(rig: Rig) -> None:
    client: Any = FakeConnection()
    steps_of_the_loop(rig)
    alone = steps_of_the_loop(rig)
    for at in range(300):
        rig.make_topic(f"topic-{at}", 1)
        send(rig, topic=f"topic-{at}")
        rig.offsets.commit(f"topic-{at}", "g", 0, 1)
    assert steps_of_the_loop(rig) > alone + 300, "new messages are counted on the loop"
    assert steps_of_the_loop(rig) == alone
    for at in range(300):
        rig.offsets.commit(f"topic-{at}", "g", 0, 0)
        rig.parts.pop.in_flight.handed_out(f"topic-{at}", "g", 0, 1, 1 << 60, 0)
        rig.parts.upkeep.unread.by_pair[f"topic-{at}", "g"] = UnreadSpan(1)
        rig.clients.add_producer(f"p{at}", client, ConnectedMember("c", "JAVA", 399, 0.0))
        group = ConsumerGroup(f"g{at}", *CONSUMES, {})
        rig.clients.add_consumer(group, client, ConnectedMember("c", "JAVA", 399, 0.0))
    assert steps_of_the_loop(rig) == alone, (
        "neither do members, and messages that wait, are out, or were lost"
    )
    assert len(figures(rig)["rocketmq_consumer_connections"]) == 300
    assert figures(rig)["rocketmq_consumer_lag_messages"][LAG.replace("TopicTest", "topic-0")] == 2


def test_messages_that_consumers_may_not_read_yet_are_no_lag(rig: Rig) -> None:
    """Only the loop can tell the end of such a queue."""
    rig.make_topic("TopicTest", 1)
    send(rig, 5)
    rig.offsets.commit("TopicTest", "g", 0, 1)
    queue = rig.store.queue("TopicTest", 0)
    queue.hold_back(3, rig.store.position + 1, 2)
    assert queue.settled_offset is None
    assert figures(rig)["rocketmq_consumer_lag_messages"] == {LAG: 2}


def test_tables_may_change_while_figures_are_collected(rig: Rig) -> None:
    """What another thread does is interrupted after each of its steps."""
    for at in range(40):
        rig.make_topic(f"topic-{at}", 2)
        send(rig, 3, topic=f"topic-{at}")
        rig.offsets.commit(f"topic-{at}", "g", 0, 1)
    into, changes = Exposition(1000), 0
    for step in operated(rig).collect(into):
        for _ in step.steps if step is not None else ():
            changes += 1
            rig.topics.put_soon(TopicConfig(topic_name=f"new-{changes}"))
            rig.store.queue(f"new-{changes}", 0)
            rig.offsets.commit(f"new-{changes}", f"g{changes}", 0, 0)
            rig.parts.upkeep.stats.count("TOPIC_PUT_NUMS", f"new-{changes}")
            rig.parts.upkeep.unread.by_pair[f"new-{changes}", "g"] = UnreadSpan(1)
            if changes % 3 == 0:
                rig.offsets.forget_group(f"g{changes - 1}")
                rig.store.delete_topic(f"new-{changes - 1}")
    assert changes > 40
    lag = samples(b"".join(into.rendering()).decode())["rocketmq_consumer_lag_messages"]
    assert [lag[LAG.replace("TopicTest", f"topic-{at}")] for at in range(40)] == [2] * 40


def test_full_or_failed_disk_and_silent_name_servers_are_reported_as_reasons(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = operated(rig)
    assert (seen.node, seen.faults(), seen.lacks()) == ("broker broker-a", [], [])
    rig.registration.silent["ns:9876"] = "connection refused"
    monkeypatch.setattr(rig.store, "full", "the disk is full")
    assert seen.lacks() == [
        "sends are refused: the disk is full",
        "name server ns:9876 did not accept its registration: connection refused",
    ]
    assert figures(rig)["sparrow_store_accepts_messages"] == {"": 0}
    assert figures(rig)["sparrow_registered"] == {"": 0}
    assert not seen.faults(), "it will be well once there is room"
    rig.flusher.failed = StoreError("fsync failed")
    assert seen.faults() == ["the disk failed; nothing is stored until a restart: fsync failed"]


def test_operators_see_what_the_last_start_found(tmp_path: Path) -> None:
    first = Rig(tmp_path)
    first.make_topic("TopicTest", 1)
    send(first, 5)
    first.store.flush()
    first.kill()
    rig = Rig(tmp_path)
    try:
        found = figures(rig)
        assert (found["sparrow_recovery_clean"], found["sparrow_recovery_records"]) == ({"": 0}, {"": 5})
        assert found["sparrow_recovery_damaged_places"] == {"": 0}
        assert found["sparrow_recovery_seconds"][""] >= 0
    finally:
        rig.close()


def test_retries_count_as_lag_although_a_crash_lost_their_offsets(tmp_path: Path) -> None:
    bench = PopBench(tmp_path)
    bench.send(b"1")
    bench.pop(invisibleTime=2000)
    bench.save_offsets()
    bench.after(2500)
    retried = InnerMessage("%RETRY%push", 0, b"2", b"", 0, 0, bench.now, bench.rig.store.store_host)
    run(bench.rig.groups.put([SubscriptionGroupConfig(group_name="push")]))
    bench.rig.inner.put([retried])
    bench.kill()
    again = PopBench(tmp_path, clock=bench.rig.clock)
    try:
        lag = figures(again.rig)["rocketmq_consumer_lag_messages"]
        waiting = {label: count for label, count in lag.items() if "is_retry=true" in label}
        assert sorted(waiting.values()) == [1, 1], lag
    finally:
        again.close()


def test_read_only_broker_is_not_ready(tmp_path: Path) -> None:
    rig = Rig(tmp_path, broker_permission=4, metrics_label="zone:a")
    try:
        assert operated(rig).lacks() == ["brokerPermission=4: sends are refused"]
        assert figures(rig)["rocketmq_broker_permission"] == {"zone=a": 4}
    finally:
        rig.close()


@pytest.mark.stalls(seconds=2, why="the clients' modules are loaded on the loop of the servers")
def test_names_and_labels_match_apaches(tmp_path: Path) -> None:
    """A metric of ours with RocketMQ's prefix has the name, type and labels of its exporter's metric."""
    text = run(scraped(tmp_path))
    ours = {family.name: family for family in text_string_to_metric_families(text)}
    theirs = {family.name: family for family in text_string_to_metric_families(RECORDED.read_text())}
    known = [name for name in ours if name.startswith("rocketmq_")]
    assert len(known) > 20
    for name in known:
        if name in ONLY_NOW_AND_THEN:
            continue
        assert ours[name].type == theirs[name].type
        expected = set(theirs[name].samples[0].labels) - OF_THE_EXPORTER - FEWER.get(name, set())
        for sample in ours[name].samples:
            assert set(sample.labels) - OF_THE_EXPORTER == expected, name
    assert not {name for name in theirs if not name.startswith(("rocketmq_pop_", "target"))} - set(ours)
    assert 'node_type="nameserver"' in text, "both servers share the port"


FEWER = {"rocketmq_message_size": {"topic", "message_type", "is_system"}}
"""Nine lines for each topic would be most of the text."""
ONLY_NOW_AND_THEN = {"rocketmq_send_to_dlq_messages"}


async def scraped(root: Path) -> str:
    """The text of a name server and a broker with some traffic."""
    servers = LocalServers(
        NameServerSettings(listen_port=0),
        BrokerSettings(
            listen_port=0,
            store_path_root_dir=root,
            metrics_exporter_type="PROM",
            metrics_prom_exporter_port=0,
        ),
    )
    where = await servers.start()
    assert where.metrics and re.fullmatch(r"127\.0\.0\.1:\d+", where.metrics)
    url = f"http://{where.metrics}"
    try:
        async with Producer("p", namesrv=where.nameserver) as producer:
            for _ in range(4):
                await producer.send(Message("TopicTest", b"hello"))
            async with PullConsumer("g", namesrv=where.nameserver) as consumer:
                consumer.subscribe("TopicTest")
                while not await consumer.poll(1):
                    pass
                await consumer.commit()
                ready = await asyncio.to_thread(lambda: urlopen(f"{url}/ready").status)
                assert ready == 200
                return await asyncio.to_thread(lambda: urlopen(f"{url}/metrics").read().decode())
    finally:
        await servers.close()
