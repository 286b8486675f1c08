"""The light load generator: brokers accept its frames, and its counts match the stored messages."""

from __future__ import annotations

import json

import pytest
from benchmarks.frames import Generator, call, frame, send_frame
from tests.support import run

from sparrowmq import aio
from sparrowmq.testing import LocalCluster


def _stored(cluster: LocalCluster, topic: str) -> int:
    """The sum of the queues' largest offsets."""

    async def count() -> int:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            return sum(status.max_offset for status in await admin.topics.status(topic))

    return run(count())


def test_a_send_is_stored(sparrow_cluster: LocalCluster) -> None:
    sparrow_cluster.create_topic("Frames", queues=2)
    header, _ = call(sparrow_cluster.broker_address, send_frame("Frames", 1, 77, b"body"), 5.0)
    assert (header["code"], header["opaque"], header["extFields"]["queueId"]) == (0, 77, "1")
    assert _stored(sparrow_cluster, "Frames") == 1


@pytest.mark.parametrize("connections", [1, 3])
def test_the_generator_counts_what_is_stored(sparrow_cluster: LocalCluster, connections: int) -> None:
    sparrow_cluster.create_topic("Frames", queues=4)
    with Generator(
        sparrow_cluster.broker_address, "Frames", connections=connections, in_flight=16, size=100, queues=4
    ) as generator:
        generator.start()
        sent = generator.run(0.05)
        sent += generator.drain()
    assert sent >= 16 * connections
    assert _stored(sparrow_cluster, "Frames") == sent


def test_an_error_answer_ends_the_generator(sparrow_cluster: LocalCluster) -> None:
    sparrow_cluster.create_topic("Frames", queues=1)
    address = sparrow_cluster.broker_address
    with Generator(address, "Frames", connections=1, in_flight=4, size=10, queues=3) as generator:
        generator.start()
        with pytest.raises(ConnectionError, match="an answer is an error"):
            generator.drain()


def test_a_frame_is_laid_out_as_java_does() -> None:
    data = frame(105, {"topic": "T", "n": 4}, 9, b"xyz")
    total, header = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
    assert (total, data[8 + header :]) == (len(data) - 4, b"xyz")
    assert json.loads(data[8 : 8 + header])["extFields"] == {"topic": "T", "n": "4"}
