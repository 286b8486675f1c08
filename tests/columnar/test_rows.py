from __future__ import annotations

from datetime import UTC, datetime

from tests.columnar.records import record

from sparrowmq.columnar.rows import decode_rows
from sparrowmq.columnar.schema import TYPES, arrow_schema


def test_every_column_of_one_record() -> None:
    buffer = record(7, b"hello", flag=5, sys_flag=8, reconsume_times=2)
    assert decode_rows(buffer, arrow_schema(tuple(TYPES)), broker_name="broker-a").to_pylist() == [
        {
            "topic": "TopicTest",
            "broker": "broker-a",
            "queue_id": 3,
            "queue_offset": 7,
            "msg_id": "id",
            "tags": "TagA",
            "keys": "k1 k2",
            "born_timestamp": datetime.fromtimestamp(1_700_000_000.007, UTC),
            "store_timestamp": datetime.fromtimestamp(1_700_000_000.008, UTC),
            "reconsume_times": 2,
            "properties": [("UNIQ_KEY", "id"), ("KEYS", "k1 k2"), ("TAGS", "TagA")],
            "body": b"hello",
            "flag": 5,
            "sys_flag": 8,
            "physical_offset": 7000,
            "store_size": len(buffer),
            "born_host": "127.0.0.1:10000",
            "store_host": "127.0.0.1:10000",
            "sharding_key": None,
        }
    ]


def test_offsets_cut_and_drop_what_went_before() -> None:
    buffer = b"".join(record(offset) for offset in (3, 4, 4, 2, 5, 9))
    batch = decode_rows(buffer, arrow_schema(["queue_offset"]), offsets=range(4, 9))
    assert batch["queue_offset"].to_pylist() == [4, 5]
