"""Runs the walks of docs/architecture.md once and prints which functions were called, as JSON.

It is a process of its own, so that the profile function is there before any thread is: name server, broker,
clients and a task of Spark's data source all run here. Spark itself is not needed: this calls its readers as
Spark does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final

from pyspark.sql.types import BinaryType, StructField, StructType

import sparrowmq
from sparrowmq import aio
from sparrowmq.spark.source import RocketMQSource
from sparrowmq.testing import LocalCluster

PACKAGE: Final = f"{Path(sparrowmq.__file__).parent}/"
TOPIC: Final = "Walked"
ROWS: Final = 200
"""More than `columnar.decode.ROWS_LOOP_MAX`, so that vectors decode them."""
SECONDS_MAX: Final = 60.0

calls: list[tuple[str, str]] = []
"""Module path and qualified name of each call into the package, and of each turn of a coroutine, in order."""


def note(frame: FrameType, event: str, _: object) -> None:
    """The profile function."""
    if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
        calls.append((frame.f_code.co_filename[len(PACKAGE) :], frame.f_code.co_qualname))


def taken() -> list[tuple[str, str]]:
    """What was called since the last time."""
    found = calls[:]
    calls.clear()
    return found


async def client_walks(namesrv: str) -> dict[str, list[tuple[str, str]]]:
    """A send by a producer that knows its route, and a message consumed and committed."""
    walks = {}
    async with aio.Producer("walk-producer", namesrv=namesrv) as producer:
        await producer.send(aio.Message(TOPIC, b"the first send asks for the route and connects"))
        taken()
        await producer.send(aio.Message(TOPIC, b"walked"))
        walks["send"] = walks["log"] = taken()
        consumed = asyncio.Event()

        async def handle(message: aio.ReceivedMessage) -> None:
            consumed.set()

        consumer = aio.PushConsumer("walk-consumer", namesrv=namesrv, consume_from="first")
        consumer.subscribe(TOPIC, handler=handle)
        async with consumer:
            async with asyncio.timeout(SECONDS_MAX):
                await consumed.wait()
        walks["offset"] = taken()
        for _ in range(ROWS):
            await producer.send(aio.Message(TOPIC, b"a row"))
    return walks


def spark_walk(namesrv: str) -> list[tuple[str, str]]:
    """The tasks of one micro-batch, planned and read."""
    source = RocketMQSource({"nameServer": namesrv, "subscribe": TOPIC, "startingOffsets": "earliest"})
    reader = source.streamReader(StructType([StructField("body", BinaryType())]))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    taken()
    batches: list[Any] = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
    rows = sum(batch.num_rows for batch in batches)
    if rows != ROWS + 2:
        raise SystemExit(f"the micro-batch has {rows} rows, not {ROWS + 2}")
    return taken()


def main() -> None:
    """Print the calls of each walk."""
    threading.setprofile(note)
    sys.setprofile(note)
    with LocalCluster() as cluster:
        cluster.create_topic(TOPIC, queues=1)
        walks = asyncio.run(client_walks(cluster.namesrv))
        walks["rows"] = spark_walk(cluster.namesrv)
        sys.setprofile(None)
        threading.setprofile(None)
    print(json.dumps(walks))


if __name__ == "__main__":
    main()
