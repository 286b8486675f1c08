"""A store directory changes hands: ours, Apache's, ours again; after clean stops and after `kill -9`."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest
from tests.interop.apache import PATIENT, ApacheBroker, ApacheNameServer
from tests.store.rig import ARCHIVE_SIZES, append, bodies_of, open_store

from sparrowmq import aio
from sparrowmq.core.message import Message
from sparrowmq.store.config_file import ConfigFile

TOPIC = "Moving"
QUEUES = 3
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 2000}
COUNT = 3000


def fill(root: Path, *, clean: bool) -> list[list[bytes]]:
    """A store of ours with messages over several files; the bodies by queue."""
    rng = random.Random(7)
    expected: list[list[bytes]] = [[] for _ in range(QUEUES)]
    store = open_store(root, **ARCHIVE_SIZES)
    for number in range(COUNT):
        queue_id = rng.randrange(QUEUES)
        body = b"%d:" % number + rng.randbytes(rng.randrange(2000))
        properties = b"TAGS\x01T%d\x02KEYS\x01k%d\x02UNIQ_KEY\x01%032X\x02" % (number % 3, number, number)
        append(
            store,
            store.queue(TOPIC, queue_id),
            body,
            properties=properties,
            tags_code=84 * 31 + 48 + number % 3,
        )
        expected[queue_id].append(body)
        if rng.random() < 0.3:
            store.commit_chunk()
        if number == COUNT // 2:
            store.flush()
            store.flush_queues(safe_point=True)
    store.commit_chunk()
    ConfigFile(root / "config" / "topics.json").save(
        {
            "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1},
            "topicConfigTable": {
                TOPIC: {
                    "order": False,
                    "perm": 6,
                    "readQueueNums": QUEUES,
                    "topicFilterType": "SINGLE_TAG",
                    "topicName": TOPIC,
                    "topicSysFlag": 0,
                    "writeQueueNums": QUEUES,
                }
            },
        }
    )
    if clean:
        store.close()
    else:
        store.abandon()
    return expected


async def read_and_add(namesrv: str) -> tuple[list[list[bytes]], list[list[bytes]]]:
    """All bodies by queue as a client sees them, those with tag T1 alone, after sending one more to each."""
    everything: list[list[bytes]] = []
    tagged: list[list[bytes]] = []
    async with aio.Producer("mover", namesrv=namesrv, send_timeout=10.0) as producer:
        for queue in sorted(await producer.queues(TOPIC)):
            await producer.send(Message(TOPIC, b"added %d" % queue.queue_id), queue=queue)
    async with aio.PullConsumer("reader", namesrv=namesrv) as consumer:
        for queue in sorted(await consumer.queues(TOPIC)):
            for expression, found in (("*", everything), ("T1", tagged)):
                bodies: list[bytes] = []
                offset, end = 0, await consumer.max_offset(queue)
                while offset < end:
                    result = await consumer.pull(queue, offset, expression=expression)
                    bodies += [message.body for message in result.messages]
                    assert result.next_offset > offset, result
                    offset = result.next_offset
                found.append(bodies)
    return everything, tagged


@pytest.mark.interop
@pytest.mark.timeout(400)
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_directory_of_ours_serves_apache_and_comes_back(clean: bool, tmp_path: Path) -> None:
    root = tmp_path / "store"
    expected = fill(root, clean=clean)
    if not clean:  # entries of the last file that did not reach the disk
        shutil.rmtree(root / "consumequeue" / TOPIC / "1")
        (root / "checkpoint").unlink()
    name_server = ApacheNameServer(tmp_path)
    broker = ApacheBroker(tmp_path, name_server.address, store=root, settings={**PATIENT, **SIZES})
    try:
        name_server.start()
        name_server.ready()
        broker.start()
        broker.ready()
        everything, tagged = asyncio.run(read_and_add(name_server.address))
        for queue_id, bodies in enumerate(expected):
            bodies.append(b"added %d" % queue_id)
        assert everything == expected
        assert tagged == [
            [body for body in bodies if body[:1] != b"a" and int(body[: body.index(b":")]) % 3 == 1]
            for bodies in expected
        ]
        broker.stop() if clean else broker.kill()
    finally:
        broker.kill()
        name_server.kill()
    store = open_store(root, **ARCHIVE_SIZES)
    assert store.recovery.clean is clean
    assert (store.recovery.damaged, store.recovery.refused) == ((), 0)
    assert [bodies_of(store, TOPIC, queue_id) for queue_id in range(QUEUES)] == expected
    store.close()
