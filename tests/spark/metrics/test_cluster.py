"""A listener's questions, to a cluster that runs."""

from __future__ import annotations

from collections.abc import Iterator
from time import time

import pytest
from tests.spark.support import Topics, close_clients
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.metrics.cluster import Cluster


@pytest.fixture
def cluster(topics: Topics) -> Iterator[Cluster]:
    yield Cluster({"nameServer": topics.cluster.namesrv, "subscribe": "x", "bodyFormat": "json"}, 30.0)
    loop_thread().run(close_clients())


def test_ends_and_the_time_of_what_waits_first(cluster: Cluster, topics: Topics, topic: str) -> None:
    before = time()
    topics.send(topic, 8)
    queues = topics.consumer.queues(topic)
    first, second, *_ = queues
    state = cluster({"a": {first: 1, second: 2}, "b": {first: 0}, "c": {}})
    assert state.ends == {first: 2, second: 2}
    assert set(state.stored_at) == {"a", "b", "c"}
    assert list(state.stored_at["a"]) == list(state.stored_at["b"]) == [first]
    assert before - 1 < state.stored_at["b"][first] <= state.stored_at["a"][first] < time() + 1


def test_queues_of_brokers_that_are_away_are_left_out(cluster: Cluster, topics: Topics, topic: str) -> None:
    topics.send(topic, 4)
    [queue, *_] = topics.consumer.queues(topic)
    away = MessageQueue(topic, "nobody", 0)
    assert cluster({"a": {queue: 0, away: 0}}).ends == {queue: 1}


def test_options_must_name_a_cluster() -> None:
    with pytest.raises(SettingsError, check=about(setting="nameServer", value="no port")):
        Cluster({"nameServer": "no port"}, 1.0)
