"""Topics from cluster to cluster: order, ids, growth, restarts, rings, groups that fail over and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import Topics
from tests.support import about, until_sync

import sparrowmq as mq
from sparrowmq.core.errors import NoRouteError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark import MirrorSettings, Watch, dry_run_mirror, mirror, plan_mirror
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.pipelines.common.watch import TopicLag
from sparrowmq.spark.pipelines.mirror import job as pipeline
from sparrowmq.spark.pipelines.mirror.clusters import NAME_KEY, NAME_SPACE, Side
from sparrowmq.spark.pipelines.mirror.directory import MirrorDirectory
from sparrowmq.spark.pipelines.mirror.offset_map import OffsetPiece, QueuePlaces
from sparrowmq.spark.pipelines.mirror.rows import BORN, CHAIN, ORIGIN, Origin
from sparrowmq.spark.pipelines.mirror.state import MirrorError, MirrorState
from sparrowmq.testing import LocalCluster

HERE, THERE, THIRD = "here", "there", "third"


@pytest.fixture(scope="module")
def other() -> Iterator[Topics]:
    with LocalCluster() as cluster, Topics(cluster) as made:
        yield made


def between(source: Topics, target: Topics, directory: Path, /, *topics: str, **more: Any) -> MirrorSettings:
    """From here to there, unless `more` says otherwise."""
    values: dict[str, Any] = {
        "source": HERE,
        "target": THERE,
        "directory": directory,
        "name_server": source.cluster.namesrv,
        "target_name_server": target.cluster.namesrv,
        "topics": topics,
    }
    return MirrorSettings(**{**values, **more})


@pytest.fixture
def settings(topics: Topics, other: Topics, topic: str, tmp_path: Path) -> MirrorSettings:
    return between(topics, other, tmp_path / "mirror", topic)


def by_queue(messages: list[mq.ReceivedMessage]) -> dict[int, list[str]]:
    """Bodies in order, by queue."""
    found: dict[int, list[str]] = {}
    for message in sorted(messages, key=lambda one: (one.queue, one.queue_offset)):
        found.setdefault(message.queue.queue_id, []).append(message.body.decode())
    return found


def same_everywhere(one: Topics, two: Topics, topic: str) -> None:
    assert by_queue(one.read(topic)) == by_queue(two.read(topic))


def test_queue_by_queue_in_order_with_ids_run_by_run(
    spark: SparkSession, topics: Topics, other: Topics, topic: str, settings: MirrorSettings
) -> None:
    topics.send(topic, 40)
    sharded = mq.Message(topic, b"m40", properties={"n": "40", "color": "größe"})
    topics.producer.send(sharded, hash_key="customer-7")
    plan = str(plan_mirror(settings))
    assert f"create {topic} at there" in plan and "queues: 0 now, 4 then" in plan
    assert "exactly once on SparrowMQ's brokers" in plan and "retry topics" in plan
    count = len(topics.read(topic))
    assert dry_run_mirror(spark, settings) == count
    assert not Path(settings.directory).exists()

    watch = Watch()
    done = mirror(spark, settings, watch)
    assert (done.rows, done.batches, done.lag) == (count, 1, 0)
    assert done.topics is not None and [(lag.topic, lag.messages) for lag in done.topics] == [(topic, 0)]
    same_everywhere(topics, other, topic)
    here = {message.message_id: message for message in topics.read(topic)}
    for message in other.read(topic):
        twin = here[message.message_id]
        assert (message.tags, message.keys, message.queue.queue_id) == (
            twin.tags,
            twin.keys,
            twin.queue.queue_id,
        )
        own = {CHAIN: HERE, BORN: str(twin.born_timestamp)}
        own[ORIGIN] = f"here/{twin.queue.broker_name}/{twin.queue.queue_id}/{twin.queue_offset}"
        users = {
            name: twin.properties[name] for name in ("n", "color", "__SHARDINGKEY") if name in twin.properties
        }
        assert message.properties.items() >= {**own, **users}.items()

    rmtree(Path(settings.directory) / "checkpoint")
    topics.admin.topics.create(topic, queues=6)
    topics.send(topic, 12, first=60)
    assert mirror(spark, settings).rows == 12
    assert len(other.producer.queues(topic)) == 6
    same_everywhere(topics, other, topic)
    places = MirrorDirectory(settings.directory).load(HERE, THERE).places
    for queue in topics.consumer.queues(topic)[:4]:  # all is known, from the first message on
        assert places[queue].pieces == (OffsetPiece(0, topics.consumer.max_offset(queue), queue, 0),)


def test_a_run_that_dies_around_a_batch_sends_nothing_twice(
    spark: SparkSession,
    topics: Topics,
    other: Topics,
    topic: str,
    settings: MirrorSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = pipeline.MirrorJob._note

    def before(*_: Any) -> None:
        raise SettingsError("died before")

    def after(*arguments: Any) -> None:
        real(*arguments)
        raise SettingsError("died after")

    small = replace(settings, batch_rows=16)
    topics.send(topic, 40)
    for note in (before, after, before):
        monkeypatch.setattr(pipeline.MirrorJob, "_note", note)
        with pytest.raises(SettingsError, match="died"):
            mirror(spark, small)
    monkeypatch.setattr(pipeline.MirrorJob, "_note", real)
    topics.send(topic, 4, first=40)
    mirror(spark, small)
    same_everywhere(topics, other, topic)


def test_rings_of_clusters_send_nothing_round(
    spark: SparkSession, topics: Topics, other: Topics, topic: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster())
        third = stack.enter_context(Topics(cluster))
        topics.send(topic, 12)
        ring = [(topics, HERE, other, THERE), (other, THERE, third, THIRD), (third, THIRD, topics, HERE)]
        settings = [
            between(source, target, tmp_path / source_name, topic, source=source_name, target=target_name)
            for source, source_name, target, target_name in ring
        ]
        for one in settings:
            mirror(spark, one)
        assert len(topics.read(topic)) == len(other.read(topic)) == len(third.read(topic)) == 12
        assert {message.properties[CHAIN] for message in third.read(topic)} == {"here,there"}
        born = {message.properties[BORN] for message in third.read(topic)}
        assert born == {str(message.born_timestamp) for message in topics.read(topic)}

        third.send(topic, 4, first=100)
        for one in (settings[2], settings[0], settings[1]):
            mirror(spark, one)
        assert Counter(len(side.read(topic)) for side in (topics, other, third)) == {16: 3}


def consume(seen: Counter[str], side: Topics, group: str, topic: str, most: int) -> None:
    """A member reads at most so many messages of each queue, commits and goes."""
    for queue in side.consumer.queues(topic):
        position, left = side.admin.groups.committed(group, queue) or 0, most
        while left and (pulled := side.consumer.pull(queue, position, max_messages=left)).messages:
            seen.update(message.body.decode() for message in pulled.messages)
            position, left = pulled.next_offset, left - len(pulled.messages)
        side.admin.groups.commit(group, queue, position)


def places(side: Topics, group: str, topic: str) -> list[int | None]:
    return [side.admin.groups.committed(group, queue) for queue in side.consumer.queues(topic)]


def test_a_group_fails_over_and_back(
    spark: SparkSession, topics: Topics, other: Topics, topic: str, tmp_path: Path
) -> None:
    group, seen = f"g_{topic}"[:60], Counter[str]()
    there = between(topics, other, tmp_path / "there", topic, groups=(group,))
    back = between(other, topics, tmp_path / "back", topic, source=THERE, target=HERE, group_pattern="g_.*")
    topics.admin.groups.create(group)
    topics.send(topic, 80)
    consume(seen, topics, group, topic, 12)
    other.admin.topics.create(f"{topic}_x", queues=1)
    with mq.PushConsumer(group, namesrv=other.cluster.namesrv) as member:
        member.subscribe(f"{topic}_x", "*", handler=lambda _: None)
        until_sync(lambda: other.admin.groups.connections(group) is not None)
        mirror(spark, there)
        assert not any(places(other, group, topic))
    topics.send(topic, 8, first=80)
    mirror(spark, there)
    assert places(other, group, topic) == [12] * 4

    topics.send(topic, 4, first=90)  # not mirrored when the cluster fails
    other.send(topic, 20, first=200)
    consume(seen, other, group, topic, 100)
    assert places(other, group, topic) == [27] * 4
    mirror(spark, back)
    assert places(topics, group, topic) == [22] * 4
    mirror(spark, there)
    consume(seen, other, group, topic, 100)
    mirror(spark, back)
    assert places(topics, group, topic) == [28] * 4
    consume(seen, topics, group, topic, 100)
    assert set(seen) == {message.body.decode() for message in topics.read(topic)}
    assert max(seen.values()) == 1
    assert len(topics.read(topic)) == len(other.read(topic)) == len(seen)


def test_new_topics_of_a_pattern_and_empty_ones(
    spark: SparkSession, topics: Topics, other: Topics, topic: str, settings: MirrorSettings
) -> None:
    wide = replace(settings, topics=(), pattern=f"{topic}.*")
    topics.send(topic, 4)
    mirror(spark, wide)
    for name in ("new", "empty"):
        topics.admin.topics.create(f"{topic}_{name}", queues=2)
    topics.send(f"{topic}_new", 6)
    assert mirror(spark, wide).rows == 6
    same_everywhere(topics, other, f"{topic}_new")
    assert len(other.producer.queues(f"{topic}_empty")) == 2


def test_a_mirrored_topic_may_be_deleted_at_the_source(
    spark: SparkSession, topics: Topics, other: Topics, topic: str, tmp_path: Path
) -> None:
    kept = f"{topic}-kept"
    topics.cluster.create_topic(kept, queues=2)
    settings = between(topics, other, tmp_path / "mirror", pattern=f"{topic}.*")
    topics.send(topic, 8)
    topics.send(kept, 4)
    assert mirror(spark, settings).rows == 12
    topics.admin.topics.delete(topic)
    until_sync(lambda: topic not in topics.admin.topics.list())
    topics.send(kept, 4)
    done = mirror(spark, settings)
    assert (done.rows, done.topics) == (4, (TopicLag(kept, 0, 0.0),))


def test_a_directory_and_a_name_are_one_mirrors(
    spark: SparkSession, topics: Topics, other: Topics, topic: str, settings: MirrorSettings
) -> None:
    home = MirrorDirectory(settings.directory)
    with home.locked():
        home.save(MirrorState(source=HERE, target=THERE))
    with pytest.raises(MirrorError, check=about(setting="directory")):
        mirror(spark, replace(settings, target="elsewhere"))
    with pytest.raises(SettingsError, check=about(setting="target", other="source")):
        plan_mirror(replace(settings, target_name_server=topics.cluster.namesrv, directory=home.root / "new"))
    other.admin.name_servers.set_value(NAME_SPACE, NAME_KEY, THERE)
    with pytest.raises(SettingsError, check=about(value="elsewhere", other="there")):
        plan_mirror(replace(settings, target="elsewhere", directory=home.root / "new"))
    with pytest.raises(SettingsError, check=about(setting="create_topics", value=topic)):
        mirror(spark, replace(settings, create_topics=False))


def test_what_a_queue_grew_by() -> None:
    """Known only with the source queue's last message at its end; nothing is known of a queue made anew."""
    queue, target = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)
    span, places = Span(queue, 5, 8), QueuePlaces(10)
    side = Side(HERE, ReadOptions(name_server="127.0.0.1:1"))
    assert pipeline._alone({target: places}, {target: 13}, {target: [span]}) == {target: span}
    for end, spans in ((12, [span]), (14, [span]), (16, [span, Span(target, 0, 3)])):
        assert pipeline._alone({target: places}, {target: end}, {target: spans}) == {}
    assert pipeline._is_last(Origin(HERE, "a", 0, 7), side, span)
    for origin in (None, Origin(THERE, "a", 0, 7), Origin(HERE, "a", 1, 7), Origin(HERE, "a", 0, 6)):
        assert not pipeline._is_last(origin, side, span)
    assert pipeline._grown(places, 13, span).pieces == (OffsetPiece(10, 13, queue, 5),)
    assert pipeline._grown(places, 13, None).pieces == (OffsetPiece(10, 13),)
    assert pipeline._grown(places, 9, None) == QueuePlaces(9)


def test_a_look_that_fails_ends_nothing(
    topics: Topics,
    other: Topics,
    topic: str,
    settings: MirrorSettings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    home, watch = MirrorDirectory(settings.directory), Watch()
    with home.locked():
        job = pipeline.MirrorJob(cast(SparkSession, None), settings, home, watch)

        async def away(ends: Mapping[MessageQueue, int]) -> list[TopicLag]:
            raise NoRouteError("nobody is there")

        monkeypatch.setattr(job, "_lags", away)
        job.tick()
        assert "nobody is there" in caplog.text
        monkeypatch.undo()
        job.tick()  # not yet again
        assert watch.progress.topics is None
        job.end()
        assert watch.progress.topics == ()
        assert len(other.producer.queues(topic)) == 4
        topics.send(topic, 3)
        job.end()
    assert watch.progress.topics is not None
    (lag,) = watch.progress.topics
    assert (lag.topic, lag.messages) == (topic, 3)
    assert lag.seconds is not None and lag.seconds >= 0
