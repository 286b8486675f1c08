"""Whether the rows of a finished job are still in the topic, by the ends of its queues."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.support import about

from sparrowmq.core.errors import NoRouteError, SettingsError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.resets import SKEW_MS
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write import finished_places
from sparrowmq.spark.write.finished_places import (
    JobPlaces,
    QueueNow,
    WhatIsLeft,
    places_now,
    still_there,
    what_is_left,
)

ONE, TWO, NONE = (MessageQueue("t", "a", number) for number in range(3))
ENDS = {ONE: 100, TWO: 50, NONE: 0}
DONE_MS = 1_700_000_000_000
PLACES = JobPlaces(ENDS, DONE_MS)


@pytest.mark.parametrize(
    ("one", "two", "left"),
    [
        (QueueNow(100, 100), QueueNow(50, 50), WhatIsLeft.ALL),
        (QueueNow(400, 130), QueueNow(50, 49), WhatIsLeft.ALL),  # an older broker: the last message
        (QueueNow(20, 20), QueueNow(0, 0), WhatIsLeft.NONE),
        (QueueNow(400, 0), QueueNow(300, 0), WhatIsLeft.NONE),  # the new topic has passed the old one
        (QueueNow(400, 130), QueueNow(49, 49), WhatIsLeft.SOME),
        (QueueNow(400, 0), QueueNow(50, 50), WhatIsLeft.SOME),
    ],
)
def test_what_is_left(one: QueueNow, two: QueueNow, left: WhatIsLeft) -> None:
    assert what_is_left(ENDS, {ONE: one, TWO: two, NONE: QueueNow(7, 0)}) is left


def test_queues_that_cannot_be_asked_are_believed_unless_all_are_others() -> None:
    assert what_is_left(ENDS, {ONE: QueueNow(100, 100)}) is WhatIsLeft.ALL
    assert what_is_left(ENDS, {MessageQueue("t", "b", 0): QueueNow(9, 9)}) is WhatIsLeft.NONE
    assert what_is_left({NONE: 0}, {}) is WhatIsLeft.ALL, "a job without rows"


def test_places_are_kept_as_they_are() -> None:
    assert JobPlaces.from_json(PLACES.to_json()) == PLACES


class Cluster:
    """A consumer of a topic with these queues."""

    def __init__(self, now: dict[MessageQueue, QueueNow], fault: Exception | None = None) -> None:
        self.now = now
        self.fault = fault
        self.since: set[int] = set()

    async def queues(self, topic: str) -> list[MessageQueue]:
        if self.fault is not None:
            raise self.fault
        return list(self.now)

    async def max_offset(self, queue: MessageQueue) -> int:
        return self.now[queue].end

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        self.since.add(timestamp_ms)
        return self.now[queue].later


def options(**more: str) -> WriteOptions:
    given = {"nameServer": "h:1", "topic": "t", "jobId": "j", "brokerTimeoutMs": "1", **more}
    return WriteOptions.parse(given, {})


def there(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, places: JobPlaces = PLACES, **more: str) -> bool:
    serve(monkeypatch, cluster)
    return still_there(options(**more), places, "/p/j/done/0.json")


def serve(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    async def reader(given: Any) -> Cluster:
        return cluster

    monkeypatch.setattr(finished_places, "reader", reader)


def test_the_brokers_are_asked(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster({ONE: QueueNow(120, 110), TWO: QueueNow(50, 50), NONE: QueueNow(0, 0)})
    serve(monkeypatch, cluster)
    assert places_now(options(), 5) == JobPlaces({ONE: 120, TWO: 50, NONE: 0}, 5)
    assert there(monkeypatch, cluster) and cluster.since == {DONE_MS + SKEW_MS} and not caplog.records
    cluster.now[TWO] = QueueNow(0, 0)
    with pytest.raises(SettingsError, check=about(setting="jobId", value="j", what="queues")):
        there(monkeypatch, cluster)
    cluster.now[ONE] = QueueNow(20, 0)
    assert not there(monkeypatch, cluster)
    assert "was recreated since, or is another cluster's: its rows are stored again" in caplog.text


def test_a_lost_broker_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    other = MessageQueue("t", "b", 0)
    cluster = Cluster({ONE: QueueNow(100, 100), other: QueueNow(0, 0)})
    places = JobPlaces({ONE: 100, other: 80}, DONE_MS)
    assert there(monkeypatch, cluster, places, lostBrokers="b")
    serve(monkeypatch, cluster)
    assert places_now(options(lostBrokers="b"), 5).ends == {ONE: 100}


def test_brokers_that_are_away_are_believed_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert there(monkeypatch, Cluster({}, TransportError("away")))
    assert "whether its rows are still in t cannot be checked now: away" in caplog.text
    with pytest.raises(NoRouteError):
        there(monkeypatch, Cluster({}, NoRouteError("no such topic")))


def test_records_of_earlier_releases_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert there(monkeypatch, Cluster({}, NoRouteError("never asked")), JobPlaces())
