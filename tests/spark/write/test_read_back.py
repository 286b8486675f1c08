"""What earlier runs of a batch with keys stored, read back from the queues."""

from __future__ import annotations

import asyncio

import numpy as np
import pyarrow as pa
import pytest
from tests.columnar.records import record
from tests.support import about

from sparrowmq.columnar.encode import mark_column
from sparrowmq.core.errors import BrokerError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus, RawBatch
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write.identity import RowIdentity, key_hashes
from sparrowmq.spark.write.read_back import HashArray, QueueRead, stored_keys
from sparrowmq.spark.write.refusals import WriteRefusedError

QUEUE = MessageQueue("t", "b", 0)
OPTIONS = WriteOptions(name_server="stub:1", topic="t")


def stored(key: str, offset: int, identity: RowIdentity) -> bytes:
    """A record as the sink leaves it."""
    mark = mark_column(identity.producer_id("t"), identity.epoch(0), "t", 0, np.array([offset]))[0].as_py()
    text = f"{mark}UNIQ_KEY\x01{identity.key_ids(pa.array([key]))[0].as_py()}\x02"
    return record(offset, b"body", text.encode(), topic=b"t", queue_id=0)


class Held:
    """A queue of records."""

    def __init__(self, records: list[bytes], refuses: int = 0) -> None:
        self.records = records
        self.refuses = refuses

    async def fetch_raw(
        self, queue: MessageQueue, offset: int, *, max_bytes: int, max_messages: int
    ) -> RawBatch:
        if self.refuses:
            raise BrokerError(self.refuses, "no")
        part, end = self.records[offset : offset + 2], len(self.records)
        status = PullStatus.FOUND if part else PullStatus.NO_NEW_MESSAGE
        return RawBatch(status, b"".join(part), offset + len(part), 0, end)


def found(held: Held, identity: RowIdentity, begin: int = 0) -> set[int]:
    async def reader() -> Held:
        return held

    keys: set[int] = set()

    def take(hashes: HashArray) -> None:
        keys.update(hashes.tolist())

    asyncio.run(stored_keys([QueueRead(reader, QUEUE, begin, OPTIONS)], identity, "t", take))
    return keys


def hashes(*keys: str) -> set[int]:
    return set(key_hashes(pa.array(keys, pa.string())).tolist())


def test_keys_of_earlier_runs_are_found_in_whatever_partition_they_were() -> None:
    runs = [RowIdentity("q", 7, 0, 1), RowIdentity("q", 7, 5, 2)]
    others = [
        RowIdentity("q", 7, 0, 3),  # this run's own: another try of a task must see what the first saw
        RowIdentity("q", 6, 0, 1),
        RowIdentity("q", 8, 0, 1),
        RowIdentity("other", 7, 0, 1),
    ]
    records = [stored(f"key {n}", n, identity) for n, identity in enumerate([*runs, *others, *runs])]
    records.append(record(len(records), topic=b"t"))
    assert found(Held(records), RowIdentity("q", 7, 1, 3)) == hashes("key 0", "key 1", "key 6", "key 7")
    assert found(Held(records), RowIdentity("q", 7, 1, 3), begin=6) == hashes("key 6", "key 7")
    assert found(Held(records), RowIdentity("q", 7, 1, 2)) == hashes("key 0", "key 6")
    assert found(Held([]), RowIdentity("q", 7, 1, 2)) == set()


def test_a_queue_that_may_not_be_read_is_told() -> None:
    with pytest.raises(WriteRefusedError, check=about(value=16)):
        found(Held([], refuses=16), RowIdentity("q", 7, 1, 2))
    with pytest.raises(BrokerError, check=about(code=13, remark="no")):
        found(Held([], refuses=13), RowIdentity("q", 7, 1, 2))
