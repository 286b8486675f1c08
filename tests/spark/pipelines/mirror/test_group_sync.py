"""Groups are moved at a target whose state is known, one that fails does not hold up the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.spark.support import Topics

import sparrowmq as mq
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.pipelines.mirror.clusters import Side
from sparrowmq.spark.pipelines.mirror.group_sync import GroupMover, Moved
from sparrowmq.spark.pipelines.mirror.offset_map import QueuePlaces
from sparrowmq.spark.pipelines.mirror.rows import ORIGIN, Origin
from sparrowmq.spark.pipelines.mirror.state import MirrorState
from sparrowmq.testing import LocalCluster


@pytest.fixture(scope="module")
def other() -> Iterator[Topics]:
    with LocalCluster() as cluster, Topics(cluster) as made:
        yield made


def mirrored(topics: Topics, other: Topics, topic: str, *, known: bool) -> MirrorState:
    """Two queues of ten messages and their copies."""
    topics.cluster.create_topic(topic, queues=2)
    other.cluster.create_topic(topic, queues=2)
    queues = topics.producer.queues(topic)[:2]
    targets = other.producer.queues(topic)
    for queue in queues:
        topics.producer.send_batch([mq.Message(topic, b"x") for _ in range(10)], queue=queue)
        copies = [
            mq.Message(
                topic, b"x", properties={ORIGIN: str(Origin("here", queue.broker_name, queue.queue_id, n))}
            )
            for n in range(10)
        ]
        other.producer.send_batch(copies, queue=targets[queue.queue_id])
    return MirrorState(
        source="here",
        target="there",
        queues=dict(zip(queues, targets, strict=True)),
        places={
            target: QueuePlaces(0).grown(10, queue, 0) if known else QueuePlaces(0).grown(10)
            for queue, target in zip(queues, targets, strict=True)
        },
    )


@pytest.mark.parametrize("known", [True, False])
def test_groups_go_on_behind_what_they_have_read(
    topics: Topics, other: Topics, topic: str, known: bool
) -> None:
    name = f"{topic}_m{int(known)}"
    state = mirrored(topics, other, name, known=known)
    here = Side.of("here", ReadOptions(name_server=topics.cluster.namesrv))
    there = Side.of("there", ReadOptions(name_server=other.cluster.namesrv))
    groups = [f"g{number}_{name}"[:60] for number in range(3)]
    queues, targets = list(state.queues), list(state.queues.values())
    for group, offset in zip(groups, (4, 10, 7), strict=True):
        topics.admin.groups.create(group)
        topics.admin.groups.commit(group, queues[0], offset)
    mover = GroupMover(here, there, [groups[0], "no_such_group"], f"g[12]_{name}"[:60])
    assert loop_thread().run(mover.groups()) == sorted([*groups, "no_such_group"])
    moved = loop_thread().run(mover.move(state))
    assert moved == [Moved(group, targets[0], at) for group, at in zip(groups, (4, 10, 7), strict=True)]
    assert [other.admin.groups.committed(group, targets[0]) for group in groups] == [4, 10, 7]
    assert not other.admin.groups.committed(groups[0], targets[1])

    topics.admin.groups.commit(groups[0], queues[0], 2)  # back, which is not followed
    topics.admin.groups.commit(groups[2], queues[0], 9)
    assert loop_thread().run(mover.move(state)) == [Moved(groups[2], targets[0], 9)]


def test_a_recreated_topic_moves_no_group(
    topics: Topics, other: Topics, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    name, group = f"{topic}_m", f"g_{topic}"[:60]
    state = mirrored(topics, other, name, known=True)
    short = {queue: places.grown(11) for queue, places in state.places.items()}
    topics.admin.groups.create(group)
    for queue in state.queues:
        topics.admin.groups.commit(group, queue, 5)
    here = Side.of("here", ReadOptions(name_server=topics.cluster.namesrv))
    there = Side.of("there", ReadOptions(name_server=other.cluster.namesrv))
    mover = GroupMover(here, there, [group], "")
    assert loop_thread().run(mover.move(replace(state, places=short))) == []
    assert "its topic may have been recreated" in caplog.text
    assert len(loop_thread().run(mover.move(state))) == 2


def test_a_source_that_is_away_moves_nothing(
    topics: Topics, other: Topics, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    state = mirrored(topics, other, f"{topic}_m", known=True)
    gone = Side.of("here", ReadOptions(name_server="127.0.0.1:1"))
    there = Side.of("there", ReadOptions(name_server=other.cluster.namesrv))
    assert loop_thread().run(GroupMover(gone, there, ["g"], "").move(state)) == []
    assert f"the groups of topic {topic}_m could not be listed" in caplog.text
