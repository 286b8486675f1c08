"""What a mirror asks its clusters."""

from __future__ import annotations

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from tests.columnar.records import record
from tests.spark.support import Topics
from tests.support import about

import sparrowmq as mq
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus, RawBatch
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.pipelines.mirror import clusters
from sparrowmq.spark.pipelines.mirror.clusters import Side, check_sides
from sparrowmq.spark.pipelines.mirror.rows import ORIGIN, Origin

T = TypeVar("T")


def ask(work: Coroutine[Any, Any, T]) -> T:
    return loop_thread().run(work)


@pytest.fixture
def side(topics: Topics) -> Side:
    return Side.of("here", ReadOptions(name_server=topics.cluster.namesrv))


def test_pages_of_origins(topics: Topics, topic: str, side: Side) -> None:
    queue = topics.producer.queues(topic)[0]
    origins = [None, Origin("x", "b", 1, 5), None, Origin("x", "b", 1, 6)]
    for origin in origins:
        properties = {} if origin is None else {ORIGIN: str(origin)}
        topics.producer.send(mq.Message(topic, b"m", properties=properties), queue=queue)
    assert ask(side.page(queue, 0, 10)).rows == list(enumerate(origins))
    page = ask(side.page(queue, 1, 3))
    assert (list(page.rows), page.next_offset) == ([(1, origins[1]), (2, None)], 3)
    assert (ask(side.page(queue, 4, 9)).rows, ask(side.page(queue, 4, 9)).next_offset) == ((), 4)
    assert ask(side.ends([queue])) == {queue: 4}
    assert ask(side.last_origins({queue: 4})) == {queue: origins[3]}
    assert ask(side.last_origins({queue: 3})) == ask(side.last_origins({queue: 9})) == {queue: None}
    (stored,) = [message for message in topics.read(topic) if message.queue_offset == 2]
    assert ask(side.stored_at(queue, 2)) == stored.store_timestamp / 1000
    assert ask(side.stored_at(queue, 4)) is None


def test_a_store_time_that_no_reader_holds_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch_raw(*_: object, **__: object) -> RawBatch:
        return RawBatch(PullStatus.FOUND, record(0, store_timestamp=2**62), 1, 0, 1)

    async def consumer(_: Side) -> Any:
        return SimpleNamespace(fetch_raw=fetch_raw)

    monkeypatch.setattr(Side, "consumer", consumer)
    queue = MessageQueue("t", "broker-a", 0)
    assert ask(Side.of("here", ReadOptions(name_server="stub:1")).stored_at(queue, 0)) is None


def test_an_end_that_does_not_show_is_waited_for_a_moment(
    topics: Topics, topic: str, side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "SEEN_SECONDS", 0.05)
    queue = topics.producer.queues(topic)[0]
    assert ask(side.ends_past({queue: 3})) == {queue: 0}
    topics.producer.send(mq.Message(topic, b"m"), queue=queue)
    assert ask(side.ends_past({queue: 1})) == {queue: 1}


def test_topics_are_made_and_grow_if_allowed(topics: Topics, topic: str, side: Side) -> None:
    name = f"{topic}_made"
    with pytest.raises(SettingsError, check=about(setting="create_topics", value=name)):
        ask(side.with_queues(name, 3, create=False))
    assert len(ask(side.with_queues(name, 3, create=True))) == 3
    assert len(ask(side.with_queues(name, 5, create=False))) == 3
    assert len(ask(side.with_queues(name, 5, create=True, cluster="DefaultCluster"))) == 5
    assert len(ask(side.with_queues(name, 2, create=True))) == 5
    with pytest.raises(SettingsError, check=about(setting="cluster", value="Nowhere")):
        ask(side.with_queues(name, 6, create=True, cluster="Nowhere"))


def test_names_and_addresses_must_fit() -> None:
    one, two = (Side(name, ReadOptions(name_server=f"{name}:9876")) for name in ("one", "two"))
    addresses = [{"a": "10.0.0.1:10911"}, {"a": "10.0.0.2:10911"}]
    check_sides([one, two], addresses, [None, "two"])
    with pytest.raises(SettingsError, check=about(setting="target", value="two", other="second")):
        check_sides([one, two], addresses, ["one", "second"])
    with pytest.raises(SettingsError, check=about(value="10.0.0.1:10911", other="source")):
        check_sides([one, two], [addresses[0]] * 2, [None, None])
