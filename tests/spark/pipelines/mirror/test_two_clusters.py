"""Mirrors between clusters that are not the simplest: accounts and TLS on both sides, several brokers."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.fleet import FIRST, Fleet
from tests.spark.guarded import Guarded, guarded
from tests.spark.support import Topics, numbered

import sparrowmq as mq
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark import MirrorSettings, mirror, plan_mirror
from sparrowmq.spark.pipelines.mirror.directory import MirrorDirectory
from sparrowmq.testing import LocalCluster


def stored(side: Guarded, topic: str) -> list[str]:
    with side.consumer("reader") as consumer:
        found = [consumer.pull(queue, 0).messages for queue in consumer.queues(topic)]
    texts = [message.body.decode() for messages in found for message in messages]
    return sorted(texts, key=lambda text: int(text[1:]))


def test_each_side_has_its_own_account_and_authority(spark: SparkSession, tmp_path: Path) -> None:
    with ExitStack() as stack:
        sides = []
        for name in ("here", "there"):
            (tmp_path / name).mkdir()
            sides.append(stack.enter_context(guarded(tmp_path / name, name, f"secret_of_{name}")))
        here, there = sides
        with here.admin() as admin:
            admin.topics.create("Safe", queues=2)
            admin.groups.create("readers")
        with here.producer("writers") as producer:
            sent = [producer.send(mq.Message("Safe", text.encode())) for text in numbered(0, 20)]
        with here.admin() as admin:
            admin.groups.commit("readers", sent[0].queue, 4)
        settings = MirrorSettings(
            directory=tmp_path / "mirror",
            source="here",
            target="there",
            name_server=here.cluster.namesrv,
            target_name_server=there.cluster.namesrv,
            topics=("Safe",),
            groups=("readers",),
            options=here.access,
            target_options=there.access,
        )
        assert "20 messages wait" in str(plan_mirror(settings))
        assert mirror(spark, settings).rows == 20
        assert stored(there, "Safe") == numbered(0, 20)
        with there.admin() as admin:
            committed = {
                status.queue.queue_id: admin.groups.committed("readers", status.queue)
                for status in admin.topics.status("Safe")
            }
        assert committed[sent[0].queue.queue_id] == 4

        with here.producer("writers") as producer:
            producer.send(mq.Message("Safe", b"m20"))
        # The account of one side is none at the other; no password is told, and nothing is passed over.
        for wrong in (
            replace(settings, options={**here.access, "secretKey": "secret_of_there"}),
            replace(settings, target_options={**there.access, "secretKey": "secret_of_here"}),
        ):
            with pytest.raises(SparrowError, match=r"(?i)signature") as caught:
                mirror(spark, wrong)
            assert "secret_of" not in str(caught.value)
        assert stored(there, "Safe") == numbered(0, 20)
        assert mirror(spark, settings).rows == 1
        assert stored(there, "Safe") == numbered(0, 21)


def in_order(side: Topics, topic: str) -> dict[MessageQueue, list[str]]:
    """Bodies in order, by queue; none for a queue without messages."""
    found: dict[MessageQueue, list[str]] = {}
    for message in sorted(side.read(topic), key=lambda one: (one.queue, one.queue_offset)):
        found.setdefault(message.queue, []).append(message.body.decode())
    return found


def same(here: Topics, there: Topics, topic: str, directory: Path) -> None:
    """Each queue of the source stands in one queue of the target, in order."""
    mapping = MirrorDirectory(directory).load("here", "there").queues
    source, target = in_order(here, topic), in_order(there, topic)
    assert {mapping[queue]: texts for queue, texts in source.items()} == target


def test_brokers_come_on_both_sides(spark: SparkSession, tmp_path: Path) -> None:
    """From two brokers, then three, to one; and from that one to the three."""
    topic = "Onward"
    with ExitStack() as stack:
        # Mirrors know a cluster by one name: not the tests' own, which has one.
        topics = stack.enter_context(Topics(stack.enter_context(LocalCluster())))
        topics.cluster.create_topic(topic, queues=4)
        fleet = stack.enter_context(Fleet(tmp_path))
        fleet.start("broker-b")
        many = stack.enter_context(Topics(fleet))
        fleet.create_topic("Wide", 2)
        many.send("Wide", 40)
        group = "wide_readers"
        many.admin.groups.create(group)
        for queue in many.consumer.queues("Wide"):
            many.admin.groups.commit(group, queue, 5 + queue.queue_id)
        settings = MirrorSettings(
            directory=tmp_path / "mirror",
            source="here",
            target="there",
            name_server=fleet.namesrv,
            target_name_server=topics.cluster.namesrv,
            topics=("Wide",),
            groups=(group,),
        )
        assert mirror(spark, settings).rows == 40
        same(many, topics, "Wide", tmp_path / "mirror")
        assert len(topics.producer.queues("Wide")) == 4
        mapping = MirrorDirectory(tmp_path / "mirror").load("here", "there").queues
        assert {queue.broker_name for queue in mapping} == {FIRST, "broker-b"}
        assert {
            topics.admin.groups.committed(group, mapping[queue]) - queue.queue_id for queue in mapping
        } == {5}

        fleet.start("broker-c")
        fleet.create_topic("Wide", 2)
        fresh = stack.enter_context(Topics(fleet))  # whose route has the new broker
        fresh.send("Wide", 30, first=40)
        assert mirror(spark, settings).rows == 30
        assert len(topics.producer.queues("Wide")) == 6
        same(fresh, topics, "Wide", tmp_path / "mirror")

        topics.send(topic, 40)
        onward = replace(
            settings,
            directory=tmp_path / "onward",
            name_server=topics.cluster.namesrv,
            target_name_server=fleet.namesrv,
            topics=(topic,),
            groups=(),
            source="there",
            target="here",
        )
        assert mirror(spark, onward).rows == 40
        wide = in_order(fresh, topic)
        assert len({queue.broker_name for queue in wide}) >= 2
        assert sorted(wide.values()) == sorted(in_order(topics, topic).values())
