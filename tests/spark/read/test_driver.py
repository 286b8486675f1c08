from __future__ import annotations

import asyncio

import pytest
from tests.spark.support import Topics
from tests.support import about

from sparrowmq.core.errors import NoRouteError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.read.driver import Driver
from sparrowmq.spark.read.lookup import Lookup
from sparrowmq.spark.read.missing import Absence


def test_questions_are_answered_from_a_plain_thread(topics: Topics, topic: str) -> None:
    topics.send(topic, 8)
    by_name = Driver(ReadOptions(name_server=topics.cluster.namesrv, subscribe=(topic,)))
    by_pattern = Driver(ReadOptions(name_server=topics.cluster.namesrv, subscribe_pattern=topic))

    async def ends(lookup: Lookup) -> dict[MessageQueue, int]:
        return await lookup.ends(await lookup.queues())

    assert by_name(ends, 20.0) == by_pattern(ends, 20.0)
    assert sum(by_name(ends, 20.0).values()) == 8


def test_errors_and_deadlines_reach_the_caller(topics: Topics) -> None:
    ask = Driver(ReadOptions(name_server=topics.cluster.namesrv, subscribe=("NoSuchTopic",)))
    with pytest.raises(NoRouteError, check=about(topic="NoSuchTopic")):
        ask(lambda lookup: lookup.queues(), 20.0)

    async def never(lookup: Lookup) -> None:
        await asyncio.sleep(3600)

    with pytest.raises(TimeoutError):
        ask(never, 0.01)


def test_our_broker_serves_a_queue_that_left_the_topic(topics: Topics, topic: str) -> None:
    topics.send(topic, 8)
    ask = Driver(ReadOptions(name_server=topics.cluster.namesrv, subscribe=(topic,)))
    places = ask(lambda lookup: lookup.queues(fresh=True), 20.0)
    topics.admin.topics.create(topic, queues=3, force=True)
    left = ask(lambda lookup: lookup.queues(fresh=True), 20.0)
    [retired] = set(places) - set(left)
    assert ask(lambda lookup: lookup.missing(dict.fromkeys(places, 0)), 20.0) == {
        retired: (Absence.READABLE, 2, "")
    }
