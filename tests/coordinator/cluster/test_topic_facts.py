"""A topic's size, its next deletion, its producers and its readers, on a simulated cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from tests.coordinator.cluster.explored import MadeUpAdmin, MadeUpReader, message
from tests.support import run

from sparrowmq import aio
from sparrowmq.coordinator.cluster import topic_facts as facts
from sparrowmq.coordinator.cluster.topic_facts import TopicReader, TopicSender
from sparrowmq.coordinator.upkeep.cleaning import Cut
from sparrowmq.core.errors import BrokerError, TransportError
from sparrowmq.core.message import MessageQueue


def queue(number: int, first: int = 0, end: int = 5, last_ms: int = 1) -> aio.QueueStatus:
    return aio.QueueStatus(MessageQueue("T", "a", number), first, end, last_ms)


def admin(**changes: Any) -> aio.Admin:
    made = MadeUpAdmin()
    for name, value in changes.items():
        setattr(made, name, value)
    return cast(aio.Admin, made)


def test_size_is_estimated_from_the_newest_records() -> None:
    assert facts.estimated(0, []) == 0
    assert facts.estimated(1000, [100, 300]) == 200_000
    assert facts.estimated(5, []) is None, "nothing could be looked at"
    assert run(facts.sampled_bytes(admin(), [queue(0), queue(1, 5, 5)])) == 500

    async def refuses(*asked: Any) -> Any:
        raise BrokerError(1, "no")

    assert run(facts.sampled_bytes(admin(topics_entries=refuses), [queue(0)])) is None


def test_only_the_most_recently_written_queues_are_sampled() -> None:
    many = [queue(number, last_ms=number) for number in range(50)]
    found = facts.newest_queues([*many, queue(99, 5, 5, 1000)])
    assert [one.queue.queue_id for one in found] == list(range(49, 49 - facts.SAMPLED_QUEUES, -1))


def test_next_deletion_is_counted_for_a_limited_number_of_queues() -> None:
    async def second(*asked: Any) -> int:
        return 2

    cut, made = Cut(1000, 500), admin(topics_search_offset=second)
    assert run(facts.deleted_messages(made, [queue(0), queue(1, 3, 5), queue(2, 5, 5)], cut)) == 2
    many = [queue(number) for number in range(facts.CUT_QUEUES + 1)]
    assert run(facts.deleted_messages(admin(), many, cut)) is None

    async def away(*asked: Any) -> Any:
        raise TransportError("it is away")

    assert run(facts.deleted_messages(admin(topics_search_offset=away), [queue(0)], cut)) is None


def test_producers_are_found_by_the_addresses_of_messages() -> None:
    elsewhere = replace(message(4), born_host="10.0.0.9:1", store_timestamp=9000)
    reader = cast(aio.PullConsumer, MadeUpReader())
    found = run(facts.last_senders(admin(), reader, [queue(0)], ["a"]))
    assert found == [TopicSender("127.0.0.1:5", 2000, 1, "one", "JAVA", ("g",))]
    found = facts.senders_of([message(3), elsewhere], {})
    assert [(one.address, one.client_id) for one in found] == [("10.0.0.9:1", ""), ("127.0.0.1:5", "")]

    async def away(*asked: Any) -> Any:
        raise TransportError("it is away")

    gone = run(facts.last_senders(admin(brokers_producers=away), reader, [queue(0)], ["a"]))
    assert [one.address for one in gone] == ["127.0.0.1:5"]


def test_readers_have_their_lag_and_online_members() -> None:
    assert run(facts.readers_of(admin(), "T", ["mine"])) == [TopicReader("mine", 2, 1)]
    assert run(facts.readers_of(admin(), "Other", ["mine"])) == [TopicReader("mine", 2, 0)]

    async def away(*asked: Any) -> Any:
        raise TransportError("it is away")

    assert run(facts.readers_of(admin(groups_progress=away), "T", ["mine"])) == [
        TopicReader("mine", None, None)
    ]
    many = [f"g{number}" for number in range(facts.USERS_MAX + 5)]
    assert len(run(facts.readers_of(admin(), "T", many))) == facts.USERS_MAX
